"""Sobol indices of functions of the predictor, by Monte Carlo.

Past a link function the predictor is no sum any more and inputs interact. Its indices are
estimated by evaluating it at rows A, at rows B, and at A with some columns taken from B ("pick and
freeze"; Sobol' 1993), with the estimators of Saltelli et al. (2010) for first-order and of Jansen
(1999) for total indices. Each component is evaluated anew only where a column it reads was
exchanged, so that the cost is that of the components rather than of components times columns."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from gpflow.base import AnyNDArray
from scipy.stats import qmc

from ..measures import Measure
from ..posteriors import InducingMoments
from .grid import Columns, ProductGrid, component_columns
from .variances import augmented, varying

Response = Callable[[AnyNDArray], AnyNDArray]
"""From predictors' components [S, N, L] to what indices are asked of, [S, N, K]."""


@dataclasses.dataclass(frozen=True)
class PickFreezeDraws:
    """Variances due to inputs, for S posterior draws; noisy, and so sometimes negative."""

    inputs: Columns
    pairs: tuple[Columns, ...]
    total: AnyNDArray
    first: AnyNDArray
    any: AnyNDArray
    both: AnyNDArray


def pick_freeze(
    members: Sequence[tuple[InducingMoments, Response]],
    measures: Sequence[Mapping[int, Measure]],
    num_points: int,
    num_samples: int,
    seed: int,
) -> PickFreezeDraws:
    """Draws of variances of a response."""
    kernel = members[0][0].kernel
    reads = {name: columns for name, columns in component_columns(kernel).items() if columns}
    inputs = tuple(sorted({c for columns in reads.values() for c in columns}))
    pairs = tuple(
        sorted({p for columns in reads.values() for p in itertools.combinations(columns, 2)})
    )
    grid = ProductGrid(measures[0], list(reads.values()))
    _, every = augmented(members[0][0], grid, [moments for moments, _ in members])
    members = [(moments, response) for moments, (_, response) in zip(every, members)]
    rows = [_rows(inputs, m, kernel.num_columns, num_points, seed) for m in measures]
    each = -(-num_samples // len(members))
    result = []
    for i, (moments, response) in enumerate(members):
        A, B = rows[i % len(rows)]
        one = _Member(moments, response, moments.sample(each, seed + i), reads, A, B)
        result.append(one.variances(inputs, pairs))
    stacked = [np.concatenate(parts) for parts in zip(*result)]
    varying(stacked[0])
    return PickFreezeDraws(inputs, pairs, *stacked)


class _Member:
    """One posterior's draws as functions of exchanged columns."""

    def __init__(
        self,
        moments: InducingMoments,
        response: Response,
        V: AnyNDArray,
        reads: Mapping[str, Columns],
        A: AnyNDArray,
        B: AnyNDArray,
    ) -> None:
        self.moments, self.response, self.V = moments, response, V
        self.reads, self.A, self.B = reads, A, B
        constants = [n for n in moments.kernel.names if n not in reads]
        self.own = {name: self._values(name, A) for name in reads}
        self.base = sum(self.own.values()) + sum(self._values(n, A) for n in constants)
        other = sum(self._values(n, B) for n in moments.kernel.names)
        at_a, at_b = response(self.base), response(np.asarray(other))
        self.mean = 0.5 * (at_a.mean(axis=1, keepdims=True) + at_b.mean(axis=1, keepdims=True))
        self.at_a, self.at_b = at_a - self.mean, at_b - self.mean

    def _values(self, name: str, X: AnyNDArray) -> AnyNDArray:
        """f_c of every draw, [S, N, L]."""
        phi = self.moments.features(name, X)
        values: AnyNDArray = np.einsum("pn,spl->snl", phi, self.V[:, self.moments.block(name)])
        return values

    def _exchanged(self, columns: Columns) -> AnyNDArray:
        """The response at A with these columns from B, less the mean, [S, N, K]."""
        X = self.A.copy()
        X[:, list(columns)] = self.B[:, list(columns)]
        total = self.base
        for name, own in self.reads.items():
            if set(own) & set(columns):
                total = total + (self._values(name, X) - self.own[name])
        exchanged: AnyNDArray = self.response(total) - self.mean
        return exchanged

    def variances(self, inputs: Columns, pairs: Sequence[Columns]) -> tuple[AnyNDArray, ...]:
        """The fields of :class:`PickFreezeDraws` after the first two."""
        total = 0.5 * (np.mean(self.at_a**2, axis=1) + np.mean(self.at_b**2, axis=1))
        first, any_, both = {}, {}, []
        for c in inputs:
            there = self._exchanged((c,))
            first[c] = np.mean(self.at_b * (there - self.at_a), axis=1)
            any_[c] = 0.5 * np.mean((there - self.at_a) ** 2, axis=1)
        for i, j in pairs:
            there = self._exchanged((i, j))
            closed = np.mean(self.at_b * (there - self.at_a), axis=1)
            both.append(closed - first[i] - first[j])
        S, K = total.shape
        return (
            total,
            np.stack(list(first.values()), axis=1),
            np.stack(list(any_.values()), axis=1),
            np.stack(both, axis=1) if both else np.zeros((S, 0, K)),
        )


def _rows(
    inputs: Columns, measures: Mapping[int, Measure], width: int, number: int, seed: int
) -> tuple[AnyNDArray, AnyNDArray]:
    """Independent rows A and B [N, width]."""
    power = int(np.log2(number)) if number > 0 else 0
    if number < 2 or 2**power != number:
        raise ValueError(f"num_points must be a power of two; got {number}.")
    u = qmc.Sobol(2 * len(inputs), seed=seed).random_base2(power)
    rows = np.zeros((2, number, width))
    for half in range(2):
        for i, c in enumerate(inputs):
            rows[half, :, c] = measures[c].transport(u[:, [half * len(inputs) + i]])[:, 0]
    return rows[0], rows[1]
