"""The evidence bound of a posterior given by actions."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood

from ..likelihoods.predictive import is_joint
from .problem import ActionPosteriorState, LaplaceProblem
from .variational import normal_points

_SMALLEST = 1e-9  # smallest noise of a combination of actions that counts, relative to the largest


def noisy_basis(noise: tf.Tensor) -> AnyNDArray:
    """Combinations U [B, R] of actions with ``U'S'W^+S U = I``, from noise [B, B]."""
    A = noise.numpy()
    scale = 1.0 / np.sqrt(np.maximum(np.diag(A), np.finfo(A.dtype).tiny))
    values, vectors = np.linalg.eigh(scale[:, None] * A * scale)
    keep = values > max(_SMALLEST, 10.0 * np.finfo(A.dtype).eps * len(A)) * values[-1]
    basis: AnyNDArray = scale[:, None] * vectors[:, keep] / np.sqrt(values[keep])
    return basis


def noisy_actions(state: ActionPosteriorState) -> tuple[tf.Tensor, tf.Tensor]:
    """Actions S [R, Q, N] with S'W^+S = I, and S'(yhat - m) [R]."""
    return combined(tf.constant(noisy_basis(state.noise)), state.actions, state.targets)


def combined(U: tf.Tensor, actions: tf.Tensor, targets: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Combinations U [B, R] of actions [R, Q, N], and of their targets [R]."""
    return tf.tensordot(U, actions, [[0], [0]]), tf.linalg.matvec(U, targets, transpose_a=True)


def action_bound(problem: LaplaceProblem, S: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    r"""
    ``sum_n E_q[log p(y_n | f_n)] - KL``, for q(g) = N(K S w, K - K S G^-1 S'K).

    Where S'W^+S = I: G = I + S'KS, w = G^-1 S'(yhat - m), and

    .. math:: KL = \tfrac12 [ w'S'KS w + \log|G| - tr(G^{-1} S'KS) ]

    (Wenger et al. 2024; also for W^+ a pseudo-inverse of blocks, since q depends on it through
    S'W^+S only: its precision is K^-1 + S (S'W^+S)^-1 S'.)

    Shapes: S [R, Q, N], targets [R].
    """
    operator, X, Y = problem.operator, problem.X, problem.Y
    T = operator.product(tf.transpose(S, [1, 2, 0]))  # [Q, N, R]
    Q = S.shape[1]
    flat = [-1, Q * S.shape[2]]  # R may be known when it runs only
    H = tf.matmul(tf.reshape(S, flat), tf.reshape(tf.transpose(T, [2, 0, 1]), flat), False, True)
    H = 0.5 * (H + tf.transpose(H))
    root = tf.debugging.check_numerics(
        tf.linalg.cholesky(H + tf.eye(tf.shape(H)[0], dtype=H.dtype)),
        "G = I + S'KS is not positive definite: the kernel's parameters overflowed, or its matrix "
        "is not positive semi-definite",
    )
    w = tf.linalg.cholesky_solve(root, targets[:, None])[:, 0]
    inner = tf.linalg.cholesky_solve(root, H)
    log_det = 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(root)))
    kl = 0.5 * (tf.tensordot(w, tf.linalg.matvec(H, w), 1) + log_det - tf.linalg.trace(inner))

    mean = problem.predictor(tf.linalg.matvec(T, w))
    h = tf.linalg.triangular_solve(root, tf.transpose(operator.latents.mixed(T), [0, 2, 1]))
    joint = is_joint(problem.likelihood, operator.latents.num_outputs)
    cov = problem.output_covariance(tf.transpose(h, [0, 2, 1]), joint)
    prior = problem.output_covariance(None, joint=False)
    if joint:
        size = tf.reduce_mean(prior, axis=1)
        expected = _joint_expectations(problem.likelihood, X, mean, cov, size, Y)
    else:
        # quadrature takes its root, which has no slope at zero
        least = 1e-12 * tf.reduce_mean(prior, axis=0) + np.finfo(X.dtype.as_numpy_dtype).tiny
        mean, var = (tf.cast(t, X.dtype) for t in (mean, tf.maximum(cov, least)))
        expected = problem.likelihood.variational_expectations(X, mean, var, Y)
    return tf.reduce_sum(tf.cast(expected, operator.dtype)) - kl


def _joint_expectations(
    likelihood: Likelihood,
    X: tf.Tensor,
    mean: tf.Tensor,
    cov: tf.Tensor,
    size: tf.Tensor,
    Y: tf.Tensor,
) -> tf.Tensor:
    """``E log p(y_n | F_n)`` [N], F_n ~ N(mean, cov), by fixed points."""
    # GPflow's are of independent outputs, which those of q are not: a softmax would be told to
    # expect twice what the common shift of its outputs varies. And they are drawn anew at each
    # call: L-BFGS takes a difference of such draws for one of parameters.
    # Shapes: mean [N, L], cov [N, L, L], size [N].
    # kernels are evaluated in X's precision, and cov is a difference of such numbers
    share = max(1e-9, 100.0 * float(np.finfo(X.dtype.as_numpy_dtype).eps))
    jitter = share * size + np.finfo(float).tiny
    eye = tf.eye(cov.shape[-1], dtype=cov.dtype)
    root = tf.debugging.check_numerics(
        tf.linalg.cholesky(cov + eye * jitter[:, None, None]),
        "q's covariance of the outputs at a datum is not positive definite; X in double precision "
        "is safer",
    )
    points = tf.constant(normal_points(int(cov.shape[-1])), cov.dtype)
    S, L = points.shape
    F = mean + tf.einsum("nlk,sk->snl", root, points)
    F = tf.cast(tf.reshape(F, [-1, L]), X.dtype)
    X, Y = (tf.tile(t, [S, 1]) for t in (X, Y))
    return tf.reduce_mean(tf.reshape(likelihood.log_prob(X, F, Y), [S, -1]), axis=0)
