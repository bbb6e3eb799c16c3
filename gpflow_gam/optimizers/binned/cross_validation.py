"""Fits whose smoothness is chosen by predicting rows without their neighbourhoods."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from ...bijectors import restore_on_error
from ...covariances import jittered, own_jitter, relative_jitter
from ...errors import NotPositiveDefinite
from ...kernels.fixed_inputs import Matrices
from ...likelihoods import Weighted
from ...likelihoods.base import unwrapped
from ...likelihoods.support import checked_observations
from ...models import AdditiveSGPR, AdditiveSVGP
from ...threads import SMALL, one_blas_thread
from ..minimizers import (
    Best,
    Callback,
    FitResult,
    OnInterrupt,
    StopFit,
    TimeBudget,
    Tracker,
    converge,
)
from .cavities import Batch, Neighbourhoods, Sites, divided_out, signs_of, sites_of
from .evidence import added
from .rounds import Evaluation, Rounds, differenced
from .solution import CollapsedBound, Solution


class LeftOutDensity:
    r"""
    The log predictive density of all rows, each without its neighbourhood (Wood 2024).

    .. math:: \sum_n w_n \log \int p(y_n | f) \, q_{-G(n)}(f_n) \, df

    with :math:`q_{-G}` the posterior without the sites of the rows in G: exact for Gaussian data,
    whose sites (None) follow the noise. TensorFlow differentiates, eagerly, between the kernels'
    matrices and the density; coordinates are those of :class:`Rounds`, whose likelihood is set at
    each evaluation.
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

    def loss(self, x: AnyNDArray) -> tuple[float, AnyNDArray]:
        """Minus the density and the priors' log-densities, and its gradient."""
        rounds = self.rounds
        u, phi = rounds.split(x)
        rounds.family.set(phi)
        values = rounds.values(u)
        evaluated = [c.table.evaluate(values) for c in rounds.rows.components]
        try:
            total, slopes, direct = self._evaluate([matrices for matrices, _ in evaluated])
        except tf.errors.InvalidArgumentError:
            raise NotPositiveDefinite from None
        if not np.isfinite(total):
            raise NotPositiveDefinite
        gradients = added(pullback(slope) for (_, pullback), slope in zip(evaluated, slopes))
        prior, slope = rounds.hyperparameters.log_prior(u)
        family, family_slope = rounds.family.log_prior(phi)
        whole = np.concatenate(
            [rounds.hyperparameters.pullback(u, gradients) + slope, direct + family_slope]
        )
        if not np.all(np.isfinite(whole)):
            raise NotPositiveDefinite
        return -(total + prior + family), -whole

    def density(self, x: AnyNDArray) -> float:
        """The density alone, priors left out."""
        return -self.loss(x)[0] - self.rounds.log_prior(*self.rounds.split(x))

    def _evaluate(self, matrices: list[Matrices]) -> tuple[float, list[Matrices], AnyNDArray]:
        """The density, its gradients in the matrices, and in the likelihood's coordinates."""
        inputs = [[tf.constant(a) for a in parts] for parts in matrices]
        variables = [p.unconstrained_variable for p in self.rounds.family.parameters]
        with tf.GradientTape(watch_accessed_variables=False) as outer:
            outer.watch([inputs, variables])
            parts = self._whitened(inputs)
        total = 0.0
        slopes = [tf.zeros_like(part) for part in parts]
        direct = [tf.zeros_like(v) for v in variables]
        for batch in self._batches:
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch([parts, variables])
                value = self._density(parts, batch)
            gradients = tape.gradient(value, [*parts, *variables], unconnected_gradients="zero")
            gradients = [tf.convert_to_tensor(g) for g in gradients]
            total += float(value)
            slopes = [a + b for a, b in zip(slopes, gradients)]
            direct = [a + b for a, b in zip(direct, gradients[len(parts) :])]
        back, indirect = outer.gradient(
            parts, [inputs, variables], output_gradients=slopes, unconnected_gradients="zero"
        )
        upstream: list[Matrices] = [(K.numpy(), Kzx.numpy(), d.numpy()) for K, Kzx, d in back]
        flat = [np.ravel((a + b).numpy()) for a, b in zip(direct, indirect)]
        return total, upstream, np.concatenate(flat) if flat else np.zeros(0)

    def _whitened(self, inputs: list[list[tf.Tensor]]) -> list[tf.Tensor]:
        """Whitened features [L, N, P], means [L, P]; residuals, roots, shifts [N, L]."""
        features, residuals, entering = [], [], []
        L, components = int(self._mean.shape[1]), self.rounds.rows.components
        parts = zip(inputs, self._jitters, self._codes, self._multipliers, components)
        for (K, Kzx, diagonal), jitter, code, multiplier, component in parts:
            root = tf.linalg.cholesky(jittered(K, jitter))
            phi = tf.linalg.triangular_solve(root, Kzx)
            residual = tf.gather(diagonal - tf.reduce_sum(tf.square(phi), axis=0), code)
            phi = tf.gather(phi, code, axis=1)
            if multiplier is not None:
                phi, residual = phi * multiplier, residual * tf.square(multiplier)
            features.append(phi)
            outputs = np.isin(np.arange(L), component.outputs_of(L)).astype(np.float64)
            residuals.append(residual[:, None] * outputs)
            entering.append(np.tile(outputs, (len(component.inducing), 1)))
        stacked, enters = tf.concat(features, axis=0), np.concatenate(entering)
        weight, shift, roots = self._present_sites()
        z, mean = [], []
        for i in range(L):
            phi = stacked if np.all(enters[:, i]) else stacked * enters[:, i, None]
            Lambda = tf.matmul(phi * weight[:, i], phi, transpose_b=True)
            root = tf.linalg.cholesky(tf.eye(phi.shape[0], dtype=phi.dtype) + Lambda)
            whitened = tf.linalg.triangular_solve(root, phi)
            mean.append(tf.linalg.matvec(whitened, shift[:, i]))
            z.append(tf.transpose(whitened))
        residual = tf.maximum(tf.add_n(residuals), tf.zeros([], stacked.dtype))
        return [tf.stack(z), tf.stack(mean), residual, roots, shift]

    def _present_sites(self) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Weights, shifts and square roots of absolute weights, [N, L]."""
        if self._sites is not None:
            parts = self._sites.weight, self._sites.shift, np.sqrt(np.abs(self._sites.weight))
            return tuple(tf.constant(part) for part in parts)
        residual = self._Y0 - self._mean
        noise = tf.convert_to_tensor(self._likelihood.variance)
        counts = self._counts[:, None] * tf.ones_like(residual)
        roots = tf.sqrt(self._counts)[:, None] * tf.ones_like(residual)  # no derivative at zero
        return counts / noise, counts * residual / noise, roots / tf.sqrt(noise)

    def _density(self, parts: list[tf.Tensor], batch: Batch) -> tf.Tensor:
        """The log density of the rows that a batch of folds predicts."""
        z, mean, residual, roots, shifts = parts
        is_out = tf.constant(batch.is_out.astype(np.float64))
        which = batch.predicted[batch.is_predicted]
        at = np.flatnonzero(batch.is_predicted)
        means, variances = [], []
        for i in range(int(roots.shape[1])):
            r = tf.gather(roots[:, i], batch.out) * is_out
            s = tf.gather(shifts[:, i], batch.out) * is_out
            moments = divided_out(
                tf.gather(z[i], batch.predicted),
                tf.gather(z[i], batch.out),
                mean[i],
                r,
                s,
                None if self._signs is None else self._signs[batch.out, i],
            )
            m, v = (tf.gather(tf.reshape(part, [-1]), at) for part in moments)
            means.append(m)
            variances.append(v + tf.gather(residual[:, i], which))
        F = tf.stack(means, axis=1) + tf.gather(self._mean, which)
        density = self._likelihood.predict_log_density(
            tf.gather(self._X, which), F, tf.stack(variances, axis=1), tf.gather(self._Y, which)
        )
        counts = tf.gather(self._counts, which)
        density = tf.where(counts > 0.0, density, tf.zeros_like(density))
        return tf.reduce_sum(counts * density)


_MAX_ROUNDS = 20
_HALVINGS = 4
_LEAST = 1e-2  # curvature of a coordinate of which nothing is known


def fit_left_out(
    model: AdditiveSGPR | AdditiveSVGP,
    solution: Solution,
    neighbourhoods: Neighbourhoods,
    *,
    max_iterations: int = 1000,
    tolerance: float = 1e-2,
    max_seconds: float | TimeBudget | None = None,
    callback: Callback | None = None,
    progress: bool | None = None,
    on_interrupt: OnInterrupt = "raise",
    **_: Any,
) -> tuple[FitResult, Solution]:
    """Go on from a fit to the hyperparameters that predict left-out rows best."""
    # The criterion is the log predictive density of every row without its neighbourhood's sites,
    # plus the priors' (Wood 2024, with a density for the loss). Of several optima searches begin at
    # the fit's and at the priors' modes. The sites of Gaussian data follow from the noise; for
    # other data searches alternate with passes until sites have converged, and a step that predicts
    # no better is shortened.
    following = max_seconds, callback, progress, on_interrupt
    with (
        one_blas_thread(sum(model.inducing_variable.sizes) <= SMALL),
        np.errstate(over="ignore", invalid="ignore"),
        restore_on_error(model),
        Tracker([], "left-out rows", *following, "density", max_iterations, tolerance) as tracker,
    ):
        search = _Search(neighbourhoods, tracker)
        if solution.bound is not None:
            return search.gaussian(model, solution, solution.bound)
        assert isinstance(model, AdditiveSVGP)
        return search.by_turns(model, solution)


@dataclasses.dataclass
class _Search:
    """Searches for the best hyperparameters."""

    neighbourhoods: Neighbourhoods
    tracker: Tracker

    def gaussian(
        self, model: AdditiveSGPR | AdditiveSVGP, solution: Solution, bound: CollapsedBound
    ) -> tuple[FitResult, Solution]:
        """The best hyperparameters for Gaussian data."""
        target = LeftOutDensity(model, bound.rounds, self.neighbourhoods)
        starts = [solution.optimum, _smooth(bound.rounds, solution.optimum)]
        if len(bound.noise):
            # noise that leaves half of the response's variance to explain
            noise, transform = 0.5 * bound.error[0] / bound.error[1], bound.parameter.transform
            noise = noise if transform is None else transform.inverse(np.float64(noise))
            starts[1][len(bound.kernel) :] = noise
        x, converged, message = self._best(target, starts, bound.metric)
        bound.set(x)
        elbo = -bound.loss(x)[0]
        hessian = differenced(lambda u: target.loss(u)[1], x) if len(x) else None
        bound.set(x)  # after the differences
        best = dataclasses.replace(Solution.of_bound(bound, x), hessian=hessian)
        best.assign(model)
        return self.tracker.result(converged, message, elbo), best

    def by_turns(self, model: AdditiveSVGP, solution: Solution) -> tuple[FitResult, Solution]:
        """The best hyperparameters for other data."""
        rounds, rows, tolerance = solution.rounds, solution.rows, self.tracker.tolerance

        def target_at(now: Evaluation, x: AnyNDArray, signed: bool) -> LeftOutDensity:
            u, phi = rounds.split(x)
            rounds.family.set(phi)
            sites, _ = sites_of(rows, model.likelihood, rounds.values(u), now.q, signed)
            return LeftOutDensity(model, rounds, self.neighbourhoods, sites)

        x, signed = solution.optimum, True
        now = rounds.converged_at(x, solution.data, tolerance)
        try:
            target = target_at(now, x, signed)
            value = target.loss(x)[0]
        except NotPositiveDefinite:
            # without a neighbourhood's weights the negative ones of others may leave no posterior:
            # they then count as 0 in all that is compared
            signed = False
            target = target_at(now, x, signed)
            value = target.loss(x)[0]
        converged, message = False, f"round limit of {_MAX_ROUNDS} reached"
        try:
            for turn in range(_MAX_ROUNDS):
                starts = [x, _smooth(rounds, x)][: 1 if turn else 2]
                there, _, _ = self._best(target, starts, _metric(rounds, now, model), stop=True)
                new = None
                for share in 0.5 ** np.arange(_HALVINGS):
                    candidate = x + share * (there - x)
                    try:
                        after = rounds.converged_at(candidate, solution.data, tolerance)
                        moved = target_at(after, candidate, signed)
                        least = moved.loss(candidate)[0]
                    except NotPositiveDefinite:
                        continue
                    if least < value:
                        new = candidate, after, moved, least
                        break
                if new is None:
                    converged, message = True, "no step predicts left-out rows better any more"
                    break
                gain = value - new[3]
                x, now, target, value = new
                if gain < tolerance:
                    converged, message = True, f"the last round gained {gain:.2g} nats"
                    break
        except (StopFit, KeyboardInterrupt) as error:
            converged, message = False, self.tracker.why(error)
        hessian = differenced(lambda u: target.loss(u)[1], x) if len(x) else None
        u, phi = rounds.split(x)
        best = Solution(rows, now.point.data, now.q, rounds.values(u), x, rounds, hessian=hessian)
        best.assign(model)
        elbo = now.elbo + rounds.log_prior(u, phi)
        return self.tracker.result(converged, message, elbo), best

    def _best(
        self,
        target: LeftOutDensity,
        starts: list[AnyNDArray],
        metric: Callable[[AnyNDArray], AnyNDArray | None],
        stop: bool = False,
    ) -> tuple[AnyNDArray, bool, str]:
        """The best end from several starts, whether the last converged, and why it ended."""
        if not len(starts[0]):
            return starts[0], True, "nothing is trainable"
        ends: list[tuple[AnyNDArray, float, bool, str]] = []
        best, tolerance = Best(starts[0]), self.tracker.tolerance
        try:
            for start in starts:
                best.x = start
                try:
                    value = target.loss(start)[0]
                    ends.append(
                        converge(target.loss, start, value, tolerance, self.tracker, best, metric)
                    )
                except NotPositiveDefinite:
                    if not ends:
                        raise
        except (StopFit, KeyboardInterrupt) as error:
            if stop:
                raise
            message = self.tracker.why(error)
            ends.append((best.x, target.loss(best.x)[0], False, message))
        x, _, converged, message = min(ends, key=lambda end: end[1])
        return x, converged and ends[-1][2], message if ends[-1][2] else ends[-1][3]


def _smooth(rounds: Rounds, x: AnyNDArray) -> AnyNDArray:
    """Coordinates at priors' modes: near the ELBO's optimum correlation passes for a function."""
    u, phi = rounds.split(x)
    return np.concatenate([rounds.hyperparameters.prior_modes(u), phi])


def _metric(
    rounds: Rounds, now: Evaluation, model: AdditiveSVGP
) -> Callable[[AnyNDArray], AnyNDArray | None]:
    """Approximate second derivatives: of the evidence, and of the likelihood at fixed marginals."""
    number = len(rounds.hyperparameters)

    def metric(x: AnyNDArray) -> AnyNDArray | None:
        whole = np.zeros((len(x), len(x)))
        if number:
            kernels = rounds.metric(now.point.data, x[:number])
            if kernels is None:
                return None
            whole[:number, :number] = kernels
        rest = np.arange(number, len(x))
        whole[rest, rest] = np.maximum(np.abs(curvature), _LEAST)
        return whole

    curvature = np.zeros(0)
    if len(rounds.family):
        values = rounds.values(rounds.hyperparameters.get())
        curvature = np.diag(rounds.rows.sweep(model.likelihood, values, now.q).curvature)
    return metric
