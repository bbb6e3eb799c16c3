"""Standard distributions of which a location and a scale make responses, known or not."""

from __future__ import annotations

import abc
import math
from typing import ClassVar

import tensorflow as tf
from gpflow.base import TensorType

from .links import log_ndtr

RIGHT, EXACT, LEFT, INTERVAL = 0.0, 1.0, 2.0, 3.0
"""
What the third column of Y says of a row: the response is greater than the first, it is the first,
it is less than the first, or it is between the first and the second (as R's ``survival::Surv``).
"""
_NARROW = 1e-5
"""Width of an interval, in scales, below which a density times it has more digits."""
_LOW = -10.0
"""Logarithm of x below which a series of log(1 - exp(-x)) is exact."""


class Standardised(abc.ABC):
    """
    ``t(y) = f + scale e`` with e of a given distribution, and t the identity or the logarithm.

    Y is [..., 1], or [..., 3] with what is known of each row (:data:`RIGHT`, :data:`EXACT`,
    :data:`LEFT`, :data:`INTERVAL`); the second column counts in intervals only. Of a response that
    is not known exactly the log-density is the logarithm of the probability of what is known.
    """

    logarithm: ClassVar[bool] = False
    """Whether t is the logarithm; the density then is that of y itself, not of its logarithm."""

    # --- the standard distribution, element by element ---------------------------------------

    @abc.abstractmethod
    def log_density(self, z: tf.Tensor) -> tf.Tensor:
        """
        Log p(e = z).

        :param z: [...].
        """

    @abc.abstractmethod
    def log_above(self, z: tf.Tensor) -> tf.Tensor:
        """
        Log P(e > z).

        :param z: [...].
        """

    @abc.abstractmethod
    def log_below(self, z: tf.Tensor) -> tf.Tensor:
        """
        Log P(e < z).

        :param z: [...].
        """

    @abc.abstractmethod
    def log_between(self, a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        """
        Log P(a < e < b), a < b.

        :param a: [...].
        :param b: [...].
        """

    @abc.abstractmethod
    def expected_log_density(self, z: tf.Tensor, var: tf.Tensor) -> tf.Tensor:
        """
        E[log p(e = x)] over x ~ N(z, var).

        :param z: means, [...].
        :param var: variances, [...].
        """

    @abc.abstractmethod
    def mode(self, width: tf.Tensor) -> tf.Tensor:
        """
        The a at which the interval from a to a + width is most probable.

        :param width: positive, [...].
        """

    # --- of observations ---------------------------------------------------------------------

    def standardised(self, y: tf.Tensor, F: tf.Tensor, scale: TensorType) -> tf.Tensor:
        """
        e = (t(y) - f) / scale.

        :param y: responses, [...].
        :param F: locations, [...].
        :param scale: a scalar or [...].
        """
        return ((tf.math.log(y) if self.logarithm else y) - F) / scale

    def log_unit(self, y: tf.Tensor, scale: TensorType) -> tf.Tensor:
        """
        Log of dy / de, by which densities of e are divided to be those of y.

        :param y: responses, [...].
        :param scale: a scalar or [...].
        """
        log_scale = tf.math.log(tf.cast(scale, y.dtype)) + tf.zeros_like(y)
        return log_scale + tf.math.log(y) if self.logarithm else log_scale

    def log_probability(self, F: tf.Tensor, Y: tf.Tensor, scale: TensorType) -> tf.Tensor:
        """
        Of rows that are not known exactly, and of others some number; [..., 1].

        :param F: locations, [..., 1].
        :param Y: [..., 3].
        :param scale: a scalar or [..., 1].
        """
        kind = Y[..., 2:]
        # no overflow, nor its gradient, from a row that the answer is not about
        a = self.standardised(Y[..., :1], F, scale)
        right, left, between = (tf.equal(kind, k) for k in (RIGHT, LEFT, INTERVAL))
        zero, one = tf.zeros_like(a), tf.ones_like(a)
        found = zero
        if _occurs(right):
            found = tf.where(right, self.log_above(tf.where(right, a, zero)), found)
        if _occurs(left):
            found = tf.where(left, self.log_below(tf.where(left, a, zero)), found)
        if _occurs(between):
            lower = tf.where(between, a, zero)
            width = tf.where(between, self.standardised(Y[..., 1:2], F, scale) - a, one)
            found = tf.where(between, self.log_between(lower, lower + width), found)
        return found

    def log_of(self, F: tf.Tensor, Y: tf.Tensor, scale: TensorType) -> tf.Tensor:
        """
        Log-densities, and logarithms of probabilities, [...].

        :param F: locations, [..., 1].
        :param Y: [..., 1] or [..., 3].
        :param scale: a scalar or [..., 1].
        """
        y = Y[..., :1]
        z, unit = self.standardised(y, F, scale), self.log_unit(y, scale)
        if Y.shape[-1] == 1:
            return (self.log_density(z) - unit)[..., 0]
        exact = tf.equal(Y[..., 2:], EXACT)
        known = self.log_density(tf.where(exact, z, tf.zeros_like(z))) - unit
        return tf.where(exact, known, self.log_probability(F, Y, scale))[..., 0]

    def saturated(self, Y: tf.Tensor, scale: TensorType) -> tf.Tensor:
        """
        The greatest log-density of each row over f, [N].

        :param Y: [N, 1] or [N, 3].
        :param scale: a scalar or [N, 1].
        """
        y = Y[..., :1]
        known = self.log_density(tf.zeros_like(y)) - self.log_unit(y, scale)
        if Y.shape[-1] == 1:
            return known[..., 0]
        kind, zero = Y[..., 2:], tf.zeros_like(y)
        between = tf.equal(kind, INTERVAL)
        width = self.standardised(Y[..., 1:2], zero, scale) - self.standardised(y, zero, scale)
        width = tf.where(between, width, tf.ones_like(y))
        a = self.mode(width)
        inside = tf.where(between, self.log_between(a, a + width), zero)
        return tf.where(tf.equal(kind, EXACT), known, inside)[..., 0]


def _occurs(rows: tf.Tensor) -> bool:
    """Whether there may be such rows; most data have one kind, and work for others is spared."""
    return not tf.executing_eagerly() or bool(tf.reduce_any(rows))


class Normal(Standardised):
    """e is standard normal."""

    def log_density(self, z: tf.Tensor) -> tf.Tensor:
        return -0.5 * (tf.square(z) + math.log(2.0 * math.pi))

    def expected_log_density(self, z: tf.Tensor, var: tf.Tensor) -> tf.Tensor:
        return self.log_density(z) - 0.5 * var

    def log_above(self, z: tf.Tensor) -> tf.Tensor:
        return log_ndtr(-z)

    def log_below(self, z: tf.Tensor) -> tf.Tensor:
        return log_ndtr(z)

    def log_between(self, a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        # by symmetry in the lower tail, where differences of probabilities keep their digits
        flip = a + b > 0.0
        a, b = tf.where(flip, -b, a), tf.where(flip, -a, b)
        width = b - a
        narrow = width < _NARROW
        high = log_ndtr(b)
        away = tf.where(narrow, -tf.ones_like(a), log_ndtr(a) - high)
        thin = self.log_density(0.5 * (a + b)) + tf.math.log(width)
        return tf.where(narrow, thin, high + tf.math.log(-tf.math.expm1(away)))

    def mode(self, width: tf.Tensor) -> tf.Tensor:
        return -0.5 * width


class LogExponential(Standardised):
    """e is the logarithm of a standard exponential variable."""

    def log_density(self, z: tf.Tensor) -> tf.Tensor:
        return z - tf.exp(z)

    def expected_log_density(self, z: tf.Tensor, var: tf.Tensor) -> tf.Tensor:
        return z - tf.exp(z + 0.5 * var)

    def log_above(self, z: tf.Tensor) -> tf.Tensor:
        return -tf.exp(z)

    def log_below(self, z: tf.Tensor) -> tf.Tensor:
        low = z < _LOW
        x = tf.exp(z)
        usual = tf.math.log(-tf.math.expm1(-tf.where(low, tf.ones_like(x), x)))
        return tf.where(low, z - x * (0.5 - x / 24.0), usual)

    def log_between(self, a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        # exp(-e^a) (1 - exp(-(e^b - e^a)))
        return self.log_above(a) + self.log_below(b + tf.math.log(-tf.math.expm1(a - b)))

    def mode(self, width: tf.Tensor) -> tf.Tensor:
        # log(width / (e^width - 1))
        return tf.math.log(width) - width - tf.math.log(-tf.math.expm1(-width))
