"""Counts with more or fewer zeros than a Poisson or negative binomial distribution has."""

from __future__ import annotations

import abc
from typing import Any

import tensorflow as tf
from gpflow.base import MeanAndVariance, Parameter, TensorType
from gpflow.utilities import positive

from .links import checked_link, log_failure, log_probability
from .two_predictors import TwoPredictors

_SMALLEST = 1e-6
"""Dispersions nearer to Poisson's lose the digits of their log-densities."""
_TINY = 1e-30


class ZeroAltered(TwoPredictors, abc.ABC):
    """
    Counts whose zeros have a predictor of their own, g, a link of a probability.

    The count itself has mean ``mu = exp(f)``; it is Poisson or, where there is an ``alpha``,
    negative binomial of variance ``mu + alpha mu^2``.

    :param alpha: dispersion, trainable; None for Poisson counts.
    :param link: of the probability: "logit", "probit", "cloglog", "cauchit" or "log", as of
        :class:`Bernoulli`.
    :raises ValueError: another link.
    """

    def __init__(self, alpha: TensorType | None = None, link: str = "logit", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.link = checked_link(link)
        self.alpha = None
        if alpha is not None:
            self.alpha = Parameter(alpha, transform=positive(lower=_SMALLEST))

    def _dispersion(self) -> tf.Tensor | None:
        """Alpha, read once an evaluation: a parameter's transform costs more than a few rows do."""
        return None if self.alpha is None else tf.convert_to_tensor(self.alpha)

    def _count(self, f: tf.Tensor, y: tf.Tensor, alpha: tf.Tensor | None) -> tf.Tensor:
        """Log-probability of a count."""
        if alpha is None:
            return y * f - tf.exp(f) - tf.math.lgamma(y + 1.0)
        size, lgamma = 1.0 / alpha, tf.math.lgamma
        ways = lgamma(y + size) - lgamma(size) - lgamma(y + 1.0)
        odds = f + tf.math.log(alpha)
        return ways + y * odds - (y + size) * tf.math.softplus(odds)

    def _no_count(self, f: tf.Tensor, alpha: tf.Tensor | None) -> tf.Tensor:
        """Log-probability of a count of zero."""
        if alpha is None:
            return -tf.exp(f)
        return -tf.math.softplus(f + tf.math.log(alpha)) / alpha

    def _zero(self, g: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Logarithms of the probability, and of what is left of it."""
        return log_probability(self.link, g), log_failure(self.link, g)

    def _second_moment(self, f: tf.Tensor, alpha: tf.Tensor | None) -> tf.Tensor:
        """E[count^2]."""
        return tf.exp(f) + (1.0 if alpha is None else 1.0 + alpha) * tf.exp(2.0 * f)


class ZeroInflated(ZeroAltered):
    """
    A zero with a probability, ``sigmoid(g)`` by default, a count otherwise, which may be zero
    (Lambert 1992).
    """

    def _log_density(self, f: tf.Tensor, g: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        alpha = self._dispersion()
        empty = self._no_count(f, alpha)
        zero, some = self._zero(g)
        none = zero + tf.math.softplus(empty + some - zero)
        return tf.where(y > 0.0, self._count(f, y, alpha) + some, none)

    def _moments(self, f: tf.Tensor, g: tf.Tensor) -> MeanAndVariance:
        share, alpha = tf.exp(self._zero(g)[1]), self._dispersion()
        mean = share * tf.exp(f)
        return mean, share * self._second_moment(f, alpha) - tf.square(mean)


class Hurdle(ZeroAltered):
    """
    A zero with a probability, ``sigmoid(g)`` by default, a count above zero otherwise (Mullahy
    1986).
    """

    def _log_density(self, f: tf.Tensor, g: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        alpha = self._dispersion()
        above = self._count(f, y, alpha) - self._log_some(f, alpha)
        zero, some = self._zero(g)
        return tf.where(y > 0.0, above + some, zero)

    def _log_some(self, f: tf.Tensor, alpha: tf.Tensor | None) -> tf.Tensor:
        """Log-probability of a count above zero."""
        some = -tf.math.expm1(self._no_count(f, alpha))
        return tf.math.log(tf.maximum(some, tf.constant(_TINY, some.dtype)))

    def _moments(self, f: tf.Tensor, g: tf.Tensor) -> MeanAndVariance:
        alpha = self._dispersion()
        share = tf.exp(self._zero(g)[1] - self._log_some(f, alpha))
        mean = share * tf.exp(f)
        return mean, share * self._second_moment(f, alpha) - tf.square(mean)
