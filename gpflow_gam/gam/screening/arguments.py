"""Arguments that name columns or count something, checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..terms import Column, as_column, as_columns


def check_count(argument: str, value: object, least: int) -> None:
    """
    Check an argument that counts something.

    :raises ValueError: it is no whole number, or too small.
    """
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or int(value) < least:  # type: ignore[call-overload]
        raise ValueError(f"{argument} must be a whole number of at least {least}; got {value!r}.")


def check_gain(min_gain: float | None) -> None:
    """
    Check a least gain.

    :raises ValueError: it is negative, or no number.
    """
    if min_gain is not None and not min_gain >= 0.0:
        raise ValueError(f"min_gain must be a number of nats from 0 on; got {min_gain!r}.")


def checked_columns(columns: Any) -> list[Column]:
    """
    The columns that an argument names.

    :raises TypeError: no list of names or indices.
    :raises ValueError: none, or one twice.
    """
    if columns is None:
        raise ValueError("columns is missing: name them, or pass data= and y=.")
    if as_column(columns) is not None:
        raise TypeError(f"columns must be a list of names; got {columns!r}; write [{columns!r}].")
    names = as_columns("columns", columns)
    if not names:
        raise ValueError("columns is empty; name at least one.")
    twice = [n for n in names if names.count(n) > 1]
    if twice:
        raise ValueError(f"columns: {twice[0]!r} is there twice; leave one out.")
    return names


def check_depth(depth: int, names: Sequence[Column]) -> None:
    """
    Check the most columns of a term.

    :raises ValueError: no whole number, or more than there are columns.
    """
    check_count("depth", depth, 1)
    if depth > len(names):
        raise ValueError(f"depth={depth} is more than there are columns, {len(names)}.")


def listed(argument: str, some: Iterable[Column], names: Sequence[Column]) -> set[Column]:
    """
    The columns that an argument names among ``names``.

    :raises ValueError: another one.
    """
    some = as_columns(argument, some)
    for name in some:
        if name not in names:
            raise ValueError(f"{argument} names {name!r}, which is not among the columns.")
    return set(some)
