"""Leave-one-out predictive densities of fits; fits beside each other, and averages of them."""

from __future__ import annotations

import dataclasses
import hashlib
import html
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood
from scipy.optimize import minimize
from scipy.stats import norm
from tabulate import tabulate

from ..errors import (
    LeaveOneOutWarning,
    NotPositiveDefinite,
    check_choice,
    check_count,
    check_level,
    warn_caller,
)
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
from ..posteriors.base import SparseAdditivePosterior
from ..posteriors.inducing import Projection
from ..threads import one_blas_thread
from .effects.effect import NUMBERS, beside, equal_tailed
from .fits import FittedGAM
from .fits.data import CodedData
from .fits.fitted import fit_of
from .fits.prediction import PredictionType, framed
from .fits.reading import in_memory
from .summaries.checks import total_dof
from .summaries.summary import (
    as_html,
    as_html_columns,
    as_text,
    features,
    free_moments,
    joint_test,
)
from .terms.base import Column, as_column

__all__ = ["Comparison", "LeaveOneOut", "Stack", "anova_test", "compare", "leave_one_out", "stack"]


def folds_of(fit: FittedGAM, groups: Any) -> Neighbourhoods:
    """Neighbourhoods of a fit's rows."""
    column = as_column(groups)
    if column is not None:
        return Neighbourhoods.of_labels(_labels(fit, column))
    number = fit.number
    if fit.dropped and hasattr(groups, "__len__") and len(groups) == number + fit.dropped:
        raise ValueError(
            f"groups must have one entry for each of the {number} rows that were fitted; got "
            f"{len(groups)}, with the {fit.dropped} that were left out for missing values. Leave "
            "them out here too."
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


class ShapedCavities:
    """The predictor of rows without sites, under inequalities: of the Gaussian projected anew."""

    def __init__(
        self, posterior: RowPosterior, sites: Sites, inequalities: Sequence[AnyNDArray]
    ) -> None:
        self._posterior, self._sites, self._inequalities = posterior, sites, inequalities

    def _projection(self, output: int, mean: AnyNDArray, covariance: AnyNDArray) -> Projection:
        return Projection(mean, covariance, self._inequalities[output])

    def one_by_one(self) -> Iterator[tuple[AnyNDArray, Cavity]]:
        r"""
        Every row without its own site.

        A draw u of the Gaussian is the optimum of data with noise added, and so is its projection,
        which is linear in them as long as the inequalities that hold it stay the same ones. With
        :math:`h, h_A` the variance at the row without and with those held to equality, w and s
        the site's precision and shift, and :math:`a_A` the projected draw there, it is

        .. math:: (a_A - h_A b) / (1 - w h_A), \quad b = s + w (a - \mu) / (1 + \sqrt{1 - w h})

        without the row: by Sherman & Morrison (1950), a - mu being the draw's deviation from the
        mean. A row that says much of its predictor may decide which inequalities hold it: these few
        are projected anew.
        """
        given, number = self._posterior, len(self._sites.weight)
        outputs = range(self._sites.weight.shape[1])
        result = [self._projection(i, *given.moments(i)).draws(_DRAWS) for i in outputs]
        for start in range(0, number, _TOGETHER):
            which = np.arange(start, min(start + _TOGETHER, number))
            phi, left = given.features(which)
            mean, var, posterior = (np.zeros((len(which), len(outputs))) for _ in range(3))
            heavy = np.zeros(len(which), bool)
            for i, draws in enumerate(result):
                w, s = self._sites.weight[which, i], self._sites.shift[which, i]
                of_mean, spread = np.zeros(len(which)), np.zeros(len(which))
                z = draws.root @ given.of(i, phi)  # [P, n]
                centre = given.moments(i)[0] @ given.of(i, phi)
                h = np.sum(np.square(z), axis=0)
                with np.errstate(divide="ignore", invalid="ignore"):
                    turned = w / (1.0 + np.sqrt(1.0 - w * h))
                    for some, held in draws.touching:  # the mean's first
                        h_A = np.maximum(h - np.sum(np.square(held.T @ z), axis=0), 0.0)
                        b = s + turned * (draws.free[some] @ z)
                        f = (centre + draws.projected[some] @ z - h_A * b) / (1.0 - w * h_A)
                        if some[0] == 0:
                            of_mean, f = f[0], f[1:]
                        spread += np.sum(np.square(f - of_mean), axis=0)
                mean[:, i], var[:, i] = of_mean, spread / (len(draws.free) - 1)
                posterior[:, i] = centre + draws.projected[0] @ z
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
    it is very nearly that where no row decides much by itself. A row is left out with all its
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
        2024): a column that the model reads, labels of all rows [N], or an array of the indices of
        each row's neighbours.
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
    elif folds is None:
        yield from posterior.one_by_one(sites)
    else:
        yield from posterior.by_neighbourhood(sites, folds)


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


# --- several fits ---------------------------------------------------------------------------------


_LONG = 32  # characters of a label
_NOTE = (
    "elpd: log predictive density of {left_out}, and its difference from the\n"
    "best one's with the difference's standard error over rows. Fits whose difference is within\n"
    "two of these, or smaller than 4, predict equally well. edf: effective degrees of freedom.\n"
    "aic: -2 log p(y | mean) + 2 (edf + parameters). untrusted: rows whose density is uncertain."
)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """
    Fits beside each other, the best first.

    :param table: a row a fit: ``elpd``, ``se``, ``difference`` to the best elpd (never positive),
        ``difference_se``, ``edf``, ``aic``, ``untrusted`` rows.
    :param left_out: what was left out at a time, in words.
    """

    table: pd.DataFrame
    left_out: str

    def to_frame(self) -> pd.DataFrame:
        """The table."""
        return self.table.copy()

    def _labels(self) -> tuple[list[str], list[str]]:
        """Labels of rows, and what they stand for where names are long."""
        names = [str(name) for name in self.table.index]
        if max(map(len, names)) <= _LONG:
            return names, []
        labels = [f"fit {i}" for i in range(1, len(names) + 1)]
        return labels, [f"{label}: {name}" for label, name in zip(labels, names)]

    def _rows(self) -> list[list[str]]:
        formats: dict[Any, str] = {"edf": ".1f", "untrusted": ",.0f"}
        return [
            [label, *(format(value, formats.get(name, ".2f")) for name, value in row.items())]
            for label, (_, row) in zip(self._labels()[0], self.table.iterrows())
        ]

    def _note(self) -> str:
        return _NOTE.format(left_out=self.left_out)

    def __str__(self) -> str:
        text: str = tabulate(self._rows(), ["", *self.table], disable_numparse=True)
        return "\n".join([text, "", *self._labels()[1], self._note()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        said = "".join(f"{html.escape(line)}<br>" for line in self._labels()[1])
        return f"{as_html_columns(self._rows(), ['', *self.table])}<p>{said}{self._note()}</p>"


def compare(*fits: Any, groups: Any = None) -> Comparison:
    """
    Compare fits to the same rows by how well they predict rows that are left out.

    Differences are taken row by row, so that what is hard for both does not count (Vehtari, Gelman
    & Gabry 2017). AIC, of the form that R's mgcv has, is for orientation.

    :param fits: fitted GAMs, what their ``loo`` gave, or one mapping of names to these; without
        names they are named by their terms. Long names stand below the printed table.
    :param groups: rows that are left out together, as :meth:`gpflow_gam.GAM.loo` takes them, for
        those that are fits.
    :return: a table, the best first; prints as text, and as HTML in notebooks.
    :raises ValueError: fewer than two; or responses, rows, weights or what is left out differ; or
        one has densities and the other probabilities.
    :raises TypeError: what is no fit.
    """
    names, models = _named("compare", fits)
    for model in models:
        if not isinstance(model, LeaveOneOut) and not callable(getattr(model, "loo", None)):
            raise TypeError(
                "compare takes fitted GAMs or what their loo() gave, or a mapping of names to "
                f"these; got {type(model).__name__}."
            )
    result = [m if isinstance(m, LeaveOneOut) else m.loo(groups) for m in models]
    names = names or _by_terms([(one.terms, one.family) for one in result])
    check_same(names, [fit.observed for fit in result])
    best, rows = max(result, key=lambda fit: fit.elpd), []
    for fit in result:
        difference, se = (0.0, 0.0)
        if fit is not best:
            difference, se = total(fit.pointwise - best.pointwise, fit.weights)
        rows.append([fit.elpd, fit.se, difference, se, fit.edf, fit.aic, fit.untrusted])
    columns = ["elpd", "se", "difference", "difference_se", "edf", "aic", "untrusted"]
    table = pd.DataFrame(rows, index=pd.Index(names, name="fit"), columns=columns)
    return Comparison(table.sort_values("elpd", ascending=False), best.left_out)


def _named(call: str, fits: tuple[Any, ...]) -> tuple[list[str], list[Any]]:
    """The names, if they have any, and the fits of a call."""
    if len(fits) == 1 and isinstance(fits[0], Mapping):
        names, models = [str(name) for name in fits[0]], list(fits[0].values())
    else:
        names, models = [], list(fits)
    if len(models) < 2:
        raise ValueError(f"{call} needs at least two fits; got {len(models)}.")
    return names, models


def _by_terms(fits: list[tuple[str, str]]) -> list[str]:
    """Names by terms, with families where these differ, and counted where that is not enough."""
    families = len({family for _, family in fits}) > 1
    names = [f"{terms}, {family}" if families else terms for terms, family in fits]
    if len(set(names)) == len(names):
        return names
    return [f"{i}: {name}" for i, name in enumerate(names, 1)]


# --- nested fits ----------------------------------------------------------------------------------


_NESTED = 0.95
"""Share of a term's prior variance that terms with all of its functions explain, at least."""
_TEST_ROWS, _RCOND = 2000, 1e-5  # rows where functions are compared, and how exactly


def anova_test(a: Any, b: Any) -> pd.DataFrame:
    """
    Test of nested GAMs: the hypothesis that ``b`` needs no more than the terms of ``a``.

    As ``anova(a, b)`` of R's mgcv, for which deviances are compared; here it is the test of
    :meth:`gpflow_gam.GAM.anova`, of all that ``b`` has beyond ``a`` together. A term of ``a`` may
    stand in ``b`` as another one with more functions: a line as a smooth (is it straight?), a curve
    as a surface, one curve as one for each level.

    :param a: a fitted GAM, the smaller one.
    :param b: a fitted GAM of the same rows and family, with all functions that ``a`` has.
    :return: one row, the terms that ``b`` alone has: ``ref_df``, the statistic's expectation where
        ``a`` is true; ``statistic``; ``p``.
    :raises ValueError: ``a`` is not nested in ``b``; families, rows, responses or weights differ.
    :raises TypeError: what is no fitted GAM.
    """
    for which, gam in (("a", a), ("b", b)):
        if not isinstance(getattr(gam, "fitted", None), FittedGAM):
            raise TypeError(f"anova_test: {which} must be a fitted GAM; got {type(gam).__name__}.")
    small, large = a.fitted, b.fitted
    families = [repr(fit.spec.family) for fit in (small, large)]
    if families[0] != families[1]:
        raise ValueError(f"anova_test: a has family {families[0]}, and b has {families[1]}.")
    names = [repr(fit.spec.terms) for fit in (small, large)]
    check_same(names, [observed_of(small), observed_of(large)], "anova_test")
    known = set(small.spec.effect_names)
    tested = [c for c in large.spec.effects if c.name not in known]
    gone = [c.name for c in small.spec.effects if c.name not in large.spec.effect_names]
    beyond, basis = ", ".join(c.name for c in tested), None
    if gone and tested:
        rows = large.even_rows(_TEST_ROWS)
        null = features(free_moments(small), gone, small.X[rows]).T
        spanned = features(free_moments(large), [c.name for c in tested], large.X[rows]).T
        values = np.linalg.lstsq(spanned, null, rcond=_RCOND)[0]
        left = null - spanned @ values
        if np.sum(np.square(left)) > (1.0 - _NESTED) * np.sum(np.square(null)):
            raise ValueError(
                f"anova_test: a is not nested in b: {', '.join(gone)} is no part of {beyond}."
            )
        U, sizes, _ = np.linalg.svd(values, full_matrices=False)
        basis = U[:, sizes > _RCOND * sizes[0]]
    if not tested or (basis is not None and basis.shape[1] == len(basis)):
        raise ValueError(
            f"anova_test: b has no function that a lacks; a is {names[0]}, b {names[1]}."
        )
    test = joint_test(large, tested, basis)
    return pd.DataFrame([test], index=pd.Index([beyond], name="effects"))


# --- mixtures of fits -----------------------------------------------------------------------------

_Z = np.linspace(-5.0, 5.0, 401)[:, None]  # values that stand for a normal prediction
_DRAWN, _JOINTLY = 2000, 200  # draws of others, and rows that are drawn together
_SORTED = 10**7  # values that are sorted in one go


def stack(
    *gams: Any, scores: Mapping[str, Sequence[float]] | Sequence[Sequence[float]] | None = None
) -> Stack:
    """
    Average fits of the same rows: a mixture of their predictions.

    Its weights are those with which rows that are left out would have been predicted best (Yao,
    Vehtari, Simpson & Gelman 2018). Terms, kernels, priors and families may differ. Fits that
    predict alike share a weight, so that one is no probability of a model.

    :param gams: fitted GAMs, or one mapping of names to these; without names they are named by
        their terms.
    :param scores: for predictions beyond the data, of which rows among others tell nothing: log
        densities [M] of the same rows by fits without them, by name or in the order of the fits,
        as ``log_density`` of :func:`backtest`.
    :raises ValueError: as :func:`compare`; scores that are not finite, or not those of each fit.
    :raises TypeError: what is no GAM.
    """
    names, models = _named("stack", gams)
    fits = [fit_of(model, "stack") for model in models]
    names = names or _by_terms([(repr(fit.spec.terms), fit.spec.family.name) for fit in fits])
    check_same(names, [observed_of(fit) for fit in fits], "stack")
    if scores is None:
        left_out = [model.loo() for model in models]
        counts = left_out[0].weights > 0.0
        share = left_out[0].weights[counts] / left_out[0].weights.sum()
        logs = np.stack([one.pointwise[counts] for one in left_out], axis=1)
    else:
        logs = _scores(names, scores)
        share = np.full(len(logs), 1.0 / len(logs))
    densities = np.exp(logs - logs.max(axis=1, keepdims=True))

    def loss(w: AnyNDArray) -> tuple[float, AnyNDArray]:
        mixed = densities @ w
        return -float(share @ np.log(mixed)), -(share / mixed) @ densities

    start = np.full(len(models), 1.0 / len(models))
    whole = {"type": "eq", "fun": lambda w: w.sum() - 1.0, "jac": np.ones_like}
    bounds, precise = [(1e-12, 1.0)] * len(start), {"ftol": 1e-12, "maxiter": 500}
    found = minimize(
        loss, start, jac=True, method="SLSQP", bounds=bounds, constraints=whole, options=precise
    )
    weights = np.where(found.x > 1e-6, found.x, 0.0)
    return Stack(dict(zip(names, models)), weights / weights.sum())


def _scores(names: list[str], scores: Any) -> AnyNDArray:
    """Log densities [M, K] of the same rows by each fit."""
    each = [scores.get(name) for name in names] if isinstance(scores, Mapping) else list(scores)
    logs = [np.asarray(one, dtype=float) for one in each]
    shapes = [one.shape for one in logs]
    if len(logs) != len(names) or len(set(shapes)) > 1 or logs[0].ndim != 1 or not logs[0].size:
        raise ValueError(
            f"scores: of each of the fits {names}, log densities [M] of the same rows; got shapes "
            f"{shapes}."
        )
    if not all(np.all(np.isfinite(one)) for one in logs):
        raise ValueError("scores: they must be finite; leave out rows that a fit cannot score.")
    return np.stack(logs, axis=1)


@dataclasses.dataclass(frozen=True, eq=False)
class Stack:
    """
    A mixture of fitted GAMs, as :func:`stack` makes it.

    :param gams: the fits, by name.
    :param weights: of each, [K]; they sum to one.
    """

    gams: Mapping[str, Any]
    weights: AnyNDArray

    def __repr__(self) -> str:
        shares = ", ".join(f"{n!r}: {w:.3f}" for n, w in zip(self.gams, self.weights))
        return f"Stack({{{shares}}})"

    @property
    def _used(self) -> list[tuple[float, Any]]:
        return [(w, gam) for w, gam in zip(self.weights, self.gams.values()) if w > 0.0]

    def _check_link(self, asked: str) -> None:
        """Raises ValueError, naming two fits, unless predictors of all are of one kind."""
        names = [name for name, w in zip(self.gams, self.weights) if w > 0.0]
        specs = [gam.fitted.spec for _, gam in self._used]
        kinds = [(spec.predictor_names, spec.family.link_name) for spec in specs]
        for name, spec, kind in zip(names, specs, kinds):
            if kind != kinds[0]:
                raise ValueError(
                    f"{asked}: the predictors of {names[0]!r} (family {specs[0].family.name!r}, "
                    f"link {kinds[0][1]!r}) and {name!r} ({spec.family.name!r}, {kind[1]!r}) are "
                    "not of one kind and have no average; take type='response', or a fit by itself."
                )

    def predict(
        self,
        data: Any,
        type: PredictionType = "response",
        *,
        interval: float | None = None,
        seed: int = 0,
    ) -> Any:
        """
        Predict at new rows: the mean of the mixture.

        :param data: N rows, with the columns of all fits.
        :param type: ``"response"``, ``"link"`` or ``"observation"``, as of
            :meth:`gpflow_gam.GAM.predict`.
        :param interval: a probability; adds an equal-tailed interval of the mixture, which allows
            for uncertain hyperparameters of each fit; of observations, of classes and where a fit
            has several predictors by draws.
        :param seed: of those draws.
        :return: [N], or [N, K] of classes; with ``interval`` a DataFrame with columns
            ``estimate``, ``lower`` and ``upper``, under each class.
        :raises ValueError: naming the argument or column; also ``"link"`` of fits whose links
            differ.
        """
        kinds = ("response", "link", "observation")
        check_choice("type", type, kinds)
        if type == "link":
            self._check_link("type='link'")
        means = [w * np.asarray(gam.predict(data, type)) for w, gam in self._used]
        mean = np.sum(means, axis=0)
        if interval is None:
            return mean
        check_level(interval, "interval")
        table = in_memory(data)
        several = any(gam.fitted.num_predictors > 1 for _, gam in self._used)
        if type == "observation" or several or mean.ndim == 2:
            rows = (table.part(i, i + _JOINTLY) for i in range(0, len(mean), _JOINTLY))
            draws = (self.sample(part, _DRAWN, type, seed=seed) for part in rows)
            ends = [equal_tailed(drawn, interval) for drawn in draws]
        else:
            used = [gam.fitted for _, gam in self._used]
            links = np.array([gam.predict(table, "link", se=True) for _, gam in self._used])
            step = max(1, _SORTED // (len(used) * len(_Z)))
            ends = []
            for i in range(0, len(mean), step):
                f = links[:, :1, i : i + step] + links[:, 1:, i : i + step] * _Z
                if type == "response":
                    each = zip(used, f[..., None])
                    f = np.array([fit.spec.family.mean(fit.likelihood, v) for fit, v in each])
                ends.append(self._ends(f, interval))
        low, high = np.concatenate(ends, axis=1)
        parts = {"estimate": mean, "lower": low, "upper": high}
        index = data.index if isinstance(data, pd.DataFrame) else None
        spec = self._used[0][1].fitted.spec
        return framed(parts, spec.predictor_names if type == "link" else spec.levels, index)

    def sample(
        self,
        data: Any,
        num_samples: int = 100,
        type: PredictionType = "response",
        *,
        seed: int = 0,
    ) -> AnyNDArray:
        """
        Joint draws of the mixture at N rows, in random order.

        :param data: N rows.
        :param num_samples: S; of each fit as many as its weight says, rounded.
        :param type: as of :meth:`gpflow_gam.GAM.sample`.
        :param seed: makes draws reproducible.
        :return: [S, N], or [S, N, K].
        :raises ValueError: as :meth:`gpflow_gam.GAM.sample`.
        """
        check_count("num_samples", num_samples)
        if type == "link":
            self._check_link("type='link'")
        used = self._used
        ends = np.round(np.cumsum([w for w, _ in used]) * num_samples).astype(int)
        numbers = np.diff(ends, prepend=0)
        drawn = [
            gam.sample(data, int(n), type, seed=seed + k)
            for k, ((_, gam), n) in enumerate(zip(used, numbers))
            if n
        ]
        return np.random.default_rng(seed).permutation(np.concatenate(drawn), axis=0)

    def log_density(self, data: Any) -> AnyNDArray:
        """
        Log predictive density of each row's response under the mixture, [N].

        :param data: N rows with the response.
        :raises ValueError: as :meth:`gpflow_gam.GAM.log_density`.
        """
        logs = [np.log(w) + gam.log_density(data) for w, gam in self._used]
        return np.asarray(np.logaddexp.reduce(logs, axis=0))

    def effects(self, term: str, grid: Any = None, *, level: float = 0.95) -> pd.DataFrame:
        """
        An effect of the mixture; it is zero in fits that do not have it.

        :param term: the effect's name.
        :param grid: as of :meth:`gpflow_gam.GAM.effects`, by default that of the first fit that has
            the effect.
        :param level: probability of the credible interval at each point.
        :return: the grid's columns, ``estimate``, ``se``, ``lower`` and ``upper``, on the scale of
            the predictor.
        :raises ValueError: an effect that no fit has; or fits of several predictors, or of several
            links.
        """
        check_level(level)
        having = [g for _, g in self._used if term in g.fitted.spec.effect_names]
        if not having:
            known = dict.fromkeys(n for _, g in self._used for n in g.fitted.spec.effect_names)
            raise ValueError(f"term: no fit has {term!r}; they have {', '.join(known)}.")
        if any(g.fitted.num_predictors > 1 for g in self.gams.values()):
            raise ValueError("effects of a stack are of one predictor; ask the fits by themselves.")
        self._check_link("effects")
        frame, numbers = having[0].effects(term, grid, level=level), ["estimate", "se"]
        places = frame.loc[:, :"estimate"].drop(columns="estimate")
        # columns as the data call them
        names = dict(zip(beside(dict.fromkeys(NUMBERS), NUMBERS), NUMBERS))
        given = places.rename(columns=names)
        absent = np.zeros((len(frame), 2))
        parts = np.stack(
            [
                gam.effects(term, given)[numbers].to_numpy() if gam in having else absent
                for _, gam in self._used
            ]
        )
        w, mean, sd = np.array([w for w, _ in self._used]), parts[..., 0], parts[..., 1]
        estimate = w @ mean
        se = np.sqrt(w @ (np.square(sd) + np.square(mean - estimate)))
        lower, upper = self._ends(mean[:, None] + sd[:, None] * _Z, level)
        return places.assign(estimate=estimate, se=se, lower=lower, upper=upper)

    def _ends(self, values: AnyNDArray, level: float) -> AnyNDArray:
        """Equal-tailed intervals [2, n] of mixtures, of values [K, J, n] at ``_Z`` of each fit."""
        tails, density = (0.5 - 0.5 * level, 0.5 + 0.5 * level), norm.pdf(_Z[:, 0])
        share = np.outer([w for w, _ in self._used], density / density.sum()).ravel()
        whole = values.reshape(-1, values.shape[-1])
        order = np.argsort(whole, axis=0)
        whole, share = np.take_along_axis(whole, order, axis=0), share[order]
        below = np.cumsum(share, axis=0) - 0.5 * share
        return np.array([[np.interp(p, b, v) for b, v in zip(below.T, whole.T)] for p in tails])
