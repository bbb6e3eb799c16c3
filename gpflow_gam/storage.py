"""Numbers of all rows, in narrow types, and sums over processes that each hold some of the rows."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from gpflow.base import AnyNDArray

T = TypeVar("T")
Reduce = Callable[[AnyNDArray], AnyNDArray]
"""The sum of a vector [n] of doubles or int64 over all processes, the same bits on each."""


class Communicator:
    """This process among all that hold rows; they take the same steps, and wait at every call."""

    def __init__(self, reduce: Reduce | None = None, place: int = 0, number: int = 1) -> None:
        self._reduce, self.place, self.number = reduce, place, number
        self.reductions = 0
        """Number of vectors that were added up."""
        self.bytes = 0
        """Size of these vectors."""
        self._closed = ""

    @property
    def alone(self) -> bool:
        """True if this process holds all rows."""
        return self._reduce is None

    @property
    def open(self) -> bool:
        """True if sums over all rows can be had."""
        return not self._closed

    @property
    def first(self) -> bool:
        """True if the values of this process count for all."""
        return self.place == 0

    def close(self, why: str) -> None:
        """Make later calls raise RuntimeError, which would wait for ever."""
        self._closed = why

    def total(self, arrays: Sequence[Any]) -> list[AnyNDArray]:
        """Sums over processes of arrays, whose shapes are the same everywhere, in one reduction."""
        if self.alone:
            return [np.asarray(a) for a in arrays]
        parts = [np.asarray(a, dtype=np.float64) for a in arrays]
        flat = np.concatenate([np.ravel(p) for p in parts])
        sums = self._summed(flat)
        ends = np.cumsum([p.size for p in parts])[:-1].tolist()
        return [s.reshape(p.shape) for s, p in zip(np.split(sums, ends), parts)]

    def agreed(self, values: Any) -> AnyNDArray:
        """The first process's values, an array of the same shape everywhere."""
        if self.alone:
            return np.asarray(values)
        array = np.asarray(values, dtype=np.float64)
        if array.size == 0:
            return array
        sent = np.ravel(array) if self.first else np.zeros(array.size)
        return self._summed(sent).reshape(array.shape)

    def gathered(self, value: T) -> list[T]:
        """The values of all processes, in order, as pickles: they run one program."""
        if self.alone:
            return [value]
        payload = pickle.dumps(value)
        sizes = np.zeros(self.number, dtype=np.int64)
        sizes[self.place] = len(payload)
        sizes = self._summed(sizes)
        ends = np.cumsum(-(-sizes // 8))
        starts = ends + sizes // -8
        # few different lengths, since the first reduction of each takes longer
        words = np.zeros(1 << int(ends[-1] - 1).bit_length(), dtype=np.int64)
        first, last = starts[self.place], ends[self.place]
        words[first:last] = np.frombuffer(payload.ljust(8 * (last - first), b"\0"), dtype=np.int64)
        sums = self._summed(words)
        return [pickle.loads(sums[i:j].tobytes()) for i, j in zip(starts, ends)]

    def together(self, compute: Callable[[], T]) -> list[T]:
        """The results of ``compute`` on all processes, in order; what one raises all raise."""
        failed: ValueError | TypeError | OSError | ImportError | None = None
        outcome: tuple[str, Any]  # an error's message, or the result
        try:
            outcome = "", compute()
        except (ValueError, TypeError, OSError, ImportError) as error:
            failed, outcome = error, (str(error), None)
        outcomes = self.gathered(outcome)
        if failed is not None:
            raise failed
        for place, (message, _) in enumerate(outcomes):
            if message:
                raise ValueError(f"worker {place}: {message}")
        results: list[Any] = [result for _, result in outcomes]
        return results

    def _summed(self, vector: AnyNDArray) -> AnyNDArray:
        if self._closed:
            raise RuntimeError(self._closed)
        assert self._reduce is not None
        self.reductions += 1
        self.bytes += vector.nbytes
        return self._reduce(vector)


ALONE = Communicator()
"""A process that holds all rows."""


# --- numbers of all rows --------------------------------------------------------------------------


_TYPES = (np.uint8, np.uint16, np.int32, np.float32, np.float64)
"""Types from narrow to wide."""
_BLOCK = 2**17  # rows that are converted at a time


def blocks(number: int, size: int) -> Iterator[slice]:
    """Slices of so many rows each, the last of those that are left."""
    for start in range(0, number, size):
        yield slice(start, min(start + size, number))


class Stored:
    """Numbers [N] or [N, K], exact, in 1 to 8 bytes each; maybe of this process's share of rows."""

    def __init__(self, values: AnyNDArray, communicator: Communicator = ALONE) -> None:
        self.raw, self.communicator = values, communicator

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

    def put(self, start: int, block: AnyNDArray) -> None:
        """Take rows from ``start`` on, where the block before has ended."""
        with np.errstate(invalid="ignore", over="ignore"):  # the comparison finds them
            if not np.array_equal(block.astype(self._raw.dtype), block):
                wider = _TYPES[_TYPES.index(self._raw.dtype.type) + 1 :]
                held = block, *(self._raw[at] for at in blocks(start, _BLOCK))
                # a float has fewer digits than an integer of its size
                fits = (t for t in wider if all(np.array_equal(a.astype(t), a) for a in held))
                self._raw = self._raw.astype(next(fits))
            self._raw[start : start + len(block)] = block

    def done(self) -> Stored:
        return Stored(self._raw)


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


class ByBlock:
    """Rows that are computed when they are needed, by slices or indices."""

    def __init__(self, shape: tuple[int, ...], compute: Callable[[Any], AnyNDArray]) -> None:
        self.shape, self._compute = shape, compute

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, which: Any) -> AnyNDArray:
        return self._compute(which)


RowArray = Any
"""An array of rows, or one of the classes above, which are indexed alike."""
