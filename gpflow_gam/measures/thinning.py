"""Fewer points that stand for many."""

from __future__ import annotations

import numpy as np
from gpflow.base import AnyNDArray
from threadpoolctl import threadpool_limits

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
    from sklearn.cluster import KMeans  # dear to import: only where it is used

    stride = -(-len(points) // _MAX_ROWS)
    points, weights = points[::stride], weights[::stride]
    location, scale = points.mean(axis=0), points.std(axis=0)
    scale = np.where(scale > 0.0, scale, 1.0)  # clusters must not depend on a column's unit
    standard = np.round((points - location) / scale, 6)  # nor ties between them on rounding
    search = KMeans(number, n_init=1, random_state=seed)
    with threadpool_limits(1):  # threads wait for each other far longer than they compute
        fitted = search.fit(standard, sample_weight=weights)
    mass = np.bincount(fitted.labels_, weights, minlength=number)
    centres = location + fitted.cluster_centers_ * scale
    return centres[mass > 0.0], mass[mass > 0.0] / mass.sum()
