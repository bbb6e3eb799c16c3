"""Columns of data as planners of components and sums over rows see them."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from gpflow.base import AnyNDArray

from ...storage import Inputs, RowArray, Stored
from .bins import Bins, ColumnBins

Level = tuple[int, int]
"""A column of codes and one of them: the rows that have it."""
_BLOCK = 2**20
"""Rows at a time."""


class Columns(abc.ABC):
    """
    Columns of X, and how often each row counts.

    :param X: [N, D]; of some classes only the columns that sums over rows read.
    """

    X: RowArray
    weights: RowArray | None
    """[N]; None where each row counts once."""

    @abc.abstractmethod
    def bins(self, columns: tuple[int, ...]) -> Bins:
        """
        The joint bins of some columns, in their order.

        :param columns: their places in X.
        """

    @abc.abstractmethod
    def values(self, column: int) -> RowArray:
        """
        A column as it is, [N].

        :param column: its place in X.
        """

    @abc.abstractmethod
    def reach(self, column: int, level: Level | None = None) -> tuple[float, float]:
        """
        The least and the greatest value of a column over the rows that count.

        :param column: its place in X.
        :param level: only rows that have it, of which there are some.
        """

    @property
    def number(self) -> int:
        """N."""
        return len(self.X)

    @property
    def width(self) -> int:
        """D."""
        return int(self.X.shape[1])

    def mass(self, columns: tuple[int, ...], level: Level | None = None) -> AnyNDArray:
        """
        The weight of rows in each joint bin, [G].

        :param columns: their places in X.
        :param level: only rows that have it.
        """
        bins = self.bins(columns)
        if level is None:
            return bins.mass(self.weights)
        mass = np.zeros(bins.number)
        for at, has in self.having(level):
            own = has if self.weights is None else np.where(has, self.weights[at], 0.0)
            mass += np.bincount(bins.codes[at], own, minlength=bins.number)
        return mass

    def having(self, level: Level) -> Iterator[tuple[slice, AnyNDArray]]:
        """
        Blocks of rows, and which of them have a level, [n] truth values.

        :param level: a column's place in X, and a code in it.
        """
        column, code = level
        bins = self.bins((column,))
        own = bins.points[:, 0] == code
        for start in range(0, self.number, _BLOCK):
            at = slice(start, min(start + _BLOCK, self.number))
            yield at, own[bins.codes[at]]

    def total(self, parts: Sequence[AnyNDArray]) -> list[AnyNDArray]:
        """
        Sums of arrays over all who hold rows: here, those that are given.

        :param parts: arrays, each of any shape.
        """
        return list(parts)

    def size(self, column: int) -> float:
        """
        The root mean square of a column over rows as they count.

        :param column: its place in X.
        """
        values, squares, total = self.values(column), 0.0, 0.0
        for start in range(0, self.number, _BLOCK):
            at = slice(start, min(start + _BLOCK, self.number))
            v = values[at]
            w = np.ones(len(v)) if self.weights is None else self.weights[at]
            squares += float(np.sum(w * v**2))
            total += float(np.sum(w))
        squares, total = (float(x) for x in self.total([np.array(squares), np.array(total)]))
        return float(np.sqrt(squares / total))


class HeldColumns(Columns):
    """
    Of a matrix in memory.

    :param bins: of X [N, D].
    :param weights: [N].
    """

    def __init__(self, bins: ColumnBins, weights: AnyNDArray | None = None) -> None:
        self.X, self.weights, self._bins = bins.X, weights, bins

    def bins(self, columns: tuple[int, ...]) -> Bins:
        return self._bins(columns)

    def values(self, column: int) -> AnyNDArray:
        return np.ascontiguousarray(self.X[:, column])

    def reach(self, column: int, level: Level | None = None) -> tuple[float, float]:
        values = self.X[:, column]
        counts = np.ones(len(values), dtype=bool) if self.weights is None else self.weights > 0.0
        if level is not None:
            counts &= self.X[:, level[0]] == level[1]
        values = values[counts]
        return float(values.min()), float(values.max())


class CodedColumns(Columns):
    """
    Of rows of which memory holds codes alone.

    :param X: the columns that are read as they are.
    :param coded: joint bins, by their columns.
    :param reaches: least and greatest values over the rows that count, [K] each, by column and
        column of codes; of a column by itself, K = 1, with None.
    :param weights: [N].
    """

    def __init__(
        self,
        X: Inputs,
        coded: Mapping[tuple[int, ...], Bins],
        reaches: Mapping[tuple[int, int | None], tuple[AnyNDArray, AnyNDArray]],
        weights: Stored | None = None,
    ) -> None:
        self.X, self.weights = X, weights
        self.coded, self.reaches = dict(coded), dict(reaches)

    X: Inputs
    weights: Stored | None

    def bins(self, columns: tuple[int, ...]) -> Bins:
        return self.coded[columns]

    def values(self, column: int) -> Stored:
        return self.X.columns[column]

    def reach(self, column: int, level: Level | None = None) -> tuple[float, float]:
        least, greatest = self.reaches[column, None if level is None else level[0]]
        place = 0 if level is None else level[1]
        return float(least[place]), float(greatest[place])
