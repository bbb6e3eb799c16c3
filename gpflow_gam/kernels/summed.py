"""Weighted sums of evaluations of a function, whose points and weights are in each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import AnyNDArray, TensorType
from gpflow.kernels import Kernel
from scipy.sparse import csr_matrix


class Evaluations(NamedTuple):
    """Rows as sums over distinct points."""

    points: AnyNDArray  # [q, d]
    places: AnyNDArray  # the point of each evaluation of a row, [n, L]
    weights: AnyNDArray  # its weight, [n, L]

    def matrix(self) -> csr_matrix:
        """``B`` [n, q] with ``f(rows) = B g(points)``."""
        n, L = self.places.shape
        ends = np.arange(n + 1) * L
        B = csr_matrix((self.weights.ravel(), self.places.ravel(), ends), (n, len(self.points)))
        B.sum_duplicates()
        return B


class Summed(Kernel):
    r"""
    The covariance of ``f(x) = sum_l w_l g(p_l)``, linear functionals of a function g.

    .. math:: k(x, x') = \sum_{l, m} w_l w'_m k_g(p_l, p'_m)

    A row holds the points and the weights (matrix arguments of smooths in R's mgcv: Wood 2017,
    section 7.4). A row with one weight of one, and others of zero, is g itself at a point.

    :param base: the kernel of g, of d columns numbered from 0.
    :param slots: for each evaluation its d columns of X and then that of its weight, [L, d + 1].
    """

    def __init__(self, base: Kernel, slots: Sequence[Sequence[int]]) -> None:
        super().__init__(active_dims=[column for slot in slots for column in slot])
        self.base = base
        self.slots = tuple(tuple(int(c) for c in slot) for slot in slots)

    # --- in numpy, at rows of X -------------------------------------------------------------------

    def evaluations(self, X: AnyNDArray) -> Evaluations:
        """The distinct points of rows ``X`` [n, D], without evaluations of weight zero."""
        values = X[:, np.array(self.slots)]  # [n, L, d + 1]
        w = values[..., -1]
        last = np.flatnonzero(np.any(w != 0.0, axis=0))
        number = int(last[-1]) + 1 if len(last) else 1
        values, w = values[:, :number], w[:, :number]
        points = np.where(w[..., None] != 0.0, values[..., :-1], values[:1, :1, :-1])
        flat = points.reshape(-1, points.shape[-1])
        if flat.shape[1] == 1:
            own, places = np.unique(flat[:, 0], return_inverse=True)
        else:
            own, places = np.unique(flat, axis=0, return_inverse=True)
        return Evaluations(own.reshape(-1, flat.shape[1]), places.reshape(w.shape), w)

    def single(self, points: AnyNDArray, width: int) -> AnyNDArray:
        """Rows of X [n, ``width``] at which f is g itself, at ``points`` [n, d]."""
        X = np.zeros((len(points), width))
        X[:, list(self.slots[0])] = np.column_stack([points, np.ones(len(points))])
        return X

    # --- in TensorFlow ----------------------------------------------------------------------------

    def _split(self, X: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        """Points [..., N, L, d] and weights [..., N, L], without last ones that are all zero."""
        shape = tf.concat([tf.shape(X)[:-1], [len(self.slots), len(self.slots[0])]], axis=0)
        values = tf.reshape(X, shape)
        there = tf.reshape(values[..., -1], [-1, len(self.slots)]) != 0.0
        counts = tf.reduce_any(there, axis=0)
        number = tf.reduce_max(tf.where(counts, tf.range(1, len(self.slots) + 1), 1))
        values = values[..., :number, :]
        return values[..., :-1], values[..., -1]

    def _flat(self, points: tf.Tensor) -> tf.Tensor:
        """[..., N * L, d]."""
        shape = tf.shape(points)
        whole = tf.concat([shape[:-3], [shape[-3] * shape[-2], len(self.slots[0]) - 1]], axis=0)
        return tf.reshape(points, whole)

    @inherit_check_shapes
    def K(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        points, w = self._split(X)
        one = tf.shape(w)
        if X2 is None:
            K = self.base(self._flat(points))
            K = tf.reshape(K, tf.concat([one, one[-2:]], axis=0))
            return tf.einsum("...nl,...nlmk,...mk->...nm", w, K, w)
        others, v = self._split(X2)
        K = self.base(self._flat(points), self._flat(others))
        two = tf.shape(v)
        K = tf.reshape(K, [-1, one[-1], tf.reduce_prod(two[:-1]), two[-1]])
        K = tf.einsum("nl,nlmk->nmk", tf.reshape(w, [-1, one[-1]]), K)
        K = tf.einsum("nmk,mk->nm", K, tf.reshape(v, [-1, two[-1]]))
        return tf.reshape(K, tf.concat([one[:-1], two[:-1]], axis=0))

    @inherit_check_shapes
    def K_diag(self, X: TensorType) -> tf.Tensor:
        points, w = self._split(X)
        return tf.einsum("...l,...lm,...m->...", w, self.base(points), w)
