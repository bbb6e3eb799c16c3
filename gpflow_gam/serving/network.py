"""Keras models with additive GP heads as something that can be exported."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from ..layers import GPHead
from ..layers.head import HeadInput, trace_heads
from .servable import Input, PosteriorAnswers, Rows, Servable, argument_names, servable

_BETWEEN = 1_000_003
"""Between the seeds of heads, whose draws have nothing to do with each other."""


class _Head(PosteriorAnswers):
    """A head's answers, and X of its features."""

    def __init__(self, head: GPHead) -> None:
        if not head.is_ready:
            raise ValueError(
                f"{head.name} does not know its features yet: call {head._first} first."
            )
        super().__init__(head.posterior(), head.likelihood, share=float(head.predictive_share))
        self.head, self._constants = head, np.asarray(head.constants())

    def components(self, X: tf.Tensor) -> dict[str, tf.Tensor]:
        outputs = super().components(X)
        constants = self._single(tf.constant(self._constants, outputs["mean"].dtype))
        return outputs | {"mean": outputs["mean"] + constants}

    def read(self, features: tf.Tensor, rows: Rows) -> tf.Tensor:
        if rows.invalid == "nan":  # the head itself would fail
            strange = ~self.head.readable(features)
            features = rows.require(features, strange, [], 0.0)
        X = self.head.scaled(features)
        strange = ~tf.reduce_all(tf.math.is_finite(X), axis=1)
        message = f"the features of {self.head.name} must be finite; look at the inputs of row"
        return rows.require(X, strange, [message, tf.where(strange)[:1, 0]], 0.0)


class NetworkServable(Servable):
    """
    A network up to its heads' features, which are X, a tuple, and the heads' posteriors behind
    it.

    Its outputs are those of one head each, called once, itself or inside of models and layers.
    """

    kind: ClassVar[str] = "keras"

    def __init__(self, model: keras.Model) -> None:
        if not any(isinstance(layer, GPHead) for layer in model._flatten_layers()):
            raise ValueError(
                f"model must hold a head of gpflow_gam.layers; {model.name} holds 0; model.export "
                "writes other Keras models."
            )
        self.model = model
        self._tensors = _declared_inputs(model)
        self._features = FeaturesOfHeads(model)
        heads = self._features.heads
        names = argument_names(head.name for head in heads)
        self._heads = [_Head(head) for head in heads]
        if len(heads) > 1:
            self.heads = tuple(names[head.name] for head in heads)
        self.names = tuple(name for head in self._heads for name in head.names)
        arguments = argument_names(self._tensors)
        self.inputs = tuple(
            Input(
                arguments[key],
                tf.float64 if tf.as_dtype(t.dtype).is_floating else tf.as_dtype(t.dtype),
                (None, *t.shape[1:]),
                f"input {key!r} of the network",
                key,
            )
            for key, t in self._tensors.items()
        )

    def features(self, inputs: Mapping[str, tf.Tensor], rows: Rows) -> tuple[tf.Tensor, ...]:
        tensors = self._tensors.values()
        values = [tf.cast(inputs[i.name], t.dtype) for i, t in zip(self.inputs, tensors)]
        pairs = zip(self._heads, self._features(values), strict=True)
        return tuple(head.read(features, rows) for head, features in pairs)

    def resources(self) -> list[Any]:
        return [
            value
            for layer in self.model._flatten_layers()
            for value in vars(layer).values()
            if isinstance(value, tf.saved_model.experimental.TrackableResource)
        ]

    def predict(
        self, X: tuple[tf.Tensor, ...], level: float, plain: bool = False
    ) -> dict[str, tf.Tensor]:
        return self._named(h.predict(x, level, plain) for h, x in zip(self._heads, X))

    def components(self, X: tuple[tf.Tensor, ...]) -> dict[str, tf.Tensor]:
        return self._named(h.components(x) for h, x in zip(self._heads, X))

    def sample(
        self, X: tuple[tf.Tensor, ...], num_samples: tf.Tensor, seed: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        return self._named(
            h.sample(x, num_samples, seed + _BETWEEN * i)
            for i, (h, x) in enumerate(zip(self._heads, X))
        )

    def _named(self, answers: Iterable[dict[str, tf.Tensor]]) -> dict[str, tf.Tensor]:
        """In double precision, by the heads' names where there are several; each name once."""
        named: dict[str, tf.Tensor] = {}
        for name, outputs in zip(self.heads or ("",), answers):
            for key, value in outputs.items():
                key = f"{name}_{key}" if name else key
                if key in named:
                    raise ValueError(f"model: two outputs would be called {key!r}; rename a head.")
                named[key] = tf.cast(value, tf.float64)
        return named

    def description(self) -> dict[str, Any]:
        kinds = [type(h.likelihood).__name__ for h in self._heads]
        if not self.heads:
            return {"model": self.model.name, "likelihood": kinds[0]}
        return {
            "model": self.model.name,
            "heads": list(self.heads),
            "likelihood": dict(zip(self.heads, kinds)),
            "components": {name: list(h.names) for name, h in zip(self.heads, self._heads)},
        }


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


@servable.register(keras.Model)
def _network(model: keras.Model) -> NetworkServable:
    return NetworkServable(model)


class FeaturesOfHeads:
    """
    From a model's inputs to what its heads are given in the call whose output the model
    returns.

    The model is called, and its heads give back their inputs in place of predictions.
    """

    def __init__(self, model: keras.Model) -> None:
        self._name = model.name
        self._model = keras.Model(model.inputs, model.outputs)  # both of them flat
        specs = [tf.TensorSpec(t.shape, t.dtype) for t in model.inputs]
        self.heads: list[GPHead] = []
        """In the order of the outputs."""

        def call(*values: tf.Tensor) -> None:
            self.heads = [traced.head for traced in self._traced(values)]

        tf.function(call, autograph=False).get_concrete_function(*specs)

    def __call__(self, values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Features [N, F] for each of :attr:`heads`; ``values`` of the inputs in a flat list."""
        return [traced.features for traced in self._traced(values)]

    def _traced(self, values: Sequence[tf.Tensor]) -> list[HeadInput]:
        try:
            with trace_heads():
                outputs: list[Any] = keras.tree.flatten(self._model(list(values), training=False))
        except Exception as error:  # layers have their own ways of taking no such input
            raise ValueError(self._cannot(_said(error))) from error
        for output in outputs:
            if not isinstance(output, HeadInput):
                raise ValueError(self._cannot("an output is not what a head returns"))
        for traced in outputs:
            times = sum(other.head is traced.head for other in outputs)
            if times > 1:
                raise ValueError(self._cannot(f"{traced.head.name} is called {times} times"))
        return outputs

    def _cannot(self, why: str) -> str:
        return (
            f"{self._name} has to return what its heads return and nothing else, each called once, "
            "on what Keras layers or functions of TensorFlow compute outside of a tf.function, a "
            "loop or a condition; what comes behind or beside heads would not be served. Export "
            "keras.Model(inputs, head(features)), which may have several heads for outputs, or all "
            f"of the network, without draws and components, by model.export(path). ({why})"
        )


def _said(error: Exception) -> str:
    """Message of an error without what Keras adds: colours, and the arguments."""
    text = re.sub("\x1b\\[[0-9;]*m", "", str(error)).split("Arguments received by")[0]
    return " ".join(text.split()) or type(error).__name__
