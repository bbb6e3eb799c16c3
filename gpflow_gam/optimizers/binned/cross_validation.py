"""Fits whose smoothness is chosen by predicting rows without their neighbourhoods."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood
from scipy.linalg import solve_triangular

from ...bijectors import restore_on_error
from ...covariances import relative_jitter
from ...errors import NotPositiveDefinite
from ...likelihoods import Weighted
from ...likelihoods.base import checked_observations, in_dtype_of, unwrapped
from ...likelihoods.predictive import predictive_log_density
from ...models import AdditiveSGPR, AdditiveSVGP
from ...threads import SMALL, one_blas_thread
from ..minimizers import (
    Callback,
    FitResult,
    Loss,
    OnInterrupt,
    StopFit,
    TimeBudget,
    Traced,
    Tracker,
    converge,
    descend,
    differenced,
)
from .cavities import (
    Batch,
    Neighbourhoods,
    RowPosterior,
    Sites,
    between_predictors,
    divided_out,
    sites_of,
)
from .evidence import Evidence, Places, added, slices
from .rounds import _MOST_STEPS, Evaluation, Rounds
from .solution import CollapsedBound, Solution

_UNSEEN = 1e-10  # information in rows, against the prior's, of directions that are left out


class LeftOutDensity:
    r"""
    The log predictive density of all rows, each without its neighbourhood (Wood 2024).

    .. math:: \sum_n w_n \log \int p(y_n | f) \, q_{-G(n)}(f_n) \, df

    with :math:`q_{-G}` the posterior without the sites of the rows in G: exact for Gaussian data,
    whose sites (None) follow the noise. Coordinates are those of :class:`Rounds`, whose likelihood
    is set at each evaluation.
    """

    def __init__(
        self,
        model: AdditiveSGPR | AdditiveSVGP,
        rounds: Rounds,
        neighbourhoods: Neighbourhoods,
        sites: Sites | None = None,
    ) -> None:
        self.rounds, self.sites = rounds, sites
        rows, likelihood = rounds.rows, rounds.likelihood
        self._likelihood = unwrapped(likelihood)
        self._traced = Traced(lambda *parts: self._slopes(*parts))
        self._X, self._Y, self._mean = rows.X[:], rows.Y[:], rows.mean[:]
        checked_observations(tf.constant(self._Y), likelihood)
        self._counts = np.ones(rows.number)
        if isinstance(model, AdditiveSGPR):
            self._counts = np.asarray(model.row_weights())
        elif isinstance(likelihood, Weighted):
            self._counts = np.asarray(likelihood.weights(self._X))
        L = rows.num_outputs
        self._entered = np.array([np.isin(np.arange(L), c.outputs_of(L)) for c in rows.components])
        # of each component, the matrix from its bins to rows, [N, G]
        self._at_rows = [
            scipy.sparse.csr_matrix(
                (
                    np.ones(rows.number) if c.multiplier is None else c.multiplier[:],
                    (np.arange(rows.number), c.bins.codes),
                ),
                (rows.number, c.bins.number),
            )
            for c in rows.components
        ]
        places = [
            Places(c.table, 0, c.table, c.places.parameters, c.bins.points, c.kernel)
            for c in rows.components
        ]
        self._neighbourhoods, self._share = neighbourhoods, 1.0
        self._width = int(sum(len(c.inducing) for c in rows.components))
        self._batches = list(neighbourhoods.batches(self._width))
        self._evidence = Evidence(places, relative_jitter(None, tf.float64))

    def at(self, sites: Sites) -> LeftOutDensity:
        result = copy.copy(self)
        result.sites = sites
        return result

    def some(self, number: int) -> LeftOutDensity:
        """The density by that many folds at random, in place of all."""
        folds = self._neighbourhoods
        if len(folds) <= number:
            return self
        result = copy.copy(self)
        chosen = np.random.default_rng(0).choice(len(folds), number, replace=False)
        result._batches = list(folds.some(chosen).batches(self._width))
        result._share = len(folds) / number
        return result

    def loss(self, x: AnyNDArray) -> tuple[float, AnyNDArray]:
        """Minus the density and the priors' log-densities, and its gradient."""
        rounds = self.rounds
        u, phi = rounds.split(x)
        try:
            with np.errstate(invalid="ignore"):
                total, gradients, direct = self._evaluate(x)
        except (np.linalg.LinAlgError, tf.errors.InvalidArgumentError):
            raise NotPositiveDefinite from None
        prior, slope = rounds.hyperparameters.log_prior(u)
        family, family_slope = rounds.family.log_prior(phi)
        gradient = np.concatenate(
            [rounds.hyperparameters.pullback(u, gradients) + slope, direct + family_slope]
        )
        if not (np.isfinite(total) and np.all(np.isfinite(gradient))):
            raise NotPositiveDefinite
        return -(total + prior + family), -gradient

    def density(self, x: AnyNDArray) -> float:
        """The density alone, priors left out."""
        return -self.loss(x)[0] - self.rounds.log_prior(*self.rounds.split(x))

    def _evaluate(self, x: AnyNDArray) -> tuple[float, dict[int, AnyNDArray], AnyNDArray]:
        """The density, its gradients in kernels' parameters and in the likelihood's coordinates."""
        rounds, shape = self.rounds, self._mean.shape
        u, phi = rounds.split(x)
        rounds.family.set(phi)
        blocks = self._evidence.blocks(rounds.values(u))
        sizes = [len(block.features) for block in blocks]
        features = np.concatenate([(A @ b.features.T).T for A, b in zip(self._at_rows, blocks)])
        squared = [A.power(2) for A in self._at_rows]
        residual = np.zeros(shape)
        for A, block, outputs in zip(squared, blocks, self._entered):
            residual += np.outer(A @ block.residual_variance, outputs)
        weight, shift = self._present_sites()
        entered = np.repeat(self._entered, sizes, axis=0)
        seen = [
            _Seen(features * entered[:, i, None], weight[:, i], shift[:, i])
            for i in range(shape[1])
        ]
        total, direct = 0.0, np.zeros(len(phi))
        slopes = np.zeros(shape)  # in variances
        for batch in self._batches:
            which = batch.predicted[batch.is_predicted]
            moments = [each.without(batch) for each in seen]
            mean, var = (np.stack(parts, axis=1) for parts in zip(*moments))
            value, bars, slopes[which], own = self._density(which, mean, var + residual[which])
            total, direct = total + value, direct + own
            for i, each in enumerate(seen):
                each.pull_back(batch, bars[:, i], slopes[which, i])
        features_bar = np.zeros_like(features)
        weight_bar, shift_bar = np.zeros(shape), np.zeros(shape)
        for i, each in enumerate(seen):
            bar, weight_bar[:, i], shift_bar[:, i] = each.gradients()
            features_bar += bar * entered[:, i, None]
        gradients = added(
            block.gradient((A.T @ features_bar[at].T).T, -2.0 * (A2.T @ (slopes @ entered)))
            for block, A, A2, at, entered in zip(
                blocks, self._at_rows, squared, slices(sizes), self._entered.astype(np.float64)
            )
        )
        if self.sites is None and len(phi):
            (parameter,) = rounds.family.parameters
            along = np.sum(weight_bar * weight + shift_bar * shift) / parameter.numpy()
            along = np.sum(slopes) - along  # the variance of a response is a predictor's and noise
            direct = direct + rounds.family.pullback(phi, {id(parameter): along})
        return total, gradients, direct

    def _present_sites(self) -> tuple[AnyNDArray, AnyNDArray]:
        """Weights and shifts [N, L]."""
        if self.sites is not None:
            return self.sites.weight, self.sites.shift
        residual = self._Y - self._mean
        weight = self._counts[:, None] / self._likelihood.variance.numpy() + 0.0 * residual
        return weight, weight * residual

    def _density(
        self, which: AnyNDArray, mean: AnyNDArray, var: AnyNDArray
    ) -> tuple[float, AnyNDArray, AnyNDArray, AnyNDArray]:
        """The log density of rows at moments [n, L], and its gradients, also in coordinates [K]."""
        counts, X, Y = self._share * self._counts[which], self._X[which], self._Y[which]
        F = mean + self._mean[which]
        if self.sites is None:
            total, error = var + self._likelihood.variance.numpy(), Y - F
            density = -0.5 * (np.log(2.0 * np.pi * total) + np.square(error) / total)
            curved = 0.5 * counts[:, None] * (np.square(error / total) - 1.0 / total)
            value = float(counts @ density.sum(axis=1))
            return value, counts[:, None] * error / total, curved, np.zeros(len(self.rounds.family))
        value, *bars = (t.numpy() for t in self._traced(*map(tf.constant, (X, F, var, Y, counts))))
        direct = [np.zeros(0), *map(np.ravel, bars[2:])]
        return float(value), bars[0], bars[1], np.concatenate(direct)

    def _slopes(
        self, X: tf.Tensor, F: tf.Tensor, var: tf.Tensor, Y: tf.Tensor, counts: tf.Tensor
    ) -> list[tf.Tensor]:
        """The log density, and its gradients in moments and in the likelihood's coordinates."""
        variables = [p.unconstrained_variable for p in self.rounds.family.parameters]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([F, var, *variables])
            Y = in_dtype_of(self._likelihood, Y)
            density = predictive_log_density(self._likelihood, X, F, var, Y)
            value = tf.reduce_sum(tf.where(counts > 0.0, counts * density, 0.0))
        gradients = tape.gradient(value, [F, var, *variables], unconnected_gradients="zero")
        return [value, *map(tf.convert_to_tensor, gradients)]


class _Seen:
    """One predictor's whitened posterior at rows, in the directions that rows tell about."""

    def __init__(self, features: AnyNDArray, weight: AnyNDArray, shift: AnyNDArray) -> None:
        size = np.abs(weight)
        information = (features * np.maximum(size, np.mean(size))) @ features.T
        values, vectors = np.linalg.eigh(information)
        axes = vectors[:, values > min(_UNSEEN, 0.5 * values[-1])].T
        rotated = axes @ features
        root = np.linalg.cholesky(np.eye(len(axes)) + (rotated * weight) @ rotated.T)
        self._from_features = solve_triangular(root, axes, lower=True)  # [R, P]
        self.z = (self._from_features @ features).T.copy()  # [N, R]
        self.u = shift @ self.z
        self.weight, self.shift, self._signed = weight, shift, bool(np.any(weight < 0.0))
        self._bars = np.zeros((len(weight), len(axes) + 2))  # in z, weights and shifts
        self._inner, self._u_bar = np.zeros((len(axes), len(axes))), np.zeros(len(axes))

    def without(self, batch: Batch) -> tuple[AnyNDArray, AnyNDArray]:
        """Means and variances [n] of the rows that a batch of folds predicts."""
        self._w = np.where(batch.is_out, self.weight[batch.out], 0.0)
        self._s = np.where(batch.is_out, self.shift[batch.out], 0.0)
        self._out, self._predicted = self.z[batch.out], self.z[batch.predicted]
        self._a, self._c = divided_out(
            self._predicted, self._out, self.u, self._w, self._s, self._signed
        )
        mean = np.matmul(self._predicted, self._c[..., None])[..., 0]
        var = np.einsum("fmr,frm->fm", self._predicted, self._a)
        return mean[batch.is_predicted], var[batch.is_predicted]

    def pull_back(self, batch: Batch, mean_bar: AnyNDArray, var_bar: AnyNDArray) -> None:
        """Add the gradients of that batch from those in its means and variances [n]."""
        a, c, w = self._a, self._c, self._w[..., None]
        m, v = np.zeros((2, *batch.predicted.shape))
        m[batch.is_predicted], v[batch.is_predicted] = mean_bar, var_bar
        drawn, spread = np.matmul(a, m[..., None])[..., 0], 2.0 * a * v[:, None]
        across = np.matmul(self._out, np.concatenate([c[..., None], a], axis=2))  # [F, k, 1 + m]
        along, across = across[..., :1], across[..., 1:]
        moved = np.matmul(across, m[..., None])
        factors = np.concatenate([w * along - self._s[..., None], w * moved, w * across], axis=2)
        ways = np.stack([drawn, c], axis=1), spread.swapaxes(1, 2)
        out_bar = np.matmul(factors, np.concatenate(ways, axis=1))
        predicted_bar = m[..., None] * c[:, None] + ways[1]
        weight_bar = along * moved + np.matmul(np.square(across), v[..., None])
        rest = np.concatenate([weight_bar, -moved], axis=2)
        self._bars += batch.sums @ np.concatenate([out_bar, rest], axis=2).reshape(
            -1, self._bars.shape[1]
        )
        chosen = batch.predicted[batch.is_predicted]  # each row once
        self._bars[chosen, : len(self.u)] += predicted_bar[batch.is_predicted]
        self._inner -= drawn.T @ c + 0.5 * np.einsum("frm,fsm->rs", spread, a, optimize=True)
        self._u_bar += drawn.sum(axis=0)

    def gradients(self) -> tuple[AnyNDArray, AnyNDArray, AnyNDArray]:
        """Gradients in features [P, N], weights and shifts [N], after all batches."""
        inner = 0.5 * (self._inner + self._inner.T)
        moved = self.z @ inner
        z_bar, weight_bar, shift_bar = np.split(self._bars, [len(self.u), len(self.u) + 1], axis=1)
        z_bar = z_bar + 2.0 * self.weight[:, None] * moved + np.outer(self.shift, self._u_bar)
        weight_bar = weight_bar[:, 0] + np.sum(moved * self.z, axis=1)
        shift_bar = shift_bar[:, 0] + self.z @ self._u_bar
        return self._from_features.T @ z_bar.T, weight_bar, shift_bar


_MAX_ROUNDS = 20
_HALVINGS = 4
_ROWS, _FOLDS, _NATS = 300, 60, 1.0  # least rows and folds of a rough search; its tolerance
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
    best: AnyNDArray = dataclasses.field(init=False)  # point so far, also where an error ends it

    def gaussian(
        self, model: AdditiveSGPR | AdditiveSVGP, solution: Solution, bound: CollapsedBound
    ) -> tuple[FitResult, Solution]:
        target = LeftOutDensity(model, bound.rounds, self.neighbourhoods)
        starts = [solution.optimum, _smooth(bound.rounds, solution.optimum)]
        if len(bound.noise):
            # noise that leaves half of the response's variance to explain
            noise = 0.5 * bound.sums.squares[0] / bound.sums.number
            transform = bound.parameter.transform
            noise = noise if transform is None else transform.inverse(np.float64(noise))
            starts[1][len(bound.kernel) :] = noise
        self.best = solution.optimum
        try:
            metric = self._begin(target, starts)
            value = target.loss(self.best)[0]
        except (StopFit, KeyboardInterrupt) as error:
            x, converged, message = self.best, False, self.tracker.why(error)
        else:
            tolerance = self.tracker.tolerance
            x, converged, message = converge(
                target.loss, self.best, value, tolerance, self.tracker, metric
            )
        bound.set(x)
        elbo = -bound.loss(x)[0]
        hessian = differenced(lambda u: target.loss(u)[1], x) if len(x) else None
        bound.set(x)  # after the differences
        result = dataclasses.replace(Solution.of_bound(bound, x), hessian=hessian)
        weight, shift = bound.sites(bound.split(x)[1])
        beyond = _beyond(result, model.likelihood, Sites(weight[:], shift[:]), self.neighbourhoods)
        result = dataclasses.replace(result, between=beyond)
        result.assign(model)
        return self.tracker.result(converged, message, elbo), result

    def by_turns(self, model: AdditiveSVGP, solution: Solution) -> tuple[FitResult, Solution]:
        rounds, rows, tolerance = solution.rounds, solution.rows, self.tracker.tolerance

        def target_at(now: Evaluation, x: AnyNDArray, signed: bool) -> LeftOutDensity:
            u, phi = rounds.split(x)
            rounds.family.set(phi)
            sites, _ = sites_of(rows, model.likelihood, rounds.values(u), now.q, signed)
            return every.at(sites)

        every = LeftOutDensity(model, rounds, self.neighbourhoods)

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
                self.best = x
                if turn == 0:
                    metric = self._begin(target, [x, _smooth(rounds, x)])
                there = descend(
                    target.loss,
                    self.best,
                    _MOST_STEPS,
                    tolerance,
                    self.tracker,
                    lambda _, value: self.tracker.record(-value),
                    metric=metric,
                )[0]
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
        rounds.set(x)  # after the differences
        result = Solution(now.point.data, now.q, x, rounds, hessian=hessian)
        sites = target.sites
        assert sites is not None
        beyond = _beyond(result, model.likelihood, sites, self.neighbourhoods)
        result = dataclasses.replace(result, between=beyond)
        result.assign(model)
        elbo = now.elbo + rounds.log_prior(*rounds.split(x))
        return self.tracker.result(converged, message, elbo), result

    def _begin(
        self, target: LeftOutDensity, starts: list[AnyNDArray]
    ) -> Callable[[AnyNDArray], AnyNDArray | None]:
        """Set the best of rough searches from several starts by some folds; second derivatives."""
        rows = sum(map(len, self.neighbourhoods.predicted)) / len(self.neighbourhoods)
        target = target.some(max(int(_ROWS / rows), _FOLDS))
        if not len(self.best):
            return lambda _: None
        ends = []
        for start in starts:
            try:
                x = descend(
                    target.loss,
                    start,
                    _MOST_STEPS,
                    _NATS,
                    self.tracker,
                    metric=functools.partial(_curvature, target.loss),
                )[0]
                ends.append((target.loss(x)[0], x))
            except NotPositiveDefinite:
                continue
            self.best = min(ends, key=lambda end: end[0])[1]
        curvature = _curvature(target.loss, self.best)
        return lambda _: curvature


def _curvature(loss: Loss, x: AnyNDArray) -> AnyNDArray | None:
    """Second derivatives of a loss, by absolute value, and so large that no step is above one."""
    try:
        slope, H = loss(x)[1], differenced(lambda x: loss(x)[1], x)
    except NotPositiveDefinite:
        return None
    values, vectors = np.linalg.eigh(H)
    sizes = np.maximum(np.abs(values), max(float(np.linalg.norm(slope)), _LEAST))
    result: AnyNDArray = (vectors * sizes) @ vectors.T
    return result


def _beyond(
    solution: Solution, likelihood: Likelihood, sites: Sites, folds: Neighbourhoods
) -> AnyNDArray:
    """Covariance beyond q's as rows depend on those that are left out with them, [L, P, P]."""
    # q takes scores of rows as independent, with covariance Lambda = sum_n w_n phi_n phi_n'. Given
    # theirs, G, that of the mode is S (I + G) S (Wood 2024, section 4). Scores are those at the
    # predictor without the neighbourhood, in units of sqrt(w). Their products vary so much that G
    # by each of them covers less than their means: one over rows, one over pairs of neighbours.
    rows, q = solution.rows, solution.q
    posterior = RowPosterior.of_rows(rows, solution.values, q)
    predictor = np.empty_like(sites.weight)
    for which, cavity in posterior.by_neighbourhood(sites, folds):
        predictor[which] = cavity.mean
    phi, _ = posterior.features(np.arange(rows.number))
    out, predicted = folds.members

    def pairs(x: AnyNDArray) -> Any:
        """Sums of products with other rows of the neighbourhood."""
        total = (out @ x).T @ (predicted @ x) - x.T @ x
        return 0.5 * (total + total.T)

    beyond = np.zeros_like(q.covariance)
    for i, S in enumerate(q.covariance):
        weight = sites.weight[:, i]
        root = np.sqrt(np.maximum(weight, 0.0))
        counts = (root > 0.0).astype(np.float64)
        score = (sites.shift[:, i] - weight * predictor[:, i]) * counts
        score /= np.where(counts > 0.0, root, 1.0)
        variance = score @ score / max(counts.sum(), 1.0)
        covariance = max(pairs(score) / max(pairs(counts), 1.0), 0.0)
        half = (posterior.of(i, phi) * root).T
        G = variance * (half.T @ half) + covariance * pairs(half)
        values, vectors = np.linalg.eigh(G)  # pairs may leave some below zero
        half = S @ vectors * np.sqrt(np.maximum(values, 0.0))
        beyond[i] = half @ half.T - S + S @ S
    if solution.bound is not None:
        return beyond
    other = solution.of_parameters(likelihood)
    if rows.num_outputs > 1:
        other = between_predictors(rows, likelihood, solution.values, q)
    return beyond if other is None else beyond + other


def _smooth(rounds: Rounds, x: AnyNDArray) -> AnyNDArray:
    """Coordinates at priors' modes: near the ELBO's optimum correlation passes for a function."""
    u, phi = rounds.split(x)
    return np.concatenate([rounds.hyperparameters.prior_modes(u), phi])
