"""What a head's moments say of the response."""

from __future__ import annotations

import abc
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from gpflow.likelihoods import Likelihood

from ..likelihoods import (
    checked_observations,
    expected_response,
    possible_observations,
    response_interval,
)
from ..likelihoods.predictive import expected_log_density, predictive_log_density
from .responses import response_matrix


class MomentReader(abc.ABC):
    """
    Reads moments, mean and variance of each predictor, under a likelihood.

    A tensor is all that passes between Keras's layers, losses and metrics; so it is read here. It
    is [N, L, 2], or [N, L, 2 + L] of a head whose predictors are correlated a posteriori: their
    covariances are behind.
    """

    name: str
    compute_dtype: str
    level: float
    loss_weight: float = 1.0
    """What its loss is multiplied by."""
    predictive_share: float | tf.Variable = 1.0
    """Which share of the predictors' variance predictions of classes count."""

    @property
    @abc.abstractmethod
    def likelihood(self) -> Likelihood:
        """The response's likelihood."""

    @property
    @abc.abstractmethod
    def num_predictors(self) -> int:
        """L."""

    @property
    def num_moments(self) -> int:
        """Of each predictor."""
        return 2

    def response(self, moments: tf.Tensor) -> tf.Tensor:
        """
        The expected response [N], or class probabilities [N, K], from moments.

        :param moments: what the layer gives, [N, L, M].
        :raises ValueError: moments of another shape.
        """
        mean, var, X = self._unpacked(moments)
        return expected_response(self.likelihood, X, mean, self._counted(var))

    def interval(
        self, moments: tf.Tensor, level: float | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """
        Equal-tailed limits of the expected response, shaped as :meth:`response`.

        :param moments: what the layer gives, [N, L, M].
        :param level: probability of the limits; the layer's by default.
        :raises ValueError: moments of another shape.
        """
        mean, var, X = self._unpacked(moments)
        level = self.level if level is None else level
        return response_interval(self.likelihood, X, mean, var, level)

    def negative_expected_log_likelihood(self, y: tf.Tensor, moments: tf.Tensor) -> tf.Tensor:
        """
        ``-E_q[log p(y | rho)]`` of each row, [N]; NaN for a y that is impossible.

        :param y: labels, [N] or [N, K].
        :param moments: what the layer gives, [N, L, M].
        :raises ValueError: moments or labels of another shape.
        """
        mean, var, X = self._unpacked(moments)
        return -self._of_rows(lambda Y: expected_log_density(self.likelihood, X, mean, var, Y), y)

    def predict_log_density(self, y: tf.Tensor, moments: tf.Tensor) -> tf.Tensor:
        """
        ``log E_q[p(y | rho)]`` of each row, [N]; NaN for a y that is impossible.

        :param y: labels, [N] or [N, K].
        :param moments: what the layer gives, [N, L, M].
        :raises ValueError: moments or labels of another shape.
        """
        mean, var, X = self._unpacked(moments)
        var = self._counted(var)
        return self._of_rows(lambda Y: predictive_log_density(self.likelihood, X, mean, var, Y), y)

    def _of_rows(self, of: Callable[[tf.Tensor], tf.Tensor], y: tf.Tensor) -> tf.Tensor:
        """What the likelihood says of each row, [N]; NaN for a y that is impossible."""
        Y, holds = self._observed(y)
        missing = tf.constant(np.nan, self.compute_dtype)
        return tf.where(holds, tf.cast(of(Y), self.compute_dtype), missing)

    def _counted(self, var: tf.Tensor) -> tf.Tensor:
        return tf.cast(self.predictive_share, var.dtype) * var

    def _unpacked(self, moments: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        moments = tf.convert_to_tensor(moments)
        shape = (self.num_predictors, self.num_moments)
        if moments.shape.rank != 3 or tuple(moments.shape[1:]) != shape:
            raise ValueError(
                f"y_pred must be the moments [N, {shape[0]}, {shape[1]}] that {self.name} gives "
                f"with output='moments'; got shape {tuple(moments.shape)}."
            )
        moments = tf.cast(moments, self.compute_dtype)
        var = moments[..., 2:] if shape[1] > 2 else moments[..., 1]
        return moments[..., 0], var, tf.zeros_like(moments[:, 0, :1])

    def response_matrix(self, y: tf.Tensor) -> tf.Tensor:
        """
        Responses as the likelihood takes them, Y [N, K]: one-hot labels become codes.

        :param y: [N] or [N, K].
        :raises ValueError: y of another rank or width.
        """
        return response_matrix(y, self.compute_dtype, self.likelihood, self.num_predictors)

    def _observed(self, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Y [N, K] once it is known to be possible, and which rows are, [N]."""
        Y = self.response_matrix(y)
        # XLA drops assertions: what should have failed must not pass for a number
        holds = possible_observations(Y, self.likelihood)
        return checked_observations(Y, self.likelihood, "y"), holds
