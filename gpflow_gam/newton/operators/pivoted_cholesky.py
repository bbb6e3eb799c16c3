"""Partial Cholesky factors of covariance matrices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from .kernel_operator import KernelOperator


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

    def of_rows(self, indices: tf.Tensor, diag: tf.Tensor) -> PivotedCholesky:
        """
        The factor at some data, of the pivots up to the first that is not among them.

        :param indices: of the data [N'].
        :param diag: prior variances [K, N].
        """
        place = {int(row): at for at, row in enumerate(indices.numpy())} | {-1: -1}
        there = np.all(np.isin(self.pivots, list(place)), axis=0)
        number = len(there) if there.all() else int(np.argmin(there))
        known = self.first(number, diag)
        pivots = np.array([[place[int(row)] for row in own] for own in known.pivots], dtype=int)
        factor = tf.gather(known.factor, indices, axis=1)
        left = tf.gather(known.left, indices, axis=1)
        return PivotedCholesky(factor, pivots.reshape(known.pivots.shape), left)

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
    Factors of every kernel's matrix, each with pivots of its own: see :class:`Pivoting`.

    Costs ``number`` columns of the matrices and O(N M^2).

    :param operator: the covariance.
    :param number: M, at most N.
    """
    number = min(number, operator.num_data)
    parts = operator.pivoted(number)
    pivots = np.stack([p for _, p, _ in parts])
    rank = int(np.max(np.sum(pivots >= 0, axis=1)))
    factor = np.stack([f[:rank].T for f, _, _ in parts])
    left = np.stack([left for _, _, left in parts])
    return PivotedCholesky(tf.constant(factor), pivots[:, :rank], tf.constant(left))
