"""Predictive densities of rows, or groups of them, by posteriors without them."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood

from ..errors import LeaveOneOutWarning, NotPositiveDefinite, warn_caller
from ..likelihoods import Weighted
from ..likelihoods.base import checked_observations, unwrapped
from ..likelihoods.expectations import expectations, mean_curvature
from ..likelihoods.predictive import predictive_log_density
from ..models import IterNCGP
from ..newton.curvatures import curvature
from ..optimizers.binned.cavities import (
    Cavity,
    Neighbourhoods,
    RowPosterior,
    Sites,
    marginal_cavities,
    sites_of,
)
from ..optimizers.binned.rounds import StartError, converged
from ..optimizers.binned.solution import Solution
from ..posteriors.base import SparseAdditivePosterior
from ..posteriors.inducing import Projection
from ..storage import blocks
from ..threads import one_blas_thread
from .fits import FittedGAM
from .fits.data import CodedData
from .summaries.checks import total_dof
from .summaries.summary import as_html, as_text
from .terms.base import Column, as_column

__all__ = ["LeaveOneOut", "leave_one_out"]


def folds_of(fit: FittedGAM, groups: Any) -> Neighbourhoods:
    """Neighbourhoods of a fit's rows."""
    column = as_column(groups)
    if column is not None:
        return Neighbourhoods.of_labels(_labels(fit, column))
    number = fit.number
    fewer = fit.dropped or fit.spec.weights is not None
    if fewer and hasattr(groups, "__len__") and len(groups) > number:
        raise ValueError(
            f"groups must have one entry for each of the {number} rows that were fitted; got "
            f"{len(groups)}. Rows with missing values or of weight zero were left out: leave them "
            "out here too."
        )
    return Neighbourhoods.of(groups, number)


def _labels(fit: FittedGAM, column: Column) -> Any:
    """A column of the data, as the fit holds it."""
    names = [reader.column for reader in fit.spec.encoder.readers]
    result = [i for i, name in enumerate(names) if name == column]
    for place in result:
        if not isinstance(fit.data, CodedData):
            return fit.X[:, place]
        bins = fit.data.columns.coded.get((place,))
        if bins is not None and bins.exact:
            return bins.codes
    if result:
        raise ValueError(
            f"groups: of {column!r} the fit holds ranges of values alone, as there are many rows; "
            "pass the labels of all rows."
        )
    there = ", ".join(dict.fromkeys(str(name) for name in names if name is not None))
    raise ValueError(
        f"groups: the fit holds no column {column!r}, which no term reads (there are "
        f"{there}); pass its values, as in groups=data[{column!r}]."
    )


def described(folds: Neighbourhoods | None) -> str:
    """Description of the rows that are left out at a time, in words."""
    if folds is None:
        return "one row at a time"
    sizes = np.array([len(part) for part in folds.out])
    if folds.out is folds.predicted:
        return f"{len(folds)} groups of {sizes.min()} to {sizes.max()} rows"
    return f"each row with its neighbourhood, {sizes.min()} to {sizes.max()} rows"


_BLOCK = 2**17  # rows at a time


@dataclasses.dataclass(frozen=True)
class Observed:
    """Identity of the observations that a fit predicts, by which fits are comparable."""

    response: Column
    number: int
    values: str
    weights: str
    discrete: bool
    folds: str = ""


def observed_of(fit: FittedGAM) -> Observed:
    """The observations that a fit predicts."""
    spec = fit.spec
    Y = fit.data.responses
    values = hashlib.blake2b(repr(spec.levels).encode() if spec.levels else b"", digest_size=16)
    for start in range(0, len(Y), _BLOCK):
        block = np.asarray(Y[start : start + _BLOCK], dtype=np.float64)
        values.update(np.ascontiguousarray(block + 0.0).tobytes())  # of two zeros one
    weights = hashlib.blake2b(digest_size=16)
    for _, part in fit.data.weights():
        weights.update(np.ascontiguousarray(part, dtype=np.float64).tobytes())
    return Observed(
        spec.response, fit.number, values.hexdigest(), weights.hexdigest(), spec.family.discrete
    )


def check_same(names: list[str], all_observed: list[Observed], call: str = "compare") -> None:
    """Raises ValueError, naming two of them, unless all fits predict the same rows."""
    first = all_observed[0]
    for name, other in zip(names[1:], all_observed[1:]):
        pair = f"{call}: {names[0]!r} and {name!r}"
        if first.number != other.number:
            raise ValueError(
                f"{pair} were fitted to {first.number} and {other.number} rows; fit both to the "
                "same rows (such as those complete in the columns of both)."
            )
        if first.discrete != other.discrete:
            which = name if first.discrete else names[0]
            raise ValueError(
                f"{pair}: the family of {which!r} has densities of responses and the other one "
                "probabilities, which have no unit in common; compare families of one kind."
            )
        if first.values != other.values:
            raise ValueError(
                f"{pair} were fitted to different responses ({first.response!r} and "
                f"{other.response!r}), or to rows in another order; densities of transformed or "
                "other responses cannot be compared. Fit both to the same column of the same rows."
            )
        if first.weights != other.weights:
            raise ValueError(f"{pair} were fitted with different weights; give both the same.")
        if first.folds != other.folds:
            raise ValueError(
                f"{pair}: different rows were left out together; call loo with the same groups."
            )


_DRAWS = 1000  # number of draws of functions, behind variances
_DRAWS_EACH = 400  # the same, where each neighbourhood has draws of its own
_TOGETHER = 1024  # rows at a time
_LEVER = 0.1
"""
Share of what is known of a row that it has said itself, from which on it is projected anew without
itself. These shares add up to the degrees of freedom: such rows are few, however many there are.
"""


_FAR = 0.7
"""
Logarithm of the factor by which the weight of a row's site changes when its predictor moves to
where it is without the row, from which on the others' sites follow.
"""
_MOST_ANEW, _WORK = 20, 5 * 10**8  # most of them, and operations of a pass over the rows for each
_TOLERANCE = 1e-3  # in nats, of their fits


class ShapedCavities:
    """The predictor of rows without sites, under inequalities: of the Gaussian projected anew."""

    def __init__(
        self, posterior: RowPosterior, sites: Sites, inequalities: Sequence[AnyNDArray]
    ) -> None:
        self._posterior, self._sites, self._inequalities = posterior, sites, inequalities

    def _projection(self, output: int, mean: AnyNDArray, covariance: AnyNDArray) -> Projection:
        return Projection(mean, covariance, self._inequalities[output])

    def one_by_one(self) -> Iterator[tuple[AnyNDArray, Cavity]]:
        """Every row without its own site."""
        # A draw u of the Gaussian is the optimum of data with noise added, and so is its
        # projection, linear in them while the inequalities that hold it stay the same ones. With h
        # and h_A the variance at the row without and with those held to equality, w and s the
        # site's precision and shift, a_A the projected draw there and a - mu the draw's deviation
        # from the mean, it is
        #     (a_A - h_A b) / (1 - w h_A),    b = s + w (a - mu) / (1 + sqrt(1 - w h))
        # without the row (Sherman & Morrison 1950). A row that says much of its predictor may
        # decide which inequalities hold it: these few are projected anew.
        given, number = self._posterior, len(self._sites.weight)
        outputs = range(self._sites.weight.shape[1])
        result = [self._projection(i, *given.moments(i)).draws(_DRAWS) for i in outputs]
        for start in range(0, number, _TOGETHER):
            which = np.arange(start, min(start + _TOGETHER, number))
            phi, left = given.features(which)
            mean, var, posterior = (np.zeros((len(which), len(outputs))) for _ in range(3))
            heavy = np.zeros(len(which), bool)
            for i, (root, free, projected, touching) in enumerate(result):
                w, s = self._sites.weight[which, i], self._sites.shift[which, i]
                of_mean, spread = np.zeros(len(which)), np.zeros(len(which))
                z = root @ given.of(i, phi)  # [P, n]
                centre = given.moments(i)[0] @ given.of(i, phi)
                h = np.sum(np.square(z), axis=0)
                with np.errstate(divide="ignore", invalid="ignore"):
                    turned = w / (1.0 + np.sqrt(1.0 - w * h))
                    for some, held in touching:  # the mean's first
                        h_A = np.maximum(h - np.sum(np.square(held.T @ z), axis=0), 0.0)
                        b = s + turned * (free[some] @ z)
                        f = (centre + projected[some] @ z - h_A * b) / (1.0 - w * h_A)
                        if some[0] == 0:
                            of_mean, f = f[0], f[1:]
                        spread += np.sum(np.square(f - of_mean), axis=0)
                mean[:, i], var[:, i] = of_mean, spread / (len(free) - 1)
                posterior[:, i] = centre + projected[0] @ z
                heavy |= np.abs(w * h) > _LEVER
            for n in np.flatnonzero(heavy):
                mean[n], var[n] = self._anew(which[n : n + 1], phi[:, n : n + 1])
            yield which, given.trusted(mean, var, posterior, phi, left)

    def by_neighbourhood(
        self, neighbourhoods: Neighbourhoods
    ) -> Iterator[tuple[AnyNDArray, Cavity]]:
        """Every row without the sites of its neighbourhood, projected for each anew."""
        given, outputs = self._posterior, range(self._sites.weight.shape[1])
        estimates = [self._projection(i, *given.moments(i)).mean for i in outputs]
        for out, which in zip(neighbourhoods.out, neighbourhoods.predicted):
            phi, left = given.features(which)
            known = [estimate @ given.of(i, phi) for i, estimate in enumerate(estimates)]
            mean, var = self._anew(out, phi)
            yield which, given.trusted(mean, var, np.stack(known, axis=1), phi, left)

    def _anew(self, out: AnyNDArray, phi: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
        """Mean and variance [n, L] without some rows' sites, projected anew; NaN for none."""
        given, gone = self._posterior, self._posterior.features(out)[0]
        mean, var = np.full((2, phi.shape[1], self._sites.weight.shape[1]), np.nan)
        for i in range(mean.shape[1]):
            free = given.without(i, gone, self._sites.weight[out, i], self._sites.shift[out, i])
            if free is not None:
                projection, at = self._projection(i, *free), given.of(i, phi)
                mean[:, i] = projection.mean @ at
                var[:, i] = np.sum(at * (projection.covariance(_DRAWS_EACH) @ at), axis=0)
        return mean, var


Blocks = Iterator[tuple[AnyNDArray, Cavity]]


@dataclasses.dataclass(frozen=True, eq=False)
class LeaveOneOut:
    """
    Leave-one-out predictive densities of the rows.

    :param pointwise: log predictive density of an observation of each row, by a fit without it (and
        without its neighbourhood), [N].
    :param weights: how often each row counts, [N].
    :param untrusted: how many rows could not be left out: see :func:`leave_one_out`.
    :param left_out: what was left out at a time, in words.
    :param edf: effective degrees of freedom of the fit, the intercept's included.
    :param parameters: how many of its own parameters the family has learnt; those that a prior
        bounds, as the steps of a baseline hazard, count as effective degrees of freedom.
    :param log_likelihood: of all rows at the posterior mean of the predictor.
    :param terms: the formula.
    :param family: the family's name.
    :param observed: what was predicted, by which it is known whether two fits can be compared.
    """

    pointwise: AnyNDArray
    weights: AnyNDArray
    untrusted: int
    left_out: str
    edf: float
    parameters: float
    log_likelihood: float
    terms: str
    family: str
    observed: Observed

    @property
    def number(self) -> int:
        """N."""
        return len(self.pointwise)

    @property
    def elpd(self) -> float:
        """Expected log predictive density: the sum of ``pointwise``, each as often as it counts."""
        return total(self.pointwise, self.weights)[0]

    @property
    def se(self) -> float:
        """
        The standard error of :attr:`elpd`, rows being a sample (Vehtari, Gelman & Gabry 2017).

        Rows that depend on each other, as in time, make it too small.
        """
        return total(self.pointwise, self.weights)[1]

    @property
    def aic(self) -> float:
        """
        Akaike's criterion at the posterior mean, ``-2 log p(y | mean) + 2 (edf + parameters)``.

        For orientation, beside R's mgcv, whose ``AIC`` is of this form; about ``-2 elpd`` where
        rows are independent and hyperparameters well known.
        """
        return -2.0 * self.log_likelihood + 2.0 * (self.edf + self.parameters)

    def _rows(self) -> list[tuple[str, str]]:
        return [
            ("terms", self.terms),
            ("family", self.family),
            ("left out", f"{self.left_out}, of {self.number:,}"),
            ("elpd", f"{self.elpd:.2f} (se {self.se:.2f})"),
            ("effective degrees of freedom", f"{self.edf:.1f}"),
            ("AIC", f"{self.aic:.2f}"),
            ("not to be trusted", f"{self.untrusted:,} rows"),
        ]

    def __str__(self) -> str:
        return as_text(self._rows())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return as_html(self._rows())


def total(pointwise: AnyNDArray, weights: AnyNDArray) -> tuple[float, float]:
    """The sum of what rows have, each as often as it counts, and its standard error."""
    counts = weights > 0.0
    x, w = pointwise[counts], weights[counts]
    number = float(np.sum(w))
    away = x - float(w @ x) / number
    spread = number / (number - 1.0) if number > 1.0 else np.inf
    return float(w @ x), float(np.sqrt(spread * (w @ np.square(away))))


def leave_one_out(fit: FittedGAM, groups: Any = None) -> LeaveOneOut:
    """
    Leave-one-out predictive densities, from one fit.

    Each row's site, by which it has told the posterior of its predictor, is divided out, and the
    density of its response is averaged over what is left (Opper & Winther 2000; Vehtari, Mononen,
    Tolvanen, Sivula & Winther 2016). Hyperparameters stay. Of Gaussian data that is what a fit
    without the row says, to rounding; of others the sites of the remaining rows stay as well, and
    it is very nearly that where no row decides much by itself. Where the predictor moves so far
    that rows there know half or twice as much, as without the only event of a level, the others are
    fitted anew: without each of up to 20 rows, or groups, with fewer where there are many inducing
    values; but not with shapes, ``engine=`` or ``variational=``. A row is left out with all its
    weight.

    Terms with a shape keep it: what is left without a row is projected as the fit itself is. Of
    rows by themselves that is done with the inequalities that hold the fit, which is exact but
    where one row decides which these are; groups are projected anew, each of them. Several
    predictors are then taken to answer by themselves.

    Where dividing out leaves no variance a row is predicted from the prior; such rows are counted
    and warned of.

    :param fit: a fitted GAM.
    :param groups: rows that are left out together with each row, for data that are not independent
        given the predictor, such as those of neighbouring times, places or the same person (Wood
        2024): a column that the model reads, labels of all rows [N] (in their order: a Series' own
        labels do not count), or an array of the indices of each row's neighbours.
    :raises ValueError: naming the argument; or a fit of which rows or sites are not held.
    """
    if fit.data.shared:
        raise ValueError(
            "loo: each worker holds rows of its own, and passes over all of them are over with the "
            "fit; fit in one process."
        )
    folds = None if groups is None else folds_of(fit, groups)
    with one_blas_thread(), np.errstate(over="ignore"):
        result = _left_out(fit, folds)
    if result.untrusted:
        warn_caller(
            f"{result.untrusted} of {result.number} rows could not be left out: what the fit says "
            "of them is no more certain than what they say themselves; they were predicted from "
            "the prior. If they are many, fit until it converges (of engine='iterncgp', with more "
            "sweeps), or compare fits on held-out data.",
            LeaveOneOutWarning,
        )
    return result


def _own_dof(fit: FittedGAM) -> float:
    """Effective number of the likelihood's own parameters: those with priors are not all free."""
    parameters, solution = unwrapped(fit.model.likelihood).trainable_parameters, fit.solution
    if solution is not None and solution.curvature is not None:
        prior = np.diag(solution.rounds.family.prior_precision())
        if prior.any():
            return float(np.trace(np.linalg.solve(prior - solution.curvature, -solution.curvature)))
    return float(sum(int(np.size(p)) for p in parameters))


def _left_out(fit: FittedGAM, folds: Neighbourhoods | None) -> LeaveOneOut:
    likelihood = unwrapped(fit.model.likelihood)
    weights = np.concatenate([w for _, w in fit.data.weights()])
    pointwise, bad = np.zeros(fit.number), np.zeros(fit.number, dtype=bool)
    log_likelihood = 0.0
    for which, cavity in _cavities(fit, folds):
        X, Y, mean = rows_of(fit, which)
        Y = checked_observations(tf.constant(Y), likelihood)
        density = predictive_log_density(likelihood, X, cavity.mean + mean, cavity.var, Y)
        log_prob = np.asarray(likelihood.log_prob(X, cavity.posterior + mean, Y))
        w = weights[which]
        log_likelihood += float(np.sum(w * np.where(w > 0.0, log_prob, 0.0)))
        pointwise[which], bad[which] = density, cavity.untrusted
    # what no quadrature can tell is not told
    lost = np.isnan(pointwise)
    pointwise[lost] = -np.inf
    return LeaveOneOut(
        pointwise,
        weights,
        int(np.sum(bad | lost)),
        described(folds),
        total_dof(fit),
        _own_dof(fit),
        log_likelihood,
        repr(fit.spec.terms),
        fit.spec.family.name,
        dataclasses.replace(observed_of(fit), folds="" if folds is None else folds.digest),
    )


def _cavities(fit: FittedGAM, folds: Neighbourhoods | None) -> Blocks:
    if isinstance(fit.model, IterNCGP):
        if folds is not None:
            raise ValueError(
                "groups: engine='iterncgp' leaves out single rows only; fit with "
                "engine='variational'."
            )
        yield np.arange(fit.number), _laplace(fit)
        return
    posterior, sites = row_posterior(fit)
    if fit.shaped is not None:
        rules = [fit.shaped.projected.inequalities(i) for i in range(fit.num_predictors)]
        shaped = ShapedCavities(posterior, sites, rules)
        yield from shaped.one_by_one() if folds is None else shaped.by_neighbourhood(folds)
        return
    if folds is None:
        parts = posterior.one_by_one(sites)
    else:
        parts = posterior.by_neighbourhood(sites, folds)
    if fit.solution is None or fit.solution.bound is not None:  # Gaussian sites stay
        yield from parts
        return
    every = list(parts)
    which = np.concatenate([rows for rows, _ in every])
    cavity = Cavity(*map(np.concatenate, zip(*(part for _, part in every))))
    _follow(fit, fit.solution, which, cavity, folds)
    yield from ((which[at], Cavity(*(a[at] for a in cavity))) for at in blocks(len(which), _BLOCK))


def _follow(
    fit: FittedGAM,
    solution: Solution,
    which: AnyNDArray,
    cavity: Cavity,
    folds: Neighbourhoods | None,
) -> None:
    """Where rows move far without their sites, let the sites of the others follow."""
    rows, place, moved = solution.rows, np.argsort(which), np.zeros(fit.number)
    without, var, before = (a[place] for a in cavity[:3])
    for at in blocks(fit.number, _BLOCK):
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is no weight
            pair = np.nan_to_num(
                [
                    rows.sites(fit.model.likelihood, at, mean[at], var[at])[1]
                    for mean in (without, before)
                ],
                posinf=0.0,
            )
        least = 1e-6 * np.max(pair, initial=1e-300)
        moved[at] = np.max(np.abs(np.diff(np.log(np.maximum(pair, least)), axis=0)), axis=(0, 2))
    far = np.flatnonzero(moved > _FAR)[:, None]
    parts = list(zip(far, far) if folds is None else zip(folds.out, folds.predicted))
    parts.sort(key=lambda part: -np.max(moved[part[1]]))
    P = len(solution.q.mean)
    for out, predicted in parts[: min(_MOST_ANEW, _WORK // (P**3 + P * fit.number))]:
        if np.max(moved[predicted]) <= _FAR:
            break
        rest = rows.subset(np.setdiff1d(np.arange(fit.number), out))
        given, at = (solution.rounds.kernel, fit.model.likelihood, rest), place[predicted]
        try:
            q = converged(*given, solution.data, _TOLERANCE).q
        except (NotPositiveDefinite, StartError):
            cavity.untrusted[at] = True
            continue
        for block, mean, var in rows.subset(predicted).marginals(solution.values, q):
            cavity.mean[at[block]], cavity.var[at[block]] = mean, var


def row_posterior(fit: FittedGAM) -> tuple[RowPosterior, Sites]:
    """The predictor at the rows, and their sites."""
    if fit.spec.ar1 is not None:
        raise ValueError(
            "with ar1 a row tells of its neighbours' noise, so that none is left out by itself; "
            "compare forecasts, gpflow_gam.backtest."
        )
    solution = fit.solution
    if solution is None:
        return _dense(fit)
    given = solution.rows, _weighted(fit), solution.values, solution.q
    try:
        sites, q = sites_of(*given)
    except NotPositiveDefinite:  # as may be where the fit has not converged
        sites, q = sites_of(*given, signed=False)
    return RowPosterior.of_rows(solution.rows, solution.values, q), sites


def rows_of(fit: FittedGAM, which: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray, AnyNDArray]:
    """X, Y and the known part of the predictor of some rows."""
    if fit.solution is None:
        X = fit.X[which]
        return X, fit.Y[which], np.asarray(fit.model.mean_function(X))
    rows = fit.solution.rows
    return rows.X[which], rows.Y[which], rows.mean[which]


def _weighted(fit: FittedGAM) -> Likelihood:
    """The likelihood with weights, which the model of Gaussian data keeps beside it."""
    likelihood, column = fit.model.likelihood, fit.spec.weights
    if column is None or isinstance(likelihood, Weighted):
        return likelihood
    return Weighted(likelihood, fit.spec.place(column))


def _dense(fit: FittedGAM) -> tuple[RowPosterior, Sites]:
    """Sites that the rows would have at q, for families of q that keep none."""
    moments = fit.moments
    assert isinstance(fit.posterior, SparseAdditivePosterior)

    entering = moments.entering()

    def features(which: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
        phi, left = moments.all_features(fit.X[which])
        return phi, np.maximum(left, 0.0).T @ entering

    weight, shift, curvatures = [], [], []
    for X, Y in zip(fit.blocks(fit.X), fit.blocks(fit.Y)):
        mean, var = moments.total(X)
        given = fit.model.likelihood, X, mean + np.asarray(fit.model.mean_function(X)), var, Y
        result = expectations(*given, ())
        weight.append(result.precision)
        shift.append(result.slope + result.precision * mean)
        if fit.num_predictors > 1:
            curvatures.append(mean_curvature(*given))
    whole = np.concatenate(curvatures) if curvatures else None
    sites = Sites(np.concatenate(weight), np.concatenate(shift), whole)
    sizes = [len(root) for root in moments.roots]
    enters = np.repeat(entering, sizes, axis=0)
    return RowPosterior(features, moments.mean, moments.covariance, enters), sites


def _laplace(fit: FittedGAM) -> Cavity:
    """Leave-one-out cavities of Laplace's posterior, by the likelihood's curvature at its mean."""
    if fit.num_predictors > 1:
        raise ValueError(
            f"loo: engine='iterncgp' leaves out rows of one predictor only; family "
            f"{fit.spec.family.name!r} has {fit.num_predictors}. Fit with engine='variational'."
        )
    likelihood, X = fit.model.likelihood, tf.constant(fit.X)
    known = np.asarray(fit.model.mean_function(fit.X))
    F, var = fit.predict_link(fit.X)
    Y = checked_observations(tf.constant(fit.Y), likelihood)
    at = curvature(likelihood, X, tf.constant(F), Y)
    # this engine's likelihoods are log-concave: what is negative is rounding
    weight, mean = np.maximum(at.precision.blocks()[:, 0].numpy(), 0.0), F - known
    prior = np.asarray(fit.model.kernel(X, full_cov=False))[:, None]
    shift = at.gradient.numpy().T + weight * mean
    return marginal_cavities(mean, var, Sites(weight, shift), prior)
