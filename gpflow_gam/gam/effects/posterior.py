"""The posterior behind effects, at fitted hyperparameters and averaged over them; bands."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood
from scipy.linalg import cho_factor, cho_solve, lapack
from scipy.special import logsumexp
from scipy.stats import norm

from ...kernels.fixed_inputs import FixedInputKernel
from ...likelihoods.base import checked_observations, unwrapped
from ...likelihoods.predictive import predictive_log_density
from ...models import IterNCGP
from ...optimizers.laplace import HyperparameterDraw, draw_solutions
from ...posteriors.inducing import Block, InducingMoments, ShapedMoments
from ...storage import blocks
from ...threads import SMALL, each, one_blas_thread
from ..components.plan import Component
from ..fits import FittedGAM
from ..fits.fitted import between_of
from ..fits.prediction import MANY, SumsBySplines, density_of_rows, rows_at_nodes

T = TypeVar("T")


def once_a_fit(function: Callable[[FittedGAM], T]) -> Callable[[FittedGAM], T]:
    """Cache of a function of a fit, kept in the fit, and so as long as it."""
    key = f"once {function.__name__}"

    @functools.wraps(function)
    def cached(fit: FittedGAM) -> T:
        kept = vars(fit)
        if key not in kept:
            kept[key] = function(fit)
        return kept[key]

    return cached


@once_a_fit
def between_moments(fit: FittedGAM) -> InducingMoments | None:
    """Moments, of mean zero, of what other predictors, parameters or neighbours add; or None."""
    # None where they add nothing or a term has a shape, and without sums over rows: IterNCGP's
    # posterior has its predictors together already.
    solution, model = fit.solution, fit.model
    if solution is None or isinstance(model, IterNCGP) or fit.shaped is not None:
        return None
    covariance = between_of(solution, model)
    if covariance is None or not np.any(covariance):  # zeros, of a file without it
        return None
    fitted = fit.moments
    return InducingMoments(
        model.kernel,
        fitted.inducing_variable,
        np.zeros_like(solution.q.mean),
        covariance,
        values=solution.values,
        roots=solution.q.roots,
    )


_PROJECTED = 256
"""Draws behind the covariance at each draw of the hyperparameters, of which there are many."""


@one_blas_thread()
def joint_moments(
    fit: FittedGAM,
    blocks: Sequence[Block],
    unconditional: bool = True,
    left_open: bool = True,
    pointwise: bool = False,
) -> tuple[AnyNDArray, AnyNDArray]:
    """Mean [n, L] and covariance [L, n, n] of components at points, in the response's unit."""
    # If unconditional, E[Cov(f | theta)] + Cov(E[f | theta]) over draws of theta, around the mean
    # at the fitted ones (Wood, Pya & Saefken 2016, section 4, who linearise what is drawn here).
    # What inducing values leave, which left_open adds, has the correlations of the fitted
    # hyperparameters. If pointwise, variances [n, L] alone, for far less.
    members = states(fit, blocks, unconditional)
    _, fitted, tangents = next(members)
    at_fit = fitted.joint_parts(blocks, tangents, pointwise)
    covariance, left, number = np.zeros_like(at_fit.inner), np.zeros_like(at_fit.open), 0
    for _, moments, at in members:
        parts = moments.joint_parts(blocks, at, pointwise)
        away = (parts.mean - at_fit.mean).T  # around the estimate that is reported
        covariance += parts.inner + (np.square(away) if pointwise else _outer(away))
        left += parts.open
        number += 1
    if number == 0:
        covariance, left, number = at_fit.inner, at_fit.open, 1
    covariance, left = covariance / number, left / number
    if pointwise:
        covariance = covariance + left
    elif left_open:
        # what is open keeps the correlation that it has at the fitted hyperparameters
        share = np.divide(left, at_fit.open, out=np.ones_like(left), where=at_fit.open > 0)
        sd = np.sqrt(share)
        covariance = covariance + fitted.residual_covariance(blocks) * sd[:, None] * sd
    between = between_moments(fit) if unconditional else None
    if between is not None:  # what predictors add to each other
        tangents = [between.tangents(name, X) for name, X in blocks]
        covariance = covariance + between.joint_parts(blocks, tangents, pointwise).inner
    factor, _ = fit.units
    scale = factor[:, None] if pointwise else factor[:, None, None]
    covariance = scale**2 * covariance
    return factor * at_fit.mean, covariance.T if pointwise else covariance


def states(
    fit: FittedGAM, blocks: Sequence[Block], unconditional: bool
) -> Iterator[tuple[FittedGAM | HyperparameterDraw, InducingMoments, Sequence[FixedInputKernel]]]:
    """The fit, then draws of the hyperparameters: moments, and the kernels' matrices at blocks."""
    fitted = fit.moments
    tangents = [fitted.tangents(name, X) for name, X in blocks]
    yield fit, fitted, tangents
    for draw in hyperparameter_draws(fit) if unconditional else []:
        yield draw, draw.moments, tangents


@once_a_fit
def hyperparameter_draws(fit: FittedGAM) -> list[HyperparameterDraw]:
    """The posterior at draws of the hyperparameters; none for fits without sums over rows."""
    solution, model = fit.solution, fit.model
    if solution is None or isinstance(model, IterNCGP):
        return []
    draws = draw_solutions(model, solution)
    if fit.shaped is None:
        return draws
    with one_blas_thread():
        return [dataclasses.replace(d, moments=ShapedMoments(d.moments, _PROJECTED)) for d in draws]


def averaged_log_density(fit: FittedGAM, X: AnyNDArray, Y: AnyNDArray) -> AnyNDArray:
    """log p(y | data) of each row, [N], averaged over draws of the hyperparameters."""
    draws, parts = hyperparameter_draws(fit), []
    if not draws:
        return density_of_rows(fit, X, Y)
    for rows in fit.blocks(np.concatenate([X, Y], axis=1)):
        x, y = rows[:, : X.shape[1]], rows[:, X.shape[1] :]
        labels = checked_observations(y, fit.likelihood)
        result = [
            np.asarray(predictive_log_density(likelihood, x, mean, var, labels))
            for likelihood, mean, var in predictors_of_draws(fit, draws, x)
        ]
        parts.append(logsumexp(result, axis=0) - np.log(len(result)))
    return np.concatenate(parts)


def predictors_of_draws(
    fit: FittedGAM, draws: Sequence[HyperparameterDraw], X: AnyNDArray
) -> Iterator[tuple[Likelihood, AnyNDArray, AnyNDArray]]:
    """Likelihood, and means and variances [N, L] of predictors at rows, at each draw."""
    shift = np.asarray(fit.model.mean_function(X))
    tangents = [fit.moments.tangents(name, X) for name in fit.spec.names] if draws else []
    for draw in draws:
        with one_blas_thread(len(draw.moments.mean) <= SMALL):
            mean, var = draw.moments.total(X, tangents)
        yield unwrapped(draw.likelihood), mean + shift, np.maximum(var, 0.0)


# --- averaged over hyperparameters, cheap enough for rows of any number ---------------------------


_SCALED = ("constant", "line", "levels", "random")
"""Forms of components whose kernels differ between draws by their variance alone."""
_RIDGE = 1e-10  # against the largest feature: what rows have less of than this is left as it is
_ROWS = 8192  # whose features are held at once, by each thread: they stay in its core's cache
_CARRIED = 1e-7  # the error of second moments, relative, at which no better features are looked for
_SETTLED = 1e-6
"""Share of the prior variance below which the residual variance at nodes is rounding error."""
_LOST, _CHECKED = 0.1, 50
"""Most mean relative error of variances, and the rows where it is measured."""
_SPREAD = 10.0
"""Sum of the weights of inducing inputs at a point, in absolute value: more is extrapolation."""


class _Carrier(NamedTuple):
    """The features that stand for a component's at all hyperparameters."""

    moments: InducingMoments
    maps: list[AnyNDArray]  # what takes V of the fit and of each draw to V for them
    ratio: float = 1.0  # of prior variances that inducing inputs leave open, averaged over draws


class Averaged:
    """The posterior over inducing values V at the fitted hyperparameters, with two covariances."""

    # A component's values at the inducing inputs at a draw of the hyperparameters, carried over to
    # the features of the fit, are what the draw says of V; the covariance is the mean of theirs
    # plus that of their means around the fitted one. Standard errors are then within about 1 % of
    # those by draws, mostly within 5 % of functions of several columns; outside a column's data and
    # in empty corners every draw is asked itself. Each component takes the features, of the fit or
    # of a draw, that carry all draws best, as those of a vanished variance carry nothing.

    def __init__(self, fit: FittedGAM, draws: list[HyperparameterDraw]) -> None:
        self._components, self._draws = fit.spec.components, draws
        self._moments, between = fit.moments, between_moments(fit)
        self._between = None if between is None else between.covariance
        self._names, self._width = list(fit.spec.names), fit.spec.encoder.width
        self._every = [self._moments, *(draw.moments for draw in draws)]
        self._lost = False
        with one_blas_thread():
            self._carriers = [self._carrier(c) for c in range(len(self._components))]
            self._solvers = [
                _least_squares(carrier.moments.roots[c].T) if len(component.margins) > 1 else None
                for c, (carrier, component) in enumerate(zip(self._carriers, self._components))
            ]
            self._ratios = np.array([carrier.ratio for carrier in self._carriers])
            self._covariance = self._average()
            # not the data's rows, which files may leave out: what is read off must be the same
            checked = self._typical_rows()
            mean, _, approximate = self.link(checked)
            drawn = self._drawn(self._names, checked, mean)
        away = np.abs(approximate - drawn) / np.maximum(drawn, np.finfo(float).tiny)
        self._lost = float(np.mean(away)) > _LOST

    def _carrier(self, c: int) -> _Carrier:
        """The features of a component, of the fit or of a draw, that carry all others best."""
        every = self._every
        traces = np.array([np.sum(np.square(m.roots[c])) for m in every])
        if self._components[c].form in _SCALED:
            sizes = traces / traces[0]
            maps = [np.sqrt(size) * np.eye(len(every[0].roots[c])) for size in sizes]
            return _Carrier(every[0], maps, float(np.mean(sizes[1:])))
        X, name = rows_at_nodes(self._components[c], self._width), self._names[c]
        block = self._moments.block(name)
        pairs = [m.features_and_prior(name, m.tangents(name, X)) for m in every]
        features = [phi for phi, _ in pairs]
        left = np.array([np.sum(prior) - np.sum(np.square(phi)) for phi, prior in pairs])
        second = [m.covariance[:, block, block] + _outer(m.mean[block].T) for m in every]
        total = sum(float(np.sum(_squares(phi, S))) for phi, S in zip(features, second))
        # the widest priors first, as they have most of what others have
        widths = [-float(np.sum(np.log(np.diag(m.roots[c])))) for m in every]
        best, least = _Carrier(every[0], []), np.inf
        for j in [0, *(np.argsort(widths[1:]) + 1)]:
            phi = features[j]
            solve = _least_squares(phi)
            # what these features hardly have stays as it is
            maps = [np.eye(len(phi)) + solve @ (other - phi).T for other in features]
            missed = [other - A.T @ phi for other, A in zip(features, maps)]
            error = sum(float(np.sum(_squares(e, S))) for e, S in zip(missed, second))
            if error < least:
                # where inducing inputs settle all nodes nothing is left to compare
                sizes = left if left[j] > _SETTLED * np.sum(pairs[j][1]) else traces
                ratio = float(np.mean(sizes[1:])) / float(sizes[j])
                best, least = _Carrier(every[j], maps, ratio), error
            if error < _CARRIED * total:
                break
        return best

    def link(
        self, X: AnyNDArray, names: Sequence[str] | None = None, between: bool = False
    ) -> tuple[AnyNDArray, AnyNDArray, AnyNDArray]:
        """Mean of the sum of components at rows, and its variances, [N, L] each."""
        chosen = [self._names.index(name) for name in (self._names if names is None else names)]
        if len(X) < MANY or self._lost or not self._splines[0]:
            mean, known, uncertain = self._sums(X, [chosen], between)
            return mean[:, 0], known[:, 0], uncertain[:, 0]
        parts = [sums(X, chosen) for sums in self._splines[: 2 + between]]
        (mean, known, beyond), (_, uncertain, away) = parts[:2]
        uncertain += sum(part[1] for part in parts[2:])
        beyond |= away
        if beyond.any():
            exact = self._sums(X[beyond], [chosen], between)
            mean[beyond], known[beyond], uncertain[beyond] = (part[:, 0] for part in exact)
        return mean, known, uncertain

    @functools.cached_property
    def _splines(self) -> list[SumsBySplines]:
        """Moments at the fit, averaged variances, and what is between, if there is."""

        def features(j: int, c: int, X: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray, AnyNDArray]:
            phi, left = self._part(j, c, X)
            return phi, left, self._beyond(c, X, phi) if j else np.zeros(len(X), dtype=bool)

        mean, enters = self._moments.mean, self._moments.entering()
        kept = [(0, mean, self._moments.covariance, enters)]
        kept += [(1, mean[:, :0], self._covariance, self._ratios[:, None] * enters)]
        if self._between is not None:
            kept += [(0, mean[:, :0], self._between, np.zeros_like(enters))]
        given = self._components, self._width
        with one_blas_thread():
            return [SumsBySplines(*given, functools.partial(features, j), *one) for j, *one in kept]

    def components(self, X: AnyNDArray, names: Sequence[str]) -> tuple[AnyNDArray, AnyNDArray]:
        """Mean and averaged variance of some components at rows, [N, C, L] each."""
        mean, _, uncertain = self._sums(X, [[self._names.index(n)] for n in names], True, True)
        return mean, uncertain

    def _sums(
        self, X: AnyNDArray, groups: list[list[int]], between: bool, alone: bool = False
    ) -> tuple[AnyNDArray, AnyNDArray, AnyNDArray]:
        """Means of sums of G groups of components at rows, and their variances, [N, G, L] each."""
        # of components alone the averaged ones only: of those of several columns by every draw
        names = [[self._names[c] for c in group] for group in groups]
        places = [self._moments.places(own) for own in names]
        kept = [self._moments.covariance, self._covariance]
        kept += [self._between] if between and self._between is not None else []

        def among(S: AnyNDArray, at: AnyNDArray) -> AnyNDArray:
            whole = np.array_equal(at, np.arange(S.shape[-1]))
            return S if whole else S[:, at[:, None], at]  # all of them are not copied

        covariances = [[among(S, at) for S in kept] for at in places]
        shape = len(X), len(groups), self._moments.mean.shape[1]
        mean, known, uncertain, beside = np.zeros((4, *shape))
        asked = np.zeros(shape[:2], dtype=bool)

        def evaluate(rows: slice) -> None:
            for g, group in enumerate(groups):
                features, opens, at_fit = self._features(X[rows], group)
                phi, enters = np.concatenate(at_fit), self._moments.entering(names[g])
                mean[rows, g] = phi.T @ self._moments.mean[places[g]]
                if not alone:
                    known[rows, g] = _squares(phi, covariances[g][0]) + opens[0].T @ enters
                uncertain[rows, g] = _squares(np.concatenate(features), covariances[g][1])
                uncertain[rows, g] += opens[1].T @ (self._ratios[group][:, None] * enters)
                if len(kept) > 2:
                    beside[rows, g] = _squares(phi, covariances[g][2])
                for c, part in zip(group, features):
                    always = self._lost or (alone and len(self._components[c].margins) > 1)
                    asked[rows, g] |= always | self._beyond(c, X[rows], part)

        each(evaluate, list(blocks(len(X), _ROWS)))
        rows_of = [np.flatnonzero(column) for column in asked.T]

        def ask(task: tuple[int, slice]) -> None:
            g, rows = task
            at = rows_of[g][rows]
            uncertain[at, g] = self._drawn(names[g], X[at], mean[at, g])

        # rows from all over at once: every draw has its price, however few they are
        each(ask, [(g, part) for g, at in enumerate(rows_of) for part in blocks(len(at), _ROWS)])
        return mean, known, uncertain + beside

    def _features(
        self, X: AnyNDArray, which: Sequence[int]
    ) -> tuple[list[AnyNDArray], AnyNDArray, list[AnyNDArray]]:
        """Features [M_c, N] of components with draws; residual variances; features of the fit."""
        carried: list[AnyNDArray] = []
        fitted: list[AnyNDArray] = []
        residual = np.empty((2, len(which), len(X)))
        for i, c in enumerate(which):
            phi, residual[:, i] = self._part(0, c, X)
            fitted.append(phi)
            if self._carriers[c].moments is not self._moments:
                phi, residual[1, i] = self._part(1, c, X)
            carried.append(phi)
        return carried, residual, fitted

    def _part(self, j: int, c: int, X: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
        """Features of a component, of the fit or those that carry, and residual variances."""
        moments, name = (self._moments, self._carriers[c].moments)[j], self._names[c]
        phi, prior = moments.features_and_prior(name, moments.tangents(name, X))
        return phi, np.maximum(prior - np.sum(np.square(phi), axis=0), 0.0)

    def _beyond(self, c: int, X: AnyNDArray, phi: AnyNDArray) -> AnyNDArray:
        """Rows at which a component is not settled by its inducing values, [N]."""
        component, solve = self._components[c], self._solvers[c]
        result = _outside(component, X)
        if solve is not None and len(component.margins) > 1:
            result |= np.sum(np.abs(solve.T @ phi), axis=0) > _SPREAD
        return result

    def _drawn(self, names: list[str], X: AnyNDArray, mean: AnyNDArray) -> AnyNDArray:
        """The averaged variance [N, L] of a sum of components by every draw itself."""
        tangents = [self._moments.tangents(name, X) for name in names]
        total = np.zeros_like(mean)
        for draw in self._draws:
            own, variance = draw.moments.total(X, tangents, names)
            total += variance + np.square(own - mean)
        return total / len(self._draws)

    def _typical_rows(self) -> AnyNDArray:
        """Rows of X at nodes of all components, where the draws check the approximation."""
        X = np.zeros((_CHECKED, self._width))
        for c, component in enumerate(self._components):
            nodes, columns = rows_at_nodes(component, self._width), list(component.columns)
            # in an order of its own, so that columns are not in step
            which = np.random.default_rng(c).integers(len(nodes), size=_CHECKED)
            X[:, columns] = nodes[which][:, columns]
        return X

    def _average(self) -> AnyNDArray:
        """The covariance of V for the features that carry, [L, P, P]."""
        blocks = [self._moments.block(name) for name in self._names]
        covariance, centre = np.zeros_like(self._moments.covariance), self._moments.mean
        for d, moments in enumerate(self._every):
            mean, spread = moments.mean.copy(), moments.covariance.copy()
            for block, carrier in zip(blocks, self._carriers):
                A = carrier.maps[d]
                mean[block] = A @ mean[block]
                spread[:, block, :] = A @ spread[:, block, :]
                spread[:, :, block] = spread[:, :, block] @ A.T
            if d == 0:  # the fit is where draws' means are compared
                centre = mean
            else:
                covariance += (spread + _outer((mean - centre).T)) / len(self._draws)
        return covariance


@once_a_fit
def averaged(fit: FittedGAM) -> Averaged | None:
    """The averaged posterior; None where nothing is known of other hyperparameters."""
    draws = hyperparameter_draws(fit)
    if not draws and between_moments(fit) is not None:  # nothing is learnt of the kernels
        draws = [HyperparameterDraw(fit.moments, lambda: fit.likelihood)]
    return Averaged(fit, draws) if draws else None


def _least_squares(phi: AnyNDArray) -> AnyNDArray:
    """Regularised least squares: map values at N rows to V, [M, N], given features [M, N]."""
    gram = phi @ phi.T
    gram[np.diag_indices_from(gram)] += _RIDGE * float(np.max(np.diag(gram)))
    return cho_solve(cho_factor(gram, lower=True), phi)


def _outside(component: Component, X: AnyNDArray) -> AnyNDArray:
    """Rows at which a smooth function is asked for beyond its data, [N]."""
    result = np.zeros(len(X), dtype=bool)
    if component.form in _SCALED:
        return result
    slots = np.array(component.slots or [[*(m.column for m in component.margins), 0]])
    there = X[:, slots[:, -1]] != 0.0 if component.slots else np.ones((len(X), 1), dtype=bool)
    for margin, columns in zip(component.margins, slots.T):
        if margin.kind not in ("levels", "cyclic"):
            values, (low, high) = X[:, columns], margin.ends
            result |= np.any(there & ((values < low) | (values > high)), axis=1)
    by = component.by
    return result if by is None or by.code is None else result & (X[:, by.column] == by.code)


def _outer(means: AnyNDArray) -> AnyNDArray:
    """Outer products of each row, [L, P] to [L, P, P]."""
    return means[:, :, None] * means[:, None, :]


def _squares(phi: AnyNDArray, covariance: AnyNDArray) -> AnyNDArray:
    """``phi_n' S phi_n``, [N, L], of features [P, N]."""
    return np.stack([np.sum((S @ phi) * phi, axis=0) for S in covariance], axis=1)


# --- joint draws of the predictor -----------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Places:
    """Inputs at which a component is needed."""

    name: str
    X: AnyNDArray
    index: AnyNDArray


def places_of(fit: FittedGAM, name: str, settings: Sequence[AnyNDArray]) -> Places:
    """The different inputs of a component in all settings of rows, and which each row has."""
    columns = list(fit.spec.component(name).columns)
    inputs = [X[:, columns] for X in settings]
    fixed = all(np.array_equal(inputs[0], other) for other in inputs[1:])
    points, index = np.unique(
        inputs[0] if fixed else np.concatenate(inputs), axis=0, return_inverse=True
    )
    X = np.zeros((len(points), settings[0].shape[1]))
    X[:, columns] = points
    index = index.reshape(-1)
    return Places(name, X, index if fixed else index.reshape(len(settings), -1))


def predictor_draws(
    fit: FittedGAM,
    places: Sequence[Places],
    num_settings: int,
    num_samples: int,
    seed: int,
    unconditional: bool = True,
    smooth: bool = False,
    apart: bool = False,
) -> Iterator[tuple[Likelihood, list[AnyNDArray]]]:
    """Likelihoods, and joint draws [s, N, L] of the predictor without m(x) in each setting."""
    # Of several predictors what one has of the others is known for each alone, not jointly: where
    # they are looked at apart it is there, and where responses are made of them all it is not.
    members = list(states(fit, [(p.name, p.X) for p in places], unconditional))
    members = members[1:] or members  # without draws at the fitted hyperparameters
    if num_samples < len(members):
        chosen = np.random.default_rng(seed).choice(len(members), num_samples, replace=False)
        members = [members[i] for i in chosen]
    # what standard errors have beyond draws: of neighbours, of the family's parameters
    with_beyond = unconditional and (apart or fit.num_predictors == 1)
    beyond = between_moments(fit) if with_beyond else None
    pivots = [fit.moments.residual_pivots(p.name, p.X) for p in places]
    each = -(-num_samples // len(members))
    seeds = np.random.SeedSequence(seed).generate_state(len(members))
    for (member, moments, tangents), own in zip(members, seeds):
        V = moments.sample(each, int(own))
        added = None if beyond is None else beyond.sample(each, int(own) + 1)
        rng = np.random.default_rng([int(own), 1])
        still, moving = np.zeros((each, 1, 1)), []
        for place, at, few in zip(places, tangents, pivots):
            phi, prior = moments.features_and_prior(place.name, at)
            block = V[:, moments.block(place.name)]
            values = np.einsum("mu,sml->sul", phi, block, optimize=True)
            if beyond is not None and added is not None:  # of the kernels at the fit
                fitted = beyond.features(place.name, place.X)
                more = added[:, beyond.block(place.name)]
                values = values + np.einsum("mu,sml->sul", fitted, more, optimize=True)
            root, rest = moments.residual_factor(place.name, place.X, phi, prior, few)
            enters = moments.entering([place.name])[0]
            if root.shape[1]:
                z = enters * rng.standard_normal((each, root.shape[1], block.shape[2]))
                values = values + np.einsum("ur,srl->sul", root, z, optimize=True)
            if rest.any() and not smooth:  # a nugget
                noise = enters * rng.standard_normal(values.shape)
                values = values + np.sqrt(rest)[:, None] * noise
            if place.index.ndim == 1:
                still = still + values[:, place.index]
            else:
                moving.append((values, place.index))
        yield (
            unwrapped(member.likelihood),
            [
                still + sum((v[:, index[g]] for v, index in moving), 0.0)
                for g in range(num_settings)
            ],
        )


def draws_at(
    fit: FittedGAM,
    X: AnyNDArray,
    names: Sequence[str],
    num_samples: int,
    seed: int,
    unconditional: bool,
    apart: bool = False,
) -> list[tuple[Likelihood, AnyNDArray]]:
    """As of :func:`predictor_draws`, at rows X [N, D]."""
    places = [places_of(fit, name, [X]) for name in names]
    with one_blas_thread():
        drawn = predictor_draws(fit, places, 1, num_samples, seed, unconditional, apart=apart)
        return [(likelihood, predictor) for likelihood, (predictor,) in drawn]


# --- pointwise and simultaneous bands of jointly normal values ------------------------------------


_NUM_DRAWS = 4000


def critical_values(covariance: AnyNDArray, level: float, seed: int) -> tuple[float, float]:
    """Half-widths of a band in standard errors, for each point alone and for all together."""
    # The second is the quantile of max_n |z_n| / sd(z_n) for z ~ N(0, covariance), by simulation
    # (Ruppert, Wand & Carroll 2003, section 6.5).
    pointwise = float(norm.ppf(0.5 + 0.5 * level))
    deviations = max_deviations(covariance, seed)
    if len(deviations) == 0:
        return pointwise, pointwise
    return pointwise, max(pointwise, float(np.quantile(deviations, level)))


def equal_tailed(draws: AnyNDArray, level: float) -> AnyNDArray:
    """Ends of equal-tailed intervals of draws [S, ...], [2, ...]."""
    return np.quantile(draws, [0.5 - 0.5 * level, 0.5 + 0.5 * level], axis=0)


def simultaneous_bands(draws: AnyNDArray, level: float) -> tuple[AnyNDArray, AnyNDArray]:
    """Ends of the band in which a whole draw lies with probability ``level``."""
    # By ranks (Besag, Green, Higdon & Mengersen 1995, section 6.3): as far in from the extremes, in
    # draws and the same at every point, as that share allows. A monotone function of the draws
    # gives that of the ends.
    S = len(draws)
    flat = draws.reshape(S, draws.shape[1], -1)
    ordered = np.sort(flat, axis=0)
    varies = ordered[-1] > ordered[0]
    ranks = np.argsort(np.argsort(flat, axis=0), axis=0) + 1
    farthest = np.where(varies, np.maximum(ranks, S + 1 - ranks), 0).max(axis=1)  # [S, K]
    least = np.sort(farthest, axis=0)[int(np.ceil(level * S)) - 1]
    k = np.broadcast_to(np.maximum(least, (S + 1) // 2), flat.shape[1:])[None]
    lower = np.take_along_axis(ordered, S - k, axis=0)[0]
    upper = np.take_along_axis(ordered, k - 1, axis=0)[0]
    return lower.reshape(draws.shape[1:]), upper.reshape(draws.shape[1:])


def max_deviations(covariance: AnyNDArray, seed: int) -> AnyNDArray:
    """Draws of ``max_n |z_n| / sd(z_n)``; none where no value varies."""
    sd = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    alive = sd > 1e-6 * max(sd.max(initial=0.0), 1e-300)
    if not alive.any():
        return np.zeros(0)
    correlation = covariance[np.ix_(alive, alive)] / np.outer(sd[alive], sd[alive])
    with one_blas_thread():
        root = pivoted_root(correlation)
        # a simulated quantile has no more digits than single precision
        z = _standard_normal(root.shape[1], _NUM_DRAWS, seed).astype(np.float32)
        draws = root.astype(np.float32) @ z
    return np.maximum(draws.max(axis=0), -draws.min(axis=0)).astype(float)


def normal_draws(covariance: AnyNDArray, num_samples: int, rng: np.random.Generator) -> AnyNDArray:
    """Draws [S, N] from N(0, covariance), which may be singular."""
    with one_blas_thread():
        root = pivoted_root(covariance)
        draws: AnyNDArray = (root @ _standard_normal(root.shape[1], num_samples, rng)).T
    return draws


def pivoted_root(covariance: AnyNDArray) -> AnyNDArray:
    """``R`` [N, rank] with ``R R'`` the covariance, but for a share of its largest variance."""
    largest = float(np.max(np.diag(covariance), initial=0.0))
    if largest == 0.0:
        return np.zeros((len(covariance), 0))
    # a pivoted Cholesky decomposition stops at the rank, of which smooth functions have little
    scale = 1.0 - 1e-6 * np.linspace(0.0, 1.0, len(covariance))  # or rounding chooses among equals
    scaled = covariance * np.outer(scale, scale)
    factor, pivots, rank, _ = lapack.dpstrf(scaled, tol=1e-12 * largest, lower=1)
    root = np.zeros((len(covariance), rank))
    root[pivots - 1] = np.tril(factor)[:, :rank]
    return root / scale[:, None]


def _standard_normal(rank: int, num_samples: int, seed: int | np.random.Generator) -> AnyNDArray:
    """Direction by direction, so that one more at the end, where rounding decides, changes none."""
    return np.random.default_rng(seed).standard_normal((rank, num_samples))
