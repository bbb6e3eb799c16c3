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

from ...kernels.correlation import Values
from ...likelihoods.expectations import Expectations, expectations
from ...storage import ALONE, Communicator, RowArray, blocks
from ...threads import each
from .evidence import (
    Encoded,
    GaussianPosterior,
    PseudoData,
    RowComponent,
    encoded,
    features_at_bins,
    posterior_of,
    slices,
    times,
)

FLOPS = 2e10  # floating-point operations a second, in products of matrices
LOOKUP = 3e-9  # seconds for reading or adding to one number at an index
CALL = 3e-4  # seconds for the table of a pair of components, beside those for its entries
MAX_TABLE = 2**21  # largest number of entries of a table of covariances
_SPARSE = 16  # entries a row beyond which a table of sums is quicker by the pairs that occur
BLOCK = 2**18  # number of rows of a block of a pass
_GATHERED = 2**13  # number of rows whose features are gathered at a time
_LOOKED_UP = 2**16  # rows looked up in one table after the other: many, as tables come from far
_HELD = 2**27  # number of entries of tables of pairs that are in memory at once: a gigabyte
Pair = tuple[int, int]
Basis = Sequence[AnyNDArray | None]  # matrices [G, J] in which bins are expressed; None: themselves
Watch = Callable[[int], None]  # called after every block of a pass, with the number of rows so far


def looked_up(table: AnyNDArray, codes: AnyNDArray) -> AnyNDArray:
    """Rows [n, ...] of a table at codes."""
    # which numpy takes several times as fast by indices of the platform's size
    return table.take(codes.astype(np.intp, copy=False), axis=0)


def joint(left: AnyNDArray, right: AnyNDArray, number: int) -> AnyNDArray:
    """Indices [n] of pairs of codes in a flat table, the second ones below ``number``."""
    narrow = left.dtype == right.dtype == np.uint8  # of 256 bins at most
    index = left.astype(np.uint16 if narrow else np.int32)
    index *= index.dtype.type(number)
    index += right
    return index.astype(np.intp)


def constants(components: Sequence[RowComponent]) -> list[bool]:
    """Whether components are the same in all rows: with others they are as these alone."""
    return [c.bins.number == 1 and c.multiplier is None for c in components]


# --- the predictor at rows -----------------------------------------------------------------------


class Tables:
    """Moments of the predictor at ``number`` rows, from tables by bin and by pair of bins."""

    def __init__(
        self,
        components: Sequence[RowComponent],
        values: Values,
        q: GaussianPosterior,
        number: int,
        means_only: bool = False,
    ) -> None:
        self._sizes = [c.bins.number for c in components]
        # of many rows single precision, as tables are read from caches: variances are small then
        self._kind = np.float32 if number > BLOCK else np.float64
        self._places = places = slices([len(r) for r in q.roots])
        features, priors = zip(*features_at_bins(components, values, q.roots))
        self._features = features
        self._means = [phi.T @ q.mean[at] for phi, at in zip(features, places)]
        if means_only:
            return
        self._S = S = q.covariance
        P, self._L = q.mean.shape
        entered = [c.outputs_of(self._L) for c in components]
        self._common = {
            (a, b): [i for i in entered[a] if i in entered[b]]
            for a, b in itertools.combinations(range(len(components)), 2)
        }
        pairs = [pair for pair, common in self._common.items() if common]
        tabled = sum(
            2.0 * self._sizes[a] * self._sizes[b] * len(q.roots[a]) / FLOPS + number * LOOKUP
            for a, b in pairs
        )
        self._gathers = number * 2.0 * P * P / FLOPS < tabled
        residual = [p - np.sum(np.square(f), axis=0) for p, f in zip(priors, features)]
        if self._gathers:
            # [G, L]; the features of other outputs' components meet S = I there
            self._residual = [
                np.stack([r if i in e else r - p for i in range(self._L)], axis=1)
                for r, p, e in zip(residual, priors, entered)
            ]
            return
        self._variances = [
            np.stack(
                [
                    r + np.sum(phi * (S[i][at, at] @ phi), axis=0) if i in e else 0.0 * r
                    for i in range(self._L)
                ],
                axis=1,
            )
            for phi, at, r, e in zip(features, places, residual, entered)
        ]
        same, plain = constants(components), [c.multiplier is None for c in components]
        for a, b in pairs:
            if (same[a] or same[b]) and plain[a] and plain[b]:
                c = b if same[a] else a
                for i in self._common[a, b]:
                    covariance = features[a].T @ S[i][places[a], places[b]] @ features[b]
                    self._variances[c][:, i] += 2.0 * covariance.ravel()
        pairs = [(a, b) for a, b in pairs if not ((same[a] or same[b]) and plain[a] and plain[b])]
        narrow = [pair for pair in pairs if self._entries(pair) <= MAX_TABLE]
        wide = [pair for pair in pairs if self._entries(pair) > MAX_TABLE]
        self._groups = list(self._grouped([*narrow, *wide]))
        # the tables of many components do not fit in memory, and are made anew for each block
        self._held = self._made(self._groups[0]) if len(self._groups) == 1 else None

    def _entries(self, pair: Pair) -> int:
        return self._sizes[pair[0]] * self._sizes[pair[1]]

    def _grouped(self, pairs: Sequence[Pair]) -> Iterator[list[Pair]]:
        """Groups of pairs, in order, whose tables fit in memory at once."""
        group: list[Pair] = []
        total = 0
        for pair in pairs:
            entries = min(self._entries(pair), MAX_TABLE) * len(self._common[pair])
            if group and total + entries > _HELD:
                yield group
                group, total = [], 0
            group.append(pair)
            total += entries
        if group:
            yield group

    def _made(self, pairs: Sequence[Pair]) -> dict[Pair, list[tuple[int, AnyNDArray]]]:
        """Twice the covariances of pairs of bins, flat, by output; of many left halves."""
        features, places, S = self._features, self._places, self._S
        tables: dict[Pair, list[tuple[int, AnyNDArray]]] = {}

        def make(pair: Pair) -> None:
            a, b = pair
            halves = [
                (i, 2.0 * (features[a].T @ S[i][places[a], places[b]])) for i in self._common[pair]
            ]
            if self._entries(pair) <= MAX_TABLE:
                halves = [
                    (i, np.ravel(half @ features[b]).astype(self._kind)) for i, half in halves
                ]
            tables[pair] = halves

        operations = [2.0 * self._entries(pair) * len(features[pair[1]]) for pair in pairs]
        each(make, pairs, sum(operations) / FLOPS / max(len(pairs), 1))
        # in their order, whichever thread was first, so that sums are the same to the last bit
        return {pair: tables[pair] for pair in pairs}

    def means(self, rows: Encoded) -> AnyNDArray:
        """Means [n, L] of the predictor without m(x)."""
        total = 0.0
        for table, code, m in zip(self._means, *rows):
            total = total + times(looked_up(table, code), None if m is None else m[:, None])
        return np.asarray(total)

    def moments(self, rows: Encoded) -> tuple[AnyNDArray, AnyNDArray]:
        """Means and variances [n, L] of the predictor without m(x)."""
        var = self._gathered(rows) if self._gathers else self._looked_up(rows)
        return self.means(rows), var

    def _gathered(self, rows: Encoded) -> AnyNDArray:
        """Variances from the features of each row."""
        n = len(rows.codes[0])
        var = np.zeros((n, self._L))

        def part(at: slice) -> None:
            F = np.concatenate(
                [
                    times(phi[:, code[at]], None if m is None else m[at])
                    for phi, code, m in zip(self._features, *rows)
                ]
            )
            residual: Any = 0.0
            for r, code, m in zip(self._residual, *rows):
                residual = residual + times(r[code[at]], None if m is None else m[at, None] ** 2)
            for i in range(self._L):
                var[at, i] = np.einsum("pn,pn->n", F, self._S[i] @ F) + residual[:, i]

        each(part, list(blocks(n, _GATHERED)))
        return var

    def _looked_up(self, rows: Encoded) -> AnyNDArray:
        n = len(rows.codes[0])
        var = np.zeros((n, self._L))
        number = max(1, -(-n // _LOOKED_UP))
        parts = [slice(n * i // number, n * (i + 1) // number) for i in range(number)]

        def single(at: slice) -> None:
            for table, code, m in zip(self._variances, *rows):
                squares = None if m is None else np.square(m[at])[:, None]
                var[at] += times(looked_up(table, code[at]), squares)

        each(single, parts)
        for group in self._groups:
            tables = self._made(group) if self._held is None else self._held
            each(functools.partial(self._add, tables, rows, var), parts)
        return var

    def _add(
        self,
        tables: dict[Pair, list[tuple[int, AnyNDArray]]],
        rows: Encoded,
        var: AnyNDArray,
        at: slice,
    ) -> None:
        """Add the covariances of pairs of components to the variances of some rows."""
        total = var[at]
        for (a, b), table in tables.items():
            left, right = rows.codes[a][at], rows.codes[b][at]
            factors = [
                None if m is None else m[at] for m in (rows.multipliers[a], rows.multipliers[b])
            ]
            if self._entries((a, b)) <= MAX_TABLE:
                index = joint(left, right, self._sizes[b])
                covariances = [flat.take(index) for _, flat in table]
            else:
                features = self._features[b].T[right]
                covariances = [np.einsum("nm,nm->n", half[left], features) for _, half in table]
            for (i, _), covariance in zip(table, covariances):
                total[:, i] += times(covariance, *factors)


# --- sums of sites over rows ---------------------------------------------------------------------


class Sums:
    """Sums of sites over blocks of rows, the components' bins being expressed in a basis."""

    def __init__(self, components: Sequence[RowComponent], basis: Basis, outputs: int) -> None:
        self._components, self._basis, self._outputs = components, basis, outputs
        self._entered = [c.outputs_of(outputs) for c in components]
        self._sizes = [
            c.bins.number if m is None else m.shape[1] for c, m in zip(components, basis)
        ]
        self._places = slices(self._sizes)
        self._constants = [c for c, same in enumerate(constants(components)) if same]

    def zero(self) -> PseudoData:
        L, R = self._outputs, sum(self._sizes)
        masses = tuple(np.zeros((L, c.num_residual)) for c in self._components)
        return PseudoData(np.zeros((L, R, R)), np.zeros((R, L)), masses)

    def of(self, rows: Encoded, weight: AnyNDArray, shift: AnyNDArray) -> PseudoData:
        """The sums of sites of weight and shift [n, L]."""
        data, components, basis = self.zero(), self._components, self._basis
        precision, places = data.precision, self._places
        weights = [np.ascontiguousarray(w) for w in weight.T]

        def single(c: int) -> None:
            component, matrix, at = components[c], basis[c], places[c]
            code, m = rows.codes[c], rows.multipliers[c]
            for i in self._entered[c]:
                data.shift[at, i] = self._shift(c, rows, shift[:, i])
                mass = np.bincount(code, times(weights[i], m, m), minlength=component.bins.number)
                precision[i, at, at] = (
                    np.diag(mass) if matrix is None else (matrix.T * mass) @ matrix
                )
                for a in self._constants if m is None else []:
                    if a != c and i in self._entered[a]:
                        left, half = basis[a], mass if matrix is None else mass @ matrix
                        block = np.outer(1.0 if left is None else left[0], half)
                        precision[i, places[a], at] = block
                        precision[i, at, places[a]] = block.T
                data.masses[c][i] = np.bincount(
                    component.residual_bins, mass, minlength=component.num_residual
                )

        def pair(which: Pair) -> None:
            a, b = which
            for i in (i for i in self._entered[a] if i in self._entered[b]):
                w = times(weights[i], rows.multipliers[a], rows.multipliers[b])
                block = self._block(a, b, rows.codes[a], rows.codes[b], w)
                precision[i, places[a], places[b]] = block
                precision[i, places[b], places[a]] = block.T

        singles = range(len(components))
        pairs = [
            pair
            for pair in itertools.combinations(singles, 2)
            if not any(
                c in self._constants and rows.multipliers[other] is None
                for c, other in (pair, pair[::-1])
            )
        ]
        n, R = len(rows.codes[0]), len(data.shift)
        if 2.0 * n * R**2 / FLOPS < len(pairs) * (CALL + n * LOOKUP):
            for c in singles:
                single(c)
            self._add_products(precision, rows, weights)
            return data
        tasks: list[tuple[Callable[[Any], None], Any]] = [(single, c) for c in singles]
        tasks += [(pair, which) for which in pairs]
        each(lambda task: task[0](task[1]), tasks, CALL + n * LOOKUP)
        return data

    def of_neighbours(self, rows: Encoded, before: Encoded, weight: AnyNDArray) -> PseudoData:
        """The sums of ``weight (b_n b_m' + b_m b_n')``, rows m being before rows n."""
        data, places, components = self.zero(), self._places, self._components
        for i, w in enumerate(weight.T):
            for a, b in itertools.product(range(len(components)), repeat=2):
                if i in self._entered[a] and i in self._entered[b]:
                    both = times(w, before.multipliers[a], rows.multipliers[b])
                    block = self._block(a, b, before.codes[a], rows.codes[b], both)
                    data.precision[i, places[a], places[b]] += block
                    data.precision[i, places[b], places[a]] += block.T
            for c, component in enumerate(components):
                # residuals of neighbours are as good as equal near each other, and independent else
                m, n = (component.residual_bins[r.codes[c]] for r in (before, rows))
                mass = 2.0 * times(w, before.multipliers[c], rows.multipliers[c]) * (m == n)
                if i in self._entered[c]:
                    data.masses[c][i] = np.bincount(n, mass, minlength=component.num_residual)
        return data

    def _block(
        self, a: int, b: int, left: AnyNDArray, right: AnyNDArray, w: AnyNDArray
    ) -> AnyNDArray:
        """Sums of weights by pairs of codes of two components, in their bases."""
        shape = self._components[a].bins.number, self._components[b].bins.number
        if (entries := shape[0] * shape[1]) <= _SPARSE * len(w):
            table: Any = np.bincount(joint(left, right, shape[1]), w, entries).reshape(shape)
        else:
            table = scipy.sparse.coo_matrix((w, (left, right)), shape=shape).tocsr()
        half = table if self._basis[b] is None else table @ self._basis[b]
        half = half.toarray() if scipy.sparse.issparse(half) else half
        rows = self._basis[a]
        return half if rows is None else rows.T @ half

    def _add_products(
        self, precision: AnyNDArray, rows: Encoded, weights: Sequence[AnyNDArray]
    ) -> None:
        """Set precisions to products of the rows' matrices, as is quicker for few rows."""
        parts = [
            times((np.eye(c.bins.number) if matrix is None else matrix)[code].T, m)
            for c, matrix, code, m in zip(self._components, self._basis, *rows)
        ]
        B = np.concatenate(parts)
        for i, w in enumerate(weights):
            enters = np.concatenate(
                [np.full(s, i in e) for s, e in zip(self._sizes, self._entered)]
            )
            entering = B if np.all(enters) else B * enters[:, None]
            precision[i] = (entering * w) @ entering.T

    def shifts(self, rows: Encoded, shift: AnyNDArray) -> AnyNDArray:
        """The sums [R, L] of shifts [n, L] alone."""
        parts = []
        for c, entered in enumerate(self._entered):
            sums = [
                self._shift(c, rows, s if i in entered else 0.0 * s) for i, s in enumerate(shift.T)
            ]
            parts.append(np.stack(sums, axis=1))
        return np.concatenate(parts)

    def _shift(self, c: int, rows: Encoded, shift: AnyNDArray) -> AnyNDArray:
        """One component's sums of one output's shifts [n], [J]."""
        matrix, number = self._basis[c], self._components[c].bins.number
        sums: AnyNDArray = np.bincount(rows.codes[c], times(shift, rows.multipliers[c]), number)
        return sums if matrix is None else matrix.T @ sums


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Results of one pass over rows."""

    expected: float  # sum_n E_q[log p(y_n | rho_n)]
    data: PseudoData  # sums of the sites
    negative: int  # number of negative weights
    slope: AnyNDArray  # derivative of ``expected`` in the likelihood's parameters, [K]
    curvature: AnyNDArray  # its second derivatives, [K, K]
    across: AnyNDArray  # derivatives of the sum of shifts in these parameters, [K, R, L]


class Rows:
    """The rows of data, or this process's share of them, for passes that read a block at a time."""

    # Rows are numbered over all N of all processes, one share after the other, the first here being
    # start. Blocks and marginals are of the rows here; sums are of all, the same bits on every
    # process. X [n, D], Y [n, K], m(x) [n, L]; sample has numbers and exact inputs of some
    # rows.

    def __init__(
        self,
        components: Sequence[RowComponent],
        X: RowArray,
        Y: RowArray,
        mean: RowArray,
        sample: tuple[AnyNDArray, AnyNDArray] | None = None,
        start: int = 0,
        total: int | None = None,
        communicator: Communicator = ALONE,
    ) -> None:
        self.components = list(components)
        self.X, self.Y, self.mean, self.sample = X, Y, mean, sample
        self.start, self.communicator = start, communicator
        self.number = len(Y) if total is None else total

    @property
    def num_outputs(self) -> int:
        """The number of predictors, L."""
        return int(self.mean.shape[1])

    def subset(self, which: AnyNDArray) -> Rows:
        """Some of the rows, by number."""
        here, before = self._here(which), int(np.count_nonzero(which < self.start))
        local = which if np.all(here) and self.start == 0 else which[here] - self.start
        parts = [c.rows(local) for c in self.components]
        share = self.X[local], self.Y[local], self.mean[local]
        return Rows(parts, *share, None, before, len(which), self.communicator)

    def known(self, number: int, seed: int = 0) -> Rows:
        """At most so many rows, at random, with exact X."""
        rng = np.random.default_rng(seed)
        if self.sample is None:
            return self.subset(rng.choice(self.number, min(number, self.number), replace=False))
        indices, X = self.sample
        chosen = rng.choice(len(indices), min(number, len(indices)), replace=False)
        some = self.subset(indices[chosen])
        some.X = X[chosen][self._here(indices[chosen])]
        return some

    def _here(self, which: AnyNDArray) -> AnyNDArray:
        """Mask of the rows that are in this process, [n] of bool."""
        return (which >= self.start) & (which < self.start + len(self.Y))

    def blocks(self) -> Iterator[slice]:
        return blocks(len(self.Y), BLOCK)

    def encoded(self, at: slice) -> Encoded:
        """Codes and multipliers of a block."""
        return encoded(self.components, at)

    def marginals(
        self, values: Values, q: GaussianPosterior
    ) -> Iterator[tuple[slice, AnyNDArray, AnyNDArray]]:
        """Blocks of rows with mean and variance [n, L] of the predictor without m(x)."""
        tables = Tables(self.components, values, q, len(self.Y))
        for at in self.blocks():
            yield at, *tables.moments(self.encoded(at))

    def predictors(
        self, values: Values, q: GaussianPosterior
    ) -> Iterator[tuple[slice, AnyNDArray]]:
        """Blocks of rows with means [n, L] of the predictor, m(x) included."""
        tables = Tables(self.components, values, q, len(self.Y), means_only=True)
        for at in self.blocks():
            yield at, tables.means(self.encoded(at)) + self.mean[at]

    def means(self, values: Values, q: GaussianPosterior) -> AnyNDArray:
        """Means of the predictor at the rows here, m(x) included, [n, L]."""
        return np.concatenate([mean for _, mean in self.predictors(values, q)])

    def sites(
        self,
        likelihood: Likelihood,
        at: slice,
        mean: AnyNDArray,
        var: AnyNDArray,
        negative: float = 0.0,
        variables: Sequence[Any] = (),
    ) -> tuple[Expectations, AnyNDArray, AnyNDArray]:
        """Expectations over a block of rows with moments [n, L], and its sites."""
        # If a likelihood is not log-concave, rows far from their predictions have negative weights.
        # Only with these is q optimal, but far from the optimum they lead astray: they count last.
        # Their factor, negative, is one then, zero before, and minus one for their absolute values,
        # of which the evidence is bounded; all of them leave the optimal mean where it is.
        terms = expectations(
            likelihood, self.X[at], mean + self.mean[at], var, self.Y[at], variables
        )
        weight = np.where(terms.precision < 0.0, negative * terms.precision, terms.precision)
        return terms, weight, terms.slope + weight * mean

    def sweep(
        self,
        likelihood: Likelihood,
        values: Values,
        q: GaussianPosterior,
        tune: bool = True,
        watch: Watch | None = None,
        negative: float = 0.0,
    ) -> Sweep:
        """Sums of all rows' sites at q; ``tune``: derivatives in the likelihood's parameters."""
        return self._swept(likelihood, self.marginals(values, q), tune, watch, negative)

    def sweep_at(self, likelihood: Likelihood, mean: AnyNDArray, var: AnyNDArray) -> Sweep:
        """Sums of the sites of a predictor with moments [n, L] or [L], without m(x)."""
        shape = len(self.Y), self.num_outputs
        mean, var = np.broadcast_to(mean, shape), np.broadcast_to(var, shape)
        return self._swept(likelihood, ((at, mean[at], var[at]) for at in self.blocks()), False)

    def expected(self, likelihood: Likelihood, mean: AnyNDArray, var: AnyNDArray) -> float:
        """E[log p(y)] of all rows at a predictor of moments [L], without m(x)."""
        total = 0.0
        for at in self.blocks():
            shape = at.stop - at.start, self.num_outputs
            moments = np.broadcast_to(mean, shape), np.broadcast_to(var, shape)
            total += self.sites(likelihood, at, *moments)[0].total
        return float(self.communicator.total([total])[0])

    def _swept(
        self,
        likelihood: Likelihood,
        marginals: Iterable[tuple[slice, AnyNDArray, AnyNDArray]],
        tune: bool,
        watch: Watch | None = None,
        negative: float = 0.0,
    ) -> Sweep:
        variables = list(likelihood.trainable_variables) if tune else []
        sums = self._sums()
        expected, count = 0.0, 0
        data: PseudoData | None = None
        K = sum(int(np.size(v)) for v in variables)
        slope, curvature = np.zeros(K), np.zeros((K, K))
        across: Any = 0.0
        for at, mean, var in marginals:
            terms, weight, shift = self.sites(likelihood, at, mean, var, negative, variables)
            expected += terms.total
            count += int(np.sum(terms.precision < 0.0))
            rows = self.encoded(at)
            part = sums.of(rows, weight, shift)
            data = part if data is None else data + part
            slope, curvature = slope + terms.own_slope, curvature + terms.own_curvature
            shifts = [sums.shifts(rows, s) for s in terms.across]
            across = across + (np.stack(shifts) if shifts else np.zeros(0))
            if watch is not None:
                watch(at.stop)
        if data is None:  # other processes hold all rows of a subset
            data = sums.zero()
            across = np.zeros((K, *data.shift.shape) if K else 0)
        parts = expected, count, slope, curvature, across
        (expected, count, slope, curvature, across), data = self._reduced(data, *parts)
        return Sweep(float(expected), data, int(count), slope, curvature, np.asarray(across))

    def gather(
        self,
        weight: RowArray,
        shift: RowArray,
        watch: Watch | None = None,
        sums: Sums | None = None,
    ) -> PseudoData:
        """Sums of given sites [n, L], which are read a block at a time; at nodes by default."""
        sums = self._sums() if sums is None else sums
        data: PseudoData | None = None
        for at in self.blocks():
            part = sums.of(self.encoded(at), weight[at], shift[at])
            data = part if data is None else data + part
            if watch is not None:
                watch(at.stop)
        return self._reduced(sums.zero() if data is None else data)[1]

    def gather_neighbours(
        self, before: AnyNDArray, weight: AnyNDArray, shift: AnyNDArray, sums: Sums | None = None
    ) -> PseudoData:
        """Sums of pairs of rows, ``before`` [n] having the first or -1, and of all rows' shifts."""
        sums = self._sums() if sums is None else sums
        data = sums.zero()
        for at in self.blocks():
            pairs = at.start + np.flatnonzero(before[at] >= 0)
            rows, first = (encoded(self.components, part) for part in (pairs, before[pairs]))
            data += sums.of_neighbours(rows, first, weight[pairs])
            data = data.shifted(sums.shifts(self.encoded(at), shift[at]))
        return data

    def posterior(
        self, values: Values, roots: Sequence[AnyNDArray], weight: RowArray, shift: RowArray
    ) -> GaussianPosterior:
        """The posterior of given sites [n, L], with features at the bins themselves."""
        data = self.gather(weight, shift, sums=self.sums_at_bins(values, roots))
        return posterior_of(data.precision, data.shift, roots)

    def sums_at_bins(self, values: Values, roots: Sequence[AnyNDArray]) -> Sums:
        """Sums with features at the bins themselves."""
        features = [phi.T for phi, _ in features_at_bins(self.components, values, roots)]
        return Sums(self.components, features, self.num_outputs)

    def _sums(self) -> Sums:
        """Sums at nodes."""
        basis = [c.interpolation.matrix for c in self.components]
        return Sums(self.components, basis, self.num_outputs)

    def _reduced(self, data: PseudoData, *others: Any) -> tuple[Sequence[Any], PseudoData]:
        """Sums over all processes, in one reduction."""
        if self.communicator.alone:
            return others, data
        # triangles [L, R (R + 1) / 2] of symmetric matrices are sent
        i, j = np.triu_indices(data.precision.shape[1])
        sent = [*others, data.precision[:, i, j], data.shift, *data.masses]
        sums, number = self.communicator.total(sent), len(others)
        precision = np.empty_like(data.precision)
        precision[:, i, j] = precision[:, j, i] = sums[number]
        return sums[:number], PseudoData(precision, sums[number + 1], tuple(sums[number + 2 :]))
