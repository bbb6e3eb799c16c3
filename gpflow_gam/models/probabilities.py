"""Class probabilities under Gaussian latent functions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood, Softmax

from ..likelihoods import Bernoulli, Weighted, unwrapped
from ..likelihoods.predictive import predictive_log_density, roots, shrunk, softmax_mean
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


def has_classes(likelihood: Likelihood) -> bool:
    """Whether the responses are classes that are not ordered."""
    return isinstance(unwrapped(likelihood), (Bernoulli, Softmax))


def check_method(method: str) -> None:
    """
    :raises ValueError: another method than there are.
    """
    if method not in (CHOSEN, *METHODS):
        raise ValueError(f"method must be one of {', '.join((CHOSEN, *METHODS))}; got {method!r}.")


def check_classes(likelihood: Likelihood) -> Likelihood:
    """
    The likelihood of one observation.

    :raises ValueError: a likelihood without classes.
    """
    if not has_classes(likelihood):
        raise ValueError(
            "class probabilities need a Bernoulli or softmax likelihood; got "
            f"{type(unwrapped(likelihood)).__name__}. Use predict_y."
        )
    return unwrapped(likelihood)


def class_probabilities(
    likelihood: Likelihood,
    posterior: ActionPosterior,
    X: tf.Tensor,
    method: str,
    num_samples: int,
    seed: int,
) -> tf.Tensor:
    """
    [N, C] by other approximations than ``predict_y`` has, which benchmarks compare it with.

    "mean" is of the posterior mean alone, "projected" MacKay's approximation of the joint
    posterior, "probit" of the marginals, as Tatzel et al. (2025) have it, and "monte carlo" is
    over the joint posterior.

    :param likelihood: of one observation.
    :param posterior: of the latent functions.
    :param X: points [N, D].
    :param method: of :data:`METHODS`.
    :param num_samples: of Monte Carlo.
    :param seed: of its draws.
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
    X, Y = (tf.gather(t, rows) for t in (problem.X, problem.Y))
    cov = tf.linalg.set_diag(cov, tf.maximum(tf.linalg.diag_part(cov), tf.zeros([], cov.dtype)))
    logs = [predictive_log_density(likelihood, X, mean, share * cov, Y) for share in SHARES]
    found = np.maximum(logs, np.log(np.finfo(float).tiny))
    return LeftOutRows(found, weights[rows] / np.sum(weights[rows]))


def _binary(likelihood: Bernoulli, mean: tf.Tensor, var: tf.Tensor, method: str) -> tf.Tensor:
    if method == "mean":
        p = likelihood.invlink(mean)
    elif method == "monte carlo" or likelihood.link != "logit":
        p, _ = likelihood.predict_mean_and_var(tf.zeros_like(mean), mean, var)  # quadrature
    else:
        p = tf.sigmoid(shrunk(mean, var))
    return tf.concat([1.0 - p, p], axis=1)
