"""Checks of a finished fit: effects that the data cannot tell apart, and warnings."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray
from gpflow.utilities import parameter_dict, set_trainable
from scipy.linalg import orth
from scipy.sparse import csr_array
from scipy.spatial import cKDTree
from scipy.special import ndtr, ndtri
from scipy.stats import kstwo, norm, rankdata

from ...errors import (
    AutocorrelationWarning,
    BasisWarning,
    ConvergenceWarning,
    DispersionWarning,
    IdentifiabilityWarning,
    MissingTermWarning,
    NotPositiveDefinite,
    ResolutionWarning,
    ScaleMismatchWarning,
    ShapeWarning,
    SmoothingWarning,
    warn_caller,
)
from ...likelihoods import Autoregressive, Quasi
from ...likelihoods.base import unwrapped
from ...likelihoods.continuous import SMOOTHING, predecessors
from ...likelihoods.times import tied
from ...optimizers import TimeBudget
from ...posteriors.inducing import ShapedMoments
from ...threads import one_blas_thread
from ..components.plan import Component
from ..effects.effect import LEVELS
from ..families import Cox, Quantile
from ..fits import FittedGAM
from ..fits.data import Discrepancies, Pearson
from ..fits.fit import WITHOUT_NOISE, check_rows, has_single_rows, refit
from ..fits.fitted import Inspected
from ..frames.encoding import NumericColumn
from ..frames.table import listed
from ..terms.base import Column, as_column, column_of
from ..terms.parametric import Levels
from ..terms.smooth import SPLINES, Interaction, SmoothTerm, has_line

_CONCURVITY_ROWS = 2000
_COMPARED_ROWS = {"linear": 1000, "smooth": 1000, "cyclic": 1000, "levels": 10_000}
"""Rows, drawn at random, at which columns are compared."""
_REPEATED = 20  # rows of repeated levels that say whether these go with others
_MOST_LEVELS = 1000  # levels whose joint covariance is looked at
_LOOSE = 0.14  # the posterior's standard deviation over a wide prior's from which data say little
_KNOWN = 0.5
"""A posterior standard deviation, against the predictor's size, of effects that have a bound."""
_TIED = 0.03  # share by which ties of events may shorten slopes
_SURE = -1.0  # the log-likelihood of responses from which they are predicted as good as surely
_INTERPOLATED = 0.9  # degrees of freedom a row from which an effect goes through the rows
_NEARLY = 0.99
"""The share of each column's variance that the other explains, from which they are one."""


def effective_dof(fit: FittedGAM, component: Component) -> AnyNDArray:
    """Effective degrees of freedom of a component for each predictor, [L]."""
    # With whitened inducing values of prior N(0, I) and posterior covariance S, the smoother matrix
    # is I - S; its trace over the component's block is what the data have settled (Wood 2017,
    # section 6.1.2, where F = (X'WX + S)^-1 X'WX).
    moments = fit.moments
    block = moments.block(component.name)
    if isinstance(moments, ShapedMoments):
        settled = moments.projected.degrees_of_freedom(block)
    else:
        S = moments.covariance[:, block, block]
        settled = S.shape[-1] - np.trace(S, axis1=1, axis2=2)
    enters: AnyNDArray = moments.entering([component.name])[0]
    return np.maximum(settled, 0.0) * enters


def total_dof(fit: FittedGAM) -> float:
    """Effective degrees of freedom in all, the intercept's included."""
    return sum(float(effective_dof(fit, c).sum()) for c in fit.spec.components)


def _features(fit: FittedGAM) -> tuple[dict[str, tuple[AnyNDArray, AnyNDArray]], AnyNDArray]:
    """Features [n, M] of each effect, zero on average, the estimate and roots of weights [n]."""
    moments = fit.moments
    rows = fit.some_rows(_CONCURVITY_ROWS)
    X, weights = fit.X[rows], fit.weights[rows]
    root = np.sqrt(weights)
    effects = {}
    for component in fit.spec.effects:
        features = moments.features(component.name, X).T
        phi = root[:, None] * (features - np.average(features, axis=0, weights=weights))
        first = component.predictors_of(fit.num_predictors)[0]
        estimate = phi @ moments.mean[moments.block(component.name), first]
        # of the size of the constant: a wide prior is no reason to leave others out
        size = np.linalg.norm(root) / max(float(np.linalg.norm(phi)), 1e-300)
        effects[component.name] = size * phi, estimate
    return effects, root


def _beside(fit: FittedGAM, first: str, second: str) -> bool:
    """True if two different effects share a predictor."""
    places = [fit.spec.component(n).predictors_of(fit.num_predictors) for n in (first, second)]
    return first != second and bool(set(places[0]) & set(places[1]))


def _basis(root: AnyNDArray, *features: AnyNDArray, negligible: float = 1e-3) -> AnyNDArray:
    """Orthonormal columns that span a constant and features, but for directions of small size."""
    return orth(np.concatenate([root[:, None], *features], axis=1), rcond=negligible)


def _explained(basis: AnyNDArray, A: AnyNDArray) -> float:
    total = float(np.sum(A**2))
    return float(np.sum((basis.T @ A) ** 2)) / total if total > 0.0 else 0.0


def _log_probabilities(fit: FittedGAM) -> AnyNDArray | None:
    """Log-probabilities of the responses, [N], of discrete families with all rows in memory."""
    family = fit.spec.family
    if not family.discrete or not fit.data.complete:
        return None
    F = fit.sample_means(len(fit.X))[1]
    return np.asarray(fit.weights * family.log_density(fit.likelihood, fit.Y, F))


def _alike(components: list[Component]) -> Iterator[tuple[str, list[Component]]]:
    """Effects that could be copies of each other: of one kind, and multiplied by the same."""
    groups: dict[tuple[str, tuple[int, int | None] | None], list[Component]] = {}
    for component in components:
        kind = component.margins[0].kind
        kind = kind if kind in ("linear", "levels", "cyclic") else "smooth"
        by = component.by
        key = (kind, None if by is None else (by.column, by.code))
        groups.setdefault(key, []).append(component)
    for key, group in groups.items():
        if len(group) > 1:
            yield key[0], group


def _correlated(A: AnyNDArray) -> AnyNDArray:
    """Squared correlations [C, C] of columns."""
    with np.errstate(invalid="ignore", divide="ignore"):  # of columns that do not vary
        return np.square(np.nan_to_num(np.corrcoef(A, rowvar=False)))


def _dependent(A: AnyNDArray) -> AnyNDArray:
    """Shares of the ranks of one column that functions of another explain, [C, C]."""
    # By the mean square difference of neighbours in the order of the first (von Neumann 1941), as
    # Chatterjee's (2021) coefficient of dependence does; of monotone functions, which few rows show
    # less well so, by the correlation of ranks.
    ranks = np.column_stack([rankdata(a) for a in A.T])
    total = 2.0 * np.sum(np.square(ranks - ranks.mean(axis=0)), axis=0)
    shares = np.zeros((A.shape[1], A.shape[1]))
    for i, a in enumerate(A.T):
        steps = np.sum(np.square(np.diff(ranks[np.argsort(a, kind="stable")], axis=0)), axis=0)
        np.divide(total - steps, total, out=shares[i], where=total > 0.0)
    return np.maximum(shares, _correlated(ranks))


def _paired(A: AnyNDArray) -> AnyNDArray:
    """Accuracy with which levels of a column predict another's, [C, C] (Goodman & Kruskal 1954)."""
    codes = [np.unique(a, return_inverse=True)[1] for a in A.T]
    shares = np.zeros((len(codes), len(codes)))
    for i, j in itertools.permutations(range(len(codes)), 2):
        repeated = np.bincount(codes[i])[codes[i]] > 1
        first, second = codes[i][repeated], codes[j][repeated]
        if len(first) < _REPEATED:
            continue
        levels = int(second.max()) + 1
        pairs, counts = np.unique(first * levels + second, return_counts=True)
        most = np.zeros(first.max() + 1)
        np.maximum.at(most, pairs // levels, counts)
        wrong = len(first) - np.bincount(second).max()
        if wrong > 0:
            shares[i, j] = 1.0 - (len(first) - most.sum()) / wrong
    return shares


_MEASURES = {"linear": _correlated, "smooth": _dependent, "cyclic": _dependent, "levels": _paired}


# --- residuals ---------------------------------------------------------------------------------


_STREAM = 1996  # seeds the uniform draws, beside the user's seed
_TAIL = 1e-16  # probabilities are kept this far from 0 and 1, so that residuals are finite
LARGEST = float(-ndtri(_TAIL))
"""Quantile residuals are cut off here, where distribution functions have no more digits."""


def quantile_residuals(fit: FittedGAM, seed: int = 0) -> AnyNDArray:
    """
    Randomised quantile residuals, standard normal where the model is right (Dunn & Smyth 1996).

    ``Phi^-1(u)`` with u uniform between P(y' < y) and P(y' <= y), both at the posterior mean of the
    predictor; the two are equal for a continuous response, and nothing is random. With ``ar1`` they
    are of what is new in a row beside the one before it.

    :param fit: the fitted GAM.
    :param seed: of the uniform draws.
    :return: [N], within 8.2 of zero.
    :raises ValueError: a family without a distribution function.
    """
    residuals = _quantile_residuals(fit, fit.predict_link(fit.X)[0], seed)
    if residuals is None:
        raise ValueError(
            f"family {fit.spec.family.name!r} has no distribution function, so there are no "
            "quantile residuals."
        )
    return residuals


def _quantile_residuals(fit: FittedGAM, F: AnyNDArray, seed: int) -> AnyNDArray | None:
    probabilities = fit.spec.family.cdf(fit.likelihood, fit.Y, F)
    if probabilities is None:
        return None
    lower, upper = probabilities
    # not the stream of the seed alone: a column that was simulated with it would be the same draws
    rng = np.random.default_rng([seed, _STREAM])
    u = lower + (upper - lower) * rng.uniform(size=len(F))
    residuals = np.clip(ndtri(u), -LARGEST, LARGEST)
    likelihood = fit.likelihood
    if isinstance(likelihood, Autoregressive):
        r, before = likelihood.correlation.numpy(), predecessors(fit.X[:, likelihood.position])
        rows = np.flatnonzero(before >= 0)
        innovations = (residuals[rows] - r * residuals[before[rows]]) / np.sqrt(1.0 - r**2)
        residuals[rows] = innovations
    return residuals


_ROWS = 10_000
"""Rows at which a fit is looked at as it ends: they settle the dispersion to a few hundredths."""
_ORDERED = 0.9  # share of a column's values that differ, from which it gives rows an order
_INTERPOLATING = 0.1  # mean square of quantile residuals of a fit that goes through its rows
_REMEMBERED, _CLEARLY = 0.1, 3.5
"""Correlation of neighbours' residuals worth a word, and standard errors that are not chance."""


def autocorrelations(fit: FittedGAM) -> dict[Column, float]:
    """Correlations of neighbouring rows' quantile residuals along columns that order the rows."""
    # Where rows are independent they are next to nothing, and below zero by about a fit's degrees
    # of freedom over the number of rows. Not of more than 10 000 rows.
    counted = np.flatnonzero(fit.weights > 0.0)
    if not fit.data.complete or fit.data.shared or not 2 < len(counted) <= _ROWS:
        return {}
    columns = {}
    for c in fit.spec.components:
        if c.form == "smooth" and c.by is None and len(c.margins) == 1:
            values = fit.X[counted, c.margins[0].column]
            if len(np.unique(values)) > _ORDERED * len(values):
                columns[fit.spec.term(c.term).columns[0]] = np.argsort(values)
    if not columns:
        return {}
    residuals = _quantile_residuals(fit, fit.sample_means(len(fit.X))[1], 0)
    if residuals is None or np.mean(np.square(residuals)) < _INTERPOLATING:
        return {}
    residuals, result = residuals * np.sqrt(fit.weights), {}
    for name, order in columns.items():
        e = residuals[counted[order]]
        e = e - e.mean()
        result[name] = float(2.0 * e[1:] @ e[:-1] / (e[1:] @ e[1:] + e[:-1] @ e[:-1]))
    return result


_NEAREST = 8  # rows that a row is compared with in space


def _at_rows(fit: FittedGAM, argument: str, given: Any, width: int) -> AnyNDArray:
    """Values [N, width] at the rows of the fit: numeric columns of the model, or an array."""
    column = as_column(given)
    names = given if column is None else [column]
    known = {name: i for i, (name, kind) in enumerate(fit.spec.encoder.columns) if kind == "number"}
    if isinstance(names, (list, tuple)) and len(names) == width and set(names) <= set(known):
        return fit.X[:, [known[name] for name in names]]
    values = np.zeros(0)
    if column is None:
        with contextlib.suppress(TypeError, ValueError):  # what is no numbers, nor dates
            values = pd.DataFrame(given).apply(pd.to_numeric).to_numpy()
    if values.shape != (len(fit.X), width):
        columns = ", ".join(map(str, known))
        raise ValueError(
            f"{argument} must be {width} numeric column(s) of the model ({columns}), or values "
            f"[{len(fit.X)}, {width}], one for each row that was fitted; got {given!r}."
        )
    return values.astype(np.float64)


def _zeros(fit: FittedGAM, F: AnyNDArray) -> tuple[float, float] | None:
    """Zeros over those that are expected; None where the response has no zeros to count."""
    family, likelihood = fit.spec.family, fit.likelihood
    if not family.discrete or fit.spec.levels is not None or fit.num_predictors > 1:
        return None
    none = fit.Y.copy()
    none[:, 0] = 0.0

    def probability(shift: float) -> AnyNDArray:
        at = family.cdf(likelihood, none, F + shift)
        assert at is not None
        return at[1]

    p, weights = probability(0.0), fit.weights
    slope = (probability(_STEP) - probability(-_STEP)) / (2.0 * _STEP)
    # the fit has taken up part of what is by chance, as in a score test (van den Broek 1995)
    moments, along = fit.moments, weights * slope
    v = np.concatenate([moments.features(c.name, fit.X) @ along for c in fit.spec.components])
    taken = float(v @ moments.covariance[0] @ v)
    excess = float(weights @ ((fit.Y[:, 0] == 0.0) - p))
    variance = max(float(weights @ (p * (1.0 - p))) - taken, 1e-12)  # weights count rows
    ratio = 1.0 + excess / max(float(weights @ p), 1e-12)
    return ratio, 2.0 * float(norm.sf(abs(excess) / np.sqrt(variance)))


_STEP = 1e-4


def _uniformity(residuals: AnyNDArray, weights: AnyNDArray) -> tuple[float, float]:
    """The distance of residuals, each as many as its weight, from normal ones, and its p-value."""
    order = np.argsort(residuals)
    below, shares = ndtr(residuals[order]), weights[order] / weights.sum()
    reached = np.cumsum(shares)
    distance = float(np.max([reached - below, below - (reached - shares)]))
    return distance, float(kstwo.sf(distance, max(round(float(weights.sum())), 1)))


def _moran(e: AnyNDArray, places: AnyNDArray) -> tuple[float, float]:
    """Moran's I of residuals and their nearest neighbours, and its p-value (Cliff & Ord 1981)."""
    number = len(e)
    k = min(_NEAREST, max((number - 1) // 2, 1))  # of all with all, I is a constant
    near = cKDTree(places).query(places, k + 1)[1]
    own = near == np.arange(number)[:, None]  # which, of rows at one place, need not be the first
    own[~own.any(axis=1), -1] = True
    near = near[~own]
    starts = np.arange(0, near.size + 1, k)
    W = csr_array((np.ones(near.size), near, starts), shape=(number, number))
    total = float(W.sum())
    both = W + W.T
    first = 0.5 * float(both.multiply(both).sum())
    second = float(np.sum(np.square(np.asarray(both.sum(axis=1)))))
    moran = number / total * float(e @ (W @ e)) / float(e @ e)
    expected = -1.0 / (number - 1.0)
    variance = number**2 * first - number * second + 3.0 * total**2
    variance = variance / ((number**2 - 1.0) * total**2) - expected**2
    return moran, 2.0 * float(norm.sf(abs(moran - expected) / np.sqrt(variance)))


# --- Pearson's dispersion, and quasi-likelihoods fitted at it -------------------------------------


_LARGE = 1.2  # dispersion from which standard errors, too small by its root, are worth a word
_DEVIATIONS = 4.0  # standard deviations above one that are more than chance
_ROUNDS = 8
_SETTLED = 0.01  # change of the logarithm of the dispersion below which calibration ends
_ENDS = 1e-6, 1e6
_KEPT = ("max_iterations", "tolerance", "callback", "progress", "on_interrupt")
"""Options of a fit that further ones to the same rows have, too."""


@dataclasses.dataclass(frozen=True)
class Dispersion:
    """Pearson's dispersion: by how much responses vary more than their family says."""

    value: float
    """
    ``sum_n w_n (y_n - mu_n)^2 / V(mu_n)`` over the residual degrees of freedom (McCullagh & Nelder
    1989, section 4.5.2), about 1 where the family holds.
    """
    clear: bool
    """True if it is clearly above one, in a family that does not learn it."""
    remedy: str
    """What to do about it, in words."""

    @property
    def factor(self) -> float:
        """Factor by which standard errors are too small."""
        return float(np.sqrt(self.value))


def dispersion(fit: FittedGAM, result: Discrepancies | None = None) -> Dispersion | None:
    """The dispersion of a fit, over all rows."""
    # None where the variance is no function of the mean, where each row is one trial, and where the
    # dispersion is a learnt parameter.
    return _judged(fit, (result or fit.discrepancies()).pearson, 1.0)


def sample_dispersion(fit: FittedGAM) -> Dispersion | None:
    """The dispersion over at most 10 000 rows."""
    return _judged(fit, fit.sample_pearson(_ROWS), min(_ROWS, len(fit.X)) / fit.number)


def _judged(fit: FittedGAM, pearson: Pearson | None, share: float) -> Dispersion | None:
    if pearson is None or pearson.number == 0.0 or fit.spec.family.calibrated:
        return None
    dof = pearson.number - share * total_dof(fit)
    if dof <= 0.0:
        return None
    value = pearson.statistic / dof
    sd = np.sqrt(pearson.variance * dof / pearson.number)
    remedy = fit.spec.family.overdispersed
    chance = pearson.statistic - dof <= _DEVIATIONS * sd
    return Dispersion(value, bool(remedy) and value > _LARGE and not chance, remedy)


def calibrated(fit: FittedGAM, seed: int, options: dict[str, Any]) -> FittedGAM:
    """A quasi-likelihood's fit at the dispersion of its residuals; other fits as they are."""
    # Pearson's statistic over residual degrees of freedom (McCullagh & Nelder 1989, section 4.5.2;
    # Fletcher 2012). The dispersion changes smoothness, and that the residuals: fits alternate.
    if not fit.spec.family.calibrated:
        return fit
    settings = {name: options[name] for name in _KEPT if name in options}
    time = TimeBudget.of(options.get("max_seconds")).max_seconds
    for _ in range(_ROUNDS):
        likelihood = unwrapped(fit.users_model.likelihood)
        assert isinstance(likelihood, Quasi)
        pearson = fit.discrepancies().pearson
        assert pearson is not None
        edf = sum(float(effective_dof(fit, c)[:1].sum()) for c in fit.spec.components)
        dof = pearson.number - edf
        spent = fit.result.seconds
        late = time is not None and spent >= time
        if dof <= 0.0 or not pearson.variance > 0.0 or late or not fit.result.converged:
            break
        dispersion = float(likelihood.dispersion.numpy())
        ratio = pearson.statistic / pearson.variance * pearson.number / dof
        if not np.isfinite(ratio) or ratio <= 0.0 or abs(np.log(ratio)) < _SETTLED:
            break
        likelihood.dispersion.assign(np.clip(dispersion * ratio, *_ENDS))
        if time is not None:
            settings["max_seconds"] = time - spent
        fit = refit(fit, seed, settings)
        result = dataclasses.replace(fit.result, seconds=spent + fit.result.seconds)
        fit = dataclasses.replace(fit, result=result)
    return fit


_STEPS, _LONGEST, _REACHED = 25, 3.0, 0.005


def smoothed_as_stated(fit: FittedGAM, seed: int, options: dict[str, Any]) -> FittedGAM:
    """The fit at which terms have the degrees of freedom that they state; others as they are."""
    # Newton's steps in the logarithm of the variance of a term's last part, the deviation from its
    # line. In whitened coordinates the slope of tr(I - S) is tr(S (I - S)), other terms being held.
    spec = fit.spec
    stated = {c: edf for c in spec.effects if (edf := spec.term(c.term).edf) is not None}
    if stated and fit.solution is None:
        raise ValueError(
            "edf: takes several fits to sums over rows; leave edf, or engine and variational, out."
        )
    settings = {name: options[name] for name in _KEPT if name in options}
    for _ in range(_STEPS if stated else 0):
        moments, missing = fit.moments, {}
        for c, edf in stated.items():
            first = c.predictors_of(fit.num_predictors)[0]
            missing[c] = edf - float(effective_dof(fit, c)[first])
        worst = max(stated, key=lambda c: abs(missing[c]))
        if abs(missing[worst]) < _REACHED:
            break
        for c in stated:
            learnt = parameter_dict(fit.users_model.kernel[c.name])
            learnt = {path: p for path, p in learnt.items() if p.prior is not None}
            *_, variance = (p for path, p in learnt.items() if path.endswith(".variance"))
            for p in learnt.values():
                set_trainable(p, False)
            first, at = c.predictors_of(fit.num_predictors)[0], moments.block(c.name)
            S = moments.covariance[first, at, at]
            slope = max(float(np.trace(S) - np.sum(np.square(S))), 1e-3)
            step = np.clip(missing[c] / slope, -_LONGEST, _LONGEST)
            variance.assign(variance.numpy() * np.exp(step))
        try:
            fit = refit(fit, seed, settings)
        except NotPositiveDefinite:
            break
    if stated and abs(missing[worst]) >= _REACHED:
        raise ValueError(
            f"{worst.name}: edf={stated[worst]:g} cannot be; at the lengthscale that suits the "
            f"data it gets to {stated[worst] - missing[worst]:.1f}. State less, or take a larger k."
        )
    return fit


# --- warnings -------------------------------------------------------------------------------------


UNLIKELY = 0.002  # probability below which an estimate is too far from its shape to be so by chance
_ALIKE = 20.0  # largest ratio of spans between columns that share a lengthscale
_SHARP = 1.0 / 3.0
"""Ratio of most residuals' spread to the loss's scale, below which smoothing may be too wide."""
_CENTRED = ("smooth", "tensor", "line", "curves", "areas")
"""Functions of one level that average to zero over its data."""


Warned = Iterator[tuple[str, type[UserWarning]]]


_RHAT, _DIVERGED = 1.05, 0.02  # above which chains have not mixed


def check_fit(fit: FittedGAM) -> None:
    """Warn of what a fit shows to be wrong with it."""
    for text, kind in problems(fit):
        warn_caller(text, kind)


def problems(fit: FittedGAM) -> Warned:
    """What a fit shows to be wrong with it, and the class of the warning."""
    return itertools.chain(_outcome(fit), _identifiability(fit), _terms(fit))


def _outcome(fit: FittedGAM) -> Warned:
    """What is amiss with the optimum, the noise and shapes."""
    result, family = fit.result, fit.spec.family
    if not result.converged and "standard errors" in result.message:  # which says what to do
        yield f"{result.message}.", ConvergenceWarning
    elif not result.converged:
        yield (
            f"the fit did not converge: {result.message}. Estimates and their errors may be far "
            "off: go on with refit(), with larger max_iterations or max_seconds, or fewer terms.",
            ConvergenceWarning,
        )
    chains = None if fit.solution is None else fit.solution.chains
    if chains is not None and (chains.rhat() > _RHAT or np.mean(chains.diverged) > _DIVERGED):
        yield (
            f"chains of hyperparameters do not agree (R-hat {chains.rhat():.2f}, "
            f"{np.sum(chains.diverged)} divergent draws): look at inference_data(). Drop terms "
            "that the data cannot tell apart, or take posterior='laplace'.",
            ConvergenceWarning,
        )
    scatter = sample_dispersion(fit)
    if scatter is not None and scatter.clear:
        yield (
            f"the response scatters more than family {family.name!r} allows: Pearson dispersion "
            f"{scatter.value:.2f}, so that standard errors are {scatter.factor:.1f} times too "
            f"small; {scatter.remedy}.",
            DispersionWarning,
        )
    chance = _CLEARLY / np.sqrt(fit.number)
    # standard errors by neighbourhood cross-validation allow for it
    for name, r in () if fit.criterion == "ncv" else autocorrelations(fit).items():
        if r > max(_REMEMBERED, chance):
            yield (
                f"residuals of neighbouring rows along {name!r} are alike (correlation {r:.2f}): "
                f"standard errors are too small. If noise lasts, fit with GAM(..., ar1={name!r}) "
                f"(gaussian, even steps), or add s({name!r}, bs='ou'); if the effect bends more "
                f"than its k inducing points allow, s({name!r}, k=...) with a larger one.",
                AutocorrelationWarning,
            )
    for component in fit.spec.components:
        if not component.shape or fit.shaped is None:
            continue
        tails = (
            fit.shape_tail(component.name, i) for i in component.predictors_of(fit.num_predictors)
        )
        if (p := min(tails)) < UNLIKELY:
            yield (
                f"the data speak against shape={component.shape!r} of {component.name}: chance "
                f"alone takes an estimate as far from it with probability {p:.1g}. The fit keeps "
                "to the shape, and its errors are those of a shape that is right: look at the "
                "effect without.",
                ShapeWarning,
            )
    lost = tied(np.asarray(fit.data.responses[:])) if isinstance(family, Cox) else 0.0
    if lost > _TIED:
        yield (
            f"many events share a time: slopes are about {lost:.0%} nearer to zero than they "
            "should be, and survival curves too high. Where times are in whole units, take "
            "time - unit * rng.uniform(size=N) of those that are rounded up.",
            ResolutionWarning,
        )
    if isinstance(family, Quantile):
        which, F = fit.sample_means(_ROWS)
        sharpness = family.sharpness(fit.likelihood, fit.Y[which], F)
        bend = family.smoothing / sharpness
        if sharpness < _SHARP and bend > SMOOTHING / _SHARP:
            yield (
                "some rows are so far from the others that the loss of the quantile is smoothed "
                f"over {bend:.2g} standard deviations of most residuals, and not "
                f"{family.smoothing:g}: the quantile may be far off. Take families.Quantile("
                f"{family.tau:g}, smoothing={SMOOTHING * sharpness:.1g}).",
                SmoothingWarning,
            )


def _identifiability(fit: FittedGAM) -> Warned:
    """Effects that the data leave to their prior, or to each other; each is named once."""
    said = set[str]()
    for one, other, text in itertools.chain(_indistinguishable(fit), _overlapping(fit)):
        said |= {one, other}
        yield f"{one} and {other} are {text}", IdentifiabilityWarning
    yield from _of_single_rows(fit)
    yield from _undetermined(fit, said)


def _indistinguishable(fit: FittedGAM) -> Iterator[tuple[str, str, str]]:
    """Pairs of effects of different columns that the data cannot tell apart."""
    text = (
        "functions of the same thing: each of their columns can be told from the other. The data "
        "settle their sum alone, and what each shows is what the prior makes of it; drop one of "
        "the two."
    )
    order = np.random.default_rng(0).permutation(len(fit.X))
    components = [c for c in fit.spec.components if len(c.margins) == 1 and c.form != "own"]
    for kind, group in _alike(components):
        X = fit.X[order[: _COMPARED_ROWS[kind]]]
        rows, columns = X[group[0].acting(X)], [c.margins[0].column for c in group]
        if len(set(columns)) < 2 or len(rows) < 3:
            continue
        shared = _MEASURES[kind](rows[:, columns])
        for i, j in itertools.combinations(range(len(group)), 2):
            pair, alike = (group[i].name, group[j].name), min(shared[i, j], shared[j, i]) >= _NEARLY
            if columns[i] != columns[j] and alike and _beside(fit, *pair):
                yield *pair, text


def _within(component: Component) -> str | None:
    """The function, at most one of a column, that a component contains: a line or levels."""
    line = component.form == "smooth" and has_line(component.margins[0].kind)
    if line or component.form == "line":
        return "line"
    return "levels" if component.form in LEVELS else None


def _overlapping(fit: FittedGAM) -> Iterator[tuple[str, str, str]]:
    """Pairs of effects of one column, of which one can be all that the other is."""
    components = [c for c in fit.spec.components if len(c.margins) == 1 and not c.shape]
    for first, second in itertools.combinations(components, 2):
        kind = _within(first)
        if kind is None or kind != _within(second) or first.term == second.term:
            continue
        same = first.margins[0].column == second.margins[0].column and first.by == second.by
        if same and _beside(fit, first.name, second.name):
            line = "linear" in first.name + second.name
            text = (
                "of the same column, and what the one can be the other can: the data settle their "
                "sum alone, and what each shows is what the prior makes of it. Drop "
                f"{'the line, which the smooth has' if line else 'one of the two'}."
            )
            yield first.name, second.name, text


def _of_single_rows(fit: FittedGAM) -> Warned:
    """Effects of levels or areas with one row each, where the family has noise of its own."""
    # What a level adds is then what the noise adds. Counts have no noise beyond what their mean
    # says: of those such an effect is overdispersion, and can be told.
    family = fit.spec.family.name
    if not fit.data.complete or family in WITHOUT_NOISE:
        return
    counted = fit.weights > 0.0
    X, weights = fit.X[counted], fit.weights[counted]
    most = _INTERPOLATED * (len(X) - 1)
    for c in fit.spec.components:
        if c.form not in (*LEVELS, "curves", "deviations", "areas"):
            continue
        if not has_single_rows(c, X, float(weights.max())):
            continue
        if c.form != "areas":
            yield (
                f"{c.name} has a level for every row, so that what a level adds cannot be told "
                f"from the noise of family {family!r}: the data settle the variance of their sum "
                "alone. Drop the term, or give rows that belong together one level.",
                IdentifiabilityWarning,
            )
        elif float(np.max(effective_dof(fit, c))) > most:
            yield (
                f"{c.name} has one row an area and goes through nearly all of them: what "
                f"neighbours share did not tell effects from the noise of family {family!r}. Give "
                "areas several rows, or explain the response by columns of numbers.",
                IdentifiabilityWarning,
            )


def _undetermined(fit: FittedGAM, said: Collection[str]) -> Warned:
    """Effects of ``linear`` and ``factor`` that the data leave to their prior."""
    # Where a column follows from others, an effect's variance is a large part of its wide prior's.
    # Where responses are all alike in a level, or are split by a line, the likelihood has no bound:
    # each of them is then predicted as good as surely.
    log_probabilities = functools.cache(lambda: _log_probabilities(fit))
    for component in fit.spec.components:
        if component.shrink or len(component.inducing) > _MOST_LEVELS:
            continue
        (margin,), name = component.margins, component.name
        points = np.array(margin.ends if component.form == "line" else margin.nodes)
        X = component.full(points[:, None], fit.spec.encoder.width)
        phi, at = fit.moments.features(name, X), fit.moments.block(name)
        enters = component.predictors_of(fit.num_predictors)
        squares = np.square(fit.units[0][enters])[:, None]
        prior = np.asarray(fit.model.kernel[name](X, full_cov=False)) * squares
        variances = np.sum(phi * (fit.moments.covariance[enters, at, at] @ phi), axis=1) * squares
        loose = np.any(variances > _LOOSE**2 * np.maximum(prior, 1e-300), axis=0)
        # effects that are known well are not unbounded
        uncertain = np.any(variances > np.square(_KNOWN * fit.spec.scale))
        logs = log_probabilities() if uncertain else None
        if logs is not None and component.form == "line":
            loose |= logs.sum() > _SURE
        elif logs is not None:
            codes = fit.X[:, margin.column].astype(np.intp)
            sums = np.bincount(codes, logs, minlength=len(loose))
            occurs = np.bincount(codes, minlength=len(loose)) > 0
            places = points.astype(np.intp)
            loose |= (sums > _SURE)[places] & occurs[places]
        if not loose.any() or name in said:
            continue
        which = ""
        if component.form != "line":
            levels = fit.spec.encoder.readers[margin.column].shown(points[loose]).tolist()
            which = f" of level{'s' * (len(levels) > 1)} {listed(levels, 6)}"
        why = "responses are all alike there, or split by it, or it follows from other terms"
        for c in fit.spec.effects:  # slopes that vary may be constant
            varies = c.by is not None and (c.by.column, c.by.code) == (margin.column, None)
            if varies and _beside(fit, name, c.name):
                why = f"{c.name} holds it as well"
        yield (
            f"the data do not determine {name}{which}: {why}. What bounds the estimate is a very "
            "wide prior. Drop the term, join levels, or shrink it: shrink=True.",
            IdentifiabilityWarning,
        )


def _terms(fit: FittedGAM) -> Warned:
    """Terms that may be meant otherwise."""
    spec = fit.spec
    means: dict[tuple[Column, frozenset[int]], str] = {}
    entered = {c: frozenset(c.predictors_of(fit.num_predictors)) for c in spec.effects}
    for c in spec.effects:
        # of a level, a curve averages to zero
        if c.form in _CENTRED and c.by is not None and c.by.code is not None:
            by = spec.term(c.term).by
            assert by is not None
            means.setdefault((column_of(by), entered[c]), c.term)
    for (name, places), label in means.items():
        if spec.design is not None and name in spec.design.variables:
            continue  # of which the formula makes the means
        if not any(
            name in (t := spec.term(c.term)).columns
            and t.by is None
            and not isinstance(t, Interaction)
            and places <= entered[c]
            for c in spec.effects
        ):
            yield (
                f"{label} gives each level of {name!r} a function that averages to zero, and no "
                f"term lets the levels differ on average: add factor({name!r}).",
                MissingTermWarning,
            )
    smooths = [t for t in spec.terms if isinstance(t, SmoothTerm)]
    asked = dict.fromkeys(bs for t in smooths for bs in t.bases if bs in SPLINES)
    if asked:
        yield (
            f"bs={', '.join(map(repr, asked))} of mgcv: smooths are Gaussian processes here, and "
            "these are the default's (bs='matern52'). Leave bs out to say so; bs='iou' goes on "
            "beyond the data as splines do.",
            BasisWarning,
        )
    factors = {t.columns[0] for t in spec.terms if isinstance(t, Levels) and t.by is None}
    for term in smooths:
        number = None if term.by is None else column_of(term.by)
        if number in factors and (number, "number") in spec.encoder.columns:
            yield (
                f"{term.label} is multiplied by the numbers in {number!r}, which factor("
                f"{number!r}) takes as levels: for a curve for each level write "
                f"by=factor({number!r}).",
                MissingTermWarning,
            )
    names = [name for name, _ in spec.encoder.columns]
    without = {
        (c.term, m.column): None
        for c in spec.effects
        for m, period in zip(c.margins, getattr(spec.term(c.term), "periods", ()))
        if m.kind == "cyclic" and period is None
    }
    for label, column in without:
        values, reader = np.unique(fit.X[:, column]), spec.encoder.readers[column]
        known = isinstance(reader, NumericColumn) and not reader.time and len(values) > 1
        if known and np.all(values == np.round(values)):
            first, last, step = values[0], values[-1], np.min(np.diff(values))
            yield (
                f"{label} joins the ends of {reader.name!r}: {first:g} and {last:g} are one "
                f"point, as without period= it is the column's range. Pass "
                f"period={last - first + step:g} if {first:g} follows {last:g}, or "
                f"period={last - first:g} to keep this one.",
                IdentifiabilityWarning,
            )
    for component in spec.components:
        if component.form != "smooth" or len(component.margins) == 1:
            continue
        short, *_, long = sorted(component.margins, key=lambda m: m.span)
        if long.span > _ALIKE * short.span:
            columns = ", ".join(repr(names[m.column]) for m in component.margins)
            yield (
                f"{component.name} has one lengthscale for {names[short.column]!r}, which spans "
                f"{short.span:.3g}, and {names[long.column]!r}, which spans {long.span:.3g}: if "
                f"their units differ, write s({columns}, isotropic=False), which learns one each.",
                ScaleMismatchWarning,
            )


class Checks(Inspected):
    """Checks of a fitted GAM that users ask for."""

    @one_blas_thread()
    def residual_tests(
        self, *, time: Any = None, space: Any = None, seed: int | None = None
    ) -> pd.DataFrame:
        """
        Tests of randomised quantile residuals, as R's DHARMa has them.

        :param time: when rows are: a numeric column of the model, or values [N] of the fitted rows.
        :param space: where rows are: two numeric columns of the model, or values [N, 2].
        :param seed: of the residuals' random part; the GAM's own by default.
        :return: columns ``statistic`` and ``p`` (two-sided), and the rows ``uniformity``
            (Kolmogorov-Smirnov distance from the normal distribution, conservative, as parameters
            are those that fit best); ``dispersion`` (variance,
            given the degrees of freedom of the fit); of counts ``zeros``, those observed over those
            expected (a score test: van den Broek 1995); with ``time`` the correlation of successive
            rows; with ``space`` Moran's I of the eight nearest rows (Cliff & Ord 1981). A row of
            weight w counts as w rows, but once in time and space.
        :raises ValueError: a family without a distribution function; rows that are not in memory;
            ``time`` or ``space`` of another shape.
        """
        fit = self.fitted
        check_rows(fit, "residual_tests")
        if not fit.data.complete:
            raise ValueError("residual_tests: needs the rows of a fit in memory, 65 536 at most.")
        F = fit.predict_link(fit.X)[0]
        counted = fit.weights > 0.0
        seed = self._chosen_seed(seed)
        residuals = quantile_residuals(fit, seed)[counted]
        number, weights = len(residuals), fit.weights[counted]
        dof = max(float(weights.sum()) - total_dof(fit), 1.0)
        scatter = float(weights @ np.square(residuals)) / dof
        rows = {
            "uniformity": _uniformity(residuals, weights),
            "dispersion": (scatter, 2.0 * float(norm.sf(abs(scatter - 1.0) / np.sqrt(2.0 / dof)))),
        }
        zeros = _zeros(fit, F)
        if zeros is not None:
            rows["zeros"] = zeros
        e = residuals - residuals.mean()
        if time is not None:
            at = _at_rows(fit, "time", time, 1)[counted, 0]
            # rows of one time in any order, which that of the data need not be
            mixed = np.random.default_rng([seed, _STREAM, 1]).permutation(number)
            order = np.lexsort([mixed, at])
            r = float(e[order][1:] @ e[order][:-1] / (e @ e))
            rows["time"] = r, 2.0 * float(norm.sf(abs(r + 1.0 / number) * np.sqrt(number)))
        if space is not None:
            rows["space"] = _moran(e, _at_rows(fit, "space", space, 2)[counted])
        return pd.DataFrame.from_dict(rows, orient="index", columns=["statistic", "p"])

    def concurvity(self, full: bool = True) -> pd.DataFrame:
        """
        Concurvity: how well other effects reproduce each effect (Wood's ``mgcv::concurvity``).

        It is between 0 (no problem) and 1 (the effect is a sum of functions like the others).
        Others are those of the same predictor; weights count rows.

        - ``observed``: of the effect as estimated, ``|P f|^2 / |f|^2`` with P the projection on the
          space of the other effects; of several predictors, of the first;
        - ``estimate``: of what the effect's prior makes likely, ``|P Phi|^2 / |Phi|^2`` in the norm
          of Frobenius, Phi the effect's features, whose squares add up to its prior variance.

        :param full: whether of all others together, a row for each effect; ``False`` for pairs.
        """
        fit = self.fitted
        effects, root = _features(fit)
        names, kinds = list(effects), ("observed", "estimate")
        bases = {name: _basis(root, phi) for name, (phi, _) in effects.items()}
        if full:
            rows = []
            for name, (phi, f) in effects.items():
                others = [basis for n, basis in bases.items() if _beside(fit, name, n)]
                # all that single effects span: together they explain no less than one of them
                basis = _basis(root, *others, negligible=1e-8)
                rows.append((_explained(basis, f), _explained(basis, phi)))
            return pd.DataFrame(rows, index=pd.Index(names, name="effect"), columns=kinds)
        measures = {m: pd.DataFrame(1.0, index=names, columns=names) for m in kinds}
        for first, basis in bases.items():
            for second, (phi, f) in effects.items():
                if second != first:
                    beside = _beside(fit, first, second)
                    measures["observed"].loc[first, second] = beside * _explained(basis, f)
                    measures["estimate"].loc[first, second] = beside * _explained(basis, phi)
        return pd.concat(measures, names=["measure", "effect"])
