"""Effects of two numbers as maps."""

from __future__ import annotations

import numpy as np
from gpflow.base import AnyNDArray

from ..effects import applied
from .figures import Axes, Colormap, ListedColormap, faintness, figure_of, plt, put_title, thinned
from .views import View

_DOTS = 1000


def draw_estimate(ax: Axes, view: View, predictor: int, data: AnyNDArray) -> None:
    """
    The estimate in colours around zero, with contour lines and where the data are.

    Zero is where there is no effect: one of a ``fun`` that is the exponential.

    :param ax: draw into this.
    :param view: of two numeric axes.
    :param predictor: which predictor.
    :param data: values of the two columns, [N, 2].
    """
    estimate, middle = view.surface(view.table.estimate[:, predictor]), 0.0
    if view.fun is not None:
        estimate, middle = applied(view.fun, estimate), float(applied(view.fun, np.zeros(1))[0])
    reach = float(np.abs(estimate - middle).max()) or 1.0
    _mesh(ax, view, estimate, "RdBu_r", middle - reach, middle + reach, data)
    edf = f"[edf {view.dof[predictor]:.1f}]"
    put_title(ax, f"{view.title(predictor)} {edf}")


def draw_error(ax: Axes, view: View, predictor: int, data: AnyNDArray) -> None:
    """The standard error of the estimate on the predictor's scale, and where the data are."""
    se = view.surface(view.table.se[:, predictor])
    _mesh(ax, view, se, _error_colors(), 0.0, float(se.max()) or 1.0, data)
    put_title(ax, "standard error")


def _error_colors() -> Colormap:
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
) -> None:
    first, second = view.axes
    x, y = first.values, second.values
    mesh = ax.pcolormesh(
        x, y, Z.T, cmap=cmap, vmin=low, vmax=high, shading="gouraud", rasterized=True
    )
    if np.ptp(Z) > 1e-9 * (high - low):  # a flat surface has no contours
        lines = ax.contour(x, y, Z.T, levels=6, colors="0.2", linewidths=0.7)
        ax.clabel(lines, fontsize="x-small")
    dots = thinned(np.column_stack([first.place(data[:, 0]), second.place(data[:, 1])]), _DOTS)
    ax.plot(
        dots[:, 0], dots[:, 1], ".", color="k", markersize=2.5, markeredgewidth=0.0,
        alpha=faintness(len(dots)), gid="data",
    )  # fmt: skip
    ax.set_xlabel(first.name)
    ax.set_ylabel(second.name)
    ax.set_xlim(x[0], x[-1])
    ax.set_ylim(y[0], y[-1])
    figure_of(ax).colorbar(mesh, ax=ax)
