"""Curves with bands."""

from __future__ import annotations

import numpy as np
from gpflow.base import AnyNDArray

from .figures import Axes, clip_to, faintness, plt, thinned
from .views import Axis, Series

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
