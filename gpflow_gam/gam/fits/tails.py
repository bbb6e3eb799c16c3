"""Whether expected responses, or their standard errors, are made by the far tail of a predictor."""

from __future__ import annotations

import weakref

import numpy as np
from gpflow.base import AnyNDArray
from scipy.special import ndtr

from ...errors import TailWarning, warn_caller
from ...likelihoods import response_interval
from .fitted import FittedGAM

_WIDE = 3.0
"""Standard deviation on the log scale at which a mean is 90 times the median."""

CENTRAL = float(2.0 * ndtr(1.0) - 1.0)
"""Probability within a standard deviation of a normal mean."""
_SKEWED = float(np.exp(0.5) * np.sqrt(np.e - 1.0) / np.sinh(1.0))
"""Standard deviation of ``exp(f)`` against half of its central interval, where that of f is 1."""

_SAID: weakref.WeakSet[FittedGAM] = weakref.WeakSet()
"""The fits of which it has been said."""


def warn_of_tails(fit: FittedGAM, mean: AnyNDArray, var: AnyNDArray, estimate: AnyNDArray) -> None:
    """
    Warn, once a fit, where next to nothing is known of a predictor behind a log link.

    The mean of ``exp(f)``, ``exp(m + v / 2)``, then is a number that no data would look like.

    :param mean: of the predictor, [N, L].
    :param var: the same.
    :param estimate: of the response, [N].
    """
    if not fit.spec.family.log_link or fit in _SAID:
        return
    units, shifts = fit.spec.family.units(fit.likelihood)
    sd = units[0] * np.sqrt(var[:, 0])
    wide = sd > _WIDE
    if not np.any(wide):
        return
    _SAID.add(fit)
    worst = int(np.argmax(np.where(np.isfinite(sd), sd, 0.0)))
    with np.errstate(over="ignore"):
        median = np.exp(shifts[0] + units[0] * mean[worst, 0])
    warn_caller(
        f"of {np.count_nonzero(wide)} of {len(sd)} rows the data say next to nothing: up to "
        f"{sd[worst]:.2g} is the predictor's standard deviation, on the log scale, and the "
        f"expected response, {estimate[worst]:.3g} where the median is {median:.3g}, is made by "
        "the far tail. Take interval= or type='link', look for extreme values in the columns and "
        "the response, or give the terms less freedom.",
        TailWarning,
    )


def response_errors(
    fit: FittedGAM, X: AnyNDArray, mean: AnyNDArray, var: AnyNDArray, se: AnyNDArray, seed: int
) -> AnyNDArray:
    """
    Standard errors of expected responses, as :func:`meaningful` leaves them.

    :param X: rows, [N, D].
    :param mean: of the predictor, [N, L].
    :param var: the same.
    :param se: of the expected response, [N] or [N, K].
    :param seed: of draws of several predictors.
    """
    if not fit.spec.family.heavy_tailed:
        return se
    return meaningful(se, *response_interval(fit.likelihood, X, mean, var, CENTRAL, seed=seed))


def meaningful(se: AnyNDArray, lower: object, upper: object, positive: bool = True) -> AnyNDArray:
    """
    Standard errors, NaN where the far tail makes them, of which is warned.

    That is where the posterior is as skewed as that of ``exp(f)`` is where f has a standard
    deviation of 1: by the standard error beside half of the central 68 % interval, which it is of a
    normal quantity, or by the ratio of the interval's ends, of what is positive.

    :param se: posterior standard deviations.
    :param lower: ends of the central intervals of probability :data:`CENTRAL`, of the same shape.
    :param upper: the same.
    :param positive: whether they are of positive quantities, and not of differences.
    """
    low, high = np.asarray(lower), np.asarray(upper)
    rounding = 1e-9 * np.maximum(np.abs(low), np.abs(high))
    with np.errstate(invalid="ignore"):
        settled = np.isfinite(se) & (se <= 0.5 * _SKEWED * (high - low) + rounding)
        if positive:
            settled &= high <= np.exp(2.0) * np.maximum(low, 0.0) + rounding
    if np.all(settled | np.isnan(se)):
        return se
    warn_caller(
        "se is NaN where the expected response has no standard error to speak of: the predictor is "
        "so uncertain (behind a log link, with a standard deviation above 1) that the far tail "
        "alone would make it. Read the interval (interval=, or lower and upper), or se on the "
        "scale of the link.",
        TailWarning,
    )
    return np.where(settled, se, np.nan)
