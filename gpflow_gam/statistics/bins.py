"""Rows of a few columns as indices of bins: their distinct values, or cells that stand for them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray

EXACT_ROWS = 4096
"""Rows up to which every distinct value has a bin of its own."""
MAX_DISTINCT = 1024
"""Distinct values up to which each has a bin of its own, however many rows there are."""
NUM_BINS = 256
"""Bins of a column that has more distinct values."""
MAX_CELLS = 4096
"""Joint cells of several columns."""
_SAMPLE = 20_000
"""Values that settle where bins end."""


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

    def mass(self, weights: AnyNDArray | None = None) -> AnyNDArray:
        """
        The rows' weight in each bin, [G].

        :param weights: [N]; ones by default.
        """
        counts: AnyNDArray = np.bincount(self.codes, weights, minlength=self.number)
        return counts.astype(np.float64)


class ColumnBins:
    """
    The bins of any columns of X, found once.

    :param X: [N, D].
    :param number: of bins of a column that has many values; None for a bin a value.
    """

    def __init__(self, X: AnyNDArray, number: int | None = NUM_BINS) -> None:
        self.X = X
        self.number = number
        self._found: dict[tuple[int, ...], Bins] = {}

    def __call__(self, columns: tuple[int, ...]) -> Bins:
        """The joint bins of some columns, in their order."""
        if columns not in self._found:
            self._found[columns] = bin_columns(self.X[:, list(columns)], self.number)
        return self._found[columns]


def bin_column(values: AnyNDArray, number: int | None = NUM_BINS) -> Bins:
    """
    The bins of one column.

    Up to 4096 rows, or 1024 distinct values, each value is a bin. Beyond, bins end at quantiles of
    the values and at even steps of their range, so that none is wide where there are many rows or
    where there are few.

    :param values: [N], finite.
    :param number: of bins, about, where there are too many distinct values; None for one each.
    """
    if len(values) <= EXACT_ROWS or number is None:
        return _distinct(values)
    stride = -(-len(values) // _SAMPLE)
    sample = values[::stride]
    if len(np.unique(sample[:EXACT_ROWS])) <= MAX_DISTINCT:
        codes, distinct = pd.factorize(values)
        if len(distinct) <= MAX_DISTINCT:
            order = np.argsort(distinct)
            rank = np.empty(len(order), dtype=np.int32)
            rank[order] = np.arange(len(order), dtype=np.int32)
            return Bins(compact(rank[codes], len(order)), np.asarray(distinct)[order, None], True)
    half = number // 2
    edges = np.unique(
        np.concatenate(
            [
                np.quantile(sample, np.linspace(0.0, 1.0, half + 1)[1:-1]),
                np.linspace(values.min(), values.max(), half + 1)[1:-1],
            ]
        )
    )
    return _means(np.searchsorted(edges, values, side="right"), values[:, None], len(edges) + 1)


def bin_columns(values: AnyNDArray, number: int | None = NUM_BINS) -> Bins:
    """
    The joint bins of several columns: their distinct rows, or the occupied cells of a grid.

    :param values: [N, d], finite.
    :param number: as :func:`bin_column`, for d = 1.
    """
    N, d = values.shape
    if d == 0:
        return Bins(np.zeros(N, dtype=np.uint8), np.zeros((1, 0)), True)
    if d == 1:
        return bin_column(values[:, 0], number)
    if N <= EXACT_ROWS or number is None:
        points, codes = np.unique(values, axis=0, return_inverse=True)
        return Bins(compact(codes.ravel(), len(points)), points, True)
    # finer bins of a column, finer cells: their number is of the same order
    side = int((MAX_CELLS * number / NUM_BINS) ** (1.0 / d))
    margins = [bin_column(values[:, i], number=max(side, 4)) for i in range(d)]
    cells = np.zeros(N, dtype=np.int64)
    for margin in margins:
        cells = cells * margin.number + margin.codes
    codes, occupied = pd.factorize(cells)
    found = _means(codes, values, len(occupied))
    return dataclasses.replace(found, exact=all(m.exact for m in margins))


def compact(codes: AnyNDArray, number: int) -> AnyNDArray:
    """Codes in the smallest type that holds them."""
    kind = np.uint8 if number <= 2**8 else np.uint16 if number <= 2**16 else np.int32
    return np.ascontiguousarray(codes, dtype=kind)


def _distinct(values: AnyNDArray) -> Bins:
    points, codes = np.unique(values, return_inverse=True)
    return Bins(compact(codes.ravel(), len(points)), points[:, None], True)


def _means(codes: AnyNDArray, values: AnyNDArray, number: int) -> Bins:
    counts = np.bincount(codes, minlength=number)
    occupied = counts > 0
    if not occupied.all():
        place = np.cumsum(occupied) - 1
        codes, counts = place[codes], counts[occupied]
    # around one value, so that a column far from zero keeps its digits
    origin = values[0]
    means = [np.bincount(codes, column - at) / counts + at for column, at in zip(values.T, origin)]
    return Bins(compact(codes, len(counts)), np.stack(means, axis=1), False)
