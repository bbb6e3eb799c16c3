"""The prior covariance of Q latent functions at the data, as an operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import gpflow
import tensorflow as tf
from check_shapes import check_shapes

from .latents import LatentKernels
from .products import KernelProduct

_CROSS_ENTRIES = 2**24
"""Entries of k(Xnew, X) that are held at a time."""
_WHITE_BLOCK = 64


class KernelOperator:
    """
    ``K = blockdiag_q k_q(X, X)`` by its products; nothing of size N^2 is ever held.

    A shared kernel is evaluated once for all latent functions and all right-hand sides.

    :param latents: the functions' kernels.
    :param X: inputs [N, D].
    :param products: of the kernels, where they are compiled already.
    """

    def __init__(
        self,
        latents: LatentKernels,
        X: tf.Tensor,
        products: Sequence[KernelProduct] | None = None,
    ) -> None:
        self.latents = latents
        self.X = X
        self.sweeps = 0.0
        """How often all kernel entries have been evaluated, parts of them counted as fractions."""
        self._products = products or [KernelProduct(k) for k in latents.kernels]
        self._noise = self._white()

    @property
    def num_latents(self) -> int:
        """Q."""
        return self.latents.num_latents

    @property
    def num_data(self) -> int:
        """N."""
        return int(self.X.shape[0])

    @check_shapes("V: [Q, N, R]", "return: [Q, N, R]")
    def product(self, V: tf.Tensor) -> tf.Tensor:
        """K V: one sweep, however many right-hand sides."""
        self.sweeps += 1.0
        out = self._apply(self.X, V)
        return out if self._noise is None else out + self._noise[..., None] * V

    @check_shapes("V: [Q, N, R]", "return: [Q, M, R]")
    def _apply(self, X1: tf.Tensor, V: tf.Tensor) -> tf.Tensor:
        Q, N, R = V.shape
        if self.latents.shared:
            flat = tf.reshape(tf.transpose(V, [1, 0, 2]), [N, Q * R])
            out = tf.reshape(self._products[0](X1, self.X, flat), [-1, Q, R])
            return tf.transpose(out, [1, 0, 2])
        return tf.stack([p(X1, self.X, V[q]) for q, p in enumerate(self._products)])

    def _white(self) -> tf.Tensor | None:
        """What k(X) has on its diagonal beyond k(X, X2) at X2 = X, [1 or Q, N]: white noise."""
        kernels = self.latents.kernels
        if not any(isinstance(m, gpflow.kernels.White) for k in kernels for m in k.submodules):
            return None
        starts = range(0, self.num_data, _WHITE_BLOCK)
        blocks = [self.X[i : i + _WHITE_BLOCK] for i in starts]
        pairs = [
            tf.concat([tf.linalg.diag_part(k(x, tf.identity(x))) for x in blocks], axis=0)
            for k in kernels
        ]
        return self.diag() - tf.stack(pairs)

    def diag(self) -> tf.Tensor:
        """Prior variances, [1, N] where the kernel is shared, [Q, N] otherwise."""
        return tf.stack([k(self.X, full_cov=False) for k in self.latents.kernels])

    @check_shapes("indices: [M]", "return: [K, N, M]")
    def columns(self, indices: tf.Tensor) -> tf.Tensor:
        """Columns of every kernel's matrix, K = 1 where it is shared: M / N of a sweep."""
        self.sweeps += float(indices.shape[0]) / self.num_data
        points = tf.gather(self.X, indices)
        found = tf.stack([k(self.X, points) for k in self.latents.kernels])
        if self._noise is None:
            return found
        hit = tf.one_hot(indices, self.num_data, axis=0, dtype=found.dtype)
        return found + self._noise[..., None] * hit


@check_shapes("Xnew: [M, D]", "X: [N, D]", "V: [Q, N, R]", "return: [Q, M, R]")
def cross_product(latents: LatentKernels, Xnew: tf.Tensor, X: tf.Tensor, V: tf.Tensor) -> tf.Tensor:
    """``k_q(Xnew, X) V_q``, a block of Xnew at a time, inside compiled functions as outside."""

    def block(x: tf.Tensor) -> tf.Tensor:
        if latents.shared:
            return tf.matmul(latents.kernels[0](x, X)[None], V)
        return tf.stack([tf.matmul(k(x, X), V[q]) for q, k in enumerate(latents.kernels)])

    return over_rows(block, Xnew, tf.shape(X)[0], axis=1)


def over_rows(
    block: Callable[[tf.Tensor], tf.Tensor], Xnew: tf.Tensor, num_columns: tf.Tensor, axis: int
) -> tf.Tensor:
    """``block(rows of Xnew)`` put together along ``axis``, as many rows at a time as fit."""
    rows = tf.maximum(1, _CROSS_ENTRIES // tf.maximum(num_columns, 1))
    number = tf.shape(Xnew)[0]
    if tf.executing_eagerly():
        step, whole = int(rows), int(number)
        if whole <= step:
            return block(Xnew)
        parts = [block(Xnew[i : i + step]) for i in range(0, whole, step)]
        return tf.concat(parts, axis=axis)

    def body(start: tf.Tensor, done: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        part = block(Xnew[start : start + rows])
        return start + rows, tf.concat([done, part], axis=axis)

    first = block(Xnew[:rows])
    shape = first.shape.as_list()
    shape[axis] = None
    _, found = tf.while_loop(
        lambda start, _: start < number,
        body,
        (rows, first),
        shape_invariants=(rows.shape, tf.TensorShape(shape)),
        parallel_iterations=1,
    )
    return found
