"""What of a network comes before its head."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from ..layers import GPHead
from .opaque import OpaqueCall

Features = Callable[[list[tf.Tensor]], tf.Tensor]


def features_before(model: keras.Model, head: GPHead) -> Features:
    """
    From a model's inputs, in a flat list, to what its head is given, without training.

    That is ``head.input`` where the head is called in no other model; here it is looked for behind
    the output of this one, since ``head.input`` is that of the first call.

    :param model: functional or sequential.
    :param head: in it.
    :raises ValueError: the head is called more than once, or what it returns is not the output, or
        its input cannot be followed.
    """
    outputs = list(model.outputs)
    found = [_head_input(output, head) for output in outputs]
    times = sum(features is not None for features in found)
    if times > 1:
        raise ValueError(
            f"{head.name} is called {times} times in {model.name}; export a model that calls it "
            "once."
        )
    if len(outputs) != 1 or found[0] is None:
        raise ValueError(
            f"the output of {model.name} is not that of {head.name} alone, and what comes after "
            f"the head or beside it would not be served: export keras.Model(inputs, {head.name}"
            "(features)), or all of the network, without draws and components, by "
            "model.export(path)."
        )
    last = found[0]
    before = keras.Model(model.inputs, last.inputs if isinstance(last, OpaqueCall) else last)
    if any(layer is head for layer in before._flatten_layers()):
        raise ValueError(
            f"{head.name} is called on what it returned in {model.name}; export a model that calls "
            "it once."
        )
    if not isinstance(last, OpaqueCall):
        return lambda values: before(values, training=False)
    last.check()
    return lambda values: last(keras.tree.flatten(before(values, training=False)))


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
