"""Predictions with their uncertainty, on the scales that users ask for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol, get_args

import numpy as np
import pandas as pd
import tensorflow as tf
from gpflow.base import AnyNDArray
from scipy.stats import norm

from ...likelihoods import checked_observations, expected_response, summarised_response
from ...likelihoods.predictive import predictive_log_density, roots
from ..frames import NumericColumn, Table
from .fitted import FittedGAM
from .fitting import checked_response
from .part import Part, known_part
from .ranges import encoded
from .tails import response_errors, warn_of_tails

PredictionType = Literal["response", "link", "terms", "observation", "class"]

OFFSET = "offset"
"""What the offsets' part of the predictor is called."""
_DRAWS = 1000
_TOGETHER = 2**20
"""Responses that are drawn in one call."""


class Uncertain(Protocol):
    """A posterior that allows for uncertain hyperparameters; m(x) is left out."""

    def link(
        self, X: AnyNDArray, names: Sequence[str] | None = None, between: bool = False
    ) -> tuple[AnyNDArray, AnyNDArray, AnyNDArray]:
        """
        Mean of the sum of components, variance at the fitted hyperparameters and in all, [N, L].

        :param between: whether the second variance allows for the other predictors, too.
        """

    def components(self, X: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
        """Mean and variance of every component, [N, C, L] each."""


class Summaries:
    """
    Mean, standard deviation and limits of some quantity at N points.

    :param estimate: [N] or [N, K].
    :param se: the same.
    :param lower: lower limits; None where no interval was asked.
    :param upper: upper limits.
    :param names: of the K quantities.
    """

    def __init__(
        self,
        estimate: AnyNDArray,
        se: AnyNDArray,
        lower: AnyNDArray | None = None,
        upper: AnyNDArray | None = None,
        names: tuple[Any, ...] = (),
    ) -> None:
        self.estimate, self.se, self.lower, self.upper = estimate, se, lower, upper
        self.names = names

    def frame(self) -> pd.DataFrame:
        """Columns ``estimate``, ``se``, ``lower``, ``upper``; under each name where K > 1."""
        parts = {"estimate": self.estimate, "se": self.se}
        if self.lower is not None and self.upper is not None:
            parts |= {"lower": self.lower, "upper": self.upper}
        if self.estimate.ndim == 1:
            return pd.DataFrame(parts)
        frames = {
            name: pd.DataFrame({what: values[:, k] for what, values in parts.items()})
            for k, name in enumerate(self.names)
        }
        whole: pd.DataFrame = pd.concat(frames, axis=1)
        return whole


def predict(
    fit: FittedGAM,
    table: Table,
    type: PredictionType,
    *,
    interval: float | None = None,
    se: bool = False,
    seed: int = 0,
    uncertain: Uncertain | None = None,
    part: Part | None = None,
) -> Any:
    """
    What :meth:`gpflow_gam.GAM.predict` returns.

    :param part: of the predictor; None for all of it.
    :param uncertain: where standard errors and limits come from; None takes hyperparameters as
        known.
    :raises ValueError: an unknown type, a bad interval, columns that are not there.
    """
    if interval is not None and not 0.0 < interval < 1.0:
        raise ValueError(f"interval must be a probability between 0 and 1; got {interval}.")
    if type not in get_args(PredictionType):
        raise ValueError(
            f"type must be one of {', '.join(get_args(PredictionType))}; got {type!r}."
        )
    X = encoded(fit, table, None if part is None else part.components(fit.spec))
    if type == "terms":
        if interval is None and not se:
            return term_estimates(fit, X, part)
        both = terms(fit, X, uncertain, part)
        return both if interval is None else _limited(*both, interval)
    if type == "class":
        return _classes(fit, response(fit, X, None, seed, part=part).estimate)
    if type == "link" and interval is None and not se and fit.own_moments is not None:
        return link_estimate(fit, X, part)
    errors = se or interval is not None
    if type == "link":
        out = link(fit, X, interval, uncertain, part)
    elif type == "response":
        out = response(fit, X, interval, seed, uncertain, part, errors)
    else:
        trials = _trials(fit, table)
        rng = np.random.default_rng(seed)
        out = observation(fit, X, trials, interval or 0.95, rng, uncertain, part, errors)
    if interval is not None:
        return out.frame()
    return (out.estimate, out.se) if se else out.estimate


def sample(
    fit: FittedGAM,
    table: Table,
    num_samples: int,
    type: PredictionType,
    seed: int,
    part: Part | None = None,
) -> AnyNDArray:
    """
    What :meth:`gpflow_gam.GAM.sample` returns.

    :param part: of the predictor; None for all of it.
    :raises ValueError: an unknown type.
    """
    family = fit.spec.family
    F: AnyNDArray
    if part is None:
        F = fit.posterior.sample_f(encoded(fit, table), num_samples, seed=seed).numpy()
    else:
        names = part.components(fit.spec)
        X = encoded(fit, table, names)
        every = fit.posterior.sample_components(X, num_samples, seed=seed).numpy()
        every = every.reshape(*every.shape[:3], -1)  # [S, N, C, L]
        chosen = [i for i, name in enumerate(fit.spec.names) if name in names]
        F = known_part(fit, X, part) + every[:, :, chosen].sum(axis=2)
    if type == "link":
        factor, shift = fit.units
        F = shift + factor * F
        return F[..., 0] if fit.num_predictors == 1 else F
    if type == "response":
        return np.asarray(family.mean(fit.likelihood, F))
    if type == "observation":
        rng, trials = np.random.default_rng(seed), _trials(fit, table)
        parts = [F[at] for at in _draws_at_a_time(*F.shape[:2])]
        drawn = [family.sample(fit.likelihood, f, rng, trials=trials) for f in parts]
        return np.concatenate(drawn)
    raise ValueError(f"type must be 'response', 'link' or 'observation'; got {type!r}.")


def _trials(fit: FittedGAM, table: Table) -> AnyNDArray | None:
    trials = fit.spec.trials
    return None if trials is None else NumericColumn(trials, "trials").encode(table)


def _classes(fit: FittedGAM, probabilities: AnyNDArray) -> AnyNDArray:
    levels = fit.spec.levels
    if levels is None:
        raise ValueError(f"type='class': family {fit.spec.family.name!r} has no classes.")
    if probabilities.ndim == 1:
        return np.asarray(levels)[(probabilities > 0.5).astype(int)]
    return np.asarray(levels)[probabilities.argmax(axis=1)]


def moments(
    fit: FittedGAM,
    X: AnyNDArray,
    uncertain: Uncertain | None,
    part: Part | None,
    between: bool = False,
) -> tuple[AnyNDArray, AnyNDArray, AnyNDArray]:
    """
    Of the predictor, the mean, the variance that estimates take, and that of errors, [N, L];
    covariances [N, L, L] where predictors are correlated a posteriori.

    :param between: whether that of errors allows for the other predictors.
    """
    names = None if part is None else part.components(fit.spec)
    if uncertain is None or names == []:
        if names is None:
            mean, var = fit.predict_joint(X)
        else:
            mean, var = fit.predict_sum(X, names)
            mean = mean + known_part(fit, X, part)
        return mean, var, var
    mean, known, var = uncertain.link(X, names, between)
    mean = mean + known_part(fit, X, part)
    return mean, np.maximum(known, 0.0), np.maximum(var, 0.0)


def _variances(var: AnyNDArray) -> AnyNDArray:
    """Of variances or covariances, [N, L]."""
    if var.ndim == 2:
        return var
    return np.maximum(np.diagonal(var, axis1=1, axis2=2), 0.0)


def link(
    fit: FittedGAM,
    X: AnyNDArray,
    level: float | None,
    uncertain: Uncertain | None = None,
    part: Part | None = None,
) -> Summaries:
    """The predictor rho(x), or a part of it: normal a posteriori."""
    mean, _, var = moments(fit, X, uncertain, part, between=True)
    factor, shift = fit.units
    mean, var = shift + factor * mean, factor**2 * _variances(var)
    names = fit.spec.predictor_names
    if fit.num_predictors == 1:
        mean, var = mean[:, 0], var[:, 0]
    se = np.sqrt(var)
    if level is None:
        return Summaries(mean, se, names=names)
    z = norm.ppf(0.5 + 0.5 * level)
    return Summaries(mean, se, mean - z * se, mean + z * se, names)


def link_estimate(fit: FittedGAM, X: AnyNDArray, part: Part | None = None) -> AnyNDArray:
    """The estimate of :func:`link`, for far less than with its standard error."""
    names = list(fit.spec.names) if part is None else part.components(fit.spec)
    factor, shift = fit.units
    mean = shift + factor * (fit.sum_means(X, names) + known_part(fit, X, part))
    return mean[:, 0] if fit.num_predictors == 1 else mean


def response(
    fit: FittedGAM,
    X: AnyNDArray,
    level: float | None,
    seed: int,
    uncertain: Uncertain | None = None,
    part: Part | None = None,
    errors: bool = False,
) -> Summaries:
    """
    The expected response mu(rho(x)): its posterior mean, deviation and equal-tailed limits.

    The mean is at the fitted hyperparameters, whatever is known of them, and that of the model's
    ``predict_y``. See :func:`gpflow_gam.likelihoods.summarised_response`.

    :param errors: whether standard errors are asked for, which not every prediction has.
    """
    mean, known, var = moments(fit, X, uncertain, part)
    summary = summarised_response(fit.likelihood, X, mean, var, level, seed=seed)
    estimate, se = np.asarray(summary.mean), np.asarray(summary.sd)
    share = fit.predictive_share
    if uncertain is not None or share != 1.0:
        estimate = np.asarray(expected_response(fit.likelihood, X, mean, share * known, seed=seed))
    warn_of_tails(fit, mean, _variances(known), estimate)
    if errors:
        se = response_errors(fit, X, mean, var, se, seed)
    lower, upper = (None if end is None else np.asarray(end) for end in summary[2:])
    names: tuple[Any, ...] = ()
    if estimate.ndim == 2:  # probabilities of classes, which a likelihood of the user's only counts
        names = fit.spec.levels or tuple(range(estimate.shape[1]))
    return Summaries(estimate, se, lower, upper, names)


def observation(
    fit: FittedGAM,
    X: AnyNDArray,
    trials: AnyNDArray | None,
    level: float,
    rng: np.random.Generator,
    uncertain: Uncertain | None = None,
    part: Part | None = None,
    errors: bool = False,
) -> Summaries:
    """
    A new response at x: mean, deviation and limits of draws from the predictive distribution.

    :param rng: of the draws, independent between points given their predictors.
    :param errors: as of :func:`response`.
    """
    mean, _, var = moments(fit, X, uncertain, part)
    var = fit.predictive_share * var
    family, likelihood = fit.spec.family, fit.likelihood
    joint = None if var.ndim == 2 else np.asarray(roots(tf.constant(var)))
    parts = []
    for at in _draws_at_a_time(_DRAWS, len(mean)):
        normals = rng.standard_normal((at.stop - at.start, *mean.shape))
        away = np.sqrt(var) * normals if joint is None else (joint @ normals[..., None])[..., 0]
        F = mean + away
        parts.append(np.asarray(family.sample(likelihood, F, rng, trials=trials)))
    draws = np.concatenate(parts)
    tail = 0.5 * (1.0 - level)
    lower, upper = np.quantile(draws, [tail, 1.0 - tail], axis=0)
    se = draws.std(axis=0)
    if errors and family.heavy_tailed:  # of the expected response, whose tail is theirs
        expected = np.asarray(summarised_response(likelihood, X, mean, var).sd)
        se = np.where(np.isnan(response_errors(fit, X, mean, var, expected, 0)), np.nan, se)
    return Summaries(draws.mean(axis=0), se, lower, upper)


def _draws_at_a_time(number: int, rows: int) -> list[slice]:
    """So many of the draws that what is made on the way to them is small beside them."""
    step = max(1, _TOGETHER // max(rows, 1))
    return [slice(start, min(start + step, number)) for start in range(0, number, step)]


def terms(
    fit: FittedGAM, X: AnyNDArray, uncertain: Uncertain | None = None, part: Part | None = None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """
    What components and offsets add to the predictor and its standard errors, a column each.

    The columns' sum is the predictor: its constant is in the intercept's, or in that of the levels
    whose means stand in its place.
    """
    if uncertain is None:
        mean, var = fit.predict_components(X)
    else:
        mean, var = uncertain.components(X)
    names = _counted(fit, part)
    chosen = [fit.spec.names.index(name) for name in names]
    factor, _ = fit.units
    errors = _by_column(fit, np.sqrt(factor**2 * var[:, chosen]), names)
    return _contributions(fit, X, mean[:, chosen], names), _offset(fit, errors, 0.0)


def term_estimates(fit: FittedGAM, X: AnyNDArray, part: Part | None = None) -> pd.DataFrame:
    """The first of :func:`terms`."""
    names = _counted(fit, part)
    return _contributions(fit, X, fit.component_means(X, names), names)


def _counted(fit: FittedGAM, part: Part | None) -> list[str]:
    return list(fit.spec.names) if part is None else part.components(fit.spec)


def _contributions(
    fit: FittedGAM, X: AnyNDArray, mean: AnyNDArray, names: Sequence[str]
) -> pd.DataFrame:
    """Of components to the predictor, from their means [N, C, L], and of offsets."""
    factor, _ = fit.units
    constants = [fit.constant_of(fit.spec.component(name)) for name in names]
    whole = factor * mean + np.reshape(constants, (1, len(names), fit.num_predictors))
    offset = X[:, [fit.spec.place(c) for c in fit.spec.offset]].sum(axis=1)
    return _offset(fit, _by_column(fit, whole, names), factor[0] * offset)


def _offset(fit: FittedGAM, frame: pd.DataFrame, values: AnyNDArray | float) -> pd.DataFrame:
    """A column more where there are offsets, which the first predictor has."""
    if fit.spec.offset:
        first = fit.spec.predictor_names[0]
        frame[(OFFSET, first) if fit.num_predictors > 1 else OFFSET] = values
    return frame


def _by_column(fit: FittedGAM, values: AnyNDArray, names: Sequence[str]) -> pd.DataFrame:
    """Of components, [N, C, L]: a column each, or each predictor that they enter."""
    if fit.num_predictors == 1:
        return pd.DataFrame(values[..., 0], columns=list(names))
    predictors = fit.spec.predictor_names
    entered = [fit.spec.component(name).predictors_of(len(predictors)) for name in names]
    at = [(c, i) for c, places in enumerate(entered) for i in places]
    pairs = [(names[c], predictors[i]) for c, i in at]
    columns = pd.MultiIndex.from_arrays(list(zip(*pairs)) or [[], []])
    return pd.DataFrame(values[:, [c for c, _ in at], [i for _, i in at]], columns=columns)


def _limited(estimates: pd.DataFrame, errors: pd.DataFrame, level: float) -> pd.DataFrame:
    """``estimate``, ``se``, ``lower`` and ``upper`` under each column."""
    half = norm.ppf(0.5 + 0.5 * level) * errors
    parts = {"estimate": estimates, "se": errors}
    parts |= {"lower": estimates - half, "upper": estimates + half}
    every = [(*(c if isinstance(c, tuple) else (c,)), what) for c in estimates for what in parts]
    values = [parts[what].iloc[:, i] for i in range(estimates.shape[1]) for what in parts]
    whole: AnyNDArray = np.array(values).reshape(len(values), len(estimates)).T
    empty: list[Any] = [[]] * (estimates.columns.nlevels + 1)
    columns = pd.MultiIndex.from_arrays(list(zip(*every)) or empty)
    return pd.DataFrame(whole, columns=columns, index=estimates.index)


def log_density(fit: FittedGAM, table: Table) -> AnyNDArray:
    """log E_q[p(y | rho(x))] of each row, [N]: held-out rows measure the whole prediction."""
    return density_of_rows(fit, encoded(fit, table), checked_response(fit, table))


def density_of_rows(fit: FittedGAM, X: AnyNDArray, Y: AnyNDArray) -> AnyNDArray:
    """:func:`log_density` of rows that are encoded."""
    mean, var = fit.predict_joint(X)
    given = mean, fit.predictive_share * var, checked_observations(Y, fit.likelihood)
    return np.asarray(predictive_log_density(fit.likelihood, X, *given))
