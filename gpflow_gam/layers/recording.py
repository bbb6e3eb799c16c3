"""What goes into a layer and comes out of it while a network around it is called."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf


class Calls(Sequence[tf.Tensor]):
    """The features of every call of a head, in order."""

    def __init__(self, compute: bool) -> None:
        self.compute = compute
        self.features: list[tf.Tensor] = []
        self.outputs: list[tf.Tensor] = []
        """What the same calls returned."""

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, index: Any) -> Any:
        return self.features[index]


class Recorder:
    """A layer whose calls can be listened to: for export, and for natural gradients."""

    _calls: Calls | None = None

    @property
    def is_recorded(self) -> bool:
        """Whether this is within :meth:`recorded`."""
        return self._calls is not None

    @contextlib.contextmanager
    def recorded(self, compute: bool = True) -> Iterator[Calls]:
        """
        Within it, the features of every call are kept, and what it returned.

        :param compute: False where features alone are wanted: what is returned is of the right
            shape then, and zero.
        """
        self._calls = Calls(compute)
        try:
            yield self._calls
        finally:
            self._calls = None

    @property
    def _is_idle(self) -> bool:
        return self._calls is not None and not self._calls.compute

    def _note(self, features: tf.Tensor, output: tf.Tensor) -> tf.Tensor:
        if self._calls is not None:
            self._calls.features.append(features)
            self._calls.outputs.append(output)
        return output
