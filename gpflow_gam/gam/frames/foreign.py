"""
Columns of Arrow and polars, told by what they can do.

Neither library is imported here: whoever passes such a column has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray

from .distinct import merged_categories


class Deferred:
    """
    A column that is converted when it is first read, not when its table is made.

    :param length: N.
    :param read: gives the values, as numpy or pandas hold them.
    :param cut: gives the rows from one to before another, where that is possible before reading.
    :param categorical: whether it states levels; None where only reading tells.
    """

    def __init__(
        self,
        length: int,
        read: Callable[[], Any],
        cut: Callable[[int, int], Deferred] | None = None,
        categorical: bool | None = None,
    ) -> None:
        self._length = length
        self.read = read
        self.cut = cut
        self.categorical = categorical

    def __len__(self) -> int:
        return self._length


def foreign_columns(data: Any) -> list[tuple[Any, Any]] | None:
    """
    The names and columns of an Arrow table or record batch, or of a polars frame.

    :return: None where ``data`` is neither.
    :raises TypeError: a polars query that has not been run.
    """
    if hasattr(data, "collect_schema") and hasattr(data, "collect"):
        raise TypeError(
            f"data must hold its rows; got a {type(data).__name__}, a query: pass data.collect()."
        )
    if all(hasattr(data, name) for name in ("column_names", "schema", "num_rows", "column")):
        names = list(data.column_names)
        return [(name, data.column(i)) for i, name in enumerate(names)]
    if hasattr(data, "get_columns") and hasattr(data, "to_dicts"):
        return [(column.name, column) for column in data.get_columns()]
    return None


def deferred(values: Any, name: object) -> Deferred | None:
    """A column of Arrow or polars, by its name; None where ``values`` is neither."""
    if hasattr(values, "to_physical") and hasattr(values, "to_numpy"):
        if type(values.dtype).__name__ in ("Categorical", "Enum"):
            return Deferred(len(values), lambda: _polars_categories(values))
        return _cuttable(values, _from_polars)
    if hasattr(values, "null_count") and hasattr(values, "to_pandas") and hasattr(values, "type"):
        if hasattr(values.type, "index_type"):  # a dictionary
            return Deferred(len(values), lambda: _arrow_categories(values, name))
        return _cuttable(values, _from_arrow)
    return None


def _cuttable(values: Any, read: Callable[[Any], Any]) -> Deferred:
    """Both libraries cut without a copy. Categories are not cut: pieces would lose levels."""

    def cut(start: int, stop: int) -> Deferred:
        return _cuttable(values.slice(start, stop - start), read)

    return Deferred(len(values), lambda: read(values), cut, categorical=False)


def _from_arrow(values: Any) -> Any:
    kind = str(values.type)
    if kind.startswith("decimal"):
        values = values.cast("float64")
    elif kind in ("string", "large_string", "string_view"):
        return _text(_to_numpy(values))
    elif kind == "bool" and values.null_count:
        return pd.Series(_to_numpy(values), dtype="boolean")
    elif kind == "null":
        return np.full(len(values), np.nan)
    return values.to_pandas(date_as_object=False)


def _to_numpy(values: Any) -> AnyNDArray:
    """Of an array or of chunks, whose signatures differ."""
    chunked = hasattr(values, "chunks")
    return np.asarray(values.to_numpy() if chunked else values.to_numpy(zero_copy_only=False))


def _text(values: AnyNDArray) -> Any:
    """Strings and None, of a type that says so where there are none but missing ones."""
    return pd.Series(values, dtype="string" if pd.isna(values).all() else object)


def _arrow_categories(values: Any, name: object) -> pd.Categorical:
    chunks = [values]
    if hasattr(values, "chunks"):
        chunks = values.chunks or [values.combine_chunks()]
        values = values.unify_dictionaries()  # which may differ from chunk to chunk
    try:
        found = pd.Categorical(values.to_pandas())
    except ValueError:  # a dictionary that holds a value twice, or a null
        decoded = _from_arrow(values.cast(values.type.value_type))
        return pd.Categorical(decoded, dtype=_arrow_dtype(chunks, name))
    if not found.ordered or len(chunks) == 1:
        return found
    return found.set_categories(_arrow_dtype(chunks, name).categories)


def _arrow_dtype(chunks: list[Any], name: object) -> pd.CategoricalDtype:
    """The categories of chunks."""
    known = [pd.Series(_from_arrow(chunk.dictionary), dtype=object).dropna() for chunk in chunks]
    ordered = bool(chunks[0].type.ordered)
    return merged_categories([pd.CategoricalDtype(list(k.unique()), ordered) for k in known], name)


def _from_polars(values: Any) -> Any:
    kind = type(values.dtype).__name__
    if kind == "Decimal":
        values = values.cast(float)
    elif kind == "String":
        return _text(values.to_numpy())
    elif kind == "Boolean" and values.null_count():
        return pd.Series(values.to_numpy(), dtype="boolean")
    elif kind == "Null":
        return np.full(len(values), np.nan)
    return values.to_numpy()


def _polars_categories(values: Any) -> pd.Categorical:
    """
    An Enum's categories in its order. A Categorical's in the order of its text, in which polars
    compares them; those that occur in other columns of the program, which polars numbers along
    with them, are none of its own.
    """
    found = values.unique().drop_nulls()
    numbers, names = found.to_physical().to_numpy(), found.to_list()
    if type(values.dtype).__name__ == "Enum":
        levels = list(values.dtype.categories)
    else:
        levels = sorted(names)
    where = {name: i for i, name in enumerate(levels)}
    place = np.full(int(numbers.max()) + 2 if len(numbers) else 1, -1)
    place[numbers] = [where[name] for name in names]  # the last place stays -1, for nulls
    physical = values.to_physical().cast(int).fill_null(-1).to_numpy()
    categories = pd.Index(levels, dtype=object)
    ordered = type(values.dtype).__name__ == "Enum"
    return pd.Categorical.from_codes(place[physical], categories=categories, ordered=ordered)
