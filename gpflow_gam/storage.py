"""Numbers of all rows in the narrowest type that holds them, read as doubles a block at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray

from .communicator import ALONE, Communicator

_TYPES = (np.uint8, np.uint16, np.int32, np.float32, np.float64)
"""Types from narrow to wide."""
_BLOCK = 2**17
"""Number of rows that are converted at a time."""


class Stored:
    """Numbers [N] or [N, K], exact, in 1 to 8 bytes each; maybe of this process's share of rows."""

    def __init__(self, values: AnyNDArray, communicator: Communicator = ALONE) -> None:
        self.raw, self.communicator = values, communicator

    @classmethod
    def of(cls, values: AnyNDArray) -> Stored:
        """Doubles in the narrowest type."""
        store = Store(values.shape)
        for start in range(0, len(values), _BLOCK):
            store.put(start, values[start : start + _BLOCK])
        return store.done()

    @property
    def shape(self) -> tuple[int, ...]:
        """[N] or [N, K]."""
        shape: tuple[int, ...] = self.raw.shape
        return shape

    def __len__(self) -> int:
        return len(self.raw)

    def gathered(self, summary: AnyNDArray) -> AnyNDArray:
        """Summaries [k] of the rows of every process, [W, k]."""
        return np.stack(self.communicator.gathered(np.asarray(summary)))

    def __getitem__(self, which: Any) -> AnyNDArray:
        return np.asarray(self.raw[which], dtype=np.float64)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> AnyNDArray:
        return np.array(self.raw, dtype=np.float64 if dtype is None else dtype)


class Store:
    """Makes :class:`Stored` numbers of a given shape from blocks of rows."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._raw: AnyNDArray = np.empty(shape, dtype=_TYPES[0])
        self._filled = 0

    def put(self, start: int, block: AnyNDArray) -> None:
        """Take rows from ``start`` on, where the block before has ended."""
        with np.errstate(invalid="ignore", over="ignore"):  # the comparison finds them
            while not np.array_equal(narrow := block.astype(self._raw.dtype), block):
                self._widen()
        self._raw[start : start + len(block)] = narrow
        self._filled = start + len(block)

    def done(self) -> Stored:
        return Stored(self._raw)

    def _widen(self) -> None:
        before, filled = self._raw, self._filled
        place = [np.dtype(t) for t in _TYPES].index(before.dtype)
        for kind in _TYPES[place + 1 :]:
            wider: AnyNDArray = np.empty(before.shape, dtype=kind)
            for start in range(0, filled, _BLOCK):
                at = slice(start, min(start + _BLOCK, filled))
                wider[at] = before[at]
                if not np.array_equal(wider[at], before[at]):
                    break  # a float has fewer digits than an integer of its size
            else:
                self._raw = wider
                return


class Inputs:
    """Rows of X [N, D] of which some columns are stored; the others are zero, and not used."""

    def __init__(self, number: int, width: int, columns: Mapping[int, Stored]) -> None:
        self.shape = number, width
        self.columns = dict(columns)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, which: Any) -> AnyNDArray:
        number = len(range(*which.indices(len(self)))) if isinstance(which, slice) else len(which)
        X = np.zeros((number, self.shape[1]))
        for place, column in self.columns.items():
            X[:, place] = column[which]
        return X


class Offsets:
    """Offsets [N, L]: a constant [L], and columns [N] that are added to the first predictor."""

    def __init__(
        self, number: int, constant: Sequence[float], columns: Sequence[Stored] = ()
    ) -> None:
        self.shape = number, len(constant)
        self._constant = np.array(constant, dtype=np.float64)
        self.columns = list(columns)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, which: Any) -> AnyNDArray:
        number = len(range(*which.indices(len(self)))) if isinstance(which, slice) else len(which)
        mean = np.tile(self._constant, (number, 1))
        for column in self.columns:
            mean[:, 0] += column[which]
        return mean


class ByBlock:
    """Rows that are computed by slices when they are needed."""

    def __init__(self, shape: tuple[int, ...], compute: Callable[[slice], AnyNDArray]) -> None:
        self.shape, self._compute = shape, compute

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, at: slice) -> AnyNDArray:
        return self._compute(at)


RowArray = Any
"""An array of rows, or one of the classes above, which are indexed alike."""
