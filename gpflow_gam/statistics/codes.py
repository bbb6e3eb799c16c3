"""Rows as indices of bins."""

from __future__ import annotations

import dataclasses

import numpy as np
from gpflow.base import AnyNDArray

from .stored import RowArray

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
