"""Kernels as functions of their parameters' values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from gpflow.base import Parameter, TensorType
from gpflow.kernels import Kernel


def parameters_of(kernel: Kernel) -> list[Parameter]:
    """The parameters of a kernel, in the order in which :func:`with_values` takes their values."""
    return list(_leaves(kernel))


def with_values(kernel: Kernel, values: Sequence[TensorType]) -> Kernel:
    """
    The kernel with other values for its parameters: a light shell, the kernel stays as it is.

    Gradients reach the values. Nothing is assigned, so that threads do not see each other's values,
    and a hundred draws of hyperparameters cost no hundred copies.

    :param kernel: any GPflow kernel.
    :param values: constrained values in the order of :func:`parameters_of`.
    """
    shell: Kernel = _rebuilt(kernel, iter(values))
    return shell


def in_double(kernel: Kernel) -> Kernel:
    """
    The kernel with its parameters' present values in double precision; gradients reach them.

    Evaluate it where GPflow's default float is double, too: some kernels ask for that.

    :param kernel: any GPflow kernel.
    """
    values = [tf.convert_to_tensor(p) for p in parameters_of(kernel)]
    return with_values(kernel, [tf.cast(v, tf.float64) for v in values])


def _attributes(kernel: Kernel) -> list[tuple[str, Any]]:
    return sorted((n, v) for n, v in vars(kernel).items() if not n.startswith("_self_"))


def _leaves(node: Any) -> Iterator[Parameter]:
    if isinstance(node, Parameter):
        yield node
    elif isinstance(node, (list, tuple)):
        for value in node:
            yield from _leaves(value)
    elif isinstance(node, Mapping):
        for value in node.values():
            yield from _leaves(value)
    elif isinstance(node, Kernel):
        for _, value in _attributes(node):
            yield from _leaves(value)


def _rebuilt(node: Any, values: Iterator[TensorType]) -> Any:
    if isinstance(node, Parameter):
        return next(values)
    if isinstance(node, (list, tuple)):
        return [_rebuilt(value, values) for value in node]
    if isinstance(node, Mapping):
        return {name: _rebuilt(value, values) for name, value in node.items()}
    if isinstance(node, Kernel):
        # by way of the dictionary: setting attributes would have TensorFlow track the values
        shell: Any = object.__new__(type(node))
        vars(shell).update(vars(node))
        for name, value in _attributes(node):
            if isinstance(value, (Parameter, Kernel, list, tuple, Mapping)):
                vars(shell)[name] = _rebuilt(value, values)
        return shell
    return node
