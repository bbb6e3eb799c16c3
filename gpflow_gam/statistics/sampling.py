"""An even sample of rows, the same however they come: at once, in blocks, or in shares."""

from __future__ import annotations

import dataclasses

import numpy as np
from gpflow.base import AnyNDArray

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
