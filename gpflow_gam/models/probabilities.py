"""Class probabilities under Gaussian latent functions."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood, Softmax

from ..likelihoods import Bernoulli, Weighted, unwrapped
from ..newton import left_out
from ..newton.solvers import ActionPosteriorState, LaplaceProblem
from ..posteriors import ActionPosterior
from ..posteriors.base import seeds, standard_normal

METHODS = ("mean", "probit", "projected", "monte carlo")
CHOSEN = "left out"
"""The default: "projected" with that share of the variance that left-out rows ask for."""
SHARES = (1.0, 0.5, 0.25, 0.125, 0.0625, 0.0)
"""Of the variance, that may count; the posterior's own, all of it, comes first."""
_MOST_ROWS = 1000
"""Of those that are left out."""


@dataclass(frozen=True)
class LeftOutRows:
    """What rows that are left out say of each share of the variance."""

    log_probabilities: AnyNDArray
    """Of what was observed, by share in the order of :data:`SHARES`, [S, M]."""

    weights: AnyNDArray
    """Of the rows, [M], which add up to one."""

    def means(self) -> dict[float, float]:
        """Over the rows, by share."""
        return dict(zip(SHARES, (self.log_probabilities @ self.weights).tolist()))

    def share(self) -> float:
        """
        That which predicts the rows best, where it does so by more than a standard error; else 1.

        Differences are small where the data say little, and then often chance. Rows that the
        hyperparameters were chosen by favour too little variance.
        """
        means = self.log_probabilities @ self.weights
        best = int(np.argmax(means))
        gain = self.log_probabilities[best] - self.log_probabilities[0]
        error = np.sqrt(np.sum(np.square(self.weights * (gain - means[best] + means[0]))))
        return SHARES[best if means[best] - means[0] > error else 0]


def check_method(method: str, likelihood: Likelihood) -> Likelihood:
    """
    The likelihood of one observation.

    :param method: of class probabilities.
    :param likelihood: with weights or without.
    :raises ValueError: another method, or a likelihood without classes.
    """
    if method not in (CHOSEN, *METHODS):
        raise ValueError(f"method must be one of {', '.join((CHOSEN, *METHODS))}; got {method!r}.")
    likelihood = unwrapped(likelihood)
    if not isinstance(likelihood, (Bernoulli, Softmax)):
        raise ValueError(
            "class probabilities need a Bernoulli or softmax likelihood; got "
            f"{type(likelihood).__name__}. Use predict_y."
        )
    return likelihood


def class_probabilities(
    likelihood: Likelihood,
    posterior: ActionPosterior,
    X: tf.Tensor,
    method: str,
    num_samples: int,
    seed: int,
    share: tf.Tensor | None = None,
) -> tf.Tensor:
    """
    [N, C]; see :meth:`gpflow_gam.models.IterNCGP.predict_probabilities`.

    :param likelihood: of one observation.
    :param posterior: of the latent functions.
    :param X: points [N, D].
    :param method: of :data:`METHODS`.
    :param num_samples: of Monte Carlo.
    :param seed: of its draws.
    :param share: of "projected": of the variance, which part counts, []; all without it.
    """
    if isinstance(likelihood, Bernoulli) or method in ("mean", "probit"):
        mean, var = posterior.predict_f(X)
        if isinstance(likelihood, Bernoulli):
            return _binary(likelihood, mean, var if share is None else share * var, method)
        return tf.nn.softmax(mean if method == "mean" else _shrunk(mean, var))
    mean, cov = posterior.predict_f(X, full_output_cov=True)  # [N, C, C]
    if method == "projected":
        away = _without_shift(cov)
        return tf.nn.softmax(_shrunk(mean, away if share is None else share * away))
    values, vectors = tf.linalg.eigh(cov)
    root = vectors * tf.sqrt(tf.maximum(values, tf.zeros([], values.dtype)))[:, None, :]
    total = tf.zeros_like(mean)
    for one in seeds(seed, num_samples):
        z = standard_normal(tf.shape(mean), mean.dtype, one)
        total += tf.nn.softmax(mean + tf.linalg.matvec(root, z))
    return total / num_samples


def left_out_rows(
    problem: LaplaceProblem, state: ActionPosteriorState, averaged: bool
) -> LeftOutRows:
    """
    Log-probabilities of what was observed, each row left out, by share of the variance.

    :param problem: at the parameters of ``state``; of no more than a thousand of its rows.
    :param state: of a fit.
    :param averaged: whether it is the nearest Gaussian's.
    """
    N = problem.operator.num_data
    weights = np.ones(N)
    if isinstance(problem.likelihood, Weighted):
        weights = np.asarray(problem.likelihood.weights(problem.X), dtype=float)
    rows = np.random.default_rng(0).permutation(np.flatnonzero(weights > 0.0))[:_MOST_ROWS]
    mean, cov = (tf.constant(t) for t in left_out(problem, state, rows, averaged))
    likelihood = unwrapped(problem.likelihood)
    observed = np.asarray(tf.gather(problem.Y, rows))[:, 0].astype(int)
    binary = isinstance(likelihood, Bernoulli)
    var = tf.linalg.diag_part(cov) if binary else _without_shift(cov)
    var = tf.maximum(var, tf.zeros([], var.dtype))
    found = []
    for share in SHARES:
        if isinstance(likelihood, Bernoulli):
            p = _binary(likelihood, mean, share * var, "projected")
        else:
            p = tf.nn.softmax(_shrunk(mean, share * var))
        hit = np.maximum(p.numpy()[np.arange(len(rows)), observed], np.finfo(float).tiny)
        found.append(np.log(hit))
    return LeftOutRows(np.stack(found), weights[rows] / np.sum(weights[rows]))


def _without_shift(cov: tf.Tensor) -> tf.Tensor:
    """Variances [N, C] without that of a common shift of all classes."""
    away = cov - tf.reduce_mean(cov, axis=1, keepdims=True)
    away = away - tf.reduce_mean(away, axis=2, keepdims=True)
    return tf.linalg.diag_part(away)


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
