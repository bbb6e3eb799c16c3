"""A head inside of a layer that computes by TensorFlow functions, which no graph of Keras shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from ..layers import GPHead
from ..layers.binding import is_of


class OpaqueCall:
    """
    A layer's call, run for what it gives to the head inside of it.

    :param layer: that was called.
    :param arguments: symbolic ones, of Keras's node.
    :param index: which of what it returned is looked for.
    :param head: inside.
    """

    def __init__(self, layer: keras.Layer, arguments: Any, index: int, head: GPHead) -> None:
        self._layer, self._arguments, self._index, self._head = layer, arguments, index, head
        self.inputs: list[keras.KerasTensor] = list(arguments.keras_tensors)
        """Symbolic tensors that the call takes."""

    def __call__(self, values: Sequence[tf.Tensor]) -> tf.Tensor:
        """
        The head's features.

        :param values: for :attr:`inputs`.
        :raises ValueError: the head is not called once, or what it returns is not what the layer
            returns, or its features are not at hand.
        """
        known = {id(k): v for k, v in zip(self.inputs, values, strict=True)}
        args, kwargs = self._arguments.fill_in(known)
        if self._layer._call_has_training_arg:
            kwargs = {**kwargs, "training": False}
        with self._head.recorded(compute=False) as calls:
            outputs = keras.tree.flatten(self._layer(*args, **kwargs))
        head, inside = self._head.name, f"inside of {self._where}"
        if len(calls) != 1:
            raise ValueError(
                f"{head} is called {len(calls)} times {inside}; export a model that calls it once."
            )
        features = calls[0]
        here = tf.compat.v1.get_default_graph()
        if tf.is_symbolic_tensor(features) and (
            tf.executing_eagerly() or features.graph is not here
        ):
            raise ValueError(
                f"{head} is called {inside} within a tf.function, a loop or a condition of its "
                "own, out of which its input cannot be taken: call it outside of those, or write "
                "all of the network, without draws and components, by model.export(path)."
            )
        if not is_of(outputs[self._index], self._head):
            raise ValueError(
                f"the output of {self._where} is not that of {head} alone, and what comes after "
                "the head would not be served: return what the head returns, or write all of the "
                "network, without draws and components, by model.export(path)."
            )
        return features

    def check(self) -> None:
        """
        Try it on symbolic tensors of the shapes it was called with.

        :raises ValueError: see above, or the layer cannot be traced.
        """
        specs = [tf.TensorSpec(t.shape, t.dtype) for t in self.inputs]
        trace = tf.function(lambda *values: self(values), autograph=False)
        try:
            trace.get_concrete_function(*specs)
        except Exception as error:
            if isinstance(error, ValueError) and self._head.name in str(error):
                raise
            raise ValueError(
                f"{self._head.name} is called inside of {self._where}, which cannot be traced "
                f"({type(error).__name__}): compute its input by functions of TensorFlow or by "
                "Keras layers and keras.ops."
            ) from error

    @property
    def _where(self) -> str:
        return f"{self._layer.name}, a {type(self._layer).__name__}"
