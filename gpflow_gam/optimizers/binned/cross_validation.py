"""Fits whose smoothness is chosen by predicting rows without their neighbourhoods."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from ...covariances.jitter import jittered, own_jitter, relative_jitter
from ...errors import NotPositiveDefinite
from ...frozen import restore_on_error
from ...kernels.tangents import Matrices
from ...likelihoods import Weighted, checked_observations, unwrapped
from ...models import AdditiveSGPR, AdditiveSVGP
from ...threads import SMALL, one_blas_thread
from ..hyperparameters import differenced
from ..minimizers import FitResult, StopFit, TimeBudget, Tracker, descend
from ..minimizers.tracker import Callback, OnInterrupt
from .cavities import Batch, Neighbourhoods, Sites, divided_out, signs_of, sites_of
from .collapsed import CollapsedBound
from .rounds import Rounds, Seen, settled_at
from .solution import Solution, assign_posterior


class LeftOut:
    r"""
    The log predictive density of all rows, each without its neighbourhood (Wood 2024).

    .. math:: \sum_n w_n \log \int p(y_n | f) \, q_{-G(n)}(f_n) \, df

    with :math:`q_{-G}` the posterior without the sites of the rows in G: exact for Gaussian data.
    Of several predictors each has sites of its own, where ``GAM.loo`` moves their means together.
    Coordinates are those of the kernels' hyperparameters, then of the likelihood's parameters.
    Priors are added. What is between the kernels' matrices and the density is differentiated by
    TensorFlow, eagerly; the kernels' own derivatives are :mod:`gpflow_gam.kernels.tangents`.
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
        """Minus the density and the priors' log-densities, and its gradient."""
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
        has = tf.constant(batch.is_out.astype(np.float64))
        which = batch.predicted[batch.is_predicted]
        at = np.flatnonzero(batch.is_predicted)
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


_MAX_ROUNDS = 20
_HALVINGS = 4
_LEAST = 1e-2
"""What a coordinate is taken to curve by where nothing is known of it."""


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
    """
    Go on from a fit to the hyperparameters under which left-out rows are predicted best.

    The criterion is the log predictive density of every row without its neighbourhood's sites, plus
    the priors' log-densities (Wood 2024, who has a loss in its place). It may have several optima:
    searches begin at the fit's and where the priors are highest, and the best is taken. Of Gaussian
    data the sites follow from the noise, and searches are all there is. Of others they are in turn
    with passes in which the sites settle at the new hyperparameters; a turn that predicts no better
    is shortened.
    """
    with (
        one_blas_thread(sum(model.inducing_variable.sizes) <= SMALL),
        np.errstate(over="ignore", invalid="ignore"),
        restore_on_error(model),
        Tracker(
            [], "left-out rows", max_seconds, callback, progress, on_interrupt, "density"
        ) as tracker,
    ):
        search = _Search(neighbourhoods, tracker, max_iterations, tolerance)
        if solution.bound is not None:
            return search.gaussian(model, solution, solution.bound)
        assert isinstance(model, AdditiveSVGP)
        return search.by_turns(model, solution)


class _Search:
    """A search for the best hyperparameters."""

    def __init__(
        self,
        neighbourhoods: Neighbourhoods,
        tracker: Tracker,
        max_iterations: int,
        tolerance: float,
    ) -> None:
        self.neighbourhoods, self.tracker = neighbourhoods, tracker
        self.max_iterations, self.tolerance = max_iterations, tolerance

    def gaussian(
        self, model: AdditiveSGPR | AdditiveSVGP, solution: Solution, bound: CollapsedBound
    ) -> tuple[FitResult, Solution]:
        """Of Gaussian data."""
        target = LeftOut(model, bound.rounds, self.neighbourhoods)
        starts = [solution.found, _smooth(bound.rounds, solution.found)]
        if len(bound.noise):
            # as much noise as there would be under half of what there is to explain
            square, number = bound.error
            starts[1][len(bound.kernel) :] = bound.noise.coordinates([0.5 * square / number])
        x, converged, message = self._best(target, starts, bound.metric)
        bound.set(x)
        elbo = -bound.loss(x)[0]
        hessian = differenced(lambda u: target.loss(u)[1], x) if len(x) else None
        bound.set(x)  # which the differences have moved
        found = dataclasses.replace(Solution.of_bound(bound, x), hessian=hessian)
        if isinstance(model, AdditiveSVGP):
            assign_posterior(model, found.q)
        return self._result(converged, message, elbo), found

    def by_turns(self, model: AdditiveSVGP, solution: Solution) -> tuple[FitResult, Solution]:
        """Of other data."""
        rounds, rows = solution.rounds, solution.rows

        def target_at(seen: Seen, x: AnyNDArray, signed: bool) -> LeftOut:
            values = rounds.values(x[: len(rounds.hyperparameters)])
            rounds.family.set(x[len(rounds.hyperparameters) :])
            sites, _ = sites_of(rows, model.likelihood, values, seen.q, signed)
            return LeftOut(model, rounds, self.neighbourhoods, sites)

        x, signed = solution.found, True
        seen = settled_at(model, rounds, x, solution.data, self.tolerance)
        try:
            target = target_at(seen, x, signed)
            value = target.loss(x)[0]
        except NotPositiveDefinite:
            # a neighbourhood's own weights may be all that holds negative ones of others: these
            # then count for nothing, in all that is compared
            signed = False
            target = target_at(seen, x, signed)
            value = target.loss(x)[0]
        converged, message = False, f"round limit of {_MAX_ROUNDS} reached"
        try:
            for turn in range(_MAX_ROUNDS):
                starts = [x, _smooth(rounds, x)][: 1 if turn else 2]
                there, _, _ = self._best(target, starts, _metric(rounds, seen, model), stop=True)
                new = None
                for share in 0.5 ** np.arange(_HALVINGS):
                    candidate = x + share * (there - x)
                    try:
                        after = settled_at(model, rounds, candidate, solution.data, self.tolerance)
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
                x, seen, target, value = new
                if gain < self.tolerance:
                    converged, message = True, f"the last round gained {gain:.2g} nats"
                    break
        except StopFit as stop:
            converged, message = stop.converged, stop.message
        except KeyboardInterrupt:
            converged, message = False, self.tracker.interrupted()
        hessian = differenced(lambda u: target.loss(u)[1], x) if len(x) else None
        u, phi = target.split(x)
        rounds.hyperparameters.set(u)
        rounds.family.set(phi)
        assign_posterior(model, seen.q)
        prior = rounds.hyperparameters.log_prior(u)[0] + rounds.family.log_prior(phi)[0]
        found = Solution(
            rows, seen.state.data, seen.q, rounds.values(u), x, rounds, hessian=hessian
        )
        return self._result(converged, message, seen.elbo + prior), found

    def _best(
        self,
        target: LeftOut,
        starts: list[AnyNDArray],
        metric: Callable[[AnyNDArray], AnyNDArray | None],
        stop: bool = False,
    ) -> tuple[AnyNDArray, bool, str]:
        """The best that L-BFGS finds from several starts."""
        if not len(starts[0]):
            return starts[0], True, "nothing is trainable"
        found: list[tuple[float, AnyNDArray, bool, str]] = []
        seen = [starts[0]]
        try:
            for start in starts:
                seen[0] = start
                try:
                    found.append(self._descended(target, start, metric, seen))
                except NotPositiveDefinite:
                    if not found:
                        raise
        except StopFit as end:
            if stop:
                raise
            found.append((target.loss(seen[0])[0], seen[0], end.converged, end.message))
        except KeyboardInterrupt:
            if stop:
                raise
            message = self.tracker.interrupted()
            found.append((target.loss(seen[0])[0], seen[0], False, message))
        _, x, converged, message = min(found, key=lambda one: one[0])
        return x, converged and found[-1][2], message if found[-1][2] else found[-1][3]

    def _descended(
        self,
        target: LeftOut,
        x: AnyNDArray,
        metric: Callable[[AnyNDArray], AnyNDArray | None],
        seen: list[AnyNDArray],
    ) -> tuple[float, AnyNDArray, bool, str]:
        """L-BFGS until a run of it gains nothing."""

        def noted(at: AnyNDArray) -> None:
            seen[0] = at

        value = target.loss(x)[0]
        while True:
            left = self.max_iterations - len(self.tracker.history)
            if left <= 0:
                return value, x, False, f"iteration limit of {self.max_iterations} reached"
            x, converged, message = descend(
                target.loss, x, left, self.tolerance, self.tracker, True, noted, metric
            )
            now = target.loss(x)[0]
            gain, value = value - now, now
            if not converged or gain < self.tolerance:
                return value, x, converged, message

    def _result(self, converged: bool, message: str, elbo: float) -> FitResult:
        return self.tracker.result(converged, message, elbo)


def _smooth(rounds: Rounds, x: AnyNDArray) -> AnyNDArray:
    """
    Coordinates at which kernels are what their priors expect.

    The criterion may have an optimum there as well as near the ELBO's, which takes what rows have
    in common with their neighbours for a function.
    """
    number = len(rounds.hyperparameters)
    return np.concatenate([rounds.hyperparameters.prior_modes(x[:number]), x[number:]])


def _metric(
    rounds: Rounds, seen: Seen, model: AdditiveSVGP
) -> Callable[[AnyNDArray], AnyNDArray | None]:
    """About how the loss curves: as the evidence does, and the likelihood at held marginals."""
    number = len(rounds.hyperparameters)

    def metric(x: AnyNDArray) -> AnyNDArray | None:
        whole = np.zeros((len(x), len(x)))
        if number:
            own = rounds.metric(seen.state.data, x[:number])
            if own is None:
                return None
            whole[:number, :number] = own
        rest = np.arange(number, len(x))
        whole[rest, rest] = np.maximum(np.abs(curvature), _LEAST)
        return whole

    curvature = np.zeros(0)
    if len(rounds.family):
        values = rounds.values(rounds.hyperparameters.get())
        found = rounds.rows.sweep(model.likelihood, values, seen.q).curvature
        curvature = np.diag(found)
    return metric
