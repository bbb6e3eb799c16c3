"""Kernels on a column of level codes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import AnyNDArray, Parameter, TensorType
from gpflow.kernels import Kernel
from gpflow.kernels.base import ActiveDims
from gpflow.utilities import positive
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from .columns import Columns
from .correlation import (
    Correlation,
    Dual,
    Fixed,
    Values,
    differences,
    only_column,
    products,
    register_correlation,
)
from .stacked import (
    Kernels,
    StackableKernel,
    StackedOnColumn,
    fill,
    register_stacked,
    stack_variances,
)


class Factor(StackableKernel):
    """
    Exchangeable levels: ``k(x, x') = variance`` where the two codes are equal, else 0.

    The GP on a factor with independent normal effects, the random effect of mixed models. Centre
    it with :class:`ZeroMean` and a :class:`~gpflow_gam.measures.Discrete` measure on the levels to
    set it apart from a constant.

    :param variance: prior variance of a level's effect, a scalar.
    :param active_dims: the one column that holds the codes.
    """

    def __init__(self, variance: TensorType = 1.0, active_dims: ActiveDims | None = None) -> None:
        super().__init__(active_dims)
        self.variance = Parameter(variance, transform=positive())


class Indicator(StackableKernel):
    """
    ``k(x, x') = 1`` where both codes equal ``level``, else 0; it has no parameters.

    Times a smooth kernel it gives a smooth that acts on one level of a factor only: mgcv's
    ``s(x, by=factor)`` is one such component a level.

    :param level: the code of the level.
    :param active_dims: the one column that holds the codes.
    """

    def __init__(self, level: float, active_dims: ActiveDims | None = None) -> None:
        super().__init__(active_dims)
        self.level = float(level)


@register_stacked(Factor)
class StackedFactor(StackedOnColumn):
    """Exchangeable levels of several factors."""

    def __init__(self, kernels: Kernels, columns: Columns) -> None:
        super().__init__(kernels, columns)
        self.variances = stack_variances(kernels)

    def K(self, X: tf.Tensor, X2: tf.Tensor) -> tf.Tensor:
        same = tf.equal(X[..., :, None, 0], X2[..., None, :, 0])
        return self.variances[:, :, None] * tf.cast(same, X.dtype)

    def K_diag(self, X: tf.Tensor) -> tf.Tensor:
        return fill(self.variances, X)


@register_stacked(Indicator)
class StackedIndicator(StackedOnColumn):
    """Indicators of several levels."""

    def K(self, X: tf.Tensor, X2: tf.Tensor) -> tf.Tensor:
        return self.K_diag(X)[:, :, None] * self.K_diag(X2)[:, None, :]

    def K_diag(self, X: tf.Tensor) -> tf.Tensor:
        levels = tf.constant([[k.level] for k in self.kernels], dtype=X.dtype)
        return tf.cast(tf.equal(X[..., 0], levels), X.dtype)


@register_correlation(Factor)
def _factor(kernel: Factor, A: AnyNDArray, B: AnyNDArray, elementwise: bool) -> Correlation:
    column = only_column(kernel)
    same = differences(A[:, column], B[:, column], elementwise) == 0.0
    return Fixed(same.astype(A.dtype))


@register_correlation(Indicator)
def _indicator(kernel: Indicator, A: AnyNDArray, B: AnyNDArray, elementwise: bool) -> Correlation:
    column = only_column(kernel)
    on, other = ((x[:, column] == kernel.level).astype(x.dtype) for x in (A, B))
    return Fixed(products(on, other, elementwise))


# --- areas that are neighbours -------------------------------------------------------------------


def structured_covariance(number: int, edges: Sequence[tuple[int, int]]) -> AnyNDArray:
    """
    The covariance [n, n] of an intrinsic conditional autoregression, of mean variance one.

    Scaled in each connected part (Sorbye & Rue 2014); of several parts each has a level of its own
    (Freni-Sterrantino et al. 2018).
    """
    if not edges:
        return np.eye(number)
    i, j = np.array(edges).T
    adjacency = coo_matrix((np.ones(len(i)), (i, j)), shape=(number, number)).toarray()
    adjacency = np.minimum(adjacency + adjacency.T, 1.0)
    parts, member = connected_components(adjacency, directed=False)
    found = np.zeros((number, number))
    for part in range(parts):
        own = np.flatnonzero(member == part)
        at = np.ix_(own, own)
        if len(own) == 1:
            found[at] = 1.0
            continue
        A = adjacency[at]
        size = len(own)
        # (L + J / n)^-1 - J / n is the pseudo-inverse of a connected graph's Laplacian L
        constant = np.full((size, size), 1.0 / size)
        inverse = np.linalg.inv(np.diag(A.sum(axis=1)) - A + constant) - constant
        field = inverse / np.exp(np.mean(np.log(np.diag(inverse))))
        found[at] = field if parts == 1 else 0.5 * field + 0.5
    return 0.5 * (found + found.T)


class MarkovField(Kernel):
    """
    Areas that are like their neighbours, and a part of them that is not.

    ``k = variance (B + r I) / (1 + r)``, B the :func:`structured_covariance`, r the ``independent``
    part: ``BYM2`` (Riebler et al. 2016), whose mixing parameter is ``1 / (1 + r)``.
    """

    def __init__(
        self,
        number: int,
        edges: Sequence[tuple[int, int]],
        variance: TensorType = 1.0,
        independent: TensorType = 1.0,
        active_dims: ActiveDims | None = None,
    ) -> None:
        super().__init__(active_dims)
        if any(not 0 <= c < number for pair in edges for c in pair):
            raise ValueError(f"edges must be pairs of codes 0 to {number - 1}; got {edges}.")
        self.structured = structured_covariance(number, edges)
        self.variance = Parameter(variance, transform=positive())
        self.independent = Parameter(independent, transform=positive())

    @inherit_check_shapes
    def K(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        if X2 is None:
            codes = self._codes(X)
            rows = tf.gather(self._covariance(X.dtype), codes)
            return tf.gather(rows, codes, axis=-1, batch_dims=codes.shape.rank - 1)
        one, other = tf.reshape(self._codes(X), [-1]), tf.reshape(self._codes(X2), [-1])
        found = tf.gather(tf.gather(self._covariance(X.dtype), one), other, axis=1)
        return tf.reshape(found, tf.concat([tf.shape(X)[:-1], tf.shape(X2)[:-1]], axis=0))

    @inherit_check_shapes
    def K_diag(self, X: TensorType) -> tf.Tensor:
        return tf.gather(tf.linalg.diag_part(self._covariance(X.dtype)), self._codes(X))

    def _codes(self, X: TensorType) -> tf.Tensor:
        return tf.cast(X[..., 0], tf.int32)

    def _covariance(self, dtype: tf.DType) -> tf.Tensor:
        B = tf.constant(self.structured, dtype)
        r = tf.cast(self.independent, dtype)
        mixed = (B + r * tf.eye(len(self.structured), dtype=dtype)) / (1.0 + r)
        return tf.cast(self.variance, dtype) * mixed


class _Mixed(Correlation):
    """``(B + r I) / (1 + r)`` of areas, r a parameter."""

    def __init__(self, ratio: Parameter, structured: AnyNDArray, same: AnyNDArray) -> None:
        self._ratio, self._structured, self._same = ratio, structured, same

    def __call__(self, values: Values, slopes: bool, deficit: bool = False) -> Dual:
        share = 1.0 / (1.0 + float(values(self._ratio)))
        away = self._structured - self._same
        value = self._same + share * away
        if not slopes:
            return Dual(value)
        return Dual(value, [(self._ratio, None, -share * (1.0 - share) * away)])


@register_correlation(MarkovField)
def _field(kernel: MarkovField, A: AnyNDArray, B: AnyNDArray, elementwise: bool) -> Correlation:
    column = only_column(kernel)
    a, b = A[:, column].astype(int), B[:, column].astype(int)
    same = (differences(a, b, elementwise) == 0).astype(A.dtype)
    structured = kernel.structured
    between = structured[a, b] if elementwise else structured[np.ix_(a, b)]
    return _Mixed(kernel.independent, between, same)
