"""Observed against predicted, in bins."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from gpflow.base import AnyNDArray

from .figures import Axes, put_title, short

_Z = 1.96
_NAMED = 10


class Bins(NamedTuple):
    """Means over bins of equal counts, [B] each, with 95 % limits of the observed one."""

    predicted: AnyNDArray
    observed: AnyNDArray
    lower: AnyNDArray
    upper: AnyNDArray


def binned(predicted: AnyNDArray, observed: AnyNDArray, shares: bool = False) -> Bins:
    """
    Mean response against mean prediction in up to ten bins of equal counts.

    Limits are normal ones for the mean, and Wilson's (1927) where responses are zeros and ones.

    :param predicted: [N].
    :param observed: [N].
    :param shares: whether the responses are zeros and ones.
    """
    order = np.argsort(predicted, kind="stable")
    number = int(np.clip(len(order) // 10, 1, 10))
    parts = np.array_split(order, number)
    n = np.array([len(p) for p in parts], dtype=float)
    x = np.array([predicted[p].mean() for p in parts])
    y = np.array([observed[p].mean() for p in parts])
    if shares:
        centre = (y + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
        half = _Z / (1 + _Z**2 / n) * np.sqrt(y * (1 - y) / n + _Z**2 / (4 * n**2))
        return Bins(x, y, centre - half, centre + half)
    half = _Z * np.array([observed[p].std() for p in parts]) / np.sqrt(n)
    return Bins(x, y, y - half, y + half)


def draw_bins(ax: Axes, bins: Bins, color: str = "C0", label: str | None = None) -> None:
    """Binned means with their limits, joined."""
    error = np.maximum([bins.observed - bins.lower, bins.upper - bins.observed], 0.0)
    ax.errorbar(
        bins.predicted, bins.observed, error, fmt="o-", color=color, markersize=4.0,
        linewidth=0.9, elinewidth=0.9, label=label, gid="calibration",
    )  # fmt: skip


def identity(ax: Axes) -> None:
    """Where observed equals predicted."""
    ax.axline((0.0, 0.0), slope=1.0, color="0.6", linewidth=0.8, zorder=0)


def draw_calibration(ax: Axes, predicted: AnyNDArray, observed: AnyNDArray) -> None:
    """Binned means of a number."""
    identity(ax)
    draw_bins(ax, binned(predicted, observed))
    ax.set_xlabel("fitted, mean of bin")
    ax.set_ylabel("observed, mean of bin")
    put_title(ax, "calibration")


def draw_reliability(
    ax: Axes, probabilities: AnyNDArray, codes: AnyNDArray, names: tuple[str, ...]
) -> None:
    """
    Shares of classes against their probabilities, a line a class.

    :param probabilities: [N, K].
    :param codes: the classes observed, [N].
    :param names: of the K classes.
    """
    identity(ax)
    for k, name in enumerate(names):
        bins = binned(probabilities[:, k], (codes == k).astype(float), shares=True)
        draw_bins(ax, bins, f"C{k}", short(name))
    if 1 < len(names) <= _NAMED:
        ax.legend(fontsize="small", framealpha=0.7)
    ax.set_xlim(-0.03, 1.03)
    ax.set_ylim(-0.03, 1.03)
    ax.set_xlabel("predicted probability")
    ax.set_ylabel("observed share")
    put_title(ax, "calibration")
