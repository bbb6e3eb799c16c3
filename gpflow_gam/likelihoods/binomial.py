"""Successes out of known numbers of trials."""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import MeanAndVariance, TensorType
from gpflow.likelihoods import QuadratureLikelihood

from .links import checked_link, expected_probability, log_failure, log_probability, probability


class Binomial(QuadratureLikelihood):
    """
    ``p(y | f) = Binomial(y; n, g(f))``, g the inverse of the link.

    Y is [N, 2]: successes and trials. Means and variances are those of one trial, and (1, 0) for
    the trials' column: how many a new point has is not known here.

    :param link: "logit", "probit", "cloglog", "cauchit" or "log", as of :class:`Bernoulli`.
    :raises ValueError: another link.
    """

    def __init__(self, link: str = "logit", **kwargs: Any) -> None:
        super().__init__(input_dim=None, latent_dim=1, observation_dim=2, **kwargs)
        self.link = checked_link(link)
        self.invlink = functools.partial(probability, link)

    @inherit_check_shapes
    def _log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        f, y, trials = F[..., 0], Y[..., 0], Y[..., 1]
        lgamma = tf.math.lgamma
        ways = lgamma(trials + 1.0) - lgamma(y + 1.0) - lgamma(trials - y + 1.0)
        hits, misses = log_probability(self.link, f), log_failure(self.link, f)
        return ways + y * hits + (trials - y) * misses

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return _one_trial(self.invlink(F))[0]

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return _one_trial(self.invlink(F))[1]

    @inherit_check_shapes
    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        return _one_trial(expected_probability(self.link, self.quadrature, Fmu, Fvar))


def _one_trial(p: tf.Tensor) -> MeanAndVariance:
    """Mean and variance [..., 2] of the outcome of one trial, and of the number of trials, 1."""
    mean = tf.concat([p, tf.ones_like(p)], axis=-1)
    return mean, tf.concat([p - tf.square(p), tf.zeros_like(p)], axis=-1)
