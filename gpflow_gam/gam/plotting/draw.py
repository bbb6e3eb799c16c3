"""The effects of a fitted GAM, a panel each."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np

from ...threads import one_blas_thread
from ..components import Component
from ..effects.transform import Transform
from ..fits import FittedGAM
from .areas import draw_area_error, draw_area_estimate, polygons_of
from .curves import draw_curves, draw_partial, draw_rug
from .figures import Axes, Figure, figure_of, panels, put_title
from .maps import TOO_FAR, draw_error, draw_estimate
from .points import NAMED, draw_points
from .residuals import acting, partial_residuals, working_residuals
from .views import View, is_map, view


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
