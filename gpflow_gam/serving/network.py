"""Keras models with an additive GP head as something that can be exported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import keras
import tensorflow as tf

from ..layers import GPHead
from .graph import features_before
from .posterior import PosteriorServable
from .rows import Rows
from .servable import Input, argument_names, servable


class NetworkServable(PosteriorServable):
    """
    A network up to its head's features, and the head's posterior behind it.

    :param model: functional or sequential, its output that of one head, which it calls once,
        itself or in models and layers inside of it that return what the head does.
    :raises ValueError: a model without such a head, or without declared inputs.
    """

    kind: ClassVar[str] = "keras"

    def __init__(self, model: keras.Model) -> None:
        self.head = _only_head(model)
        self.model = model
        self._tensors = _declared_inputs(model)
        self._features = features_before(model, self.head)
        super().__init__(self.head.posterior(), self.head.likelihood)
        names = argument_names(self._tensors)
        self.inputs = tuple(
            Input(
                names[key],
                tf.float64 if tf.as_dtype(t.dtype).is_floating else tf.as_dtype(t.dtype),
                (None, *t.shape[1:]),
                f"input {key!r} of the network",
                key,
            )
            for key, t in self._tensors.items()
        )

    def features(self, inputs: Mapping[str, tf.Tensor], rows: Rows) -> tf.Tensor:
        tensors = self._tensors.values()
        values = [tf.cast(inputs[i.name], t.dtype) for i, t in zip(self.inputs, tensors)]
        features = self._features(values)
        if rows.invalid == "nan":  # the head itself would fail
            strange = ~self.head.readable(features)
            features = rows.require(features, strange, [], 0.0)
        X = self.head.scaled(features)
        strange = ~tf.reduce_all(tf.math.is_finite(X), axis=1)
        message = f"the features of {self.head.name} must be finite; look at the inputs of row"
        return rows.require(X, strange, [message, tf.where(strange)[:1, 0]], 0.0)

    def resources(self) -> list[Any]:
        return [
            value
            for layer in self.model._flatten_layers()
            for value in vars(layer).values()
            if isinstance(value, tf.saved_model.experimental.TrackableResource)
        ]

    def predict(self, X: tf.Tensor, level: float, plain: bool = False) -> dict[str, tf.Tensor]:
        return _double(super().predict(X, level, plain))

    def components(self, X: tf.Tensor) -> dict[str, tf.Tensor]:
        return _double(super().components(X))

    def sample(self, X: tf.Tensor, num_samples: tf.Tensor, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        return _double(super().sample(X, num_samples, seed))

    def description(self) -> dict[str, Any]:
        return {"model": self.model.name, "likelihood": type(self.likelihood).__name__}


def _only_head(model: keras.Model) -> GPHead:
    heads = [layer for layer in model._flatten_layers() if isinstance(layer, GPHead)]
    if not heads:
        raise ValueError(
            f"model must hold one head of gpflow_gam.layers; {model.name} holds 0; model.export "
            "writes other Keras models."
        )
    if len(heads) > 1:
        raise ValueError(
            f"model must hold one head of gpflow_gam.layers; {model.name} holds {len(heads)}: "
            f"export one model of each, keras.Model(inputs, {heads[0].name}(features)) and so on, "
            "or all of the network, without draws and components, by model.export(path)."
        )
    head = heads[0]
    if not head.is_ready:
        raise ValueError(f"{head.name} does not know its features yet: call {head._first} first.")
    return head


def _declared_inputs(model: keras.Model) -> dict[str, Any]:
    """A model's symbolic inputs, flat, by the keys of a dict or else by their names."""
    try:
        tensors = list(model.inputs)
    except (AttributeError, TypeError, ValueError):
        raise ValueError(
            f"model {model.name} does not say what its inputs are; export "
            "keras.Model(x, model(x)) with x = keras.Input(...)."
        ) from None
    # a sequential model has none of its own before it was called, and never a dict
    inputs = None if isinstance(model, keras.Sequential) else model.input
    if isinstance(inputs, Mapping):
        return dict(zip(_keys(inputs), tensors, strict=True))
    return {t.name: t for t in tensors}


def _keys(inputs: Mapping[str, Any]) -> list[str]:
    paths = [path for path, _ in keras.tree.flatten_with_path(inputs)]
    return ["/".join(str(part) for part in path) for path in paths]


def _double(outputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    return {name: tf.cast(value, tf.float64) for name, value in outputs.items()}


@servable.register(keras.Model)
def _network(model: keras.Model) -> NetworkServable:
    return NetworkServable(model)
