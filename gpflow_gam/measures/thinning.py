"""Fewer points that stand for many."""

from __future__ import annotations

import numpy as np
from gpflow.base import AnyNDArray

from .clusters import k_means

_MAX_ROWS = 20_000
"""Points that k-means sees."""


def bin_means(
    values: AnyNDArray, weights: AnyNDArray, number: int
) -> tuple[AnyNDArray, AnyNDArray]:
    """
    Means and weights of bins of about equal weight.

    :param values: [N], ascending.
    :param weights: [N].
    :param number: of bins.
    """
    middle = np.cumsum(weights) - 0.5 * weights
    bins = np.floor(number * middle / weights.sum()).astype(int)
    mass = np.bincount(bins, weights)
    totals = np.bincount(bins, weights * values)
    return totals[mass > 0.0] / mass[mass > 0.0], mass[mass > 0.0] / weights.sum()


def cluster_means(
    points: AnyNDArray, weights: AnyNDArray, number: int, seed: int
) -> tuple[AnyNDArray, AnyNDArray]:
    """
    Means and weights of k-means' clusters, found in columns of equal deviation.

    :param points: [N, d].
    :param weights: [N].
    :param number: of clusters.
    :param seed: of k-means.
    """
    stride = -(-len(points) // _MAX_ROWS)
    points, weights = points[::stride], weights[::stride]
    scale = points.std(axis=0)
    scale = np.where(scale > 0.0, scale, 1.0)  # clusters must not depend on a column's unit
    centres, labels = k_means(points / scale, weights, number, seed)
    mass = np.bincount(labels, weights, minlength=number)
    return (centres * scale)[mass > 0.0], mass[mass > 0.0] / mass.sum()
