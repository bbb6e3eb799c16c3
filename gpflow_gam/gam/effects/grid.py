"""Points at which effects are looked at: even grids over the data, or a user's."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray

from ...errors import check_count
from ..components.plan import Component, Margin
from ..fits import FittedGAM
from ..frames.encoding import Element, LevelColumn, NumericColumn
from ..frames.table import Table
from ..terms.base import Column, Lags

_POINTS = {1: 100, 2: 40}
_BEYOND = 3  # values on each axis after the second


@dataclasses.dataclass(frozen=True)
class Grid:
    """Points at which a component is looked at."""

    columns: dict[Column, AnyNDArray]
    X: AnyNDArray
    axes: tuple[AnyNDArray, ...] | None = None


def make_grid(
    fit: FittedGAM, component: Component, grid: Any = None, num_points: int | None = None
) -> Grid:
    """The points of a user's grid, or an even grid over the data."""
    check_count("num_points", num_points)
    readers = [reader_of(fit, m) for m in component.margins]
    names = [r.name for r in readers]
    if grid is None:
        axes = [_axis(fit, component, m, num_points) for m in component.margins]
        points = np.array(list(itertools.product(*axes)))
        columns = {r.name: r.shown(points[:, i]) for i, r in enumerate(readers)}
        shown = tuple(np.asarray(a) for a in axes)
        return Grid(columns, component.full(points, fit.spec.encoder.width), shown)
    if component.slots and (whole := _sums(fit, component, grid)) is not None:
        return whole
    table = as_table(grid, names)
    values = np.column_stack([r.encode(table) for r in readers])
    columns = {r.name: table.values(r.name) for r in readers}
    return Grid(columns, component.full(values, fit.spec.encoder.width))


def reader_of(fit: FittedGAM, margin: Margin) -> NumericColumn | LevelColumn:
    """The reader of a margin's column."""
    reader = fit.spec.encoder.readers[margin.column]
    return reader.axis if isinstance(reader, Element) else reader


def _sums(fit: FittedGAM, component: Component, grid: Any) -> Grid | None:
    """Sums over evaluations, at arrays or values that all share; None at points of the function."""
    if not isinstance(grid, Mapping) and not hasattr(grid, "columns"):
        return None
    table, encoder = Table(grid), fit.spec.encoder
    columns = list(encoder.columns.items())
    own = {columns[i][0] for i in component.columns}
    read = [c.over if isinstance(c, Lags) else c for c in encoder.sources(own)]
    if all(name in table and table.width(name) is not None for name in read):
        X = encoder.encode(table, own)
        return Grid({"row": np.arange(len(X))}, X)
    margins = [columns[i][1] for i in component.slots[0][:-1]]
    fixed = [r.name for r in margins if isinstance(r, Element) and r.source is None]
    shared = [r.name for r in margins if r.name not in fixed]
    if not (fixed and shared) or [r.name for r in margins if r.name in table] != shared:
        return None
    X = np.zeros((table.num_rows, encoder.width))
    for place in component.columns:
        element = columns[place][1]
        assert isinstance(element, Element)
        X[:, place] = element.axis.encode(table) if element.name in shared else element.factor
    return Grid({name: table.values(name) for name in shared}, X)


def as_table(grid: Any, names: list[Column]) -> Table:
    """A user's grid."""
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
    reader = reader_of(fit, margin)
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
        values = fit.X[component.acting(fit.X), margin.column]
        return np.quantile(values, np.linspace(0.1, 0.9, number))
    return np.linspace(low, high, number)
