"""Rows as indices of bins, which are distinct values or cells of a grid."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Iterator, Sequence

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray

from ...storage import RowArray

KEPT_ROWS = 2**16
"""Rows that a sample holds at most; there are more than half as many where there are more rows."""
_SPARE = 64
"""Rows by which a sample may differ from its share of all."""
_STEP = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio: multiples of it are spread most evenly, whatever period data have."""


def kept(start: int, stop: int, halvings: int) -> AnyNDArray:
    """
    Which rows a sample keeps that has been halved so many times, [n], ascending.

    Row i stays where ``i / golden ratio`` has a fractional part below ``2^-halvings``: what a
    finer sample drops every coarser one drops, and gaps are about ``2^halvings`` everywhere.

    :param start: the number of the first row, from 0.
    :param stop: that after the last one.
    :param halvings: k.
    """
    if halvings == 0:
        return np.arange(start, stop)
    index = np.arange(start, stop, dtype=np.uint64)
    index *= _STEP  # modulo 2^64
    found: AnyNDArray = np.flatnonzero(index < np.uint64(1 << (64 - halvings))) + start
    return found


@dataclasses.dataclass(frozen=True)
class RowSample:
    """
    An even sample of rows.

    Samples of any parts of the rows merge into that of all of them, in any order.

    :param indices: the rows' numbers in the whole, [n], ascending.
    :param values: the rows, [n, D].
    :param halvings: how many times it was halved to stay within :data:`KEPT_ROWS`.
    """

    indices: AnyNDArray
    values: AnyNDArray
    halvings: int = 0

    @classmethod
    def of(cls, values: AnyNDArray, start: int = 0, halvings: int = 0) -> RowSample:
        """
        Of rows that come one after the other.

        :param values: [n, D].
        :param start: the first row's number in the whole.
        :param halvings: at least so many, where the sample that it goes to has them already.
        """
        indices = kept(start, start + len(values), halvings)
        return cls(indices, values[indices - start], halvings)._within()

    def merged(self, other: RowSample) -> RowSample:
        """
        The sample of the rows of both, which have different numbers.

        :param other: of other rows.
        """
        halvings = max(self.halvings, other.halvings)
        parts = [s._halved(halvings) for s in (self, other) if len(s.indices)]
        if not parts:
            return RowSample(self.indices, self.values, halvings)
        indices = np.concatenate([p.indices for p in parts])
        values = np.concatenate([p.values for p in parts])
        if len(parts) > 1 and parts[0].indices[-1] > parts[1].indices[0]:
            order = np.argsort(indices)
            indices, values = indices[order], values[order]
        return RowSample(indices, values, halvings)._within()

    def of_total(self, number: int) -> RowSample:
        """
        Without rows that the sample of all does not keep.

        :param number: of all rows.
        """
        halvings = 0
        # of every part of the rows about its share is kept, to within a few rows
        while number / 2**halvings > KEPT_ROWS + _SPARE:
            halvings += 1
        return self._halved(halvings)

    def _halved(self, halvings: int) -> RowSample:
        if halvings <= self.halvings:
            return self
        stays = self.indices.astype(np.uint64) * _STEP < np.uint64(1 << (64 - halvings))
        return RowSample(self.indices[stays], self.values[stays], halvings)

    def _within(self) -> RowSample:
        sample = self
        while len(sample.indices) > KEPT_ROWS:
            sample = sample._halved(sample.halvings + 1)
        return sample


MAX_DISTINCT = 1024
"""Distinct values up to which each has a bin of its own, however many rows there are."""

Distinct = AnyNDArray | None
"""The distinct values of a column, ascending; None where there are more than 1024."""


@dataclasses.dataclass(frozen=True)
class Summary:
    """
    Rows of D columns of numbers, summed up.

    :param number: N.
    :param least: [D].
    :param greatest: [D].
    :param distinct: one a column.
    :param sample: of whole rows, [n, D].
    """

    number: int
    least: AnyNDArray
    greatest: AnyNDArray
    distinct: tuple[Distinct, ...]
    sample: RowSample

    def merged(self, other: Summary) -> Summary:
        """
        The summary of the rows of both, of the same columns and different row numbers.

        :param other: of other rows.
        """
        return Summary(
            self.number + other.number,
            np.minimum(self.least, other.least),
            np.maximum(self.greatest, other.greatest),
            tuple(_union(a, b) for a, b in zip(self.distinct, other.distinct)),
            self.sample.merged(other.sample),
        )


def summarise(X: AnyNDArray, start: int = 0, before: Summary | None = None) -> Summary:
    """
    The summary of some rows.

    :param X: [n, D], finite, n at least 1.
    :param start: the first row's number in the whole.
    :param before: what the summary will be merged with: what that has settled is not looked at.
    """
    found: list[Distinct] = []
    for i, column in enumerate(X.T):
        settled = before is not None and before.distinct[i] is None
        found.append(None if settled else _distinct(column))
    halvings = 0 if before is None else before.sample.halvings
    return Summary(
        len(X),
        X.min(axis=0),
        X.max(axis=0),
        tuple(found),
        RowSample.of(X, start, halvings),
    )


def _distinct(column: AnyNDArray) -> Distinct:
    if len(pd.unique(column[:4096])) > MAX_DISTINCT:
        return None
    values = pd.unique(column)
    return np.sort(values) if len(values) <= MAX_DISTINCT else None


def _union(a: Distinct, b: Distinct) -> Distinct:
    if a is None or b is None:
        return None
    if len(a) == len(b) and np.array_equal(a, b):
        return a
    both = np.union1d(a, b)
    return both if len(both) <= MAX_DISTINCT else None


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


_BLOCK = 2**20
"""Rows that are counted at a time."""


@dataclasses.dataclass(frozen=True)
class Bins:
    """
    Rows of one or several columns, each in a bin.

    :param codes: the bin of each row, [N].
    :param points: what stands for each bin, [G, d]: the distinct values, or means of what is in it.
    :param exact: whether the points are the rows' own values.
    """

    codes: AnyNDArray
    points: AnyNDArray
    exact: bool

    @property
    def number(self) -> int:
        """G."""
        return len(self.points)

    def mass(self, weights: RowArray | None = None) -> AnyNDArray:
        """
        The rows' weight in each bin, [G].

        :param weights: [N]; ones by default.
        """
        mass = np.zeros(self.number)
        for start in range(0, len(self.codes), _BLOCK):  # bincount copies what it counts
            at = slice(start, min(start + _BLOCK, len(self.codes)))
            own = None if weights is None else weights[at]
            mass += np.bincount(self.codes[at], own, minlength=self.number)
        return mass


def compact(codes: AnyNDArray, number: int) -> AnyNDArray:
    """Codes in the smallest type that holds them."""
    return np.ascontiguousarray(codes, dtype=code_type(number))


def code_type(number: int) -> np.dtype[np.generic]:
    """The smallest type that holds codes of so many bins."""
    kind = np.uint8 if number <= 2**8 else np.uint16 if number <= 2**16 else np.int32
    return np.dtype(kind)


_DENSE = 2**22
"""Cells up to which a table says where each one's bin is."""


class Coder:
    """
    Codes of N rows and what is in their bins, from blocks.

    Bins are numbered as their cells come; :meth:`bins` puts them in order, and leaves out those
    that no row is in. The sums may be merged with those of other rows before.

    :param grid: says which cell a row is in.
    :param number: N.
    :param keep: whether codes are wanted; without, sums are all there is.
    """

    def __init__(self, grid: Grid, number: int, keep: bool = True) -> None:
        self.grid = grid
        single = len(grid.margins) <= 1
        self._cells = np.arange(grid.number) if single else np.zeros(0, dtype=np.int64)
        self._counts = np.zeros(len(self._cells), dtype=np.int64)
        self._sums = np.zeros((len(self._cells), len(grid.margins)))
        dense = not single and grid.number <= _DENSE
        self._table = np.full(grid.number, -1, dtype=np.int32) if dense else None
        self._fixed = single
        self._codes: AnyNDArray = np.empty(number * keep, dtype=code_type(len(self._cells)))
        self._keep = keep
        self._filled = 0

    def add(self, values: AnyNDArray) -> AnyNDArray:
        """
        The rows that come next.

        :param values: [n, d].
        :return: their cells, [n].
        :raises ValueError: as :meth:`ColumnGrid.cells`.
        """
        cells = self.grid.cells(values)
        place = self._places(cells)
        part = BinSums.grouped(self._cells, place, values, self.grid.origin)
        self._counts += part.counts
        self._sums += part.sums
        start, self._filled = self._filled, self._filled + len(values)
        if not self._keep:
            return cells
        if len(self._cells) > np.iinfo(self._codes.dtype).max + 1:
            wider = np.empty(len(self._codes), dtype=code_type(len(self._cells)))
            wider[:start] = self._codes[:start]
            self._codes = wider
        self._codes[start : self._filled] = place
        return cells

    def sums(self) -> BinSums:
        """What is in the bins of these rows."""
        order = np.argsort(self._cells)
        order = order[self._counts[order] > 0]
        return BinSums(self._cells[order], self._counts[order], self._sums[order], self.grid.origin)

    def bins(self, sums: BinSums | None = None) -> Bins:
        """
        The rows' bins.

        :param sums: of these rows and others; those of these rows alone by default.
        """
        sums = self.sums() if sums is None else sums
        number = len(sums.cells)
        place = np.searchsorted(sums.cells, self._cells)
        codes = self._codes
        if not np.array_equal(place, np.arange(len(place))) or number < len(self._cells):
            kind = code_type(number)
            own = np.minimum(place, max(number - 1, 0)).astype(kind)  # empty cells have no rows
            narrower = codes if kind == codes.dtype else np.empty(len(codes), dtype=kind)
            for at in _slices(len(codes)):
                narrower[at] = own[codes[at]]
            codes = narrower
        return Bins(codes, self.grid.points(sums), self.grid.exact)

    def _places(self, cells: AnyNDArray) -> AnyNDArray:
        """Where cells stand among those known; new ones come last."""
        if self._fixed:
            return cells
        if self._table is not None:
            place: AnyNDArray = self._table[cells]
            if (new := np.unique(cells[place < 0])).size:
                self._table[new] = np.arange(len(self._cells), len(self._cells) + len(new))
                self._grow(new)
                place = self._table[cells]
            return place
        distinct, inverse = np.unique(cells, return_inverse=True)
        order = np.argsort(self._cells)
        known = self._cells[order]
        at = np.searchsorted(known, distinct)
        there = np.zeros(len(distinct), dtype=bool)
        inside = at < len(known)
        there[inside] = known[at[inside]] == distinct[inside]
        own = np.empty(len(distinct), dtype=np.int64)
        own[there] = order[at[there]]
        own[~there] = np.arange(len(known), len(known) + np.count_nonzero(~there))
        self._grow(distinct[~there])
        return own[inverse.ravel()]

    def _grow(self, new: AnyNDArray) -> None:
        self._cells = np.concatenate([self._cells, new])
        self._counts = np.concatenate([self._counts, np.zeros(len(new), dtype=np.int64)])
        self._sums = np.concatenate([self._sums, np.zeros((len(new), self._sums.shape[1]))])


def _slices(number: int) -> Iterator[slice]:
    for start in range(0, number, _BLOCK):
        yield slice(start, min(start + _BLOCK, number))


EXACT_ROWS = 4096
"""Rows up to which every distinct value has a bin of its own."""


class ColumnBins:
    """
    The bins of any columns of X, found once.

    :param X: [N, D].
    :param number: of bins of a column that has many values; None for a bin a value.
    :param levels: columns of codes of levels, of which each has a bin, however many there are.
    """

    def __init__(
        self, X: AnyNDArray, number: int | None = NUM_BINS, levels: Collection[int] = ()
    ) -> None:
        self.X = X
        self.number = number
        self.levels = frozenset(levels)
        self._found: dict[tuple[int, ...], Bins] = {}

    def __call__(self, columns: tuple[int, ...]) -> Bins:
        """The joint bins of some columns, in their order."""
        if columns not in self._found:
            levels = [i for i, c in enumerate(columns) if c in self.levels]
            self._found[columns] = bin_columns(self.X[:, list(columns)], self.number, levels)
        return self._found[columns]


def bin_column(values: AnyNDArray, number: int | None = NUM_BINS) -> Bins:
    """
    The bins of one column.

    Up to 4096 rows, or 1024 distinct values, each value is a bin. Beyond, bins end at quantiles of
    the values and at even steps of their range, so that none is wide where there are many rows or
    where there are few.

    :param values: [N], finite.
    :param number: of bins, about, where there are too many distinct values (no fewer than 1024 of
        them up to 8192 rows); None for one each.
    """
    if len(values) <= EXACT_ROWS or number is None:
        points, codes = np.unique(values, return_inverse=True)
        return Bins(compact(codes.ravel(), len(points)), points[:, None], True)
    number = margin_bins(1, number, len(values))
    return _binned(Grid((ColumnGrid.of(summarise(values[:, None]), 0, number),)), values[:, None])


def bin_columns(
    values: AnyNDArray, number: int | None = NUM_BINS, levels: Collection[int] = ()
) -> Bins:
    """
    The joint bins of several columns: their distinct rows, or the occupied cells of a grid.

    :param values: [N, d], finite.
    :param number: as :func:`bin_column`, for d = 1.
    :param levels: which of the columns are codes of levels.
    """
    N, d = values.shape
    if d == 0:
        return Bins(np.zeros(N, dtype=np.uint8), np.zeros((1, 0)), True)
    if d == 1:
        return bin_column(values[:, 0], None if levels else number)
    if N <= EXACT_ROWS or number is None:
        points, codes = np.unique(values, axis=0, return_inverse=True)
        return Bins(compact(codes.ravel(), len(points)), points, True)
    own, summary = margin_bins(d, number, N), summarise(values)
    margins = [
        ColumnGrid.levels(int(summary.greatest[i]) + 1)
        if i in levels
        else ColumnGrid.of(summary, i, own)
        for i in range(d)
    ]
    return _binned(Grid(tuple(margins)), values)


def _binned(grid: Grid, values: AnyNDArray) -> Bins:
    coder = Coder(grid, len(values))
    coder.add(values)
    return coder.bins()
