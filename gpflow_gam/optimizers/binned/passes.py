"""One pass over rows: marginals from tables, sites from the likelihood, sums by pairs of bins."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood

from ...kernels.shapes import Values
from ...statistics.expectations import expectations
from ...storage import RowArray
from ...threads import each
from .components import (
    Codes,
    Multipliers,
    RowComponent,
    codes_of,
    features_at_bins,
    multipliers_of,
    times,
)
from .evidence import Evidence, GaussianPosterior, PseudoData, posterior_of, slices

FLOPS = 2e10
"""Floating-point operations a second, in products of matrices."""
LOOKUP = 3e-9
"""Seconds that a number takes that is addressed by an index."""
CALL = 3e-4
"""Seconds that the table of a pair of components takes beside its entries."""
MAX_TABLE = 2**21
"""Entries of a table of two components' bins; beyond, only the pairs that occur are kept."""


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
            2.0 * self._sizes[a] * self._sizes[b] * len(q.roots[a]) / FLOPS + number * LOOKUP
            for a, b in pairs
        )
        self._gathers = number * 2.0 * P * P / FLOPS < tabled
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
        narrow = [pair for pair in pairs if self._entries(pair) <= MAX_TABLE]
        wide = [pair for pair in pairs if self._entries(pair) > MAX_TABLE]
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
            entries = min(self._entries(pair), MAX_TABLE) * len(self._both[pair])
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
            if self._entries(pair) <= MAX_TABLE:
                halves = [(i, np.ravel(half @ features[b])) for i, half in halves]
            found[pair] = halves

        operations = [2.0 * self._entries(pair) * len(features[pair[1]]) for pair in pairs]
        each(make, pairs, sum(operations) / FLOPS / max(len(pairs), 1))
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
            if self._entries((a, b)) <= MAX_TABLE:
                index = left * np.int32(self._sizes[b]) + right
                covariances = [np.take(table, index) for _, table in found]
            else:
                rest = self._features[b].T[right]
                covariances = [np.einsum("nm,nm->n", half[left], rest) for _, half in found]
            for (i, _), covariance in zip(found, covariances):
                total[:, i] += times(covariance, *factors)


def sums_of(
    components: Sequence[RowComponent],
    matrices: Sequence[AnyNDArray | None],
    codes: Codes,
    multipliers: Multipliers,
    weight: AnyNDArray,
    shift: AnyNDArray,
) -> PseudoData:
    """
    Sums of sites over rows.

    :param matrices: what each component's bins are expressed in, [G, J]; None for themselves.
    """
    outputs = range(weight.shape[1])
    entered = [c.outputs_of(len(outputs)) for c in components]
    sizes = [c.bins.number if m is None else m.shape[1] for c, m in zip(components, matrices)]
    places = slices(sizes)
    total = sum(sizes)
    precision = np.zeros((len(outputs), total, total))
    shifts = np.zeros((total, len(outputs)))
    masses = [np.zeros((len(outputs), c.num_open)) for c in components]
    weights = [np.ascontiguousarray(weight[:, i]) for i in outputs]

    def single(c: int) -> None:
        component, matrix, at = components[c], matrices[c], places[c]
        code, m, number = codes[c], multipliers[c], components[c].bins.number
        for i in entered[c]:
            shifts[at, i] = _shift(component, matrix, code, m, shift[:, i])
            mass = np.bincount(code, times(weights[i], m, m), minlength=number)
            own = np.diag(mass) if matrix is None else (matrix.T * mass) @ matrix
            precision[i, at, at] = own
            masses[c][i] = np.bincount(component.open_bins, mass, minlength=component.num_open)

    def pair(which: tuple[int, int]) -> None:
        a, b = which
        shape = components[a].bins.number, components[b].bins.number
        for i in (i for i in entered[a] if i in entered[b]):
            w = times(weights[i], multipliers[a], multipliers[b])
            W = scipy.sparse.coo_matrix((w, (codes[a], codes[b])), shape=shape)
            # a table of few bins is filled fastest; of many, only the pairs that occur are kept
            table = W.toarray() if shape[0] * shape[1] <= MAX_TABLE else W.tocsr()
            half = table if matrices[b] is None else table @ matrices[b]
            half = half.toarray() if scipy.sparse.issparse(half) else half
            left = matrices[a]
            block = half if left is None else left.T @ half
            precision[i, places[a], places[b]] = block
            precision[i, places[b], places[a]] = block.T

    number = range(len(components))
    pairs = list(itertools.combinations(number, 2))
    rows = len(codes[0])
    if 2.0 * rows * total**2 / FLOPS < len(pairs) * (CALL + rows * LOOKUP):
        for c in number:
            single(c)
        rest = [
            times(_basis(m, c)[code].T, z)
            for m, c, code, z in zip(matrices, components, codes, multipliers)
        ]
        basis = np.concatenate(rest)
        for i in outputs:
            there = np.concatenate([np.full(s, i in e) for s, e in zip(sizes, entered)])
            own = basis if np.all(there) else basis * there[:, None]
            precision[i] = (own * weights[i]) @ own.T
        return PseudoData(precision, shifts, tuple(masses))
    tasks: list[tuple[Callable[[Any], None], Any]] = [(single, c) for c in number]
    tasks += [(pair, which) for which in pairs]
    each(lambda task: task[0](task[1]), tasks, CALL + rows * LOOKUP)
    return PseudoData(precision, shifts, tuple(masses))


def nothing(
    components: Sequence[RowComponent], matrices: Sequence[AnyNDArray | None], outputs: int
) -> PseudoData:
    """
    The sums of no rows.

    :param matrices: as :func:`sums_of` takes them.
    :param outputs: L.
    """
    total = sum(c.bins.number if m is None else m.shape[1] for c, m in zip(components, matrices))
    masses = tuple(np.zeros((outputs, c.num_open)) for c in components)
    return PseudoData(np.zeros((outputs, total, total)), np.zeros((total, outputs)), masses)


def shifts_of(
    components: Sequence[RowComponent],
    matrices: Sequence[AnyNDArray | None],
    codes: Codes,
    multipliers: Multipliers,
    shift: AnyNDArray,
) -> AnyNDArray:
    """
    Sums of shifts over rows, [R, L].

    :param matrices: what each component's bins are expressed in, [G, J]; None for themselves.
    :param shift: [n, L].
    """
    parts = []
    for own in zip(components, matrices, codes, multipliers):
        entered = own[0].outputs_of(shift.shape[1])
        sums = [_shift(*own, s if i in entered else 0.0 * s) for i, s in enumerate(shift.T)]
        parts.append(np.stack(sums, axis=1))
    return np.concatenate(parts)


def _shift(
    component: RowComponent,
    matrix: AnyNDArray | None,
    code: AnyNDArray,
    multiplier: AnyNDArray | None,
    shift: AnyNDArray,
) -> AnyNDArray:
    """One component's sum of one output's shifts [n], by its bins or what they are expressed in."""
    sums: AnyNDArray = np.bincount(code, times(shift, multiplier), component.bins.number)
    return sums if matrix is None else matrix.T @ sums


def _basis(matrix: AnyNDArray | None, component: RowComponent) -> AnyNDArray:
    """What a component's bins are expressed in, [G, J]."""
    return np.eye(component.bins.number) if matrix is None else matrix


BLOCK = 2**17
"""Rows at a time."""
Watch = Callable[[int], None]
"""Told, after every block of a pass, how many rows it has seen."""


@dataclasses.dataclass(frozen=True)
class Sweep:
    """
    What one pass saw.

    :param expected: sum_n E_q[log p(y_n | rho_n)].
    :param data: the sites' sums.
    :param negative: how many weights were negative.
    :param slope: derivative of ``expected`` in the likelihood's parameters, [K].
    :param curvature: its second derivatives, [K, K].
    :param across: how the sites' sum of shifts changes with each of them, [K, R, L].
    """

    expected: float
    data: PseudoData
    negative: int
    slope: AnyNDArray
    curvature: AnyNDArray
    across: AnyNDArray


class Rows:
    """
    The rows of data as components' bins see them.

    What there is of every row may be stored in any way that can be read by slices and by indices
    (:mod:`gpflow_gam.statistics.stored`): a pass reads a block at a time.

    :param components: one an additive component, in the kernel's order.
    :param X: [N, D], for likelihoods that read inputs.
    :param Y: [N, K], as the likelihood takes it.
    :param mean: the mean function at the rows, [N, L].
    :param sample: indices [n] and inputs [n, D] of rows that are known to the last bit, where X is
        not.
    """

    def __init__(
        self,
        components: Sequence[RowComponent],
        X: RowArray,
        Y: RowArray,
        mean: RowArray,
        sample: tuple[AnyNDArray, AnyNDArray] | None = None,
    ) -> None:
        self.components = list(components)
        self.X, self.Y, self.mean, self.sample = X, Y, mean, sample

    @property
    def number(self) -> int:
        """N."""
        return len(self.Y)

    @property
    def num_outputs(self) -> int:
        """L."""
        return int(self.mean.shape[1])

    def subset(self, which: AnyNDArray) -> Rows:
        """
        Some of the rows.

        :param which: their numbers, [n].
        """
        parts = [c.rows(which) for c in self.components]
        return Rows(parts, self.X[which], self.Y[which], self.mean[which])

    def known(self, number: int, seed: int = 0) -> Rows:
        """
        At most so many rows, at random, of which X is known in full.

        :param number: how many, at most.
        :param seed: of the choice.
        """
        rng = np.random.default_rng(seed)
        if self.sample is None:
            return self.subset(rng.choice(self.number, min(number, self.number), replace=False))
        indices, X = self.sample
        chosen = rng.choice(len(indices), min(number, len(indices)), replace=False)
        some = self.subset(indices[chosen])
        some.X = X[chosen][self.here(indices[chosen])]
        return some

    def here(self, which: AnyNDArray) -> AnyNDArray:
        """
        Which of these rows, given by number, are held by this process, [n] of bool.

        :param which: numbers of rows, [n].
        """
        return np.ones(len(which), bool)

    def evidence(self, jitter: float) -> Evidence:
        """
        The evidence of pseudo-data at these components.

        :param jitter: as :class:`Evidence` takes it.
        """
        return Evidence([c.places for c in self.components], jitter)

    # --- the predictor at rows ----------------------------------------------------------------

    def marginals(
        self, values: Values, q: GaussianPosterior
    ) -> Iterator[tuple[slice, AnyNDArray, AnyNDArray]]:
        """
        Blocks of rows with mean and variance [n, L] of the predictor, m(x) left out.

        :param values: of the kernels' parameters.
        :param q: over whitened inducing values, with the factors of the prior at ``values``.
        """
        tables = Tables(self.components, values, q, len(self.Y))
        for at in self.blocks():
            yield at, *tables.at(codes_of(self.components, at), multipliers_of(self.components, at))

    def means(self, values: Values, q: GaussianPosterior) -> AnyNDArray:
        """
        Means of the predictor at all rows, m(x) included, [N, L].

        :param values: of the kernels' parameters.
        :param q: of the inducing values.
        """
        return np.concatenate([mean for _, mean in self.predictors(values, q)])

    def predictors(
        self, values: Values, q: GaussianPosterior
    ) -> Iterator[tuple[slice, AnyNDArray]]:
        """
        Blocks of rows with means of the predictor, m(x) included, [n, L].

        :param values: of the kernels' parameters.
        :param q: of the inducing values.
        """
        tables = Tables(self.components, values, q, len(self.Y), means_only=True)
        for at in self.blocks():
            codes, multipliers = codes_of(self.components, at), multipliers_of(self.components, at)
            yield at, tables.means(codes, multipliers) + self.mean[at]

    def blocks(self) -> Iterator[slice]:
        """The rows in blocks."""
        for start in range(0, len(self.Y), BLOCK):
            yield slice(start, min(start + BLOCK, len(self.Y)))

    # --- sums -----------------------------------------------------------------------------------

    def total(self, *parts: Any) -> list[AnyNDArray]:
        """Sums of arrays over all who hold rows: here, those that are given."""
        return [np.asarray(part) for part in parts]

    def agreed(self, values: Any) -> AnyNDArray:
        """
        An array on which all who hold rows go on: here, the one that is given.

        :param values: an array of any shape.
        """
        return np.asarray(values)

    def sweep(
        self,
        likelihood: Likelihood,
        values: Values,
        q: GaussianPosterior,
        tune: bool = True,
        watch: Watch | None = None,
        signed: bool = False,
    ) -> Sweep:
        """
        The sites of all rows at q, and their sums.

        Where a likelihood is not log-concave, rows far from what is expected of them have negative
        weights. Only with them is q the best there is: without, it is too sure.

        :param likelihood: at its parameters.
        :param values: of the kernels' parameters.
        :param q: over whitened inducing values.
        :param tune: whether derivatives in the likelihood's parameters are wanted.
        :param watch: told how far the pass is.
        :param signed: whether negative weights count, or are taken as 0, with which the sums are
            precisions wherever q is.
        """
        return self._sites(likelihood, self.marginals(values, q), tune, watch, signed)

    def weights(
        self, likelihood: Likelihood, at: slice, mean: AnyNDArray, var: AnyNDArray
    ) -> AnyNDArray:
        """
        The sites' precisions of a block of rows, [n, L].

        :param likelihood: of the model.
        :param at: the block.
        :param mean: of the predictor, m(x) left out, [n, L].
        :param var: [n, L].
        """
        found = expectations(likelihood, self.X[at], mean + self.mean[at], var, self.Y[at], ())
        return found.precision

    def sweep_at(self, likelihood: Likelihood, mean: AnyNDArray, var: AnyNDArray) -> Sweep:
        """
        The sites of a predictor with given marginals.

        :param likelihood: of the model.
        :param mean: beside the mean function, [N, L], or [L] of all rows.
        :param var: the same.
        """
        shape = len(self.Y), self.num_outputs
        mean, var = np.broadcast_to(mean, shape), np.broadcast_to(var, shape)

        def marginals() -> Iterator[tuple[slice, AnyNDArray, AnyNDArray]]:
            for at in self.blocks():
                yield at, mean[at], var[at]

        return self._sites(likelihood, marginals(), False)

    def _sites(
        self,
        likelihood: Likelihood,
        marginals: Iterable[tuple[slice, AnyNDArray, AnyNDArray]],
        tune: bool,
        watch: Watch | None = None,
        signed: bool = False,
    ) -> Sweep:
        variables = list(likelihood.trainable_variables) if tune else []
        expected, negative = 0.0, 0
        data: PseudoData | None = None
        K = sum(int(np.size(v)) for v in variables)
        slope, curvature = np.zeros(K), np.zeros((K, K))
        across: Any = 0.0
        for at, mean, var in marginals:
            found = expectations(
                likelihood, self.X[at], mean + self.mean[at], var, self.Y[at], variables
            )
            expected += found.total
            negative += int(np.sum(found.precision < 0.0))
            w = found.precision if signed else np.maximum(found.precision, 0.0)
            part = self.sums(w, found.slope + w * mean, at)
            data = part if data is None else data + part
            slope, curvature = slope + found.own_slope, curvature + found.own_curvature
            across = across + self._shifts(found.across, at)
            if watch is not None:
                watch(at.stop)
        if data is None:  # as where others hold the rows
            data = nothing(self.components, self._matrices(), self.num_outputs)
            across = np.zeros((K, *data.shift.shape) if K else 0)
        return Sweep(expected, data, negative, slope, curvature, np.asarray(across))

    def _shifts(self, shifts: Sequence[AnyNDArray], at: slice) -> AnyNDArray:
        """Sums of given shifts [n, L] over a block of rows, [K, R, L]."""
        matrices = self._matrices()
        codes, multipliers = codes_of(self.components, at), multipliers_of(self.components, at)
        found = [shifts_of(self.components, matrices, codes, multipliers, s) for s in shifts]
        return np.stack(found) if found else np.zeros(0)

    def gather(self, weight: RowArray, shift: RowArray, watch: Watch | None = None) -> PseudoData:
        """
        The sums of given sites over all rows.

        :param weight: w_n, [N, L], read a block at a time.
        :param shift: [N, L], the same.
        :param watch: told how far the pass is.
        """
        return self._gathered(self._matrices(), weight, shift, watch)

    def sums(self, weight: AnyNDArray, shift: AnyNDArray, at: slice) -> PseudoData:
        """
        The sums of sites over a block of rows.

        :param weight: [n, L].
        :param shift: [n, L].
        :param at: which rows.
        """
        return self._sums_in(self._matrices(), weight, shift, at)

    def posterior(
        self, values: Values, roots: Sequence[AnyNDArray], weight: RowArray, shift: RowArray
    ) -> GaussianPosterior:
        """
        The posterior of given sites, features taken at the bins themselves.

        :param values: of the kernels' parameters.
        :param roots: Cholesky factors of k_c(Z_c, Z_c) there, [M_c, M_c] each.
        :param weight: w_n, [N, L], read a block at a time.
        :param shift: [N, L], the same.
        :raises NotPositiveDefinite: the weights overflow.
        """
        features = [phi.T for phi, _ in features_at_bins(self.components, values, roots)]
        data = self._gathered(features, weight, shift)
        return posterior_of(data.precision, data.shift, roots)

    def _matrices(self) -> list[AnyNDArray | None]:
        return [c.interpolation.matrix for c in self.components]

    def _gathered(
        self,
        matrices: Sequence[AnyNDArray | None],
        weight: RowArray,
        shift: RowArray,
        watch: Watch | None = None,
    ) -> PseudoData:
        """Sums of given sites, by what bins are expressed in."""
        data: PseudoData | None = None
        for at in self.blocks():
            part = self._sums_in(matrices, weight[at], shift[at], at)
            data = part if data is None else data + part
            if watch is not None:
                watch(at.stop)
        return nothing(self.components, matrices, self.num_outputs) if data is None else data

    def _sums_in(
        self,
        matrices: Sequence[AnyNDArray | None],
        weight: AnyNDArray,
        shift: AnyNDArray,
        at: slice,
    ) -> PseudoData:
        return sums_of(
            self.components,
            matrices,
            codes_of(self.components, at),
            multipliers_of(self.components, at),
            weight,
            shift,
        )
