"""Observations that count more or less than once."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import MeanAndVariance, TensorType
from gpflow.likelihoods import Likelihood


class Weighted(Likelihood):
    """
    ``base``, its log-densities multiplied by ``w_n = X[n, column]``.

    Weights are frequencies: a row of weight 2 counts as the row twice, and one of weight 0 as no
    row, whatever its predictor. Means and variances are those of ``base``.

    :param base: the likelihood of one observation.
    :param column: the column of X that holds the weights, which no component reads.
    :raises TypeError: ``base`` is no likelihood.
    :raises ValueError: ``base`` is weighted itself, or the column is negative.
    """

    def __init__(self, base: Likelihood, column: int) -> None:
        if not isinstance(base, Likelihood):
            raise TypeError(f"base must be a gpflow likelihood; got {type(base).__name__}.")
        if isinstance(base, Weighted):
            raise ValueError("base is weighted already; multiply the two weights into one column.")
        if column < 0:
            raise ValueError(f"column must be at least 0; got {column}.")
        super().__init__(None, base.latent_dim, base.observation_dim)
        self.base = base
        self.column = column

    def weights(self, X: TensorType) -> tf.Tensor:
        """
        The weights [...] of inputs X [..., D].

        :param X: inputs, [..., D].
        :raises ValueError: X has no such column.
        """
        X = tf.convert_to_tensor(X)
        if X.shape[-1] is not None and X.shape[-1] <= self.column:
            raise ValueError(
                f"X has {X.shape[-1]} columns, but the weights are in column {self.column}."
            )
        return X[..., self.column]

    def _times(self, method: Any, X: TensorType, predictor: Any, Y: TensorType) -> tf.Tensor:
        w = self.weights(X)
        # a row that does not count is moved to 0: 0 times an overflow, or its gradient, is NaN
        counts = tf.not_equal(w, 0.0)
        safe = [tf.where(counts[..., None], p, tf.zeros_like(p)) for p in predictor]
        if len(safe) == 2:
            safe[1] = tf.where(counts[..., None], predictor[1], tf.ones_like(predictor[1]))
        return w * method(X, *safe, Y)

    @inherit_check_shapes
    def _log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self._times(self.base.log_prob, X, [F], Y)

    @inherit_check_shapes
    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return self._times(self.base.variational_expectations, X, [Fmu, Fvar], Y)

    @inherit_check_shapes
    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return self._times(self.base.predict_log_density, X, [Fmu, Fvar], Y)

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.base.conditional_mean(X, F)

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.base.conditional_variance(X, F)

    @inherit_check_shapes
    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        return self.base.predict_mean_and_var(X, Fmu, Fvar)


def unwrapped(likelihood: Likelihood) -> Likelihood:
    """
    The likelihood of one observation: ``likelihood`` without its weights.

    :param likelihood: with weights or without.
    """
    return likelihood.base if isinstance(likelihood, Weighted) else likelihood
