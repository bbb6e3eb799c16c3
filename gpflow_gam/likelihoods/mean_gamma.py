"""Gamma observations whose mean has the log link."""

from __future__ import annotations

from typing import Any

import gpflow
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import TensorType


class MeanGamma(gpflow.likelihoods.Gamma):
    """
    ``y ~ Gamma(shape, scale = exp(f) / shape)``: mean exp(f), variance ``exp(2 f) / shape``.

    GPflow's has the scale behind the link, so that its mean, ``shape exp(f)``, moves with the
    shape and the predictor's level has to follow; here the two are orthogonal (McCullagh & Nelder
    1989, ch. 8).

    :param shape: trainable.
    """

    def __init__(self, shape: TensorType = 1.0, **kwargs: Any) -> None:
        super().__init__(invlink=tf.exp, shape=shape, **kwargs)

    def _log_scale(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return F - tf.math.log(self._shape(X))

    @inherit_check_shapes
    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self._log_density(X, F, tf.exp(-F), Y)

    def _log_density(
        self, X: TensorType, F: TensorType, inverse: tf.Tensor, Y: TensorType
    ) -> tf.Tensor:
        """
        :param inverse: of the mean.
        """
        shape = tf.convert_to_tensor(self._shape(X))  # once: eagerly a transform takes long
        level = shape * tf.math.log(shape) - tf.math.lgamma(shape)
        return level - shape * (F + Y * inverse) + (shape - 1.0) * tf.math.log(Y)

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return super()._conditional_mean(X, self._log_scale(X, F))

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return super()._conditional_variance(X, self._log_scale(X, F))

    @inherit_check_shapes
    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return tf.reduce_sum(self._log_density(X, Fmu, tf.exp(0.5 * Fvar - Fmu), Y), axis=-1)
