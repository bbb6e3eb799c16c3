"""What of a network comes before its head."""

from __future__ import annotations

from typing import Any

import keras

from ..layers import GPHead


def features_model(model: keras.Model, head: GPHead) -> keras.Model:
    """
    From a model's inputs, in a flat list, to what its head is given.

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
    before = keras.Model(model.inputs, found[0])
    if any(layer is head for layer in before._flatten_layers()):
        raise ValueError(
            f"{head.name} is called on what it returned in {model.name}; export a model that calls "
            "it once."
        )
    return before


def _head_input(output: keras.KerasTensor, head: GPHead) -> keras.KerasTensor | None:
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
    except Exception as error:
        raise ValueError(
            f"{head.name} is called inside of {layer.name}, a {type(layer).__name__}, whose call "
            f"does not take symbolic tensors ({type(error).__name__}), so that the head's input is "
            "unknown: compute it by Keras layers and keras.ops alone, or write all of the network, "
            "without draws and components, by model.export(path)."
        ) from error
    return _head_input(inside, head)


def _holds(layer: Any, head: GPHead) -> bool:
    return isinstance(layer, keras.Layer) and any(
        inner is head for inner in layer._flatten_layers()
    )
