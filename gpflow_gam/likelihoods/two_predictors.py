"""Likelihoods of a response whose distribution has two predictors."""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import MeanAndVariance, TensorType
from gpflow.likelihoods import QuadratureLikelihood
from gpflow.quadrature import NDiagGHQuadrature

NODES = 12
"""Of quadrature over each predictor."""


class TwoPredictors(QuadratureLikelihood, abc.ABC):
    """``y ~ p(y | f, g)``, expectations by quadrature over both."""

    mean_of_first: ClassVar[bool] = False
    """Whether the mean of the response is a monotone function of the first predictor alone."""

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("quadrature", NDiagGHQuadrature(2, NODES))
        super().__init__(input_dim=None, latent_dim=2, observation_dim=1, **kwargs)

    @property
    def _quadrature_dim(self) -> int:
        return 2

    @abc.abstractmethod
    def _log_density(self, f: tf.Tensor, g: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        """Log p(y | f, g), element by element."""

    @abc.abstractmethod
    def _moments(self, f: tf.Tensor, g: tf.Tensor) -> MeanAndVariance:
        """Mean and variance of y, element by element."""

    @inherit_check_shapes
    def _log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self._log_density(F[..., 0], F[..., 1], Y[..., 0])

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self._moments(F[..., :1], F[..., 1:])[0]

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self._moments(F[..., :1], F[..., 1:])[1]
