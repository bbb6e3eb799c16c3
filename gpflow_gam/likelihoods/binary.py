"""Binary observations, and successes out of known numbers of trials."""

from __future__ import annotations

import functools
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import MeanAndVariance, TensorType
from gpflow.likelihoods import QuadratureLikelihood
from scipy.special import gammaln

from .links import (
    SYMMETRIC,
    checked_link,
    expected_probability,
    log_failure,
    log_probability,
    probability,
)
from .row_terms import Batch, Terms, logistic_terms


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

    def support(self, Y: tf.Tensor) -> tuple[tf.Tensor, str]:
        """Which ``Y`` are possible, element by element, and what they must be."""
        return tf.equal(Y, 0.0) | tf.equal(Y, 1.0), "0 or 1"

    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        if self.link not in SYMMETRIC:
            return tf.where(Y > 0.5, log_probability(self.link, F), log_failure(self.link, F))
        return log_probability(self.link, (2.0 * Y - 1.0) * F)

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        p = expected_probability(self.link, self.quadrature, Fmu, Fvar)
        return p, p - tf.square(p)

    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        if self.link != "probit":
            return QuadratureLikelihood._predict_log_density(self, X, Fmu, Fvar, Y)
        margin = (2.0 * Y - 1.0) * Fmu / tf.sqrt(1.0 + Fvar)
        return tf.reduce_sum(log_probability("probit", margin), axis=-1)

    def row_terms(self, rows: Batch) -> Terms | None:
        """Of ``rows``, in closed form but for softplus; under the logit link only."""
        y = rows.Y[:, 0]
        if self.link != "logit" or not np.all((y == 0.0) | (y == 1.0)):
            return None
        return logistic_terms(self.quadrature, rows, np.zeros(len(y)), y, np.ones(len(y)))


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

    def support(self, Y: tf.Tensor) -> tuple[tf.Tensor, str]:
        """
        Which ``Y`` are possible, element by element, and what they must be.

        :raises ValueError: another number of columns.
        """
        if Y.shape[-1] != 2:
            raise ValueError(f"Y must be [N, 2], successes and trials; got shape {Y.shape}.")
        y, trials = Y[:, :1], Y[:, 1:]
        whole = tf.equal(Y, tf.round(Y))
        inside = whole & tf.concat([(y >= 0.0) & (y <= trials), trials >= 1.0], axis=1)
        return inside, "whole successes from 0 to the trials, and whole trials from 1"

    def _log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        f, y, trials = F[..., 0], Y[..., 0], Y[..., 1]
        lgamma = tf.math.lgamma
        ways = lgamma(trials + 1.0) - lgamma(y + 1.0) - lgamma(trials - y + 1.0)
        hits, misses = log_probability(self.link, f), log_failure(self.link, f)
        return ways + y * hits + (trials - y) * misses

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return _one_trial(self.invlink(F))[0]

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return _one_trial(self.invlink(F))[1]

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        return _one_trial(expected_probability(self.link, self.quadrature, Fmu, Fvar))

    def conditional_response(self, X: TensorType, F: TensorType) -> tf.Tensor:
        """The probability [...] at predictors ``F`` [..., 1], whatever ``X``."""
        return self.invlink(F)[..., 0]

    def row_terms(self, rows: Batch) -> Terms | None:
        """Of ``rows``, in closed form but for softplus; under the logit link only."""
        y, trials = rows.Y[:, 0], rows.Y[:, 1]
        if self.link != "logit" or not np.all((y >= 0.0) & (y <= trials)):
            return None
        ways = gammaln(trials + 1.0) - gammaln(y + 1.0) - gammaln(trials - y + 1.0)
        return logistic_terms(self.quadrature, rows, ways, y, trials)


def _one_trial(p: tf.Tensor) -> MeanAndVariance:
    """Mean and variance [..., 2] of the outcome of one trial, and of the number of trials, 1."""
    mean = tf.concat([p, tf.ones_like(p)], axis=-1)
    return mean, tf.concat([p - tf.square(p), tf.zeros_like(p)], axis=-1)
