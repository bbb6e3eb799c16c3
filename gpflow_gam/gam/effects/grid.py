"""Where an effect is looked at."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray

from ..components import Component, Margin
from ..fits import FittedGAM
from ..frames import LevelColumn, NumericColumn, Table
from ..terms import Column

_POINTS = {1: 100, 2: 40}
_BEYOND = 3
"""Values on each axis after the second."""


class Grid:
    """
    Points at which a component is looked at.

    :param columns: the values of its columns as users know them, [n] each.
    :param X: the same as rows of X, [n, D].
    :param axes: the values on each axis, where the points are all their combinations.
    """

    def __init__(
        self,
        columns: dict[Column, AnyNDArray],
        X: AnyNDArray,
        axes: tuple[AnyNDArray, ...] | None = None,
    ) -> None:
        self.columns, self.X, self.axes = columns, X, axes


def make_grid(
    fit: FittedGAM, component: Component, grid: Any = None, num_points: int | None = None
) -> Grid:
    """
    The points of a user's grid, or an even grid over the data.

    :param fit: a fitted GAM.
    :param component: one of the fit's.
    :param grid: values of the component's one column, a mapping of columns, or a DataFrame.
    :param num_points: of the default grid, on each axis.
    :raises ValueError: a grid that lacks a column, or has values that it cannot have.
    """
    readers = [_reader(fit, m) for m in component.margins]
    names = [r.name for r in readers]
    if grid is None:
        axes = [_axis(fit, component, m, num_points) for m in component.margins]
        points = np.array(list(itertools.product(*axes)))
        columns = {r.name: _shown(r, points[:, i]) for i, r in enumerate(readers)}
        shown = tuple(np.asarray(a) for a in axes)
        return Grid(columns, component.full(points, fit.spec.encoder.width), shown)
    table = _as_table(grid, names)
    values = np.column_stack([r.encode(table) for r in readers])
    columns = {r.name: table.values(r.name) for r in readers}
    return Grid(columns, component.full(values, fit.spec.encoder.width))


def _reader(fit: FittedGAM, margin: Margin) -> NumericColumn | LevelColumn:
    return list(fit.spec.encoder.columns.values())[margin.column]


def _as_table(grid: Any, names: list[Column]) -> Table:
    if isinstance(grid, dict) or hasattr(grid, "columns"):
        table = Table(grid)
        for name in names:
            table.raw(name)  # raises where there is none
        return table
    if len(names) > 1:
        raise ValueError(
            f"grid must be a dict or DataFrame with the columns {', '.join(map(repr, names))}; "
            f"got {type(grid).__name__}."
        )
    values = np.asarray(grid)
    if values.ndim != 1:
        raise ValueError(f"grid must be one-dimensional; got shape {values.shape}.")
    return Table({names[0]: values})


def _axis(
    fit: FittedGAM, component: Component, margin: Margin, num_points: int | None
) -> AnyNDArray:
    reader = _reader(fit, margin)
    if isinstance(reader, LevelColumn):
        return np.array(margin.nodes)
    position = component.margins.index(margin)
    smooth_axes = len(component.margins)
    number = num_points or (_POINTS.get(smooth_axes, 40) if position < 2 else _BEYOND)
    low, high = margin.ends
    if margin.kind == "cyclic" and margin.period is not None:
        low = 0.0 if low >= 0.0 and high <= margin.period else low
        return np.linspace(low, low + margin.period, number)
    if position >= 2:
        values, by = fit.X[:, margin.column], component.by
        if by is not None and by.code is not None:
            values = values[fit.X[:, by.column] == by.code]
        return np.quantile(values, np.linspace(0.1, 0.9, number))
    return np.linspace(low, high, number)


def _shown(reader: NumericColumn | LevelColumn, values: AnyNDArray) -> AnyNDArray:
    """Values as users know them."""
    if isinstance(reader, NumericColumn):
        return reader.shown(values)
    labels = np.empty(len(values), dtype=object)
    labels[:] = [reader.levels[int(v)] for v in values]
    return labels
