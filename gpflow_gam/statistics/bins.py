"""Rows of a few columns as indices of bins: their distinct values, or cells that stand for them."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from gpflow.base import AnyNDArray

from .codes import Bins, compact
from .coding import Coder
from .grids import NUM_BINS, ColumnGrid, Grid, margin_bins
from .summaries import summarise

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
