"""Rows as indices of bins, which are distinct values or cells of a grid, and columns of X."""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray

from ...storage import ALONE, Communicator, Inputs, RowArray, Stored, blocks

KEPT_ROWS = 2**16  # largest number of rows of a sample; one of more rows has more than half as many
_SPARE = 64  # number of rows by which the sample of a part may differ from its share of all
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio: multiples are spread evenly


def kept(start: int, stop: int, halvings: int) -> AnyNDArray:
    """Numbers [n] of rows i of which ``i / golden ratio`` has a fraction below ``2^-halvings``."""
    if halvings == 0:
        return np.arange(start, stop)
    index = np.arange(start, stop, dtype=np.uint64)
    index *= _GOLDEN  # modulo 2^64
    return np.flatnonzero(index < np.uint64(1 << (64 - halvings))) + start


@dataclasses.dataclass(frozen=True)
class RowSample:
    """An even sample of rows; samples of parts, in any order, merge into the sample of all."""

    indices: AnyNDArray  # row numbers over all parts, [n], ascending
    values: AnyNDArray  # [n, D]
    halvings: int = 0

    @classmethod
    def of(cls, values: AnyNDArray, start: int = 0, halvings: int = 0) -> RowSample:
        """The sample of consecutive rows, the first of which has the number ``start``."""
        indices = kept(start, start + len(values), halvings)
        return cls(indices, values[indices - start], halvings)._within()

    def merged(self, other: RowSample) -> RowSample:
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
        """The rows that stay in the sample of all ``number`` rows."""
        halvings = 0
        while number / 2**halvings > KEPT_ROWS + _SPARE:
            halvings += 1
        return self._halved(halvings)

    def _halved(self, halvings: int) -> RowSample:
        if halvings <= self.halvings:
            return self
        stays = self.indices.astype(np.uint64) * _GOLDEN < np.uint64(1 << (64 - halvings))
        return RowSample(self.indices[stays], self.values[stays], halvings)

    def _within(self) -> RowSample:
        sample = self
        while len(sample.indices) > KEPT_ROWS:
            sample = sample._halved(sample.halvings + 1)
        return sample


MAX_DISTINCT = 1024  # largest number of values that have a bin each, however many rows there are

Distinct = AnyNDArray | None  # ascending values of a column; None: more than MAX_DISTINCT


@dataclasses.dataclass(frozen=True)
class Summary:
    """Ranges, distinct values and a sample of D columns; summaries of parts merge."""

    number: int  # of rows, N
    least: AnyNDArray  # [D]
    greatest: AnyNDArray  # [D]
    distinct: tuple[Distinct, ...]  # one a column
    sample: RowSample  # of whole rows, [n, D]

    def merged(self, other: Summary) -> Summary:
        return Summary(
            self.number + other.number,
            np.minimum(self.least, other.least),
            np.maximum(self.greatest, other.greatest),
            tuple(_union(a, b) for a, b in zip(self.distinct, other.distinct)),
            self.sample.merged(other.sample),
        )


def summarise(X: AnyNDArray, start: int = 0, before: Summary | None = None) -> Summary:
    """The summary of rows [n, D], which is to be merged with ``before``."""
    distinct = tuple(
        None if before is not None and before.distinct[i] is None else _distinct(column)
        for i, column in enumerate(X.T)
    )
    sample = RowSample.of(X, start, 0 if before is None else before.sample.halvings)
    return Summary(len(X), X.min(axis=0), X.max(axis=0), distinct, sample)


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


NUM_BINS = 256  # number of bins of a column with many distinct values
FEW_ROWS = 8192  # number of rows up to which finer bins cost a pass next to nothing
FINE_BINS = 1024  # number of bins of a single column with so few rows
MAX_CELLS = 4096  # number of joint cells of several columns
_STEPS = 64  # number of even steps a bin, most of which are within one bin
_MOST = 16  # number of ends in one step beyond which a binary search is as fast


@dataclasses.dataclass(frozen=True)
class ColumnGrid:
    """Bins of one column: its distinct values, or intervals."""

    places: AnyNDArray  # distinct values [G], or ends of intervals [G - 1]; ascending
    exact: bool  # whether bins are distinct values
    origin: float  # a value that is subtracted in sums, for their digits

    @classmethod
    def of(cls, summary: Summary, column: int, number: int = NUM_BINS) -> ColumnGrid:
        """Bins of 1024 distinct values at most, or some ``number`` of quantiles and steps."""
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
        """Bins of a column of codes 0, 1, ..., one each."""
        return cls(np.arange(number, dtype=np.float64), True, 0.0)

    @property
    def number(self) -> int:
        """G, the largest possible number of bins."""
        return len(self.places) + (not self.exact)

    def cells(self, values: AnyNDArray) -> AnyNDArray:
        """The bin of each value, [n]; ValueError if a value has none."""
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
        """``np.searchsorted(places, values, side="right")``, from a table if ends are even."""
        if self._table is None:
            return np.searchsorted(self.places, values, side="right")
        below, most, low, scale = self._table
        at = values - low
        at *= scale
        np.clip(at, 0.0, len(below) - 1.0, out=at)
        cells: AnyNDArray = below.take(at.astype(np.intp))
        rest = np.flatnonzero(cells < 0)
        some, among = ~cells[rest], values[rest]
        for _ in range(most):
            some += self._ends[some] <= among
        cells[rest] = some
        return cells

    @functools.cached_property
    def _ends(self) -> AnyNDArray:
        return np.append(self.places, np.inf)

    @functools.cached_property
    def _table(self) -> tuple[AnyNDArray, int, float, float] | None:
        """
        Places below even steps, or ``~`` that number if there are some within; the most of them,
        the first place, 1 / width; None if places are uneven.
        """
        if len(self.places) < 16:
            return None
        low, high = float(self.places[0]), float(self.places[-1])
        number = _STEPS * len(self.places)
        scale = number / (high - low)
        if not np.isfinite(scale):
            return None
        # a step to either side, because the step of a value is rounded
        left = low + (np.arange(number + 1) - 1.0) / scale
        below = np.searchsorted(self.places, left, side="right")
        within = np.searchsorted(self.places, left + 3.0 / scale, side="right") - below
        within[0] += below[0]  # with all values before
        below[0] = 0
        most = int(within.max())
        return (np.where(within, ~below, below), most, low, scale) if most <= _MOST else None

    @functools.cached_property
    def _counts(self) -> bool:
        return np.array_equal(self.places, np.arange(len(self.places)))


@dataclasses.dataclass(frozen=True)
class Grid:
    """Joint bins (cells) of any number of columns."""

    margins: tuple[ColumnGrid, ...]  # one a column; without any, all rows are in one bin

    @classmethod
    def of(cls, summary: Summary, columns: Sequence[int], number: int = NUM_BINS) -> Grid:
        """Joint bins of some columns of a summary."""
        number = margin_bins(len(columns), number, summary.number)
        return cls(tuple(ColumnGrid.of(summary, c, number) for c in columns))

    @property
    def number(self) -> int:
        """The largest possible number of cells."""
        return math.prod(m.number for m in self.margins)

    @property
    def exact(self) -> bool:
        """True if all rows of a cell have the same values."""
        return all(m.exact for m in self.margins)

    @property
    def origin(self) -> AnyNDArray:
        return np.array([m.origin for m in self.margins])

    def cells(self, values: AnyNDArray) -> AnyNDArray:
        """The cell of each row of values [n, d]."""
        if not self.margins:
            return np.zeros(len(values), dtype=np.intp)
        cells = self.margins[0].cells(values[:, 0])
        for margin, column in zip(self.margins[1:], values.T[1:]):
            cells = cells * margin.number + margin.cells(column)
        return cells

    def points(self, sums: BinSums) -> AnyNDArray:
        """The point of each cell, [G, d]: the values of its rows, or their means."""
        points: AnyNDArray = sums.sums / sums.counts[:, None] + sums.origin
        rest = sums.cells
        for i, margin in reversed(list(enumerate(self.margins))):
            if margin.exact:
                points[:, i] = margin.places[rest % margin.number]
            else:
                # to a billionth of the range: equal then in whatever order rows are added up,
                # while nodes magnify a rounding of their places a hundred millionfold
                step = np.ldexp(1.0, int(np.frexp(np.ptp(margin.places))[1]) - 32)
                points[:, i] = step * np.rint(points[:, i] / step)
            rest = rest // margin.number
        return points


def margin_bins(number_of_columns: int, number: int, rows: int) -> int:
    """Number of bins of each of several columns; ``number`` is that of a single long column."""
    if number_of_columns <= 1:
        return max(number, FINE_BINS) if rows <= FEW_ROWS else number
    return max(int((MAX_CELLS * number / NUM_BINS) ** (1.0 / number_of_columns)), 4)


@dataclasses.dataclass(frozen=True)
class BinSums:
    """Counts and sums of the rows in each cell of a grid."""

    cells: AnyNDArray  # occupied cells, [G], ascending
    counts: AnyNDArray  # [G]
    sums: AnyNDArray  # of values less ``origin``, [G, d]
    origin: AnyNDArray  # [d]

    def merged(self, other: BinSums) -> BinSums:
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


_BLOCK = 2**20  # number of rows that are counted or translated at a time


@dataclasses.dataclass(frozen=True)
class Bins:
    """The bin of each row, by the values of one or several columns."""

    codes: AnyNDArray  # [N]
    points: AnyNDArray  # a point for each bin, [G, d]: distinct values, or means of rows
    exact: bool  # whether points are the rows' values
    counts: AnyNDArray | None = None  # of the rows here in each bin, [G], where they are known

    @property
    def number(self) -> int:
        return len(self.points)

    def mass(self, weights: RowArray | None = None) -> AnyNDArray:
        """The number of rows in each bin, or the sum of their weights, [G]."""
        if weights is None and self.counts is not None:
            return self.counts.astype(np.float64)
        mass = np.zeros(self.number)
        for at in blocks(len(self.codes), _BLOCK):  # bincount copies what it counts
            part = None if weights is None else weights[at]
            mass += np.bincount(self.codes[at], part, minlength=self.number)
        return mass


def code_type(number: int) -> np.dtype[np.generic]:
    """The smallest type for codes of so many bins."""
    kind = np.uint8 if number <= 2**8 else np.uint16 if number <= 2**16 else np.int32
    return np.dtype(kind)


class Coder:
    """Codes of N rows in a grid (with ``keep``), and sums of their bins, from blocks of rows."""

    def __init__(self, grid: Grid, number: int, keep: bool = True) -> None:
        self.grid = grid
        single = len(grid.margins) <= 1
        self._cells = np.arange(grid.number) if single else np.zeros(0, dtype=np.int64)
        self._counts = np.zeros(len(self._cells), dtype=np.int64)
        self._sums = np.zeros((len(self._cells), len(grid.margins)))
        self._index, self._single = pd.Index(self._cells), single
        self._codes: AnyNDArray = np.empty(number * keep, dtype=code_type(len(self._cells)))
        self._keep = keep
        self._filled = 0

    def add(self, values: AnyNDArray) -> AnyNDArray:
        """Take the next rows [n, d]; their cells, [n]."""
        cells = self.grid.cells(values)
        place = self._places(cells)
        number = len(self._cells)
        self._counts += np.bincount(place, minlength=number)
        for i, (column, origin) in enumerate(zip(values.T, self.grid.origin)):
            self._sums[:, i] += np.bincount(place, column - origin, minlength=number)
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
        order = np.argsort(self._cells)
        order = order[self._counts[order] > 0]
        return BinSums(self._cells[order], self._counts[order], self._sums[order], self.grid.origin)

    def bins(self, sums: BinSums | None = None) -> Bins:
        """Bins of these rows among those of ``sums``, which may be of more rows."""
        sums = self.sums() if sums is None else sums
        number = len(sums.cells)
        place = np.searchsorted(sums.cells, self._cells)
        codes = self._codes
        if not np.array_equal(place, np.arange(len(place))) or number < len(self._cells):
            kind = code_type(number)
            new = np.minimum(place, max(number - 1, 0)).astype(kind)  # empty cells have no rows
            translated = codes if kind == codes.dtype else np.empty(len(codes), dtype=kind)
            for at in blocks(len(codes), _BLOCK):
                translated[at] = new[codes[at]]
            codes = translated
        counts = np.zeros(number, dtype=np.int64)
        counts[place[self._counts > 0]] = self._counts[self._counts > 0]
        return Bins(codes, self.grid.points(sums), self.grid.exact, counts)

    def _places(self, cells: AnyNDArray) -> AnyNDArray:
        """Places of cells among the known ones; new cells come last."""
        if self._single:
            return cells
        place: AnyNDArray = self._index.get_indexer(cells)
        if (new := np.unique(cells[place < 0])).size:
            self._cells = np.concatenate([self._cells, new])
            self._counts = np.pad(self._counts, (0, len(new)))
            self._sums = np.pad(self._sums, ((0, len(new)), (0, 0)))
            self._index = pd.Index(self._cells)
            place = self._index.get_indexer(cells)
        return place


EXACT_ROWS = 4096  # number of rows up to which every distinct value has a bin


def bin_columns(
    values: AnyNDArray, number: int | None = NUM_BINS, levels: Collection[int] = ()
) -> Bins:
    """Joint bins of values [N, d]: distinct rows up to 4096 (or for None), or cells of a grid."""
    N, d = values.shape
    if d == 0:
        return Bins(np.zeros(N, dtype=np.uint8), np.zeros((1, 0)), True)
    if N <= EXACT_ROWS or number is None or (d == 1 and levels):
        if d == 1:
            points, codes = np.unique(values[:, 0], return_inverse=True)
        else:
            points, codes = np.unique(values, axis=0, return_inverse=True)
        codes = np.ascontiguousarray(codes.ravel(), dtype=code_type(len(points)))
        return Bins(codes, points.reshape(-1, d), True)
    number, summary = margin_bins(d, number, N), summarise(values)
    margins = [
        ColumnGrid.levels(int(summary.greatest[i]) + 1)
        if i in levels
        else ColumnGrid.of(summary, i, number)
        for i in range(d)
    ]
    coder = Coder(Grid(tuple(margins)), N)
    coder.add(values)
    return coder.bins()


Level = tuple[int, int]  # a column of codes, and a code in it: the rows at that level


class Columns(abc.ABC):
    """Columns of X by their place in it, and the weights of rows."""

    X: RowArray  # [N, D]
    weights: RowArray | None  # [N]; None if all are one
    communicator: Communicator = ALONE  # with processes that hold other rows

    @abc.abstractmethod
    def bins(self, columns: tuple[int, ...]) -> Bins:
        """The joint bins of some columns, in their order."""

    @abc.abstractmethod
    def values(self, column: int) -> RowArray:
        """The values of a column, [N]."""

    @abc.abstractmethod
    def value_range(self, column: int, level: Level | None = None) -> tuple[float, float]:
        """Least and greatest value of a column in rows of positive weight (at a level)."""

    @property
    def number(self) -> int:
        return len(self.X)

    @property
    def width(self) -> int:
        return int(self.X.shape[1])

    def mass(self, columns: tuple[int, ...], level: Level | None = None) -> AnyNDArray:
        """The weight of all rows (at a level) in each joint bin, [G]."""
        bins = self.bins(columns)
        if level is None:
            mass = bins.mass(self.weights)
        else:
            mass = np.zeros(bins.number)
            for at, has in self.rows_at_level(level):
                weight = has if self.weights is None else np.where(has, self.weights[at], 0.0)
                mass += np.bincount(bins.codes[at], weight, minlength=bins.number)
        return self.communicator.total([mass])[0]

    def rows_at_level(self, level: Level) -> Iterator[tuple[slice, AnyNDArray]]:
        """Blocks of rows, and which of them are at a level, [n] of bool."""
        column, code = level
        bins = self.bins((column,))
        there = bins.points[:, 0] == code
        for at in blocks(self.number, _BLOCK):
            yield at, there[bins.codes[at]]

    def size(self, column: int) -> float:
        """The (weighted) root mean square of a column over all rows."""
        values, squares, total = self.values(column), 0.0, 0.0
        for at in blocks(self.number, _BLOCK):
            v = values[at]
            w = np.ones(len(v)) if self.weights is None else self.weights[at]
            squares += float(np.sum(w * v**2))
            total += float(np.sum(w))
        squares, total = (float(x) for x in self.communicator.total([squares, total]))
        return float(np.sqrt(squares / total))


class HeldColumns(Columns):
    """Columns of X [N, D] in memory with bins that are computed once; a value a bin for None."""

    def __init__(
        self,
        X: AnyNDArray,
        weights: AnyNDArray | None = None,
        number: int | None = NUM_BINS,
        levels: Collection[int] = (),
    ) -> None:
        self.X, self.weights = X, weights
        self._number, self._levels = number, frozenset(levels)
        self._bins: dict[tuple[int, ...], Bins] = {}

    def bins(self, columns: tuple[int, ...]) -> Bins:
        if columns not in self._bins:
            levels = [i for i, c in enumerate(columns) if c in self._levels]
            values = self.X[:, list(columns)]
            self._bins[columns] = bin_columns(values, self._number, levels)
        return self._bins[columns]

    def values(self, column: int) -> AnyNDArray:
        return np.ascontiguousarray(self.X[:, column])

    def value_range(self, column: int, level: Level | None = None) -> tuple[float, float]:
        values = self.X[:, column]
        counts = np.ones(len(values), dtype=bool) if self.weights is None else self.weights > 0.0
        if level is not None:
            counts &= self.X[:, level[0]] == level[1]
        values = values[counts]
        return float(values.min()), float(values.max())


class CodedColumns(Columns):
    """Columns of which memory holds codes, perhaps of a share; ``ranges`` are of all rows."""

    X: Inputs
    weights: Stored | None

    def __init__(
        self,
        X: Inputs,
        coded: Mapping[tuple[int, ...], Bins],
        ranges: Mapping[tuple[int, int | None], tuple[AnyNDArray, AnyNDArray]],
        weights: Stored | None = None,
        communicator: Communicator = ALONE,
    ) -> None:
        self.X, self.weights, self.communicator = X, weights, communicator
        self.coded, self.ranges = dict(coded), dict(ranges)

    def bins(self, columns: tuple[int, ...]) -> Bins:
        return self.coded[columns]

    def values(self, column: int) -> Stored:
        return self.X.columns[column]

    def value_range(self, column: int, level: Level | None = None) -> tuple[float, float]:
        least, greatest = self.ranges[column, None if level is None else level[0]]
        place = 0 if level is None else level[1]
        return float(least[place]), float(greatest[place])
