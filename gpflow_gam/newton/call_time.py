"""What compiled functions ask of Python whenever they are called."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf


def at_each_call(check: Callable[[], None], true: tf.Tensor) -> None:
    """
    Have ``check`` run at each call of the function that is being compiled, by XLA or not.

    A graph knows nothing of the Python objects that it was made from. But whoever calls it
    evaluates in Python what is to be fed anew at each call, as TensorFlow itself does with the keys
    of collective operations: what ``check`` raises is the caller's. Of a function within another
    the outermost asks; a file that a function is saved to asks nothing, and holds ``true``.

    :param check: raises where the function must not be used any more.
    :param true: such a tensor of whoever asks, which a SavedModel must find among its parts.
    """
    graph = tf.compat.v1.get_default_graph()
    while getattr(graph, "is_control_flow_graph", False):
        graph = graph.outer_graph  # whose calls feed it

    def checked() -> tf.Tensor:
        check()
        return true

    with graph.as_default():
        graph.capture_call_time_value(
            checked, tf.TensorSpec([], tf.bool), key=check, default_value=true
        )
