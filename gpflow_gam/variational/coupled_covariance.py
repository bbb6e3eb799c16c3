"""Coupled covariance: one dense Gaussian over all inducing values (Adam 2017)."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from gpflow.base import Parameter
from gpflow.config import default_float
from gpflow.utilities import triangular

from .base import Cholesky, Prior, VariationalFamily, double
from .gaussian import DenseGaussian


class CoupledCovariance(VariationalFamily):
    """
    q(U) = N(mu, W W') with W lower triangular [P, P]: every coupling, at a cost of P^2 a point.

    What :class:`gpflow.models.SVGP` holds when it is built on our kernel and inducing variables
    (Adam 2017, "Structured variational inference for coupled Gaussian processes").

    Parameters, in component order: ``q_mu`` [P, L], ``q_sqrt`` [L, P, P].

    :param whiten: whether they describe V = L^-1 U (default) or U.
    """

    def __init__(self, *, whiten: bool = True) -> None:
        super().__init__(whiten=whiten)

    def _build(self, prior: Prior) -> None:
        self.q_mu = self._zero_mean()
        P = self.layout.total
        start = np.eye(P)
        if not self.whiten:
            for indices, L in zip(self.layout.groups, prior()):
                for index, block in zip(indices, np.asarray(L)):
                    at = slice(self.layout.offsets[index], self.layout.offsets[index + 1])
                    start[at, at] = block
        start = np.tile(start[None], (self.num_latent_gps, 1, 1))
        self.q_sqrt = Parameter(start, transform=triangular(), dtype=default_float())

    def whitened(self, cholesky: Cholesky) -> DenseGaussian:
        W = double(self.q_sqrt)
        factor = self.layout.to_groups(W)
        log_det = tf.reduce_sum(tf.math.log(tf.square(tf.linalg.diag_part(W))), axis=-1)
        if not self.whiten:
            factor = self._whiten_columns(factor, cholesky)
            half = [tf.reduce_sum(tf.math.log(tf.linalg.diag_part(L))) for L in cholesky]
            log_det -= 2.0 * tf.add_n(half)
        mean = self._whitened_mean(self.q_mu, cholesky)
        if self._members is not None:
            factor, log_det = self._separated(factor)
        return DenseGaussian(self.layout, mean, log_det, factor)

    def _separated(self, factor: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """
        Of each output's own components, with the prior of the others, and its log-determinant.

        :param factor: [L, P, P], rows in group order, columns in component order.
        """
        assert self._members is not None
        enters = np.repeat(self._members, self.layout.sizes, axis=1).astype(np.float64)
        own = self.layout.to_components(factor)  # lower triangular
        own *= enters[:, :, None] * enters[:, None, :]
        own = tf.linalg.set_diag(own, tf.linalg.diag_part(own) + (1.0 - enters))
        log_det = tf.reduce_sum(tf.math.log(tf.square(tf.linalg.diag_part(own))), axis=-1)
        return self.layout.to_groups(own), log_det

    def match(self, cholesky: Cholesky, mean: tf.Tensor, precision: tf.Tensor) -> None:
        self._match_mean(self.q_mu, cholesky, mean)
        S = tf.linalg.inv(precision)
        if not self.whiten:
            half = tf.linalg.matrix_transpose(self._unwhiten_columns(S, cholesky))
            S = self._unwhiten_columns(half, cholesky)
        S = self.layout.to_components(self.layout.to_components(S), axis=-1)
        root = tf.linalg.cholesky(0.5 * (S + tf.linalg.matrix_transpose(S)))
        self.q_sqrt.assign(tf.cast(root, self.q_sqrt.dtype))
