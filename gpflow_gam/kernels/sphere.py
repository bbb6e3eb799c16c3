"""Kernels on the globe."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes, inherit_check_shapes
from gpflow.base import AnyNDArray, TensorType
from gpflow.kernels import IsotropicStationary, Kernel

from .columns import Columns, kernel_columns
from .shapes import Shape, register_shape, shape_of
from .stacked import Kernels, StackedMapped, register_stacked, signature

_SPACE = (0, 1, 2)


@check_shapes("degrees: [n, 2]", "return: [n, 3]")
def unit_vectors(degrees: AnyNDArray) -> AnyNDArray:
    """
    Points of the unit sphere.

    :param degrees: latitude and longitude.
    """
    latitude, longitude = np.deg2rad(degrees).T
    level = np.cos(latitude)
    found = [level * np.cos(longitude), level * np.sin(longitude), np.sin(latitude)]
    return np.stack(found, axis=-1)


class OnSphere(Kernel):
    """
    A stationary kernel of the straight distance through the globe, its radius one.

    What is positive definite in space is so on any surface in it (Gneiting 2013, "Strictly and
    non-strictly positive definite functions on spheres", section 3), for every lengthscale; that
    does not hold of distances along great circles. There is neither a seam at 180 degrees nor
    anything special about the poles.

    :param base: isotropic, in units of the radius; its ``active_dims`` must be ``[0, 1, 2]``.
    :param active_dims: the two columns, latitude and longitude in degrees.
    """

    def __init__(self, base: IsotropicStationary, active_dims: Sequence[int] = (0, 1)) -> None:
        super().__init__(active_dims=list(active_dims))
        self.base = base

    @inherit_check_shapes
    def K(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        return self.base(_points(X), None if X2 is None else _points(X2))

    @inherit_check_shapes
    def K_diag(self, X: TensorType) -> tf.Tensor:
        return self.base(_points(X), full_cov=False)


def _points(degrees: TensorType) -> tf.Tensor:
    radians = degrees * tf.constant(np.pi / 180.0, degrees.dtype)
    latitude, longitude = radians[..., 0], radians[..., 1]
    level = tf.cos(latitude)
    found = [level * tf.cos(longitude), level * tf.sin(longitude), tf.sin(latitude)]
    return tf.stack(found, axis=-1)


@register_shape(OnSphere)
def _shape(kernel: OnSphere, A: AnyNDArray, B: AnyNDArray, elementwise: bool) -> Shape:
    own = list(kernel_columns(kernel) or ())
    return shape_of(kernel.base, unit_vectors(A[:, own]), unit_vectors(B[:, own]), elementwise)


@register_stacked(OnSphere)
class StackedOnSphere(StackedMapped):
    """Several of them."""

    def __init__(self, kernels: Kernels, columns: Columns) -> None:
        super().__init__(kernels, columns, _SPACE)

    @classmethod
    def signature(cls, kernel: Kernel, columns: Columns) -> Hashable | None:
        return signature(kernel.base, _SPACE) if len(columns) == 2 else None

    def _mapped(self, X: tf.Tensor) -> tf.Tensor:
        return _points(X)
