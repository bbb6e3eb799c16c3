"""Axes and panels of all drawings, and drawings of Sobol indices."""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from cycler import cycler
from gpflow.base import AnyNDArray
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

_WIDTHS = {1: 5.6, 2: 9.0, 3: 13.0}
_HEIGHT = 3.5
_USUAL = 6.4  # matplotlib's width of a figure: another one scales panels

STYLES: dict[str, dict[Any, Any]] = {
    "paper": {
        "figure.figsize": (3.6, 2.7),  # three columns of panels are a page wide
        "font.size": 7.0,
        "axes.linewidth": 0.6,
        "axes.spines.top": False,
        "axes.spines.right": False,
        # of Okabe & Ito, which colour-blind readers tell apart
        "axes.prop_cycle": cycler(
            color=["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
        ),
        "lines.linewidth": 1.1,
        "lines.markersize": 3.0,
        "legend.frameon": False,
        "xtick.major.width": 0.6,
        "ytick.major.width": 0.6,
    }
}
"""Settings of matplotlib, by names that ``style=`` takes."""


def styled(style: str | None) -> contextlib.AbstractContextManager[None]:
    """Draw in a style; None for matplotlib's present settings."""
    if style is not None and style not in STYLES:
        raise ValueError(f"style must be one of {', '.join(STYLES)}, or None; got {style!r}.")
    return plt.rc_context({} if style is None else STYLES[style])


def color_of(i: int) -> str:
    """A colour of the present style; ``"C0"`` would be that of the style it is saved in."""
    colors = plt.rcParams["axes.prop_cycle"].by_key()["color"]
    return to_hex(colors[i % len(colors)])


def panels(
    spans: Sequence[int], columns: int | None = None, size: tuple[float, float] | None = None
) -> tuple[Figure, list[list[Axes]]]:
    """A new figure with a list of axes for each panel."""
    if columns is not None and columns < max(spans):
        raise ValueError(f"ncols must be at least {max(spans)} for these effects; got {columns}.")
    columns = columns or _columns(spans)
    places = _pack(spans, columns)
    rows = 1 + max(row for row, _ in places)
    height = max(_HEIGHT * rows, 4.0)
    # wide enough for a colour bar's numbers to keep off the next panel's label
    scale = plt.rcParams["figure.figsize"][0] / _USUAL
    layout = ConstrainedLayoutEngine(w_pad=0.1 * scale, h_pad=0.08 * scale)
    size = size or (scale * _WIDTHS.get(columns, 4.2 * columns), scale * height)
    figure = plt.figure(figsize=size, layout=layout)
    grid = figure.add_gridspec(rows, columns)
    axes = [
        [figure.add_subplot(grid[row, column + i]) for i in range(span)]
        for span, (row, column) in zip(spans, places)
    ]
    return figure, axes


def _columns(spans: Sequence[int]) -> int:
    total = sum(spans)
    if min(spans) == 2 or total in (2, 4):
        return 2  # three columns would leave holes
    return min(total, 3)


def _pack(spans: Sequence[int], columns: int) -> list[tuple[int, int]]:
    """Row and column of each panel: the first row with room for it."""
    used: list[int] = []
    places = []
    for span in spans:
        row = next((r for r, u in enumerate(used) if u + span <= columns), len(used))
        if row == len(used):
            used.append(0)
        places.append((row, used[row]))
        used[row] += span
    return places


def figure_of(ax: Axes) -> Figure:
    """The whole figure that axes stand on."""
    figure = ax.figure
    return figure if isinstance(figure, Figure) else figure.figure  # of a subfigure


def own_axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    """Axes to draw into, given or new, without a frame."""
    if ax is None:
        _, ax = plt.subplots(figsize=size, layout="constrained")
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    return ax


def put_title(ax: Axes, text: str) -> None:
    """A title that keeps to its panel's width."""
    ax.set_title(textwrap.fill(text, 44), fontsize="medium")


def put_labels(ax: Axes, x: str, y: str, title: str) -> None:
    """Names of both axes, and a title."""
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    put_title(ax, title)


def clip_to(ax: Axes, low: float, high: float) -> None:
    """The vertical axis from ``low`` to ``high`` and a little room."""
    room = 0.05 * (high - low) or 0.05
    ax.set_ylim(low - room, high + room)


def faintness(number: int) -> float:
    """Opacity of each of many points."""
    return float(np.clip(8.0 / np.sqrt(max(number, 1)), 0.08, 0.6))


def thinned(values: AnyNDArray, limit: int) -> AnyNDArray:
    """At most ``limit`` of the values, evenly spread over their positions."""
    if len(values) <= limit:
        return values
    return values[np.linspace(0, len(values) - 1, limit).astype(int)]


def short(label: object, limit: int = 22) -> str:
    """A label as text that fits an axis."""
    text = str(label)
    return text if len(text) <= limit else text[: limit - 1] + "…"


# --- Sobol indices -------------------------------------------------------------------------------


_COLOURS = {
    "first": "#31688e",
    "total": "#b7c9d6",
    "interaction": "#c7622b",
    "share": "#31688e",
    "structural": "#b7c9d6",
}
_KINDS = {
    "first": "alone (first-order)",
    "total": "in all (total)",
    "interaction": "interactions",
    "share": "share",
    "structural": "own variance",
}


_BARS = 20  # of inputs, and of interactions


def draw_sobol(table: pd.DataFrame, *, ax: Axes | None = None) -> Figure:
    """
    Bars of Sobol indices with their credible intervals, the 20 greatest first.

    Inputs have two bars: what they do alone, and below it what they do in all; interactions stand
    last. Of dependent inputs it draws components' shares, and below them their own variances.

    :param table: what :meth:`gpflow_gam.GAM.sobol` returned, of one predictor or class.
    :param ax: draw into this.
    :raises ValueError: a table of several predictors or classes, or none of indices.
    """
    _check(table)
    kinds = table.groupby("kind", sort=False)
    dependent = "share" in kinds.groups
    front, back = ("share", "structural") if dependent else ("first", "total")
    behind = kinds.get_group(back).set_index("effect")
    behind = behind.sort_values("estimate", ascending=False).head(_BARS)
    fore = kinds.get_group(front).set_index("effect").loc[behind.index]
    below = None
    if "interaction" in kinds.groups:
        below = kinds.get_group("interaction").set_index("effect")
        below = below.sort_values("estimate", ascending=False).head(_BARS)
    rows = len(behind) + (0 if below is None else len(below))
    axes = own_axes(ax, (6.4, 1.2 + 0.3 * rows))
    at = np.arange(len(behind), dtype=float)
    _bars(axes, at - 0.2, fore, front)
    _bars(axes, at + 0.2, behind, back)
    labels = list(behind.index)
    if below is not None and len(below):
        at = len(behind) + np.arange(len(below), dtype=float)
        _bars(axes, at, below, "interaction")
        axes.axhline(len(behind) - 0.5, color="0.8", linewidth=0.8)
        labels += list(below.index)
    axes.set_yticks(range(rows), labels)
    axes.set_ylim(rows - 0.4, -0.6)
    axes.axvline(0.0, color="0.4", linewidth=0.8)
    axes.set_xlabel("share of variance")
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    return figure_of(axes)


def draw_cumulative_sobol(
    table: pd.DataFrame, *, ax: Axes | None = None, label: str | None = None
) -> Figure:
    """
    The share of variance that the most important effects carry together, against their number.

    :param table: what :meth:`gpflow_gam.GAM.sobol` returned, of independent inputs.
    :param ax: draw into this.
    :param label: of the line.
    :raises ValueError: a table of several predictors or classes, or none of indices.
    """
    _check(table)
    effects = table[table["kind"].isin(["first", "interaction"])]
    if not len(effects):
        raise ValueError("table has no first-order indices; give one with inputs='independent'.")
    estimates = np.sort(effects["estimate"].to_numpy())[::-1]
    axes = own_axes(ax, (5.6, 3.6))
    axes.step(range(len(estimates) + 1), [0.0, *np.cumsum(estimates)], where="post", label=label)
    axes.set_xlabel("effects, the greatest first")
    axes.set_ylabel("cumulative Sobol index")
    axes.set_ylim(0.0, 1.03)
    axes.set_xlim(left=0.0)
    return figure_of(axes)


def _bars(ax: Axes, at: AnyNDArray, table: pd.DataFrame, kind: str) -> None:
    value = table["estimate"].to_numpy()
    ax.barh(at, value, 0.4, color=_COLOURS[kind], label=_KINDS[kind])
    low, high = table["lower"].to_numpy(), table["upper"].to_numpy()
    ax.hlines(at, low, high, color="0.15", linewidth=1.0)


def _check(table: pd.DataFrame) -> None:
    if not isinstance(table, pd.DataFrame) or not {"kind", "estimate"} <= set(table.columns):
        raise ValueError("table must be what GAM.sobol() or FunctionalANOVA.sobol() returned.")
    for several in ("predictor", "class"):
        if several in table and table[several].nunique() > 1:
            names = ", ".join(map(str, table[several].unique()))
            raise ValueError(f"table has several of {several}: {names}; choose the rows of one.")
