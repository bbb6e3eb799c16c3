"""What goes into a layer while a network around it is called."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf


class Recorder:
    """A layer that natural gradients can ask what it was given in a training step."""

    _calls: list[tf.Tensor] | None = None

    @property
    def is_recorded(self) -> bool:
        """Whether this is within :meth:`recorded`."""
        return self._calls is not None

    @contextlib.contextmanager
    def recorded(self) -> Iterator[list[tf.Tensor]]:
        """Within it, the features of every call are kept, in order."""
        self._calls = []
        try:
            yield self._calls
        finally:
            self._calls = None

    def _note(self, features: tf.Tensor) -> None:
        if self._calls is not None:
            self._calls.append(features)
