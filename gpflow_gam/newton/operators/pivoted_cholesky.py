"""Partial Cholesky factors of covariance matrices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from .kernel_operator import KernelOperator

_SMALLEST = 1e-9
"""Variance left, against the largest at the start, at which a factor is complete."""


@dataclass(frozen=True)
class PivotedCholesky:
    """``k_q(X, X) = P_q P_q' + R_q``, R_q >= 0 with zeros at the pivots."""

    factor: tf.Tensor
    """P [K, N, M]; K = 1 where the kernel is shared, and columns of zeros where a rank is less."""

    pivots: AnyNDArray
    """Rows that were chosen, in order, [K, M]; -1 beyond the rank."""

    left: tf.Tensor
    """diag(R_q) [K, N], not negative."""

    @property
    def rank(self) -> int:
        """M."""
        return int(self.factor.shape[2])

    def first(self, number: int, diag: tf.Tensor) -> PivotedCholesky:
        """
        The factor of fewer pivots: factors are nested.

        :param number: of pivots.
        :param diag: prior variances [K, N].
        """
        if number >= self.rank:
            return self
        factor = self.factor[:, :, :number]
        left = tf.maximum(diag - tf.reduce_sum(tf.square(factor), axis=2), 0.0)
        return PivotedCholesky(factor, self.pivots[:, :number], left)


def pivoted_cholesky(operator: KernelOperator, number: int) -> PivotedCholesky:
    """
    The next pivot is where most variance is left (Harbrecht, Peters & Schneider 2012).

    Costs ``number`` columns of the matrix and O(N M^2).

    :param operator: the covariance.
    :param number: M, at most N.
    """
    diag = operator.diag().numpy()
    size = operator.num_data
    number = min(number, size)
    found = np.zeros((len(diag), number, size), dtype=diag.dtype)
    pivots = np.full((len(diag), number), -1)
    left = diag.copy()
    for j in range(number):
        chosen = np.argmax(left, axis=1)
        for q, i in enumerate(chosen):
            if left[q, i] <= _SMALLEST * max(float(diag[q].max()), 1e-300):
                continue
            kernel = operator.latents.kernels[q]
            column = kernel(operator.X, operator.X[i : i + 1]).numpy()[:, 0].astype(diag.dtype)
            column[i] = diag[q, i]  # white noise is on the diagonal only
            row = column - found[q, :j, i] @ found[q, :j]
            row = row / np.sqrt(left[q, i])
            row[i] = np.sqrt(left[q, i])
            found[q, j] = row
            pivots[q, j] = i
            left[q] = np.maximum(left[q] - row**2, 0.0)
            left[q, i] = 0.0
        if np.all(pivots[:, j] < 0):
            found, pivots = found[:, :j], pivots[:, :j]
            break
    operator.sweeps += found.shape[1] / size
    factor = tf.constant(np.ascontiguousarray(np.swapaxes(found, 1, 2)))
    return PivotedCholesky(factor, pivots, tf.constant(left))
