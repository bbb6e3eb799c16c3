"""Responses of which some are known only to lie beyond, or between, given values."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import Parameter, TensorType
from gpflow.likelihoods import QuadratureLikelihood
from gpflow.utilities import positive

from .quadrature import GaussHermite
from .standardised import EXACT, LogExponential, Normal, Standardised

_NODES = 32
"""Of quadrature: logarithms of probabilities bend within a scale, which predictors may exceed."""


class Censored(Standardised, QuadratureLikelihood):
    """
    ``t(y) = f + scale e`` with e of a given distribution, and t the identity or the logarithm.

    Y is [N, 1], or [N, 3] with what is known of each row (:data:`RIGHT`, :data:`EXACT`,
    :data:`LEFT`, :data:`INTERVAL`); the second column counts in intervals only. Of a response that
    is not known exactly the log-density is the logarithm of the probability of what is known. Means
    and variances are those of the response that nothing censors.

    :param scale: trainable.
    :param floor: what it stays above.
    """

    def __init__(self, scale: TensorType = 1.0, floor: float = 1e-6, **kwargs: Any) -> None:
        kwargs.setdefault("quadrature", GaussHermite(_NODES))
        super().__init__(input_dim=None, latent_dim=1, observation_dim=None, **kwargs)
        # moved by factors, whatever the response's unit
        self.scale = Parameter(scale, transform=positive(lower=floor, base="exp"))
        if self.logarithm:
            self.invlink = tf.exp

    @inherit_check_shapes
    def _log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self.log_of(tf.convert_to_tensor(F), Y, self.scale)

    @inherit_check_shapes
    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """In closed form where y is known, by quadrature elsewhere."""
        y = Y[..., :1]
        z, var = self.standardised(y, Fmu, self.scale), Fvar / tf.square(self.scale)
        unit = self.log_unit(y, self.scale)
        if Y.shape[-1] == 1:
            return (self.expected_log_density(z, var) - unit)[..., 0]
        exact = tf.equal(Y[..., 2:], EXACT)
        zero = tf.zeros_like(z)
        known = self.expected_log_density(tf.where(exact, z, zero), tf.where(exact, var, zero))
        rest = self.quadrature(lambda F: self.log_probability(F, Y, self.scale), Fmu, Fvar)
        return tf.where(exact, known - unit, rest)[..., 0]


class CensoredGaussian(Normal, Censored):
    """
    ``y ~ N(f, scale^2)``, where it is known: the Tobit model (Tobin 1958).
    """

    @inherit_check_shapes
    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return self.log_of(Fmu, Y, tf.sqrt(tf.square(self.scale) + Fvar))

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.identity(F)

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.zeros_like(F) + tf.square(self.scale)


class LogNormal(CensoredGaussian):
    """``log y ~ N(f, scale^2)``: the mean of y is ``exp(f + scale^2 / 2)``."""

    logarithm = True

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.exp(F + 0.5 * tf.square(self.scale))

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        square = tf.square(self.scale)
        return tf.math.expm1(square) * tf.exp(2.0 * F + square)


class Weibull(LogExponential, Censored):
    """
    ``log y = f + scale e``, e the logarithm of a standard exponential variable.

    An accelerated-failure-time model, and one of proportional hazards: the hazard of y is
    ``k y^(k - 1) exp(-k f)``, k = 1 / scale the shape (Kalbfleisch & Prentice 2002, section 2.2).
    The mean is ``exp(f) Gamma(1 + scale)``.
    """

    logarithm = True

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.exp(F + tf.math.lgamma(1.0 + self.scale))

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        twice, once = tf.math.lgamma(1.0 + 2.0 * self.scale), tf.math.lgamma(1.0 + self.scale)
        return tf.exp(2.0 * (F + once)) * tf.math.expm1(twice - 2.0 * once)
