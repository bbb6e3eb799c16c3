"""
Block-diagonal matrices W with one symmetric Q x Q block a data point, W >= 0.

Vectors over Q latent functions at N points are [Q, N], several of them [Q, N, R]. Products cost
O(N Q R) where the blocks have structure.
"""

from __future__ import annotations

import abc

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes, inherit_check_shapes

_ENTRIES = 2**23
"""Of products with blocks that are held at a time."""


class Precision(abc.ABC):
    """W, the precision of a pseudo-observation of the latent functions at every point."""

    num_latents: int

    tensor: tf.Tensor
    """All there is to it: compiled functions take tensors, and build the precision anew."""

    @abc.abstractmethod
    def __init__(self, tensor: tf.Tensor) -> None: ...

    @property
    def tensors(self) -> tuple[tf.Tensor, ...]:
        """``tensor``, and what was made of it once so that each solve need not."""
        return (self.tensor,)

    @abc.abstractmethod
    @check_shapes("V: [Q, N, R]", "return: [Q, N, R]")
    def multiply(self, V: tf.Tensor) -> tf.Tensor:
        """
        W V.

        :param V: [Q, N, R].
        """

    @abc.abstractmethod
    @check_shapes("V: [Q, N, R]", "return: [Q, N, R]")
    def solve(self, V: tf.Tensor) -> tf.Tensor:
        """
        W^+ V, with the pseudo-inverse of each block.

        :param V: [Q, N, R].
        """

    @abc.abstractmethod
    @check_shapes("noise: [broadcast Q, N]")
    def shrunk(self, noise: tf.Tensor) -> Precision:
        """
        ``(I + W D)^-1 W``, D = diag(noise): what W tells once noise is added to the observation.

        The limit of ``(W_e^-1 + D)^-1`` as W_e > 0 goes to W, so that directions of which W says
        nothing still have none.

        :param noise: variances, [Q, N] or [1, N].
        """

    @abc.abstractmethod
    @check_shapes("T: [broadcast Q, N, B]", "return: [P, P]")
    def gram(self, T: tf.Tensor) -> tf.Tensor:
        """
        ``T'W T`` [QB, QB] for T = blockdiag(T_q); one T [1, N, B] serves all functions.

        :param T: [Q, N, B] or [1, N, B].
        """

    @abc.abstractmethod
    @check_shapes("return: [N]")
    def smallest(self) -> tf.Tensor:
        """
        The smallest eigenvalue of every block, or a bound of its sign.

        :return: [N].
        """

    @abc.abstractmethod
    @check_shapes("weights: [N]")
    def weighted(self, weights: tf.Tensor) -> Precision:
        """
        Every block times a number.

        :param weights: one a datum, [N].
        """

    @abc.abstractmethod
    @check_shapes("return: [N, Q, Q]")
    def blocks(self) -> tf.Tensor:
        """
        The blocks themselves.

        :return: [N, Q, Q].
        """

    @check_shapes("weights: [S]", "return: [n, Q, Q]")
    def summed(self, weights: tf.Tensor) -> tf.Tensor:
        """
        Of points that are n data S times over, one node after the other: the nodes' weighted sum.

        :param weights: one a node, [S].
        :return: a block for each datum, [n, Q, Q].
        """
        Q = self.num_latents
        parts = tf.reshape(self.blocks(), [tf.shape(weights)[0], -1, Q, Q])
        return tf.tensordot(weights, parts, 1)


def block_diagonal(parts: tf.Tensor) -> tf.Tensor:
    """[Q, B, B] -> [QB, QB]."""
    Q, B = tf.shape(parts)[0], tf.shape(parts)[1]
    spread = parts[:, :, None, :] * tf.eye(Q, dtype=parts.dtype)[:, None, :, None]
    return tf.reshape(spread, [Q * B, Q * B])


def _positive(x: tf.Tensor) -> tf.Tensor:
    """Away from 0, where a reciprocal would overflow once it is squared."""
    return tf.maximum(
        x, tf.constant(float(np.sqrt(np.finfo(x.dtype.as_numpy_dtype).tiny)), x.dtype)
    )


class DiagonalPrecision(Precision):
    """
    Blocks diag(w_n): latent functions that the likelihood does not couple.

    :param w: [Q, N].
    """

    def __init__(self, w: tf.Tensor) -> None:
        self.w = self.tensor = w
        self.num_latents = int(w.shape[0])

    @inherit_check_shapes
    def multiply(self, V: tf.Tensor) -> tf.Tensor:
        return self.w[..., None] * V

    @inherit_check_shapes
    def solve(self, V: tf.Tensor) -> tf.Tensor:
        return V / _positive(self.w)[..., None]

    @inherit_check_shapes
    def shrunk(self, noise: tf.Tensor) -> DiagonalPrecision:
        return DiagonalPrecision(self.w / (1.0 + noise * self.w))

    @inherit_check_shapes
    def gram(self, T: tf.Tensor) -> tf.Tensor:
        return block_diagonal(tf.matmul(T, self.w[..., None] * T, transpose_a=True))

    @inherit_check_shapes
    def smallest(self) -> tf.Tensor:
        return tf.reduce_min(self.w, axis=0)

    @inherit_check_shapes
    def weighted(self, weights: tf.Tensor) -> DiagonalPrecision:
        return DiagonalPrecision(self.w * weights)

    @inherit_check_shapes
    def blocks(self) -> tf.Tensor:
        return tf.linalg.diag(tf.transpose(self.w))


class SoftmaxPrecision(Precision):
    """
    Blocks ``diag(a) - a a' / sum(a)``: precisions a, blind to a common shift of the functions.

    The softmax has a = pi, its class probabilities.

    :param a: [Q, N], positive.
    """

    def __init__(self, a: tf.Tensor) -> None:
        self.a = self.tensor = a
        self.num_latents = int(a.shape[0])

    @inherit_check_shapes
    def multiply(self, V: tf.Tensor) -> tf.Tensor:
        shift = tf.reduce_sum(self.a[..., None] * V, axis=0) / self._sum()[:, None]
        return self.a[..., None] * (V - shift)

    @inherit_check_shapes
    def solve(self, V: tf.Tensor) -> tf.Tensor:
        # W^+ = P diag(1/a) P, P = I - 11'/Q: diag(1/a) inverts W on differences of functions
        inner = _without_shift(V) / _positive(self.a)[..., None]
        return _without_shift(inner)

    def _sum(self) -> tf.Tensor:
        return _positive(tf.reduce_sum(self.a, axis=0))

    @inherit_check_shapes
    def shrunk(self, noise: tf.Tensor) -> SoftmaxPrecision:
        return SoftmaxPrecision(self.a / (1.0 + noise * self.a))

    @inherit_check_shapes
    def gram(self, T: tf.Tensor) -> tf.Tensor:
        own = self.a[..., None] * T  # [Q, N, B]
        whole = block_diagonal(tf.matmul(T, own, transpose_a=True))
        wide = tf.reshape(tf.transpose(own, [1, 0, 2]), [tf.shape(own)[1], -1])
        wide = wide / tf.sqrt(self._sum())[:, None]
        return whole - tf.matmul(wide, wide, transpose_a=True)

    @inherit_check_shapes
    def smallest(self) -> tf.Tensor:
        return tf.reduce_min(self.a, axis=0)

    @inherit_check_shapes
    def weighted(self, weights: tf.Tensor) -> SoftmaxPrecision:
        return SoftmaxPrecision(self.a * weights)

    @inherit_check_shapes
    def blocks(self) -> tf.Tensor:
        a = tf.transpose(self.a)
        return tf.linalg.diag(a) - a[:, :, None] * a[:, None, :] / self._sum()[:, None, None]

    @inherit_check_shapes
    def summed(self, weights: tf.Tensor) -> tf.Tensor:
        # no block is made of a single point: the sums are those of a matrix product a datum
        a = tf.reshape(tf.transpose(self.a), [tf.shape(weights)[0], -1, self.num_latents])
        share = weights[:, None] / tf.reshape(self._sum(), tf.shape(a)[:2])
        return tf.linalg.diag(tf.tensordot(weights, a, 1)) - tf.einsum(
            "snp,snq->npq", share[..., None] * a, a
        )


class DensePrecision(Precision):
    """
    Blocks without structure.

    :param M: [N, Q, Q], symmetric.
    :param inverse: their pseudo-inverses, [N, Q, Q], where they are known.
    :raises ValueError: M is no batch of blocks.
    """

    def __init__(self, M: tf.Tensor, inverse: tf.Tensor | None = None) -> None:
        if M.shape.rank != 3:  # a matrix would be added to its transpose all the same
            raise ValueError(f"M must be [N, Q, Q]; got shape {M.shape}.")
        self.M = self.tensor = 0.5 * (M + tf.linalg.matrix_transpose(M))
        self.num_latents = int(M.shape[-1])
        self._inverse = inverse

    @property
    def tensors(self) -> tuple[tf.Tensor, ...]:
        inverse = self._inverse
        if inverse is None:
            inverse = tf.linalg.pinv(self.M)
            if tf.executing_eagerly():  # what a graph has made is of no use outside of it
                self._inverse = inverse
        return self.M, inverse

    @inherit_check_shapes
    def multiply(self, V: tf.Tensor) -> tf.Tensor:
        return tf.einsum("npq,qnr->pnr", self.M, V)

    @inherit_check_shapes
    def solve(self, V: tf.Tensor) -> tf.Tensor:
        return tf.einsum("npq,qnr->pnr", self.tensors[1], V)

    @inherit_check_shapes
    def shrunk(self, noise: tf.Tensor) -> DensePrecision:
        noise = tf.transpose(tf.broadcast_to(noise, [self.num_latents, tf.shape(self.M)[0]]))
        inner = tf.eye(self.num_latents, dtype=self.M.dtype) + self.M * noise[:, None, :]
        return DensePrecision(tf.linalg.solve(inner, self.M))

    @inherit_check_shapes
    def gram(self, T: tf.Tensor) -> tf.Tensor:
        T = tf.convert_to_tensor(T)
        N, B = int(T.shape[1]), int(T.shape[2])
        some = max(1, _ENTRIES // max(1, self.num_latents * B))
        parts = [
            self._lower(T[:, i : i + some], self.M[i : i + some]) for i in range(0, max(N, 1), some)
        ]
        lower = parts[0] if len(parts) == 1 else tf.add_n(parts)
        blocks = range(0, self.num_latents * B, B) if B else ()
        diag = [lower[i : i + B, i : i + B] for i in blocks]
        return lower + tf.transpose(lower) - (block_diagonal(tf.stack(diag)) if diag else 0.0)

    def _lower(self, T: tf.Tensor, M: tf.Tensor) -> tf.Tensor:
        """The lower blocks of the sum over some data, zeros above: one product a row of blocks."""
        B, rows = T.shape[2], []
        for p in range(self.num_latents):
            wide = tf.transpose(M[:, p, : p + 1])[..., None] * T[: p + 1]  # [p + 1, N, B]
            wide = tf.reshape(tf.transpose(wide, [1, 0, 2]), [T.shape[1], (p + 1) * B])
            row = tf.matmul(T[min(p, T.shape[0] - 1)], wide, transpose_a=True)
            rows.append(tf.pad(row, [[0, 0], [0, (self.num_latents - 1 - p) * B]]))
        return tf.concat(rows, axis=0)

    @inherit_check_shapes
    def smallest(self) -> tf.Tensor:
        return tf.reduce_min(tf.linalg.eigvalsh(self.M), axis=-1)

    @inherit_check_shapes
    def weighted(self, weights: tf.Tensor) -> DensePrecision:
        return DensePrecision(self.M * weights[:, None, None])

    @inherit_check_shapes
    def blocks(self) -> tf.Tensor:
        return self.M


def _without_shift(V: tf.Tensor) -> tf.Tensor:
    return V - tf.reduce_mean(V, axis=0, keepdims=True)
