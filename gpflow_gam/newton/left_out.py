"""The posterior of a set of actions at a datum that none of them asks any more."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood, Softmax

from ..likelihoods import Bernoulli, Weighted
from ..likelihoods.base import unwrapped
from ..likelihoods.predictive import predictive_log_density
from .problem import ActionPosteriorState, LaplaceProblem, noise_products
from .variational import ExpectedProblem

_KEPT = 1e-6
"""Share of a left-out datum's noise that its actions keep: one that asks it alone asks nothing."""
_AT_ONCE = 2**23  # numbers of a block of data
SHARES = (1.0, 0.5, 0.25, 0.125, 0.0625, 0.0)
"""Shares of the variance that may count; all of it, the posterior's own, comes first."""
_MOST_ROWS = 1000  # largest number of rows that are left out


@dataclass(frozen=True)
class LeftOutRows:
    """Log-probabilities of left-out rows, by the share of the variance that counts."""

    log_probabilities: AnyNDArray
    """Log-probabilities of the responses, by share in the order of :data:`SHARES`, [S, M]."""

    weights: AnyNDArray  # weights of the rows, [M], which add up to one

    def means(self) -> dict[float, float]:
        """Over the rows, by share."""
        return dict(zip(SHARES, (self.log_probabilities @ self.weights).tolist()))

    def share(self) -> float:
        """The share that predicts best, where it does so by more than a standard error; else 1."""
        means = self.log_probabilities @ self.weights
        best = int(np.argmax(means))
        gain = self.log_probabilities[best] - self.log_probabilities[0]
        error = np.sqrt(np.sum(np.square(self.weights * (gain - means[best] + means[0]))))
        return SHARES[best if means[best] - means[0] > error else 0]


def has_classes(likelihood: Likelihood) -> bool:
    """True if the responses are classes that are not ordered."""
    return isinstance(unwrapped(likelihood), (Bernoulli, Softmax))


def left_out_rows(
    problem: LaplaceProblem, state: ActionPosteriorState, averaged: bool
) -> LeftOutRows:
    """Log-probabilities of what was observed, each row left out, by share of the variance."""
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
    result = np.maximum(logs, np.log(np.finfo(float).tiny))
    return LeftOutRows(result, weights[rows] / np.sum(weights[rows]))


@check_shapes("rows: [M]", "return[0]: [M, L]", "return[1]: [M, L, L]")
def left_out(
    problem: LaplaceProblem, state: ActionPosteriorState, rows: AnyNDArray, averaged: bool
) -> tuple[AnyNDArray, AnyNDArray]:
    """Moments of the outputs at some of the data, each from all the others."""
    # Gaussian pseudo-observations of the others stay what they are (the cavity of expectation
    # propagation). With datum n gone, its rows s_n of the actions are zeros, and of G = S'(K +
    # W^+)S goes what they put in,
    #     G_n = G - s_n'T_n - T_n's_n + s_n'k(x_n, x_n)s_n - s_n'W_n^+ s_n,  T = K S,
    # which Woodbury's identity inverts. Where actions ask less than everything this takes away no
    # more than they had asked of the datum. Of K it takes the rows: M / N of a sweep. Returns means
    # [M, L] and covariances [M, L, L].
    operator, latents = problem.operator, problem.operator.latents
    S, v = state.actions, state.weights
    wide = tf.concat([tf.transpose(S, [1, 2, 0]), v[..., None]], axis=2)
    T = operator.product_at_rows(tf.constant(rows), wide)  # [Q, M, B + 1]
    g, T = T[..., -1], T[..., :-1]
    some = problem.of_rows(tf.constant(rows))
    if averaged:
        some = ExpectedProblem(some, state, tf.transpose(T, [2, 0, 1]))
    here = some.curvature(g)
    s = tf.gather(S, rows, axis=2)  # [B, Q, M]
    noise = noise_products(here.precision, s)
    seen = tf.reduce_sum(s * g, axis=1) + tf.reduce_sum(noise * here.gradient, axis=1)  # [B, M]
    Q = operator.num_latents
    prior = tf.broadcast_to(some.operator.diag(), [Q, len(rows)]).numpy().T  # [M, Q]

    F = state.factor.numpy()
    own, through, loud = (np.asarray(tf.transpose(t, order)) @ F for t, order in
                          ((s, [2, 1, 0]), (T, [1, 0, 2]), (noise, [2, 1, 0])))  # fmt: skip
    target = (state.targets.numpy()[:, None] - seen.numpy()).T @ F  # [M, R]
    mean, cov = np.zeros((len(rows), Q)), np.zeros((len(rows), Q, Q))
    each = max(1, _AT_ONCE // max(1, 4 * Q * (Q + F.shape[1])))
    for start in range(0, len(rows), each):
        at = slice(start, start + each)
        mean[at], cov[at] = _without(own[at], through[at], loud[at], target[at], prior[at])
    if latents.mixing is not None:
        A = np.asarray(latents.matrix(operator.dtype))
        mean, cov = mean @ A.T, A @ cov @ A.T
    return mean + some.mean.numpy(), cov


def _without(
    own: AnyNDArray, through: AnyNDArray, loud: AnyNDArray, target: AnyNDArray, prior: AnyNDArray
) -> tuple[AnyNDArray, AnyNDArray]:
    """Latent functions at the data without them, [M, Q] and [M, Q, Q]; ``F F' = G^-1``."""
    h = through - prior[..., None] * own  # k(x_n, X) S without the datum
    L = np.concatenate([own, through], axis=1)  # G_n = G + L'R
    R = np.concatenate([-h - (1.0 - _KEPT) * loud, -own], axis=1)
    inner = np.eye(L.shape[1]) + R @ L.swapaxes(1, 2)
    right = np.concatenate([R @ h.swapaxes(1, 2), R @ target[..., None]], axis=2)
    result = h @ L.swapaxes(1, 2) @ np.linalg.solve(inner, right)
    cov = result[..., :-1] - h @ h.swapaxes(1, 2)
    cov += prior[:, :, None] * np.eye(prior.shape[1])
    mean = (h @ target[..., None])[..., 0] - result[..., -1]
    return mean, 0.5 * (cov + cov.swapaxes(1, 2))
