"""Log-likelihoods averaged over a Gaussian at every datum: log-concave where they are."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood, ScalarLikelihood
from scipy.special import ndtri, roots_hermitenorm
from scipy.stats import qmc

from ...likelihoods import Weighted
from ..curvatures import Curvature, DensePrecision, DiagonalPrecision, Precision, curvature
from .actions import ActionPosteriorState
from .problem import LaplaceProblem

_NUM_HERMITE = 20
_NUM_POINTS = 64
"""The least, of rules in several dimensions."""
_ENTRIES = 2**22
"""Of curvatures that are held at a time."""


class ExpectedProblem(LaplaceProblem):
    """
    A Laplace problem whose log-likelihood is averaged over q(f_n), of which only the mean moves.

    ``E log p(y_n | F_n + e)``, e ~ N(0, C_n), is as log-concave in F_n as log p is. Where the C_n
    are those of the Gaussian that Newton's method makes of its optimum, that Gaussian is the best
    one in Kullback-Leibler divergence (Opper & Archambeau 2009, "The Variational Gaussian
    Approximation Revisited", equations 10 to 12): gradient and curvature are the averages of those
    of log p. Rules are fixed: Gauss-Hermite where outputs are observed one by one, so that their
    variances are all that counts; else a Sobol sequence and its mirror image, with the first two
    moments of a Gaussian, which is rotated by the symmetric root of C_n.

    :param problem: without averages.
    :param state: a posterior at its parameters, and
    :param products: ``K S`` [B, Q, N] of its actions.
    """

    def __init__(
        self, problem: LaplaceProblem, state: ActionPosteriorState, products: tf.Tensor
    ) -> None:
        super().__init__(problem.operator, problem.likelihood, problem.Y, problem.mean_function)
        self._pivoted, self._asked = problem._pivoted, problem._asked
        cov = _covariances(problem, state, products)  # [N, L, L]
        self._separate = isinstance(observed(problem.likelihood), ScalarLikelihood)
        nodes: AnyNDArray
        if self._separate or int(cov.shape[-1]) == 1:
            nodes, weights = roots_hermitenorm(_NUM_HERMITE)
            weights = weights / weights.sum()
            sd = tf.sqrt(tf.maximum(tf.linalg.diag_part(cov), 0.0))
            self._away = tf.constant(nodes)[:, None, None] * sd
        else:
            nodes = normal_points(int(cov.shape[-1]))
            weights = np.full(len(nodes), 1.0 / len(nodes))
            values, vectors = tf.linalg.eigh(cov)
            # the symmetric one: it moves with C_n, whatever becomes of eigenvectors
            half = vectors * tf.sqrt(tf.maximum(values, 0.0))[:, None, :]
            root = tf.matmul(half, vectors, transpose_b=True)
            self._away = tf.einsum("nlk,sk->snl", root, tf.constant(nodes, cov.dtype))
        self._weights = tf.constant(weights)

    def of_rows(self, indices: tf.Tensor) -> ExpectedProblem:
        found = super().of_rows(indices)
        assert isinstance(found, ExpectedProblem)
        found._away = tf.gather(self._away, indices, axis=1)
        return found

    def _parts(self) -> Iterator[tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]]:
        """Some nodes at a time: weights [s], deviations [s, N, L], and X and Y once a node."""
        S, N, L = self._away.shape
        most = max(1, _ENTRIES // (N * L * (1 if self._separate else L)))
        for start in range(0, S, most):
            away = self._away[start : start + most]
            number = away.shape[0]
            X, Y = (tf.tile(t, [number, 1]) for t in (self.X, self.Y))
            yield self._weights[start : start + most], away, X, Y

    def _log_prob(self, F: tf.Tensor) -> tf.Tensor:
        total = tf.zeros_like(F[:, 0])
        for weights, away, X, Y in self._parts():
            at = tf.cast(tf.reshape(F + away, [-1, F.shape[1]]), X.dtype)
            found = tf.cast(self.likelihood.log_prob(X, at, Y), F.dtype)
            total += tf.linalg.matvec(tf.reshape(found, away.shape[:2]), weights, transpose_a=True)
        return total

    def _expansion(self, F: tf.Tensor) -> Curvature:
        sums: tuple[tf.Tensor, ...] = ()
        for weights, away, X, Y in self._parts():
            at = tf.cast(tf.reshape(F + away, [-1, F.shape[1]]), X.dtype)
            one = curvature(self.likelihood, X, at, Y).cast(F.dtype)
            parts = []
            for part in (one.log_prob, tf.transpose(one.gradient)):
                nodes = tf.reshape(part, [*away.shape[:2], *part.shape[1:]])
                parts.append(tf.tensordot(weights, nodes, 1))
            if self._separate:
                bend = tf.reshape(tf.transpose(one.precision.tensor), away.shape)
                parts.append(tf.tensordot(weights, bend, 1))
            else:
                parts.append(one.precision.summed(weights))
            sums = tuple(a + b for a, b in zip(sums, parts)) if sums else tuple(parts)
        log_prob, gradient, bend = sums
        precision: Precision
        if self._separate:
            precision = DiagonalPrecision(tf.transpose(bend))
        else:
            precision = DensePrecision(bend)
        return Curvature(log_prob, tf.transpose(gradient), precision)


def observed(likelihood: Likelihood) -> Likelihood:
    """What a weighted likelihood weighs."""
    return likelihood.base if isinstance(likelihood, Weighted) else likelihood


@functools.lru_cache(maxsize=16)
def normal_points(dimension: int) -> AnyNDArray:
    """
    Equally weighted points [S, dimension] with mean zero and covariance I.

    :param dimension: of the Gaussian that they stand for.
    """
    power = int(np.ceil(np.log2(max(_NUM_POINTS, 8 * dimension) / 2)))
    uniform = qmc.Sobol(dimension, seed=0).random_base2(power)
    half = ndtri(np.clip(uniform, 1e-9, 1.0 - 1e-9))
    points = np.concatenate([half, -half])
    root = np.linalg.cholesky(points.T @ points / len(points))
    found: AnyNDArray = np.linalg.solve(root, points.T).T
    return found


def _covariances(
    problem: LaplaceProblem, state: ActionPosteriorState, products: tf.Tensor
) -> tf.Tensor:
    """Of the outputs at every datum, [N, L, L]."""
    operator = problem.operator
    latents, Q = operator.latents, operator.num_latents
    h = tf.tensordot(state.factor, products, [[0], [0]])  # [R, Q, N]
    h = latents.mixed(tf.transpose(h, [1, 2, 0]))  # [L, N, R]
    prior = tf.broadcast_to(operator.diag(), [Q, operator.num_data])
    mixing = latents.mixing
    A = (
        tf.eye(Q, dtype=h.dtype)
        if mixing is None
        else tf.cast(tf.convert_to_tensor(mixing), h.dtype)
    )
    return tf.einsum("lq,qn,kq->nlk", A, prior, A) - tf.einsum("lnr,knr->nlk", h, h)
