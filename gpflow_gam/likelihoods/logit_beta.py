"""Proportions with a logit link."""

from __future__ import annotations

from typing import Any

import gpflow
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import TensorType


class LogitBeta(gpflow.likelihoods.Beta):
    """
    ``y ~ Beta(s m, s (1 - m))``, ``m = sigmoid(f)`` (Ferrari & Cribari-Neto 2004).

    GPflow's subtracts s m from s, which is 0 from f = 37 on, and clips y to [1e-6, 1 - 1e-6].

    :param scale: s, trainable; the variance of y is ``m (1 - m) / (1 + s)``.
    """

    def __init__(self, scale: TensorType = 1.0, **kwargs: Any) -> None:
        super().__init__(invlink=tf.sigmoid, scale=scale, **kwargs)

    @inherit_check_shapes
    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        scale, lgamma = self._scale(X), tf.math.lgamma
        a, b = scale * tf.sigmoid(F), scale * tf.sigmoid(-F)
        powers = (a - 1.0) * tf.math.log(Y) + (b - 1.0) * tf.math.log1p(-Y)
        return powers + lgamma(scale) - lgamma(a) - lgamma(b)
