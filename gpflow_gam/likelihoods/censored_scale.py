"""Responses that may be censored, whose scale has a predictor of its own."""

from __future__ import annotations

from typing import Any, ClassVar

import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import TensorType
from gpflow.likelihoods import QuadratureLikelihood

from .quadrature import GaussHermite, GaussHermitePlane
from .standardised import EXACT, LogExponential, Normal, Standardised
from .unit import fixed_unit

_NODES = 20
"""Of quadrature over the location, where a response is not known."""


class LocationScaleCensored(Standardised, QuadratureLikelihood):
    """
    ``t(y) = u f + u exp(g) e`` with two predictors, f and g; see :class:`Censored`.

    :param unit: u, fixed: one prior serves both predictors, so f is measured in a unit in which it
        is about as large as g, such as the standard deviation of t(y).
    """

    mean_of_first: ClassVar[bool] = False
    """Whether the mean of the response is a monotone function of the first predictor alone."""
    across: ClassVar[int] = 20
    """Nodes of quadrature over the logarithm of the scale."""

    def __init__(self, unit: TensorType = 1.0, **kwargs: Any) -> None:
        kwargs.setdefault("quadrature", GaussHermitePlane(_NODES, self.across))
        super().__init__(input_dim=None, latent_dim=2, observation_dim=None, **kwargs)
        self.unit = fixed_unit(unit)
        self._line = GaussHermite(self.across)

    @property
    def _quadrature_dim(self) -> int:
        return 2

    def _located(self, F: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        """Location and scale, [..., 1] each."""
        F = tf.convert_to_tensor(F)
        return self.unit * F[..., :1], self.unit * tf.exp(F[..., 1:])

    @inherit_check_shapes
    def _log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        f, scale = self._located(F)
        return self.log_of(f, Y, scale)

    @inherit_check_shapes
    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """Over f in closed form where y is known, by quadrature elsewhere."""
        y, every = Y[..., :1], Y.shape[-1] == 1
        exact = tf.fill(tf.shape(y), True) if every else tf.equal(Y[..., 2:], EXACT)
        f, var = self.unit * Fmu[..., :1], tf.square(self.unit) * Fvar[..., :1]

        def of_scale(g: tf.Tensor) -> tf.Tensor:
            scale = self.unit * tf.exp(g)
            z, v = self.standardised(y, f, scale), var / tf.square(scale)
            zero = tf.zeros_like(z)
            known = self.expected_log_density(tf.where(exact, z, zero), tf.where(exact, v, zero))
            return known - self.log_unit(y, scale)

        known = self._line(of_scale, Fmu[..., 1:], Fvar[..., 1:])
        if every:
            return known[..., 0]

        def unknown(F: tf.Tensor) -> tf.Tensor:
            f, scale = self._located(F)
            return self.log_probability(f, Y, scale)

        return tf.where(exact, known, self.quadrature(unknown, Fmu, Fvar))[..., 0]


class LocationScaleCensoredGaussian(Normal, LocationScaleCensored):
    """``y ~ N(u f, (u exp(g))^2)``, where it is known."""

    mean_of_first = True

    @inherit_check_shapes
    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """Over f in closed form."""
        f, var = self.unit * Fmu[..., :1], tf.square(self.unit) * Fvar[..., :1]

        def of_scale(g: tf.Tensor) -> tf.Tensor:
            scale = tf.sqrt(tf.square(self.unit) * tf.exp(2.0 * g) + var)
            return self.log_of(f + tf.zeros_like(scale), Y + 0.0 * g, scale)[..., None]

        return self._line.logspace(of_scale, Fmu[..., 1:], Fvar[..., 1:])[..., 0]

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self._located(F)[0]

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.square(self._located(F)[1])


class LocationScaleLogNormal(LocationScaleCensoredGaussian):
    """``log y ~ N(u f, (u exp(g))^2)``, where it is known."""

    logarithm = True
    mean_of_first = False

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        f, scale = self._located(F)
        return tf.exp(f + 0.5 * tf.square(scale))

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        f, scale = self._located(F)
        square = tf.square(scale)
        return tf.math.expm1(square) * tf.exp(2.0 * f + square)


class LocationScaleWeibull(LogExponential, LocationScaleCensored):
    """
    Weibull of scale ``exp(u f)`` and shape ``exp(-g) / u``, where it is known.

    Its hazards are no longer proportional. Where the scale is drawn from a lognormal distribution,
    which may come near to zero, the mean of a log-density is infinite, if by values that are next
    to impossible; few nodes, which stay away from them, give what is finite of it.
    """

    logarithm = True
    across = 7

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        f, scale = self._located(F)
        return tf.exp(f + tf.math.lgamma(1.0 + scale))

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        f, scale = self._located(F)
        twice, once = tf.math.lgamma(1.0 + 2.0 * scale), tf.math.lgamma(1.0 + scale)
        return tf.exp(2.0 * (f + once)) * tf.math.expm1(twice - 2.0 * once)
