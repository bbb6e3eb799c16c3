"""Proportions."""

from __future__ import annotations

import functools
from typing import Any

import gpflow
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import TensorType

from .links import log_failure, probability

SHARE_LINKS = ("logit", "probit", "cloglog", "cauchit")
_LEAST = 1e-300
"""Share below which the gamma function overflows."""


def checked_share_link(link: str) -> str:
    """
    The link, once it is known.

    :raises ValueError: none that proportions have.
    """
    if link not in SHARE_LINKS:
        raise ValueError(f"link must be one of {', '.join(SHARE_LINKS)}; got {link!r}.")
    return link


def shares(link: str, F: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """m and 1 - m, [...], of predictors F [...]; neither is nothing."""
    if link == "logit":
        return tf.sigmoid(F), tf.sigmoid(-F)
    least = tf.constant(_LEAST, F.dtype)
    m, rest = probability(link, F), tf.exp(log_failure(link, F))
    return tf.maximum(m, least), tf.maximum(rest, least)


class LogitBeta(gpflow.likelihoods.Beta):
    """
    ``y ~ Beta(s m, s (1 - m))``, m the inverse link of f (Ferrari & Cribari-Neto 2004).

    GPflow's subtracts s m from s, which is 0 from f = 37 on, and clips y to [1e-6, 1 - 1e-6].

    :param scale: s, trainable; the variance of y is ``m (1 - m) / (1 + s)``.
    :param link: "logit", as its name says, or "probit", "cloglog" or "cauchit".
    :raises ValueError: another link.
    """

    def __init__(self, scale: TensorType = 1.0, link: str = "logit", **kwargs: Any) -> None:
        self.link = checked_share_link(link)
        super().__init__(invlink=functools.partial(probability, link), scale=scale, **kwargs)

    @inherit_check_shapes
    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        scale, lgamma = self._scale(X), tf.math.lgamma
        a, b = (scale * share for share in shares(self.link, tf.convert_to_tensor(F)))
        powers = (a - 1.0) * tf.math.log(Y) + (b - 1.0) * tf.math.log1p(-Y)
        return powers + lgamma(scale) - lgamma(a) - lgamma(b)
