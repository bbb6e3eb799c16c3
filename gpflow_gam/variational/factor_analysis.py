"""A precision matrix as a block-diagonal matrix plus a low rank: factor analysis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from gpflow.base import AnyNDArray
from scipy.linalg import block_diag, cho_factor, cho_solve, solve_triangular

Blocks = list[AnyNDArray]
_TOLERANCE = 1e-5
"""Nats that no longer count."""


def factor_analysis(
    A: AnyNDArray,
    sizes: Sequence[int],
    rank: int,
    *,
    max_sweeps: int = 100,
) -> tuple[Blocks, AnyNDArray]:
    """
    The blocks D and the B [P, R] that minimise ``KL[N(0, (D + B B')^-1) || N(0, A^-1)]``.

    ``2 KL = tr(A Q^-1) + log|Q| + const`` with ``Q = D + B B'`` is the likelihood of factor
    analysis with A for the sample covariance and blocks for the specific variances. Given D, the
    best B is an eigendecomposition (Tipping & Bishop 1999); given B, an EM step improves D (Rubin
    & Thayer 1982). No sweep increases the KL. A sweep costs O(P^3).

    :param A: [P, P], symmetric positive definite.
    :param sizes: of the blocks, which follow each other.
    :param rank: the number of columns, R.
    :param max_sweeps: limit; one that lowers the KL by less than 1e-5 nats is the last.
    :return: D, one [M_c, M_c] a block, and B.
    """
    stops = np.cumsum(sizes)
    places = [slice(stop - size, stop) for stop, size in zip(stops, sizes)]
    D, previous = [A[p, p] for p in places], np.inf
    B = np.zeros((len(A), rank))
    for _ in range(max_sweeps):
        T = block_diag(*[np.linalg.cholesky(d) for d in D])
        half = solve_triangular(T, A, lower=True)
        whitened = solve_triangular(T, half.T, lower=True)
        # all of them: asked for a part, LAPACK may find fewer where many are equal
        values, vectors = np.linalg.eigh(0.5 * (whitened + whitened.T))
        largest = slice(len(A) - rank, None)
        B = (T @ vectors[:, largest]) * np.sqrt(np.maximum(values[largest] - 1.0, 0.0))
        root = cho_factor(block_diag(*D) + B @ B.T, lower=True)
        log_det = 2.0 * np.sum(np.log(np.diag(root[0])))
        objective = 0.5 * (np.trace(cho_solve(root, A)) + log_det)
        if previous - objective < _TOLERANCE:
            break
        previous = objective
        gain = cho_solve(root, B)  # the factors' conditional mean given v is gain' v
        second = np.eye(rank) - B.T @ gain + gain.T @ A @ gain
        # E[(v - B z)(v - B z)'], of which the M step takes the blocks
        cross = A @ gain
        D = [
            A[p, p] - cross[p] @ B[p].T - B[p] @ cross[p].T + B[p] @ second @ B[p].T for p in places
        ]
    return D, B
