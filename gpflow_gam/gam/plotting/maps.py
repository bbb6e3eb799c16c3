"""Effects of two numbers as maps."""

from __future__ import annotations

import numpy as np
from gpflow.base import AnyNDArray
from scipy.spatial import cKDTree

from ..effects import applied
from .figures import Axes, Colormap, ListedColormap, faintness, figure_of, plt, put_title, thinned
from .views import View

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
