"""
Kernel matrices at fixed inputs and their derivatives, in numpy.

Learning hyperparameters evaluates small kernel matrices at the same inputs hundreds of times. As a
graph of TensorFlow that costs a second to trace and a millisecond for every few operations; here
distances are computed once, and a matrix and its derivatives share one exponential. The kernels of
GAM terms are known in this form; any other kernel is evaluated by itself and differentiated
automatically.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, Parameter
from gpflow.kernels import (
    Constant,
    Kernel,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    Product,
    SquaredExponential,
)

from ..measures import Discrete
from .columns import kernel_columns
from .factor import Factor, Indicator
from .functional import parameters_of, with_values
from .linear import CentredLinear
from .on_columns import OnColumns
from .zero_mean import ZeroMean

Matrices = tuple[AnyNDArray, AnyNDArray, AnyNDArray]
"""k(Z, Z) [M, M], k(Z, X) [M, T] and the diagonal of k(X, X) [T]."""

Values = Callable[[Parameter], AnyNDArray]
"""The constrained value of a parameter."""


class KernelTangents(abc.ABC):
    """
    The matrices of one kernel at fixed inputs as a function of its parameters.

    :param kernel: the kernel.
    :param Z: rows of inputs [M, D].
    :param X: rows of inputs [T, D].
    """

    @abc.abstractmethod
    def evaluate(self, values: Values) -> tuple[Matrices, Callable[[Matrices], Gradients]]:
        """
        The matrices, and what pulls gradients back.

        :param values: of the parameters.
        :return: the matrices; a function from gradients with respect to each of them to gradients
            with respect to the parameters' constrained values.
        """

    @abc.abstractmethod
    def matrices(self, values: Values) -> Matrices:
        """
        The matrices alone, in about half the time.

        :param values: of the parameters.
        """


Gradients = list[tuple[Parameter, AnyNDArray]]


def kernel_tangents(kernel: Kernel, Z: AnyNDArray, X: AnyNDArray) -> KernelTangents:
    """
    The matrices of ``kernel`` at inputs, in closed form where it is known.

    :param kernel: any GPflow kernel, with its ``active_dims``.
    :param Z: [M, D].
    :param X: [T, D].
    """
    try:
        return _Known(kernel, Z, X)
    except _UnknownKernel:
        return _Automatic(kernel, Z, X)


# --- any kernel --------------------------------------------------------------------------------


class _Automatic(KernelTangents):
    """By the kernel's own code, eagerly, and automatic differentiation."""

    def __init__(self, kernel: Kernel, Z: AnyNDArray, X: AnyNDArray) -> None:
        self._kernel, self._Z, self._X = kernel, tf.constant(Z), tf.constant(X)
        self._parameters = parameters_of(kernel)

    def evaluate(self, values: Values) -> tuple[Matrices, Callable[[Matrices], Gradients]]:
        inputs = [tf.constant(values(p)) for p in self._parameters]
        # pulled back more than once where other components move
        with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
            tape.watch(inputs)
            kernel = with_values(self._kernel, inputs)
            outputs = kernel(self._Z), kernel(self._Z, self._X), kernel(self._X, full_cov=False)

        def pullback(upstream: Matrices) -> Gradients:
            found = tape.gradient(
                outputs,
                inputs,
                output_gradients=[tf.constant(u) for u in upstream],
                unconnected_gradients="zero",
            )
            return [(p, np.asarray(g)) for p, g in zip(self._parameters, found)]

        K, Kzx, diagonal = (np.asarray(t) for t in outputs)
        return (K, Kzx, diagonal), pullback

    def matrices(self, values: Values) -> Matrices:
        kernel = with_values(self._kernel, [tf.constant(values(p)) for p in self._parameters])
        outputs = kernel(self._Z), kernel(self._Z, self._X), kernel(self._X, full_cov=False)
        K, Kzx, diagonal = (np.asarray(t) for t in outputs)
        return K, Kzx, diagonal


# --- the kernels of terms ----------------------------------------------------------------------


class _UnknownKernel(Exception):
    """A kernel that has no closed form here."""


class _Shape(abc.ABC):
    """A correlation at pairs of fixed inputs, its variance taken out."""

    level: bool = False
    """Whether it is one where inputs meet, so that a deficit keeps the digits of long scales."""

    @abc.abstractmethod
    def __call__(self, values: Values, slopes: bool, deficit: bool = False) -> _Dual:
        """The values at the pairs, less one where ``deficit``; derivatives where ``slopes``."""

    def average(self, values: Values, slopes: bool, deficit: bool, weights: AnyNDArray) -> _Dual:
        """The values [n, m] times weights [m]."""
        return self(values, slopes, deficit).map(lambda K: K @ weights)


Tangent = tuple[Parameter, int | None, AnyNDArray]
"""A parameter, an index into it, and the derivative in the logarithm of that entry."""


class _Dual:
    """A matrix and its derivatives in the logarithms of the parameters of its shape."""

    def __init__(self, value: AnyNDArray, tangents: Sequence[Tangent] = ()) -> None:
        self.value = value
        self.tangents = list(tangents)

    def map(self, linear: Callable[[AnyNDArray], AnyNDArray]) -> _Dual:
        return _Dual(linear(self.value), [(p, i, linear(t)) for p, i, t in self.tangents])

    def __mul__(self, other: _Dual) -> _Dual:
        return _Dual(
            self.value * other.value,
            [(p, i, t * other.value) for p, i, t in self.tangents]
            + [(p, i, self.value * t) for p, i, t in other.tangents],
        )


class _Fixed(_Shape):
    """A matrix without parameters."""

    def __init__(self, value: AnyNDArray) -> None:
        self._dual = _Dual(value)

    def __call__(self, values: Values, slopes: bool, deficit: bool = False) -> _Dual:
        return self._dual


class _Distances(_Shape):
    """
    A stationary correlation; ``squares`` holds a squared distance [n, m] for each lengthscale.

    Formulas: Rasmussen & Williams 2006, section 4.2.
    """

    level = True

    def __init__(self, kind: type[Kernel], scales: Parameter, squares: list[AnyNDArray]) -> None:
        self._kind, self._scales, self._squares = kind, scales, squares

    def __call__(self, values: Values, slopes: bool, deficit: bool = False) -> _Dual:
        places, inverse = self._inverse(values)
        value, slope = _profile(self._kind, self._distance(inverse), slopes, deficit)
        if slope is None:
            return _Dual(value)
        # d k / d log length = -2 (d / length^2) dk/dr2
        every = zip(places, inverse, self._squares)
        return _Dual(value, [(self._scales, i, (-2.0 * s * d) * slope) for i, s, d in every])

    def average(self, values: Values, slopes: bool, deficit: bool, weights: AnyNDArray) -> _Dual:
        places, inverse = self._inverse(values)
        value, slope = _profile(self._kind, self._distance(inverse), slopes, deficit)
        if slope is None:
            return _Dual(value @ weights)
        slope *= weights
        every = zip(places, inverse, self._squares)
        means = [(i, -2.0 * s * np.einsum("nm,nm->n", slope, d)) for i, s, d in every]
        return _Dual(value @ weights, [(self._scales, i, mean) for i, mean in means])

    def _inverse(self, values: Values) -> tuple[Sequence[int | None], list[float]]:
        """Where lengthscales stand in their parameter, and the inverses of their squares."""
        scales = values(self._scales)
        with np.errstate(divide="ignore", over="ignore", under="ignore"):
            # not Python's numbers, which raise where a search tries what is out of range
            inverse = np.ravel(1.0 / np.square(scales)).tolist()
        return ((None,) if np.ndim(scales) == 0 else range(len(scales))), inverse

    def _distance(self, inverse: Sequence[float]) -> AnyNDArray:
        """Squared, in lengthscales."""
        total: AnyNDArray = self._squares[0] * inverse[0]
        for d, s in zip(self._squares[1:], inverse[1:]):
            total += d * s
        return total


def _profile(
    kind: type[Kernel], r2: AnyNDArray, slopes: bool, deficit: bool
) -> tuple[AnyNDArray, AnyNDArray | None]:
    """
    A correlation (less one where ``deficit``) and its derivative in the squared distance.

    :param r2: may be overwritten.
    :param slopes: whether the derivative is wanted.
    """
    slope: AnyNDArray | None = None
    if kind is SquaredExponential:
        r2 *= -0.5
        value = np.expm1(r2, out=r2) if deficit else np.exp(r2, out=r2)
        if slopes:
            slope = -0.5 * value
            if deficit:
                slope -= 0.5
        return value, slope
    if kind is Matern52:
        s = np.sqrt(5.0 * r2)
        e = np.exp(-s)
        if slopes:
            slope = (-5.0 / 6.0) * (1.0 + s) * e
        polynomial = s + s * s / 3.0
        return (np.expm1(-s) + polynomial * e if deficit else (1.0 + polynomial) * e), slope
    if kind is Matern32:
        s = np.sqrt(3.0 * r2)
        e = np.exp(-s)
        if slopes:
            slope = -1.5 * e
        return (np.expm1(-s) + s * e if deficit else (1.0 + s) * e), slope
    r = np.sqrt(r2)
    e = np.exp(-r)
    if slopes:
        # the derivative is infinite where inputs meet, and its product with their distance zero
        slope = np.divide(-0.5 * e, r, out=np.zeros_like(r), where=r > 0.0)
    return (np.expm1(-r) if deficit else e), slope


class _Multiplied(_Shape):
    """A product."""

    def __init__(self, factors: Sequence[_Shape]) -> None:
        self._factors = factors

    def __call__(self, values: Values, slopes: bool, deficit: bool = False) -> _Dual:
        return functools.reduce(_Dual.__mul__, (f(values, slopes) for f in self._factors))


def _shape(kernel: Kernel, A: AnyNDArray, B: AnyNDArray, elementwise: bool = False) -> _Shape:
    """
    The shape of a kernel between rows of A and B, or row by row.

    :raises _UnknownKernel: it is not one of the kernels of terms.
    """
    kind = type(kernel)
    if kind in (SquaredExponential, Matern12, Matern32, Matern52):
        columns = kernel_columns(kernel)
        if columns is None:
            raise _UnknownKernel
        squares = [np.square(_differences(A[:, c], B[:, c], elementwise)) for c in columns]
        if kernel.lengthscales.shape.rank == 0 or kernel.lengthscales.shape == [1]:
            squares = [functools.reduce(np.add, squares)]
        return _Distances(kind, kernel.lengthscales, squares)
    if kind is Periodic:
        base = kernel.base_kernel
        columns = kernel_columns(base)
        if type(base) is not SquaredExponential or columns is None or kernel.period.trainable:
            raise _UnknownKernel
        if len(columns) != 1 or kernel.period.shape.rank or base.lengthscales.shape.rank:
            raise _UnknownKernel
        apart = _differences(A[:, columns[0]], B[:, columns[0]], elementwise)
        sine = np.sin(np.pi * apart / float(kernel.period.numpy()))
        return _Distances(SquaredExponential, base.lengthscales, [np.square(sine)])
    if kind is Constant:
        return _Fixed(_outer(np.ones(len(A)), np.ones(len(B)), elementwise))
    if kind in (Factor, CentredLinear, Indicator):
        columns = kernel_columns(kernel)
        if columns is None or len(columns) != 1:
            raise _UnknownKernel
        a, b = A[:, columns[0]], B[:, columns[0]]
        if kind is Factor:
            return _Fixed((_differences(a, b, elementwise) == 0.0).astype(a.dtype))
        if kind is CentredLinear:
            return _Fixed(_outer(a - kernel.centre, b - kernel.centre, elementwise))
        on, other = ((x == kernel.level).astype(x.dtype) for x in (a, b))
        return _Fixed(_outer(on, other, elementwise))
    if kind is OnColumns:
        own = list(kernel_columns(kernel) or ())
        return _shape(kernel.base, A[:, own], B[:, own], elementwise)
    if kind is Product:
        return _Multiplied([_shape(k, A, B, elementwise) for k in kernel.kernels])
    raise _UnknownKernel


def _differences(a: AnyNDArray, b: AnyNDArray, elementwise: bool) -> AnyNDArray:
    found: AnyNDArray = a - b if elementwise else a[:, None] - b[None, :]
    return found


def _outer(a: AnyNDArray, b: AnyNDArray, elementwise: bool) -> AnyNDArray:
    return a * b if elementwise else a[:, None] * b[None, :]


class _Matrices:
    """The shapes that make up the three matrices of a kernel."""

    def __init__(self, kernel: Kernel, Z: AnyNDArray, X: AnyNDArray) -> None:
        pairs = (Z, Z, False), (Z, X, False), (X, X, True)
        self._shapes = [_shape(kernel, *pair) for pair in pairs]

    def __call__(self, values: Values, slopes: bool) -> list[_Dual]:
        return [shape(values, slopes) for shape in self._shapes]


class _ProductMatrices:
    """Those of a product some of whose factors are centred."""

    def __init__(self, kernel: Product, Z: AnyNDArray, X: AnyNDArray) -> None:
        self._factors = [_matrices(k, Z, X) for k in kernel.kernels]

    def __call__(self, values: Values, slopes: bool) -> list[_Dual]:
        parts = zip(*(factor(values, slopes) for factor in self._factors))
        return [functools.reduce(_Dual.__mul__, duals) for duals in parts]


class _CentredMatrices:
    """
    Those of a kernel g conditioned on a zero mean under a discrete measure.

    With g = c + h, c the level that is taken out (1 or 0), a = E_t h(x, t), b = E_t h(y, t) and
    e = E_{t,u} h(t, u): ``s = h + (c (e - a - b) - a b) / (c + e)``, as :class:`ZeroMean` has it.
    """

    def __init__(self, kernel: ZeroMean, Z: AnyNDArray, X: AnyNDArray) -> None:
        if not isinstance(kernel.measure, Discrete):
            raise _UnknownKernel
        T = np.zeros((len(kernel.measure.points), Z.shape[1]))
        T[:, list(kernel_columns(kernel) or ())] = kernel.measure.points
        self._weights = np.asarray(kernel.measure.probabilities)
        self._number = len(Z)
        both = np.concatenate([Z, X])
        pairs = (Z, Z, False), (Z, X, False), (X, X, True), (both, T, False), (T, T, False)
        self._shapes = [_shape(kernel.base, *pair) for pair in pairs]
        self._level = self._shapes[0].level
        self._constant: list[_Dual] | None = None

    def __call__(self, values: Values, slopes: bool) -> list[_Dual]:
        if all(isinstance(shape, _Fixed) for shape in self._shapes):
            self._constant = self._constant or self._evaluated(values, slopes)
            return self._constant
        return self._evaluated(values, slopes)

    def _evaluated(self, values: Values, slopes: bool) -> list[_Dual]:
        p, M = self._weights, self._number
        *pairs, means, square = self._shapes
        inner = [shape(values, slopes, self._level) for shape in pairs]
        mean = means.average(values, slopes, self._level, p)
        total = square.average(values, slopes, self._level, p).map(lambda a: p @ a)
        if self._level + total.value == 0.0:  # nothing left to centre
            return inner
        left, other = mean.map(lambda a: a[:M]), mean.map(lambda a: a[M:])
        K, Kzx, diagonal = inner
        return [
            self._centred(K, left, left, total),
            self._centred(Kzx, left, other, total),
            self._centred(diagonal, other, other, total, elementwise=True),
        ]

    def _centred(self, h: _Dual, a: _Dual, b: _Dual, e: _Dual, elementwise: bool = False) -> _Dual:
        """
        ``s`` between points of means a [n] and b [m], [n, m], or row by row.

        What is added to h is of low rank: ``A - B b`` with ``A = c (e - a) / (c + e)`` and ``B = (c
        + a) / (c + e)``, and so are its derivatives.
        """
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
        return _Dual(value, tangents)


def _matrices(
    kernel: Kernel, Z: AnyNDArray, X: AnyNDArray
) -> _Matrices | _ProductMatrices | _CentredMatrices:
    if type(kernel) is ZeroMean:
        return _CentredMatrices(kernel, Z, X)
    if type(kernel) is Product:
        return _ProductMatrices(kernel, Z, X)
    return _Matrices(kernel, Z, X)


def _variances(kernel: Kernel) -> list[Parameter]:
    """The variances that multiply a known kernel."""
    kind = type(kernel)
    if kind in (Product,):
        return [v for k in kernel.kernels for v in _variances(k)]
    if kind in (ZeroMean, OnColumns):
        return _variances(kernel.base)
    if kind is Periodic:
        return _variances(kernel.base_kernel)
    return [] if kind is Indicator else [kernel.variance]


class _Known(KernelTangents):
    """A product of variances times a shape."""

    def __init__(self, kernel: Kernel, Z: AnyNDArray, X: AnyNDArray) -> None:
        self._matrices = _matrices(kernel, Z, X)
        self._variances = _variances(kernel)
        if any(v.shape.rank for v in self._variances):
            raise _UnknownKernel

    def evaluate(self, values: Values) -> tuple[Matrices, Callable[[Matrices], Gradients]]:
        variance = self._variance(values)
        duals = self._matrices(values, True)
        K, Kzx, diagonal = (variance * d.value for d in duals)

        def pullback(upstream: Matrices) -> Gradients:
            pairs = zip(upstream, (K, Kzx, diagonal))
            total = sum(float(np.vdot(u, k)) for u, k in pairs)
            found: Gradients = [(v, total / values(v)) for v in self._variances]
            for slots in zip(*(d.tangents for d in duals)):
                parameter, i, _ = slots[0]
                own = variance * sum(float(np.vdot(u, t)) for u, (_, _, t) in zip(upstream, slots))
                gradient = np.zeros(tuple(parameter.shape))
                at = () if i is None else i
                gradient[at] = own / values(parameter)[at]
                found.append((parameter, gradient))
            return found

        return (K, Kzx, np.maximum(diagonal, 0.0)), pullback

    def matrices(self, values: Values) -> Matrices:
        variance = self._variance(values)
        K, Kzx, diagonal = (variance * d.value for d in self._matrices(values, False))
        return K, Kzx, np.maximum(diagonal, 0.0)

    def _variance(self, values: Values) -> float:
        return float(np.prod([values(v) for v in self._variances]))
