"""Fewer points that stand for many."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from gpflow.base import AnyNDArray
from threadpoolctl import threadpool_limits

_MAX_ROWS = 20_000
"""Points that k-means sees."""
_SLIVER = 1e-12
"""Of the weight: what rounding leaves between ends that are equal."""
_SKEW = 1e-6
"""Moments below which a column is taken to be as it is the other way round."""


def weighted_quantiles(
    values: AnyNDArray, weights: AnyNDArray | None, levels: AnyNDArray | Sequence[float]
) -> AnyNDArray:
    """
    Quantiles of values, of which each counts by its weight; linear in between.

    A value of weight two is the value twice.

    :param values: [N].
    :param weights: [N]; ones by default.
    :param levels: of the distribution function, [Q].
    """
    distinct, inverse = np.unique(values, return_inverse=True)
    mass = np.bincount(inverse.ravel(), weights)
    middle = np.cumsum(mass) - 0.5 * mass
    return np.asarray(np.interp(np.asarray(levels) * mass.sum(), middle, distinct))


def bin_means(
    values: AnyNDArray, weights: AnyNDArray, number: int
) -> tuple[AnyNDArray, AnyNDArray]:
    """
    Means and weights of bins of equal weight.

    A value where a bin ends is in part in both: else rounding, or the column's sign, would decide.

    :param values: [N], ascending.
    :param weights: [N].
    :param number: of bins.
    """
    ends = np.cumsum(weights) / weights.sum()
    cuts = np.unique(np.concatenate([[0.0], ends, np.linspace(0.0, 1.0, number + 1)]))
    length = np.diff(cuts)
    kept = length > _SLIVER
    length, middle = length[kept], 0.5 * (cuts[1:] + cuts[:-1])[kept]
    own = values[np.minimum(np.searchsorted(ends, middle), len(values) - 1)]
    _, first, bins = np.unique(np.floor(number * middle), return_index=True, return_inverse=True)
    mass, origin = np.bincount(bins, length), own[first]
    # around a value of its own: a bin of a single one has it to the last digit
    return origin + np.bincount(bins, length * (own - origin[bins])) / mass, mass / mass.sum()


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

    location, scale = points.mean(axis=0), points.std(axis=0)
    scale = np.where(scale > 0.0, scale, 1.0)  # clusters must not depend on a column's unit
    standard = np.round((points - location) / scale, 6)  # nor ties between them on rounding
    signs = _orientation(standard, weights)  # nor on its sign
    standard = standard * signs
    order = np.lexsort(standard.T[::-1])[:: -(-len(points) // _MAX_ROWS)]
    standard, weights = standard[order], weights[order]
    search = KMeans(number, n_init=1, random_state=seed)
    with threadpool_limits(1):  # threads wait for each other far longer than they compute
        fitted = search.fit(standard, sample_weight=weights)
    mass = np.bincount(fitted.labels_, weights, minlength=number)
    centres = location + fitted.cluster_centers_ * signs * scale
    return centres[mass > 0.0], mass[mass > 0.0] / mass.sum()


def _orientation(standard: AnyNDArray, weights: AnyNDArray) -> AnyNDArray:
    """
    Signs [d] that turn columns the same way, whichever way they come.

    By the first of a column's odd moments that is not zero: its skewness, its covariances with
    columns that are turned already, and those with the squares of others.
    """
    turned, share = standard.copy(), weights / weights.sum()
    signs = np.ones(standard.shape[1])
    for i, x in enumerate(standard.T):
        others = np.delete(standard, i, axis=1)
        odd = np.column_stack([x**2, turned[:, :i], others**2])
        moments = (share * x) @ odd
        clear = moments[np.abs(moments) > _SKEW]
        if len(clear) and clear[0] < 0.0:
            signs[i] = -1.0
            turned[:, i] = -x
    return signs
