"""Any kernel, moved to other columns."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import TensorType
from gpflow.kernels import Kernel


class OnColumns(Kernel):
    """
    ``base`` on the given columns, which it sees numbered from 0.

    So sums and products, whose parts have ``active_dims`` of their own, can be moved as one.

    :param base: any GPflow kernel.
    :param columns: the columns of X that become its columns 0, 1, ...
    """

    def __init__(self, base: Kernel, columns: Sequence[int]) -> None:
        super().__init__(active_dims=list(columns))
        self.base = base

    @inherit_check_shapes
    def K(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        return self.base(X, X2)

    @inherit_check_shapes
    def K_diag(self, X: TensorType) -> tf.Tensor:
        return self.base(X, full_cov=False)
