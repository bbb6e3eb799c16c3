"""Kernel matrices at fixed inputs and their derivatives, in numpy."""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, Parameter
from gpflow.kernels import Kernel, Product, Sum
from scipy.sparse import csr_matrix

from ..measures import Discrete
from .correlation import (
    Correlations,
    Dual,
    Pairs,
    UnknownKernel,
    Values,
    in_double_precision,
    kernel_columns,
    leaves_of,
    parameters_of,
    with_values,
)
from .summed import Evaluations, Summed
from .terms import ZeroMean

Matrices = tuple[AnyNDArray, AnyNDArray, AnyNDArray]
"""k(Z, Z) [M, M], k(Z, X) [M, T] and the diagonal of k(X, X) [T]."""


class FixedInputKernel(abc.ABC):
    """The matrices of one kernel at fixed inputs as a function of its parameters."""

    @abc.abstractmethod
    def evaluate(self, values: Values, slopes: bool = True) -> tuple[Matrices, Pullback]:
        """The matrices, and what pulls gradients back, which it does with ``slopes`` alone."""

    def matrices(self, values: Values) -> Matrices:
        """The matrices alone, in about half the time."""
        return self.evaluate(values, slopes=False)[0]


Gradients = list[tuple[Parameter, AnyNDArray]]
Pullback = Callable[[Matrices], Gradients]
Places = tuple[AnyNDArray, AnyNDArray]  # of the points of pairs in X


def fixed_input_kernel(
    kernel: Kernel, Z: AnyNDArray, X: AnyNDArray, places: Places | None = None
) -> FixedInputKernel:
    """
    The matrices of ``kernel`` at inputs, in closed form where it is known.

    With ``places`` the covariances of pairs of points take the place of the diagonal.
    """
    if type(kernel) is Sum:
        return _Added([fixed_input_kernel(part, Z, X, places) for part in kernel.kernels])
    if type(kernel) is Summed:
        return _OfSums(kernel, Z, X)
    try:
        return _Known(kernel, Z, X, places)
    except UnknownKernel:
        return _Automatic(kernel, Z, X, places)


# --- any kernel --------------------------------------------------------------------------------


class _Automatic(FixedInputKernel):
    """By the kernel's own code, eagerly, and automatic differentiation."""

    def __init__(
        self, kernel: Kernel, Z: AnyNDArray, X: AnyNDArray, places: Places | None = None
    ) -> None:
        self._kernel, self._places = kernel, places
        self._Z, self._X = tf.constant(Z), tf.constant(X)
        self._parameters = parameters_of(kernel)

    def _outputs(self, values: Sequence[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        kernel = with_values(self._kernel, values)
        if self._places is None:
            last = kernel(self._X, full_cov=False)
        else:
            last = tf.gather_nd(kernel(self._X), np.stack(self._places, axis=1))
        return kernel(self._Z), kernel(self._Z, self._X), last

    def evaluate(self, values: Values, slopes: bool = True) -> tuple[Matrices, Pullback]:
        inputs = [tf.constant(values(p)) for p in self._parameters]
        # pulled back more than once where other components move
        with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
            tape.watch(inputs if slopes else [])
            with in_double_precision():
                outputs = self._outputs(inputs)

        def pullback(upstream: Matrices) -> Gradients:
            result = tape.gradient(
                outputs,
                inputs,
                output_gradients=[tf.constant(u) for u in upstream],
                unconnected_gradients="zero",
            )
            return [(p, np.asarray(g)) for p, g in zip(self._parameters, result)]

        K, Kzx, diagonal = (np.asarray(t) for t in outputs)
        return (K, Kzx, diagonal), pullback


# --- the kernels of terms ----------------------------------------------------------------------


class _CentredMatrices:
    """Those of a kernel g conditioned on a zero mean under a discrete measure."""

    # With g = c + h, c the level that is taken out (1 or 0), a = E_t h(x, t), b = E_t h(y, t) and e
    # = E_{t,u} h(t, u): s = h + (c (e - a - b) - a b) / (c + e), as ZeroMean has it.

    def __init__(
        self, kernel: ZeroMean, Z: AnyNDArray, X: AnyNDArray, places: Places | None
    ) -> None:
        if not isinstance(kernel.measure, Discrete):
            raise UnknownKernel
        T = np.zeros((len(kernel.measure.points), Z.shape[1]))
        T[:, list(kernel_columns(kernel) or ())] = kernel.measure.points
        self._weights = np.asarray(kernel.measure.probabilities)
        self._number = len(Z)
        both = np.concatenate([Z, X])
        self._places = places or (slice(None), slice(None))
        i, j = self._places
        pairs = Pairs(Z, both), Pairs(X[i], X[j], True), Pairs(T, T), Pairs(both, T)
        self._correlations = Correlations(kernel.base, *pairs)
        self._level = self._correlations.level
        self._constant: list[Dual] | None = None

    def __call__(self, values: Values, slopes: bool) -> list[Dual]:
        if self._correlations.fixed:
            self._constant = self._constant or self._evaluated(values, slopes)
            return self._constant
        return self._evaluated(values, slopes)

    def _evaluated(self, values: Values, slopes: bool) -> list[Dual]:
        p, M = self._weights, self._number
        inner, diagonal, square, averaged = self._correlations(values, slopes, self._level)
        mean = averaged.map(lambda a: a @ p)
        total = square.map(lambda a: p @ (a @ p))
        if self._level + total.value != 0.0:  # there is something to centre
            i, j = self._places
            left, one = mean.map(lambda a: a[:M]), mean.map(lambda a: a[M:][i])
            other = mean.map(lambda a: a[M:][j])
            inner = self._centred(inner, left, mean, total)
            diagonal = self._centred(diagonal, one, other, total, elementwise=True)
        return [inner.map(lambda a: a[:, :M]), inner.map(lambda a: a[:, M:]), diagonal]

    def _centred(self, h: Dual, a: Dual, b: Dual, e: Dual, elementwise: bool = False) -> Dual:
        """``s`` between points of means a and b: h plus ``A - B b``, which is of low rank."""
        c = float(self._level)
        inverse = 1.0 / (c + e.value)
        A, B = inverse * c * (e.value - a.value), inverse * (c + a.value)
        one = np.ones_like(b.value)

        def combined(left: Sequence[AnyNDArray], right: Sequence[AnyNDArray]) -> AnyNDArray:
            if elementwise:
                return functools.reduce(np.add, [x * y for x, y in zip(left, right)])
            return np.array(left).T @ np.array(right)

        tangents = []
        for (parameter, i, dh), (_, _, da), (_, _, db), (_, _, de) in zip(
            h.tangents, a.tangents, b.tangents, e.tangents
        ):
            level = inverse * (c * (de - da) - A * de)
            slope = inverse * (B * de - da)
            change = combined([level, slope, -B], [one, b.value, db])
            change += dh
            tangents.append((parameter, i, change))
        value = combined([A, -B], [one, b.value])
        value += h.value
        return Dual(value, tangents)


Evaluate = Callable[[Values, bool], list[Dual]]
"""The three matrices at values of parameters, with or without slopes."""


def _matrices(kernel: Kernel, Z: AnyNDArray, X: AnyNDArray, places: Places | None) -> Evaluate:
    if type(kernel) is ZeroMean:
        return _CentredMatrices(kernel, Z, X, places)
    if type(kernel) is Product:  # some of whose factors are centred
        factors = [_matrices(k, Z, X, places) for k in kernel.kernels]
        return lambda values, slopes: [
            functools.reduce(Dual.__mul__, duals)
            for duals in zip(*(factor(values, slopes) for factor in factors))
        ]
    one, other = (X, X) if places is None else (X[places[0]], X[places[1]])
    return Correlations(kernel, Pairs(Z, Z), Pairs(Z, X), Pairs(one, other, True))


def _variances(kernel: Kernel) -> list[Parameter]:
    """The variances that multiply a known kernel."""
    leaves = leaves_of(kernel)
    return [leaf.variance for leaf in leaves if hasattr(leaf, "variance")]


class _Known(FixedInputKernel):
    """A product of variances times a shape."""

    def __init__(self, kernel: Kernel, Z: AnyNDArray, X: AnyNDArray, places: Places | None) -> None:
        self._matrices = _matrices(kernel, Z, X, places)
        self._least = 0.0 if places is None else -np.inf  # of a variance, which rounding may pass
        self._variances = _variances(kernel)
        if any(v.shape.rank for v in self._variances):
            raise UnknownKernel

    def evaluate(self, values: Values, slopes: bool = True) -> tuple[Matrices, Pullback]:
        variance = math.prod(float(values(v)) for v in self._variances)
        duals = self._matrices(values, slopes)
        K, Kzx, diagonal = (variance * d.value for d in duals)

        def pullback(upstream: Matrices) -> Gradients:
            pairs = zip(upstream, (K, Kzx, diagonal))
            total = sum(float(np.vdot(u, k)) for u, k in pairs)
            result: Gradients = [(v, total / values(v)) for v in self._variances]
            for slots in zip(*(d.tangents for d in duals)):
                parameter, i, _ = slots[0]
                own = variance * sum(float(np.vdot(u, t)) for u, (_, _, t) in zip(upstream, slots))
                gradient = np.zeros(tuple(parameter.shape))
                at = () if i is None else i
                gradient[at] = own / values(parameter)[at]
                result.append((parameter, gradient))
            return result

        return (K, Kzx, np.maximum(diagonal, self._least)), pullback


# --- sums --------------------------------------------------------------------------------------


class _Added(FixedInputKernel):
    """A sum, part by part."""

    def __init__(self, parts: Sequence[FixedInputKernel]) -> None:
        self._parts = parts

    def evaluate(self, values: Values, slopes: bool = True) -> tuple[Matrices, Pullback]:
        result = [part.evaluate(values, slopes) for part in self._parts]

        def pullback(upstream: Matrices) -> Gradients:
            return [gradient for _, own in result for gradient in own(upstream)]

        every = zip(*(matrices for matrices, _ in result))
        K, Kzx, diagonal = (functools.reduce(np.add, each) for each in every)
        return (K, Kzx, diagonal), pullback


class _OfSums(FixedInputKernel):
    """Those of weighted sums of a function, from its matrices at their distinct points."""

    def __init__(self, kernel: Summed, Z: AnyNDArray, X: AnyNDArray) -> None:
        left, right = kernel.evaluations(Z), kernel.evaluations(X)
        self._A, self._B = left.matrix(), right.matrix()
        # pairs of points of each row, or of all points
        few = len(right.points) <= 2 * right.places.shape[1]
        self._squares: _PairSquares | _AllSquares = (_AllSquares if few else _PairSquares)(right)
        self._base = fixed_input_kernel(kernel.base, left.points, right.points, self._squares.pairs)

    def evaluate(self, values: Values, slopes: bool = True) -> tuple[Matrices, Pullback]:
        ((K, Kzx, pairs), back), A, B = self._base.evaluate(values, slopes), self._A, self._B

        def pullback(upstream: Matrices) -> Gradients:
            K, Kzx, diagonal = upstream
            return back((A.T @ K @ A, (B.T @ (A.T @ Kzx).T).T, self._squares.transposed(diagonal)))

        variances = np.maximum(self._squares(pairs), 0.0)
        return (A @ K @ A.T, (B @ (A @ Kzx).T).T, variances), pullback


class _PairSquares:
    """``sum_lm w_l w_m k(p_l, p_m)`` of each row from covariances of the pairs that rows have."""

    def __init__(self, rows: Evaluations) -> None:
        i, j = np.triu_indices(rows.places.shape[1])
        one, other = rows.places[:, i], rows.places[:, j]
        size = len(rows.points)
        keys = np.minimum(one, other) * size + np.maximum(one, other)
        known, inverse = np.unique(keys, return_inverse=True)
        self.pairs = known // size, known % size
        products = rows.weights[:, i] * rows.weights[:, j] * np.where(i == j, 1.0, 2.0)
        ends = np.arange(len(keys) + 1) * len(i)
        content = products.ravel(), inverse.ravel(), ends
        self._matrix = csr_matrix(content, (len(keys), len(known)))

    def __call__(self, covariances: AnyNDArray) -> AnyNDArray:
        return np.asarray(self._matrix @ covariances)

    def transposed(self, slopes: AnyNDArray) -> AnyNDArray:
        """Gradients in covariances of pairs from those in the rows' variances."""
        return np.asarray(self._matrix.T @ slopes)


class _AllSquares:
    """The same from covariances of all pairs of few points."""

    def __init__(self, rows: Evaluations) -> None:
        self.pairs = np.triu_indices(len(rows.points))
        self._twice = np.where(self.pairs[0] == self.pairs[1], 1.0, 2.0)
        self._B = rows.matrix()

    def __call__(self, covariances: AnyNDArray) -> AnyNDArray:
        whole = np.zeros((self._B.shape[1],) * 2)
        whole[self.pairs] = self._twice * covariances
        return np.asarray(self._B.multiply(self._B @ whole).sum(axis=1)).ravel()

    def transposed(self, slopes: AnyNDArray) -> AnyNDArray:
        whole = (self._B.T @ self._B.multiply(slopes[:, None])).toarray()
        return np.asarray(self._twice * whole[self.pairs])
