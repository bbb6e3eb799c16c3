"""Codes of rows that come in blocks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from gpflow.base import AnyNDArray

from .codes import Bins, code_type
from .grids import BinSums, Grid

_DENSE = 2**22
"""Cells up to which a table says where each one's bin is."""
_BLOCK = 2**20
"""Codes that are translated at a time."""


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
