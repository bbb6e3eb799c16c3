"""Rows of which several processes hold a share each: what one computes of all is the sum of all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood

from .columns import CodedColumns, Level
from .components import RowComponent
from .exchange import Exchange
from .pseudo_data import PseudoData
from .rows import Rows, Sweep, Watch
from .stored import RowArray, Stored


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
