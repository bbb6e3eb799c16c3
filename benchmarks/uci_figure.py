"""The picture of ``uci.py``: what the greatest effects carry, and errors without the others."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import gpflow_gam as gg

UNITS = {"autompg": "RMSE", "breast": "error, %", "concrete": "MSE"}
TITLES = {"autompg": "autoMPG", "breast": "breast", "concrete": "concrete"}
CARRIED = 0.95
"""The share of the variance that the figure marks."""
COLOURS = ("#31688e", "#c7622b")
"""Of Sobol indices and of errors."""


def draw(effects: pd.DataFrame, path: Path) -> None:
    """
    Cumulative Sobol indices and errors against the number of effects, a column a data set.

    :param effects: of every fold, as :func:`greatest_effects` gives them, with the columns
        ``dataset`` and ``fold``.
    :param path: the file.
    """
    names = list(dict.fromkeys(effects["dataset"]))
    size = 0.4 + 3.0 * len(names), 5.0
    figure, axes = plt.subplots(
        2, len(names), figsize=size, sharex="col", squeeze=False, layout="constrained"
    )
    for (upper, lower), name in zip(axes.T, names):
        tables = [t for _, t in effects[effects["dataset"] == name].groupby("fold")]
        most = max(map(len, tables)) - 1
        thin = {"linewidth": 0.8, "alpha": 0.35}
        for table in tables:
            gg.plotting.draw_cumulative_sobol(table[table["kind"] != ""], ax=upper)
            upper.lines[-1].set(color=COLOURS[0], drawstyle="default", **thin)
            lower.plot(range(len(table)), table["error"], color=COLOURS[1], **thin)
        for ax in (upper, lower):
            ax.lines[0].set_label("a fold")
        carried = mean_of([t["estimate"].cumsum() for t in tables], most)
        error = mean_of([t["error"] for t in tables], most)
        enough = int(np.argmax(carried >= CARRIED))
        bold = {"marker": "o", "markersize": 3.0, "linewidth": 1.6, "label": "mean"}
        upper.plot(carried, color=COLOURS[0], **bold)
        lower.plot(error, color=COLOURS[1], **bold)
        for ax in (upper, lower):
            ax.axvline(enough, color="0.45", linewidth=0.8, linestyle=":", zorder=0)
        left = enough > most / 2
        upper.annotate(
            f"{enough} effects\ncarry {100 * CARRIED:.0f} %",
            (enough, 0.05),
            (-4 if left else 4, 0),
            textcoords="offset points",
            ha="right" if left else "left",
            fontsize=8,
        )
        upper.set_title(TITLES[name])
        upper.set_xlabel("")
        lower.set(xlabel="effects, the greatest first", ylabel=f"test {UNITS[name]}")
        lower.set(xlim=(0, most + 0.15), ylim=(0.0, None))
        lower.xaxis.get_major_locator().set_params(integer=True)
        lower.spines[["top", "right"]].set_visible(False)
    for ax in axes[0, 1:]:
        ax.set_ylabel("")
    axes[0, 0].legend(frameon=False, fontsize=8, loc="center right")
    axes[1, 0].legend(frameon=False, fontsize=8, loc="upper right")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def mean_of(curves: list[pd.Series], most: int) -> np.ndarray:
    """The mean over folds for 0 to ``most`` effects; a fold of fewer keeps its last value."""
    return np.mean([np.pad(c, (0, most + 1 - len(c)), mode="edge") for c in curves], axis=0)
