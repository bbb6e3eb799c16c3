"""Unordered classes, with expectations that are the same at every evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, TensorType
from gpflow.quadrature import ndiag_mc
from scipy.special import ndtri
from scipy.stats import qmc


def normal_nodes(dimension: int, number: int) -> AnyNDArray:
    """
    Points [2 number, dimension], symmetric and of unit covariance.

    Where variances are small the expectation is then exact to second order, so that sites have
    the weights that Newton's method would give them; random draws give noise over a variance.
    """
    sobol = qmc.Sobol(dimension, seed=1)
    half = ndtri(sobol.random(number))
    root = np.linalg.cholesky(half.T @ half / number)
    half = np.linalg.solve(root, half.T).T
    return np.concatenate([half, -half])


class FixedSoftmax(gpflow.likelihoods.Softmax):
    """
    GPflow's softmax over fixed quasi-random nodes (Sobol' 1967) in place of fresh random draws.

    L-BFGS and a test for convergence need a bound that does not flicker.

    :param num_classes: C, and as many predictors.
    :param num_nodes: rounded up to a power of two, and to at least twice the classes.
    """

    def __init__(self, num_classes: int, *, num_nodes: int = 128) -> None:
        super().__init__(num_classes)
        pairs = 2 ** int(np.ceil(np.log2(max(num_nodes // 2, num_classes))))
        self._epsilon = normal_nodes(num_classes, pairs)[:, None, :]
        self.num_monte_carlo_points = 2 * pairs

    def _variational_expectations(
        self,
        X: TensorType,
        Fmu: TensorType,
        Fvar: TensorType,
        Y: TensorType,
        epsilon: TensorType | None = None,
    ) -> tf.Tensor:
        if epsilon is not None:
            return super()._variational_expectations(X, Fmu, Fvar, Y, epsilon=epsilon)
        Fmu = tf.convert_to_tensor(Fmu)
        own = tf.gather(Fmu, tf.cast(Y[..., 0], tf.int32), batch_dims=1)
        # nodes come in opposite pairs: the own predictor's expectation is its mean
        nodes = tf.constant(self._epsilon[:, 0, :], dtype=Fmu.dtype)
        return own - _mean_log_sum(Fmu, tf.sqrt(Fvar), nodes)

    def _mc_quadrature(
        self,
        funcs: Callable[..., tf.Tensor] | Iterable[Callable[..., tf.Tensor]],
        Fmu: TensorType,
        Fvar: TensorType,
        logspace: bool = False,
        epsilon: TensorType | None = None,
        **Ys: TensorType,
    ) -> tf.Tensor:
        Fmu = tf.convert_to_tensor(Fmu)
        if epsilon is None:
            epsilon = tf.constant(self._epsilon, dtype=Fmu.dtype)
        return ndiag_mc(
            funcs,
            self.num_monte_carlo_points,
            Fmu,
            tf.convert_to_tensor(Fvar),
            logspace,
            epsilon,
            **Ys,
        )


@tf.custom_gradient
def _mean_log_sum(
    mean: tf.Tensor, sd: tf.Tensor, nodes: tf.Tensor
) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor, None]]]:
    """
    Averages over nodes of ``log sum_c exp(f_c)``, [N].

    With many classes this is most of a training step, and memory traffic is most of it: values and
    gradients share one exponential, and the sums over nodes and classes are products of matrices.

    :param mean: [N, C].
    :param sd: [N, C].
    :param nodes: [S, C].
    """
    f = mean[:, None, :] + sd[:, None, :] * nodes
    top = tf.reduce_max(f, axis=-1, keepdims=True)
    e = tf.exp(f - top)
    total = tf.linalg.matvec(e, tf.ones_like(nodes[0]))  # [N, S]
    found = tf.reduce_mean(tf.squeeze(top, axis=-1) + tf.math.log(total), axis=-1)
    weight = tf.math.reciprocal(total) / tf.cast(tf.shape(nodes)[0], total.dtype)
    in_mean = tf.linalg.matvec(e, weight, transpose_a=True)
    in_sd = tf.reduce_sum(e * (weight[:, :, None] * nodes), axis=1)

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, None]:
        return upstream[:, None] * in_mean, upstream[:, None] * in_sd, None

    return found, gradient
