"""Partial dependence, average predictions and average comparisons, as tables."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray

from ..fits import FittedGAM
from ..fits.extrapolation import CENTRAL, meaningful, warn_if_far
from ..frames import LevelColumn
from ..terms import Column, as_columns
from .averages import Averages, averages
from .bands import simultaneous_limits
from .population import (
    Population,
    axis_of,
    combined,
    groups_of,
    listed,
    points_of,
    population,
    readers_of,
    set_columns,
)

_POINTS = {1: 50, 2: 15}
"""Of a default grid, on each axis."""
_COMPARISONS = ("difference", "ratio")


def partial_dependence(
    fit: FittedGAM,
    columns: Column | Sequence[Column],
    grid: Any = None,
    data: Any = None,
    *,
    drop: bool = False,
    level: float = 0.95,
    num_points: int | None = None,
    **options: Any,
) -> pd.DataFrame:
    """
    What :meth:`gpflow_gam.GAM.partial_dependence` returns.

    :param fit: a fitted GAM.
    :param columns: as of that method.
    :param grid: as of that method.
    :param data: as of that method.
    :param drop: whether rows that lack a value are left out.
    :param level: probability of the limits.
    :param num_points: of the default grid on each axis.
    :param options: of :func:`averages`.
    :raises ValueError: naming the argument.
    """
    check(level, **options)
    names = as_columns("columns", columns)
    if not names or len(set(names)) < len(names):
        raise ValueError(f"columns must name one column or several different ones; got {names!r}.")
    rows = population(fit, data, names, drop)
    if grid is None:
        number = num_points or _POINTS.get(len(names), 7)
        axes = [axis_of(fit, name, number) for name in names]
        points = dict(zip(names, map(list, zip(*itertools.product(*axes)))))
    else:
        points = points_of(grid, names)
    found = averages(fit, set_columns(fit, rows, points), rows.weights[None], **options)
    frame = _frame(fit, pd.DataFrame(points), found, level, options)
    several = len(found.estimate) > 1
    low, high = simultaneous_limits(found.draws[:, :, 0], level) if several else (None, None)
    for end, values, side in (("lower", low, np.minimum), ("upper", high, np.maximum)):
        own = frame[end].to_numpy()
        frame[f"{end}_simultaneous"] = own if values is None else side(own, values.T.ravel())
    return frame


def avg_predictions(
    fit: FittedGAM,
    data: Any = None,
    by: Column | Sequence[Column] | None = None,
    at: Mapping[Column, Any] | None = None,
    *,
    drop: bool = False,
    level: float = 0.95,
    **options: Any,
) -> pd.DataFrame:
    """
    What :meth:`gpflow_gam.GAM.avg_predictions` returns.

    :param fit: a fitted GAM.
    :param data: as of that method.
    :param by: as of that method.
    :param at: as of that method.
    :param drop: as of that method.
    :param level: probability of the limits.
    :raises ValueError: naming the argument.
    """
    check(level, **options)
    points = combined(at)
    rows = population(fit, data, points, drop)
    groups, weights = groups_of(fit, rows, by)
    found = averages(fit, set_columns(fit, rows, points), weights, **options)
    settings = pd.DataFrame(points) if points else pd.DataFrame(index=range(1))
    return _frame(fit, settings.merge(groups, how="cross"), found, level, options)


def avg_comparisons(
    fit: FittedGAM,
    columns: Column | Sequence[Column] | Mapping[Column, Any],
    data: Any = None,
    by: Column | Sequence[Column] | None = None,
    *,
    comparison: str = "difference",
    drop: bool = False,
    level: float = 0.95,
    **options: Any,
) -> pd.DataFrame:
    """
    What :meth:`gpflow_gam.GAM.avg_comparisons` returns.

    :param fit: a fitted GAM.
    :param columns: as of that method.
    :param data: as of that method.
    :param by: as of that method.
    :param comparison: as of that method.
    :param drop: as of that method.
    :param level: probability of the limits.
    :raises ValueError: naming the argument.
    """
    check(level, **options)
    if comparison not in _COMPARISONS:
        raise ValueError(
            f"comparison must be one of {', '.join(_COMPARISONS)}; got {comparison!r}."
        )
    whole = columns if isinstance(columns, Mapping) else {}
    asked = {name: whole.get(name) for name in as_columns("columns", columns)}
    if not asked:
        raise ValueError("columns must name at least one column; got none.")
    frames = []
    for name, change in asked.items():
        fixed = not _is_step(fit, name, change)
        rows = population(fit, data, [name] if fixed else [], drop)
        groups, weights = groups_of(fit, rows, by)
        settings, labels = _compared(fit, rows, name, change, comparison)
        found = averages(fit, settings, weights, **options)
        compare = np.subtract if comparison == "difference" else np.divide
        compared = Averages(
            compare(found.estimate[1:], found.estimate[:1]),
            compare(found.draws[:, 1:], found.draws[:, :1]),
        )
        contrasts = pd.DataFrame({"column": [name] * len(labels), "contrast": labels})
        own = contrasts.merge(groups, how="cross")
        frames.append(_frame(fit, own, compared, level, options, comparison))
    return pd.concat(frames, ignore_index=True)


def check(level: float, scale: str = "response", num_samples: int = 1000, **_: Any) -> None:
    """
    :raises ValueError: options that make no sense, naming them.
    """
    if scale not in ("response", "link"):
        raise ValueError(f"scale must be 'response' or 'link'; got {scale!r}.")
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must be a probability between 0 and 1; got {level}.")
    if isinstance(num_samples, bool) or int(num_samples) != num_samples or num_samples < 2:
        raise ValueError(f"num_samples must be a whole number from 2 on; got {num_samples!r}.")


def _is_step(fit: FittedGAM, name: Column, change: Any) -> bool:
    """Whether a column is moved from where it is, and not set."""
    levels = any(isinstance(r, LevelColumn) for r in readers_of(fit, name).values())
    number = isinstance(change, (int, float, np.number)) and not isinstance(change, bool)
    if number and levels:
        raise ValueError(
            f"columns: {name!r} holds levels, which have no steps; name two of them, as "
            f"{{{name!r}: (first, second)}}."
        )
    return number or (change is None and not levels)


def _compared(
    fit: FittedGAM, rows: Population, name: Column, change: Any, comparison: str
) -> tuple[list[AnyNDArray], list[str]]:
    """Settings, of which others are compared with the first, and what comparisons are called."""
    sign = "-" if comparison == "difference" else "/"
    if _is_step(fit, name, change):
        step = 1.0 if change is None else float(change)
        if step == 0.0 or not np.isfinite(step):
            raise ValueError(f"columns: a step of {name!r} must be a number but zero; got {step}.")
        moved = rows.X.copy()
        for place in readers_of(fit, name):
            moved[:, place] += step
        warn_if_far(fit, moved)
        label = f"({name} + {step:g}) {sign} {name}"
        return [rows.X, moved], [label]
    if change is None:
        values = axis_of(fit, name, 2)
    else:
        values = listed(change)
        if len(values) < 2:
            raise ValueError(
                f"columns: {name!r} needs two values to compare, or more that are compared with "
                f"the first; got {change!r}."
            )
    labels = [f"{value} {sign} {values[0]}" for value in values[1:]]
    return set_columns(fit, rows, {name: values}), labels


def _frame(
    fit: FittedGAM,
    labels: pd.DataFrame,
    found: Averages,
    level: float,
    options: Mapping[str, Any],
    comparison: str = "",
) -> pd.DataFrame:
    """
    A row an average, one class or predictor after the other.

    :param labels: of settings and groups, a row each.
    :param comparison: what they are of averages, one of ``_COMPARISONS``; empty for themselves.
    """
    tail = 0.5 * (1.0 - level)
    lower, upper = np.quantile(found.draws, [tail, 1.0 - tail], axis=0)
    se = found.draws.std(axis=0)
    if comparison == "ratio" or (fit.spec.family.heavy_tailed and options.get("scale") != "link"):
        beyond = 0.5 * (1.0 - CENTRAL)
        low, high = np.quantile(found.draws, [beyond, 1.0 - beyond], axis=0)
        se = meaningful(se, low, high, positive=comparison != "difference")
    parts = {
        "estimate": found.estimate,
        "se": se,
        "lower": lower,
        "upper": upper,
    }
    K = found.estimate.shape[-1]
    if options.get("scale") == "link":
        names: Sequence[Any] = fit.spec.predictor_names
    else:
        names = fit.spec.levels or range(K)
    what = "predictor" if options.get("scale") == "link" else "class"
    frames = []
    for k in range(K):
        frame = labels.copy()
        if K > 1:
            frame[what] = [names[k]] * len(frame)
        frames.append(frame.assign(**{n: v[..., k].ravel() for n, v in parts.items()}))
    return pd.concat(frames, ignore_index=True)
