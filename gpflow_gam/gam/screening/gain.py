"""The evidence that one more component would add."""

from __future__ import annotations

import numpy as np
from check_shapes import check_shapes
from gpflow.base import AnyNDArray

_GRID = np.logspace(-3.0, 7.0, 41)
"""Variances that are tried, against the one at which the prior is worth as much as the data."""
_REFINEMENTS = 3


@check_shapes("scores: [R]", "curvatures: [R]")
def evidence_gain(scores: AnyNDArray, curvatures: AnyNDArray) -> tuple[float, float]:
    r"""
    How much the log evidence gains by a component whose variance is optimised.

    Beside a Gaussian model of precision P = (K + W^{-1})^{-1}, a component of covariance v B B'
    adds

    .. math:: \frac12 \sum_r \left[ \frac{v c_r^2}{1 + v \lambda_r} - \log(1 + v \lambda_r) \right]

    to the log evidence (Rasmussen & Williams 2006, eq. 2.30, and the matrix determinant lemma),
    where B'P B = Q diag(lambda) Q' and c = Q'B'alpha, alpha = P (y - m): its slope at v = 0 is the
    score test's statistic.

    :param scores: c_r, [R], one over the unit of the features.
    :param curvatures: lambda_r, [R], not negative, in the square of that unit.
    :return: the gain in nats, at least 0, and the variance v at which it is reached, 0 where no
        variance gains anything.
    """
    largest = float(np.max(curvatures, initial=0.0))
    if largest <= 0.0:
        return 0.0, 0.0
    grid = _GRID / largest
    for _ in range(1 + _REFINEMENTS):
        gains = _gains(grid, scores**2, curvatures)
        best = int(np.argmax(gains))
        gain, variance = float(gains[best]), float(grid[best])
        if gain <= 0.0:
            return 0.0, 0.0
        ends = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
        grid = np.append(np.geomspace(*ends, 16), variance)
        grid.sort()
    return gain, variance


def _gains(variances: AnyNDArray, squares: AnyNDArray, curvatures: AnyNDArray) -> AnyNDArray:
    """The gain at each of several variances, [V]."""
    shrinkage = 1.0 + variances[:, None] * curvatures
    terms = variances[:, None] * squares / shrinkage - np.log(shrinkage)
    gains: AnyNDArray = 0.5 * np.sum(terms, axis=1)
    return gains
