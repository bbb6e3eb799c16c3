"""What of a network comes before its heads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from ..layers import GPHead
from .opaque import OpaqueCall

Features = Callable[[list[tf.Tensor]], list[tf.Tensor]]


def features_before(model: keras.Model, heads: Sequence[GPHead]) -> Features:
    """
    From a model's inputs, in a flat list, to what its heads are given, without training.

    That is ``head.input`` where a head is called in no other model; here it is looked for behind
    the outputs of this one, since ``head.input`` is that of the first call.

    :param model: functional or sequential.
    :param heads: in it.
    :raises ValueError: a head is called more than once, outputs are not those of heads, one each,
        or the input of a head cannot be followed.
    """
    outputs = list(model.outputs)
    found: list[tf.Tensor | OpaqueCall] = []
    for head in heads:
        own = [f for f in (_head_input(output, head) for output in outputs) if f is not None]
        if len(own) > 1:
            raise ValueError(
                f"{head.name} is called {len(own)} times in {model.name}; export a model that "
                "calls it once."
            )
        if not own or len(outputs) != len(heads):
            raise ValueError(_others(model, head))
        found += own
    symbols = [s for f in found for s in (f.inputs if isinstance(f, OpaqueCall) else [f])]
    before = keras.Model(model.inputs, symbols)  # what heads have in common is computed once
    for head in heads:
        if any(layer is head for layer in before._flatten_layers()):
            raise ValueError(
                f"{head.name} is called on what it returned in {model.name}, or before another "
                "head; export a model that calls it once, last."
            )
    for f in found:
        if isinstance(f, OpaqueCall):
            f.check()

    def features(values: list[tf.Tensor]) -> list[tf.Tensor]:
        given = iter(keras.tree.flatten(before(values, training=False)))
        return [
            f([next(given) for _ in f.inputs]) if isinstance(f, OpaqueCall) else next(given)
            for f in found
        ]

    return features


def _others(model: keras.Model, head: GPHead) -> str:
    return (
        f"the output of {model.name} is not that of {head.name} alone, and what comes after the "
        f"head or beside it would not be served: export keras.Model(inputs, {head.name}"
        "(features)), which may have several heads for outputs, or all of the network, without "
        "draws and components, by model.export(path)."
    )


def _head_input(output: keras.KerasTensor, head: GPHead) -> keras.KerasTensor | OpaqueCall | None:
    """What the head was given to return ``output``; None where another layer returned it."""
    layer, place, index = output._keras_history
    arguments = layer._inbound_nodes[place].arguments
    if layer is head:
        features = arguments.args[0] if arguments.args else arguments.kwargs["inputs"]
        return features  # type: ignore[no-any-return]
    if not _holds(layer, head):
        return None
    # a model in a model: its own layers are called on tensors of this one
    try:
        inside = keras.tree.flatten(layer.call(*arguments.args, **arguments.kwargs))[index]
        inside._keras_history  # noqa: B018
    except Exception:  # TensorFlow's functions take no symbolic tensors, and say so in many ways
        return OpaqueCall(layer, arguments, index, head)
    return _head_input(inside, head)


def _holds(layer: Any, head: GPHead) -> bool:
    return isinstance(layer, keras.Layer) and any(
        inner is head for inner in layer._flatten_layers()
    )
