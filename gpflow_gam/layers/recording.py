"""What goes into a layer while a network around it is called."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf


class Recorder:
    """A layer that natural gradients, and exports, can ask what it was given."""

    _calls: list[tf.Tensor] | None = None
    _is_idle = False

    @property
    def is_recorded(self) -> bool:
        """Whether this is within :meth:`recorded`."""
        return self._calls is not None

    @contextlib.contextmanager
    def recorded(self, compute: bool = True) -> Iterator[list[tf.Tensor]]:
        """
        Within it, the features of every call are kept, in order.

        :param compute: False where features alone are wanted, whatever they are: calls return zeros
            of the right shape.
        """
        self._calls, self._is_idle = [], not compute
        try:
            yield self._calls
        finally:
            self._calls, self._is_idle = None, False

    def _note(self, features: tf.Tensor) -> None:
        if self._calls is not None:
            self._calls.append(features)
