"""The distinct values of a column, without a Python loop over its rows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray


class Distinct(NamedTuple):
    """A column as positions among few values: ``values[codes]``."""

    codes: AnyNDArray
    """Integers [N]; -1 is the last value, as in any index."""

    values: AnyNDArray
    """[K], not all of which need occur."""

    def occurring(self) -> AnyNDArray:
        """
        The values that occur, in order of their first rows; all missing ones are one.

        :return: [k], k <= K.
        """
        return np.asarray(self.values[pd.unique(self.codes)])

    def counts(self) -> AnyNDArray:
        """How often each value occurs, [K]."""
        size = len(self.values)
        return np.bincount(self.codes.astype(np.intp) % max(size, 1), minlength=size)


def distinct(values: AnyNDArray) -> Distinct:
    """
    What a column holds, as Python compares it: of 1, 1.0 and True in one column the first stands
    for all.

    :param values: [N] of any type.
    :raises TypeError: values that cannot be hashed, as lists; it names their type.
    """
    if values.dtype.kind in "mM":  # pandas would convert the unit, and so what values turn into
        codes, whole = pd.factorize(values.view(np.int64))
        return Distinct(codes, whole.view(values.dtype))
    if values.dtype == np.float16:  # pandas has no table of these; the values stay as they are
        values = values.astype(np.float64)
    if values.dtype.kind not in "biuf":
        values = values.astype(object)
    try:
        codes, found = pd.factorize(values, use_na_sentinel=False)
    except TypeError as error:
        kinds = {type(v).__name__ for v in values.tolist() if getattr(v, "__hash__", None) is None}
        raise TypeError(", ".join(sorted(kinds)) or str(error)) from None
    return Distinct(codes, np.asarray(found, dtype=values.dtype))


def named_distinct(values: AnyNDArray, name: object) -> Distinct:
    """
    :func:`distinct`, of a column that errors name.

    :raises ValueError: values that cannot be hashed.
    """
    try:
        return distinct(values)
    except TypeError as error:
        raise ValueError(
            f"column {name!r} holds values that are no levels ({error}); make them text or numbers."
        ) from None


def distinct_categories(column: pd.Categorical) -> Distinct:
    """The categories and, last, the missing value, which is the code -1 of pandas."""
    values = np.empty(len(column.categories) + 1, dtype=object)
    values[:-1] = np.asarray(column.categories, dtype=object)
    values[-1] = np.nan
    return Distinct(np.asarray(column.codes), values)


def merged_categories(parts: Sequence[pd.CategoricalDtype], name: object) -> pd.CategoricalDtype:
    """
    The categories of all parts of a column. Where all parts are ordered, their common order;
    otherwise the order in which parts state them.

    :param parts: of the column, at least one.
    :param name: of the column, for messages.
    :raises ValueError: orders that contradict each other, or together leave an order open.
    """
    stated = list(dict.fromkeys(tuple(part.categories) for part in parts))
    found = list(dict.fromkeys(level for own in stated for level in own))
    ordered = all(part.ordered for part in parts)
    if ordered and len(stated) > 1:
        found = _common_order(stated, name)
    return pd.CategoricalDtype(pd.Index(found, dtype=object).infer_objects(), ordered)


def _common_order(stated: list[tuple[Any, ...]], name: object) -> list[Any]:
    """
    :raises ValueError: there is none, or more than one.
    """
    lower: dict[Any, set[Any]] = {level: set() for own in stated for level in own}
    for own in stated:
        for one, next_one in itertools.pairwise(own):
            lower[next_one].add(one)
    found: list[Any] = []
    while lower:
        lowest = [level for level, below in lower.items() if not below.difference(found)]
        if not lowest:
            raise ValueError(
                f"column {name!r} is ordered, and its parts state contradictory orders, of "
                f"{', '.join(map(repr, lower))}; give all parts the same categories."
            )
        if len(lowest) > 1:
            raise ValueError(
                f"column {name!r} is ordered, and its parts state different categories, which do "
                f"not say which of {lowest[0]!r} and {lowest[1]!r} is lower; give all parts all "
                "categories, in order."
            )
        found += lowest
        del lower[lowest[0]]
    return found


def distinct_text(column: Any) -> Distinct:
    """Of a series or an array of pandas' type for text, without an object a row."""
    codes, found = pd.factorize(column, use_na_sentinel=False)
    return Distinct(codes, np.asarray(found, dtype=object))


def plain(value: Any) -> Any:
    """
    A level as Python writes it, whatever array it comes from: whole floats equal integers, and
    times of any unit are pandas'.

    :param value: a level.
    """
    if isinstance(value, np.datetime64):
        return pd.Timestamp(value)
    if isinstance(value, np.timedelta64):
        return pd.Timedelta(value)
    value = value.item() if isinstance(value, np.generic) else value
    return int(value) if isinstance(value, float) and value.is_integer() else value
