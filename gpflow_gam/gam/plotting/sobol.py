"""Sobol indices as bars, and how few of them carry a prediction."""

from __future__ import annotations

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray

from .figures import Axes, Figure, plt

_COLOURS = {
    "first": "#31688e",
    "total": "#b7c9d6",
    "interaction": "#c7622b",
    "share": "#31688e",
    "structural": "#b7c9d6",
}
_NAMES = {
    "first": "alone (first-order)",
    "total": "in all (total)",
    "interaction": "interactions",
    "share": "share",
    "structural": "own variance",
}


def draw_sobol(table: pd.DataFrame, *, ax: Axes | None = None, limit: int = 20) -> Figure:
    """
    Bars of Sobol indices with their intervals, the greatest first.

    Inputs have two bars, one over the other: what they do alone within what they do in all;
    interactions stand below. Of dependent inputs it draws components' shares, and their own
    variances behind.

    :param table: what :meth:`gpflow_gam.GAM.sobol` returned, of one predictor or class.
    :param ax: draw into this.
    :param limit: at most so many inputs, and interactions.
    :raises ValueError: a table of several predictors or classes, or none of indices.
    """
    _check(table)
    kinds = table.groupby("kind", sort=False)
    dependent = "share" in kinds.groups
    front, back = ("share", "structural") if dependent else ("first", "total")
    behind = kinds.get_group(back).set_index("effect")
    behind = behind.sort_values("estimate", ascending=False).head(limit)
    fore = kinds.get_group(front).set_index("effect").loc[behind.index]
    below = None
    if "interaction" in kinds.groups:
        below = kinds.get_group("interaction").set_index("effect")
        below = below.sort_values("estimate", ascending=False).head(limit)
    rows = len(behind) + (0 if below is None else len(below))
    figure = _figure(ax, (6.4, 1.2 + 0.3 * rows))
    axes = figure.axes[0] if ax is None else ax
    at = np.arange(len(behind), dtype=float)
    _bars(axes, at, behind, back, 0.8, 0.14)
    _bars(axes, at, fore, front, 0.4, -0.14)
    labels = list(behind.index)
    if below is not None and len(below):
        at = len(behind) + np.arange(len(below), dtype=float)
        _bars(axes, at, below, "interaction", 0.4, 0.0)
        axes.axhline(len(behind) - 0.5, color="0.8", linewidth=0.8)
        labels += list(below.index)
    axes.set_yticks(range(rows), labels)
    axes.set_ylim(rows - 0.4, -0.6)
    axes.axvline(0.0, color="0.4", linewidth=0.8)
    axes.set_xlabel("share of variance")
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure


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
    figure = _figure(ax, (5.6, 3.6))
    axes = figure.axes[0] if ax is None else ax
    axes.step(range(len(estimates) + 1), [0.0, *np.cumsum(estimates)], where="post", label=label)
    axes.set_xlabel("effects, the greatest first")
    axes.set_ylabel("cumulative Sobol index")
    axes.set_ylim(0.0, 1.03)
    axes.set_xlim(left=0.0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure


def _figure(ax: Axes | None, size: tuple[float, float]) -> Figure:
    if ax is not None:
        return ax.figure  # type: ignore[return-value]
    figure, _ = plt.subplots(figsize=size, layout="constrained")
    return figure


def _bars(
    ax: Axes, at: AnyNDArray, table: pd.DataFrame, kind: str, height: float, shift: float
) -> None:
    value = table["estimate"].to_numpy()
    ax.barh(at, value, height, color=_COLOURS[kind], label=_NAMES[kind])
    low, high = table["lower"].to_numpy(), table["upper"].to_numpy()
    ax.hlines(at + shift, low, high, color="0.15", linewidth=1.0)


def _check(table: pd.DataFrame) -> None:
    if not isinstance(table, pd.DataFrame) or not {"kind", "estimate"} <= set(table.columns):
        raise ValueError("table must be what GAM.sobol() or FunctionalANOVA.sobol() returned.")
    for several in ("predictor", "class"):
        if several in table and table[several].nunique() > 1:
            names = ", ".join(map(str, table[several].unique()))
            raise ValueError(f"table has several of {several}: {names}; choose the rows of one.")
