"""Features brought to where kernels live: location 0 and spread 1, kept as weights."""

from __future__ import annotations

from typing import Literal

import keras
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

Normalization = Literal["running", "adapt", None]
MOMENTUM = 0.99
_ROUNDINGS = 64.0
"""How many roundings of a feature's location its spread has to exceed to be one."""


class FeatureScaling(tf.Module):
    """
    ``(x - location) / spread`` a feature, by constants that only :meth:`update` and :meth:`set`
    change.

    Unlike batch normalisation a row's value never depends on the rows beside it: training and
    prediction see the same function, and the ELBO stays one. What a spread is does not depend on
    the feature's unit: a feature that varies by no more than its location's rounding has none, and
    is divided by 1.

    :param shifted: which of the D features have a location, [D].
    :param scaled: which have a spread, [D].
    :param owner: the layer that holds the weights.
    """

    held: list[tf.Variable]
    """The same weights as ``tf.train.Checkpoint`` finds them: it does not see Keras's lists."""

    def __init__(self, shifted: AnyNDArray, scaled: AnyNDArray, owner: keras.Layer) -> None:
        super().__init__()
        self.shifted = np.asarray(shifted, dtype=bool)
        self.scaled = np.asarray(scaled, dtype=bool)
        shape, dtype = self.shifted.shape, owner.compute_dtype

        def weight(name: str, initializer: str, shape: tuple[int, ...]) -> keras.Variable:
            return owner.add_weight(
                name=name, shape=shape, dtype=dtype, initializer=initializer, trainable=False
            )

        self.location = weight("location", "zeros", shape)
        self.variance = weight("variance", "ones", shape)
        self.count = weight("count", "zeros", ())
        self.held = [v.value for v in self.variables_by_name().values()]

    def variables_by_name(self) -> dict[str, keras.Variable]:
        """The weights by name."""
        return {"location": self.location, "variance": self.variance, "count": self.count}

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """Scaled features, [N, D]."""
        location = tf.convert_to_tensor(self.location)
        return (x - location) / self._spread(location)

    def _spread(self, location: tf.Tensor) -> tf.Tensor:
        variance = tf.convert_to_tensor(self.variance)
        info = np.finfo(variance.dtype.as_numpy_dtype)
        least = tf.maximum(tf.square(_ROUNDINGS * info.eps * location), info.tiny)
        return tf.sqrt(tf.where(variance > least, variance, tf.ones_like(variance)))

    def inverse(self, x: AnyNDArray) -> AnyNDArray:
        """What scaled features [N, D] were."""
        location = tf.convert_to_tensor(self.location)
        values: AnyNDArray = x * self._spread(location).numpy() + location.numpy()
        return values

    def set(self, x: AnyNDArray) -> None:
        """
        Take location and spread from data.

        :param x: [N, D].
        """
        location = np.where(self.shifted, x.mean(axis=0), 0.0)
        variance = np.mean(np.square(x - location), axis=0)
        self.location.assign(location)
        self.variance.assign(np.where(self.scaled, variance, 1.0))
        self.count.assign(self.count + 1.0)

    def update(self, x: tf.Tensor) -> None:
        """
        Let location and spread follow a training batch, by averages over all replicas.

        Early batches count alike; later ones as an exponential average. Rows that are not finite
        say nothing, nor does a batch without rows, as replicas get at the end of an epoch.

        :param x: of the batch, [N, D].
        """
        x = tf.stop_gradient(x)
        holds = tf.reduce_all(tf.math.is_finite(x), axis=1, keepdims=True)
        rows = _over_replicas(tf.reduce_sum(tf.cast(holds, x.dtype)))

        def averaged(values: tf.Tensor) -> tf.Tensor:
            known = tf.where(holds, values, tf.zeros_like(values))
            return tf.math.divide_no_nan(_over_replicas(tf.reduce_sum(known, axis=0)), rows)

        mean = averaged(x)
        variance = averaged(tf.square(x - mean))
        some = tf.cast(rows > 0.0, x.dtype)
        count = tf.convert_to_tensor(self.count)
        rate = some * tf.maximum(1.0 / (count + 1.0), 1.0 - MOMENTUM)
        location = tf.convert_to_tensor(self.location)
        away = mean - location if self.shifted.any() else mean
        moved = tf.where(self.shifted, location + rate * away, location)
        # around what the location was: for a feature without one, the mean square
        gap = tf.where(self.shifted, (1.0 - rate) * tf.square(away), tf.square(mean))
        old = tf.convert_to_tensor(self.variance)
        new = (1.0 - rate) * old + rate * (variance + gap)  # exact where old is far larger
        self.location.assign(moved)
        self.variance.assign(tf.where(self.scaled, new, old))
        self.count.assign(count + some)


def _over_replicas(x: tf.Tensor) -> tf.Tensor:
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return x
    return context.all_reduce(tf.distribute.ReduceOp.SUM, x)
