"""Kernels of mapped inputs: other columns, the globe, a line that runs faster in places."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes, inherit_check_shapes
from gpflow.base import AnyNDArray, Parameter, TensorType
from gpflow.kernels import IsotropicStationary, Kernel
from gpflow.kernels.base import ActiveDims
from gpflow.utilities import positive

from .correlation import (
    Correlation,
    Dual,
    Values,
    correlation_of,
    only_column,
    register_correlation,
)
from .functional import Columns, kernel_columns
from .profiles import PROFILES
from .stacked import (
    Kernels,
    StackableKernel,
    StackedMapped,
    register_stacked,
    signature,
    stack_parameters,
)


class OnColumns(Kernel):
    """``base`` on the given columns, which it sees numbered from 0."""

    def __init__(self, base: Kernel, columns: Sequence[int]) -> None:
        super().__init__(active_dims=list(columns))
        self.base = base

    @inherit_check_shapes
    def K(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        return self.base(X, X2)

    @inherit_check_shapes
    def K_diag(self, X: TensorType) -> tf.Tensor:
        return self.base(X, full_cov=False)


@register_correlation(OnColumns)
def _moved(kernel: OnColumns, A: AnyNDArray, B: AnyNDArray, elementwise: bool) -> Correlation:
    columns = list(kernel_columns(kernel) or ())
    return correlation_of(kernel.base, A[:, columns], B[:, columns], elementwise)


_SPACE = (0, 1, 2)


@check_shapes("degrees: [n, 2]", "return: [n, 3]")
def unit_vectors(degrees: AnyNDArray) -> AnyNDArray:
    """Points of the unit sphere."""
    latitude, longitude = np.deg2rad(degrees).T
    level = np.cos(latitude)
    found = [level * np.cos(longitude), level * np.sin(longitude), np.sin(latitude)]
    return np.stack(found, axis=-1)


class OnSphere(StackableKernel):
    """
    A stationary kernel of the straight distance through the globe, its radius one.

    Positive definite for every lengthscale, unlike of great circles (Gneiting 2013, section 3).
    """

    def __init__(self, base: IsotropicStationary, active_dims: Sequence[int] = (0, 1)) -> None:
        super().__init__(active_dims=list(active_dims))
        self.base = base


def _points(degrees: TensorType) -> tf.Tensor:
    radians = degrees * tf.constant(np.pi / 180.0, degrees.dtype)
    latitude, longitude = radians[..., 0], radians[..., 1]
    level = tf.cos(latitude)
    found = [level * tf.cos(longitude), level * tf.sin(longitude), tf.sin(latitude)]
    return tf.stack(found, axis=-1)


@register_correlation(OnSphere)
def _globe(kernel: OnSphere, A: AnyNDArray, B: AnyNDArray, elementwise: bool) -> Correlation:
    columns = list(kernel_columns(kernel) or ())
    a, b = (unit_vectors(X[:, columns]) for X in (A, B))
    return correlation_of(kernel.base, a, b, elementwise)


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


class Warped(StackableKernel):
    """
    ``base(w(x), w(y))``, w an increasing function whose slope is linear between knots.

    Where the slope is steep, functions vary quickly (Sampson & Guttorp 1992).
    """

    def __init__(
        self,
        base: IsotropicStationary,
        knots: Sequence[float],
        speeds: TensorType | None = None,
        active_dims: ActiveDims | None = None,
    ) -> None:
        super().__init__(active_dims)
        self.base = base
        self.knots = tuple(float(t) for t in knots)
        if len(self.knots) < 2 or np.any(np.diff(self.knots) <= 0.0):
            raise ValueError(f"knots must be two or more numbers that ascend; got {knots}.")
        start = np.ones(len(self.knots)) if speeds is None else speeds
        self.speeds = Parameter(start, transform=positive())


def integrated_hats(x: AnyNDArray, knots: Sequence[float]) -> AnyNDArray:
    """Integrals [n, J] from the first knot to x [n] of the hats that are one at each knot."""
    t = np.asarray(knots)
    h = np.diff(t)
    u = np.clip(x[:, None] - t[:-1], 0.0, h)
    right = np.square(u) / (2.0 * h)
    found = np.zeros((len(x), len(t)))
    found[:, :-1] += u - right
    found[:, 1:] += right
    found[:, 0] += np.minimum(x - t[0], 0.0)
    found[:, -1] += np.maximum(x - t[-1], 0.0)
    return found


def _integrals(X: tf.Tensor, knots: Sequence[float]) -> tf.Tensor:
    """:func:`integrated_hats` [..., n, J] of X [..., n, 1], in TensorFlow."""
    t = tf.constant(knots, X.dtype)
    h = t[1:] - t[:-1]
    u = tf.clip_by_value(X - t[:-1], tf.zeros_like(h), h)
    right, none = tf.square(u) / (2.0 * h), tf.zeros_like(X)
    left = u - right
    below, above = tf.minimum(X - t[0], 0.0), tf.maximum(X - t[-1], 0.0)
    found = tf.concat([left, none], axis=-1) + tf.concat([none, right], axis=-1)
    ends = [below, *([none] * (len(knots) - 2)), above]
    return found + tf.concat(ends, axis=-1)


class _WarpedCorrelation(Correlation):
    """A stationary correlation at distances that are linear in speeds."""

    level = True

    def __init__(self, kernel: Warped, apart: AnyNDArray) -> None:
        self._kernel, self._apart = kernel, apart  # [n, m, J], or [n, J]

    def __call__(self, values: Values, slopes: bool, deficit: bool = False) -> Dual:
        kernel = self._kernel
        speeds = np.asarray(values(kernel.speeds))
        scale = kernel.base.lengthscales
        length = float(np.ravel(values(scale))[0])
        profile = PROFILES[type(kernel.base)]
        unit = length / profile.scale
        distance = (self._apart @ speeds) / unit
        value, slope = profile.array(np.square(distance), slopes, deficit)
        if slope is None:
            return Dual(value)
        # dk / d log speed_j = 2 d (d_j speed_j / unit) dk/ds2, and of the length -2 d^2 dk/ds2
        along = 2.0 * distance * slope
        own = [
            (kernel.speeds, j, along * (self._apart[..., j] * (speeds[j] / unit)))
            for j in range(len(speeds))
        ]
        return Dual(value, [(scale, None, -along * distance), *own])


@register_correlation(Warped)
def _warp(kernel: Warped, A: AnyNDArray, B: AnyNDArray, elementwise: bool) -> Correlation:
    column = only_column(kernel)
    a, b = (integrated_hats(X[:, column], kernel.knots) for X in (A, B))
    return _WarpedCorrelation(kernel, a - b if elementwise else a[:, None, :] - b[None, :, :])


@register_stacked(Warped)
class StackedWarped(StackedMapped):
    """Several of them, of equally many knots."""

    def __init__(self, kernels: Kernels, columns: Columns) -> None:
        super().__init__(kernels, columns, (0,))
        self._speeds = stack_parameters([k.speeds for k in kernels], rank=2)

    @classmethod
    def signature(cls, kernel: Kernel, columns: Columns) -> Hashable | None:
        base = signature(kernel.base, (0,)) if len(columns) == 1 else None
        return None if base is None else (base, len(kernel.knots))

    def _mapped(self, X: tf.Tensor) -> tf.Tensor:
        if len(self.kernels) == 1:  # at inputs of any leading length
            found = _integrals(X, self.kernels[0].knots)
        else:
            found = tf.stack([_integrals(X[g], k.knots) for g, k in enumerate(self.kernels)])
        return tf.linalg.matvec(found, self._speeds)[..., None]
