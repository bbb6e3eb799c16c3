"""What TensorFlow keeps of the gradients of a computation that is over."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.framework import ops

_ATTRIBUTE = "_gradient_op_type"


def forget_traced(function: Any) -> None:
    """
    :func:`forget_gradients` of whatever has been traced of a function.

    :param function: made by ``tf.function``.
    """
    for concrete in getattr(function, "_list_all_concrete_functions", list)():
        forget_gradients(concrete.graph)


def forget_gradients(graph: tf.Graph) -> None:
    """
    Let go of a graph that holds its own gradients.

    In a graph, ``tf.custom_gradient`` puts the rule of each of its results into a list of the whole
    process, for ever, and with it all that the rule refers to: the graph, and what that was made
    from. TFP's softplus, through which GPflow reads positive parameters, is one. Rules are looked
    up while gradients are traced: of a graph that has them they are not needed any more.

    :param graph: which nobody is going to differentiate. Functions that it calls stay as they are.
    """
    rules = getattr(ops.gradient_registry, "_registry", None)
    if rules is None:  # of another TensorFlow: memory is all that is lost
        return
    for operation in graph.get_operations():
        if operation.type == "IdentityN" and _ATTRIBUTE in operation.node_def.attr:
            rules.pop(operation.node_def.attr[_ATTRIBUTE].s.decode(), None)
