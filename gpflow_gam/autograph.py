"""Compiling without AutoGraph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import tensorflow as tf

C = TypeVar("C", bound=Callable[..., Any])


def as_written(function: C) -> C:
    """Decorator: trace as written; the search of AutoGraph takes longer than the tracing."""
    return cast(C, tf.autograph.experimental.do_not_convert(function))
