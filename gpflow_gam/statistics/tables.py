"""The predictor's mean and variance at rows, from tables by bin and by pair of bins."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray

from ..kernels.shapes import Values
from ..threads import each
from . import costs
from .components import RowComponent
from .encoded import Codes, Multipliers, features_at_bins, times
from .posterior import GaussianPosterior, slices

_GATHERED = 2**13
"""Rows whose features are gathered at a time."""
_LOOKED_UP = 2**16
"""Rows that are looked up in one table after the other: many, since tables come from afar."""
_HELD = 2**27
"""Entries of tables of pairs that are held at once: a gigabyte."""
Pair = tuple[int, int]


class Tables:
    """
    Means and variances of every component, and covariances of every two, at their bins.

    :param components: of the rows.
    :param values: of the kernels' parameters.
    :param q: over whitened inducing values.
    :param number: of rows that will ask.
    :param means_only: whether nobody will ask for variances.
    """

    def __init__(
        self,
        components: Sequence[RowComponent],
        values: Values,
        q: GaussianPosterior,
        number: int,
        means_only: bool = False,
    ) -> None:
        self._sizes = [c.bins.number for c in components]
        own = slices([len(r) for r in q.roots])
        features, priors = zip(*features_at_bins(components, values, q.roots))
        self._features = features
        self._means = [phi.T @ q.mean[at] for phi, at in zip(features, own)]
        if means_only:
            return
        L = q.mean.shape[1]
        self._L = L
        self._S = S = q.covariance
        entered = [c.outputs_of(L) for c in components]
        both = {
            (a, b): [i for i in entered[a] if i in entered[b]]
            for a, b in itertools.combinations(range(len(components)), 2)
        }
        pairs = [pair for pair, common in both.items() if common]
        P = len(q.mean)
        tabled = sum(
            2.0 * self._sizes[a] * self._sizes[b] * len(q.roots[a]) / costs.FLOPS
            + number * costs.LOOKUP
            for a, b in pairs
        )
        self._gathers = number * 2.0 * P * P / costs.FLOPS < tabled
        open_variance = [p - np.sum(np.square(f), axis=0) for p, f in zip(priors, features)]
        if self._gathers:
            # [G, L]; the features of other outputs' components meet S = I there
            self._open = [
                np.stack([o if i in e else o - p for i in range(L)], axis=1)
                for o, p, e in zip(open_variance, priors, entered)
            ]
            return
        self._own = [
            np.stack(
                [
                    o + np.sum(phi * (S[i][at, at] @ phi), axis=0) if i in e else 0.0 * o
                    for i in range(L)
                ],
                axis=1,
            )
            for phi, at, o, e in zip(features, own, open_variance, entered)
        ]
        self._both, self._places = both, own
        narrow = [pair for pair in pairs if self._entries(pair) <= costs.MAX_TABLE]
        wide = [pair for pair in pairs if self._entries(pair) > costs.MAX_TABLE]
        self._groups = list(self._grouped([*narrow, *wide]))
        # the tables of many components do not fit in memory: each block of rows has them made anew
        self._held = self._made(self._groups[0]) if len(self._groups) == 1 else None

    def _entries(self, pair: Pair) -> int:
        """Of the table of a pair."""
        return self._sizes[pair[0]] * self._sizes[pair[1]]

    def _grouped(self, pairs: Sequence[Pair]) -> Iterator[list[Pair]]:
        """Pairs whose tables are held at once, in their order."""
        group: list[Pair] = []
        total = 0
        for pair in pairs:
            entries = min(self._entries(pair), costs.MAX_TABLE) * len(self._both[pair])
            if group and total + entries > _HELD:
                yield group
                group, total = [], 0
            group.append(pair)
            total += entries
        if group:
            yield group

    def _made(self, pairs: Sequence[Pair]) -> dict[Pair, list[tuple[int, AnyNDArray]]]:
        """
        Of each pair and each output that both enter, twice the covariances of the pair's bins, one
        after the other; where these are too many their left half, [G, M].
        """
        features, own, S = self._features, self._places, self._S
        found: dict[Pair, list[tuple[int, AnyNDArray]]] = {}

        def make(pair: Pair) -> None:
            a, b = pair
            halves = [(i, 2.0 * (features[a].T @ S[i][own[a], own[b]])) for i in self._both[pair]]
            if self._entries(pair) <= costs.MAX_TABLE:
                halves = [(i, np.ravel(half @ features[b])) for i, half in halves]
            found[pair] = halves

        operations = [2.0 * self._entries(pair) * len(features[pair[1]]) for pair in pairs]
        each(make, pairs, sum(operations) / costs.FLOPS / max(len(pairs), 1))
        # in their order, whichever thread was first: sums that are the same to the last bit
        return {pair: found[pair] for pair in pairs}

    def means(self, codes: Codes, multipliers: Multipliers) -> AnyNDArray:
        """[n, L], without m(x)."""
        total = 0.0
        for table, code, m in zip(self._means, codes, multipliers):
            total = total + times(table[code], None if m is None else m[:, None])
        return np.asarray(total)

    def at(self, codes: Codes, multipliers: Multipliers) -> tuple[AnyNDArray, AnyNDArray]:
        """Means and variances [n, L]."""
        if self._gathers:
            var = self._gathered(codes, multipliers)
        else:
            var = self._looked_up(codes, multipliers)
        return self.means(codes, multipliers), var

    def _gathered(self, codes: Codes, multipliers: Multipliers) -> AnyNDArray:
        n = len(codes[0])
        var = np.zeros((n, self._L))

        def part(start: int) -> None:
            at = slice(start, min(start + _GATHERED, n))
            rows = [
                times(phi[:, code[at]], None if m is None else m[at])
                for phi, code, m in zip(self._features, codes, multipliers)
            ]
            F = np.concatenate(rows)
            left: Any = 0.0
            for o, code, m in zip(self._open, codes, multipliers):
                left = left + times(o[code[at]], None if m is None else m[at, None] ** 2)
            for i in range(self._L):
                var[at, i] = np.einsum("pn,pn->n", F, self._S[i] @ F) + left[:, i]

        each(part, range(0, n, _GATHERED))
        return var

    def _looked_up(self, codes: Codes, multipliers: Multipliers) -> AnyNDArray:
        n = len(codes[0])
        var = np.zeros((n, self._L))
        number = max(1, -(-n // _LOOKED_UP))
        parts = [slice(n * i // number, n * (i + 1) // number) for i in range(number)]

        def alone(at: slice) -> None:
            for table, code, m in zip(self._own, codes, multipliers):
                var[at] += times(table[code[at]], None if m is None else np.square(m[at])[:, None])

        each(alone, parts)
        for group in self._groups:
            tables = self._made(group) if self._held is None else self._held
            each(functools.partial(self._add, tables, codes, multipliers, var), parts)
        return var

    def _add(
        self,
        tables: dict[Pair, list[tuple[int, AnyNDArray]]],
        codes: Codes,
        multipliers: Multipliers,
        var: AnyNDArray,
        at: slice,
    ) -> None:
        """What pairs add to the variances of some rows."""
        total = var[at]
        for (a, b), found in tables.items():
            left, right = codes[a][at], codes[b][at]
            factors = [None if m is None else m[at] for m in (multipliers[a], multipliers[b])]
            if self._entries((a, b)) <= costs.MAX_TABLE:
                index = left * np.int32(self._sizes[b]) + right
                covariances = [np.take(table, index) for _, table in found]
            else:
                rest = self._features[b].T[right]
                covariances = [np.einsum("nm,nm->n", half[left], rest) for _, half in found]
            for (i, _), covariance in zip(found, covariances):
                total[:, i] += times(covariance, *factors)
