"""Partial dependence, and effects on the response's scale, as curves or levels with bands."""

from __future__ import annotations

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray

from .figures import Axes, Figure, plt

_NUMBERS = (
    "estimate", "se", "lower", "upper", "lower_simultaneous", "upper_simultaneous"
)  # fmt: skip
_NAMES = ("class", "predictor")


def draw_partial_dependence(
    table: pd.DataFrame, *, ax: Axes | None = None, label: str = "expected response"
) -> Figure:
    """
    A curve with its pointwise band, and the one for the whole curve behind it; levels with caps.

    :param table: what :meth:`gpflow_gam.GAM.partial_dependence` returned of one column, or
        :meth:`gpflow_gam.GAM.effects` with ``scale="response"``; a curve for each class.
    :param ax: draw into this.
    :param label: of the vertical axis.
    :raises ValueError: a table of several columns, or none of averages.
    """
    missing = [name for name in _NUMBERS if name not in table]
    axes = [name for name in table.columns if name not in (*_NUMBERS, *_NAMES)]
    if missing or len(axes) != 1:
        raise ValueError(
            "table must be a partial dependence on one column, with its limits; got the columns "
            f"{', '.join(map(repr, table.columns))}."
        )
    (column,) = axes
    if ax is None:
        _, ax = plt.subplots(figsize=(5.4, 3.6), layout="constrained")
    told = next((name for name in _NAMES if name in table), None)
    groups = [("", table)] if told is None else list(table.groupby(told, sort=False))
    numbers = table[column].dtype.kind in "iufM"
    for i, (name, own) in enumerate(groups):
        if numbers:
            own = own.sort_values(column)
            _curve(ax, own, own[column].to_numpy(), f"C{i}", str(name))
        else:
            shift = 0.15 * (i - 0.5 * (len(groups) - 1))
            _levels(ax, own, np.arange(len(own)) + shift, f"C{i}", str(name))
            ax.set_xticks(range(len(own)), [str(v) for v in own[column]])
    ax.set_xlabel(str(column))
    ax.set_ylabel(label)
    if told is not None:
        ax.legend(title=told, fontsize="small", framealpha=0.7)
    return ax.figure  # type: ignore[return-value]


def _curve(ax: Axes, own: pd.DataFrame, x: AnyNDArray, colour: str, name: str) -> None:
    ax.plot(x, own["estimate"], color=colour, label=name or None)
    for suffix, alpha, gid in (("_simultaneous", 0.12, "simultaneous"), ("", 0.25, "pointwise")):
        lower, upper = own[f"lower{suffix}"], own[f"upper{suffix}"]
        ax.fill_between(x, lower, upper, color=colour, alpha=alpha, linewidth=0.0, gid=gid)
    ax.margins(x=0.02)


def _levels(ax: Axes, own: pd.DataFrame, x: AnyNDArray, colour: str, name: str) -> None:
    estimate = own["estimate"].to_numpy()
    ends = np.abs(own[["lower", "upper"]].to_numpy().T - estimate)
    ax.errorbar(x, estimate, yerr=ends, fmt="o", color=colour, capsize=4.0, label=name or None)
    ax.margins(x=0.1)
