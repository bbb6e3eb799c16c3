"""Survival curves of new rows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood
from scipy.special import ndtr, ndtri
from scipy.stats import norm

from ...likelihoods import unwrapped
from ...optimizers.laplace import HyperparameterDraw
from ..families import Cox, Survival, Weibull
from ..frames import Table
from .fitted import FittedGAM
from .ranges import encoded

_TIMES = 101
"""Of a default grid."""
_NODES = {1: 32, 2: 12}
"""Of quadrature over each of so many predictors."""


def survival(
    fit: FittedGAM,
    table: Table,
    times: Any,
    level: float,
    draws: Sequence[HyperparameterDraw] = (),
) -> pd.DataFrame:
    """
    What :meth:`gpflow_gam.GAM.survival` returns.

    :param table: the rows.
    :param times: [T], or one; None for an even grid up to the largest response of the fit.
    :param level: the limits' probability.
    :param draws: of the hyperparameters, the family's own among them; none takes them as known.
    :raises ValueError: a family without a survival function, bad times or no probability.
    """
    family = fit.spec.family
    if not isinstance(family, (Survival, Cox)):
        raise ValueError(
            f"survival: family {family.name!r} has no survival curves; fit 'weibull', 'lognormal', "
            "'cox', or 'gaussian' with y=Surv(...)."
        )
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must be a probability between 0 and 1; got {level}.")
    positive = isinstance(family, Cox) or family.kind.logarithm
    t = _default(fit, positive) if times is None else _checked(times, positive)
    if isinstance(family, Cox) and np.max(t) > family.longest(fit.likelihood):
        raise ValueError(
            f"times must be at most {family.longest(fit.likelihood):g}, the longest time of the "
            f"fit, beyond which family 'cox' knows nothing; got {np.max(t):g}."
        )
    X = encoded(fit, table)
    mean, var = fit.predict_link(X)
    estimate = _expected(fit, family, t, mean, var)
    z = norm.ppf(0.5 + 0.5 * level)
    if len(draws) or mean.shape[1] > 1:
        lower, upper = _limits(fit, family, X, t, z, draws)
    else:  # survival moves one way with the predictor, and limits go through
        ends = [
            family.survival(fit.likelihood, t, (mean + sign * z * np.sqrt(var))[:, None])
            for sign in (-1.0, 1.0)
        ]
        lower, upper = np.minimum(*ends), np.maximum(*ends)
    if positive:
        estimate, lower, upper = (np.where(t > 0.0, S, 1.0) for S in (estimate, lower, upper))
    frame = {
        "row": np.repeat(np.arange(len(mean)), len(t)),
        "time": np.tile(t, len(mean)),
        "estimate": estimate.ravel(),
        "lower": lower.ravel(),
        "upper": upper.ravel(),
    }
    return pd.DataFrame(frame)


def _expected(
    fit: FittedGAM, family: Survival | Cox, t: AnyNDArray, mean: AnyNDArray, var: AnyNDArray
) -> AnyNDArray:
    """The posterior mean of curves, [N, T], of predictors [N, L]."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(  # type: ignore[no-untyped-call]
        _NODES[mean.shape[1]]
    )
    weights = weights / weights.sum()
    found, sd = np.zeros((len(mean), len(t))), np.sqrt(var)
    for at in itertools.product(range(len(nodes)), repeat=mean.shape[1]):
        F = mean + nodes[list(at)] * sd
        found += np.prod(weights[list(at)]) * family.survival(fit.likelihood, t, F[:, None])
    return found


def _limits(
    fit: FittedGAM,
    family: Survival | Cox,
    X: AnyNDArray,
    t: AnyNDArray,
    z: float,
    draws: Sequence[HyperparameterDraw],
) -> tuple[AnyNDArray, AnyNDArray]:
    """
    Limits [N, T] that allow for what is not known of the hyperparameters, the family's own too.

    Normal on a scale on which curves are nearly linear in predictors and scale: of hazards that are
    proportional that of their logarithm, and otherwise the normal quantile.
    """
    hazards = isinstance(family, (Cox, Weibull))

    def scaled(likelihood: Likelihood, F: AnyNDArray) -> AnyNDArray:
        S = np.clip(family.survival(likelihood, t, F[:, None]), 1e-300, 1.0 - 1e-16)
        return np.asarray(np.log(-np.log(S)) if hazards else ndtri(S))

    def variance(likelihood: Likelihood, mean: AnyNDArray, var: AnyNDArray) -> AnyNDArray:
        """Of what is known of the predictors, [N, T]."""
        found, sd = np.zeros((len(mean), len(t))), np.sqrt(np.maximum(var, 0.0))
        for own in np.eye(mean.shape[1]):
            ends = [scaled(likelihood, mean + sign * own * sd) for sign in (-1.0, 1.0)]
            found += np.square(0.5 * (ends[1] - ends[0]))
        return found

    shift = np.asarray(fit.model.mean_function(X))
    mean, var = fit.predict_link(X)
    at = scaled(fit.likelihood, mean)
    total = np.zeros_like(at) if len(draws) else variance(fit.likelihood, mean, var)
    for draw in draws:
        mean, var = draw.moments.total(X)
        likelihood, mean = unwrapped(draw.likelihood), mean + shift
        total += variance(likelihood, mean, var) + np.square(scaled(likelihood, mean) - at)
    half = z * np.sqrt(total / max(len(draws), 1))
    ends = [np.exp(-np.exp(e)) if hazards else ndtr(e) for e in (at - half, at + half)]
    return np.minimum(*ends), np.maximum(*ends)


def _default(fit: FittedGAM, positive: bool) -> AnyNDArray:
    """
    Even times over the responses of the fit, from zero on where they are positive.

    :raises ValueError: the fit's rows are not there.
    """
    family = fit.spec.family
    if isinstance(family, Cox):
        return np.linspace(0.0, family.longest(fit.likelihood), _TIMES)
    if not fit.has_data:
        raise ValueError(
            "times: the GAM was saved without its data, whose largest response would be the last "
            "time; give times, such as numpy.linspace(0, 10, 101)."
        )
    # of a censored response both ends, and of what kind it is
    Y = np.asarray(fit.Y if fit.whole is None else fit.whole.Y[: fit.number])[:, :2]
    return np.linspace(0.0 if positive else float(np.min(Y)), float(np.max(Y)), _TIMES)


def _checked(times: Any, positive: bool) -> AnyNDArray:
    """
    :raises ValueError: no such times.
    """
    t = np.atleast_1d(np.asarray(times, dtype=np.float64))
    if t.ndim != 1 or len(t) == 0:
        raise ValueError(f"times must be numbers [T]; got shape {t.shape}.")
    good = np.isfinite(t) & ((t >= 0.0) | (not positive))
    if not good.all():
        what = "finite and not negative" if positive else "finite"
        raise ValueError(f"times must be {what}; got {t[~good][0]:g}.")
    return t
