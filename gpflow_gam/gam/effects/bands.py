"""Pointwise and simultaneous bands of jointly normal values."""

from __future__ import annotations

import functools

import numpy as np
from gpflow.base import AnyNDArray
from scipy.linalg import lapack
from scipy.stats import norm

from ...threads import one_blas_thread

_NUM_DRAWS = 4000
_FEW_DIRECTIONS = 40
"""Directions whose draws are cached from one band to the next: smooth functions have no more."""


def critical_values(covariance: AnyNDArray, level: float, seed: int) -> tuple[float, float]:
    """
    Half-widths of a band in standard errors, for each point alone and for all points together.

    The second is the ``level`` quantile of ``max_n |z_n| / sd(z_n)`` for ``z ~ N(0, covariance)``,
    by simulation (Ruppert, Wand & Carroll 2003, section 6.5).
    """
    pointwise = float(norm.ppf(0.5 + 0.5 * level))
    deviations = max_deviations(covariance, seed)
    if len(deviations) == 0:
        return pointwise, pointwise
    return pointwise, max(pointwise, float(np.quantile(deviations, level)))


def simultaneous_bands(draws: AnyNDArray, level: float) -> tuple[AnyNDArray, AnyNDArray]:
    """
    Ends of the band in which a whole draw lies with probability ``level``.

    By ranks (Besag, Green, Higdon & Mengersen 1995, section 6.3): as far in from the extremes, in
    draws and the same at every point, as that share of them allows. Monotone functions of the draws
    give the functions of the ends.
    """
    S = len(draws)
    flat = draws.reshape(S, draws.shape[1], -1)
    ordered = np.sort(flat, axis=0)
    varies = ordered[-1] > ordered[0]
    ranks = np.argsort(np.argsort(flat, axis=0), axis=0) + 1
    farthest = np.where(varies, np.maximum(ranks, S + 1 - ranks), 0).max(axis=1)  # [S, K]
    least = np.sort(farthest, axis=0)[int(np.ceil(level * S)) - 1]
    k = np.broadcast_to(np.maximum(least, (S + 1) // 2), flat.shape[1:])[None]
    lower = np.take_along_axis(ordered, S - k, axis=0)[0]
    upper = np.take_along_axis(ordered, k - 1, axis=0)[0]
    return lower.reshape(draws.shape[1:]), upper.reshape(draws.shape[1:])


def max_deviations(covariance: AnyNDArray, seed: int) -> AnyNDArray:
    """Draws of ``max_n |z_n| / sd(z_n)``; none where no value varies."""
    sd = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    alive = sd > 1e-6 * max(sd.max(initial=0.0), 1e-300)
    if not alive.any():
        return np.zeros(0)
    correlation = covariance[np.ix_(alive, alive)] / np.outer(sd[alive], sd[alive])
    with one_blas_thread():
        root = _root(correlation)
        rank = root.shape[1]
        known = rank <= _FEW_DIRECTIONS
        z = _few_directions(seed)[:rank] if known else _directions(rank, seed)
        # a simulated quantile has no more digits than single precision
        draws = root.astype(np.float32) @ z
    deviations: AnyNDArray = np.maximum(draws.max(axis=0), -draws.min(axis=0)).astype(float)
    return deviations


def normal_draws(covariance: AnyNDArray, num_samples: int, seed: int) -> AnyNDArray:
    """Draws [S, N] from N(0, covariance), which may be singular."""
    with one_blas_thread():
        root = _root(covariance)
        draws: AnyNDArray = (root @ _standard_normal(root.shape[1], num_samples, seed)).T
    return draws


def _root(covariance: AnyNDArray) -> AnyNDArray:
    """``R`` [N, rank] with ``R R'`` the covariance."""
    largest = float(np.max(np.diag(covariance)))
    # a pivoted Cholesky decomposition stops at the rank, of which smooth functions have little
    factor, pivots, rank, _ = lapack.dpstrf(covariance, tol=1e-12 * largest, lower=1)
    root = np.zeros((len(covariance), rank))
    root[pivots - 1] = np.tril(factor)[:, :rank]
    return root


def _standard_normal(rank: int, num_samples: int, seed: int) -> AnyNDArray:
    """Direction by direction, so that one more at the end, where rounding decides, changes none."""
    return np.random.default_rng(seed).standard_normal((rank, num_samples))


@functools.lru_cache(maxsize=2)
def _few_directions(seed: int) -> AnyNDArray:
    return _directions(_FEW_DIRECTIONS, seed)


def _directions(rank: int, seed: int) -> AnyNDArray:
    result: AnyNDArray = _standard_normal(rank, _NUM_DRAWS, seed).astype(np.float32)
    return result
