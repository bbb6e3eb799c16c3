"""The posterior of a set of actions at a datum that none of them asks any more."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray

from .problem import noise_products
from .solvers import ActionPosteriorState, LaplaceProblem
from .variational import ExpectedProblem

_KEPT = 1e-6
"""Share of a left-out datum's noise that its actions keep: one that asks it alone asks nothing."""
_AT_ONCE = 2**23
"""Numbers of a block of data."""


@check_shapes("rows: [M]", "return[0]: [M, L]", "return[1]: [M, L, L]")
def left_out(
    problem: LaplaceProblem, state: ActionPosteriorState, rows: AnyNDArray, averaged: bool
) -> tuple[AnyNDArray, AnyNDArray]:
    """
    Moments of the outputs at some of the data, each from all the others.

    Gaussian pseudo-observations of the others stay what they are (the cavity of expectation
    propagation). With datum n gone, its rows s_n of the actions are zeros, and of
    ``G = S'(K + W^+)S`` goes what they put in,

        G_n = G - s_n'T_n - T_n's_n + s_n'k(x_n, x_n)s_n - s_n'W_n^+ s_n,  T = K S,

    which Woodbury's identity inverts. Where actions ask less than everything this takes away no
    more than they had asked of the datum. Of K it takes the rows: M / N of a sweep.

    :param problem: at the parameters of the fit.
    :param state: of the fit.
    :param rows: which data, [M].
    :param averaged: whether pseudo-observations are of the nearest Gaussian, not of the mode.
    :return: means [M, L] and covariances [M, L, L].
    """
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
        A = np.asarray(tf.convert_to_tensor(latents.mixing))
        mean, cov = mean @ A.T, A @ cov @ A.T
    return mean + some.mean.numpy(), cov


def _without(
    own: AnyNDArray, through: AnyNDArray, loud: AnyNDArray, target: AnyNDArray, prior: AnyNDArray
) -> tuple[AnyNDArray, AnyNDArray]:
    """
    Latent functions at the data, [M, Q] and [M, Q, Q], where ``F F' = G^-1``.

    :param own: s_n F, [M, Q, R].
    :param through: T_n F, [M, Q, R].
    :param loud: W_n^+ s_n F, [M, Q, R].
    :param target: F' times what the other data say to the actions, [M, R].
    :param prior: k(x_n, x_n), [M, Q].
    """
    h = through - prior[..., None] * own  # k(x_n, X) S without the datum
    L = np.concatenate([own, through], axis=1)  # G_n = G + L'R
    R = np.concatenate([-h - (1.0 - _KEPT) * loud, -own], axis=1)
    inner = np.eye(L.shape[1]) + R @ L.swapaxes(1, 2)
    right = np.concatenate([R @ h.swapaxes(1, 2), R @ target[..., None]], axis=2)
    found = h @ L.swapaxes(1, 2) @ np.linalg.solve(inner, right)
    cov = found[..., :-1] - h @ h.swapaxes(1, 2)
    cov += prior[:, :, None] * np.eye(prior.shape[1])
    mean = (h @ target[..., None])[..., 0] - found[..., -1]
    return mean, 0.5 * (cov + cov.swapaxes(1, 2))
