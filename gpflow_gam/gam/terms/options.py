"""Options that several kinds of terms share."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .base import Column, Term, as_column


def checked_k(function: str, k: object, columns: int = 1) -> int | None:
    """
    A number of inducing inputs, None for the default.

    :param columns: how many of them may have a number each, which are multiplied.
    :raises ValueError: it is none.
    """
    if isinstance(k, (tuple, list)) and len(k) == columns > 1:
        numbers = [checked_k(function, number) for number in k]
        known = [number for number in numbers if number is not None]
        return math.prod(known) if len(known) == len(numbers) else None
    if k is None or (type(k) is int and k == -1):
        return None
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
        each = f", or one for each of {columns} columns" if columns > 1 else ""
        raise ValueError(
            f"{function}(): k, the number of inducing inputs, must be a whole number of at least "
            f"1{each}; got {k!r}."
        )
    return int(k)


def checked_by(function: str, columns: tuple[Column, ...], by: object) -> Column | Term | None:
    """
    Check what multiplies a term, or splits it by level.

    :param columns: what it is a function of.
    :raises TypeError: no column, nor a factor of one.
    :raises ValueError: one of these columns.
    """
    if by is None:
        return None
    name = as_column(by.columns[0] if isinstance(by, Term) else by)
    if name is None:
        raise TypeError(f"{function}(): by must name a column; got {by!r}.")
    if isinstance(by, Term) and by.function != "factor":
        raise TypeError(f"{function}(): by must be a column or factor(column); got {by!r}.")
    if name in columns:
        raise ValueError(f"{function}(): by={name!r} is also what it is a function of.")
    return by if isinstance(by, Term) else name


def refuse(bs: str, **options: Any) -> None:
    """
    Check that options are not given which a kind of smooth has no use for.

    :param options: by name; None where they are not given.
    :raises ValueError: one is.
    """
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"s(): bs={bs!r} takes no {name}; got {name}={value!r}.")
