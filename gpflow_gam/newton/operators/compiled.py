"""What is compiled, and what is too small for it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import tensorflow as tf

_SMALL = 2**19
"""Entries of a matrix that is made whole: what compiling costs, tens of such matrices cost."""


def is_small(X1: tf.Tensor, X2: tf.Tensor) -> bool:
    """
    Whether k(X1, X2) is made whole, and nothing compiled for it.

    :param X1: [N, D].
    :param X2: [M, D].
    """
    return int(X1.shape[0]) * int(X2.shape[0]) <= _SMALL


class Compiled:
    """
    A function compiled by XLA, once for each combination of shapes.

    :param function: of tensors.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._concrete: dict[Hashable, Callable[..., Any]] = {}

    def __call__(self, *arguments: tf.Tensor, variant: Hashable = None) -> Any:
        """:param variant: of the function, where it depends on more than its arguments."""
        key = variant, *((a.dtype, tuple(a.shape)) for a in arguments)
        if key not in self._concrete:
            traced = tf.function(self._function, autograph=False, jit_compile=True)
            self._concrete[key] = traced.get_concrete_function(*arguments)
        return self._concrete[key](*arguments)
