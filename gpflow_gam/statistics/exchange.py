"""What processes that each hold a share of the rows tell each other: sums, and little else."""

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
"""Bytes in a double: whole numbers below 2^48 are added to zeros without a change."""


class Exchange:
    """
    This process among those that hold the rows.

    All of them take the same steps in the same order, and wait for each other in every one.

    :param reduce: adds vectors up.
    :param place: of this process among all, from 0; the first one's word counts where one must.
    :param number: of processes.
    """

    def __init__(self, reduce: Reduce, place: int, number: int) -> None:
        self._reduce, self.place, self.number = reduce, place, number
        self.reductions = 0
        """How many vectors were added up."""
        self.bytes = 0
        """Their size in all, as one process sends it."""
        self.sums = 0
        """The same of the last :meth:`total`."""
        self._closed = ""

    @property
    def first(self) -> bool:
        """Whether this process is the one whose word counts."""
        return self.place == 0

    def close(self, why: str) -> None:
        """
        Nobody waits any longer: what follows would wait for ever.

        :param why: for the error of those who ask for sums nevertheless.
        """
        self._closed = why

    def total(self, arrays: Sequence[Any]) -> list[AnyNDArray]:
        """
        Sums of arrays over processes, in one reduction.

        :param arrays: of numbers, of the same shapes everywhere.
        """
        parts = [np.asarray(a, dtype=np.float64) for a in arrays]
        flat = np.concatenate([np.ravel(p) for p in parts])
        found = self._summed(flat)
        self.sums = flat.nbytes
        ends = np.cumsum([p.size for p in parts])[:-1].tolist()
        return [own.reshape(p.shape) for own, p in zip(np.split(found, ends), parts)]

    def agreed(self, values: Any) -> AnyNDArray:
        """
        The first process's values, an array of the same shape everywhere.

        :param values: of this process, [...].
        """
        own = np.asarray(values, dtype=np.float64)
        if own.size == 0:
            return own
        sent = np.ravel(own) if self.first else np.zeros(own.size)
        return self._summed(sent).reshape(own.shape)

    def gathered(self, value: T) -> list[T]:
        """
        What every process has, in their order.

        The processes run one program and trust each other: values travel as pickles.

        :param value: this one's; of any size.
        """
        payload = pickle.dumps(value)
        own = np.zeros(self.number)
        own[self.place] = len(payload)
        sizes = self._summed(own).astype(np.int64)
        ends = np.cumsum(-(-sizes // _WORD))
        # few different lengths, since the first reduction of each takes longer
        words = np.zeros(1 << int(ends[-1] - 1).bit_length())
        starts = ends + (sizes // -_WORD)
        words[starts[self.place] : ends[self.place]] = _packed(payload)
        found = self._summed(words)
        values: list[T] = [
            pickle.loads(_unpacked(found[start:end])[:size])
            for start, end, size in zip(starts, ends, sizes.tolist())
        ]
        return values

    def together(self, compute: Callable[[], T]) -> list[T]:
        """
        What every process computes of its own, in their order; or the error of one, on all.

        :param compute: of this process.
        :raises ValueError, TypeError: it failed here, or elsewhere.
        """
        failed: ValueError | TypeError | OSError | ImportError | None = None
        outcome: tuple[str, Any]  # what went wrong, or else what was computed
        try:
            own: Any = compute()
            outcome = "", own
        except (ValueError, TypeError, OSError, ImportError) as error:
            failed, outcome = error, (str(error), None)
        found = self.gathered(outcome)
        if failed is not None:
            raise failed
        for place, (message, _) in enumerate(found):
            if message:
                raise ValueError(f"worker {place}: {message}")
        values: list[Any] = [value for _, value in found]
        return values

    def _summed(self, vector: AnyNDArray) -> AnyNDArray:
        if self._closed:
            raise RuntimeError(self._closed)
        self.reductions += 1
        self.bytes += vector.nbytes
        return self._reduce(vector)


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
