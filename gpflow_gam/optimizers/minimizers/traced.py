"""One compiled computation of a fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from .gradients import forget_gradients


class Traced:
    """
    A function compiled at its first call, for arguments of the same shapes ever after.

    TensorFlow counts the traces of a line of code over the whole program, and warns of retracing
    when several models are fitted one after the other: it looks only at calls through
    ``tf.function`` itself, not at those of the concrete function that is called here. After
    ``tf.config.run_functions_eagerly(True)`` nothing is compiled, as nowhere in TensorFlow: for a
    look inside with a debugger, and quicker where a fit is so small that compiling is most of it.
    Nobody may differentiate it from outside: see :func:`forget_gradients`.

    :param function: of tensors.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = tf.function(function, autograph=False)
        self._concrete: Callable[..., Any] | None = None

    def __call__(self, *arguments: tf.Tensor) -> Any:
        if tf.config.functions_run_eagerly():
            return self._function(*arguments)
        if self._concrete is None:
            concrete = self._function.get_concrete_function(*arguments)
            forget_gradients(concrete.graph)
            self._concrete = concrete
        return self._concrete(*arguments)
