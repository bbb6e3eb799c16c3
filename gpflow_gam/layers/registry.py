"""The heads that losses and metrics read, by their names."""

from __future__ import annotations

import weakref

from .moments import MomentReader

_HEADS: weakref.WeakValueDictionary[str, MomentReader] = weakref.WeakValueDictionary()
"""The latest head of each name: how a loss or metric read from a file finds the layer beside it."""


def register(head: MomentReader) -> None:
    """Make a head known by its name."""
    _HEADS[head.name] = head


def head_named(name: str) -> MomentReader:
    """
    The latest head of that name.

    :raises ValueError: there is none.
    """
    if name not in _HEADS:
        raise ValueError(
            f"there is no layer {name!r} for this loss or metric; build its model first."
        )
    return _HEADS[name]
