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
        return super()._scalar_log_prob(X, self._log_scale(X, F), Y)

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
        return super()._variational_expectations(X, self._log_scale(X, Fmu), Fvar, Y)
