"""Effects of levels as points with error bars."""

from __future__ import annotations

import numpy as np
from gpflow.base import AnyNDArray

from .figures import Axes, short
from .views import Axis, Series

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
