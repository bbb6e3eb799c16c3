"""How well rows are predicted without their neighbourhoods, as a function of hyperparameters."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from ..covariances.jitter import jittered, own_jitter, relative_jitter
from ..kernels.tangents import Matrices
from ..likelihoods import Weighted, checked_observations, unwrapped
from ..models import AdditiveSGPR, AdditiveSVGP
from ..statistics import Neighbourhoods, NotPositiveDefinite, Sites, divided_out, signs_of
from ..statistics.neighbourhoods import Batch
from .rounds import Rounds


class LeftOut:
    r"""
    The log predictive density of all rows, each without its neighbourhood (Wood 2024).

    .. math:: \sum_n w_n \log \int p(y_n | f) \, q_{-G(n)}(f_n) \, df

    with :math:`q_{-G}` the posterior without the sites of the rows in G: exact for Gaussian data.
    Of several predictors each has sites of its own, where ``GAM.loo`` moves their means together.
    Coordinates are those of the kernels' hyperparameters, then of the likelihood's parameters.
    Priors are added. What is between the kernels' matrices and the density is differentiated by
    TensorFlow, eagerly; the kernels' own derivatives are :mod:`gpflow_gam.kernels.tangents`.

    :param model: of Gaussian data it has the weights.
    :param rounds: of the fit; its likelihood's parameters are set at each evaluation.
    :param neighbourhoods: of the rows.
    :param sites: of the rows, which stay; None for those of Gaussian data, which follow the noise.
    """

    def __init__(
        self,
        model: AdditiveSGPR | AdditiveSVGP,
        rounds: Rounds,
        neighbourhoods: Neighbourhoods,
        sites: Sites | None = None,
    ) -> None:
        self.rounds, self._sites = rounds, sites
        self._signs = None if sites is None else signs_of(sites.weight)
        rows, likelihood = rounds.rows, rounds.likelihood
        self._likelihood = unwrapped(likelihood)
        self._X, self._mean = tf.constant(rows.X[:]), tf.constant(rows.mean[:])
        self._Y = checked_observations(tf.constant(rows.Y[:]), likelihood)
        self._Y0 = tf.constant(rows.Y[:])
        counts = np.ones(rows.number)
        if isinstance(model, AdditiveSGPR):
            counts = np.asarray(model.weights)
        elif isinstance(likelihood, Weighted):
            counts = np.asarray(likelihood.weights(self._X))
        self._counts = tf.constant(counts)
        self._codes = [tf.constant(c.bins.codes.astype(np.int32)) for c in rows.components]
        self._multipliers = [
            None if c.multiplier is None else tf.constant(c.multiplier[:]) for c in rows.components
        ]
        jitter = relative_jitter(None, tf.float64)
        self._jitters = [own_jitter(jitter, c.kernel, tf.float64) for c in rows.components]
        width = int(sum(len(c.inducing) for c in rows.components))
        self._batches = list(neighbourhoods.batches(width))

    def __len__(self) -> int:
        """K."""
        return len(self.rounds.hyperparameters) + len(self.rounds.family)

    def split(self, x: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
        """Coordinates of the kernels' hyperparameters, and of the likelihood's parameters."""
        number = len(self.rounds.hyperparameters)
        return x[:number], x[number:]

    def loss(self, x: AnyNDArray) -> tuple[float, AnyNDArray]:
        """
        Minus the density and the priors' log-densities, and its gradient.

        :raises NotPositiveDefinite: at these coordinates.
        """
        rounds = self.rounds
        u, phi = self.split(x)
        rounds.family.set(phi)
        values = rounds.values(u)
        evaluated = [c.table.evaluate(values) for c in rounds.rows.components]
        try:
            total, slopes, own = self._evaluate([matrices for matrices, _ in evaluated])
        except tf.errors.InvalidArgumentError:
            raise NotPositiveDefinite from None
        if not np.isfinite(total):
            raise NotPositiveDefinite
        gradients: dict[int, AnyNDArray] = {}
        for (_, pullback), upstream in zip(evaluated, slopes):
            for parameter, gradient in pullback(upstream):
                key = id(parameter)
                gradients[key] = gradients.get(key, 0.0) + gradient
        prior, slope = rounds.hyperparameters.log_prior(u)
        family, family_slope = rounds.family.log_prior(phi)
        whole = np.concatenate(
            [rounds.hyperparameters.pullback(u, gradients) + slope, own + family_slope]
        )
        if not np.all(np.isfinite(whole)):
            raise NotPositiveDefinite
        return -(total + prior + family), -whole

    def density(self, x: AnyNDArray) -> float:
        """The density alone, priors left out."""
        u, phi = self.split(x)
        rounds = self.rounds
        prior = rounds.hyperparameters.log_prior(u)[0] + rounds.family.log_prior(phi)[0]
        return -self.loss(x)[0] - prior

    def _evaluate(self, matrices: list[Matrices]) -> tuple[float, list[Matrices], AnyNDArray]:
        """The density, its gradients in the matrices, and in the likelihood's coordinates."""
        inputs = [[tf.constant(a) for a in own] for own in matrices]
        variables = [p.unconstrained_variable for p in self.rounds.family.parameters]
        with tf.GradientTape(watch_accessed_variables=False) as outer:
            outer.watch([inputs, variables])
            parts = self._whitened(inputs)
        total = 0.0
        slopes = [tf.zeros_like(part) for part in parts]
        own = [tf.zeros_like(v) for v in variables]
        for batch in self._batches:
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch([parts, variables])
                value = self._density(parts, batch)
            found = tape.gradient(value, [*parts, *variables], unconnected_gradients="zero")
            found = [tf.convert_to_tensor(g) for g in found]
            total += float(value)
            slopes = [a + b for a, b in zip(slopes, found)]
            own = [a + b for a, b in zip(own, found[len(parts) :])]
        back, direct = outer.gradient(
            parts, [inputs, variables], output_gradients=slopes, unconnected_gradients="zero"
        )
        upstream: list[Matrices] = [(K.numpy(), Kzx.numpy(), d.numpy()) for K, Kzx, d in back]
        flat = [np.ravel((a + b).numpy()) for a, b in zip(own, direct)]
        return total, upstream, np.concatenate(flat) if flat else np.zeros(0)

    def _whitened(self, inputs: list[list[tf.Tensor]]) -> list[tf.Tensor]:
        """
        Features in which q is standard normal, [L, N, P], its mean there [L, P], and open variance,
        square roots of the sites' weights (signs left out) and their shifts, [N, L] each.
        """
        features, opens, entering = [], [], []
        L, components = int(self._mean.shape[1]), self.rounds.rows.components
        parts = zip(inputs, self._jitters, self._codes, self._multipliers, components)
        for (K, Kzx, diagonal), jitter, code, multiplier, component in parts:
            root = tf.linalg.cholesky(jittered(K, jitter))
            phi = tf.linalg.triangular_solve(root, Kzx)
            left = tf.gather(diagonal - tf.reduce_sum(tf.square(phi), axis=0), code)
            own = tf.gather(phi, code, axis=1)
            if multiplier is not None:
                own, left = own * multiplier, left * tf.square(multiplier)
            features.append(own)
            where = np.isin(np.arange(L), component.outputs_of(L)).astype(np.float64)
            opens.append(left[:, None] * where)
            entering.append(np.tile(where, (len(component.inducing), 1)))
        every, enters = tf.concat(features, axis=0), np.concatenate(entering)
        weight, shift = self._present_sites()
        z, mean = [], []
        for i in range(L):
            phi = every if np.all(enters[:, i]) else every * enters[:, i, None]
            Lambda = tf.matmul(phi * weight[:, i], phi, transpose_b=True)
            root = tf.linalg.cholesky(tf.eye(phi.shape[0], dtype=phi.dtype) + Lambda)
            whitened = tf.linalg.triangular_solve(root, phi)
            mean.append(tf.linalg.matvec(whitened, shift[:, i]))
            z.append(tf.transpose(whitened))
        left = tf.maximum(tf.add_n(opens), tf.zeros([], every.dtype))
        return [tf.stack(z), tf.stack(mean), left, self._roots(), shift]

    def _present_sites(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Weights and shifts, [N, L]."""
        if self._sites is not None:
            return tf.constant(self._sites.weight), tf.constant(self._sites.shift)
        residual = self._Y0 - self._mean
        counts = self._counts[:, None] * tf.ones_like(residual)
        noise = tf.convert_to_tensor(self._likelihood.variance)
        return counts / noise, counts * residual / noise

    def _roots(self) -> tf.Tensor:
        """Square roots of the sites' weights, signs left out, [N, L]: of zero no derivative."""
        if self._sites is not None:
            return tf.constant(np.sqrt(np.abs(self._sites.weight)))
        roots = tf.sqrt(self._counts)[:, None] * tf.ones_like(self._mean)
        return roots / tf.sqrt(tf.convert_to_tensor(self._likelihood.variance))

    def _density(self, parts: list[tf.Tensor], batch: Batch) -> tf.Tensor:
        """Of the rows that a batch of folds predicts."""
        z, mean, left, roots, shifts = parts
        has = tf.constant(batch.left.astype(np.float64))
        which = batch.predicted[batch.asked]
        at = np.flatnonzero(batch.asked)
        means, variances = [], []
        for i in range(int(roots.shape[1])):
            r = tf.gather(roots[:, i], batch.out) * has
            s = tf.gather(shifts[:, i], batch.out) * has
            found = divided_out(
                tf.gather(z[i], batch.predicted),
                tf.gather(z[i], batch.out),
                mean[i],
                r,
                s,
                None if self._signs is None else self._signs[batch.out, i],
            )
            m, v = (tf.gather(tf.reshape(part, [-1]), at) for part in found)
            means.append(m)
            variances.append(v + tf.gather(left[:, i], which))
        F = tf.stack(means, axis=1) + tf.gather(self._mean, which)
        density = self._likelihood.predict_log_density(
            tf.gather(self._X, which), F, tf.stack(variances, axis=1), tf.gather(self._Y, which)
        )
        counts = tf.gather(self._counts, which)
        counted = tf.where(counts > 0.0, density, tf.zeros_like(density))
        return tf.reduce_sum(counts * counted)
