"""Links from a predictor to a probability, without loss of digits far out."""

from __future__ import annotations

import math
from collections.abc import Callable

import scipy.special
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.quadrature import GaussianQuadrature

LINKS = ("logit", "probit", "cloglog", "cauchit", "log")
SYMMETRIC = ("logit", "probit", "cauchit")
"""Links under which failure at a predictor is as probable as success at minus that."""
LARGEST = 0.99
"""Probability above which the logarithm gives way to a curve that stays below one."""
_LEAST = -700.0
"""Predictor below which its exponential underflows."""
_EDGE = math.log(LARGEST)
"""Of the logarithm, as a predictor."""


def checked_link(link: str) -> str:
    """
    The link, once it is known.

    :raises ValueError: none that there is.
    """
    if link not in LINKS:
        names = ", ".join(map(repr, LINKS[:-1]))
        raise ValueError(f"link must be {names} or {LINKS[-1]!r}; got {link!r}.")
    return link


def log_ndtr(x: tf.Tensor) -> tf.Tensor:
    """Log of the standard normal distribution function, [...]; finite in the lower tail."""
    if tf.executing_eagerly() and tf.is_tensor(x) and hasattr(x, "numpy"):
        return _eager_log_ndtr(x)
    return tfp.math.logerfc(-x / math.sqrt(2.0)) - math.log(2.0)


@tf.custom_gradient
def _eager_log_ndtr(
    x: tf.Tensor,
) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """The same by SciPy: outside of a graph TFP's hundreds of small operations take far longer."""
    value = tf.constant(scipy.special.log_ndtr(x.numpy()), x.dtype)

    def grad(upstream: tf.Tensor) -> tf.Tensor:
        # computed anew, for second derivatives
        density = -0.5 * tf.square(x) - 0.5 * math.log(2.0 * math.pi)
        return upstream * tf.exp(density - log_ndtr(x))

    return value, grad


def probability(link: str, F: tf.Tensor) -> tf.Tensor:
    """P(success) at predictors F [...]."""
    if link == "logit":
        return tf.sigmoid(F)
    if link == "probit":
        return 0.5 * tf.math.erfc(-F / math.sqrt(2.0))
    if link == "cloglog":
        return -tf.math.expm1(-tf.exp(F))
    if link == "log":
        return tf.exp(log_probability(link, F))
    return tf.math.atan2(tf.ones_like(F), -F) / math.pi  # digits stay in the lower tail


def log_probability(link: str, F: tf.Tensor) -> tf.Tensor:
    """Log P(success) at F [...]."""
    if link == "logit":
        return tf.math.log_sigmoid(F)
    if link == "probit":
        return log_ndtr(F)
    if link == "cloglog":
        F = tf.maximum(F, tf.constant(_LEAST, F.dtype))
    if link == "log":
        return tf.where(F < _EDGE, F, tf.math.log1p(-tf.exp(_log_left(F))))
    return tf.math.log(probability(link, F))


def log_failure(link: str, F: tf.Tensor) -> tf.Tensor:
    """Log P(failure) at F [...]: for symmetric links that of success at -F."""
    if link == "log":
        below = tf.math.log(-tf.math.expm1(tf.minimum(F, tf.constant(_EDGE, F.dtype))))
        return tf.where(F < _EDGE, below, _log_left(F))
    return -tf.exp(F) if link == "cloglog" else log_probability(link, -F)


def _log_left(F: tf.Tensor) -> tf.Tensor:
    """Log P(failure) beyond the edge of the logarithm: a line, which goes on at its slope there."""
    beyond = tf.maximum(F - _EDGE, tf.zeros([], F.dtype))
    return math.log(1.0 - LARGEST) - LARGEST / (1.0 - LARGEST) * beyond


def expected_probability(
    link: str, quadrature: GaussianQuadrature, mean: tf.Tensor, var: tf.Tensor
) -> tf.Tensor:
    """E[P(success)] at predictors N(mean, var), [..., L]; in closed form for probit."""
    if link == "probit":
        return probability("probit", mean / tf.sqrt(1.0 + var))
    return quadrature(lambda F: probability(link, F), mean, var)
