"""Kernels on a column of level codes."""

from __future__ import annotations

import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import Parameter, TensorType
from gpflow.kernels import Kernel
from gpflow.kernels.base import ActiveDims
from gpflow.utilities import positive

from .columns import Columns
from .stacked import Kernels, StackedOnColumn, fill, register_stacked, stack_parameters


def _outer_equal(X: tf.Tensor, X2: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    return tf.cast(tf.equal(X[..., :, None, 0], X2[..., None, :, 0]), dtype)


class Factor(Kernel):
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

    @inherit_check_shapes
    def K(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        if X2 is None:
            return self.variance * _outer_equal(X, X, X.dtype)
        codes, codes2 = tf.reshape(X[..., 0], [-1, 1]), tf.reshape(X2[..., 0], [-1, 1])
        shape = tf.concat([tf.shape(X)[:-1], tf.shape(X2)[:-1]], axis=0)
        return self.variance * tf.reshape(_outer_equal(codes, codes2, X.dtype), shape)

    @inherit_check_shapes
    def K_diag(self, X: TensorType) -> tf.Tensor:
        return tf.broadcast_to(self.variance, tf.shape(X)[:-1])


class Indicator(Kernel):
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

    def _on(self, X: tf.Tensor) -> tf.Tensor:
        return tf.cast(tf.equal(X[..., 0], tf.constant(self.level, X.dtype)), X.dtype)

    @inherit_check_shapes
    def K(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        own = self._on(X)
        if X2 is None:
            return own[..., :, None] * own[..., None, :]
        return tf.tensordot(own, self._on(X2), axes=0)

    @inherit_check_shapes
    def K_diag(self, X: TensorType) -> tf.Tensor:
        return self._on(X)


@register_stacked(Factor)
class StackedFactor(StackedOnColumn):
    """Exchangeable levels of several factors."""

    def __init__(self, kernels: Kernels, columns: Columns) -> None:
        super().__init__(kernels, columns)
        self.variances = stack_parameters([k.variance for k in kernels], rank=2)

    def K(self, X: tf.Tensor, X2: tf.Tensor) -> tf.Tensor:
        return self.variances[:, :, None] * _outer_equal(X, X2, X.dtype)

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
