"""Class probabilities under Gaussian latent functions, by approximations to compare ours with."""

from __future__ import annotations

import tensorflow as tf
from gpflow.likelihoods import Likelihood

from gpflow_gam.likelihoods import Bernoulli
from gpflow_gam.likelihoods.predictive import roots, shrunk, softmax_mean
from gpflow_gam.posteriors import ActionPosterior
from gpflow_gam.posteriors.base import seeds
from gpflow_gam.variational import standard_normal


def class_probabilities(
    likelihood: Likelihood,
    posterior: ActionPosterior,
    X: tf.Tensor,
    method: str,
    num_samples: int,
    seed: int,
) -> tf.Tensor:
    """
    [N, C] by other approximations than ``predict_y`` has.

    "mean" is of the posterior mean alone, "projected" MacKay's approximation of the joint
    posterior, "probit" of the marginals, as Tatzel et al. (2025) have it, and "monte carlo" is
    over the joint posterior.
    """
    if isinstance(likelihood, Bernoulli) or method in ("mean", "probit"):
        mean, var = posterior.predict_f(X)
        if isinstance(likelihood, Bernoulli):
            return _binary(likelihood, mean, var, method)
        return tf.nn.softmax(mean if method == "mean" else shrunk(mean, var))
    mean, cov = posterior.predict_f(X, full_output_cov=True)  # [N, C, C]
    if method == "projected":
        return softmax_mean(mean, cov)
    root, total = roots(cov), tf.zeros_like(mean)
    for one in seeds(seed, num_samples):
        z = standard_normal(tf.shape(mean), mean.dtype, one)
        total += tf.nn.softmax(mean + tf.linalg.matvec(root, z))
    return total / num_samples


def _binary(likelihood: Bernoulli, mean: tf.Tensor, var: tf.Tensor, method: str) -> tf.Tensor:
    if method == "mean":
        p = likelihood.invlink(mean)
    elif method == "monte carlo" or likelihood.link != "logit":
        p, _ = likelihood.predict_mean_and_var(tf.zeros_like(mean), mean, var)  # quadrature
    else:
        p = tf.sigmoid(shrunk(mean, var))
    return tf.concat([1.0 - p, p], axis=1)
