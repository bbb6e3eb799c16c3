"""Errors of Sobol indices against evaluations, a panel a function."""

from __future__ import annotations

import itertools
from pathlib import Path

import matplotlib
import pandas as pd
from estimators import METHODS, OURS
from functions import KINDS, Function

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.lines import Line2D

_COLOURS = {
    OURS: "#D55E00",
    "Saltelli": "#0072B2",
    "eFAST": "#009E73",
    "RBD-FAST": "#7F7F7F",
}
_MARKERS = {OURS: "o", "Saltelli": "s", "eFAST": "^", "RBD-FAST": "D"}
_LINES = {"first": "-", "total": "--"}


def draw(table: pd.DataFrame, functions: list[Function], folder: Path) -> Path:
    """
    Error against evaluations, a panel a function.

    :param table: medians.
    :return: the figure's path.
    """
    figure, axes = plt.subplots(
        1, len(functions), figsize=(5.2 * len(functions), 4.6), sharey=True, squeeze=False
    )
    for ax, function in zip(axes[0], functions):
        for method, kind in itertools.product(METHODS, KINDS):
            chosen = (table["function"] == function.name) & (table["method"] == method)
            own = table[chosen].reindex(columns=["evaluations", f"{kind} error"]).dropna()
            if own.empty:
                continue
            ax.loglog(
                *own.to_numpy().T,
                linestyle=_LINES[kind],
                marker=_MARKERS[method],
                color=_COLOURS[method],
                markerfacecolor=_COLOURS[method] if kind == "first" else "white",
                markersize=5,
                linewidth=2.0 if method == OURS else 1.3,
                zorder=3 if method == OURS else 2,
            )
        least = function.least_errors()["total"]
        if least > 1e-12:
            ax.axhline(least, color=_COLOURS[OURS], linestyle=":", linewidth=1.0)
            ax.annotate(
                "total, best second-order model",
                (1.0, least),
                xycoords=("axes fraction", "data"),
                xytext=(-4, -11),
                textcoords="offset points",
                ha="right",
                fontsize=8,
                color=_COLOURS[OURS],
            )
        ax.set_title(f"{function.name}, {function.dimension} inputs")
        ax.set_xlabel("function evaluations")
        ax.grid(True, which="major", linewidth=0.5, alpha=0.4)
        ax.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("mean absolute error of Sobol indices")
    handles = [
        Line2D([], [], color=_COLOURS[m], marker=_MARKERS[m], markersize=5, label=m)
        for m in METHODS
    ]
    handles += [
        Line2D(
            [],
            [],
            color="black",
            linestyle=style,
            marker="o",
            markersize=5,
            markerfacecolor="black" if kind == "first" else "white",
            label={"first": "first-order", "total": "total"}[kind],
        )
        for kind, style in _LINES.items()
    ]
    figure.tight_layout(rect=(0.0, 0.08, 1.0, 1.0))
    figure.legend(handles=handles, loc="lower center", ncol=len(handles), frameon=False)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "sobol.png"
    figure.savefig(path, dpi=200)
    plt.close(figure)
    return path
