"""Functions whose shape is settled by finitely many numbers."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import AnyNDArray, TensorType
from gpflow.kernels import Kernel, Product, Sum

from .columns import Columns, kernel_columns
from .factor import Indicator
from .linear import CentredLinear
from .spline import LevelBasis, SplineBasis, differences, grid
from .zero_mean import ZeroMean

SHAPES = ("increasing", "decreasing", "convex", "concave")
"""What a function may be asked to be."""

Basis = SplineBasis | LevelBasis


class Shaped(Kernel):
    r"""
    Splines with the covariance of ``base`` between their coefficients.

    .. math:: f(x) = \sum_j B_j(x) g(\xi_j), \quad g \sim GP(0, base)

    with quadratic B-splines (products of them on several columns) and their Greville abscissae.
    Such a function increases, or is convex, everywhere if its coefficients do; on one column only
    then. So a shape is finitely many inequalities, between which nothing is left to chance
    (Maatouk & Bay 2017 do the same with hat functions; B-spline coefficients as in Pya & Wood
    2015). It is a kernel like any other: draws of it have the shape once they are conditioned on
    the inequalities :attr:`cone`.

    :param base: reads columns numbered from 0, in the order of the bases.
    :param bases: one a column.
    :param columns: the columns of X.
    :param shapes: one of :data:`SHAPES` a column, empty for none; of one column only.
    """

    def __init__(
        self,
        base: Kernel,
        bases: Sequence[Basis],
        columns: Sequence[int],
        shapes: Sequence[str],
    ) -> None:
        super().__init__(active_dims=list(columns))
        self.base = base
        self.bases = tuple(bases)
        self.shapes = tuple(shapes)
        self.nodes: AnyNDArray = grid([basis.places for basis in self.bases])
        """Where coefficients are, [J, d]: a function's values here settle all of it."""
        self.cone: AnyNDArray = functools.reduce(np.kron, map(_not_negative, bases, shapes))
        """What is not negative of the values at the nodes, each of about their size, [n, J]."""

    def weights(self, x: AnyNDArray) -> AnyNDArray:
        """
        What gives a function at points of its values at the nodes, [N, J].

        :param x: [N, d].
        """
        parts = [
            np.linalg.solve(basis(basis.places).T, basis(x[:, i]).T).T
            for i, basis in enumerate(self.bases)
        ]
        return functools.reduce(_products, parts)

    def splines(self, x: AnyNDArray) -> AnyNDArray:
        """
        The products of splines at points [N, d], [N, J].

        :param x: [N, d].
        """
        return functools.reduce(_products, [b(x[:, i]) for i, b in enumerate(self.bases)])

    @inherit_check_shapes
    def K(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        X = tf.convert_to_tensor(X)
        inner = self._inner(X.dtype)
        left = tf.tensordot(self._tensor(X), inner, 1)  # [..., N, J]
        if X2 is None:
            return tf.matmul(left, self._tensor(X), transpose_b=True)
        return tf.tensordot(left, tf.transpose(self._tensor(tf.convert_to_tensor(X2))), 1)

    @inherit_check_shapes
    def K_diag(self, X: TensorType) -> tf.Tensor:
        own = self._tensor(tf.convert_to_tensor(X))
        return tf.reduce_sum(tf.tensordot(own, self._inner(own.dtype), 1) * own, axis=-1)

    def _inner(self, dtype: tf.DType) -> tf.Tensor:
        return self.base(tf.constant(self.nodes, dtype))

    def _tensor(self, X: tf.Tensor) -> tf.Tensor:
        found = self.bases[0].tensor(X[..., 0])
        for i, basis in enumerate(self.bases[1:], start=1):
            both = found[..., :, None] * basis.tensor(X[..., i])[..., None, :]
            found = tf.reshape(both, tf.concat([tf.shape(both)[:-2], [-1]], axis=0))
        return found


def _not_negative(basis: Basis, shape: str) -> AnyNDArray:
    """Of values at the places of a basis: what has to rise or bend, or all coefficients."""
    back = np.linalg.inv(basis(basis.places))
    rows = differences(basis.places, shape) @ back if shape else back
    found: AnyNDArray = rows / np.max(np.abs(rows), axis=1, keepdims=True)
    return found


def _products(a: AnyNDArray, b: AnyNDArray) -> AnyNDArray:
    """Products of all columns, row by row."""
    found: AnyNDArray = (a[:, :, None] * b[:, None, :]).reshape(len(a), -1)
    return found


@dataclasses.dataclass(frozen=True)
class ShapedPart:
    """
    The shaped kernel in a component's, and the levels beside it.

    What is added to it, straight lines and constants, are splines themselves: the component as a
    whole is settled by its values at the nodes.

    :param kernel: the kernel.
    :param columns: of X, in the order of its bases.
    :param levels: (column, level): where another level is, the component is zero.
    :param multipliers: columns of numbers that multiply it.
    """

    kernel: Shaped
    columns: tuple[int, ...]
    levels: tuple[tuple[int, float], ...]
    multipliers: tuple[int, ...] = ()

    def acting_nodes(self, width: int = 0) -> AnyNDArray:
        """
        Rows of X [J, D] at the nodes, of the levels at which the component acts.

        :param width: D, at least; as many as the component reads by default.
        """
        columns = [*self.columns, *(column for column, _ in self.levels), *self.multipliers]
        like = np.zeros(max(width, max(columns) + 1))
        for column, level in self.levels:
            like[column] = level
        like[list(self.multipliers)] = 1.0
        return self.nodes(like)

    def nodes(self, like: AnyNDArray) -> AnyNDArray:
        """
        Rows of X [J, D] at the nodes.

        :param like: a row at which the component acts, [D].
        """
        own = self.kernel.nodes
        found: AnyNDArray = np.repeat(like[None, :], len(own), axis=0)
        found[:, list(self.columns)] = own
        return found

    def weights(self, points: AnyNDArray) -> AnyNDArray:
        """What gives the component at rows of X of its values at the nodes, [G, J]."""
        found = self.kernel.weights(points[:, list(self.columns)])
        for column, level in self.levels:
            found *= (points[:, column] == level)[:, None]
        return found


def shaped_part(kernel: Kernel) -> ShapedPart | None:
    """
    The shaped kernel in a component's; None where there is none.

    :param kernel: of one component.
    """
    parts = list(_parts(kernel))
    shaped = [part for part in parts if isinstance(part, Shaped)]
    if not shaped:
        return None
    (inner,) = shaped
    columns = _columns(inner)
    levels = [(_columns(p)[0], float(p.level)) for p in parts if isinstance(p, Indicator)]
    lines = {_columns(p)[0] for p in parts if isinstance(p, CentredLinear)} - set(columns)
    return ShapedPart(inner, columns, tuple(levels), tuple(sorted(lines)))


def _parts(kernel: Kernel) -> Iterator[Kernel]:
    """What products, sums and centred kernels are made of."""
    if isinstance(kernel, (Product, Sum)):
        for part in kernel.kernels:
            yield from _parts(part)
    elif isinstance(kernel, ZeroMean):
        yield from _parts(kernel.base)
    else:
        yield kernel


def _columns(kernel: Kernel) -> Columns:
    """The columns of a kernel that says which it reads."""
    found = kernel_columns(kernel)
    assert found is not None
    return found
