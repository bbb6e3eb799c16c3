"""The prior covariance of Q latent functions at the data, as an operator."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray

from .latents import LatentKernels
from .pivoting import Pivoting
from .products import KernelProduct

_CROSS_ENTRIES = 2**24
"""Entries of k(Xnew, X) that are held at a time."""
_WHITE_BLOCK = 64
_AT_ONCE: ContextVar[bool] = ContextVar("at_once", default=False)


@dataclass(frozen=True)
class KernelPrograms:
    """What is compiled of kernels, whatever the values of their parameters."""

    products: Sequence[KernelProduct]
    """Of a kernel's matrix with vectors, one a kernel."""

    pivotings: Sequence[Pivoting]
    """Partial Cholesky factors, one a kernel."""

    solvers: dict[Hashable, Callable[..., Any]] = field(default_factory=dict)
    """What solvers have compiled of products with these kernels, by what tells it apart."""

    @classmethod
    def of(cls, latents: LatentKernels) -> KernelPrograms:
        """
        Nothing is compiled yet.

        :param latents: whose kernels they are of.
        """
        kernels = latents.kernels
        return cls([KernelProduct(k) for k in kernels], [Pivoting(k) for k in kernels])


class KernelOperator:
    """
    ``K = blockdiag_q k_q(X, X)`` by its products; nothing of size N^2 is ever held.

    A shared kernel is evaluated once for all latent functions and all right-hand sides. Kernels are
    evaluated in the precision of X. All that is made of their entries is in double precision: the
    systems of Newton's method are beyond single precision where data are many or noise is little.

    :param latents: the functions' kernels.
    :param X: inputs [N, D].
    :param programs: of the kernels, where there are some already.
    """

    def __init__(
        self,
        latents: LatentKernels,
        X: tf.Tensor,
        programs: KernelPrograms | None = None,
    ) -> None:
        self.latents = latents
        self.X = X
        self.sweeps = 0.0
        """How often all kernel entries have been evaluated, parts of them counted as fractions."""
        self._programs = programs or KernelPrograms.of(latents)
        self._noise = self._white()

    def renewed(self) -> KernelOperator:
        """The same at the present values of parameters; white noise is taken when it is made."""
        return KernelOperator(self.latents, self.X, self._programs)

    @property
    def tensors(self) -> tuple[tf.Tensor, ...]:
        """What it holds beside kernels: the inputs, and white noise where there is any."""
        return (self.X,) if self._noise is None else (self.X, self._noise)

    def of_tensors(self, X: tf.Tensor, noise: tf.Tensor | None = None) -> KernelOperator:
        """
        The same of other :attr:`tensors`, those of a function that is being compiled.

        :param X: inputs, [N, D].
        :param noise: white, added to the diagonal, where there is any, [Q, N] or [1, N].
        """
        other = copy.copy(self)
        other.X, other._noise, other.sweeps = X, noise, 0.0
        return other

    @property
    def compiled(self) -> dict[Hashable, Callable[..., Any]]:
        """See :attr:`KernelPrograms.solvers`: for all operators of these programs."""
        return self._programs.solvers

    dtype = tf.float64
    """Of products, columns and whatever is made of them."""

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
        """
        K V: one sweep, however many right-hand sides.

        :param V: [Q, N, R].
        """
        self.sweeps += 1.0
        out = self._apply(self.X, V)
        return out if self._noise is None else out + tf.cast(self._noise[..., None], V.dtype) * V

    @check_shapes("V: [Q, N, R]", "return: [Q, N, R]")
    def rounded_product(self, V: tf.Tensor) -> tf.Tensor:
        """
        K V, multiplied and summed in the precision of X: cheaper where that is single.

        :param V: [Q, N, R].
        """
        return tf.cast(self.product(tf.cast(V, self.X.dtype)), self.dtype)

    @check_shapes("indices: [M]")
    def of_rows(self, indices: tf.Tensor) -> KernelOperator:
        """
        The same of some data alone.

        :param indices: which data, [M].
        """
        return KernelOperator(self.latents, tf.gather(self.X, indices), self._programs)

    @check_shapes("indices: [M]", "V: [Q, M, R]", "return: [Q, N, R]")
    def product_of_rows(self, indices: tf.Tensor, V: tf.Tensor) -> tf.Tensor:
        """
        K V for V that is zero but at some data: M / N of a sweep.

        :param indices: the data at which V is not zero, [M].
        :param V: its values there, [Q, M, R].
        """
        self.sweeps += float(indices.shape[0]) / self.num_data
        out = self.of_rows(indices)._apply(self.X, V)
        if self._noise is None:
            return out
        return out + self._noise[..., None] * self.spread(indices, V)

    @check_shapes("indices: [M]", "V: [Q, N, R]", "return: [Q, M, R]")
    def product_at_rows(self, indices: tf.Tensor, V: tf.Tensor) -> tf.Tensor:
        """
        K V at some data: M / N of a sweep.

        :param indices: the data at which it is asked for, [M].
        :param V: [Q, N, R].
        """
        self.sweeps += float(indices.shape[0]) / self.num_data
        out = self._apply(tf.gather(self.X, indices), V)
        if self._noise is None:
            return out
        noise = tf.gather(self._noise, indices, axis=1)
        return out + noise[..., None] * tf.gather(V, indices, axis=1)

    @check_shapes("indices: [M]", "V: [Q, M, R]", "return: [Q, N, R]")
    def spread(self, indices: tf.Tensor, V: tf.Tensor) -> tf.Tensor:
        """
        Values at some data, and zeros at the others.

        :param indices: which data, [M].
        :param V: values there, [Q, M, R].
        """
        shape = [self.num_data, V.shape[0], V.shape[2]]
        wide = tf.scatter_nd(indices[:, None], tf.transpose(V, [1, 0, 2]), shape)
        return tf.transpose(wide, [1, 0, 2])

    @check_shapes("V: [Q, N, R]", "return: [Q, M, R]")
    def _apply(self, X1: tf.Tensor, V: tf.Tensor) -> tf.Tensor:
        Q, N, R = V.shape
        if self.latents.shared:
            wide = [N, -1 if R is None else Q * R]
            flat = tf.reshape(tf.transpose(V, [1, 0, 2]), wide)
            out = self._programs.products[0](X1, self.X, flat)
            out = tf.reshape(out, [X1.shape[0], Q, tf.shape(V)[2] if R is None else R])
            return tf.transpose(out, [1, 0, 2])
        return tf.stack([p(X1, self.X, V[q]) for q, p in enumerate(self._programs.products)])

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
        return self.diag() - tf.cast(tf.stack(pairs), self.dtype)

    def diag(self) -> tf.Tensor:
        """Prior variances, [1, N] where the kernel is shared, [Q, N] otherwise."""
        found = tf.stack([k(self.X, full_cov=False) for k in self.latents.kernels])
        return tf.cast(found, self.dtype)

    @check_shapes("indices: [M]", "return: [K, N, M]")
    def columns(self, indices: tf.Tensor) -> tf.Tensor:
        """
        Columns of every kernel's matrix, K = 1 where it is shared: M / N of a sweep.

        :param indices: which data, [M].
        """
        self.sweeps += float(indices.shape[0]) / self.num_data
        points = tf.gather(self.X, indices)
        found = tf.stack([k(self.X, points) for k in self.latents.kernels])
        found = tf.cast(found, self.dtype)
        if self._noise is None:
            return found
        hit = tf.one_hot(indices, self.num_data, axis=0, dtype=found.dtype)
        return found + self._noise[..., None] * hit

    def pivoted(self, number: int) -> list[tuple[AnyNDArray, AnyNDArray, AnyNDArray]]:
        """
        What :class:`Pivoting` finds of every kernel: at most M / N of a sweep.

        :param number: of pivots, M, at most N.
        """
        pivotings = self._programs.pivotings
        found = [p(self.X, d, number) for p, d in zip(pivotings, tf.unstack(self.diag()))]
        self.sweeps += max(int(np.sum(pivots >= 0)) for _, pivots, _ in found) / self.num_data
        return found


@check_shapes("Xnew: [M, D]", "X: [N, D]", "V: [Q, N, R]", "return: [Q, M, R]")
def cross_product(latents: LatentKernels, Xnew: tf.Tensor, X: tf.Tensor, V: tf.Tensor) -> tf.Tensor:
    """``k_q(Xnew, X) V_q``, a block of Xnew at a time, inside compiled functions as outside."""

    def block(x: tf.Tensor) -> tf.Tensor:
        if latents.shared:
            return tf.matmul(tf.cast(latents.kernels[0](x, X), V.dtype)[None], V)
        own = [tf.cast(k(x, X), V.dtype) for k in latents.kernels]
        return tf.stack([tf.matmul(k, V[q]) for q, k in enumerate(own)])

    return over_rows(block, Xnew, int(X.shape[0]), V.dtype, axis=1)


@contextmanager
def rows_at_once() -> Iterator[None]:
    """Where :func:`over_rows` makes no loop, which not every format of files has."""
    token = _AT_ONCE.set(True)
    try:
        yield
    finally:
        _AT_ONCE.reset(token)


def over_rows(
    block: Callable[[tf.Tensor], tf.Tensor],
    Xnew: tf.Tensor,
    num_columns: int,
    dtype: tf.DType,
    axis: int,
) -> tf.Tensor:
    """
    ``block(rows of Xnew)`` put together along ``axis``, as many rows at a time as fit.

    :param block: from rows [n, D] to a tensor whose ``axis`` counts them.
    :param num_columns: what a row takes of the memory.
    :param dtype: of what ``block`` returns.
    """
    most = max(1, _CROSS_ENTRIES // max(num_columns, 1))
    rows = Xnew.shape[0]
    if _AT_ONCE.get() or (rows is not None and rows <= most):
        return block(Xnew)
    size = tf.shape(Xnew)[0] if rows is None else rows
    # blocks of one size, as XLA has to know it: together a few rows more than there are
    number = (size + most - 1) // most
    number = tf.maximum(number, 1) if rows is None else number
    each = (size + number - 1) // number
    spare = tf.repeat(Xnew[:1], number * each - size, axis=0)
    blocks = tf.reshape(tf.concat([Xnew, spare], axis=0), [number, each, Xnew.shape[1]])
    found = tf.map_fn(block, blocks, parallel_iterations=1, fn_output_signature=dtype)
    rank = found.shape.rank
    order = [*range(1, axis + 1), 0, *range(axis + 1, rank)]
    shape = tf.shape(found)
    merged = tf.concat([shape[1 : axis + 1], [number * each], shape[axis + 2 :]], axis=0)
    found = tf.reshape(tf.transpose(found, order), merged)
    return tf.gather(found, tf.range(size), axis=axis)
