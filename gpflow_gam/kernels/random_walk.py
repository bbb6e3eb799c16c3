"""Random walks about their mean."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import AnyNDArray, Parameter, TensorType
from gpflow.kernels import Kernel
from gpflow.kernels.base import ActiveDims
from gpflow.utilities import positive

from ..measures import Discrete
from .columns import kernel_columns
from .shapes import Fixed, Shape, register_shape


class RandomWalk(Kernel):
    """
    Brownian motion of unknown start less its mean under a measure.

    ``k(x, y) = variance (m(x) + m(y) - |x - y| - e) / e`` with ``m(x) = E_t |x - t|`` and ``e =
    E m(t)``: what a walk is that may start anywhere, conditioned on an average of zero (the
    generalised covariance ``-|x - y|``: Matheron 1973). Increments are independent, and beyond the
    measure's points the walk goes on from where it is.

    :param measure: on one column.
    :param variance: of a draw about its mean, on average over the measure; a scalar.
    :param level: variance, against that, of a constant that is added.
    :param active_dims: the one column.
    :raises ValueError: a measure of several columns, or of one point.
    """

    def __init__(
        self,
        measure: Discrete,
        variance: TensorType = 1.0,
        level: float = 0.0,
        active_dims: ActiveDims | None = None,
    ) -> None:
        super().__init__(active_dims)
        if measure.dimension != 1 or len(measure.points) < 2:
            raise ValueError(f"measure must be of two points or more of one column; got {measure}.")
        order = np.argsort(measure.points[:, 0])
        self.measure = measure
        self.level = float(level)
        self.variance = Parameter(variance, transform=positive())
        self._nodes = measure.points[order, 0]
        self._weights = measure.probabilities[order]
        self._spread = float(self._weights @ self._distance(self._nodes))

    def _distance(self, x: AnyNDArray) -> AnyNDArray:
        """E_t |x - t|."""
        found: AnyNDArray = np.abs(x[..., None] - self._nodes) @ self._weights
        return found

    def correlation(self, x: AnyNDArray, y: AnyNDArray) -> AnyNDArray:
        """
        The kernel over its variance, of arrays that broadcast.

        :param x: [...].
        :param y: [...].
        :return: [...], of both broadcast.
        """
        found = self._distance(x) + self._distance(y) - np.abs(x - y) - self._spread
        return np.asarray(found / self._spread + self.level)

    def _mean(self, x: tf.Tensor) -> tf.Tensor:
        away = tf.abs(x[..., None] - tf.constant(self._nodes, x.dtype))
        return tf.linalg.matvec(away, tf.constant(self._weights, x.dtype))

    @inherit_check_shapes
    def K(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        x = X[..., 0]
        if X2 is None:
            apart = x[..., :, None] - x[..., None, :]
            means = self._mean(x)[..., :, None] + self._mean(x)[..., None, :]
        else:
            y = X2[..., 0]
            shape = tf.concat([tf.shape(x), tf.ones([tf.rank(y)], tf.int32)], axis=0)
            apart = tf.reshape(x, shape) - y
            means = tf.reshape(self._mean(x), shape) + self._mean(y)
        return self.variance * ((means - tf.abs(apart)) / self._spread - 1.0 + self.level)

    @inherit_check_shapes
    def K_diag(self, X: TensorType) -> tf.Tensor:
        return self.variance * (2.0 * self._mean(X[..., 0]) / self._spread - 1.0 + self.level)


@register_shape(RandomWalk)
def _shape(kernel: RandomWalk, A: AnyNDArray, B: AnyNDArray, elementwise: bool) -> Shape:
    (column,) = kernel_columns(kernel) or (0,)
    a, b = A[:, column], B[:, column]
    return Fixed(kernel.correlation(a, b) if elementwise else kernel.correlation(a[:, None], b))
