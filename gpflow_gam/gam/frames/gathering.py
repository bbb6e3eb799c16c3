"""Blocks of a table put together, in whole or as the levels that occur in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray

from ..terms import Column
from .distinct import merged_categories
from .table import Table


def concatenated(tables: Sequence[Table]) -> Table:
    """
    Tables one after the other, as one.

    :param tables: at least one; of the same columns and, of categories, the same levels.
    """
    if len(tables) == 1:
        return tables[0]
    columns: dict[Any, Any] = {}
    for name in tables[0].names:
        parts = [t.raw(name) for t in tables]
        if tables[0].levels(name) is not None:
            codes = np.concatenate([np.asarray(pd.Categorical(p).codes) for p in parts])
            columns[name] = pd.Categorical.from_codes(codes.tolist(), dtype=parts[0].dtype)
        elif any(isinstance(getattr(p, "dtype", None), pd.StringDtype) for p in parts):
            columns[name] = pd.concat([pd.Series(p, dtype=object) for p in parts])
        else:
            columns[name] = np.concatenate([t.values(name) for t in tables])
    return Table(columns)


def recut(blocks: Iterator[Table], rows: int) -> Iterator[Table]:
    """
    Blocks of exactly so many rows, but for the last.

    :param blocks: of at most so many rows each.
    :param rows: in each of them.
    """
    waiting: list[Table] = []
    number = 0
    for block in blocks:
        start = 0
        while block.num_rows - start >= rows - number:
            waiting.append(block.part(start, start + rows - number))
            start += rows - number
            yield concatenated(waiting)
            waiting, number = [], 0
        if start < block.num_rows:
            waiting.append(block.part(start, block.num_rows))
            number += block.num_rows - start
    if waiting:
        yield concatenated(waiting)


class Occurring:
    """
    The distinct values of a column, gathered over blocks.

    :param name: the column.
    """

    def __init__(self, name: Column) -> None:
        self.name = name
        self._seen: set[Any] = set()
        self._values: list[AnyNDArray] = []
        self._dtype: pd.CategoricalDtype | None = None

    def add(self, table: Table) -> None:
        """
        Those of a block, none of them missing.

        :param table: the block.
        """
        if table.levels(self.name) is not None:
            self._dtype = table.raw(self.name).dtype
        self._take(table.distinct(self.name).occurring())

    def merged(self, other: Occurring) -> Occurring:
        """
        Those of other blocks of the same table, too.

        :param other: of the same column.
        """
        both = Occurring(self.name)
        dtypes = [p._dtype for p in (self, other) if p._dtype is not None]
        both._dtype = merged_categories(dtypes, self.name) if dtypes else None
        for part in (self, other):
            for values in part._values:
                both._take(values)
        return both

    def _take(self, values: AnyNDArray) -> None:
        new = np.array([v not in self._seen for v in values.tolist()], dtype=bool)
        if new.any():
            self._values.append(values[new])
            self._seen.update(values[new].tolist())

    def __len__(self) -> int:
        return len(self._seen)

    def column(self, length: int) -> Any:
        """
        A column that holds each of them at least once.

        :param length: of the column, at least their number.
        """
        values = np.concatenate(self._values)
        values = np.concatenate([values, np.repeat(values[:1], length - len(values))])
        return values if self._dtype is None else pd.Categorical(values, dtype=self._dtype)
