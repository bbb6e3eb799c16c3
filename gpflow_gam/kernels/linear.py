"""A straight line that crosses zero at a given place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import Parameter, TensorType
from gpflow.kernels import Kernel
from gpflow.kernels.base import ActiveDims
from gpflow.utilities import positive

from .columns import Columns
from .stacked import Kernels, StackedOnColumn, register_stacked, stack_parameters


class CentredLinear(Kernel):
    """
    ``k(x, x') = variance (x - centre)(x' - centre)``: a slope, normal a priori.

    GPflow's ``Linear`` crosses zero at zero, which sets it apart from a constant only where the
    column has mean zero.

    :param centre: where the line is zero, the column's mean for instance.
    :param variance: prior variance of the slope, a scalar.
    :param active_dims: the one column.
    :raises ValueError: ``centre`` is not finite.
    """

    def __init__(
        self,
        centre: float = 0.0,
        variance: TensorType = 1.0,
        active_dims: ActiveDims | None = None,
    ) -> None:
        super().__init__(active_dims)
        if not np.isfinite(centre):
            raise ValueError(f"centre must be finite; got {centre}.")
        self.centre = float(centre)
        self.variance = Parameter(variance, transform=positive())

    def _away(self, X: TensorType) -> tf.Tensor:
        return X[..., 0] - tf.constant(self.centre, X.dtype)

    @inherit_check_shapes
    def K(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        own = self._away(X)
        if X2 is None:
            return self.variance * own[..., :, None] * own[..., None, :]
        return self.variance * tf.tensordot(own, self._away(X2), axes=0)

    @inherit_check_shapes
    def K_diag(self, X: TensorType) -> tf.Tensor:
        return self.variance * tf.square(self._away(X))


@register_stacked(CentredLinear)
class StackedCentredLinear(StackedOnColumn):
    """Several lines."""

    def __init__(self, kernels: Kernels, columns: Columns) -> None:
        super().__init__(kernels, columns)
        self.variances = stack_parameters([k.variance for k in kernels], rank=2)

    def _away(self, X: tf.Tensor) -> tf.Tensor:
        return X[..., 0] - tf.constant([[k.centre] for k in self.kernels], dtype=X.dtype)

    def K(self, X: tf.Tensor, X2: tf.Tensor) -> tf.Tensor:
        return self.variances[:, :, None] * self._away(X)[:, :, None] * self._away(X2)[:, None, :]

    def K_diag(self, X: tf.Tensor) -> tf.Tensor:
        return self.variances * tf.square(self._away(X))


class StackedLines:
    """
    Sums of as many lines each, one a column, as one matrix product: a smooth of D columns has D.

    :param kernels: G lists of D lines.
    """

    def __init__(self, kernels: Sequence[Sequence[CentredLinear]]) -> None:
        shape = [len(kernels), 1, len(kernels[0])]
        every = [k for lines in kernels for k in lines]
        self.variances = tf.reshape(stack_parameters([k.variance for k in every], rank=1), shape)
        self.centres = np.reshape([k.centre for k in every], shape)

    def _away(self, X: tf.Tensor) -> tf.Tensor:
        return X - tf.constant(self.centres, X.dtype)

    def K(self, X: tf.Tensor, X2: tf.Tensor) -> tf.Tensor:
        """[G, N, N2] at X [G, N, D] and X2 [G, N2, D]."""
        return tf.matmul(self.variances * self._away(X), self._away(X2), transpose_b=True)

    def K_diag(self, X: tf.Tensor) -> tf.Tensor:
        """[G, N]."""
        return tf.reduce_sum(self.variances * tf.square(self._away(X)), axis=-1)
