"""A Gaussian Markov random field on areas that are neighbours."""

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

from .columns import kernel_columns
from .shapes import Dual, Shape, Values, differences, register_shape


def structured_covariance(number: int, edges: Sequence[tuple[int, int]]) -> AnyNDArray:
    """
    The covariance [n, n] of an intrinsic conditional autoregression, of mean variance one.

    The pseudo-inverse of the graph's Laplacian, scaled so that the geometric mean of its diagonal
    is one in each connected part (Sorbye & Rue 2014, "Scaling intrinsic Gaussian Markov random
    field priors in spatial modelling"; Freni-Sterrantino et al. 2018 for disconnected graphs).
    Where there are several parts, each has a level of its own as well, of half of the variance; an
    area without neighbours has nothing else.

    :param number: n, of areas.
    :param edges: pairs of neighbours, by their places.
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

    ``k = variance (B + r I) / (1 + r)`` with B the :func:`structured_covariance` of the graph and r
    the ratio of what is independent to what is structured: ``BYM2`` of Riebler et al. (2016), "An
    intuitive Bayesian spatial model for disease mapping that accounts for scaling", whose mixing
    parameter is ``1 / (1 + r)``.

    :param number: of areas.
    :param edges: pairs of neighbours, by their codes.
    :param variance: of both parts together, a scalar.
    :param independent: r, a scalar.
    :param active_dims: the one column, of codes 0, 1, ...
    :raises ValueError: codes that there are not.
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


class _Mixed(Shape):
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


@register_shape(MarkovField)
def _shape(kernel: MarkovField, A: AnyNDArray, B: AnyNDArray, elementwise: bool) -> Shape:
    (column,) = kernel_columns(kernel) or (0,)
    a, b = A[:, column].astype(int), B[:, column].astype(int)
    same = (differences(a, b, elementwise) == 0).astype(A.dtype)
    structured = kernel.structured
    own = structured[a, b] if elementwise else structured[np.ix_(a, b)]
    return _Mixed(kernel.independent, own, same)
