"""The distinct values of a column, without a Python loop over its rows."""

from __future__ import annotations

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
