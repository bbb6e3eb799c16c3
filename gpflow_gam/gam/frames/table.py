"""Columns by name from whatever holds them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray

from ..terms import Column


class Table:
    """
    Named columns of equal length.

    :param data: a DataFrame, a mapping of name to values, or a matrix [N, D], whose columns are
        named 0, 1, ...
    :raises TypeError: anything else.
    :raises ValueError: columns of unequal length.
    """

    def __init__(self, data: Any) -> None:
        if isinstance(data, Table):
            self._columns: dict[Any, Any] = data._columns
        elif isinstance(data, Mapping):
            self._columns = {name: _one_dimensional(name, v) for name, v in data.items()}
        elif hasattr(data, "columns") and hasattr(data, "__getitem__"):
            names = list(data.columns)
            twice = {n for n in names if names.count(n) > 1}
            if twice:
                raise ValueError(f"data has the column(s) {sorted(map(str, twice))} twice.")
            self._columns = {name: data[name] for name in names}
        else:
            matrix = np.asarray(data)
            if matrix.ndim != 2:
                raise TypeError(
                    "data must be a DataFrame, a dict of columns or a matrix [N, D]; got "
                    f"{type(data).__name__} of shape {matrix.shape}."
                )
            self._columns = {i: matrix[:, i] for i in range(matrix.shape[1])}
        lengths = {name: len(values) for name, values in self._columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"columns must be of one length; got {lengths}.")
        self.num_rows = next(iter(lengths.values()), 0)

    @property
    def names(self) -> list[Any]:
        """The columns' names."""
        return list(self._columns)

    def __contains__(self, name: Column) -> bool:
        return name in self._columns

    def raw(self, name: Column) -> Any:
        """
        The values of a column as they came.

        :raises ValueError: there is no such column; names the nearest.
        """
        return self._columns[self.name(name)]

    def name(self, name: Column) -> Any:
        """
        What a column is called here, which an index into named columns is not.

        :raises ValueError: there is no such column; names the nearest.
        """
        if name in self._columns:
            return name
        if isinstance(name, int) and all(isinstance(n, str) for n in self._columns):
            if name < len(self._columns):
                return self.names[name]
            raise ValueError(f"column {name} is asked for; data has {len(self._columns)} columns.")
        near = difflib.get_close_matches(
            str(name), [str(n) for n in self._columns], n=1, cutoff=0.5
        )
        hint = f"did you mean {near[0]!r}?" if near else f"it has {_listed(self.names)}."
        raise ValueError(f"data has no column {name!r}; {hint}")

    def values(self, name: Column) -> AnyNDArray:
        """The values of a column as an array [N], of objects where they are categories."""
        raw = self.raw(name)
        if isinstance(getattr(raw, "dtype", None), pd.CategoricalDtype):
            return np.asarray(raw, dtype=object)
        return np.asarray(raw)

    def levels(self, name: Column) -> tuple[Any, ...] | None:
        """The levels of a categorical column in its own order; None where it states none."""
        dtype = getattr(self.raw(name), "dtype", None)
        return tuple(dtype.categories) if isinstance(dtype, pd.CategoricalDtype) else None

    def missing(self, name: Column) -> AnyNDArray:
        """Which values of a column are missing, [N]."""
        return np.asarray(pd.isna(self.values(name)), dtype=bool)

    def rows(self, keep: AnyNDArray) -> Table:
        """The rows where ``keep``, truth values [N], holds."""
        return Table(
            {n: pd.Series(v)[keep].reset_index(drop=True) for n, v in self._columns.items()}
        )


def _one_dimensional(name: Any, values: Any) -> Any:
    if isinstance(values, pd.Series):
        return values
    array = values if isinstance(values, pd.Categorical) else np.asarray(values)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise ValueError(f"column {name!r} must be one-dimensional; got shape {array.shape}.")
    return array


def _listed(names: Iterable[Any]) -> str:
    names = [repr(n) for n in names]
    shown = ", ".join(names[:12])
    return shown if len(names) <= 12 else f"{shown}, ... ({len(names)} in all)"


def complete_rows(table: Table, columns: Iterable[Column], missing: str) -> tuple[Table, int]:
    """
    The rows without missing values in ``columns``.

    :param missing: ``"error"``, ``"drop"`` or ``"impute"``, which must have filled terms' columns.
    :return: the table, and how many rows were dropped.
    :raises ValueError: there are missing values and ``missing="error"``; a column has no value at
        all. Names the columns and counts.
    """
    counts = {}
    bad = np.zeros(table.num_rows, dtype=bool)
    for name in dict.fromkeys(columns):
        holes = table.missing(name)
        if holes.any():
            counts[name] = int(holes.sum())
            bad |= holes
    empty = [n for n, count in counts.items() if count == table.num_rows]
    if empty:
        raise ValueError(f"column {empty[0]!r} has no value at all; leave it out of the model.")
    if not counts:
        return table, 0
    if missing == "impute":
        raise ValueError(
            "missing='impute' fills in what terms read, not the response, offsets or weights: "
            + ", ".join(f"{count} missing in {n!r}" for n, count in counts.items())
            + "; leave those rows out."
        )
    if missing != "drop":
        raise ValueError(
            "data has missing values: "
            + ", ".join(f"{count} in {n!r}" for n, count in counts.items())
            + f" ({int(bad.sum())} of {table.num_rows} rows); fill them in, drop those rows with "
            "missing='drop', or let missing='impute' fill in what terms read."
        )
    if bad.all():
        raise ValueError(
            "no row is complete: missing='drop' would leave nothing; drop the columns with most "
            f"missing values ({max(counts, key=lambda n: counts[n])!r}) instead."
        )
    return table.rows(~bad), int(bad.sum())
