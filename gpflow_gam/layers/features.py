"""From a network's features to scaled columns that kernels read."""

from __future__ import annotations

import abc
from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from ..gam.terms.base import column_of
from .structure import HeadSpecification, Structure

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


class FeatureReader(abc.ABC):
    """Takes the features that terms name, looks at them, and scales them."""

    name: str
    compute_dtype: str
    specification: HeadSpecification
    structure: Structure
    normalization: Normalization
    scaling: FeatureScaling

    _first = "adapt(features)"
    """How it gets to know its features."""

    def scaled(self, features: tf.Tensor) -> tf.Tensor:
        """
        The columns of X [N, D] that the components read, from features [N, F].

        :param features: [N, F].
        :raises ValueError: too few features, or another rank.
        :raises tf.errors.InvalidArgumentError: a code that is no level, or features that are not
            known yet; where XLA drops assertions :meth:`readable` tells such rows.
        """
        X = self._read(features)
        for place, inside in self._inside(X).items():
            count, feature = self.structure.num_levels[place], self.structure.features[place]
            message = f"feature {feature} must hold codes 0 to {count - 1}; got"
            X = _require(X, inside, [message, tf.boolean_mask(X[:, place], ~inside)])
        for place, inside in self._within(X).items():
            ends, feature = self.structure.limits[place], self.structure.features[place]
            message = f"feature {feature} must be degrees from {ends[0]:g} to {ends[1]:g}; got"
            X = _require(X, inside, [message, tf.boolean_mask(X[:, place], ~inside)])
        if self.normalization is None:
            return X
        message = f"{self.name} does not know its features yet: call {self._first} first"
        return self.scaling(_require(X, self._known(), [message]))

    def readable(self, features: tf.Tensor) -> tf.Tensor:
        """
        Which rows of features [N, F] are finite and hold levels that there are, [N]; none before
        features are known. For code in which no assertion can fail.

        :param features: [N, F].
        """
        X = self._read(features)
        holds = tf.reduce_all(tf.math.is_finite(X), axis=1)
        for inside in [*self._inside(X).values(), *self._within(X).values()]:
            holds &= inside
        return holds & self._known()

    def _read(self, features: tf.Tensor) -> tf.Tensor:
        features = tf.cast(features, self.compute_dtype)
        self._check_width(features.shape)
        columns = self.structure.features
        first, last = columns[0], columns[-1] + 1
        if tuple(columns) == tuple(range(first, last)):  # a gather is dear to differentiate
            return features[:, first:last]
        return tf.gather(features, list(columns), axis=1)

    def _inside(self, X: tf.Tensor) -> dict[int, tf.Tensor]:
        """Of the columns of X that hold codes: which rows hold one, [N]."""
        return {
            place: tf.equal(X[:, place], tf.round(X[:, place]))
            & (X[:, place] >= 0.0)
            & (X[:, place] < count)
            for place, count in self.structure.num_levels.items()
        }

    def _within(self, X: tf.Tensor) -> dict[int, tf.Tensor]:
        """Of the columns of X that are degrees: which rows hold such, [N]."""
        return {
            place: (X[:, place] >= low) & (X[:, place] <= high)
            for place, (low, high) in self.structure.limits.items()
        }

    @property
    def is_ready(self) -> bool:
        """Whether it knows its features, as far as it has to be told."""
        return bool(np.asarray(self._known()))

    def _known(self) -> tf.Tensor:
        if self.normalization != "adapt":
            return tf.constant(True)
        return tf.convert_to_tensor(self.scaling.count) > 0.0

    def _check_width(self, shape: Any) -> None:
        if len(shape) != 2:
            raise ValueError(
                f"{self.name} takes features [N, F]; got shape {tuple(shape)}: flatten or pool "
                "them."
            )
        most = max(self.structure.features)
        if shape[1] is not None and shape[1] <= most:
            term = next(
                t.label
                for t in self.specification.terms
                if most in t.columns or (t.by is not None and column_of(t.by) == most)
            )
            raise ValueError(
                f"{term} reads feature {most}, but {self.name} is given {shape[1]} feature(s) "
                f"(0 to {shape[1] - 1})."
            )


def _require(X: tf.Tensor, holds: tf.Tensor, message: list[Any]) -> tf.Tensor:
    check = tf.debugging.Assert(tf.reduce_all(holds), message)
    with tf.control_dependencies([] if check is None else [check]):
        return tf.identity(X)
