"""How values become bins, once it is settled; what is in bins adds up over parts of the rows."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
from gpflow.base import AnyNDArray

from .summaries import Summary

NUM_BINS = 256
"""Bins of a column that has more distinct values than have bins of their own."""
FEW_ROWS = 8192
"""Up to which finer bins cost a pass next to nothing."""
FINE_BINS = 1024
"""Bins of a column by itself of that many rows."""
MAX_CELLS = 4096
"""Joint cells of several columns."""
_STEPS = 4
"""Comparisons a value beyond which a search is faster."""


@dataclasses.dataclass(frozen=True)
class ColumnGrid:
    """
    The bins of a column: its distinct values, or intervals.

    :param places: the distinct values [G], or where intervals end, [G - 1]; ascending.
    :param exact: which of the two.
    :param origin: a value of the column, around which sums keep their digits.
    """

    places: AnyNDArray
    exact: bool
    origin: float

    @classmethod
    def of(cls, summary: Summary, column: int, number: int = NUM_BINS) -> ColumnGrid:
        """
        The bins of a column that was summed up.

        Up to 1024 distinct values each is a bin. Beyond, bins end at quantiles of the values and
        at even steps of their range, so that none is wide where there are many rows or few.

        :param summary: of all rows.
        :param column: its place in the summary.
        :param number: of bins, about, where there are too many distinct values.
        """
        distinct, least = summary.distinct[column], float(summary.least[column])
        if distinct is not None:
            return cls(distinct, True, least)
        half = number // 2
        steps = np.linspace(0.0, 1.0, half + 1)[1:-1]
        span = float(summary.greatest[column]) - least
        quantiles = np.quantile(summary.sample.values[:, column], steps)
        return cls(np.unique(np.concatenate([quantiles, least + span * steps])), False, least)

    @classmethod
    def levels(cls, number: int) -> ColumnGrid:
        """
        The bins of a column of codes 0, 1, ...: one each.

        :param number: of codes.
        """
        return cls(np.arange(number, dtype=np.float64), True, 0.0)

    @property
    def number(self) -> int:
        """G, the bins that there may be."""
        return len(self.places) + (not self.exact)

    def cells(self, values: AnyNDArray) -> AnyNDArray:
        """
        Which bin each value is in, [n].

        :param values: [n].
        :raises ValueError: a value that was not there when the bins were settled.
        """
        if not self.exact:
            return self._intervals(values)
        if self._counts:
            cells = values.astype(np.intp)
            bad = (cells < 0) | (cells >= len(self.places)) | (cells != values)
        else:
            cells = np.minimum(np.searchsorted(self.places, values), len(self.places) - 1)
            bad = self.places[cells] != values
        if bad.any():
            raise ValueError(
                f"there is a value, {float(values[bad][0]):g}, that was not there when the data "
                "were first read; data must not change between passes."
            )
        return cells

    def _intervals(self, values: AnyNDArray) -> AnyNDArray:
        """``np.searchsorted(places, values, side="right")``, from a table where ends are even."""
        if self._table is None:
            return np.searchsorted(self.places, values, side="right")
        below, steps, low, scale = self._table
        at = (values - low) * scale
        np.clip(at, 0.0, len(below) - 1.0, out=at)
        cells = below[at.astype(np.int32)]
        for _ in range(steps):
            cells += self._ends[cells] <= values
        return cells

    @functools.cached_property
    def _ends(self) -> AnyNDArray:
        return np.append(self.places, np.inf)

    @functools.cached_property
    def _table(self) -> tuple[AnyNDArray, int, float, float] | None:
        """
        For even steps of the range how many places are below each, how many more there may be
        within, where the first step begins and the inverse of their width; None where places are
        too uneven for it to be faster than a search.
        """
        if len(self.places) < 16:
            return None
        low, high = float(self.places[0]), float(self.places[-1])
        number = 16 * len(self.places)
        scale = number / (high - low)
        if not np.isfinite(scale):
            return None
        # a step to either side: the step that a value falls in is rounded
        left = low + (np.arange(number + 1) - 1.0) / scale
        below = np.searchsorted(self.places, left, side="right")
        within = np.searchsorted(self.places, left + 3.0 / scale, side="right") - below
        below[0] = 0
        steps = int(max(within.max(), within[0] + below[0]))
        return (below.astype(np.intp), steps, low, scale) if steps <= _STEPS else None

    @functools.cached_property
    def _counts(self) -> bool:
        return np.array_equal(self.places, np.arange(len(self.places)))


@dataclasses.dataclass(frozen=True)
class Grid:
    """
    The bins of one or several columns.

    :param margins: one a column; none of one bin for all rows.
    """

    margins: tuple[ColumnGrid, ...]

    @classmethod
    def of(cls, summary: Summary, columns: Sequence[int], number: int = NUM_BINS) -> Grid:
        """
        The joint bins of columns that were summed up.

        :param summary: of all rows.
        :param columns: their places in the summary.
        :param number: as :meth:`ColumnGrid.of`; several columns share :data:`MAX_CELLS`.
        """
        own = margin_bins(len(columns), number, summary.number)
        return cls(tuple(ColumnGrid.of(summary, c, own) for c in columns))

    @property
    def number(self) -> int:
        """The cells that there may be."""
        total = 1
        for margin in self.margins:
            total *= margin.number
        return total

    @property
    def exact(self) -> bool:
        """Whether cells hold rows of one value."""
        return all(m.exact for m in self.margins)

    @property
    def origin(self) -> AnyNDArray:
        """[d]."""
        return np.array([m.origin for m in self.margins])

    def cells(self, values: AnyNDArray) -> AnyNDArray:
        """
        The cell of each row, [n].

        :param values: [n, d].
        :raises ValueError: as :meth:`ColumnGrid.cells`.
        """
        if not self.margins:
            return np.zeros(len(values), dtype=np.intp)
        cells = self.margins[0].cells(values[:, 0])
        for margin, column in zip(self.margins[1:], values.T[1:]):
            cells = cells * margin.number + margin.cells(column)
        return cells

    def points(self, sums: BinSums) -> AnyNDArray:
        """
        What stands for each cell, [G, d]: the rows' own values, or means of what is in it.

        :param sums: of rows in this grid.
        """
        points: AnyNDArray = sums.sums / sums.counts[:, None] + sums.origin
        rest = sums.cells
        for i, margin in reversed(list(enumerate(self.margins))):
            if margin.exact:
                points[:, i] = margin.places[rest % margin.number]
            rest = rest // margin.number
        return points


def margin_bins(number_of_columns: int, number: int, rows: int) -> int:
    """
    The bins of each of several columns.

    :param number_of_columns: that are binned jointly.
    :param number: that a column by itself is to have of many rows: finer bins of a column, finer
        cells.
    :param rows: N.
    """
    if number_of_columns <= 1:
        return max(number, FINE_BINS) if rows <= FEW_ROWS else number
    return max(int((MAX_CELLS * number / NUM_BINS) ** (1.0 / number_of_columns)), 4)


@dataclasses.dataclass(frozen=True)
class BinSums:
    """
    What is in bins.

    :param cells: the cells that rows are in, [G], ascending.
    :param counts: of rows, [G].
    :param sums: of values less ``origin``, [G, d].
    :param origin: [d].
    """

    cells: AnyNDArray
    counts: AnyNDArray
    sums: AnyNDArray
    origin: AnyNDArray

    @classmethod
    def of(cls, grid: Grid, values: AnyNDArray, cells: AnyNDArray | None = None) -> BinSums:
        """
        Of some rows.

        :param grid: that the cells are of.
        :param values: [n, d].
        :param cells: of the rows, where they are known, [n].
        """
        cells = grid.cells(values) if cells is None else cells
        return cls.grouped(*np.unique(cells, return_inverse=True), values, grid.origin)

    @classmethod
    def grouped(
        cls, cells: AnyNDArray, place: AnyNDArray, values: AnyNDArray, origin: AnyNDArray
    ) -> BinSums:
        """
        Of rows whose place among some cells is known.

        :param cells: [G].
        :param place: [n].
        :param values: [n, d].
        :param origin: of the grid, [d].
        """
        number = len(cells)
        sums = np.zeros((number, values.shape[1]))
        for i, column in enumerate(values.T):
            sums[:, i] = np.bincount(place, column - origin[i], minlength=number)
        return cls(cells, np.bincount(place, minlength=number), sums, origin)

    def merged(self, other: BinSums) -> BinSums:
        """
        Of the rows of both, in the same grid.

        :param other: in the same grid.
        """
        if np.array_equal(self.cells, other.cells):
            counts, sums = self.counts + other.counts, self.sums + other.sums
            return BinSums(self.cells, counts, sums, self.origin)
        cells = np.union1d(self.cells, other.cells)
        counts = np.zeros(len(cells), dtype=np.int64)
        sums = np.zeros((len(cells), self.sums.shape[1]))
        for part in (self, other):
            at = np.searchsorted(cells, part.cells)
            counts[at] += part.counts
            sums[at] += part.sums
        return BinSums(cells, counts, sums, self.origin)
