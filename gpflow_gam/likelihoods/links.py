"""Links from a predictor to a probability, without loss of digits far out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray
from gpflow.quadrature import GaussianQuadrature
from scipy import special

LINKS = ("logit", "probit", "cloglog", "cauchit", "log")
"""Links of probabilities."""
SHARE_LINKS = ("logit", "probit", "cloglog", "cauchit")
"""Links of means that are proportions."""
ORDERED_LINKS = ("probit", "logit", "cloglog", "cauchit")
"""Links of ordered classes."""
SYMMETRIC = ("logit", "probit", "cauchit")
"""Links under which failure at a predictor is as probable as success at minus that."""
LARGEST = 0.99
"""Probability above which the logarithm gives way to a curve that stays below one."""
_LEAST = -700.0  # predictor below which its exponential underflows
_EDGE = math.log(LARGEST)  # predictor at which the logarithm gives way: that of LARGEST


def checked_link(link: str, links: Sequence[str] = LINKS, of: str = "") -> str:
    """The link; raises ValueError if it is not one of ``links``."""
    if link not in links:
        names = ", ".join(map(repr, links[:-1]))
        raise ValueError(f"link{of} must be {names} or {links[-1]!r}; got {link!r}.")
    return link


def log_ndtr(x: tf.Tensor) -> tf.Tensor:
    """Log of the standard normal distribution function, [...]; finite in the lower tail."""
    if tf.executing_eagerly() and tf.is_tensor(x) and hasattr(x, "numpy"):
        return _eager_log_ndtr(x)
    return tfp.math.logerfc(-x / math.sqrt(2.0)) - math.log(2.0)


@tf.custom_gradient
def _eager_log_ndtr(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """By SciPy: outside of a graph TFP's hundreds of small operations take far longer."""
    value = tf.constant(special.log_ndtr(x.numpy()), x.dtype)

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


# --- in numpy ------------------------------------------------------------------------------------


class Log(NamedTuple):
    """A logarithm at predictors: its value, first and second derivative, [...] each."""

    value: AnyNDArray
    first: AnyNDArray
    second: AnyNDArray


def log_probabilities(link: str, g: AnyNDArray) -> tuple[Log, Log]:
    """Log-probabilities of success and of failure at predictors [...]."""
    if link == "cloglog":
        return _cloglog(g)
    if link == "log":
        return _log(g)
    below = {"logit": _logit, "probit": _probit, "cauchit": _cauchit}[link]
    value, first, second = below(-g)
    return below(g), Log(value, -first, second)


def predictor_of(link: str, p: AnyNDArray, q: AnyNDArray) -> AnyNDArray:
    """The predictor at which success has probability p and failure q, for links but "log"."""
    if link == "logit":
        return np.asarray(np.log(p / q))
    if link == "probit":
        return np.where(p < 0.5, special.ndtri(p), -special.ndtri(q))
    return np.asarray(np.log(-np.log(q)) if link == "cloglog" else np.tan(np.pi * (p - 0.5)))


def _logit(g: AnyNDArray) -> Log:
    left = special.expit(-g)
    return Log(-np.logaddexp(0.0, -g), left, -left * (1.0 - left))


def _probit(g: AnyNDArray) -> Log:
    value = special.log_ndtr(g)
    ratio = np.exp(-0.5 * np.square(g) - 0.5 * np.log(2.0 * np.pi) - value)
    return Log(value, ratio, -ratio * (g + ratio))


def _cauchit(g: AnyNDArray) -> Log:
    p, inverse = np.arctan2(1.0, -g) / np.pi, 1.0 / (1.0 + np.square(g))
    ratio = inverse / (np.pi * p)
    return Log(np.log(p), ratio, -ratio * (2.0 * g * inverse + ratio))


def _cloglog(g: AnyNDArray) -> tuple[Log, Log]:
    rate = np.exp(np.maximum(g, _LEAST))
    p = -np.expm1(-rate)
    ratio = rate * np.exp(-rate) / p
    hazard = np.exp(g)
    success = Log(np.log(p), ratio, ratio * (1.0 - rate / p))
    return success, Log(-hazard, -hazard, -hazard)


def _log(g: AnyNDArray) -> tuple[Log, Log]:
    """With a line for the logarithm of failure beyond the edge, where success nears one."""
    near, turn = g < _EDGE, LARGEST / (1.0 - LARGEST)
    inside = np.minimum(g, _EDGE)
    odds = np.exp(inside) / -np.expm1(inside)
    line = np.log(1.0 - LARGEST) - turn * np.maximum(g - _EDGE, 0.0)
    left = np.exp(line) / -np.expm1(line)
    success = Log(
        np.where(near, g, np.log1p(-np.exp(line))),
        np.where(near, 1.0, left * turn),
        np.where(near, 0.0, -left * (1.0 + left) * turn**2),
    )
    failure = Log(
        np.where(near, np.log(-np.expm1(inside)), line),
        np.where(near, -odds, -turn),
        np.where(near, -odds * (1.0 + odds), 0.0),
    )
    return success, failure
