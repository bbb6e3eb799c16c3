"""Matplotlib, if it is there, and how panels are laid out on a figure."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import numpy as np
from gpflow.base import AnyNDArray

try:
    import matplotlib.pyplot as plt
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap, ListedColormap
    from matplotlib.dates import ConciseDateFormatter
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
except ModuleNotFoundError as error:
    raise ImportError("plots need matplotlib: pip install 'gpflow_gam[plot]'.") from error

__all__ = ["Axes", "Colormap", "ConciseDateFormatter", "Figure", "ListedColormap", "plt"]
"""Names of matplotlib for the other modules: it is optional, and looked for here alone."""

_WIDTHS = {1: 5.6, 2: 9.0, 3: 13.0}
_HEIGHT = 3.5


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
    layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.08)
    size = size or (_WIDTHS.get(columns, 4.2 * columns), height)
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


def put_title(ax: Axes, text: str) -> None:
    """A title that keeps to its panel's width."""
    ax.set_title(textwrap.fill(text, 44), fontsize="medium")


def put_labels(ax: Axes, x: str, y: str, title: str) -> None:
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
