"""Classes, with an order and without."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray, MeanAndVariance, Parameter, TensorType
from gpflow.likelihoods import QuadratureLikelihood, ScalarLikelihood
from gpflow.quadrature import ndiag_mc
from gpflow.utilities import positive
from scipy.special import ndtri
from scipy.stats import qmc

from .links import (
    ORDERED_LINKS,
    SYMMETRIC,
    checked_link,
    log_failure,
    log_probability,
    probability,
)

_SMALLEST = 1e-6
_FAR = 80.0
"""Predictor above which ``exp(-exp(x))`` is zero, and below which ``exp(x)`` is not infinite."""


def possible_labels(number: int, Y: tf.Tensor) -> tuple[tf.Tensor, str]:
    """Which Y are labels, element by element, and what they must be."""
    inside = tf.equal(Y, tf.round(Y)) & (Y >= 0.0) & (number > Y)
    return inside, f"whole labels 0 to {number - 1}, one a class"


class Ordered(ScalarLikelihood):
    """
    ``P(y <= k | f) = G(c_k - f)`` for labels 0 to K - 1, G the inverse link (McCullagh 1980).

    The first cutpoint is 0, the others are trained by their distances ``increments`` [K - 2].
    """

    def __init__(
        self,
        num_classes: int,
        increments: TensorType | None = None,
        link: str = "probit",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.link = checked_link(link, ORDERED_LINKS)
        if num_classes < 2:
            raise ValueError(f"num_classes must be at least 2; got {num_classes}.")
        if increments is None:
            increments = np.ones(num_classes - 2)
        if np.shape(increments) != (num_classes - 2,):
            raise ValueError(
                f"increments must be [{num_classes - 2}], two fewer than the classes; got shape "
                f"{np.shape(increments)}."
            )
        self.num_classes = num_classes
        self.increments: Parameter | None = None
        if num_classes > 2:  # optimisers take no empty parameter
            self.increments = Parameter(increments, transform=positive(lower=_SMALLEST))

    def support(self, Y: tf.Tensor) -> tuple[tf.Tensor, str]:
        """Which ``Y`` are possible, element by element, and what they must be."""
        return possible_labels(self.num_classes, Y)

    @check_shapes("return: [K]")
    def _cutpoints(self, dtype: tf.DType) -> tf.Tensor:
        first = tf.zeros([1], dtype=dtype)
        if self.increments is None:
            return first
        return tf.concat([first, tf.cumsum(tf.convert_to_tensor(self.increments))], axis=0)

    @property
    def cutpoints(self) -> tf.Tensor:
        """c_0 = 0 < c_1 < ..., [K - 1]."""
        dtype = tf.float64 if self.increments is None else self.increments.dtype
        return self._cutpoints(dtype)

    def _log_mass(self, F: tf.Tensor, Y: tf.Tensor, scale: tf.Tensor | float) -> tf.Tensor:
        """Log P(y) where the noise has the given standard deviation; shapes broadcast."""
        label, cut = tf.cast(Y, tf.int32), self._cutpoints(F.dtype)
        # the outer classes have no bound on one side; finite ones keep gradients free of NaN
        bounds = tf.concat([cut[:1] - 1.0, cut, cut[-1:] + 1.0], axis=0)
        lower = (tf.gather(bounds, label) - F) / scale
        upper = (tf.gather(bounds, label + 1) - F) / scale
        inner = self._log_between(lower, upper)
        below, above = log_probability(self.link, upper), log_failure(self.link, lower)
        outer = tf.where(tf.equal(label, 0), below, above)
        is_outer = tf.equal(label, 0) | tf.equal(label, self.num_classes - 1)
        return tf.where(is_outer, outer, inner)

    def _log_between(self, lower: tf.Tensor, upper: tf.Tensor) -> tf.Tensor:
        """Log of G(upper) - G(lower)."""
        if self.link not in SYMMETRIC:  # of cloglog the upper tail is exp(-exp(x))
            most = tf.constant(_FAR, lower.dtype)
            high, low = (log_failure(self.link, tf.minimum(x, most)) for x in (lower, upper))
        else:  # differences of G keep their digits in the lower tail only
            flip = lower > 0.0
            low, high = tf.where(flip, -upper, lower), tf.where(flip, -lower, upper)
            low, high = log_probability(self.link, low), log_probability(self.link, high)
        return high + tf.math.log(-tf.math.expm1(low - high))

    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self._log_mass(tf.convert_to_tensor(F), Y, 1.0)

    def _moments(self, F: TensorType, scale: tf.Tensor | float) -> MeanAndVariance:
        F, labels = tf.convert_to_tensor(F), tf.range(self.num_classes)
        wide = scale if isinstance(scale, float) else scale[..., None]
        p, labels = tf.exp(self._log_mass(F[..., None], labels, wide)), tf.cast(labels, F.dtype)
        mean = tf.reduce_sum(p * labels, axis=-1)
        return mean, tf.reduce_sum(p * tf.square(labels - mean[..., None]), axis=-1)

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self._moments(F, 1.0)[0]

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self._moments(F, 1.0)[1]

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        if self.link != "probit":
            return QuadratureLikelihood._predict_mean_and_var(self, X, Fmu, Fvar)
        return self._moments(Fmu, tf.sqrt(1.0 + Fvar))

    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        if self.link != "probit":
            return QuadratureLikelihood._predict_log_density(self, X, Fmu, Fvar, Y)
        mass = self._log_mass(tf.convert_to_tensor(Fmu), Y, tf.sqrt(1.0 + Fvar))
        return tf.reduce_sum(mass, axis=-1)

    def conditional_response(self, X: TensorType, F: TensorType) -> tf.Tensor:
        """Class probabilities [..., K] at predictors ``F`` [..., 1], whatever ``X``."""
        F = tf.convert_to_tensor(F)[..., :1]
        below = probability(self.link, self._cutpoints(F.dtype) - F)
        whole = tf.concat([tf.zeros_like(F), below, tf.ones_like(F)], axis=-1)
        return whole[..., 1:] - whole[..., :-1]


def normal_nodes(dimension: int, number: int) -> AnyNDArray:
    """Symmetric points [2 number, dimension] of unit covariance: exact to second order."""
    sobol = qmc.Sobol(dimension, seed=1)
    half = ndtri(sobol.random(number))
    root = np.linalg.cholesky(half.T @ half / number)
    half = np.linalg.solve(root, half.T).T
    return np.concatenate([half, -half])


class FixedSoftmax(gpflow.likelihoods.Softmax):
    """GPflow's softmax over fixed nodes (Sobol' 1967), so that the bound does not flicker."""

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
        hit = tf.gather(Fmu, tf.cast(Y[..., 0], tf.int32), batch_dims=1)
        # nodes come in opposite pairs: the expectation of the label's predictor is its mean
        nodes = tf.constant(self._epsilon[:, 0, :], dtype=Fmu.dtype)
        return hit - _mean_log_sum(Fmu, tf.sqrt(Fvar), nodes)

    def _mc_quadrature(
        self,
        funcs: Callable[..., tf.Tensor] | Iterable[Callable[..., tf.Tensor]],
        Fmu: TensorType,
        Fvar: TensorType,
        logspace: bool = False,
        epsilon: TensorType | None = None,
        **Ys: TensorType,
    ) -> tf.Tensor:
        Fmu, Fvar = tf.convert_to_tensor(Fmu), tf.convert_to_tensor(Fvar)
        if epsilon is None:
            epsilon = tf.constant(self._epsilon, dtype=Fmu.dtype)
        number = self.num_monte_carlo_points
        return ndiag_mc(funcs, number, Fmu, Fvar, logspace, epsilon, **Ys)


@tf.custom_gradient
def _mean_log_sum(
    mean: tf.Tensor, sd: tf.Tensor, nodes: tf.Tensor
) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor, None]]]:
    """Averages over nodes [S, C] of ``log sum_c exp(f_c)``, [N]; gradients share exponentials."""
    f = mean[:, None, :] + sd[:, None, :] * nodes
    top = tf.reduce_max(f, axis=-1, keepdims=True)
    e = tf.exp(f - top)
    total = tf.linalg.matvec(e, tf.ones_like(nodes[0]))  # [N, S]
    average = tf.reduce_mean(tf.squeeze(top, axis=-1) + tf.math.log(total), axis=-1)
    weight = tf.math.reciprocal(total) / tf.cast(tf.shape(nodes)[0], total.dtype)
    in_mean = tf.linalg.matvec(e, weight, transpose_a=True)
    in_sd = tf.reduce_sum(e * (weight[:, :, None] * nodes), axis=1)

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, None]:
        return upstream[:, None] * in_mean, upstream[:, None] * in_sd, None

    return average, gradient
