"""Class probabilities under Gaussian latent functions."""

from __future__ import annotations

import math

import tensorflow as tf
from gpflow.likelihoods import Likelihood, Softmax

from ..likelihoods import Bernoulli
from ..posteriors import ActionPosterior
from ..posteriors.base import seeds, standard_normal

METHODS = ("mean", "probit", "projected", "monte carlo")


def class_probabilities(
    likelihood: Likelihood,
    posterior: ActionPosterior,
    X: tf.Tensor,
    method: str,
    num_samples: int,
    seed: int,
) -> tf.Tensor:
    """
    [N, C]; see :meth:`gpflow_gam.models.IterNCGP.predict_probabilities`.

    :raises ValueError: another method or likelihood.
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}; got {method!r}.")
    if not isinstance(likelihood, (Bernoulli, Softmax)):
        raise ValueError(
            "class probabilities need a Bernoulli or softmax likelihood; got "
            f"{type(likelihood).__name__}. Use predict_y."
        )
    mean, var = posterior.predict_f(X)
    if isinstance(likelihood, Bernoulli):
        return _binary(likelihood, mean, var, method)
    if method == "mean":
        return tf.nn.softmax(mean)
    if method == "probit":
        return tf.nn.softmax(_shrunk(mean, var))
    _, cov = posterior.predict_f(X, full_output_cov=True)  # [N, C, C]
    if method == "projected":
        away = cov - tf.reduce_mean(cov, axis=1, keepdims=True)
        away = away - tf.reduce_mean(away, axis=2, keepdims=True)
        return tf.nn.softmax(_shrunk(mean, tf.linalg.diag_part(away)))
    values, vectors = tf.linalg.eigh(cov)
    root = vectors * tf.sqrt(tf.maximum(values, tf.zeros([], values.dtype)))[:, None, :]
    total = tf.zeros_like(mean)
    for one in seeds(seed, num_samples):
        z = standard_normal(tf.shape(mean), mean.dtype, one)
        total += tf.nn.softmax(mean + tf.linalg.matvec(root, z))
    return total / num_samples


def _shrunk(mean: tf.Tensor, var: tf.Tensor) -> tf.Tensor:
    """MacKay (1992): a logit's mean under N(mean, var), about."""
    return mean / tf.sqrt(1.0 + math.pi / 8.0 * var)


def _binary(likelihood: Bernoulli, mean: tf.Tensor, var: tf.Tensor, method: str) -> tf.Tensor:
    if method == "mean":
        p = likelihood.invlink(mean)
    elif method == "monte carlo" or likelihood.link != "logit":
        p, _ = likelihood.predict_mean_and_var(tf.zeros_like(mean), mean, var)  # quadrature
    else:
        p = tf.sigmoid(_shrunk(mean, var))
    return tf.concat([1.0 - p, p], axis=1)
