"""Which objects a model is made of, so that it is noticed when one takes another's place."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import Parameter


class Structure:
    """
    The parts of a model, their own parts and their settings, at one time.

    Parameters, tensors and modules are told apart by identity: the value of a parameter is no part
    of the structure, another parameter in its place is. Functions and whatever else can be called,
    such as a likelihood's link, are told apart so, too. Plain settings, such as a kernel's active
    dimensions, are compared by value. Objects of other kinds are ignored.

    :param parts: name -> module, or tuple of tensors.
    """

    def __init__(self, parts: Mapping[str, Any]) -> None:
        self._leaves = {path: leaf for path, leaf in _walked(parts, (), set())}

    def difference(self, other: Structure) -> str | None:
        """The name of the first part of which something is another in ``other``; None if none."""
        for path, leaf in self._leaves.items():
            if not _same(leaf, other._leaves.get(path, _MISSING)):
                return str(path[0])
        return None

    def values(self, *names: str) -> list[Any]:
        """The parameters and tensors of the parts of these names, in order."""
        return [
            leaf
            for path, leaf in self._leaves.items()
            if path and path[0] in names and isinstance(leaf, _VALUES)
        ]


_PLAIN = (bool, int, float, complex, str, bytes, slice, np.generic, type(None))
_VALUES = (Parameter, tf.Variable, tf.Tensor)
_MISSING = object()


def _walked(node: Any, path: tuple[Any, ...], seen: set[int]) -> Iterator[tuple[Any, Any]]:
    if isinstance(node, (*_VALUES, *_PLAIN)):
        yield path, node
    elif isinstance(node, np.ndarray):
        yield path, (node.dtype, node.shape, node.tobytes())
    elif isinstance(node, Mapping):
        yield (*path, "number"), len(node)
        for key, value in node.items():
            yield from _walked(value, (*path, key), seen)
    elif isinstance(node, (list, tuple)):
        yield (*path, "number"), len(node)
        for place, value in enumerate(node):
            yield from _walked(value, (*path, place), seen)
    elif isinstance(node, tf.Module):
        yield path, node
        if id(node) not in seen:
            seen.add(id(node))
            for name, value in sorted(vars(node).items()):
                if not name.startswith("_self_"):  # TensorFlow's own
                    yield from _walked(value, (*path, name), seen)
    elif callable(node):
        yield path, node


def _same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if isinstance(a, tuple) or isinstance(b, tuple):  # an array: numpy would compare its parts
        return isinstance(a, tuple) and isinstance(b, tuple) and a == b
    alike = (*_PLAIN, types.MethodType)  # a method is another object each time it is looked up
    return isinstance(a, alike) and isinstance(b, alike) and bool(a == b)
