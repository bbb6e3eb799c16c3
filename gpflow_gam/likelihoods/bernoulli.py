"""Binary observations whose log-probabilities stay finite."""

from __future__ import annotations

import functools
from typing import Any

import gpflow
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import MeanAndVariance, TensorType
from gpflow.likelihoods import QuadratureLikelihood

from .links import (
    SYMMETRIC,
    checked_link,
    expected_probability,
    log_failure,
    log_probability,
    probability,
)


class Bernoulli(gpflow.likelihoods.Bernoulli):
    """
    ``p(y = 1 | f) = g(f)`` for y in {0, 1}, g the inverse of the link.

    GPflow's takes ``log(1 - g(f))`` as written: minus infinity from f = 37 on under a logit link,
    which quadrature nodes reach; and its probit is squeezed into [0.001, 0.999].

    :param link: "logit", "probit", "cloglog" or "cauchit" (McCullagh & Nelder 1989, section 4.3),
        or "log", of probabilities up to .99: above, they approach one without reaching it.
    :raises ValueError: another link.
    """

    def __init__(self, link: str = "logit", **kwargs: Any) -> None:
        self.link = checked_link(link)
        super().__init__(invlink=functools.partial(probability, link), **kwargs)

    @inherit_check_shapes
    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        if self.link not in SYMMETRIC:
            return tf.where(Y > 0.5, log_probability(self.link, F), log_failure(self.link, F))
        return log_probability(self.link, (2.0 * Y - 1.0) * F)

    @inherit_check_shapes
    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        p = expected_probability(self.link, self.quadrature, Fmu, Fvar)
        return p, p - tf.square(p)

    @inherit_check_shapes
    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        if self.link != "probit":
            return QuadratureLikelihood._predict_log_density(self, X, Fmu, Fvar, Y)
        margin = (2.0 * Y - 1.0) * Fmu / tf.sqrt(1.0 + Fvar)
        return tf.reduce_sum(log_probability("probit", margin), axis=-1)
