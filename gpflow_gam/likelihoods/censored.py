"""Responses of which some are known only to lie beyond, or between, given values."""

from __future__ import annotations

import abc
import math
from typing import Any, ClassVar

import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import Parameter, TensorType
from gpflow.likelihoods import QuadratureLikelihood
from gpflow.utilities import positive

from .links import log_ndtr
from .quadrature import GaussHermite

RIGHT, EXACT, LEFT, INTERVAL = 0.0, 1.0, 2.0, 3.0
"""
What the third column of Y says of a row: the response is greater than the first, it is the first,
it is less than the first, or it is between the first and the second (as R's ``survival::Surv``).
"""
_NODES = 32
"""Of quadrature: logarithms of probabilities bend within a scale, which predictors may exceed."""
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
