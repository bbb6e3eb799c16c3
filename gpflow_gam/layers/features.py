"""From a network's features to the columns that kernels read."""

from __future__ import annotations

import abc
from typing import Any

import numpy as np
import tensorflow as tf

from ..gam.terms.base import column_of
from .scaling import FeatureScaling, Normalization
from .specification import HeadSpecification
from .structure import Structure


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
