"""Links from a predictor to a probability, without loss of digits far out."""

from __future__ import annotations

import math
from collections.abc import Callable

import scipy.special
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.quadrature import GaussianQuadrature

LINKS = ("logit", "probit")


def checked_link(link: str) -> str:
    """
    The link, once it is known.

    :raises ValueError: neither "logit" nor "probit".
    """
    if link not in LINKS:
        raise ValueError(f"link must be 'logit' or 'probit'; got {link!r}.")
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
    return 0.5 * tf.math.erfc(-F / math.sqrt(2.0))


def log_probability(link: str, F: tf.Tensor) -> tf.Tensor:
    """Log P(success) at F [...]; both links are symmetric, so that of failure is at -F."""
    return tf.math.log_sigmoid(F) if link == "logit" else log_ndtr(F)


def expected_probability(
    link: str, quadrature: GaussianQuadrature, mean: tf.Tensor, var: tf.Tensor
) -> tf.Tensor:
    """E[P(success)] at predictors N(mean, var), [..., L]; in closed form for probit."""
    if link == "logit":
        return quadrature(lambda F: probability("logit", F), mean, var)
    return probability("probit", mean / tf.sqrt(1.0 + var))
