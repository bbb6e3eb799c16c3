"""Coupled precision: prior precision plus a low rank (Adam, Durrande & John 2018, eq. 7)."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from .base import Cholesky, LowRankFamily, Prior, double
from .gaussian import BlockGaussian


def whitened_coupling(B: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """
    (I + B B')^-1 = I - G'G, with G = L_A^-1 B' and A = I + B'B = L_A L_A'.

    :param B: [L, P, R].
    :return: G [L, R, P] and log|A| [L].
    """
    A = tf.matmul(B, B, transpose_a=True)
    A = tf.linalg.set_diag(A, tf.linalg.diag_part(A) + 1.0)
    L_A = tf.linalg.cholesky(A)
    G = tf.linalg.triangular_solve(L_A, tf.linalg.matrix_transpose(B), lower=True)
    return G, 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(L_A)), axis=-1)


class CoupledPrecision(LowRankFamily):
    """
    q(V) = N(mu, (I + B B')^-1) with B [P, R]: the paper's family, whose own rank is R = M.

    ``B B'`` has to carry every direction that the data pin down, about the effective degrees of
    freedom of all components together. Where that exceeds the rank, q is hundreds of nats off;
    :class:`~gpflow_gam.variational.BlockPrecision` is not.

    Parameters, in component order: ``q_mu`` [P, L] and ``B`` [L, P, R]. Unwhitened they are the
    paper's ``alpha`` (the mean of U is K alpha) and ``B_u`` (precision K^-1 + B_u B_u').

    :param rank: the number of columns, R; by default the paper's, the most inducing inputs that a
        component has.
    :param whiten: whether the parameters describe V = L^-1 U (default) or U.
    :param seed: of B's small random start.
    :raises ValueError: a rank below 1, or, once sizes are known, above P.
    """

    def _build(self, prior: Prior) -> None:
        self.q_mu = self._zero_mean()
        rank = max(self.layout.sizes) if self.rank is None else self.rank
        self.B = self._low_rank_start(rank, self.seed)

    def whitened(self, cholesky: Cholesky) -> BlockGaussian:
        mean = self.layout.to_groups(double(self.q_mu))
        B = self.layout.to_groups(double(self.B))
        if not self.whiten:
            mean, B = self._transposed(cholesky, mean), self._transposed(cholesky, B)
        members = self.layout.spread(self._members)
        mean = mean if members is None else mean * members.T
        B = self._entering(B)
        coupling, log_det_A = whitened_coupling(B)
        return BlockGaussian(self.layout, mean, -log_det_A, None, coupling)

    def _transposed(self, cholesky: Sequence[tf.Tensor], x: tf.Tensor) -> tf.Tensor:
        """blockdiag(L_c)' x."""
        blocks = self.layout.split(x)
        return self.layout.concat(
            [tf.matmul(L, b, transpose_a=True) for L, b in zip(cholesky, blocks)]
        )

    def match(self, cholesky: Cholesky, mean: tf.Tensor, precision: tf.Tensor) -> None:
        # B B' is the best approximation of rank R to precision - I (Eckart & Young 1936).
        values, vectors = tf.linalg.eigh(precision)
        rank = self.B.shape[-1]
        scale = tf.sqrt(tf.maximum(values[:, -rank:] - 1.0, 1e-8))
        B = vectors[:, :, -rank:] * scale[:, None, :]
        if not self.whiten:
            mean, B = self._transpose_solved(cholesky, mean), self._transpose_solved(cholesky, B)
        self.q_mu.assign(tf.cast(self.layout.to_components(mean), self.q_mu.dtype))
        self.B.assign(tf.cast(self.layout.to_components(B), self.B.dtype))

    def _transpose_solved(self, cholesky: Sequence[tf.Tensor], x: tf.Tensor) -> tf.Tensor:
        """blockdiag(L_c)^-T x."""
        inverses = [
            tf.linalg.triangular_solve(
                L, tf.eye(L.shape[-1], batch_shape=[L.shape[0]], dtype=L.dtype)
            )
            for L in cholesky
        ]
        blocks = self.layout.split(x)
        return self.layout.concat(
            [tf.matmul(T, b, transpose_a=True) for T, b in zip(inverses, blocks)]
        )
