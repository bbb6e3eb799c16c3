"""Missing values: where they are, whether they may be there, and what stands in for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray

from ..terms import Column
from .encoding import is_levels
from .table import Distinct, Table, plain


class Holes:
    """Missing values, counted over the blocks of a table."""

    def __init__(self) -> None:
        self.num_rows = 0
        self.incomplete = 0
        """Rows that lack a value."""
        self._counts: dict[Any, int] = {}

    def add(self, table: Table, columns: Iterable[Column]) -> AnyNDArray:
        """Count a block's."""
        bad = np.zeros(table.num_rows, dtype=bool)
        for name in dict.fromkeys(columns):
            holes = table.missing(name)
            count = int(np.count_nonzero(holes))
            self._counts[name] = self._counts.get(name, 0) + count
            if count:
                bad |= holes
        self.num_rows += table.num_rows
        self.incomplete += int(np.count_nonzero(bad))
        return bad

    def merged(self, other: Holes) -> Holes:
        """The counts of both."""
        both = Holes()
        both.num_rows = self.num_rows + other.num_rows
        both.incomplete = self.incomplete + other.incomplete
        for part in (self, other):
            for name, count in part._counts.items():
                both._counts[name] = both._counts.get(name, 0) + count
        return both

    def check(self, missing: str) -> None:
        """Check that what is missing may be."""
        counts = {name: count for name, count in self._counts.items() if count}
        empty = [n for n, count in counts.items() if count == self.num_rows]
        if empty:
            raise ValueError(f"column {empty[0]!r} has no value at all; leave it out of the model.")
        if not counts:
            return
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
                + f" ({self.incomplete} of {self.num_rows} rows); fill them in, drop those rows "
                "with missing='drop', or let missing='impute' fill in what terms read."
            )
        if self.incomplete == self.num_rows:
            raise ValueError(
                "no row is complete: missing='drop' would leave nothing; drop the columns with "
                f"most missing values ({max(counts, key=lambda n: counts[n])!r}) instead."
            )


def complete_rows(table: Table, columns: Iterable[Column], missing: str) -> tuple[Table, int]:
    """The rows without missing values in ``columns``."""
    holes = Holes()
    bad = holes.add(table, columns)
    holes.check(missing)
    return (table.rows(~bad) if holes.incomplete else table), holes.incomplete


@dataclasses.dataclass(frozen=True)
class Fill:
    """Replacement of a column's missing values."""

    name: Column
    value: Any
    count: int


def learn_fills(
    table: Table, columns: Iterable[Column], levels: Collection[Column] = ()
) -> tuple[Fill, ...]:
    """The (lower) median of numbers, the most frequent level of others: values that occur."""
    fills = []
    for name in dict.fromkeys(table.name(c) for c in columns):
        holes = table.missing(name)
        if holes.all():
            continue
        if name in levels or is_levels(table, name):
            value = _most_frequent(table.distinct(name), table.levels(name) is None)
        else:
            values = pd.Series(table.values(name)[~holes])
            value = values.sort_values().iloc[(len(values) - 1) // 2]
        fills.append(Fill(name, plain(value), int(holes.sum())))
    return tuple(fills)


def _most_frequent(column: Distinct, sort: bool) -> Any:
    """The most frequent level; of several the first in the categories' order, or sorted."""
    counts = np.where(pd.isna(column.values), 0, column.counts())
    result = column.values[counts == counts.max()]
    return pd.Series(result).mode().iloc[0] if sort else result[0]


def filled(table: Table, fills: Iterable[Fill]) -> Table:
    """
    The table without missing values in the columns that have a fill, where it has them.

    :param table: the data.
    :param fills: a stand-in a column.
    """
    columns = table.columns()
    for fill in fills:
        if fill.name in table and (holes := table.missing(fill.name)).any():
            values = pd.Series(table.raw(fill.name)).reset_index(drop=True)
            columns[fill.name] = values.mask(np.asarray(holes), fill.value)
    return Table(columns)
