"""A component at all of its bins from its values at a few nodes."""

from __future__ import annotations

import dataclasses

import numpy as np
from gpflow.base import AnyNDArray
from scipy.linalg import solve_triangular


@dataclasses.dataclass(frozen=True)
class Interpolation:
    """
    ``f(points) ~ matrix f(points[nodes])`` for every function that is at least as smooth.

    :param nodes: which points, [J].
    :param matrix: [G, J]; None where it is the identity.
    """

    nodes: AnyNDArray
    matrix: AnyNDArray | None

    def dense(self) -> AnyNDArray:
        """The matrix [G, J], the identity too."""
        return np.eye(len(self.nodes)) if self.matrix is None else self.matrix


def identity(number: int) -> Interpolation:
    """Every point is a node."""
    return Interpolation(np.arange(number), None)


def choose_nodes(K: AnyNDArray, max_nodes: int, tolerance: float) -> AnyNDArray:
    """
    Points [J] between which functions of a covariance can be interpolated: pivots of its Cholesky
    decomposition.

    :param K: of G candidates, [G, G].
    :param max_nodes: at most so many.
    :param tolerance: variance that may be left open at a point.
    """
    return _pivoted(K, min(max_nodes, len(K)), tolerance)


def interpolation(nodes: AnyNDArray, among: AnyNDArray, towards: AnyNDArray) -> Interpolation:
    """
    The interpolation of a covariance's functions from nodes.

    :param nodes: which points they are, [J].
    :param among: their covariance, [J, J].
    :param towards: that with all points, [J, G].
    """
    root = np.linalg.cholesky(among + 1e-12 * np.trace(among) * np.eye(len(among)))
    half = solve_triangular(root, towards, lower=True)
    return Interpolation(nodes, solve_triangular(root.T, half, lower=False).T)


def _pivoted(K: AnyNDArray, limit: int, tolerance: float) -> AnyNDArray:
    """Pivots [J] (Harbrecht, Peters & Schneider 2012)."""
    left = np.diag(K).copy()
    factor = np.zeros((limit, len(K)))
    pivots: list[int] = []
    for j in range(limit):
        pivot = int(np.argmax(left))
        if left[pivot] <= tolerance:
            break
        column = K[pivot] - factor[:j, pivot] @ factor[:j]
        column /= np.sqrt(left[pivot])
        factor[j] = column
        pivots.append(pivot)
        left -= np.square(column)
        left[pivots] = 0.0
    return np.array(pivots, dtype=np.int64)
