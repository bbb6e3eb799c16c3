"""The effects of a fitted GAM, a panel each: curves, levels, maps."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.colors import Colormap, ListedColormap, Normalize
from matplotlib.dates import ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.path import Path
from scipy.spatial import cKDTree
from scipy.stats import norm

from ...errors import check_count, check_level
from ...threads import one_blas_thread
from ..components.plan import Component, Margin
from ..effects.effect import NUMBERS, EffectTable, Transform, applied, effect
from ..effects.grid import make_grid, reader_of
from ..fits import FittedGAM
from ..frames.encoding import LevelColumn, NumericColumn
from ..summaries.checks import effective_dof
from ..terms.base import Column
from ..terms.smooth import MarkovField, Polygons
from .tables import (
    clip_to,
    color_of,
    faintness,
    figure_of,
    own_axes,
    panels,
    put_title,
    short,
    thinned,
)

# --- residuals ------------------------------------------------------------------------------------


_STEP = 1e-5  # half the width of a central difference against the predictor's natural size


def working_residuals(fit: FittedGAM) -> AnyNDArray:
    """
    Residuals on the predictor's scale, ``(y - mu) / (d mu / d rho)`` (Wood 2017, 3.1.2).

    :param fit: the fitted GAM, ``gam.fitted``.
    :return: [N]; NaN of censored rows.
    :raises ValueError: a family of several predictors or of classes; every row is censored.
    """
    family, likelihood = fit.spec.family, fit.likelihood
    if fit.num_predictors > 1:
        raise ValueError(
            f"residuals: family {family.name!r} has {fit.num_predictors} predictors, and working "
            "residuals are for one; take residuals=False."
        )
    F, _ = fit.predict_link(fit.X)
    h = _STEP * fit.spec.scale
    mean, low, high = (np.asarray(family.mean(likelihood, F + d)) for d in (0.0, -h, h))
    if mean.ndim > 1:
        raise ValueError(
            f"residuals: family {family.name!r} is of classes, which have no working residuals; "
            "take residuals=False."
        )
    y = family.observed(fit.Y)
    if np.all(np.isnan(y)):
        raise ValueError(
            "residuals: every response is censored, and there are no residuals on the predictor's "
            "scale; take residuals=False."
        )
    slope = (high - low) / (2.0 * h)
    residuals = np.full(len(mean), np.nan)
    np.divide(y - mean, slope, out=residuals, where=slope != 0.0)
    return residuals


def partial_residuals(fit: FittedGAM, term: str) -> AnyNDArray:
    """
    Working residuals plus a component's estimate (Wood 2017, section 7.2.1).

    Of a function multiplied by a number, the residuals are divided by that number, so that they
    scatter around the function itself.

    :param fit: the fitted GAM.
    :param term: the component's name.
    :return: [N]; NaN on rows on which the component does not act.
    :raises ValueError: an unknown name, or a family as in :func:`working_residuals`.
    """
    component = fit.spec.component(term)
    if component.slots:
        raise ValueError(f"residuals: {term} is a sum over many points; take residuals=False.")
    residuals = working_residuals(fit)
    rows = acting(fit, component)
    moments = fit.moments
    points = fit.X[rows][:, [m.column for m in component.margins]]
    features = moments.features(component.name, component.full(points, fit.spec.encoder.width))
    by = component.by
    if by is not None and by.code is None:
        residuals = residuals / np.where(rows, fit.X[:, by.column], 1.0)
    partial = np.full(len(residuals), np.nan)
    estimate = features.T @ moments.mean[moments.block(component.name), 0]
    if component.form == "means":  # of one predictor, in whose unit residuals are
        estimate = estimate + fit.spec.constant[0]
    partial[rows] = residuals[rows] + estimate
    return partial


def acting(fit: FittedGAM, component: Component) -> AnyNDArray:
    """The rows of the data on which a component acts, [N] truth values."""
    return component.multiplier(fit.X) != 0.0


# --- effects over one or two axes -----------------------------------------------------------------


_MAP_POINTS = 30
"""On each axis of a map: a joint covariance is [n, n], and colours are interpolated anyway."""


@dataclasses.dataclass(frozen=True)
class Axis:
    """A column on one axis."""

    name: str
    values: AnyNDArray  # numbers, or the codes of levels
    levels: tuple[str, ...] | None  # the levels' names; None for numbers
    margin: Margin | None = None
    time: str = ""  # as NumericColumn has it: times or spans of time, in days
    log: bool = False

    def write(self, axis: Any) -> None:
        """The column's name, and dates where it holds times, on an axis of matplotlib's."""
        axis.set_label_text(self.name + (" (days)" if self.time == "spans of time" else ""))
        if self.time.startswith("times"):  # which matplotlib counts in days, too
            axis.axis_date()
            dates = ConciseDateFormatter(axis.get_major_locator())  # type: ignore[no-untyped-call]
            axis.set_major_formatter(dates)

    def place(self, values: AnyNDArray) -> AnyNDArray:
        """Data on this axis: other turns of a cycle are brought to the one that is drawn."""
        period = None if self.margin is None else self.margin.period
        if self.margin is None or self.margin.kind != "cyclic" or period is None:
            return values
        low, high = self.values[0], self.values[-1]
        inside = (values >= low) & (values <= high)
        return np.where(inside, values, low + np.mod(values - low, period))


@dataclasses.dataclass(frozen=True)
class Series:
    """An estimate [n] over one axis, and the ends of its bands by their names, as drawn."""

    label: str
    estimate: AnyNDArray
    bands: dict[str, tuple[AnyNDArray, AnyNDArray]]  # the widest first


@dataclasses.dataclass(frozen=True)
class View:
    """An effect over its first two columns."""

    component: Component
    table: EffectTable  # the effect at all combinations of the axes' values
    axes: tuple[Axis, ...]
    fixed: str  # values that further columns are held at, such as "w = 0.5"
    dof: AnyNDArray  # effective degrees of freedom of each predictor that the component enters
    fun: Transform | None = None
    against: str = ""  # values with which others are compared, such as "age = 50"

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

    def shown(self, values: Any) -> AnyNDArray:
        """Values on the predictor's scale, as drawn."""
        values = np.asarray(values, dtype=np.float64)
        return values if self.fun is None else applied(self.fun, values)

    def series(self, predictors: list[int], simultaneous: bool) -> tuple[Axis, str, list[Series]]:
        """The axis to draw over, a title of the legend, and the series."""

        def one(label: str, i: int, estimate: AnyNDArray, se: AnyNDArray) -> Series:
            bands, (pointwise, whole) = {}, self.critical(i, simultaneous)
            for name, width in (("simultaneous", whole), ("pointwise", pointwise)):
                if width is not None:
                    ends = [self.shown(estimate + sign * width * se) for sign in (-1.0, 1.0)]
                    bands[name] = np.minimum(*ends), np.maximum(*ends)
            return Series(label, self.shown(estimate), bands)

        estimate, se, names = self.table.estimate, self.table.se, self.table.predictors
        if len(self.axes) == 1:
            labels = [f"{n} [edf {dof:.1f}]" * (len(names) > 1) for n, dof in zip(names, self.dof)]
            each = [one(labels[i], i, estimate[:, i], se[:, i]) for i in predictors]
            return self.axes[0], "", each
        (i,) = predictors
        means, errors = self.surface(estimate[:, i]), self.surface(se[:, i])
        along, across = self.axes
        if across.levels is None:
            along, across, means, errors = across, along, means.T, errors.T
        levels = enumerate(across.levels or ())
        return along, across.name, [one(n, i, means[:, k], errors[:, k]) for k, n in levels]


def view(
    fit: FittedGAM,
    component: Component,
    level: float,
    num_points: int | None,
    seed: int,
    fun: Transform | None = None,
    reference: Mapping[Column, Any] | None = None,
    labels: Mapping[Column, str] | None = None,
    log: Collection[Column] = (),
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
    names = {reader_of(fit, margin).name for margin in component.margins}
    (along, *_), over = where.axes or (np.zeros(1),), tuple(where.axes or ())
    logged = len(names) == 1 and names <= set(log)
    if logged:
        if isinstance(reader_of(fit, shown[0]), LevelColumn) or not along[0] > 0.0:
            raise ValueError(f"log: {component.name} is not of positive numbers; leave it out.")
        over = (np.geomspace(along[0], along[-1], len(along)),)
        grid = dict.fromkeys(names, over[0])
    # without further columns the default grid is the same one
    own = {name: value for name, value in (reference or {}).items() if name in names}
    asked = grid if fixed_margins or logged else None, level, num_points, seed
    table = effect(fit, component.name, *asked, reference=own or None)
    axes = []
    for margin, values in zip(shown, over):
        reader = reader_of(fit, margin)
        levels = None
        if isinstance(reader, LevelColumn):
            levels = tuple(map(str, reader.shown(values)))
        time = reader.time if isinstance(reader, NumericColumn) else ""
        label = (labels or {}).get(reader.name, str(reader.name))
        axes.append(Axis(label, values, levels, margin, time, logged))
    dof = effective_dof(fit, component)[component.predictors_of(fit.num_predictors)]
    against = ", ".join(f"{name} = {value}" for name, value in own.items())
    return View(component, table, tuple(axes), ", ".join(fixed), dof, fun, against)


def is_map(component: Component) -> bool:
    """True if a component is drawn over two numbers."""
    margins = component.margins
    return len(margins) > 1 and all(m.kind != "levels" for m in margins[:2])


def _middle(fit: FittedGAM, component: Component, margin: Margin) -> tuple[Column, Any]:
    """A column's name with its median, a float, or its commonest level."""
    reader = reader_of(fit, margin)
    values = fit.X[acting(fit, component), margin.column]
    if isinstance(reader, NumericColumn):
        return reader.name, reader.shown(np.median(values, keepdims=True))[0]
    codes, counts = np.unique(values, return_counts=True)
    return reader.name, reader.levels[int(codes[counts.argmax()])]


# --- panels ---------------------------------------------------------------------------------------


_TICKS = 150  # more are a solid bar
_BANDED = 4  # with more curves than these, bands are faint
_DASHES = ("-", "--", ":", "-.")  # of curves beyond the number of colours
_NAMED = 16  # with more curves than these, a legend and bands hide them all


def draw_curves(
    ax: Axes,
    axis: Axis,
    series: list[Series],
    legend_title: str,
    zero: float | None = None,
    first: int = 0,
) -> None:
    """A curve with its band for each series; ``first`` is the number of curves already there."""
    if zero is not None:
        ax.axhline(zero, color="0.6", linewidth=0.8, zorder=0)
    alpha = 0.3 if len(series) == 1 and not first else 0.18 if len(series) <= _BANDED else 0.07
    named, cycle = len(series) <= _NAMED, len(plt.rcParams["axes.prop_cycle"])
    for i, curve in enumerate(series, first):
        color, style = (color_of(i), _DASHES[i // cycle % len(_DASHES)]) if named else ("0.4", "-")
        label, alone = curve.label or None, None if named else 0.5
        ax.plot(axis.values, curve.estimate, style, color=color, label=label, alpha=alone)
        for gid, ends in curve.bands.items() if named else ():
            share = 0.5 if gid == "simultaneous" else 1.0
            look: Any = {"facecolor": color, "alpha": share * alpha, "gid": gid}
            ax.fill_between(axis.values, *ends, linewidth=0.0, **look)
    axis.write(ax.xaxis)
    if axis.log:
        ax.set_xscale("log")
    ax.margins(x=0.02)
    if 1 < len(series) <= _NAMED:
        beside: Any = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5), "frameon": False}
        where = beside if len(series) > 6 else {"framealpha": 0.7}
        ax.legend(title=legend_title or None, fontsize="small", **where)


def draw_rug(ax: Axes, axis: Axis, values: AnyNDArray) -> None:
    """A tick at the bottom for each value of the data, or even quantiles of them."""
    ticks = thinned(np.unique(axis.place(values)), _TICKS)
    ax.vlines(
        ticks, 0.0, 0.03, transform=ax.get_xaxis_transform(), color="0.2", linewidth=0.6,
        alpha=max(faintness(len(ticks)), 0.35), gid="rug",
    )  # fmt: skip


def draw_partial(
    ax: Axes, axis: Axis, x: AnyNDArray, partial: AnyNDArray, curve: Series, zero: float
) -> None:
    """Partial residuals as faint points, a few wild ones outside, so that the curve is seen."""
    x = axis.place(x)
    ax.plot(
        x, partial, ".", color="0.25", markersize=4.0, markeredgewidth=0.0,
        alpha=faintness(len(x)), zorder=1, gid="residuals", rasterized=len(x) > 2000,
    )  # fmt: skip
    values = np.concatenate([*next(iter(curve.bands.values())), _ends(partial), [zero]])
    clip_to(ax, float(values.min()), float(values.max()))


def _ends(values: AnyNDArray) -> AnyNDArray:
    """Range of nearly all values: 1 % to 99 % quantiles, unless even those are far out."""
    if len(values) == 0:
        return values
    low, first, third, high = np.quantile(values, [0.01, 0.25, 0.75, 0.99])
    reach = 3.0 * (third - first)  # of normal values, 4.7 standard deviations from the median
    return np.array([max(low, first - reach), min(high, third + reach)])


NAMED = 40  # with more levels than these, they are sorted and lose their names
_LISTED = 12  # with more series than these, there is no legend


def draw_points(
    ax: Axes, axis: Axis, series: list[Series], legend_title: str, zero: float | None = None
) -> None:
    """A point with its credible interval for each level and series."""
    names = axis.levels or ()
    number = len(names)
    if zero is not None:
        ax.axhline(zero, color="0.6", linewidth=0.8, zorder=0)
    order = np.argsort(series[0].estimate) if number > NAMED else np.arange(number)
    shifts = np.linspace(-0.25, 0.25, len(series)) if len(series) > 1 else np.zeros(1)
    few = number <= NAMED
    size = plt.rcParams["lines.markersize"] * (0.8 if few else 0.4)
    width = plt.rcParams["lines.linewidth"] * (1.0 if few else 0.5)
    for i, (curve, shift) in enumerate(zip(series, shifts)):
        color, x, estimate = color_of(i), np.arange(number) + shift, curve.estimate[order]
        for gid, (lower, upper) in curve.bands.items():
            errors = np.stack([estimate - lower[order], upper[order] - estimate])
            look: Any = {"fmt": "none", "ecolor": color, "alpha": 0.35, "elinewidth": 1.0}
            if gid == "pointwise":
                look = {"fmt": "o", "color": color, "markersize": size, "elinewidth": width}
                # intervals narrower than the point show, too
                look |= {"label": curve.label or None, "capsize": size if few else 0.0}
            ax.errorbar(x, estimate, errors, gid=gid, **look)
    if number > NAMED:
        ax.set_xticks([])
        ax.set_xlabel(f"{axis.name} ({number} levels, sorted)")
    else:
        _name_levels(ax, names)
        ax.set_xlabel(axis.name)
    room = 0.6 if number <= NAMED else 0.02 * number
    ax.set_xlim(-room, number - 1 + room)
    if 1 < len(series) <= _LISTED:
        _legend(ax, series, legend_title)


def _legend(ax: Axes, series: list[Series], title: str) -> None:
    widest = max(len(curve.label) for curve in series) + 4
    columns = max(1, min(len(series), 36 // widest))
    lines = -(-len(series) // columns) + bool(title)
    low, high = ax.get_ylim()
    # room above, since no corner is sure to be free
    ax.set_ylim(low, high + (0.06 + 0.1 * lines) * (high - low))
    ax.legend(
        title=title or None, loc="upper center", ncols=columns, fontsize="small",
        title_fontsize="small", columnspacing=1.0, handletextpad=0.3,
    )  # fmt: skip


def _name_levels(ax: Axes, names: tuple[str, ...]) -> None:
    labels = [short(name) for name in names]
    ax.set_xticks(np.arange(len(labels)), labels)
    if sum(len(label) + 2 for label in labels) <= 38:
        return
    if len(labels) > 8:
        ax.tick_params(axis="x", labelrotation=90, labelsize="small" if len(labels) < 25 else 6)
        return
    for text in ax.get_xticklabels():
        text.set(rotation=35, ha="right", rotation_mode="anchor")


_DOTS = 1000
_FADED = 0.6  # how much white lies over estimates whose intervals have zero in them
TOO_FAR = 0.1  # distance from the data up to which maps are drawn, as a share of the axes' lengths


def _draw_surface(
    ax: Axes,
    fit: FittedGAM,
    view: View,
    predictor: int,
    shared: Normalize | None,
) -> None:
    """The estimate, in colours around zero that maps share, or its standard error."""
    polygons = polygons_of(fit, view.component)
    data = np.zeros((0, 2))
    if fit.data.available and not polygons:
        data = view.component.points(fit.X[acting(fit, view.component)])[:, :2]
    far = _far_from(view, data)
    values = errors = view.surface(view.table.se[:, predictor])
    strength = np.full(errors.shape, np.inf)  # estimates against the half width of their intervals
    if shared is None:
        # the dark end of these colours would hide contours and data
        cmap: Colormap = ListedColormap(plt.get_cmap("YlOrBr")(np.linspace(0.0, 0.6, 256)))
        shared = Normalize(0.0, float(values[~far].max()) or 1.0)
        title = "standard error" if view.fun is None else "standard error on the link scale"
    else:
        values = view.surface(view.table.estimate[:, predictor])
        width = view.critical(predictor, False)[0] * errors
        strength = np.abs(values) / np.maximum(width, 1e-300)
        values, middle = view.shown(values), float(view.shown(0.0))
        cmap = plt.get_cmap("RdBu_r")
        size = float(np.abs(values - middle)[~far].max()) or 1.0
        size = max(size, (shared.vmax or middle) - middle)
        shared.vmin, shared.vmax = middle - size, middle + size
        title = f"{view.title(predictor)} [edf {view.dof[predictor]:.1f}]"
    colors = {"cmap": cmap, "norm": shared}
    if polygons:
        _fill_areas(ax, view.axes[0], values, strength, polygons, colors)
    else:
        _fill_map(ax, view.axes, values, strength, data, far, colors)
    put_title(ax, title)


def _far_from(view: View, data: AnyNDArray) -> AnyNDArray:
    """Points of a map that are farther than TOO_FAR from all data [N, 2], truth values."""
    # The estimate is least sure there, and so often largest (mgcv's too.far). Both axes have
    # length one. None are where no data are known, or all would be.
    far = np.zeros([len(axis.values) for axis in view.axes], bool)
    if len(data) == 0:
        return far
    first, second = view.axes
    x, y = first.values, second.values
    low, span = np.array([x[0], y[0]]), np.array([x[-1] - x[0], y[-1] - y[0]])
    rows = np.column_stack([first.place(data[:, 0]), second.place(data[:, 1])])
    grid = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1).reshape(-1, 2)
    distance, _ = cKDTree((rows - low) / span).query((grid - low) / span)
    beyond: AnyNDArray = (distance > TOO_FAR).reshape(far.shape)
    return far if beyond.all() else beyond


def _fill_map(
    ax: Axes,
    axes: tuple[Axis, ...],
    Z: AnyNDArray,
    strength: AnyNDArray,
    data: AnyNDArray,
    far: AnyNDArray,
    colors: dict[str, Any],
) -> None:
    first, second = axes
    if first.margin is not None and first.margin.kind == "sos":  # longitude goes across
        first, second, Z, far, data = second, first, Z.T, far.T, data[:, ::-1]
        strength = strength.T
    x, y = first.values, second.values
    mesh = ax.pcolormesh(x, y, Z.T, shading="gouraud", rasterized=True, **colors)
    if np.ptp(Z[~far]) > 1e-9 * (colors["norm"].vmax - colors["norm"].vmin):  # else no contours
        lines = ax.contour(x, y, np.where(far, np.nan, Z).T, levels=6, colors="0.2", linewidths=0.7)
        ax.clabel(lines, fontsize="x-small")
    if strength.min() < 1.0:
        weak: dict[str, Any] = {"colors": ["1.0"], "alpha": _FADED, "zorder": 1.2}
        ax.contourf(x, y, strength.T, levels=[-1.0, 1.0], **weak)
    if far.any():  # smooth shading has no holes: they are painted over
        ax.contourf(x, y, far.T.astype(float), levels=[0.5, 1.5], colors=["1.0"], zorder=1.5)
    dots = thinned(np.column_stack([first.place(data[:, 0]), second.place(data[:, 1])]), _DOTS)
    ax.plot(
        dots[:, 0], dots[:, 1], ".", color="k", markersize=2.5, markeredgewidth=0.0,
        alpha=faintness(len(dots)), gid="data",
    )  # fmt: skip
    first.write(ax.xaxis)
    second.write(ax.yaxis)
    ax.set_xlim(x[0], x[-1])
    ax.set_ylim(y[0], y[-1])
    figure_of(ax).colorbar(mesh, ax=ax)


def polygons_of(fit: FittedGAM, component: Component) -> Polygons:
    """The polygons of the areas whose effects a component is; empty where there are none."""
    if component.form != "areas":
        return ()
    term = fit.spec.term(component.term)
    return (term.polygons or ()) if isinstance(term, MarkovField) else ()


def _fill_areas(
    ax: Axes,
    axis: Axis,
    values: AnyNDArray,
    strength: AnyNDArray,
    polygons: Polygons,
    colors: dict[str, Any],
) -> None:
    """Areas without data are hatched."""
    place = {name: i for i, name in enumerate(axis.levels or ())}
    paths, shown, empty, alpha = [], [], [], []
    for area, rings in polygons:
        if str(area) not in place:  # a polygon that is not among the neighbours
            continue
        i = place[str(area)]
        paths.append(Path.make_compound_path(*(Path(np.array(r), closed=False) for r in rings)))
        shown.append(values[i])
        empty.append(axis.margin is not None and axis.margin.weights[i] == 0.0)
        alpha.append(1.0 if strength[i] >= 1.0 else 1.0 - _FADED)
    edges: dict[str, Any] = {"edgecolors": "0.35", "linewidths": 0.5}
    filled = PathCollection(paths, array=np.array(shown), gid="areas", **colors, **edges)
    filled.set_alpha(alpha)
    ax.add_collection(filled)
    if any(empty):
        bare = [path for path, is_empty in zip(paths, empty) if is_empty]
        hatched = PathCollection(bare, facecolors="none", gid="without data", **edges)
        hatched.set(hatch="///")
        ax.add_collection(hatched)
    corners = np.concatenate([path.vertices for path in paths])
    ax.set_xlim(corners[:, 0].min(), corners[:, 0].max())
    ax.set_ylim(corners[:, 1].min(), corners[:, 1].max())
    ax.set_aspect("equal", adjustable="box")
    ax.set_xticks([])
    ax.set_yticks([])
    ax.set_xlabel(axis.name + (" (hatched: without data)" if any(empty) else ""))
    figure_of(ax).colorbar(filled, ax=ax)


@one_blas_thread()  # matplotlib inverts thousands of matrices of three rows
def draw(
    fit: FittedGAM,
    terms: str | Iterable[str] | None = None,
    *,
    ax: Axes | None = None,
    level: float = 0.95,
    residuals: bool = False,
    simultaneous: bool = False,
    num_points: int | None = None,
    rug: bool = True,
    seed: int = 0,
    predictor: str | None = None,
    fun: Transform | None = None,
    ncols: int | None = None,
    figsize: tuple[float, float] | None = None,
    sharey: bool = False,
    reference: Mapping[Column, Any] | None = None,
    labels: Mapping[Column, str] | None = None,
    log: Collection[Column] = (),
    overlay: bool = False,
) -> Figure:
    """
    Draw the effects, a panel each.

    Functions of a number are curves with bands; of two numbers maps of the estimate and, beside
    it, of its standard error, as are effects of areas whose polygons are known; of levels points
    with credible intervals; of a number and levels a curve a level. Maps of a figure share their
    colours, which are faint where the credible interval has zero in it, and are blank far from all
    data. Columns of a function after
    its second are held at their median or commonest level, as its title says. Several predictors
    share a panel where they can, and have one each where they cannot.

    :param fit: the fitted GAM.
    :param terms: names of effects, or labels of terms for all their effects (``"s(x):g"``); all
        effects by default.
    :param ax: draw one effect into this, a map without its standard error; a figure with
        ``layout="constrained"`` keeps labels apart.
    :param level: probability of credible intervals and bands.
    :param residuals: adds partial residuals to functions of one number: see
        :func:`gpflow_gam.gam.plotting.partial_residuals`; the axis holds 98 % of them.
    :param simultaneous: adds bands that hold for the whole of each function at once.
    :param num_points: on each axis of numbers; by default 100 of a curve, 30 of a map.
    :param rug: ticks where the data are; of a ``by=`` level, only its own rows.
    :param seed: of the simulation behind simultaneous bands.
    :param predictor: one of several predictors; all by default.
    :param fun: a monotone function applied to estimates, bands and residuals, such as
        ``numpy.exp``: see :meth:`gpflow_gam.GAM.effects`. Standard errors of maps stay as they are.
    :param ncols: columns of panels; by default up to three.
    :param figsize: width and height of a new figure in inches.
    :param sharey: one range of values for all curves and levels.
    :param reference: values with which others are compared: with ``{"age": 50}`` effects of ``age``
        are differences from where it is 50, and under ``fun=numpy.exp`` ratios to there.
    :param labels: what axes call columns, such as ``{"age": "Age (years)"}``.
    :param log: columns whose axes are logarithmic, where a curve is of one of them.
    :param overlay: curves of a ``by=`` factor are in one panel.
    :return: a new figure, or the one that ``ax`` stands on.
    :raises ValueError: an unknown effect or predictor, or an option that cannot be, naming it.
    :raises TypeError: ``ax`` is no axes, or ``terms`` no names.
    """
    if ax is not None and not isinstance(ax, Axes):
        raise TypeError(f"ax must be matplotlib axes; got {type(ax).__name__}.")
    check_level(level)
    check_count("num_points", num_points, 2)
    components = _components(fit, terms)
    plan = _panels(fit, components, _predictors(fit, predictor))
    names = {reader_of(fit, margin).name for c in components for margin in c.margins}
    for option, given in (("reference", reference), ("labels", labels), ("log", log)):
        if unknown := [name for name in given or {} if name not in names]:
            raise ValueError(
                f"{option}: no effect that is drawn is of {unknown[0]!r}; they are of "
                f"{', '.join(map(repr, sorted(names, key=str)))}."
            )
    if residuals and reference:
        raise ValueError(
            "residuals are not of differences from a reference; leave one of them out."
        )
    if residuals:
        working_residuals(fit)  # raises where there are none

    colors: dict[int, Normalize] = {}

    def into(axes: list[Axes], component: Component, places: list[int], number: int = 0) -> None:
        shown = view(fit, component, level, num_points, seed, fun, reference, labels, log)
        if _is_wide(fit, component):
            share = colors.setdefault(
                component.predictors_of(fit.num_predictors)[places[0]], Normalize()
            )
            for where, norm in zip(axes, (share, None)):
                _draw_surface(where, fit, shown, places[0], norm)
            return
        axis, legend_title, series = shown.series(places, simultaneous)
        zero = float(shown.shown(0.0))
        if axis.levels is not None:
            about = None if component.carries_constant else zero
            draw_points(axes[0], axis, series, legend_title, about)
        else:
            if overlay and component.by is not None and len(series) == 1:
                series = [dataclasses.replace(series[0], label=component.by.level)]
            draw_curves(axes[0], axis, series, legend_title, zero, number)
            if residuals and len(component.margins) == 1:
                partial = partial_residuals(fit, component.name)
                keep = np.isfinite(partial)
                x = fit.X[keep, component.margins[0].column]
                draw_partial(axes[0], axis, x, shown.shown(partial[keep]), series[0], zero)
            if rug and fit.data.available:
                assert axis.margin is not None
                place = component.margins.index(axis.margin)  # levels come first, or a number
                there = component.points(fit.X[acting(fit, component)])[:, place]
                draw_rug(axes[0], axis, np.unique(there) if component.slots else there)
        _put_names(axes[0], fit, shown, places)

    if ax is not None:
        if len(plan) > 1:
            several = ", ".join(dict.fromkeys(component.name for component, _ in plan))
            raise ValueError(
                f"ax holds one panel; {several} would be {len(plan)}: name one effect, and with "
                "predictor= one predictor."
            )
        into([ax], *plan[0])
        return figure_of(ax)
    groups: dict[object, list[tuple[Component, list[int]]]] = {}
    for i, (component, places) in enumerate(plan):
        curve = component.by is not None and component.by.level and len(component.margins) == 1
        key = (component.term, *places) if overlay and curve and len(places) == 1 else i
        groups.setdefault(key, []).append((component, places))
    spans = [2 if _is_wide(fit, group[0][0]) else 1 for group in groups.values()]
    figure, axes = panels(spans, ncols, figsize)
    alike: dict[object, list[Axes]] = {}
    for group, row in zip(groups.values(), axes):
        for number, panel in enumerate(group):
            into(row, *panel, number)
        component = group[0][0]
        if len(group) > 1 and component.by is not None:
            put_title(row[0], component.term)
            name = str(fit.spec.encoder.readers[component.by.column].name)
            row[0].legend(title=name, fontsize="small", framealpha=0.7)
        if not _is_wide(fit, component) and (sharey or component.by is not None):
            alike.setdefault(sharey or (component.term, *group[0][1]), []).append(row[0])
    for same in alike.values():
        low, high = zip(*(each.get_ylim() for each in same))
        for each in same:
            each.set_ylim(min(low), max(high))
    return figure


def _components(fit: FittedGAM, terms: str | Iterable[str] | None) -> list[Component]:
    """Components by their names or by their terms' labels."""
    names = fit.spec.effect_names if terms is None else terms
    if not isinstance(names, Iterable):
        raise TypeError(f"terms must be names of effects; got {type(names).__name__}.")
    names = [names] if isinstance(names, str) else list(names)
    if not names:
        raise ValueError("terms names no effect, or the GAM has none; there is nothing to draw.")
    components: dict[str, Component] = {}
    for name in names:
        if name == fit.spec.intercept:
            raise ValueError("terms: the intercept is no effect of a column; see summary().")
        components |= {c.name: c for c in fit.spec.called(name)}
    return list(components.values())


def _predictors(fit: FittedGAM, predictor: str | None) -> list[int]:
    names = fit.spec.predictor_names
    if predictor is None:
        return list(range(len(names)))
    if predictor not in names or len(names) == 1:
        which = f"one of {', '.join(names)}" if len(names) > 1 else "None where there is only one"
        raise ValueError(f"predictor must be {which}; got {predictor!r}.")
    return [names.index(predictor)]


def _panels(
    fit: FittedGAM, components: list[Component], predictors: list[int]
) -> list[tuple[Component, list[int]]]:
    """A component and places among its predictors of each panel: one of them, or all."""
    plan = []
    for component in components:
        margins = component.margins
        entered = component.predictors_of(fit.num_predictors)
        places = [place for place, i in enumerate(entered) if i in predictors]
        crowded = margins[0].kind == "levels" and len(margins[0].nodes) > NAMED
        crowded |= bool(polygons_of(fit, component))
        if len(margins) > 1 or crowded or fit.spec.family.axes(""):
            plan += [(component, [place]) for place in places]
        elif places:
            plan.append((component, places))
    if not plan:
        names = ", ".join(component.name for component in components)
        raise ValueError(f"predictor: {names} has no part in it.")
    return plan


def _is_wide(fit: FittedGAM, component: Component) -> bool:
    """True if the standard error is drawn beside the estimate."""
    return is_map(component) or bool(polygons_of(fit, component))


def _put_names(ax: Axes, fit: FittedGAM, shown: View, places: list[int]) -> None:
    """The title, and what the axis of values is of."""
    predictor = places[0] if len(places) == 1 else None
    title, kind = shown.title(predictor), ""
    if predictor is not None:
        if kinds := fit.spec.family.axes(short(fit.spec.response)):
            kind = kinds[shown.component.predictors_of(fit.num_predictors)[predictor]]
        title = f"{title} [edf {shown.dof[predictor]:.1f}]"
    put_title(ax, title)
    against = f", against {shown.against}" if shown.against else ""
    ax.set_ylabel(_measured(fit, shown.fun, kind) + against)


def _measured(fit: FittedGAM, fun: Transform | None, kind: str) -> str:
    """What effects are measured in: of one predictor, or one ``kind`` of several, its scale."""
    if kind:
        if fun is np.exp and kind.startswith("log "):
            return f"ratio of {kind.removeprefix('log ')}"
        return f"partial effect on {kind}" + (", transformed" if fun is not None else "")
    family, several = fit.spec.family, fit.num_predictors > 1
    odds = family.name in ("bernoulli", "binomial") and getattr(family, "link", "") == "logit"
    hazard = family.name == "cox"
    if fun is np.exp and not several and (odds or hazard or family.log_link):
        return "odds ratio" if odds else "hazard ratio" if hazard else "ratio of means"
    if fun is not None or several:
        return "partial effect" + (", transformed" if fun is not None else "")
    if odds or hazard or family.log_link:
        return f"partial effect (log {'odds' if odds else 'hazard' if hazard else 'scale'})"
    identity = getattr(family, "link", "") == "identity" and fit.spec.response is not None
    return f"partial effect on {short(fit.spec.response)}" if identity else "partial effect"


# --- tables ---------------------------------------------------------------------------------------


def draw_table(
    ax: Axes,
    table: pd.DataFrame,
    along: Any,
    apart: Sequence[Any] = (),
    levels: bool = False,
) -> None:
    """Curves with their bands along a column, or levels, for each combination of other columns."""
    groups = list(table.groupby(list(apart), sort=False)) if apart else [((), table)]
    series = []
    for key, part in groups:
        part = part if levels else part.sort_values(along)
        ends = {"simultaneous": "_simultaneous", "pointwise": ""}
        bands = {
            gid: (part[f"lower{suffix}"].to_numpy(), part[f"upper{suffix}"].to_numpy())
            for gid, suffix in ends.items()
            if f"lower{suffix}" in part
        }
        series.append(Series(", ".join(map(str, key)), part["estimate"].to_numpy(), bands))
    values = part[along].to_numpy()
    axis = Axis(str(along), values, tuple(map(str, values)) if levels else None)
    title = ", ".join(map(str, apart))
    (draw_points if levels else draw_curves)(ax, axis, series, title)


_NAMES = ("class", "predictor")


def draw_partial_dependence(
    table: pd.DataFrame, *, ax: Axes | None = None, label: str = "expected response"
) -> Figure:
    """
    A curve with its pointwise band, and the simultaneous one behind it; levels with error bars.

    :param table: what :meth:`gpflow_gam.GAM.partial_dependence` returned of one column, or
        :meth:`gpflow_gam.GAM.effects` with ``scale="response"``; a curve for each class.
    :param ax: draw into this.
    :param label: of the vertical axis.
    :raises ValueError: a table of several columns, or none of averages.
    """
    missing = [name for name in NUMBERS if name not in table]
    columns = [name for name in table.columns if name not in (*NUMBERS, *_NAMES)]
    if missing or len(columns) != 1:
        raise ValueError(
            "table must be a partial dependence on one column, with its bands; got the columns "
            f"{', '.join(map(repr, table.columns))}."
        )
    ax, apart = own_axes(ax, (5.4, 3.6)), [name for name in _NAMES if name in table]
    draw_table(ax, table, columns[0], apart, table[columns[0]].dtype.kind not in "iufM")
    ax.set_ylabel(label)
    return figure_of(ax)


def draw_survival(
    table: pd.DataFrame, *, ax: Axes | None = None, labels: Sequence[str] | None = None
) -> Figure:
    """
    A curve with its band for each row: survival, or the incidence of each cause.

    :param table: what :meth:`gpflow_gam.GAM.survival` or
        :func:`gpflow_gam.cumulative_incidence` returned.
    :param ax: draw into this.
    :param labels: what rows are called; by default their numbers.
    :raises ValueError: another table, or not a label of its own for each row.
    """
    if missing := [name for name in ("row", "time", "estimate", "lower") if name not in table]:
        raise ValueError(f"table must be what GAM.survival() returned; it has no {missing[0]!r}.")
    rows = table["row"].unique()
    given = [*map(str, rows)] if labels is None else list(labels)
    if len(given) != len(rows):
        raise ValueError(f"labels must be {len(rows)}, one for each row; got {len(given)}.")
    if twice := [name for name in given if given.count(name) > 1]:
        raise ValueError(f"labels must differ; got {twice[0]!r} twice.")
    names = dict(zip(rows, given))
    ax, several = own_axes(ax, (5.4, 3.6)), "cause" in table
    called = table.assign(row=table["row"].map(names))
    draw_table(ax, called, "time", ["row", *["cause"] * several])
    if labels is not None and (legend := ax.get_legend()):
        legend.set_title("")  # "row" is not what they are
    ax.set_ylabel("cumulative incidence" if several else "survival probability")
    return figure_of(ax)
