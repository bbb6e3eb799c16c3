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


def _nodes(dimension: int, number: int) -> AnyNDArray:
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
    :param num_nodes: at least twice the classes, rounded up to a power of two.
    """

    def __init__(self, num_classes: int, *, num_nodes: int = 128) -> None:
        super().__init__(num_classes)
        pairs = 2 ** int(np.ceil(np.log2(max(num_nodes // 2, 2 * num_classes))))
        self._epsilon = _nodes(num_classes, pairs)[:, None, :]
        self.num_monte_carlo_points = 2 * pairs

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
