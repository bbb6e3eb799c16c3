"""Values that stand in for missing ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import pandas as pd

from ..terms import Column
from .distinct import Distinct, plain
from .encoding import is_levels
from .table import Table


@dataclasses.dataclass(frozen=True)
class Fill:
    """
    What a column's missing values are replaced by.

    :param name: the column.
    :param value: the stand-in, a value that occurs.
    :param count: how many it replaced in the data of the fit.
    """

    name: Column
    value: Any
    count: int


def learn_fills(
    table: Table, columns: Iterable[Column], levels: Collection[Column] = ()
) -> tuple[Fill, ...]:
    """
    The (lower) median of columns of numbers, the most frequent level of others.

    Both occur in the data, so that no stand-in is a level that was never seen. Columns without any
    value are left out.

    :param table: the data.
    :param columns: the columns to fill, now or in new data.
    :param levels: those of numbers that are read as levels.
    """
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
    """Of equally frequent levels the first in the categories' order, or once they are sorted."""
    counts = np.where(pd.isna(column.values), 0, column.counts())
    found = column.values[counts == counts.max()]
    return pd.Series(found).mode().iloc[0] if sort else found[0]


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
