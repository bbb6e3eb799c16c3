"""Places of truths in their posteriors: how far from uniform their distribution may be, and is."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from typing import Any

import numpy as np

POINTS = np.linspace(0.0, 1.0, 101)[1:-1]
"""At which distributions of places are compared with uniform ones."""


def envelope(number: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """
    Where the empirical distribution of ``number`` uniform places stays, all along, 99 % of times.

    :return: the least and the greatest share at each of the points.
    """
    draws = rng.uniform(size=(2000, number))
    shares = np.stack([np.mean(draws <= p, axis=1) for p in POINTS], axis=1)
    tails = np.linspace(1e-4, 5e-3, 60)
    for tail in tails[::-1]:  # the widest joint band that is narrow enough
        lower, upper = np.quantile(shares, [tail, 1.0 - tail], axis=0)
        if np.mean(np.all((shares >= lower) & (shares <= upper), axis=1)) >= 0.99:
            break
    return lower, upper


def leaves(places: np.ndarray) -> bool:
    """Whether the distribution of places, [R], leaves the envelope of as many uniform ones."""
    lower, upper = envelope(len(places), np.random.default_rng(0))
    shares = np.mean(places[:, None] <= POINTS, axis=0)
    return bool(np.any((shares < lower) | (shares > upper)))


def panels(cases: Mapping[str, Sized], size: tuple[float, float], limit: float) -> tuple[Any, list]:
    """
    A figure of empirical distributions of places, less what uniform ones have: a panel a case.

    :param cases: by their titles, each of as many replicates as it is long.
    :param size: of a panel, in inches.
    :param limit: of the axes.
    :return: the figure, and axes on which the envelope of uniform places stands.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    columns = min(4, len(cases))
    height = -(-len(cases) // columns)
    figure, axes = plt.subplots(
        height, columns, figsize=(size[0] * columns, size[1] * height), squeeze=False, sharex=True,
        sharey=True, layout="constrained",
    )  # fmt: skip
    for axis in axes.ravel()[len(cases) :]:
        axis.set_visible(False)
    for axis, (name, result) in zip(axes.ravel(), cases.items()):
        lower, upper = envelope(len(result), np.random.default_rng(0))
        axis.fill_between(POINTS, lower - POINTS, upper - POINTS, color="0.85", lw=0)
        axis.set_title(f"{name} ({len(result)})", fontsize=8)
        axis.set_ylim(-limit, limit)
        axis.tick_params(labelsize=7)
    figure.supxlabel("place of the truth in its posterior", fontsize=9)
    figure.supylabel("share below, less that of uniform places", fontsize=9)
    return figure, list(axes.ravel())[: len(cases)]


def below(axis: Any, places: np.ndarray, label: str) -> None:
    """A line of one quantity's places, [R]."""
    axis.plot(POINTS, [np.mean(places <= p) - p for p in POINTS], lw=1.0, label=label)
