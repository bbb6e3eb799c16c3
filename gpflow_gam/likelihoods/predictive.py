"""The predictive distribution of a response under normal predictors, correlated or not."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from gpflow.base import MeanAndVariance, TensorType
from gpflow.likelihoods import Likelihood, MonteCarloLikelihood, ScalarLikelihood, Softmax

from .fixed_softmax import FixedSoftmax, normal_nodes
from .weighted import Weighted, unwrapped

_PAIRS, _APART = 256, 64
"""Pairs of nodes that an expectation over several predictors takes, at least; and over independent
ones, where GPflow has a hundred draws."""


def is_joint(likelihood: Likelihood, num_predictors: int) -> bool:
    """Whether a response depends on several predictors together, and so on their covariances."""
    return num_predictors > 1 and not isinstance(unwrapped(likelihood), ScalarLikelihood)


def needed(likelihood: Likelihood, mean: TensorType, var: TensorType) -> tf.Tensor:
    """Of covariances the variances, where these are all that matters."""
    if _is_covariance(mean, var) and not is_joint(likelihood, int(mean.shape[-1])):
        return tf.linalg.diag_part(var)
    return var


def predictive_moments(
    likelihood: Likelihood, X: TensorType, mean: TensorType, var: TensorType
) -> MeanAndVariance:
    """
    Mean and variance of a new response, [..., N, P]; of classes the probabilities and p (1 - p).

    Classes behind a softmax with correlated predictors are those of :func:`softmax_mean`; other
    likelihoods of correlated predictors are averaged over fixed nodes.

    :param X: inputs [..., N, D].
    :param mean: of the predictors, [..., N, L].
    :param var: their variances, or covariances [..., N, L, L].
    """
    base, var = unwrapped(likelihood), needed(likelihood, mean, var)
    if _is_apart(base, mean, var):
        found: MeanAndVariance = likelihood.predict_mean_and_var(X, mean, var)
        return found
    if isinstance(base, Softmax) and _is_covariance(mean, var):
        p = softmax_mean(mean, var)
        return p, p - tf.square(p)
    expected = _at_nodes(base.conditional_mean, mean, var, X)
    within = tf.reduce_mean(_at_nodes(base.conditional_variance, mean, var, X), axis=0)
    return tf.reduce_mean(expected, axis=0), within + tf.math.reduce_variance(expected, axis=0)


def predictive_log_density(
    likelihood: Likelihood, X: TensorType, mean: TensorType, var: TensorType, Y: TensorType
) -> tf.Tensor:
    """
    Log-density of responses under the distribution that :func:`predictive_moments` is of, [..., N].

    :param X: inputs [..., N, D].
    :param mean: of the predictors, [..., N, L].
    :param var: their variances, or covariances [..., N, L, L].
    :param Y: as the likelihood takes it, [..., N, K].
    """
    base, var = unwrapped(likelihood), needed(likelihood, mean, var)
    if _is_apart(base, mean, var):
        return likelihood.predict_log_density(X, mean, var, Y)
    if isinstance(base, Softmax) and _is_covariance(mean, var):
        density = base.log_prob(X, _without_shift(mean, var), Y)
    else:
        logs = _at_nodes(base.log_prob, mean, var, X, Y)
        number = tf.cast(tf.shape(logs)[0], logs.dtype)
        density = tf.reduce_logsumexp(logs, axis=0) - tf.math.log(number)
    return _counted(likelihood, X, density)


def expected_log_density(
    likelihood: Likelihood, X: TensorType, mean: TensorType, var: TensorType, Y: TensorType
) -> tf.Tensor:
    """
    The expectation of a response's log-density over its predictors, [..., N].

    :param X: inputs [..., N, D].
    :param mean: of the predictors, [..., N, L].
    :param var: their variances, or covariances [..., N, L, L].
    :param Y: as the likelihood takes it, [..., N, K].
    """
    var = needed(likelihood, mean, var)
    if not _is_covariance(mean, var):
        return likelihood.variational_expectations(X, mean, var, Y)
    logs = _at_nodes(unwrapped(likelihood).log_prob, mean, var, X, Y)
    return _counted(likelihood, X, tf.reduce_mean(logs, axis=0))


def softmax_mean(mean: TensorType, cov: TensorType) -> tf.Tensor:
    """
    Class probabilities [..., C] behind a softmax, about: MacKay (1992).

    A softmax does not see a common shift of all predictors, and neither does this.

    :param mean: of the predictors, [..., C].
    :param cov: their covariances, [..., C, C].
    """
    return tf.nn.softmax(_without_shift(mean, cov))


def shrunk(mean: tf.Tensor, var: tf.Tensor) -> tf.Tensor:
    """MacKay (1992): the logit whose probability is the mean under N(mean, var), about."""
    return mean / tf.sqrt(1.0 + math.pi / 8.0 * var)


def roots(cov: tf.Tensor) -> tf.Tensor:
    """
    Lower triangular roots of covariances [..., L, L], singular ones too.

    Column by column, as formats beside TensorFlow's know no Cholesky factor.
    """
    zero, rest, columns = tf.zeros([], cov.dtype), cov, []
    eps = float(np.finfo(cov.dtype.as_numpy_dtype).eps)
    for i in range(cov.shape[-1]):
        pivot = rest[..., i, i, None]
        has = pivot > 10.0 * eps * cov[..., i, i, None]  # else rounding, or nothing
        scale = tf.sqrt(tf.where(has, pivot, tf.ones_like(pivot)))
        column = tf.where(has, rest[..., i] / scale, zero)
        columns.append(column)
        rest -= column[..., :, None] * column[..., None, :]
    return tf.stack(columns, axis=-1)


def _is_covariance(mean: TensorType, var: TensorType) -> bool:
    return bool(len(var.shape) > len(mean.shape))


def _is_apart(base: Likelihood, mean: TensorType, var: TensorType) -> bool:
    """Whether GPflow's interface will do: of fresh random draws no two calls are the same."""
    drawn = isinstance(base, MonteCarloLikelihood) and not isinstance(base, FixedSoftmax)
    return not (_is_covariance(mean, var) or drawn)


def _without_shift(mean: tf.Tensor, cov: tf.Tensor) -> tf.Tensor:
    away = cov - tf.reduce_mean(cov, axis=-1, keepdims=True)
    away -= tf.reduce_mean(away, axis=-2, keepdims=True)
    var = tf.linalg.diag_part(away)
    return shrunk(mean, tf.maximum(var, tf.zeros([], var.dtype)))


def _at_nodes(
    function: Callable[..., tf.Tensor],
    mean: TensorType,
    var: TensorType,
    X: TensorType,
    *Y: TensorType,
) -> tf.Tensor:
    """``function(X, F, *Y)`` at equally likely predictors, [S, ..., N, ...]."""
    mean, var = tf.convert_to_tensor(mean), tf.convert_to_tensor(var)
    L = int(mean.shape[-1])
    least = _PAIRS if _is_covariance(mean, var) else _APART
    nodes = normal_nodes(L, 2 ** math.ceil(math.log2(max(least, L))))
    if _is_covariance(mean, var):
        away = tf.einsum("...lk,sk->s...l", roots(var), tf.constant(nodes, mean.dtype))
    else:
        sd = tf.sqrt(tf.maximum(var, tf.zeros([], var.dtype)))
        away = tf.einsum("...l,sl->s...l", sd, tf.constant(nodes, mean.dtype))

    def rows(t: TensorType) -> tf.Tensor:  # of which GPflow's likelihoods take matrices
        t = tf.convert_to_tensor(t)
        last = tf.shape(t)[-1] if t.shape[-1] is None else t.shape[-1]
        return tf.reshape(tf.repeat(t[None], len(nodes), axis=0), [-1, last])

    found = function(rows(X), tf.reshape(mean + away, [-1, L]), *map(rows, Y))
    return tf.reshape(found, tf.concat([tf.shape(away)[:-1], tf.shape(found)[1:]], axis=0))


def _counted(likelihood: Likelihood, X: TensorType, density: tf.Tensor) -> tf.Tensor:
    """Times the weights, if there are any."""
    return likelihood.weights(X) * density if isinstance(likelihood, Weighted) else density
