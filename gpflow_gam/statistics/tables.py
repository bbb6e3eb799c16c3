"""The predictor's mean and variance at rows, from tables by bin and by pair of bins."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray

from ..kernels.shapes import Values
from . import costs
from .components import RowComponent
from .encoded import Codes, Multipliers, features_at_bins, times
from .parallel import each
from .posterior import GaussianPosterior, slices

_GATHERED = 2**13
"""Rows whose features are gathered at a time."""
_LOOKED_UP = 2**16
"""Rows that are looked up in one table after the other: many, since tables come from afar."""


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
        S = q.covariance
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
            self._S = S
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
        # by pair of components; of each output that both enter
        self._pairs: dict[tuple[int, int], list[tuple[int, AnyNDArray]]] = {}
        self._wide: dict[tuple[int, int], list[tuple[int, AnyNDArray]]] = {}

        def make(pair: tuple[int, int]) -> None:
            a, b = pair
            half = [(i, 2.0 * (features[a].T @ S[i][own[a], own[b]])) for i in both[pair]]
            if self._sizes[a] * self._sizes[b] > costs.MAX_TABLE:
                self._wide[pair] = half
            else:
                self._pairs[pair] = [(i, np.ravel(h @ features[b])) for i, h in half]

        entries = [2.0 * self._sizes[a] * self._sizes[b] * len(features[b]) for a, b in pairs]
        each(make, pairs, sum(entries) / costs.FLOPS / max(len(pairs), 1))
        # in their order, whichever thread was first: sums that are the same to the last bit
        self._pairs = {p: self._pairs[p] for p in pairs if p in self._pairs}
        self._wide = {p: self._wide[p] for p in pairs if p in self._wide}

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

        def part(at: slice) -> None:
            own = [code[at] for code in codes]
            factors = [None if m is None else m[at] for m in multipliers]
            total = np.zeros((len(own[0]), self._L))
            for table, code, m in zip(self._own, own, factors):
                total += times(table[code], None if m is None else np.square(m)[:, None])
            for (a, b), tables in self._pairs.items():
                index = own[a] * np.int32(self._sizes[b]) + own[b]
                for i, table in tables:
                    total[:, i] += times(np.take(table, index), factors[a], factors[b])
            for (a, b), halves in self._wide.items():
                right = self._features[b].T[own[b]]
                for i, half in halves:
                    found = np.einsum("nm,nm->n", half[own[a]], right)
                    total[:, i] += times(found, factors[a], factors[b])
            var[at] = total

        parts = max(1, -(-n // _LOOKED_UP))
        each(part, [slice(n * i // parts, n * (i + 1) // parts) for i in range(parts)])
        return var
