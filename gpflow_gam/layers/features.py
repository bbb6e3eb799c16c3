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
"""A spread is larger than so many roundings of the feature's location."""


class FeatureScaling(tf.Module):
    """
    ``(x - location) / spread`` of D features, by constants that :meth:`update` and :meth:`set`
    change.

    Unlike in batch normalisation a row's value never depends on the rows beside it. A feature
    that varies by no more than its location's rounding is divided by 1.
    """

    held: list[tf.Variable]
    """All weights, for ``tf.train.Checkpoint``, which does not see Keras's lists."""

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
        return {"location": self.location, "variance": self.variance, "count": self.count}

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        location = tf.convert_to_tensor(self.location)
        return (x - location) / self._spread(location)

    def _spread(self, location: tf.Tensor) -> tf.Tensor:
        variance = tf.convert_to_tensor(self.variance)
        info = np.finfo(variance.dtype.as_numpy_dtype)
        least = tf.maximum(tf.square(_ROUNDINGS * info.eps * location), info.tiny)
        return tf.sqrt(tf.where(variance > least, variance, tf.ones_like(variance)))

    def inverse(self, x: AnyNDArray) -> AnyNDArray:
        """Features [N, D] before they were scaled."""
        location = tf.convert_to_tensor(self.location)
        values: AnyNDArray = x * self._spread(location).numpy() + location.numpy()
        return values

    def set(self, x: AnyNDArray) -> None:
        """Take location and spread from data [N, D]."""
        location = np.where(self.shifted, x.mean(axis=0), 0.0)
        variance = np.mean(np.square(x - location), axis=0)
        self.location.assign(location)
        self.variance.assign(np.where(self.scaled, variance, 1.0))
        self.count.assign(self.count + 1.0)

    def update(self, x: tf.Tensor) -> None:
        """
        Let location and spread follow a training batch [N, D], averaged over all replicas.

        Early batches count alike, later ones exponentially; rows that are not finite not at
        all.
        """
        x = tf.stop_gradient(x)
        holds = tf.reduce_all(tf.math.is_finite(x), axis=1, keepdims=True)
        rows = _over_replicas(tf.reduce_sum(tf.cast(holds, x.dtype)))

        def averaged(values: tf.Tensor) -> tf.Tensor:
            finite = tf.where(holds, values, tf.zeros_like(values))
            return tf.math.divide_no_nan(_over_replicas(tf.reduce_sum(finite, axis=0)), rows)

        mean = averaged(x)
        variance = averaged(tf.square(x - mean))
        some = tf.cast(rows > 0.0, x.dtype)
        count = tf.convert_to_tensor(self.count)
        rate = some * tf.maximum(1.0 / (count + 1.0), 1.0 - MOMENTUM)
        location = tf.convert_to_tensor(self.location)
        distance = mean - location if self.shifted.any() else mean
        moved = tf.where(self.shifted, location + rate * distance, location)
        # around what the location was: for a feature without one, the mean square
        gap = tf.where(self.shifted, (1.0 - rate) * tf.square(distance), tf.square(mean))
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
    """Takes the features that terms name, checks them, and scales them."""

    name: str
    compute_dtype: str
    specification: HeadSpecification
    structure: Structure
    normalization: Normalization
    scaling: FeatureScaling

    _first = "adapt(features)"
    """The call by which it learns the scaling of its features."""

    def scaled(self, features: tf.Tensor) -> tf.Tensor:
        """
        The columns of X [N, D] that the components read, from features [N, F].

        :param features: [N, F].
        :raises ValueError: too few features, or another rank.
        :raises tf.errors.InvalidArgumentError: a code that is no level, degrees out of range, or no
            scaling yet; where XLA drops assertions :meth:`readable` tells such rows.
        """
        X = self._read(features)
        for place, inside, domain in self._domains(X):
            message = f"feature {self.structure.features[place]} must {domain}; got"
            X = _require(X, inside, [message, tf.boolean_mask(X[:, place], ~inside)])
        if self.normalization is None:
            return X
        message = f"{self.name} does not know its features yet: call {self._first} first"
        return self.scaling(_require(X, self._known(), [message]))

    def readable(self, features: tf.Tensor) -> tf.Tensor:
        """
        Rows of features [N, F] that are finite and within their domains, truth values [N]; none
        before features are known. For code in which no assertion can fail.

        :param features: [N, F].
        """
        X = self._read(features)
        valid = tf.reduce_all(tf.math.is_finite(X), axis=1)
        for _, inside, _ in self._domains(X):
            valid &= inside
        return valid & self._known()

    def _read(self, features: tf.Tensor) -> tf.Tensor:
        features = tf.cast(features, self.compute_dtype)
        self._check_width(features.shape)
        columns = self.structure.features
        first, last = columns[0], columns[-1] + 1
        if tuple(columns) == tuple(range(first, last)):  # a gather is dear to differentiate
            return features[:, first:last]
        return tf.gather(features, list(columns), axis=1)

    def _domains(self, X: tf.Tensor) -> list[tuple[int, tf.Tensor, str]]:
        """Columns of X that hold codes or degrees: place, rows within [N], and the domain."""
        checks = []
        for place, count in self.structure.num_levels.items():
            x = X[:, place]
            inside = tf.equal(x, tf.round(x)) & (x >= 0.0) & (x < count)
            checks.append((place, inside, f"hold codes 0 to {count - 1}"))
        for place, (low, high) in self.structure.degrees.items():
            inside = (X[:, place] >= low) & (X[:, place] <= high)
            checks.append((place, inside, f"be degrees from {low:g} to {high:g}"))
        return checks

    @property
    def is_ready(self) -> bool:
        """False until scaling is set, where that takes :meth:`GPHead.adapt`."""
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
