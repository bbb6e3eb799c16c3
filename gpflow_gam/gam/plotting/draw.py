"""The effects of a fitted GAM, a panel each: curves, levels, maps."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np
from gpflow.base import AnyNDArray
from matplotlib.collections import PathCollection
from matplotlib.path import Path
from scipy.spatial import cKDTree

from ...threads import one_blas_thread
from ..components import Component
from ..effects import applied
from ..effects.transform import Transform
from ..fits import FittedGAM
from ..terms import MarkovField
from ..terms.markov import Polygons
from .figures import (
    Axes,
    Colormap,
    Figure,
    ListedColormap,
    clip_to,
    faintness,
    figure_of,
    panels,
    plt,
    put_title,
    short,
    thinned,
)
from .residuals import acting, partial_residuals, working_residuals
from .views import Axis, Series, View, is_map, view

_TICKS = 500
_BANDED = 8
"""With more curves than these, bands hide one another."""
_NAMED = 16
"""With more curves than these, a legend hides them all."""


def draw_curves(ax: Axes, axis: Axis, series: list[Series], legend_title: str) -> None:
    """
    A curve with its band for each series.

    :param ax: draw into this.
    :param axis: the horizontal axis.
    :param series: the curves.
    :param legend_title: what tells them apart.
    """
    ax.axhline(series[0].shown(np.zeros(1))[0], color="0.6", linewidth=0.8, zorder=0)
    alpha = 0.3 if len(series) == 1 else 0.18
    for one, color in zip(series, _colors(len(series))):
        ax.plot(axis.values, one.shown(one.estimate), color=color, label=one.label or None)
        if len(series) > _BANDED:
            continue
        if one.simultaneous is not None:
            band(ax, axis.values, one, one.simultaneous, 0.5 * alpha, color, "simultaneous")
        band(ax, axis.values, one, one.pointwise, alpha, color, "pointwise")
    axis.write(ax.xaxis)
    ax.margins(x=0.02)
    if 1 < len(series) <= _NAMED:
        columns = 1 if len(series) <= 6 else 2
        ax.legend(title=legend_title or None, fontsize="small", ncols=columns, framealpha=0.7)


def band(
    ax: Axes, x: AnyNDArray, one: Series, width: float, alpha: float, color: object, gid: str
) -> None:
    """From the estimate minus to the estimate plus ``width`` standard errors."""
    lower, upper = one.limits(width)
    ax.fill_between(x, lower, upper, facecolor=color, alpha=alpha, linewidth=0.0, gid=gid)


def _colors(number: int) -> list[object]:
    if number <= _BANDED:
        return [f"C{i}" for i in range(number)]
    return list(plt.get_cmap("viridis")(np.linspace(0.0, 0.95, number)))


def draw_rug(ax: Axes, axis: Axis, values: AnyNDArray) -> None:
    """A tick at the bottom for each value of the data, 500 at most."""
    ticks = thinned(np.unique(axis.place(values)), _TICKS)
    ax.vlines(
        ticks, 0.0, 0.03, transform=ax.get_xaxis_transform(), color="0.2", linewidth=0.6,
        alpha=max(faintness(len(ticks)), 0.35), gid="rug",
    )  # fmt: skip


def draw_partial(ax: Axes, axis: Axis, x: AnyNDArray, partial: AnyNDArray, one: Series) -> None:
    """
    Partial residuals as faint points; a few wild ones fall outside, so that the curve stays seen.

    :param x: [N].
    :param partial: [N], NaN where there is none.
    :param one: the curve.
    """
    keep = np.isfinite(partial)
    x, partial = axis.place(x[keep]), one.shown(partial[keep])
    ax.plot(
        x, partial, ".", color="0.25", markersize=4.0, markeredgewidth=0.0,
        alpha=faintness(len(x)), zorder=1, gid="residuals", rasterized=len(x) > 2000,
    )  # fmt: skip
    width = one.simultaneous or one.pointwise
    zero = one.shown(np.zeros(1))
    everything = np.concatenate([*one.limits(width), _ends(partial), zero])
    clip_to(ax, float(everything.min()), float(everything.max()))


def _ends(values: AnyNDArray) -> AnyNDArray:
    """Where nearly all values are: their 1 % and 99 % quantiles, unless even those are far out."""
    if len(values) == 0:
        return values
    low, first, third, high = np.quantile(values, [0.01, 0.25, 0.75, 0.99])
    reach = 3.0 * (third - first)  # of normal values, 4.7 standard deviations from the median
    return np.array([max(low, first - reach), min(high, third + reach)])


NAMED = 40
"""With more levels than these, they are sorted and lose their names."""
_LISTED = 12
"""With more series than these, there is no legend."""


def draw_points(
    ax: Axes, axis: Axis, series: list[Series], legend_title: str, about_zero: bool = True
) -> None:
    """
    A point with its limits for each level and series.

    :param ax: draw into this.
    :param axis: the horizontal axis, of levels.
    :param series: side by side.
    :param legend_title: what tells them apart.
    :param about_zero: whether there is a line at zero.
    """
    names = axis.levels or ()
    number = len(names)
    if about_zero:
        ax.axhline(series[0].shown(np.zeros(1))[0], color="0.6", linewidth=0.8, zorder=0)
    order = np.argsort(series[0].estimate) if number > NAMED else np.arange(number)
    shifts = np.linspace(-0.25, 0.25, len(series)) if len(series) > 1 else np.zeros(1)
    size = 5.0 if number <= NAMED else 2.5
    for i, (one, shift) in enumerate(zip(series, shifts)):
        color, x = f"C{i}", np.arange(number) + shift
        estimate = one.shown(one.estimate)[order]
        if one.simultaneous is not None:
            ax.errorbar(
                x, estimate, _errors(one, one.simultaneous, order), fmt="none", ecolor=color,
                alpha=0.35, elinewidth=1.0, gid="simultaneous",
            )  # fmt: skip
        ax.errorbar(
            x, estimate, _errors(one, one.pointwise, order), fmt="o", color=color, markersize=size,
            elinewidth=1.6 if number <= NAMED else 0.7, label=one.label or None, gid="pointwise",
            capsize=size if number <= NAMED else 0.0,  # limits narrower than the point show, too
        )  # fmt: skip
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


def _errors(one: Series, width: float, order: AnyNDArray) -> AnyNDArray:
    """How far the limits are below and above the estimate, [2, n]."""
    estimate, (lower, upper) = one.shown(one.estimate), one.limits(width)
    return np.stack([estimate - lower, upper - estimate])[:, order]


def _legend(ax: Axes, series: list[Series], title: str) -> None:
    widest = max(len(one.label) for one in series) + 4
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
    if len(labels) > 12:
        ax.tick_params(axis="x", labelrotation=90, labelsize="small" if len(labels) < 25 else 6)
        return
    for text in ax.get_xticklabels():
        text.set(rotation=35, ha="right", rotation_mode="anchor")


_DOTS = 1000
TOO_FAR = 0.1
"""How far from the data a map is drawn, of the axes' lengths."""


def draw_estimate(
    ax: Axes, view: View, predictor: int, data: AnyNDArray, too_far: float | None = TOO_FAR
) -> None:
    """
    The estimate in colours around zero, with contour lines and where the data are.

    Zero is where there is no effect: one of a ``fun`` that is the exponential.

    :param ax: draw into this.
    :param view: of two numeric axes.
    :param predictor: which predictor.
    :param data: values of the two columns, [N, 2].
    :param too_far: as :func:`far_from`; what is so far is blank, and no colours are spent on it.
    """
    estimate, middle = view.surface(view.table.estimate[:, predictor]), 0.0
    if view.fun is not None:
        estimate, middle = applied(view.fun, estimate), float(applied(view.fun, np.zeros(1))[0])
    far = far_from(view, data, too_far)
    reach = float(np.abs(estimate - middle)[~far].max()) or 1.0
    _mesh(ax, view, estimate, "RdBu_r", middle - reach, middle + reach, data, far)
    edf = f"[edf {view.dof[predictor]:.1f}]"
    put_title(ax, f"{view.title(predictor)} {edf}")


def draw_error(
    ax: Axes, view: View, predictor: int, data: AnyNDArray, too_far: float | None = TOO_FAR
) -> None:
    """The standard error of the estimate on the predictor's scale, and where the data are."""
    se, far = view.surface(view.table.se[:, predictor]), far_from(view, data, too_far)
    _mesh(ax, view, se, error_colors(), 0.0, float(se[~far].max()) or 1.0, data, far)
    put_title(ax, view.error_title)


def far_from(view: View, data: AnyNDArray, too_far: float | None = TOO_FAR) -> AnyNDArray:
    """
    Which points of a map are far from all data, [n_1, n_2] truth values.

    The estimate is least sure there, and so often largest (mgcv's ``too.far``).

    :param view: of two numeric axes.
    :param data: values of the two columns, [N, 2]; none where they are not known.
    :param too_far: distance of a point from its nearest row, both axes of length one; None for no
        limit.
    """
    first, second = view.axes
    x, y = first.values, second.values
    if too_far is None or len(data) == 0:
        return np.zeros((len(x), len(y)), bool)
    low, span = np.array([x[0], y[0]]), np.array([x[-1] - x[0], y[-1] - y[0]])
    rows = np.column_stack([first.place(data[:, 0]), second.place(data[:, 1])])
    grid = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1).reshape(-1, 2)
    distance, _ = cKDTree((rows - low) / span).query((grid - low) / span)
    far: AnyNDArray = (distance > too_far).reshape(len(x), len(y))
    return far if not far.all() else np.zeros_like(far)


def error_colors() -> Colormap:
    """The colours of standard errors."""
    # its dark end would hide contours and data
    return ListedColormap(plt.get_cmap("YlOrBr")(np.linspace(0.0, 0.6, 256)))


def _mesh(
    ax: Axes,
    view: View,
    Z: AnyNDArray,
    cmap: str | Colormap,
    low: float,
    high: float,
    data: AnyNDArray,
    far: AnyNDArray,
) -> None:
    first, second = view.axes
    if first.margin.kind == "sos":  # longitude goes across
        first, second, Z, far, data = second, first, Z.T, far.T, data[:, ::-1]
    x, y = first.values, second.values
    mesh = ax.pcolormesh(
        x, y, Z.T, cmap=cmap, vmin=low, vmax=high, shading="gouraud", rasterized=True
    )
    if np.ptp(Z[~far]) > 1e-9 * (high - low):  # a flat surface has no contours
        lines = ax.contour(x, y, np.where(far, np.nan, Z).T, levels=6, colors="0.2", linewidths=0.7)
        ax.clabel(lines, fontsize="x-small")
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
    """The polygons of the areas whose effects a component is; none where there are none."""
    if component.form != "areas":
        return ()
    term = fit.spec.term(component.term)
    return (term.polygons or ()) if isinstance(term, MarkovField) else ()


def draw_area_estimate(ax: Axes, view: View, predictor: int, polygons: Polygons) -> None:
    """
    The estimate in colours around zero.

    :param ax: draw into this.
    :param view: of one axis, of areas.
    :param predictor: which predictor.
    :param polygons: those of the areas.
    """
    estimate, middle = view.table.estimate[:, predictor], 0.0
    if view.fun is not None:
        estimate, middle = applied(view.fun, estimate), float(applied(view.fun, np.zeros(1))[0])
    reach = float(np.abs(estimate - middle).max()) or 1.0
    _fill(ax, view, estimate, polygons, "RdBu_r", middle - reach, middle + reach)
    put_title(ax, f"{view.title(predictor)} [edf {view.dof[predictor]:.1f}]")


def draw_area_error(ax: Axes, view: View, predictor: int, polygons: Polygons) -> None:
    """The standard error of the estimate on the predictor's scale; areas without data hatched."""
    se = view.table.se[:, predictor]
    _fill(ax, view, se, polygons, error_colors(), 0.0, float(se.max()) or 1.0)
    put_title(ax, view.error_title)


def _fill(
    ax: Axes,
    view: View,
    values: AnyNDArray,
    polygons: Polygons,
    cmap: str | Colormap,
    low: float,
    high: float,
) -> None:
    (axis,) = view.axes
    place = {name: i for i, name in enumerate(axis.levels or ())}
    paths, shown, empty = [], [], []
    for area, rings in polygons:
        if str(area) not in place:  # a polygon of which neighbours= knows nothing
            continue
        i = place[str(area)]
        paths.append(Path.make_compound_path(*(Path(np.array(r), closed=False) for r in rings)))
        shown.append(values[i])
        empty.append(axis.margin.weights[i] == 0.0)
    filled = PathCollection(
        paths, array=np.array(shown), cmap=cmap, clim=(low, high), edgecolors="0.35",
        linewidths=0.5, gid="areas",
    )  # fmt: skip
    ax.add_collection(filled)
    if any(empty):
        bare = [p for p, e in zip(paths, empty) if e]
        hatched = PathCollection(bare, facecolors="none", edgecolors="0.35", linewidths=0.5)
        hatched.set(hatch="///", gid="without data")
        ax.add_collection(hatched)
    corners = np.concatenate([p.vertices for p in paths])
    ax.set_xlim(corners[:, 0].min(), corners[:, 0].max())
    ax.set_ylim(corners[:, 1].min(), corners[:, 1].max())
    ax.set_aspect("equal", adjustable="box")
    ax.set_xticks([])
    ax.set_yticks([])
    ax.set_xlabel(axis.name + (" (hatched: without data)" if any(empty) else ""))
    figure_of(ax).colorbar(filled, ax=ax)


@dataclasses.dataclass(frozen=True)
class _Options:
    level: float
    residuals: bool
    simultaneous: bool
    num_points: int | None
    rug: bool
    seed: int
    fun: Transform | None
    too_far: float | None


@dataclasses.dataclass(frozen=True)
class _Panel:
    component: Component
    predictors: list[int]
    """Places among the predictors that the component enters."""


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
    too_far: float | None = TOO_FAR,
) -> Figure:
    """
    Draw the effects, a panel each.

    Functions of a number are curves with bands; of two numbers maps of the estimate and, beside
    it, of its standard error, as are effects of areas whose polygons are known; of levels points
    with limits; of a number and levels a curve a level. Columns of a function after its second are
    held at their median or commonest level, as its title says. Several predictors share a panel
    where they can, and have one each where they cannot.

    :param fit: the fitted GAM.
    :param terms: names of effects, or labels of terms for all their effects (``"s(x):g"``); all
        effects by default.
    :param ax: draw one effect into this, a map without its standard error; a figure with
        ``layout="constrained"`` keeps labels apart.
    :param level: probability of the limits.
    :param residuals: adds partial residuals to functions of one number: see
        :func:`gpflow_gam.gam.plotting.partial_residuals`; the axis holds 98 % of them.
    :param simultaneous: adds limits that hold for the whole of each function at once.
    :param num_points: on each axis of numbers; by default 100 of a curve, 30 of a map.
    :param rug: ticks where the data are; of a ``by=`` level, only its own rows.
    :param seed: of the simulation behind simultaneous limits.
    :param predictor: one of several predictors; all by default.
    :param fun: a monotone function through which estimates, limits and residuals go, such as
        ``numpy.exp``: see :meth:`gpflow_gam.GAM.effects`. Standard errors of maps do not.
    :param too_far: maps are blank farther from all data than this share of the axes' lengths; None
        draws them to their corners.
    :return: a new figure, or the one that ``ax`` stands on.
    :raises ValueError: an unknown effect or predictor, or an option that cannot be, naming it.
    :raises TypeError: ``ax`` is no axes, or ``terms`` no names.
    """
    if ax is not None and not isinstance(ax, Axes):
        raise TypeError(f"ax must be matplotlib axes; got {type(ax).__name__}.")
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must be a probability between 0 and 1; got {level}.")
    if num_points is not None and num_points < 2:
        raise ValueError(f"num_points must be at least 2; got {num_points}.")
    if too_far is not None and not too_far > 0.0:
        raise ValueError(f"too_far must be positive, or None for no limit; got {too_far}.")
    every = _panels(fit, _components(fit, terms), _predictors(fit, predictor))
    if residuals:
        working_residuals(fit)  # raises where there are none
    options = _Options(level, residuals, simultaneous, num_points, rug, seed, fun, too_far)
    if ax is not None:
        if len(every) > 1:
            names = ", ".join(dict.fromkeys(p.component.name for p in every))
            raise ValueError(
                f"ax holds one panel; {names} would be {len(every)}: name one effect, and with "
                "predictor= one predictor."
            )
        _draw(fit, every[0], [ax], options)
        return figure_of(ax)
    figure, axes = panels([2 if _is_wide(fit, p.component) else 1 for p in every])
    for panel, places in zip(every, axes):
        _draw(fit, panel, places, options)
    return figure


def _components(fit: FittedGAM, terms: str | Iterable[str] | None) -> list[Component]:
    """Those called, or of the term called, ``terms``."""
    if terms is None:
        names = list(fit.spec.effect_names)
    elif isinstance(terms, str):
        names = [terms]
    elif isinstance(terms, Iterable):
        names = list(terms)
    else:
        raise TypeError(f"terms must be names of effects; got {type(terms).__name__}.")
    if not names:
        raise ValueError("terms names no effect, or the GAM has none; there is nothing to draw.")
    found: dict[str, Component] = {}
    for name in names:
        if name == fit.spec.intercept:
            raise ValueError("terms: the intercept is no effect of a column; see summary().")
        found |= {c.name: c for c in fit.spec.called(name)}
    return list(found.values())


def _predictors(fit: FittedGAM, predictor: str | None) -> list[int]:
    names = fit.spec.predictor_names
    if predictor is None:
        return list(range(len(names)))
    if predictor not in names or len(names) == 1:
        which = f"one of {', '.join(names)}" if len(names) > 1 else "None where there is only one"
        raise ValueError(f"predictor must be {which}; got {predictor!r}.")
    return [names.index(predictor)]


def _panels(fit: FittedGAM, components: list[Component], predictors: list[int]) -> list[_Panel]:
    """A panel for each predictor, or for all; those that a component does not enter have none."""
    every = []
    for component in components:
        margins = component.margins
        entered = component.predictors_of(fit.num_predictors)
        own = [at for at, i in enumerate(entered) if i in predictors]
        crowded = margins[0].kind == "levels" and len(margins[0].nodes) > NAMED
        crowded |= bool(polygons_of(fit, component))
        if len(margins) > 1 or crowded or fit.spec.family.axes(""):
            every += [_Panel(component, [at]) for at in own]
        elif own:
            every.append(_Panel(component, own))
    if not every:
        names = ", ".join(component.name for component in components)
        raise ValueError(f"predictor: {names} has no part in it.")
    return every


def _is_wide(fit: FittedGAM, component: Component) -> bool:
    """Whether it is a map of the estimate with one of its standard error beside it."""
    return is_map(component) or bool(polygons_of(fit, component))


def _draw(fit: FittedGAM, panel: _Panel, axes: list[Axes], options: _Options) -> None:
    component = panel.component
    what = view(fit, component, options.level, options.num_points, options.seed, options.fun)
    if is_map(component):
        data = np.zeros((0, 2))
        if fit.has_data:
            data = fit.X[acting(fit, component)][:, [m.column for m in component.margins[:2]]]
        (i,) = panel.predictors
        for ax, draw_map in zip(axes, (draw_estimate, draw_error)):
            draw_map(ax, what, i, data, options.too_far)
        return
    polygons = polygons_of(fit, component)
    if polygons:
        (i,) = panel.predictors
        for ax, draw_areas in zip(axes, (draw_area_estimate, draw_area_error)):
            draw_areas(ax, what, i, polygons)
        return
    (ax,) = axes
    _draw_series(fit, panel, what, ax, options)


def _draw_series(fit: FittedGAM, panel: _Panel, what: View, ax: Axes, options: _Options) -> None:
    axis, legend_title, series = what.series(panel.predictors, options.simultaneous)
    if axis.levels is not None:
        draw_points(ax, axis, series, legend_title, not what.component.carries_constant)
    else:
        draw_curves(ax, axis, series, legend_title)
        column = axis.margin.column
        if options.residuals and len(what.component.margins) == 1:
            partial = partial_residuals(fit, what.component.name)
            draw_partial(ax, axis, fit.X[:, column], partial, series[0])
        if options.rug and fit.has_data:
            draw_rug(ax, axis, np.asarray(fit.X[acting(fit, what.component), column]))
    one = panel.predictors[0] if len(panel.predictors) == 1 else None
    put_title(ax, what.title(one))
    ax.set_ylabel(what.component.name if one is None else what.label(one))
    measured = fit.spec.family.axes(str(fit.spec.response))
    if one is not None and measured:
        place = what.component.predictors_of(fit.num_predictors)[one]
        ax.set_ylabel(f"{measured[place]} [edf {what.dof[one]:.1f}]")
