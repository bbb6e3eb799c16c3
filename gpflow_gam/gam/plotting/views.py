"""Effects over one or two axes, ready to be drawn."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray
from scipy.stats import norm

from ..components import Component, Margin
from ..effects import EffectTable, applied, effect, make_grid
from ..effects.effect import Transform
from ..fits import FittedGAM
from ..frames import LevelColumn, NumericColumn
from ..summaries.components import effective_dof
from ..terms import Column
from .figures import ConciseDateFormatter
from .residuals import acting

_MAP_POINTS = 30
"""On each axis of a map: a joint covariance is [n, n], and colours are interpolated anyway."""


@dataclasses.dataclass(frozen=True)
class Axis:
    """A column on one axis."""

    name: str
    values: AnyNDArray
    """Numbers, or the codes of levels."""
    levels: tuple[str, ...] | None
    """The levels' names; None for numbers."""
    margin: Margin
    time: str = ""
    """As :class:`~gpflow_gam.gam.frames.NumericColumn` has it: times or spans of time, in days."""

    def write(self, axis: Any) -> None:
        """The column's name, and dates where it holds times, on an axis of matplotlib's."""
        axis.set_label_text(self.name + (" (days)" if self.time == "spans of time" else ""))
        if self.time.startswith("times"):  # which matplotlib counts in days, too
            axis.axis_date()
            dates = ConciseDateFormatter(axis.get_major_locator())  # type: ignore[no-untyped-call]
            axis.set_major_formatter(dates)

    def place(self, values: AnyNDArray) -> AnyNDArray:
        """Data on this axis: other turns of a cycle are brought to the one that is drawn."""
        period = self.margin.period
        if self.margin.kind != "cyclic" or period is None:
            return values
        low, high = self.values[0], self.values[-1]
        inside = (values >= low) & (values <= high)
        return np.where(inside, values, low + np.mod(values - low, period))


@dataclasses.dataclass(frozen=True)
class Series:
    """An estimate [n] over one axis, with its standard error [n]."""

    label: str
    estimate: AnyNDArray
    se: AnyNDArray
    pointwise: float
    """Standard errors on each side of pointwise bands."""
    simultaneous: float | None
    """Those of simultaneous bands, where they are wanted."""
    fun: Transform | None = None
    """Applied to all that is drawn."""

    def shown(self, values: AnyNDArray) -> AnyNDArray:
        """Values on the predictor's scale, as drawn."""
        return values if self.fun is None else applied(self.fun, values)

    def band(self, width: float) -> tuple[AnyNDArray, AnyNDArray]:
        """The estimate minus and plus ``width`` standard errors, as drawn."""
        ends = [self.shown(self.estimate + sign * width * self.se) for sign in (-1.0, 1.0)]
        return np.minimum(*ends), np.maximum(*ends)


@dataclasses.dataclass(frozen=True)
class View:
    """An effect over its first two columns."""

    component: Component
    table: EffectTable
    """The effect at all combinations of the axes' values."""
    axes: tuple[Axis, ...]
    fixed: str
    """Values that further columns are held at, such as ``"w = 0.5"``."""
    dof: AnyNDArray
    """Effective degrees of freedom of each predictor that the component enters."""
    fun: Transform | None = None

    def title(self, predictor: int | None = None) -> str:
        """The effect, the predictor where there are several, and the slice."""
        title = self.component.name
        if predictor is not None and len(self.table.predictors) > 1:
            title += f", {self.table.predictors[predictor]}"
        return f"{title} at {self.fixed}" if self.fixed else title

    def critical(self, predictor: int, simultaneous: bool) -> tuple[float, float | None]:
        """Standard errors on each side of bands; simultaneous ones are simulated."""
        if simultaneous:
            return self.table.critical(predictor)
        return float(norm.ppf(0.5 + 0.5 * self.table.level)), None

    def surface(self, values: AnyNDArray) -> AnyNDArray:
        """Values [n] of two axes as [n_1, n_2]."""
        return values.reshape([len(axis.values) for axis in self.axes])

    def series(self, predictors: list[int], simultaneous: bool) -> tuple[Axis, str, list[Series]]:
        """
        The axis to draw over, a title of the legend, and the series.

        Over one axis there is one for each predictor; over two, one for each level of one of them.
        """
        estimate, se = self.table.estimate, self.table.se
        if len(self.axes) == 1:
            several = len(self.table.predictors) > 1
            series = [
                Series(
                    f"{self.table.predictors[i]} [edf {self.dof[i]:.1f}]" if several else "",
                    estimate[:, i],
                    se[:, i],
                    *self.critical(i, simultaneous),
                    self.fun,
                )
                for i in predictors
            ]
            return self.axes[0], "", series
        (i,) = predictors
        means, errors = self.surface(estimate[:, i]), self.surface(se[:, i])
        along, across = self.axes
        if across.levels is None:
            along, across, means, errors = across, along, means.T, errors.T
        critical = self.critical(i, simultaneous)
        names = across.levels or ()
        series = [
            Series(n, means[:, k], errors[:, k], *critical, self.fun) for k, n in enumerate(names)
        ]
        return along, across.name, series


def view(
    fit: FittedGAM,
    component: Component,
    level: float,
    num_points: int | None,
    seed: int,
    fun: Transform | None = None,
) -> View:
    """A component to draw; columns after the second stay at their median or commonest level."""
    shown, fixed_margins = component.margins[:2], component.margins[2:]
    if num_points is None and is_map(component):
        num_points = _MAP_POINTS
    where = make_grid(fit, dataclasses.replace(component, margins=shown), None, num_points)
    grid, fixed = dict(where.columns), []
    for margin in fixed_margins:
        name, value = _middle(fit, component, margin)
        grid[name] = np.repeat(value, len(where.X))
        fixed.append(f"{name} = {value:.3g}" if isinstance(value, float) else f"{name} = {value}")
    # without further columns the default grid is the same one
    table = effect(fit, component.name, grid if fixed_margins else None, level, num_points, seed)
    axes = []
    for margin, values in zip(shown, where.axes or ()):
        reader = _reader(fit, margin)
        names = None
        if isinstance(reader, LevelColumn):
            names = tuple(str(reader.levels[int(v)]) for v in values)
        time = reader.time if isinstance(reader, NumericColumn) else ""
        axes.append(Axis(str(reader.name), values, names, margin, time))
    dof = effective_dof(fit, component)[component.predictors_of(fit.num_predictors)]
    return View(component, table, tuple(axes), ", ".join(fixed), dof, fun)


def is_map(component: Component) -> bool:
    """True if a component is drawn over two numbers."""
    margins = component.margins
    return len(margins) > 1 and all(m.kind != "levels" for m in margins[:2])


def _reader(fit: FittedGAM, margin: Margin) -> NumericColumn | LevelColumn:
    return list(fit.spec.encoder.columns.values())[margin.column]


def _middle(fit: FittedGAM, component: Component, margin: Margin) -> tuple[Column, Any]:
    """A column's name with its median, a float, or its commonest level."""
    reader = _reader(fit, margin)
    values = fit.X[acting(fit, component), margin.column]
    if isinstance(reader, NumericColumn):
        return reader.name, reader.shown(np.median(values, keepdims=True))[0]
    codes, counts = np.unique(values, return_counts=True)
    return reader.name, reader.levels[int(codes[counts.argmax()])]
