"""Sums over processes that each hold a share of the rows, and little else."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from gpflow.base import AnyNDArray

T = TypeVar("T")
Reduce = Callable[[AnyNDArray], AnyNDArray]
"""The sum of a vector of doubles [n] over all processes, the same bits on each."""
_WORD = 6
"""Bytes sent in a double: whole numbers below 2^48 are added to zeros without a change."""


class Communicator:
    """This process among all that hold rows; they take the same steps, and wait at every call."""

    def __init__(self, reduce: Reduce | None = None, place: int = 0, number: int = 1) -> None:
        self._reduce, self.place, self.number = reduce, place, number
        self.reductions = 0
        """Number of vectors that were added up."""
        self.bytes = 0
        """Size of these vectors."""
        self.sums = 0
        """Size of the vector of the last :meth:`total`."""
        self._closed = ""

    @property
    def alone(self) -> bool:
        """True if this process holds all rows."""
        return self._reduce is None

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
        self.sums = flat.nbytes
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
        lengths = np.zeros(self.number)
        lengths[self.place] = len(payload)
        sizes = self._summed(lengths).astype(np.int64)
        ends = np.cumsum(-(-sizes // _WORD))
        # few different lengths, since the first reduction of each takes longer
        words = np.zeros(1 << int(ends[-1] - 1).bit_length())
        starts = ends + (sizes // -_WORD)
        words[starts[self.place] : ends[self.place]] = _packed(payload)
        sums = self._summed(words)
        values: list[T] = [
            pickle.loads(_unpacked(sums[start:end])[:size])
            for start, end, size in zip(starts, ends, sizes.tolist())
        ]
        return values

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


def _packed(payload: bytes) -> AnyNDArray:
    """Bytes as whole numbers below 2^48, six each."""
    padded = np.zeros((-(-len(payload) // _WORD), 8), dtype=np.uint8)
    filled = np.zeros(padded.shape[0] * _WORD, dtype=np.uint8)
    filled[: len(payload)] = np.frombuffer(payload, dtype=np.uint8)
    padded[:, :_WORD] = filled.reshape(-1, _WORD)
    return padded.view("<u8")[:, 0].astype(np.float64)


def _unpacked(words: AnyNDArray) -> bytes:
    """Undo :func:`_packed`, but for zeros at the end."""
    parts = np.ascontiguousarray(words.astype("<u8")).view(np.uint8).reshape(-1, 8)
    return parts[:, :_WORD].tobytes()
