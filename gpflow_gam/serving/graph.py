"""What of a network comes before its heads."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from ..layers import GPHead
from ..layers.head import HeadInput, trace_heads


class FeaturesOfHeads:
    """
    From a model's inputs to what its heads are given, without training.

    The model is called, and its heads give back their inputs in place of predictions. That is
    ``head.input`` of Keras where a head is called once, outside of other layers; here it is that of
    the call whose output the model returns, wherever that is.

    :param model: functional or sequential.
    :raises ValueError: its outputs are not those of heads, one each, which it calls once.
    """

    def __init__(self, model: keras.Model) -> None:
        self._name = model.name
        self._model = keras.Model(model.inputs, model.outputs)  # both of them flat
        specs = [tf.TensorSpec(t.shape, t.dtype) for t in model.inputs]
        self.heads: list[GPHead] = []
        """In the order of the outputs."""

        def call(*values: tf.Tensor) -> None:
            self.heads = [given.head for given in self._given(values)]

        tf.function(call, autograph=False).get_concrete_function(*specs)

    def __call__(self, values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """
        Features [N, F] for each of :attr:`heads`.

        :param values: of the model's inputs, in a flat list.
        """
        return [given.features for given in self._given(values)]

    def _given(self, values: Sequence[tf.Tensor]) -> list[HeadInput]:
        try:
            with trace_heads():
                outputs: list[Any] = keras.tree.flatten(self._model(list(values), training=False))
        except Exception as error:  # layers have their own ways of taking no such input
            raise ValueError(self._cannot(_said(error))) from error
        for output in outputs:
            if not isinstance(output, HeadInput):
                raise ValueError(self._cannot("an output is not what a head returns"))
        for given in outputs:
            times = sum(other.head is given.head for other in outputs)
            if times > 1:
                raise ValueError(self._cannot(f"{given.head.name} is called {times} times"))
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
    """What an error says, without what Keras adds: colours, and the arguments."""
    text = re.sub("\x1b\\[[0-9;]*m", "", str(error)).split("Arguments received by")[0]
    return " ".join(text.split()) or type(error).__name__
