"""Rows of which several processes hold a share each: one process computes the sums of all."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood

from ...storage import RowArray, Stored
from .columns import CodedColumns, Level
from .components import RowComponent
from .evidence import PseudoData
from .passes import Rows, Sweep, Watch

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


class SharedRows(Rows):
    """
    The rows of data of which this process holds a share.

    Rows are numbered over all processes, one share after the other. Blocks, marginals and means
    are of the rows here; sums are of all rows, the same bits on every process, and take one
    reduction a pass.

    :param components: of the rows here; bins, nodes and all that is no row's are of all rows.
    :param X: of the rows here, [n, D].
    :param Y: the same, [n, K].
    :param mean: the same, [n, L].
    :param sample: as :class:`Rows` takes it, of rows of all processes.
    :param start: the number of the first row here.
    :param total: N, over all processes.
    :param exchange: with the other processes.
    """

    def __init__(
        self,
        components: Sequence[RowComponent],
        X: RowArray,
        Y: RowArray,
        mean: RowArray,
        sample: tuple[AnyNDArray, AnyNDArray] | None,
        start: int,
        total: int,
        exchange: Exchange,
    ) -> None:
        super().__init__(components, X, Y, mean, sample)
        self.start, self._total, self.exchange = start, total, exchange

    @property
    def number(self) -> int:
        """N, over all processes."""
        return self._total

    def subset(self, which: AnyNDArray) -> SharedRows:
        here, before = self.here(which), np.count_nonzero(which < self.start)
        some = super().subset(which[here] - self.start)
        return self._sharing(some, int(before), len(which))

    def here(self, which: AnyNDArray) -> AnyNDArray:
        found: AnyNDArray = (which >= self.start) & (which < self.start + len(self.Y))
        return found

    def _sharing(self, some: Rows, start: int, total: int) -> SharedRows:
        return SharedRows(
            some.components, some.X, some.Y, some.mean, None, start, total, self.exchange
        )

    # --- sums -----------------------------------------------------------------------------------

    def total(self, *parts: Any) -> list[AnyNDArray]:
        return self.exchange.total(parts)

    def agreed(self, values: Any) -> AnyNDArray:
        return self.exchange.agreed(values)

    def _sites(
        self,
        likelihood: Likelihood,
        marginals: Iterable[tuple[slice, AnyNDArray, AnyNDArray]],
        tune: bool,
        watch: Watch | None = None,
        signed: bool = False,
    ) -> Sweep:
        own = super()._sites(likelihood, marginals, tune, watch, signed)
        rest = own.expected, own.negative, own.slope, own.curvature, own.across
        found = self.exchange.total([*rest, *packed(own.data)])
        expected, negative, slope, curvature, across = found[: len(rest)]
        data = unpacked(found[len(rest) :], own.data)
        return Sweep(float(expected), data, int(negative), slope, curvature, across)

    def _gathered(
        self,
        matrices: Sequence[AnyNDArray | None],
        weight: RowArray,
        shift: RowArray,
        watch: Watch | None = None,
    ) -> PseudoData:
        own = super()._gathered(matrices, weight, shift, watch)
        return unpacked(self.exchange.total(packed(own)), own)


def packed(data: PseudoData) -> list[AnyNDArray]:
    """Pseudo-data without what is there twice: of symmetric matrices a triangle, [L, R (R+1)/2]."""
    at = np.triu_indices(data.precision.shape[1])
    return [data.precision[:, at[0], at[1]], data.shift, *data.masses]


def unpacked(parts: Sequence[AnyNDArray], like: PseudoData) -> PseudoData:
    """
    Undo :func:`packed`.

    :param like: of the same shapes.
    """
    precision = np.empty_like(like.precision)
    rows, columns = np.triu_indices(precision.shape[1])
    precision[:, rows, columns] = parts[0]
    precision[:, columns, rows] = parts[0]
    return PseudoData(precision, parts[1], tuple(parts[2:]))


def bytes_of_pass(nodes: int, outputs: int, open_points: int, parameters: int | None = None) -> int:
    """
    What each process contributes to the one reduction of a pass over rows, in bytes.

    :param nodes: R, of all components.
    :param outputs: L, of the predictor.
    :param open_points: E, of all components.
    :param parameters: K, of the likelihood's that are learnt; None of the one pass over Gaussian
        data, which gives sums alone.
    """
    sums = outputs * (nodes * (nodes + 1) // 2 + nodes + open_points)
    if parameters is None:
        return 8 * sums
    return 8 * (2 + sums + parameters + parameters**2 + parameters * nodes * outputs)


class SharedColumns(CodedColumns):
    """
    Columns of rows of which this process holds a share; masses and sizes are of all rows.

    :param share: of the columns, whose bins and reaches are of all rows.
    :param exchange: with the other processes.
    """

    def __init__(self, share: CodedColumns, exchange: Exchange) -> None:
        super().__init__(share.X, share.coded, share.reaches, share.weights)
        self.exchange = exchange

    def mass(self, columns: tuple[int, ...], level: Level | None = None) -> AnyNDArray:
        return self.total([super().mass(columns, level)])[0]

    def total(self, parts: Sequence[AnyNDArray]) -> list[AnyNDArray]:
        return self.exchange.total(parts)


class SharedStored(Stored):
    """
    Numbers of rows of which this process holds a share.

    :param share: the rows here.
    :param exchange: with the other processes.
    """

    def __init__(self, share: Stored, exchange: Exchange) -> None:
        super().__init__(share.raw)
        self.exchange = exchange

    def of_shares(self, summary: AnyNDArray) -> AnyNDArray:
        return np.stack(self.exchange.gathered(np.asarray(summary)))
