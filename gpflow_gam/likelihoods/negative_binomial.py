"""Overdispersed counts."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import MeanAndVariance, Parameter, TensorType
from gpflow.likelihoods import ScalarLikelihood
from gpflow.utilities import positive

_SMALLEST = 1e-6
"""Nearer to Poisson, lgamma(y + 1/alpha) - lgamma(1/alpha) loses its digits."""


class NegativeBinomial(ScalarLikelihood):
    """
    Counts of mean ``mu = exp(f)`` and variance ``mu + alpha mu^2`` (NB2; Hilbe 2011, ch. 8).

    :param alpha: dispersion, trainable; at 0 the counts would be Poisson.
    """

    def __init__(self, alpha: TensorType = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.alpha = Parameter(alpha, transform=positive(lower=_SMALLEST))
        self.invlink = tf.exp

    @inherit_check_shapes
    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        size, lgamma = 1.0 / self.alpha, tf.math.lgamma
        ways = lgamma(Y + size) - lgamma(size) - lgamma(Y + 1.0)
        odds = F + tf.math.log(self.alpha)  # log(alpha mu)
        return ways + Y * odds - (Y + size) * tf.math.softplus(odds)

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.exp(F)

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.exp(F) + self.alpha * tf.exp(2.0 * F)

    @inherit_check_shapes
    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        mean = tf.exp(Fmu + 0.5 * Fvar)
        square = tf.exp(2.0 * Fmu + 2.0 * Fvar)  # E[mu^2]
        return mean, mean + (1.0 + self.alpha) * square - tf.square(mean)
