"""A random-feature Gaussian process with a Laplace covariance: the head of SNGP."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from scipy.linalg import solve_triangular


@keras.saving.register_keras_serializable(package="benchmarks")
class RandomFeatures(keras.Layer):
    """
    Cosines of random projections of normalised features (Rahimi & Recht 2007).

    :param number: of cosines.
    :param lengthscale: of the squared exponential kernel that they approximate.
    """

    def __init__(self, number: int, lengthscale: float = 2.0, **options: object) -> None:
        super().__init__(**options)
        self.number, self.lengthscale = number, lengthscale
        self.normalise = keras.layers.LayerNormalization(center=False, scale=False)

    def build(self, shape: tuple[int | None, ...]) -> None:
        normal = keras.initializers.RandomNormal(stddev=1.0)
        self.directions = self.add_weight(
            shape=(shape[-1], self.number), initializer=normal, trainable=False
        )
        phases = keras.initializers.RandomUniform(0.0, 2.0 * np.pi)
        self.phases = self.add_weight(shape=(self.number,), initializer=phases, trainable=False)
        self.built = True

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        angles = self.normalise(inputs) @ self.directions / self.lengthscale + self.phases
        return np.sqrt(2.0 / self.number) * keras.ops.cos(angles)


def laplace_factors(features: AnyNDArray, probabilities: AnyNDArray, ridge: float) -> AnyNDArray:
    """
    Cholesky factors [K, D, D] of the precision of each class's coefficients (Liu et al. 2020,
    "Simple and Principled Uncertainty Estimation with Deterministic Deep Learning via Distance
    Awareness", equation 9).

    :param features: of all training rows, [N, D].
    :param probabilities: fitted, [N, K].
    :param ridge: the prior's precision.
    """
    eye = ridge * np.eye(features.shape[1])
    weights = probabilities * (1.0 - probabilities)
    return np.stack([np.linalg.cholesky(eye + (features.T * w) @ features) for w in weights.T])


def variances(factors: AnyNDArray, features: AnyNDArray) -> AnyNDArray:
    """Of each class's score, [N, K]."""
    solved = [solve_triangular(L, features.T, lower=True) for L in factors]
    return np.stack([np.sum(part**2, axis=0) for part in solved], axis=1)


def mean_field(scores: AnyNDArray, variance: AnyNDArray) -> AnyNDArray:
    """Class probabilities of Gaussian scores, by the mean-field formula of SNGP's section 3."""
    scores = scores / np.sqrt(1.0 + np.pi / 8.0 * variance)
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True)
