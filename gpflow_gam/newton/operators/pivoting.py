"""Partial Cholesky factors of one kernel's matrix: of it whole where it is small, else compiled."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel

from .compiled import Compiled, is_small

_SMALLEST = 1e-9
"""Variance left, against the largest at the start, at which a factor is complete."""
_EQUAL = 1e-13
"""Variances left that differ by less, against the largest at the start, differ by rounding."""


class Pivoting:
    """
    The factor ``k(X, X) = P P' + R`` of at most M pivots, R >= 0 with zeros at the pivots.

    The next pivot is where most variance is left (Harbrecht, Peters & Schneider 2012), the first
    row of those that have as much but for rounding. A small matrix is made whole, for a loop in
    numpy; any other is never held: a ``tf.while_loop`` in one XLA program evaluates a column a
    pivot. It is compiled once for each combination of shapes, whatever the kernel's parameters.

    :param kernel: any GPflow kernel of one output.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self._compiled = Compiled(self._loop)

    @check_shapes("X: [N, D]", "diag: [N]", "return[0]: [M, N]", "return[1]: [M]", "return[2]: [N]")
    def __call__(
        self, X: tf.Tensor, diag: tf.Tensor, number: int
    ) -> tuple[AnyNDArray, AnyNDArray, AnyNDArray]:
        """
        :param X: inputs.
        :param diag: prior variances, white noise among them, in the precision of what is returned.
        :param number: of pivots, M, at most N.
        :return: P', zeros beyond the rank; the pivots in order, -1 beyond the rank; diag(R).
        """
        if is_small(X, X):
            K = tf.cast(self.kernel(X, X), diag.dtype)
            return _pivoted(K.numpy(), diag.numpy(), number)
        room = tf.zeros([number, X.shape[0]], diag.dtype)
        factor, pivots, left = self._compiled(X, diag, room)
        return factor.numpy(), pivots.numpy(), left.numpy()

    def _loop(
        self, X: tf.Tensor, diag: tf.Tensor, room: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        M, N = room.shape
        largest = tf.reduce_max(diag)

        def condition(
            j: tf.Tensor, left: tf.Tensor, factor: tf.Tensor, pivots: tf.Tensor
        ) -> tf.Tensor:
            # what is no number goes on, to be seen in the factor: a rank of nothing would hide it
            more = (left > _SMALLEST * largest) | tf.logical_not(tf.math.is_finite(left))
            return (j < M) & tf.reduce_any(more)

        def body(
            j: tf.Tensor, left: tf.Tensor, factor: tf.Tensor, pivots: tf.Tensor
        ) -> tuple[tf.Tensor, ...]:
            most = left >= tf.reduce_max(left) - _EQUAL * largest
            i = tf.argmax(tf.cast(most, tf.int32), output_type=tf.int32)
            column = tf.cast(self.kernel(X, tf.gather(X, [i])), left.dtype)[:, 0]
            column -= tf.linalg.matvec(factor, tf.gather(factor, i, axis=1), transpose_a=True)
            length = tf.sqrt(tf.gather(left, i))
            here = tf.range(N) == i
            row = tf.where(here, length, column / length)  # white noise is on the diagonal only
            nothing = tf.zeros_like(left)
            left = tf.where(here, nothing, tf.maximum(left - tf.square(row), nothing))
            factor = tf.tensor_scatter_nd_update(factor, [[j]], row[None])
            return j + 1, left, factor, tf.tensor_scatter_nd_update(pivots, [[j]], [i])

        start = (tf.constant(0), diag, room, tf.fill([M], -1))
        _, left, factor, pivots = tf.while_loop(condition, body, start, parallel_iterations=1)
        return factor, pivots, left


def _pivoted(
    K: AnyNDArray, diag: AnyNDArray, number: int
) -> tuple[AnyNDArray, AnyNDArray, AnyNDArray]:
    """The same of a matrix."""
    factor = np.zeros((number, len(K)), dtype=K.dtype)
    pivots = np.full(number, -1)
    left, largest = diag.copy(), np.max(diag)
    for j in range(number):
        if not np.any((left > _SMALLEST * largest) | ~np.isfinite(left)):
            break
        i = np.argmax(left >= np.max(left) - _EQUAL * largest)
        length = np.sqrt(left[i])
        row = (K[:, i] - factor[:j, i] @ factor[:j]) / length
        row[i] = length
        left = np.maximum(left - np.square(row), 0.0)
        left[i] = 0.0
        factor[j], pivots[j] = row, i
    return factor, pivots, left
