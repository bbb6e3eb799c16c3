"""One pass over rows: marginals from tables, sites from the likelihood, sums by pairs of bins."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood

from ..kernels.tangents import Values
from ..likelihoods import checked_observations
from .components import RowComponent
from .evidence import Evidence, GaussianPosterior, PseudoData, posterior_of, slices
from .parallel import each

BLOCK = 2**17
"""Rows at a time."""
_GATHERED = 2**13
"""Rows whose features are gathered at a time."""
_MAX_TABLE = 2**21
"""Entries of a table of two components' bins; beyond, sums are kept by occupied pairs only."""
_STEP = 1e-5
"""Of differences in a likelihood's (unconstrained) parameter."""
_FLOPS = 2e10
_LOOKUP = 3e-9
_CALL = 3e-4
"""
Floating-point operations a second, seconds an addressed number takes, and a table of a pair: what
is cheaper is chosen by them.
"""


@dataclasses.dataclass(frozen=True)
class Sweep:
    """
    What one pass saw.

    :param expected: sum_n E_q[log p(y_n | rho_n)].
    :param data: the sites' sums.
    :param negative: how many weights were negative and count as 0.
    :param slope: derivative of ``expected`` in the likelihood's parameters, [K].
    :param curvature: its second derivatives, [K, K].
    """

    expected: float
    data: PseudoData
    negative: int
    slope: AnyNDArray
    curvature: AnyNDArray


class Rows:
    """
    The rows of data as components' bins see them.

    :param components: one an additive component, in the kernel's order.
    :param X: [N, D], for likelihoods that read inputs.
    :param Y: [N, K], as the likelihood takes it.
    :param mean: the mean function at the rows, [N, L].
    """

    def __init__(
        self,
        components: Sequence[RowComponent],
        X: AnyNDArray,
        Y: AnyNDArray,
        mean: AnyNDArray,
    ) -> None:
        self.components = list(components)
        self.X, self.Y, self.mean = X, Y, mean

    @property
    def number(self) -> int:
        """N."""
        return len(self.Y)

    @property
    def num_outputs(self) -> int:
        """L."""
        return int(self.mean.shape[1])

    def subset(self, which: AnyNDArray) -> Rows:
        """Some of the rows."""
        parts = [c.rows(which) for c in self.components]
        return Rows(parts, self.X[which], self.Y[which], self.mean[which])

    def evidence(self, jitter: float) -> Evidence:
        """The evidence of pseudo-data at these components."""
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
        tables = _Tables(self.components, values, q, self.number)
        for at in self._blocks():
            yield at, *tables.at(_codes(self.components, at), _multipliers(self.components, at))

    def means(self, values: Values, q: GaussianPosterior) -> AnyNDArray:
        """Means of the predictor at all rows, m(x) included, [N, L]."""
        tables = _Tables(self.components, values, q, self.number, means_only=True)
        parts = [
            tables.means(_codes(self.components, at), _multipliers(self.components, at))
            for at in self._blocks()
        ]
        return np.concatenate(parts) + self.mean

    def _blocks(self) -> Iterator[slice]:
        for start in range(0, self.number, BLOCK):
            yield slice(start, min(start + BLOCK, self.number))

    # --- sums -----------------------------------------------------------------------------------

    def sweep(
        self, likelihood: Likelihood, values: Values, q: GaussianPosterior, tune: bool = True
    ) -> Sweep:
        """
        The sites of all rows at q, and their sums.

        :param likelihood: at its parameters.
        :param values: of the kernels' parameters.
        :param q: over whitened inducing values.
        :param tune: whether derivatives in the likelihood's parameters are wanted.
        """
        return self._sites(likelihood, self.marginals(values, q), tune)

    def weights(self, likelihood: Likelihood, mean: AnyNDArray, var: AnyNDArray) -> AnyNDArray:
        """
        The sites' precisions of all rows, few enough for one block, [N, L].

        :param mean: of the predictor, m(x) left out, [N, L].
        :param var: [N, L].
        """
        found = _expectations(likelihood, self.X, mean + self.mean, var, self.Y, ())
        return found[2]

    def sweep_at(self, likelihood: Likelihood, constant: AnyNDArray, var: float) -> Sweep:
        """
        The sites where the predictor is constant.

        :param constant: [L], beside the mean function.
        :param var: its variance.
        """

        def marginals() -> Iterator[tuple[slice, AnyNDArray, AnyNDArray]]:
            for at in self._blocks():
                shape = at.stop - at.start, self.num_outputs
                yield at, np.broadcast_to(constant, shape), np.full(shape, var)

        return self._sites(likelihood, marginals(), False)

    def _sites(
        self,
        likelihood: Likelihood,
        marginals: Iterable[tuple[slice, AnyNDArray, AnyNDArray]],
        tune: bool,
    ) -> Sweep:
        variables = list(likelihood.trainable_variables) if tune else []
        expected, negative = 0.0, 0
        data: PseudoData | None = None
        slope: Any = 0.0
        curvature: Any = 0.0
        for at, mean, var in marginals:
            total, g, w, own_slope, own_curvature = _expectations(
                likelihood, self.X[at], mean + self.mean[at], var, self.Y[at], variables
            )
            expected += total
            negative += int(np.sum(w < 0.0))
            w = np.maximum(w, 0.0)
            part = self.sums(w, g + w * mean, at)
            data = part if data is None else data + part
            slope, curvature = slope + own_slope, curvature + own_curvature
        assert data is not None
        return Sweep(expected, data, negative, np.asarray(slope), np.asarray(curvature))

    def gather(self, weight: AnyNDArray, shift: AnyNDArray) -> PseudoData:
        """
        The sums of given sites over all rows.

        :param weight: w_n, [N, L].
        :param shift: [N, L].
        """
        parts = [self.sums(weight[at], shift[at], at) for at in self._blocks()]
        data = parts[0]
        for part in parts[1:]:
            data = data + part
        return data

    def sums(self, weight: AnyNDArray, shift: AnyNDArray, at: slice) -> PseudoData:
        """
        The sums of sites over a block of rows.

        :param weight: [n, L].
        :param shift: [n, L].
        :param at: which rows.
        """
        matrices = [c.interpolation.matrix for c in self.components]
        return self._sums_in(matrices, weight, shift, at)

    def posterior(
        self, values: Values, roots: Sequence[AnyNDArray], weight: AnyNDArray, shift: AnyNDArray
    ) -> GaussianPosterior:
        """
        The posterior of given sites, features taken at the bins themselves.

        :param values: of the kernels' parameters.
        :param roots: Cholesky factors of k_c(Z_c, Z_c) there, [M_c, M_c] each.
        :param weight: w_n, [N, L].
        :param shift: [N, L].
        :raises NotPositiveDefinite: the weights overflow.
        """
        features = [phi.T for phi, _ in _features(self.components, values, roots)]
        parts = [self._sums_in(features, weight[at], shift[at], at) for at in self._blocks()]
        precision = np.sum([p.precision for p in parts], axis=0)
        return posterior_of(precision, np.sum([p.shift for p in parts], axis=0), roots)

    def _sums_in(
        self,
        matrices: Sequence[AnyNDArray | None],
        weight: AnyNDArray,
        shift: AnyNDArray,
        at: slice,
    ) -> PseudoData:
        return _sums(
            self.components,
            matrices,
            _codes(self.components, at),
            _multipliers(self.components, at),
            weight,
            shift,
        )


Codes = list[AnyNDArray]
Multipliers = list[AnyNDArray | None]


def _codes(components: Sequence[RowComponent], at: slice) -> Codes:
    return [c.bins.codes[at].astype(np.int32) for c in components]


def _multipliers(components: Sequence[RowComponent], at: slice) -> Multipliers:
    return [None if c.multiplier is None else c.multiplier[at] for c in components]


def _times(x: AnyNDArray, *multipliers: AnyNDArray | None) -> AnyNDArray:
    for m in multipliers:
        if m is not None:
            x = x * m
    return x


def _features(
    components: Sequence[RowComponent], values: Values, roots: Sequence[AnyNDArray]
) -> list[tuple[AnyNDArray, AnyNDArray]]:
    """Features [M, G] and prior variances [G] of each component at its bins."""
    found = []
    for component, root in zip(components, roots):
        (_, K, diagonal), _ = component.table.evaluate(values)
        found.append((scipy.linalg.solve_triangular(root, K, lower=True), diagonal))
    return found


# --- the likelihood at rows -------------------------------------------------------------------


def _expectations(
    likelihood: Likelihood,
    X: AnyNDArray,
    mean: AnyNDArray,
    var: AnyNDArray,
    Y: AnyNDArray,
    variables: Sequence[tf.Variable],
) -> tuple[float, AnyNDArray, AnyNDArray, AnyNDArray, AnyNDArray]:
    """
    Sum of E[log p(y_n | rho_n)]; dE/dmean and -2 dE/dvar [n, L] (Opper & Archambeau 2009); first
    and second derivatives of the sum in the likelihood's parameters.
    """
    X, Y = tf.constant(X), checked_observations(tf.constant(Y), likelihood)
    mean, var = tf.constant(mean), tf.constant(np.maximum(var, 0.0))

    def slopes(sources: Sequence[tf.Tensor | tf.Variable]) -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(sources)
            total = tf.reduce_sum(likelihood.variational_expectations(X, mean, var, Y))
        found: list[tf.Tensor] = tape.gradient(total, sources, unconnected_gradients="zero")
        return total, found

    def flat(parts: Sequence[tf.Tensor]) -> AnyNDArray:
        if not parts:
            return np.zeros(0)
        return np.concatenate([np.ravel(part.numpy()) for part in parts]).astype(np.float64)

    total, (g, dv, *own) = slopes([mean, var, *variables])
    slope = flat(own)
    # by differences: differentiated twice, a quadrature is thousands of operations
    rows = []
    for variable in variables:
        present = np.array(variable.numpy())
        for i in np.ndindex(present.shape):
            moved = present.copy()
            moved[i] += _STEP
            variable.assign(moved)
            try:
                rows.append((flat(slopes(variables)[1]) - slope) / _STEP)
            finally:
                variable.assign(present)
    curvature = np.stack(rows) if rows else np.zeros((0, 0))
    curvature = 0.5 * (curvature + curvature.T)
    return float(total), g.numpy(), -2.0 * dv.numpy(), slope, curvature


# --- the predictor from tables ------------------------------------------------------------------


class _Tables:
    """Means and variances of every component, and covariances of every two, at their bins."""

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
        features, priors = zip(*_features(components, values, q.roots))
        self._features = features
        self._means = [phi.T @ q.mean[at] for phi, at in zip(features, own)]
        if means_only:
            return
        L = q.mean.shape[1]
        self._L = L
        S = q.covariance
        pairs = list(itertools.combinations(range(len(components)), 2))
        P = len(q.mean)
        tabled = sum(
            2.0 * self._sizes[a] * self._sizes[b] * len(q.roots[a]) / _FLOPS + number * _LOOKUP
            for a, b in pairs
        )
        self._gathers = number * 2.0 * P * P / _FLOPS < tabled
        open_variance = [p - np.sum(np.square(f), axis=0) for p, f in zip(priors, features)]
        if self._gathers:
            self._S, self._open = S, open_variance
            return
        self._own = [
            np.stack(
                [o + np.sum(phi * (S[i][at, at] @ phi), axis=0) for i in range(L)],
                axis=1,
            )
            for phi, at, o in zip(features, own, open_variance)
        ]
        self._pairs: dict[tuple[int, int], list[AnyNDArray]] = {}
        self._wide: dict[tuple[int, int], list[AnyNDArray]] = {}

        def make(pair: tuple[int, int]) -> None:
            a, b = pair
            half = [2.0 * (features[a].T @ S[i][own[a], own[b]]) for i in range(L)]
            if self._sizes[a] * self._sizes[b] > _MAX_TABLE:
                self._wide[pair] = half
            else:
                self._pairs[pair] = [np.ravel(h @ features[b]) for h in half]

        each(make, pairs)

    def means(self, codes: Codes, multipliers: Multipliers) -> AnyNDArray:
        """[n, L], without m(x)."""
        total = 0.0
        for table, code, m in zip(self._means, codes, multipliers):
            total = total + _times(table[code], None if m is None else m[:, None])
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
                _times(phi[:, code[at]], None if m is None else m[at])
                for phi, code, m in zip(self._features, codes, multipliers)
            ]
            F = np.concatenate(rows)
            left: Any = 0.0
            for o, code, m in zip(self._open, codes, multipliers):
                left = left + _times(o[code[at]], None if m is None else m[at] ** 2)
            for i in range(self._L):
                var[at, i] = np.einsum("pn,pn->n", F, self._S[i] @ F) + left

        each(part, range(0, n, _GATHERED))
        return var

    def _looked_up(self, codes: Codes, multipliers: Multipliers) -> AnyNDArray:
        n = len(codes[0])
        var = np.zeros((n, self._L))

        def part(start: int) -> None:
            at = slice(start, min(start + _GATHERED, n))
            own = [code[at] for code in codes]
            factors = [None if m is None else m[at] for m in multipliers]
            total = np.zeros((len(own[0]), self._L))
            for table, code, m in zip(self._own, own, factors):
                total += _times(table[code], None if m is None else np.square(m)[:, None])
            for (a, b), tables in self._pairs.items():
                index = own[a] * np.int32(self._sizes[b]) + own[b]
                for i, table in enumerate(tables):
                    total[:, i] += _times(np.take(table, index), factors[a], factors[b])
            for (a, b), halves in self._wide.items():
                right = self._features[b].T[own[b]]
                for i, half in enumerate(halves):
                    found = np.einsum("nm,nm->n", half[own[a]], right)
                    total[:, i] += _times(found, factors[a], factors[b])
            var[at] = total

        each(part, range(0, n, _GATHERED))
        return var


# --- sums by bins -------------------------------------------------------------------------------


def _sums(
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
        for i in outputs:
            s = np.bincount(code, _times(shift[:, i], m), minlength=number)
            shifts[at, i] = s if matrix is None else matrix.T @ s
            mass = np.bincount(code, _times(weights[i], m, m), minlength=number)
            own = np.diag(mass) if matrix is None else (matrix.T * mass) @ matrix
            precision[i, at, at] = own
            masses[c][i] = np.bincount(component.open_bins, mass, minlength=component.num_open)

    def pair(which: tuple[int, int]) -> None:
        a, b = which
        shape = components[a].bins.number, components[b].bins.number
        for i in outputs:
            w = _times(weights[i], multipliers[a], multipliers[b])
            W = scipy.sparse.coo_matrix((w, (codes[a], codes[b])), shape=shape)
            # a table of few bins is filled fastest; of many, only the pairs that occur are kept
            table = W.toarray() if shape[0] * shape[1] <= _MAX_TABLE else W.tocsr()
            half = table if matrices[b] is None else table @ matrices[b]
            half = half.toarray() if scipy.sparse.issparse(half) else half
            left = matrices[a]
            block = half if left is None else left.T @ half
            precision[i, places[a], places[b]] = block
            precision[i, places[b], places[a]] = block.T

    number = range(len(components))
    pairs = list(itertools.combinations(number, 2))
    rows = len(codes[0])
    if 2.0 * rows * total**2 / _FLOPS < len(pairs) * (_CALL + rows * _LOOKUP):
        each(single, number)
        rest = [
            _times(_basis(m, c)[code].T, z)
            for m, c, code, z in zip(matrices, components, codes, multipliers)
        ]
        basis = np.concatenate(rest)
        for i in outputs:
            precision[i] = (basis * weights[i]) @ basis.T
        return PseudoData(precision, shifts, tuple(masses))
    tasks: list[tuple[Callable[[Any], None], Any]] = [(single, c) for c in number]
    tasks += [(pair, which) for which in pairs]
    each(lambda task: task[0](task[1]), tasks)
    return PseudoData(precision, shifts, tuple(masses))


def _basis(matrix: AnyNDArray | None, component: RowComponent) -> AnyNDArray:
    """What a component's bins are expressed in, [G, J]."""
    return np.eye(component.bins.number) if matrix is None else matrix
