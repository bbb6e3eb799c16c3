"""Compiling without AutoGraph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import tensorflow as tf

C = TypeVar("C", bound=Callable[..., Any])


def as_written(function: C) -> C:
    """
    Decorator: inside a ``tf.function``, trace ``function`` and all it calls as they are
    written.

    AutoGraph's search for Python control flow, of which there is none, takes longer than the
    tracing. ``inherit_check_shapes`` must stand on top.
    """
    return cast(C, tf.autograph.experimental.do_not_convert(function))
