"""The known part of the predictor: a constant and offsets."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import Parameter, TensorType
from gpflow.functions import MeanFunction

from ...bijectors import identity


class OffsetMean(MeanFunction):
    """
    ``m(x) = constant + sum of the offset columns``, the offsets in the first predictor only.

    The constant is the null model's; the intercept is a component, whose prior is centred there.

    :param constant: [L].
    :param columns: places of the offsets in X.
    """

    def __init__(self, constant: TensorType, columns: Sequence[int]) -> None:
        super().__init__()
        self.constant = Parameter(constant, transform=identity(), trainable=False)
        self.columns = list(columns)

    @inherit_check_shapes
    def __call__(self, X: TensorType) -> tf.Tensor:
        X = tf.convert_to_tensor(X)
        shape = tf.concat([tf.shape(X)[:-1], tf.shape(self.constant)], axis=0)
        mean = tf.broadcast_to(tf.cast(self.constant, X.dtype), shape)
        if not self.columns:
            return mean
        offset = tf.reduce_sum(tf.gather(X, self.columns, axis=-1), axis=-1, keepdims=True)
        others = tf.zeros(tf.concat([tf.shape(X)[:-1], tf.shape(self.constant) - 1], 0), X.dtype)
        return mean + tf.concat([offset, others], axis=-1)
