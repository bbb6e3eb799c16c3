"""Warnings of predictions far outside the data, and of those that the far tail alone makes."""

from __future__ import annotations

import weakref
from collections.abc import Collection

import numpy as np
from gpflow.base import AnyNDArray
from scipy.special import ndtr

from ...errors import ExtrapolationWarning, HeavyTailWarning, warn_caller
from ...likelihoods.predictive import response_interval
from ..components import Component
from ..frames import NumericColumn, Table
from ..terms.smooth import KINDS, has_line
from .fitted import FittedGAM

_FAR = 0.25
"""Outside the data by this share of their range is far."""
_COLUMNS_SAID: weakref.WeakKeyDictionary[FittedGAM, set[int]] = weakref.WeakKeyDictionary()
"""The columns of which a fit has warned."""


def encoded(fit: FittedGAM, table: Table, names: Collection[str] | None = None) -> AnyNDArray:
    """
    New rows as X [N, D].

    Warns, once a fit and column, where numbers are far outside the data.
    """
    X = fit.encode(table, names)
    warn_if_far(fit, X, names)
    return X


def warn_if_far(fit: FittedGAM, X: AnyNDArray, names: Collection[str] | None = None) -> None:
    """Warn, once a fit and column, where numbers are far outside the data."""
    said = _COLUMNS_SAID.setdefault(fit, set())
    for component in fit.spec.components:
        if names is not None and component.name not in names:
            continue
        for margin in component.margins:
            if margin.column in said or margin.kind == "levels" or margin.period is not None:
                continue
            values = X[_acting(component, X), margin.column]
            low, high = margin.ends
            far = _FAR * (high - low)
            outside = values[(values < low - far) | (values > high + far)]
            if len(outside):
                said.add(margin.column)
                _warn(fit, component, margin.column, margin.ends, outside)


def _acting(component: Component, X: AnyNDArray) -> AnyNDArray | slice:
    by = component.by
    return slice(None) if by is None or by.code is None else X[:, by.column] == by.code


def _warn(
    fit: FittedGAM,
    component: Component,
    column: int,
    ends: tuple[float, float],
    outside: AnyNDArray,
) -> None:
    reader = list(fit.spec.encoder.columns.values())[column]
    assert isinstance(reader, NumericColumn)
    farthest = outside[np.argmax(np.abs(outside - 0.5 * (ends[0] + ends[1])))]
    shown = reader.shown(np.array([farthest, *ends]))
    at, low, high = (str(v).split(".")[0] if reader.time else f"{v:g}" for v in shown)
    there = _beyond(component, column)
    warn_caller(
        f"column {reader.name!r} is predicted at {at}, far outside the data of the fit, "
        f"{low} to {high} for {component.name}: {there}. Check the column's unit, or "
        "fit to data that reach there.",
        ExtrapolationWarning,
    )


def _beyond(component: Component, column: int) -> str:
    """Description of a component's extrapolation along a column."""
    shaped = {m.column: bool(m.shape) for m in component.margins if m.breaks}
    if column in shaped:  # splines
        return "the function goes on as a straight line" if shaped[column] else "it stays there"
    kind = component.margins[0].kind
    if component.form == "line":
        return "the line goes on as if nothing changed"
    if component.form == "own":
        return "the function is what its kernel makes of it"
    if kind in KINDS and KINDS[kind].outside:
        return KINDS[kind].outside
    if component.form in ("smooth", "tensor") and has_line(kind):
        return "the function goes back to its straight part, and says little"
    return "the function goes back to zero, its prior mean, and says little"


# --- tails ---------------------------------------------------------------------------------------

_WIDE = 3.0
"""Standard deviation on the log scale at which a mean is 90 times the median."""

CENTRAL = float(2.0 * ndtr(1.0) - 1.0)
"""Probability within a standard deviation of a normal mean."""
_SKEWED = float(np.exp(0.5) * np.sqrt(np.e - 1.0) / np.sinh(1.0))
"""Standard deviation of ``exp(f)`` against half of its central interval, where that of f is 1."""

_TAILS_SAID: weakref.WeakSet[FittedGAM] = weakref.WeakSet()
"""The fits that have warned."""


def warn_of_tails(fit: FittedGAM, mean: AnyNDArray, var: AnyNDArray, estimate: AnyNDArray) -> None:
    """
    Warn, once a fit, where next to nothing is known of a predictor behind a log link.

    The mean of ``exp(f)``, ``exp(m + v / 2)``, then is a number that no data would look like.
    """
    if not fit.spec.family.log_link or fit in _TAILS_SAID:
        return
    units, shifts = fit.spec.family.units(fit.likelihood)
    sd = units[0] * np.sqrt(var[:, 0])
    wide = sd > _WIDE
    if not np.any(wide):
        return
    _TAILS_SAID.add(fit)
    worst = int(np.argmax(np.where(np.isfinite(sd), sd, 0.0)))
    with np.errstate(over="ignore"):
        median = np.exp(shifts[0] + units[0] * mean[worst, 0])
    warn_caller(
        f"of {np.count_nonzero(wide)} of {len(sd)} rows the data say next to nothing: up to "
        f"{sd[worst]:.2g} is the predictor's standard deviation, on the log scale, and the "
        f"expected response, {estimate[worst]:.3g} where the median is {median:.3g}, is made by "
        "the far tail. Take interval= or type='link', look for extreme values in the columns and "
        "the response, or give the terms less freedom.",
        HeavyTailWarning,
    )


def response_errors(
    fit: FittedGAM, X: AnyNDArray, mean: AnyNDArray, var: AnyNDArray, se: AnyNDArray, seed: int
) -> AnyNDArray:
    """Standard errors of expected responses, as :func:`meaningful` leaves them."""
    if not fit.spec.family.heavy_tailed:
        return se
    return meaningful(se, *response_interval(fit.likelihood, X, mean, var, CENTRAL, seed=seed))


def meaningful(se: AnyNDArray, lower: object, upper: object, positive: bool = True) -> AnyNDArray:
    """
    Standard errors, NaN where the far tail makes them, of which is warned.

    That is where the posterior is as skewed as that of ``exp(f)`` is where f has a standard
    deviation of 1: by the standard error beside half of the central 68 % interval, which it is of a
    normal quantity, or by the ratio of the interval's ends, of what is positive.
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
        HeavyTailWarning,
    )
    return np.where(settled, se, np.nan)
