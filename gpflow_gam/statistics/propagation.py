"""Moments of Gaussians on which linear inequalities are imposed, by expectation propagation."""

from __future__ import annotations

import dataclasses

import numpy as np
from gpflow.base import AnyNDArray
from scipy.special import log_ndtr

_MAX_SWEEPS = 100
_TOLERANCE = 1e-6
"""Of a sweep: the largest change of a mean or deviation against the deviation."""
_FAR = -25.0
"""Deviations below zero at which an asymptotic series has more digits than the formula."""


@dataclasses.dataclass(frozen=True)
class Propagated:
    """
    Gaussian factors ``exp(shift d - precision d^2 / 2)`` that stand for ``d >= 0``.

    :param precision: [n].
    :param shift: [n].
    :param log_mass: about the logarithm of the probability of all inequalities.
    :param correction: what they add to an ELBO, at the Gaussian that they give: the logarithms of
        the factors' expectations exactly, less what KL[q || p] has of the sites.
    """

    precision: AnyNDArray
    shift: AnyNDArray
    log_mass: float
    correction: float


def propagate(
    mean: AnyNDArray, covariance: AnyNDArray, start: Propagated | None = None
) -> Propagated:
    """
    The sites of ``d >= 0`` for d ~ N(mean, covariance) (Minka 2001; Cunningham, Hennig &
    Lacoste-Julien 2011 for polyhedra; Riihimaki & Vehtari 2010 for monotone functions).

    At its fixed point the Gaussian with the sites has the mean and variance of each d that the
    inequality on it gives to what the others leave, so that all of its means are positive.

    :param mean: [n].
    :param covariance: [n, n].
    :param start: sites to start from.
    """
    n = len(mean)
    precision, shift = np.zeros(n), np.zeros(n)
    if start is not None:
        precision, shift = start.precision.copy(), start.shift.copy()
    S, m, log_det = _with_sites(mean, covariance, precision, shift)
    for _ in range(_MAX_SWEEPS):
        was, spread = m.copy(), np.sqrt(np.diag(S))
        for i in range(n):
            v = S[i, i]
            left, at = _cavity(v, m[i], precision[i], shift[i])
            if not left > 0.0:
                continue
            sd = np.sqrt(left)
            move, share = _truncated(at / sd)
            new_precision = max(1.0 / (left * share) - 1.0 / left, 0.0)
            new_shift = (at + sd * move) / (left * share) - at / left
            step, push = new_precision - precision[i], new_shift - shift[i]
            column = S[:, i].copy()
            scale = 1.0 + step * v
            m = m + column * ((push - step * m[i]) / scale)
            S -= np.outer(column * (step / scale), column)
            precision[i], shift[i] = new_precision, new_shift
        S, m, log_det = _with_sites(mean, covariance, precision, shift)
        now = np.sqrt(np.diag(S))
        if np.max(np.abs(m - was) + np.abs(now - spread)) / np.max(now) < _TOLERANCE:
            break
    return _summed(mean, S, m, log_det, precision, shift)


def _with_sites(
    mean: AnyNDArray, covariance: AnyNDArray, precision: AnyNDArray, shift: AnyNDArray
) -> tuple[AnyNDArray, AnyNDArray, float]:
    """Covariance and mean with sites, and the log-determinant of what they change."""
    half = np.sqrt(precision)
    B = np.eye(len(mean)) + half[:, None] * covariance * half
    root = np.linalg.cholesky(B)
    V = np.linalg.solve(root, half[:, None] * covariance)
    S = covariance - V.T @ V
    m = mean + S @ (shift - precision * mean)
    return S, m, float(2.0 * np.log(np.diag(root)).sum())


def _cavity(v: float, m: float, precision: float, shift: float) -> tuple[float, float]:
    """Variance and mean of one d without its site."""
    left = v / (1.0 - precision * v) if precision * v < 1.0 else -1.0
    return left, left * (m / v - shift)


def _truncated(z: float) -> tuple[float, float]:
    """Of N(z, 1) given that it is positive: how far the mean moves, and its variance."""
    if z < _FAR:
        s = 1.0 / (z * z)
        return -z * (1.0 + s * (1.0 - s * (2.0 - 10.0 * s))), s * (1.0 - s * (6.0 - 50.0 * s))
    move = float(np.exp(-0.5 * z * z - 0.5 * np.log(2.0 * np.pi) - log_ndtr(z)))
    return move, 1.0 - move * (z + move)


def _summed(
    mean: AnyNDArray,
    S: AnyNDArray,
    m: AnyNDArray,
    log_det: float,
    precision: AnyNDArray,
    shift: AnyNDArray,
) -> Propagated:
    v = np.diag(S)
    left = v / np.maximum(1.0 - precision * v, 1e-12)
    at = left * (m / v - shift)
    log_z = log_ndtr(at / np.sqrt(left))
    # log of the integral of cavity times site
    own = 0.5 * np.log(v / left) + 0.5 * (np.square(m) / v - np.square(at) / left)
    expected = shift * m - 0.5 * precision * (v + np.square(m))
    # log of the integral of N(mean, covariance) times all sites
    inside = -0.5 * log_det + 0.5 * float(
        shift @ m + mean @ (shift - precision * mean) - (precision * mean) @ (m - mean)
    )
    return Propagated(
        precision,
        shift,
        inside + float(np.sum(log_z - own)),
        float(np.sum(log_z - own + expected)),
    )
