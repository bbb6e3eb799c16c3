"""Amounts that are zero or positive: Tweedie's distributions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import inherit_check_shapes
from gpflow.base import MeanAndVariance, Parameter, TensorType
from gpflow.config import default_float
from gpflow.likelihoods import ScalarLikelihood
from gpflow.utilities import positive

from .quadrature import GaussHermite

POWERS = 1.01, 1.99
"""Where the density is far enough from Poisson's and gamma's."""
_TERMS = 128
"""Of the series; where it is wider, spread over 8 standard deviations each way."""


class Tweedie(ScalarLikelihood):
    """
    Mean ``mu = exp(f)``, variance ``dispersion mu^power``: a Poisson number of gamma amounts.

    Of powers between 1 and 2, zero has a probability and what is above zero a density (Jorgensen
    1987). The density's series has its largest term in closed form and is summed around it (Dunn &
    Smyth 2005); it does not depend on the mean, so expectations are in closed form.

    :param dispersion: trainable, of responses measured in ``unit``: what the dispersion is measured
        in moves with the power, and fits to responses in other units would go other ways.
    :param power: between 1.01 and 1.99, trainable.
    :param unit: fixed, such as the mean response.
    """

    def __init__(
        self,
        dispersion: TensorType = 1.0,
        power: TensorType = 1.5,
        unit: TensorType = 1.0,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("quadrature", GaussHermite())
        super().__init__(**kwargs)
        self.dispersion = Parameter(dispersion, transform=positive(lower=0.0, base="exp"))
        ends = (tf.constant(end, default_float()) for end in POWERS)
        self.power = Parameter(power, transform=tfp.bijectors.Sigmoid(*ends))
        self.unit = Parameter(unit, trainable=False)
        self.invlink = tf.exp

    def scaled(self) -> tf.Tensor:
        """
        The dispersion of responses as they are: ``dispersion unit^(2 - power)``.

        :return: a scalar.
        """
        return self._numbers()[1]

    @inherit_check_shapes
    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        whole, exponent = self.parts(Y)
        return whole + exponent(F)

    def parts(self, Y: TensorType) -> tuple[tf.Tensor, Callable[[TensorType], tf.Tensor]]:
        """
        The log-density in two: what the mean does not change, [...], and a function of its
        logarithm, [..., ...].

        :param Y: responses, [...].
        """
        Y = tf.convert_to_tensor(Y)
        p, phi = self._numbers()

        def exponent(F: TensorType) -> tf.Tensor:
            return _exponent(tf.exp((1.0 - p) * F), tf.exp((2.0 - p) * F), Y, p, phi)

        return _normaliser(Y, p, phi), exponent

    def _numbers(self) -> tuple[tf.Tensor, tf.Tensor]:
        """The power, and the dispersion of responses as they are."""
        p = tf.convert_to_tensor(self.power)
        unit = self.unit.unconstrained_variable  # which it is, without detours
        return p, self.dispersion * tf.exp((2.0 - p) * tf.math.log(unit))

    @inherit_check_shapes
    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        p, phi = self._numbers()

        def power(k: tf.Tensor) -> tf.Tensor:
            return tf.exp(k * Fmu + 0.5 * tf.square(k) * Fvar)  # E[mu^k]

        mean = _exponent(power(1.0 - p), power(2.0 - p), Y, p, phi)
        return tf.reduce_sum(_normaliser(Y, p, phi) + mean, axis=-1)

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.exp(F)

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.scaled() * tf.exp(self.power * F)

    @inherit_check_shapes
    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        p = tf.convert_to_tensor(self.power)
        mean = tf.exp(Fmu + 0.5 * Fvar)
        own = self.scaled() * tf.exp(p * Fmu + 0.5 * tf.square(p) * Fvar)
        return mean, own + tf.exp(2.0 * Fmu + 2.0 * Fvar) - tf.square(mean)


def _exponent(
    inverse: tf.Tensor, rate: tf.Tensor, Y: tf.Tensor, p: tf.Tensor, phi: tf.Tensor
) -> tf.Tensor:
    """Of ``mu^(1 - p)`` and ``mu^(2 - p)``, or their means."""
    return (Y * inverse / (1.0 - p) - rate / (2.0 - p)) / phi


def _normaliser(Y: tf.Tensor, p: tf.Tensor, phi: tf.Tensor) -> tf.Tensor:
    """``log(W(y) / y)`` of y > 0, and 0 of zero."""
    y = tf.where(Y > 0.0, Y, tf.ones_like(Y))[..., None]
    shape = (2.0 - p) / (p - 1.0)  # of one gamma amount
    largest = tf.stop_gradient(tf.pow(y, 2.0 - p) / (phi * (2.0 - p)))
    width = tf.stop_gradient(tf.sqrt(largest * (p - 1.0)))
    step = tf.maximum(width * (16.0 / _TERMS), tf.ones_like(width))
    first = tf.maximum(tf.floor(largest - 0.5 * _TERMS * step), tf.ones_like(largest))
    j = first + step * tf.range(_TERMS, dtype=y.dtype)
    each = shape * tf.math.log(y / (p - 1.0)) - (1.0 + shape) * tf.math.log(phi)
    logs = j * (each - tf.math.log(2.0 - p)) - tf.math.lgamma(j + 1.0) - tf.math.lgamma(j * shape)
    total = tf.reduce_logsumexp(logs, axis=-1) + tf.math.log(step[..., 0])
    return tf.where(Y > 0.0, total - tf.math.log(y[..., 0]), tf.zeros_like(Y))
