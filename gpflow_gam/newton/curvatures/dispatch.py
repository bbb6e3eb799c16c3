"""Which likelihood has which curvature."""

from __future__ import annotations

import math
from collections.abc import Callable

import tensorflow as tf
from gpflow.base import TensorType
from gpflow.likelihoods import Gaussian, Likelihood, Poisson, Softmax
from gpflow.utilities import Dispatcher

from ...likelihoods import Bernoulli, Binomial, NegativeBinomial, Weighted
from ...likelihoods.links import log_ndtr
from .automatic import automatic_curvature
from .curvature import Curvature
from .precisions import DiagonalPrecision, SoftmaxPrecision

curvature = Dispatcher("curvature")
"""
``curvature(likelihood, X, F, Y)``: the :class:`Curvature` at predictors F [N, Q] of responses
Y [N, K] at inputs X [N, D].

It dispatches on the likelihood's class; register a closed form for one of your own with
``@curvature.register(MyLikelihood, object, object, object)``. Any other likelihood is
differentiated automatically.
"""


@curvature.register(Likelihood, object, object, object)
def _any(likelihood: Likelihood, X: TensorType, F: TensorType, Y: TensorType) -> Curvature:
    return automatic_curvature(likelihood, X, F, Y)


def _separate(
    likelihood: Likelihood, X: TensorType, F: tf.Tensor, Y: TensorType, g: tf.Tensor, w: tf.Tensor
) -> Curvature:
    """Gradients and curvatures [N, L] of latent functions that are observed one by one."""
    log_prob = likelihood.log_prob(X, F, Y)
    return Curvature(log_prob, tf.transpose(g), DiagonalPrecision(tf.transpose(w)))


@curvature.register(Gaussian, object, object, object)
def _gaussian(likelihood: Gaussian, X: TensorType, F: TensorType, Y: TensorType) -> Curvature:
    w = tf.broadcast_to(1.0 / likelihood.variance_at(X), tf.shape(F))
    return _separate(likelihood, X, F, Y, w * (Y - F), w)


def _probit_ratio(z: tf.Tensor) -> tf.Tensor:
    """phi(z) / Phi(z), also far in the lower tail."""
    return tf.exp(-0.5 * tf.square(z) - 0.5 * math.log(2.0 * math.pi) - log_ndtr(z))


def _probit(z: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """First derivative of log Phi(z), and minus the second (Rasmussen & Williams 2006, 3.16)."""
    ratio = _probit_ratio(z)
    return ratio, ratio * tf.maximum(ratio + z, 0.0)


@curvature.register(Bernoulli, object, object, object)
def _bernoulli(likelihood: Bernoulli, X: TensorType, F: TensorType, Y: TensorType) -> Curvature:
    sign = 2.0 * Y - 1.0
    if likelihood.link == "logit":
        miss = tf.sigmoid(-sign * F)
        return _separate(likelihood, X, F, Y, sign * miss, miss * tf.sigmoid(sign * F))
    if likelihood.link != "probit":
        return automatic_curvature(likelihood, X, F, Y)
    slope, bend = _probit(sign * F)
    return _separate(likelihood, X, F, Y, sign * slope, bend)


@curvature.register(Binomial, object, object, object)
def _binomial(likelihood: Binomial, X: TensorType, F: TensorType, Y: TensorType) -> Curvature:
    hits, trials = Y[:, :1], Y[:, 1:]
    if likelihood.link == "logit":
        p, q = tf.sigmoid(F), tf.sigmoid(-F)
        return _separate(likelihood, X, F, Y, hits * q - (trials - hits) * p, trials * p * q)
    if likelihood.link != "probit":
        return automatic_curvature(likelihood, X, F, Y)
    up, bend_up = _probit(F)
    down, bend_down = _probit(-F)
    misses = trials - hits
    return _separate(
        likelihood, X, F, Y, hits * up - misses * down, hits * bend_up + misses * bend_down
    )


@curvature.register(Poisson, object, object, object)
def _poisson(likelihood: Poisson, X: TensorType, F: TensorType, Y: TensorType) -> Curvature:
    if not _is_exp(likelihood.invlink):
        return automatic_curvature(likelihood, X, F, Y)
    rate = tf.exp(F) * tf.cast(likelihood.binsize, F.dtype)
    return _separate(likelihood, X, F, Y, Y - rate, rate)


def _is_exp(link: Callable[..., tf.Tensor]) -> bool:
    return link in (tf.exp, tf.math.exp)


@curvature.register(NegativeBinomial, object, object, object)
def _negative_binomial(
    likelihood: NegativeBinomial, X: TensorType, F: TensorType, Y: TensorType
) -> Curvature:
    alpha = tf.convert_to_tensor(likelihood.alpha)
    odds = F + tf.math.log(alpha)
    p, q = tf.sigmoid(odds), tf.sigmoid(-odds)  # alpha mu / (1 + alpha mu), and the rest
    size = Y + 1.0 / alpha
    return _separate(likelihood, X, F, Y, Y - size * p, size * p * q)


@curvature.register(Softmax, object, object, object)
def _softmax(likelihood: Softmax, X: TensorType, F: TensorType, Y: TensorType) -> Curvature:
    log_pi = tf.nn.log_softmax(F)
    pi = tf.exp(log_pi)
    hit = tf.one_hot(tf.cast(Y[:, 0], tf.int32), F.shape[1], dtype=F.dtype)
    log_prob = tf.reduce_sum(hit * log_pi, axis=1)
    return Curvature(log_prob, tf.transpose(hit - pi), SoftmaxPrecision(tf.transpose(pi)))


@curvature.register(Weighted, object, object, object)
def _weighted(likelihood: Weighted, X: TensorType, F: TensorType, Y: TensorType) -> Curvature:
    weights = likelihood.weights(X)
    F = tf.where(tf.not_equal(weights, 0.0)[:, None], F, tf.zeros_like(F))  # 0 times an overflow
    base = curvature(likelihood.base, X, F, Y)
    return Curvature(
        weights * base.log_prob, weights * base.gradient, base.precision.weighted(weights)
    )
