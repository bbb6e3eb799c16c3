"""Correlations of terms' kernels at fixed pairs of inputs, and their derivatives, in numpy."""

from __future__ import annotations

import abc
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
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

from .columns import kernel_columns
from .factor import Factor, Indicator
from .linear import CentredLinear
from .on_columns import OnColumns
from .shaped import Shaped

Values = Callable[[Parameter], AnyNDArray]
"""The constrained value of a parameter."""


_PART = 8192
"""Pairs that are worked on at once where matrices are large: few enough for a core's own cache."""


class UnknownKernel(Exception):
    """A kernel that has no closed form here."""


class Shape(abc.ABC):
    """A correlation at pairs of fixed inputs, its variance taken out."""

    level: bool = False
    """Whether it is one where inputs meet, so that a deficit keeps the digits of long scales."""

    @abc.abstractmethod
    def __call__(self, values: Values, slopes: bool, deficit: bool = False) -> Dual:
        """The values at the pairs, less one where ``deficit``; derivatives where ``slopes``."""


Tangent = tuple[Parameter, int | None, AnyNDArray]
"""A parameter, an index into it, and the derivative in the logarithm of that entry."""


class Dual:
    """A matrix and its derivatives in the logarithms of the parameters of its shape."""

    def __init__(self, value: AnyNDArray, tangents: Sequence[Tangent] = ()) -> None:
        self.value = value
        self.tangents = list(tangents)

    def map(self, linear: Callable[[AnyNDArray], AnyNDArray]) -> Dual:
        return Dual(linear(self.value), [(p, i, linear(t)) for p, i, t in self.tangents])

    def __mul__(self, other: Dual) -> Dual:
        return Dual(
            self.value * other.value,
            [(p, i, t * other.value) for p, i, t in self.tangents]
            + [(p, i, self.value * t) for p, i, t in other.tangents],
        )


class Fixed(Shape):
    """A matrix without parameters."""

    def __init__(self, value: AnyNDArray) -> None:
        self._dual = Dual(value)

    def __call__(self, values: Values, slopes: bool, deficit: bool = False) -> Dual:
        return self._dual


class _Distances(Shape):
    """
    A stationary correlation; ``squares`` holds a squared distance [n, m] for each lengthscale.

    Formulas: Rasmussen & Williams 2006, section 4.2.
    """

    level = True

    def __init__(self, kind: type[Kernel], scales: Parameter, squares: list[AnyNDArray]) -> None:
        self._kind, self._scales, self._squares = kind, scales, squares

    def __call__(self, values: Values, slopes: bool, deficit: bool = False) -> Dual:
        places, inverse = self._inverse(values)
        value, slope = profile(self._kind, self._distance(inverse), slopes, deficit)
        if slope is None:
            return Dual(value)
        # d k / d log length = -2 (d / length^2) dk/dr2
        every = zip(places, inverse, self._squares)
        return Dual(value, [(self._scales, i, (-2.0 * s * d) * slope) for i, s, d in every])

    def _inverse(self, values: Values) -> tuple[Sequence[int | None], list[float]]:
        """Where lengthscales stand in their parameter, and the inverses of their squares."""
        scales = values(self._scales)
        if np.ndim(scales) == 0:
            square = float(scales) * float(scales)
            # what a search tries may be out of range, which Python's own division raises for
            return (None,), [1.0 / square if square != 0.0 else math.inf]
        with np.errstate(divide="ignore", over="ignore", under="ignore"):
            return range(len(scales)), np.ravel(1.0 / np.square(scales)).tolist()

    def _distance(self, inverse: Sequence[float]) -> AnyNDArray:
        """Squared, in lengthscales."""
        total: AnyNDArray = self._squares[0] * inverse[0]
        for d, s in zip(self._squares[1:], inverse[1:]):
            total += d * s
        return total

    def joined(self, others: Sequence[_Distances]) -> tuple[_Distances, list[tuple[int, ...]]]:
        """This and others of the same kernel as one row of pairs, and what shapes they have."""
        every = (self, *others)
        squares = [
            np.concatenate([np.ravel(d) for d in each])
            for each in zip(*(s._squares for s in every))
        ]
        return _Distances(self._kind, self._scales, squares), [s._squares[0].shape for s in every]


class Averages:
    """
    Averages of one kernel's shape over points, E_t k(x, t), for many x.

    They come part by part: whole matrices would cost more in fresh memory than in arithmetic.

    :param kernel: whose shape.
    :param A: the points x, [n, D].
    :param T: the points t, [J, D].
    :param weights: of those, [J].
    :raises UnknownKernel: it is not one of the kernels of terms.
    """

    def __init__(self, kernel: Kernel, A: AnyNDArray, T: AnyNDArray, weights: AnyNDArray) -> None:
        rows = max(1, _PART // len(T))
        self._parts = [shape_of(kernel, A[i : i + rows], T) for i in range(0, len(A), rows)]
        self._weights = weights

    @classmethod
    def worth(cls, shape: Shape, pairs: int) -> bool:
        """Whether a shape at so many pairs had better come part by part."""
        return isinstance(shape, _Distances) and pairs > 4 * _PART

    def __call__(self, values: Values, slopes: bool, deficit: bool = False) -> Dual:
        found = [
            part(values, slopes, deficit).map(lambda a: a @ self._weights) for part in self._parts
        ]
        slots = zip(*(part.tangents for part in found))
        return Dual(
            np.concatenate([part.value for part in found]),
            [(own[0][0], own[0][1], np.concatenate([t for _, _, t in own])) for own in slots],
        )


class SurfaceAverages:
    """
    :class:`Averages` of a squared exponential of two columns, at points that make up a grid.

    With ``1 + d(x, t)`` the kernel of a margin, ``E_t d = E_t d_1 + E_t d_2 + E_t d_1 d_2``, of
    which the last is a product of matrices of the margins' distinct values.

    :param kernel: a squared exponential of two columns, each with a lengthscale of its own.
    :param A: the points x, [n, D].
    :param T: the points t, [J, D].
    :param weights: of those, [J].
    """

    def __init__(self, kernel: Kernel, A: AnyNDArray, T: AnyNDArray, weights: AnyNDArray) -> None:
        self._scales, self._weights = kernel.lengthscales, weights
        self._squares, self._at = [], []
        for column in kernel_columns(kernel) or ():
            distinct, at = np.unique(A[:, column], return_inverse=True)
            self._squares.append(np.square(differences(distinct, T[:, column], False)))
            self._at.append(at)

    @classmethod
    def worth(cls, kernel: Kernel, A: AnyNDArray) -> bool:
        """Whether the kernel is such a one, and the points repeat values of its columns."""
        columns = kernel_columns(kernel)
        if type(kernel) is not SquaredExponential or columns is None or len(columns) != 2:
            return False
        if tuple(kernel.lengthscales.shape) != (2,):
            return False
        return 2 * sum(len(np.unique(A[:, c])) for c in columns) < len(A)

    def __call__(self, values: Values, slopes: bool, deficit: bool = False) -> Dual:
        with np.errstate(divide="ignore", over="ignore", under="ignore"):
            inverse = 1.0 / np.square(values(self._scales))
        scaled = [s * d for s, d in zip(inverse, self._squares)]
        first, second = (np.expm1(-0.5 * r2) for r2 in scaled)
        level = 0.0 if deficit else float(np.sum(self._weights))
        value = level + self._in_margin(first, 0) + self._in_margin(second, 1)
        value = value + self._together(first, second)
        if not slopes:
            return Dual(value)
        # d k / d log length = r2 k
        slope, other = (r2 * (1.0 + d) for r2, d in zip(scaled, (first, second)))
        moved = (
            self._in_margin(slope, 0) + self._together(slope, second),
            self._in_margin(other, 1) + self._together(first, other),
        )
        return Dual(value, [(self._scales, i, tangent) for i, tangent in enumerate(moved)])

    def _in_margin(self, d: AnyNDArray, margin: int) -> AnyNDArray:
        """E_t d, a function of one margin, [n]."""
        found: AnyNDArray = (d @ self._weights)[self._at[margin]]
        return found

    def _together(self, first: AnyNDArray, second: AnyNDArray) -> AnyNDArray:
        """E_t d_1 d_2, [n]."""
        found: AnyNDArray = (first * self._weights) @ second.T
        return found[self._at[0], self._at[1]]


class Shapes:
    """
    The shapes of one kernel at several sets of pairs, evaluated together.

    Matrices are small, and what a call of numpy costs beside its work is paid once.

    :param shapes: of the same kernel.
    """

    def __init__(self, shapes: Sequence[Shape]) -> None:
        self._each, self._joined = list(shapes), None
        self.level = self._each[0].level
        self.fixed = all(isinstance(shape, Fixed) for shape in self._each)
        distances = [shape for shape in self._each if isinstance(shape, _Distances)]
        if len(distances) == len(self._each):
            self._joined, self._sizes = distances[0].joined(distances[1:])
            ends = np.cumsum([0, *(int(np.prod(size)) for size in self._sizes)]).tolist()
            self._places = [slice(a, b) for a, b in itertools.pairwise(ends)]

    def __call__(self, values: Values, slopes: bool, deficit: bool = False) -> list[Dual]:
        if self._joined is None:
            return [shape(values, slopes, deficit) for shape in self._each]
        found = self._joined(values, slopes, deficit)
        parts = self._split(found.value)
        moved = [(p, i, self._split(t)) for p, i, t in found.tangents]
        return [Dual(v, [(p, i, t[at]) for p, i, t in moved]) for at, v in enumerate(parts)]

    def _split(self, flat: AnyNDArray) -> list[AnyNDArray]:
        return [flat[at].reshape(size) for at, size in zip(self._places, self._sizes)]


def profile(
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


class _Multiplied(Shape):
    """A product."""

    def __init__(self, factors: Sequence[Shape]) -> None:
        self._factors = factors

    def __call__(self, values: Values, slopes: bool, deficit: bool = False) -> Dual:
        return functools.reduce(Dual.__mul__, (f(values, slopes) for f in self._factors))


class _Splines(Shape):
    """
    Splines whose coefficients have a correlation [J, J].

    :param inner: that of the coefficients.
    :param left: the splines at points, [n, J].
    :param right: [m, J], or [n, J] row by row.
    """

    def __init__(self, inner: Shape, left: AnyNDArray, right: AnyNDArray, elementwise: bool):
        self._inner, self._left, self._right, self._rows = inner, left, right, elementwise
        self.level = inner.level  # splines add up to one

    def __call__(self, values: Values, slopes: bool, deficit: bool = False) -> Dual:
        def between(K: AnyNDArray) -> AnyNDArray:
            half: AnyNDArray = self._left @ K
            found: AnyNDArray = (
                np.sum(half * self._right, axis=1) if self._rows else half @ self._right.T
            )
            return found

        return self._inner(values, slopes, deficit).map(between)


ShapeOf = Callable[[Any, AnyNDArray, AnyNDArray, bool], Shape]
"""What :func:`shape_of` does for one class of kernels."""
_REGISTERED: dict[type, ShapeOf] = {}


def register_shape(kind: type[Kernel]) -> Callable[[ShapeOf], ShapeOf]:
    """
    Decorator of a function that makes the shape of a class of kernels, of exactly that class.

    :param kind: the class.
    """

    def register(function: ShapeOf) -> ShapeOf:
        _REGISTERED[kind] = function
        return function

    return register


def shape_of(kernel: Kernel, A: AnyNDArray, B: AnyNDArray, elementwise: bool = False) -> Shape:
    """
    The shape of a kernel between rows of A and B, or row by row.

    :raises UnknownKernel: it is not one of the kernels of terms.
    """
    kind = type(kernel)
    if kind in (SquaredExponential, Matern12, Matern32, Matern52):
        columns = kernel_columns(kernel)
        if columns is None:
            raise UnknownKernel
        squares = [np.square(differences(A[:, c], B[:, c], elementwise)) for c in columns]
        if kernel.lengthscales.shape.rank == 0 or kernel.lengthscales.shape == [1]:
            squares = [functools.reduce(np.add, squares)]
        return _Distances(kind, kernel.lengthscales, squares)
    if kind is Periodic:
        base = kernel.base_kernel
        columns = kernel_columns(base)
        if type(base) is not SquaredExponential or columns is None or kernel.period.trainable:
            raise UnknownKernel
        if len(columns) != 1 or kernel.period.shape.rank or base.lengthscales.shape.rank:
            raise UnknownKernel
        apart = differences(A[:, columns[0]], B[:, columns[0]], elementwise)
        sine = np.sin(np.pi * apart / float(kernel.period.numpy()))
        return _Distances(SquaredExponential, base.lengthscales, [np.square(sine)])
    if kind is Constant:
        return Fixed(_outer(np.ones(len(A)), np.ones(len(B)), elementwise))
    if kind in (Factor, CentredLinear, Indicator):
        columns = kernel_columns(kernel)
        if columns is None or len(columns) != 1:
            raise UnknownKernel
        a, b = A[:, columns[0]], B[:, columns[0]]
        if kind is Factor:
            return Fixed((differences(a, b, elementwise) == 0.0).astype(a.dtype))
        if kind is CentredLinear:
            return Fixed(_outer(a - kernel.centre, b - kernel.centre, elementwise))
        on, other = ((x == kernel.level).astype(x.dtype) for x in (a, b))
        return Fixed(_outer(on, other, elementwise))
    if kind is OnColumns:
        own = list(kernel_columns(kernel) or ())
        return shape_of(kernel.base, A[:, own], B[:, own], elementwise)
    if kind is Shaped:
        own = list(kernel_columns(kernel) or ())
        inner = shape_of(kernel.base, kernel.nodes, kernel.nodes)
        return _Splines(inner, kernel.splines(A[:, own]), kernel.splines(B[:, own]), elementwise)
    if kind is Product:
        return _Multiplied([shape_of(k, A, B, elementwise) for k in kernel.kernels])
    if kind in _REGISTERED:
        return _REGISTERED[kind](kernel, A, B, elementwise)
    raise UnknownKernel


def differences(a: AnyNDArray, b: AnyNDArray, elementwise: bool) -> AnyNDArray:
    """Of all pairs [n, m], or row by row [n]."""
    found: AnyNDArray = a - b if elementwise else a[:, None] - b[None, :]
    return found


def _outer(a: AnyNDArray, b: AnyNDArray, elementwise: bool) -> AnyNDArray:
    return a * b if elementwise else a[:, None] * b[None, :]
