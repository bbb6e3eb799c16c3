"""Missing values: where they are, and whether they may be there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray

from ..terms import Column
from .table import Table


class Holes:
    """Missing values, counted over the blocks of a table."""

    def __init__(self) -> None:
        self.num_rows = 0
        self.incomplete = 0
        """Rows that lack a value."""
        self._counts: dict[Any, int] = {}

    def add(self, table: Table, columns: Iterable[Column]) -> AnyNDArray:
        """
        Count a block's.

        :param table: the block.
        :param columns: in which nothing may be missing.
        :return: which of its rows lack a value of ``columns``, [n].
        """
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
        """
        The counts of both.

        :param other: of other blocks of the same table.
        """
        both = Holes()
        both.num_rows = self.num_rows + other.num_rows
        both.incomplete = self.incomplete + other.incomplete
        for part in (self, other):
            for name, count in part._counts.items():
                both._counts[name] = both._counts.get(name, 0) + count
        return both

    def check(self, missing: str) -> None:
        """
        Check that what is missing may be.

        :param missing: ``"error"``, ``"drop"`` or ``"impute"``, which must have filled terms'
            columns.
        :raises ValueError: there are missing values and ``missing="error"``; a column has no value
            at all. Names the columns and counts.
        """
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
    """
    The rows without missing values in ``columns``.

    :param table: the data.
    :param columns: that are read.
    :param missing: as :meth:`Holes.check`.
    :return: the table, and how many rows were dropped.
    :raises ValueError: as :meth:`Holes.check`.
    """
    holes = Holes()
    bad = holes.add(table, columns)
    holes.check(missing)
    return (table.rows(~bad) if holes.incomplete else table), holes.incomplete
