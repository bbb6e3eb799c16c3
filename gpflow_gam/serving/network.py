"""Keras models with an additive GP head as something that can be exported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import keras
import tensorflow as tf

from ..layers import GPHead
from .posterior import PosteriorServable
from .servable import Input, argument_names, servable


class NetworkServable(PosteriorServable):
    """
    A network up to its head's features, and the head's posterior behind it.

    :param model: functional or sequential, with one head that it calls once.
    :raises ValueError: a model without such a head, or without declared inputs.
    """

    kind: ClassVar[str] = "keras"

    def __init__(self, model: keras.Model) -> None:
        heads = [layer for layer in model._flatten_layers() if isinstance(layer, GPHead)]
        if len(heads) != 1:
            raise ValueError(
                f"model must hold one head of gpflow_gam.layers; {model.name} holds {len(heads)}"
                + ("; model.export writes other Keras models." if not heads else ".")
            )
        try:
            tensors = list(model.inputs)
        except (AttributeError, TypeError, ValueError):
            raise ValueError(
                f"model {model.name} does not say what its inputs are; export "
                "keras.Model(x, model(x)) with x = keras.Input(...)."
            ) from None
        self.head = heads[0]
        self.model = model
        super().__init__(self.head.posterior(), self.head.likelihood)
        self._tensors = tensors
        names = argument_names([t.name for t in tensors])
        self.inputs = tuple(
            Input(
                names[t.name],
                tf.float64 if tf.as_dtype(t.dtype).is_floating else tf.as_dtype(t.dtype),
                (None, *t.shape[1:]),
                f"input {t.name!r} of the network",
            )
            for t in tensors
        )

    def features(self, inputs: Mapping[str, tf.Tensor]) -> tf.Tensor:
        values = [tf.cast(inputs[i.name], t.dtype) for i, t in zip(self.inputs, self._tensors)]
        with self.head.recorded() as features:
            self.model(keras.tree.pack_sequence_as(self.model.input, values), training=False)
        if len(features) != 1:
            raise ValueError(
                f"{self.head.name} is called {len(features)} times in {self.model.name}; export a "
                "model that calls it once."
            )
        X = self.head.scaled(features[0])
        holds = tf.reduce_all(tf.math.is_finite(X))
        message = f"the features of {self.head.name} must be finite; look at the inputs"
        with tf.control_dependencies([tf.debugging.Assert(holds, [message])]):
            return tf.identity(X)

    def predict(self, X: tf.Tensor, level: float) -> dict[str, tf.Tensor]:
        return _double(super().predict(X, level))

    def components(self, X: tf.Tensor) -> dict[str, tf.Tensor]:
        return _double(super().components(X))

    def sample(self, X: tf.Tensor, num_samples: tf.Tensor, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        return _double(super().sample(X, num_samples, seed))

    def description(self) -> dict[str, Any]:
        return {"model": self.model.name, "likelihood": type(self.likelihood).__name__}


def _double(outputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    return {name: tf.cast(value, tf.float64) for name, value in outputs.items()}


@servable.register(keras.Model)
def _network(model: keras.Model) -> NetworkServable:
    return NetworkServable(model)
