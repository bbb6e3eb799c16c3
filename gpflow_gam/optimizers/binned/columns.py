"""Columns of X, for planning components and for sums over rows."""

from __future__ import annotations

import abc
from collections.abc import Collection, Iterator, Mapping

import numpy as np
from gpflow.base import AnyNDArray

from ...communicator import ALONE, Communicator
from ...storage import Inputs, RowArray, Stored
from .bins import NUM_BINS, Bins, bin_columns

Level = tuple[int, int]
"""A column of codes, and a code in it: the rows at that level."""
_BLOCK = 2**20
"""Number of rows at a time."""


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
        """The number of rows, N."""
        return len(self.X)

    @property
    def width(self) -> int:
        """The number of columns, D."""
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
        for at in self._blocks():
            yield at, there[bins.codes[at]]

    def size(self, column: int) -> float:
        """The (weighted) root mean square of a column over all rows."""
        values, squares, total = self.values(column), 0.0, 0.0
        for at in self._blocks():
            v = values[at]
            w = np.ones(len(v)) if self.weights is None else self.weights[at]
            squares += float(np.sum(w * v**2))
            total += float(np.sum(w))
        squares, total = (float(x) for x in self.communicator.total([squares, total]))
        return float(np.sqrt(squares / total))

    def _blocks(self) -> Iterator[slice]:
        for start in range(0, self.number, _BLOCK):
            yield slice(start, min(start + _BLOCK, self.number))


class HeldColumns(Columns):
    """
    Columns of a matrix X [N, D] in memory, whose bins are computed once.

    :param weights: [N].
    :param number: of bins of a column with many values; None for a bin a value.
    :param levels: columns that are codes of levels, with a bin each.
    """

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
    """
    Columns of which memory holds codes: of all rows, or of this process's share of them.

    :param X: columns that are read as they are.
    :param coded: joint bins, by their columns.
    :param ranges: least and greatest values over all rows, [K] each, by column and column of K
        levels; of a column by itself, K = 1, with None.
    :param weights: [N].
    """

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
