"""Whether new rows are where the data were."""

from __future__ import annotations

import weakref
from collections.abc import Collection

import numpy as np
from gpflow.base import AnyNDArray

from ...errors import ExtrapolationWarning, warn_caller
from ..components import STRAIGHT, Component
from ..frames import NumericColumn, Table
from .fitted import FittedGAM

_FAR = 0.25
"""Outside the data by this share of their range is far."""

_SAID: weakref.WeakKeyDictionary[FittedGAM, set[int]] = weakref.WeakKeyDictionary()
"""The columns of which it has been said."""


def encoded(fit: FittedGAM, table: Table, names: Collection[str] | None = None) -> AnyNDArray:
    """
    New rows as X [N, D].

    Warns, once a fit and column, where numbers are far outside the data.

    :param names: the components wanted; all by default. Columns of others need not be there.
    :raises ValueError: as :meth:`FittedGAM.encode`.
    """
    X = fit.encode(table, names)
    warn_if_far(fit, X, names)
    return X


def warn_if_far(fit: FittedGAM, X: AnyNDArray, names: Collection[str] | None = None) -> None:
    """
    Warn, once a fit and column, where numbers are far outside the data.

    :param fit: a fitted GAM.
    :param X: [N, D].
    :param names: the components that are asked; all by default.
    """
    said = _SAID.setdefault(fit, set())
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
    """What a component does outside its data."""
    shaped = {m.column: bool(m.shape) for m in component.margins if m.breaks}
    if column in shaped:  # splines
        return "the function goes on as a straight line" if shaped[column] else "it stays there"
    kind = component.margins[0].kind
    if component.form == "line":
        return "the line goes on as if nothing changed"
    if component.form == "own":
        return "the function is what its kernel makes of it"
    if kind == "rw":
        return "the walk goes on from where it was, and says less and less"
    if kind == "iou":
        return "the curve goes on along its slope, and says less and less"
    if component.form in ("smooth", "tensor") and kind in STRAIGHT:
        return "the function goes back to its straight part, and says little"
    return "the function goes back to zero, its prior mean, and says little"
