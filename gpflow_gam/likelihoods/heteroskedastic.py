"""Normal observations whose noise has a predictor of its own."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import MeanAndVariance, TensorType
from gpflow.likelihoods import QuadratureLikelihood
from gpflow.logdensities import gaussian

from .unit import fixed_unit


class Heteroskedastic(QuadratureLikelihood):
    """
    ``y ~ N(u f, (u exp(g))^2)`` with two predictors, f and g.

    Expectations are in closed form (Lazaro-Gredilla & Titsias 2011), unlike those of GPflow's
    ``HeteroskedasticTFPConditional``, which take 400 quadrature nodes.

    :param unit: u, fixed. One prior serves both predictors, so f has to be measured in a unit in
        which it is about as large as g, such as the standard deviation of y.
    """

    def __init__(self, unit: TensorType = 1.0, **kwargs: Any) -> None:
        super().__init__(input_dim=None, latent_dim=2, observation_dim=1, **kwargs)
        self.unit = fixed_unit(unit)

    mean_of_first: ClassVar[bool] = True
    """The mean of the response is a monotone function of the first predictor alone."""

    @property
    def _quadrature_dim(self) -> int:
        return 1  # over g; f is integrated in closed form

    @inherit_check_shapes
    def _log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        variance = tf.square(self.unit) * tf.exp(2.0 * F[..., 1])
        return gaussian(Y[..., 0], self.unit * F[..., 0], variance)

    @inherit_check_shapes
    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        square = tf.square(Y[..., 0] / self.unit - Fmu[..., 0]) + Fvar[..., 0]
        precision = tf.exp(2.0 * (Fvar[..., 1] - Fmu[..., 1]))  # E[exp(-2 g)]
        constant = 0.5 * math.log(2.0 * math.pi) + tf.math.log(self.unit)
        return -constant - Fmu[..., 1] - 0.5 * precision * square

    @inherit_check_shapes
    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        def log_prob(G: tf.Tensor) -> tf.Tensor:
            return gaussian(Y / self.unit, Fmu[..., :1], Fvar[..., :1] + tf.exp(2.0 * G))

        density = self.quadrature.logspace(log_prob, Fmu[..., 1:], Fvar[..., 1:])
        return density[..., 0] - tf.math.log(self.unit)

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.unit * F[..., :1]

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.square(self.unit) * tf.exp(2.0 * F[..., 1:])

    @inherit_check_shapes
    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        noise = tf.exp(2.0 * (Fmu[..., 1:] + Fvar[..., 1:]))  # E[exp(2 g)]
        return self.unit * Fmu[..., :1], tf.square(self.unit) * (Fvar[..., :1] + noise)
