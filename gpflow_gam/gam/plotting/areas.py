"""Effects of areas as maps of their polygons."""

from __future__ import annotations

import numpy as np
from gpflow.base import AnyNDArray
from matplotlib.collections import PathCollection
from matplotlib.path import Path

from ..components import Component
from ..effects import applied
from ..fits import FittedGAM
from ..terms import MarkovField
from ..terms.markov import Polygons
from .figures import Axes, Colormap, figure_of, put_title
from .maps import error_colors
from .views import View


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
