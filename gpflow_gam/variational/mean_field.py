"""Mean field: independent blocks (Saul et al. 2016)."""

from __future__ import annotations

import tensorflow as tf

from .base import Cholesky, Prior, VariationalFamily, log_abs_det
from .gaussian import BlockGaussian


class MeanField(VariationalFamily):
    """
    q(U) = prod_c N(mu_c, W_c W_c'): no coupling between components.

    Cheap, and overconfident about each component where inputs are correlated (Saul, Hensman,
    Vehtari & Lawrence 2016, "Chained Gaussian processes").

    Parameters: ``q_mu`` [P, L]; ``q_sqrt``, one lower-triangular [L, G, M, M] per group of like
    components.

    :param whiten: whether they describe V = L^-1 U (default) or U.
    """

    def __init__(self, *, whiten: bool = True) -> None:
        super().__init__(whiten=whiten)

    def _build(self, prior: Prior) -> None:
        self.q_mu = self._zero_mean()
        self.q_sqrt = self._block_sqrt(prior)

    def whitened(self, cholesky: Cholesky) -> BlockGaussian:
        blocks = self._whitened_blocks(self.q_sqrt, cholesky)
        mean = self._whitened_mean(self.q_mu, cholesky)
        return BlockGaussian(self.layout, mean, log_abs_det(blocks), blocks, None)

    def match(self, cholesky: Cholesky, mean: tf.Tensor, precision: tf.Tensor) -> None:
        self._match_mean(self.q_mu, cholesky, mean)
        self._match_blocks(self.q_sqrt, cholesky, precision)
