"""What heads are given, asked for in place of what they say of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NoReturn

import tensorflow as tf

if TYPE_CHECKING:
    from .head import GPHead

_IS_ASKED: ContextVar[bool] = ContextVar("is_asked", default=False)
"""Of this thread alone: others may predict meanwhile."""


class Given:
    """
    What a head returns within :func:`given_back`. No layer and no function can compute with it, so
    that nothing which a network does with a head's output goes unnoticed.

    :param head: that was called.
    :param features: it was called with, [N, F].
    """

    def __init__(self, head: GPHead, features: tf.Tensor) -> None:
        self.head = head
        self.features = features

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(f"something is computed from what {self.head.name} returns")

    def __repr__(self) -> str:
        return f"what {self.head.name} returns"


@contextlib.contextmanager
def given_back() -> Iterator[None]:
    """Within it, heads return what they are given, as :class:`Given`, and compute nothing."""
    token = _IS_ASKED.set(True)
    try:
        yield
    finally:
        _IS_ASKED.reset(token)


def is_asked() -> bool:
    """Whether this is within :func:`given_back`."""
    return _IS_ASKED.get()
