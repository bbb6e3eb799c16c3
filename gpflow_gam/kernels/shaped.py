"""Splines with a shape: B-spline coefficients with a kernel's covariance."""

from __future__ import annotations

import abc
import dataclasses
import functools
import itertools
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import AnyNDArray, TensorType
from gpflow.kernels import Coregion, Kernel
from scipy.interpolate import BSpline

from .correlation import (
    Correlation,
    Dual,
    Pairs,
    Values,
    correlation_of,
    kernel_columns,
    leaves_of,
    only_column,
)
from .summed import Summed
from .terms import Factor, Indicator, MarkovField, OnColumns


class Basis(abc.ABC):
    """J functions of a number."""

    number: int  # J
    places: AnyNDArray  # where coefficients are about the values of a function, [J]

    @abc.abstractmethod
    def tensor(self, x: tf.Tensor) -> tf.Tensor:
        """The functions at x [...], [..., J]."""

    def __call__(self, x: AnyNDArray) -> AnyNDArray:
        """The functions at x [N], [N, J]."""
        return np.asarray(self.tensor(tf.constant(x)))


class SplineBasis(Basis):
    """Quadratic B-splines on an interval."""

    # A spline goes up, or bends up, if and only if its coefficients do (Schumaker 2007).

    def __init__(self, breaks: AnyNDArray, straight: bool = True) -> None:
        self.breaks: AnyNDArray = np.asarray(breaks, dtype=np.float64)
        t = np.concatenate([self.breaks[[0, 0]], self.breaks, self.breaks[[-1, -1]]])
        self.number = len(t) - 3
        self.places = 0.5 * (t[1:-2] + t[2:-1])  # Greville's abscissae
        spline = BSpline(t, np.eye(self.number), 2)
        value, slope = spline(self.breaks), spline.derivative(1)(self.breaks)
        bend = 0.5 * spline.derivative(2)(self.breaks[:-1])
        outside = slope[[0, -1]] * float(straight)
        nothing = np.zeros((1, self.number))
        # pieces: below, between breaks, above; powers of the distance from each piece's origin
        self._origins: AnyNDArray = np.concatenate([self.breaks[:1], self.breaks])
        self._pieces: AnyNDArray = np.stack(
            [
                np.concatenate([value[:1], value]),
                np.concatenate([outside[:1], slope[:-1], outside[1:]]),
                np.concatenate([nothing, bend, nothing]),
            ],
            axis=1,
        )

    def tensor(self, x: tf.Tensor) -> tf.Tensor:
        below = tf.constant(self.breaks, x.dtype) <= x[..., None]
        piece = tf.reduce_sum(tf.cast(below, tf.int32), axis=-1)
        away = (x - tf.gather(tf.constant(self._origins, x.dtype), piece))[..., None]
        parts = tf.gather(tf.constant(self._pieces, x.dtype), piece)
        a, b, c = (parts[..., i, :] for i in range(3))
        return a + away * (b + away * c)


class LevelBasis(Basis):
    """One for each of some levels, zero elsewhere."""

    def __init__(self, places: AnyNDArray) -> None:
        self.places = np.asarray(places, dtype=np.float64)
        self.number = len(self.places)

    def tensor(self, x: tf.Tensor) -> tf.Tensor:
        return tf.cast(x[..., None] == tf.constant(self.places, x.dtype), x.dtype)


def differences(places: AnyNDArray, shape: str) -> AnyNDArray:
    """Differences of coefficients that are not negative under a shape, [n, J]."""
    slopes = np.diff(np.eye(len(places)), axis=0) / np.diff(places)[:, None]
    rows = slopes if shape in ("increasing", "decreasing") else np.diff(slopes, axis=0)
    return rows if shape in ("increasing", "convex") else -rows


def grid(axes: list[AnyNDArray]) -> AnyNDArray:
    """All combinations of values, the last axis fastest, [n, d]."""
    return np.array(list(itertools.product(*axes)), dtype=np.float64)


SHAPES = ("increasing", "decreasing", "convex", "concave")
"""The shapes that a function may be asked to have."""


class Shaped(Kernel):
    """
    Splines ``f(x) = sum_j B_j(x) g(xi_j)``, g a GP with kernel ``base``, xi Greville's abscissae.

    f has a shape if its coefficients do, which are the inequalities :attr:`cone` (Maatouk & Bay
    2017; Pya & Wood 2015): draws have it once they are conditioned on these.
    """

    def __init__(
        self, base: Kernel, bases: Sequence[Basis], columns: Sequence[int], shapes: Sequence[str]
    ) -> None:
        super().__init__(active_dims=list(columns))
        self.base = base
        self.bases = tuple(bases)
        self.shapes = tuple(shapes)
        self.nodes: AnyNDArray = grid([basis.places for basis in self.bases])
        """The places of coefficients, [J, d]: a function's values here determine all of it."""
        self.cone: AnyNDArray = functools.reduce(np.kron, map(_not_negative, bases, shapes))
        """Combinations of the values at the nodes that are not negative, [n, J]."""

    def weights(self, x: AnyNDArray) -> AnyNDArray:
        """The matrix that gives a function at points from its values at the nodes, [N, J]."""
        parts = [
            np.linalg.solve(basis(basis.places).T, basis(x[:, i]).T).T
            for i, basis in enumerate(self.bases)
        ]
        return functools.reduce(_products, parts)

    def splines(self, x: AnyNDArray) -> AnyNDArray:
        """The products of splines at points [N, d], [N, J]."""
        return functools.reduce(_products, [b(x[:, i]) for i, b in enumerate(self.bases)])

    @inherit_check_shapes
    def K(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        X = tf.convert_to_tensor(X)
        inner = self._inner(X.dtype)
        left = tf.tensordot(self._tensor(X), inner, 1)  # [..., N, J]
        if X2 is None:
            return tf.matmul(left, self._tensor(X), transpose_b=True)
        return tf.tensordot(left, self._tensor(tf.convert_to_tensor(X2)), [[-1], [-1]])

    @inherit_check_shapes
    def K_diag(self, X: TensorType) -> tf.Tensor:
        own = self._tensor(tf.convert_to_tensor(X))
        return tf.reduce_sum(tf.tensordot(own, self._inner(own.dtype), 1) * own, axis=-1)

    def pair_correlation(self, pairs: Pairs) -> Correlation:
        """In numpy, at ``pairs`` of rows, over the variance."""
        return _Splines(self, pairs)

    def _inner(self, dtype: tf.DType) -> tf.Tensor:
        return self.base(tf.constant(self.nodes, dtype))

    def _tensor(self, X: tf.Tensor) -> tf.Tensor:
        result = self.bases[0].tensor(X[..., 0])
        for i, basis in enumerate(self.bases[1:], start=1):
            both = result[..., :, None] * basis.tensor(X[..., i])[..., None, :]
            result = tf.reshape(both, tf.concat([tf.shape(both)[:-2], [-1]], axis=0))
        return result


class _Splines(Correlation):
    """Splines, left [n, J] and right [m, J], whose coefficients have a correlation [J, J]."""

    def __init__(self, kernel: Shaped, pairs: Pairs) -> None:
        columns = list(kernel_columns(kernel) or ())
        self._left, self._right, self._rows = pairs.mapped(lambda X: kernel.splines(X[:, columns]))
        self._inner = correlation_of(kernel.base, Pairs(kernel.nodes, kernel.nodes))
        self.level = self._inner.level  # splines add up to one

    def __call__(self, values: Values, slopes: bool, deficit: bool = False) -> Dual:
        def between(K: AnyNDArray) -> AnyNDArray:
            half = self._left @ K
            if self._rows:
                return np.asarray(np.sum(half * self._right, axis=1))
            return np.asarray(half @ self._right.T)

        return self._inner(values, slopes, deficit).map(between)


def _not_negative(basis: Basis, shape: str) -> AnyNDArray:
    """Combinations of values at the places of a basis that are not negative."""
    back = np.linalg.inv(basis(basis.places))
    rows = differences(basis.places, shape) @ back if shape else back
    result: AnyNDArray = rows / np.max(np.abs(rows), axis=1, keepdims=True)
    return result


def _products(a: AnyNDArray, b: AnyNDArray) -> AnyNDArray:
    """Products of all columns, row by row."""
    result: AnyNDArray = (a[:, :, None] * b[:, None, :]).reshape(len(a), -1)
    return result


@dataclasses.dataclass(frozen=True)
class ShapedPart:
    """
    The shaped kernel in a component's, and the levels beside it.

    The component's inducing inputs are the kernel's nodes.
    """

    kernel: Shaped
    columns: tuple[int, ...]
    levels: tuple[tuple[int, float], ...]

    def weights(self, points: AnyNDArray) -> AnyNDArray:
        """The matrix that gives the component at rows of X from its values at the nodes, [G, J]."""
        result = self.kernel.weights(points[:, list(self.columns)])
        for column, level in self.levels:
            result *= (points[:, column] == level)[:, None]
        return result


def shaped_part(kernel: Kernel) -> ShapedPart | None:
    """The shaped kernel in a component's; None where there is none."""
    parts = leaves_of(kernel, (Shaped, Summed))
    shaped = [part for part in parts if isinstance(part, Shaped)]
    if not shaped:
        return None
    (inner,) = shaped
    columns = kernel_columns(inner) or ()
    levels = [(only_column(p), float(p.level)) for p in parts if isinstance(p, Indicator)]
    return ShapedPart(inner, columns, tuple(levels))


def level_columns(
    kernel: Kernel,
    kinds: tuple[type[Kernel], ...] = (Factor, Indicator, MarkovField, Coregion),
) -> set[int]:
    """The columns that kernels of some kinds read as levels, between two of which is nothing."""
    result: set[int] = set()
    for leaf in leaves_of(kernel, (OnColumns, Shaped, Summed)):
        columns = kernel_columns(leaf) or ()
        if isinstance(leaf, kinds):
            result.update(columns)
        elif isinstance(leaf, (OnColumns, Shaped)):  # whose base counts columns from 0
            result.update(columns[c] for c in level_columns(leaf.base, kinds))
    return result
