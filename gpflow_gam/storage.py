"""Numbers of all rows in the narrowest type that holds them, read as doubles a block at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray

_TYPES = (np.uint8, np.uint16, np.int32, np.float32, np.float64)
"""From narrow to wide."""
_CHECKED = 2**17
"""Rows that are converted at a time."""


class Stored:
    """
    Rows of numbers, exact to the last bit, in 1 to 8 bytes a number.

    :param values: [N] or [N, K], of any type of numbers.
    """

    def __init__(self, values: AnyNDArray) -> None:
        self.raw = values

    @classmethod
    def of(cls, values: AnyNDArray) -> Stored:
        """
        Doubles [N] or [N, K], in the narrowest type.

        :param values: [N] or [N, K].
        """
        store = Store(values.shape)
        for start in range(0, len(values), _CHECKED):
            store.put(start, values[start : start + _CHECKED])
        return store.done()

    @property
    def shape(self) -> tuple[int, ...]:
        """[N] or [N, K]."""
        found: tuple[int, ...] = self.raw.shape
        return found

    def __len__(self) -> int:
        return len(self.raw)

    def of_shares(self, summary: AnyNDArray) -> AnyNDArray:
        """
        Summaries [k] of the shares of all who hold rows, [W, k]: here, of the one there is.

        :param summary: [k].
        """
        return np.asarray(summary)[None]

    def __getitem__(self, which: Any) -> AnyNDArray:
        """Some rows, as doubles."""
        return np.asarray(self.raw[which], dtype=np.float64)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> AnyNDArray:
        """All rows, as doubles: eight bytes a number."""
        return np.array(self.raw, dtype=np.float64 if dtype is None else dtype)


class Store:
    """
    Takes rows a block at a time.

    :param shape: [N] or [N, K].
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._raw: AnyNDArray = np.empty(shape, dtype=_TYPES[0])
        self._filled = 0

    def put(self, start: int, block: AnyNDArray) -> None:
        """
        Rows from ``start`` on; every block follows the one before.

        :param start: the number of the block's first row.
        :param block: [n] or [n, K].
        """
        with np.errstate(invalid="ignore", over="ignore"):  # the comparison finds those
            while not np.array_equal(narrow := block.astype(self._raw.dtype), block):
                self._widen()
        self._raw[start : start + len(block)] = narrow
        self._filled = start + len(block)

    def done(self) -> Stored:
        """What was taken."""
        return Stored(self._raw)

    def _widen(self) -> None:
        before, filled = self._raw, self._filled
        place = [np.dtype(t) for t in _TYPES].index(before.dtype)
        for kind in _TYPES[place + 1 :]:
            wider: AnyNDArray = np.empty(before.shape, dtype=kind)
            for start in range(0, filled, _CHECKED):
                at = slice(start, min(start + _CHECKED, filled))
                wider[at] = before[at]
                if not np.array_equal(wider[at], before[at]):
                    break  # a float has fewer digits than an integer of its size
            else:
                self._raw = wider
                return


class Inputs:
    """
    Rows of X of which some columns are held; the others, which nobody reads, are zero.

    :param number: N.
    :param width: D.
    :param columns: those that are held, [N] each, by their place in X.
    """

    def __init__(self, number: int, width: int, columns: Mapping[int, Stored]) -> None:
        self.shape = number, width
        self.columns = dict(columns)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, which: Any) -> AnyNDArray:
        """Some rows, [n, D]."""
        number = len(range(*which.indices(len(self)))) if isinstance(which, slice) else len(which)
        X = np.zeros((number, self.shape[1]))
        for place, column in self.columns.items():
            X[:, place] = column[which]
        return X


class Offsets:
    """
    The known part of the predictor at rows: a constant, and columns added to the first output.

    :param number: N.
    :param constant: [L].
    :param columns: [N] each.
    """

    def __init__(
        self, number: int, constant: Sequence[float], columns: Sequence[Stored] = ()
    ) -> None:
        self.shape = number, len(constant)
        self._constant = np.array(constant, dtype=np.float64)
        self.columns = list(columns)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, which: Any) -> AnyNDArray:
        """Some rows, [n, L]."""
        number = len(range(*which.indices(len(self)))) if isinstance(which, slice) else len(which)
        mean = np.tile(self._constant, (number, 1))
        for column in self.columns:
            mean[:, 0] += column[which]
        return mean


class ByBlock:
    """
    Rows that are computed when they are asked for.

    :param shape: of all of them.
    :param compute: gives those of a slice.
    """

    def __init__(self, shape: tuple[int, ...], compute: Callable[[slice], AnyNDArray]) -> None:
        self.shape, self._compute = shape, compute

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, at: slice) -> AnyNDArray:
        """Some rows."""
        return self._compute(at)


RowArray = Any
"""What is indexed by rows as an array is: an array, or one of the classes here."""
