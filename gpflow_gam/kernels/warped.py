"""Kernels along a line that runs faster in some places than in others."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import AnyNDArray, Parameter, TensorType
from gpflow.kernels import IsotropicStationary, Kernel
from gpflow.kernels.base import ActiveDims
from gpflow.utilities import positive

from .columns import Columns, kernel_columns
from .shapes import Dual, Shape, Values, profile, register_shape
from .stacked import (
    Kernels,
    StackedMapped,
    register_stacked,
    signature,
    stack_parameters,
)


class Warped(Kernel):
    """
    ``base(w(x), w(y))``, w an increasing function whose slope is linear between knots.

    Where the slope is steep, functions vary quickly: a lengthscale that depends on x, by way of a
    warp of the line (Sampson & Guttorp 1992), so that every slope gives a valid kernel. w is
    linear in its slopes at the knots, beyond which they stay as they are.

    :param base: stationary, on one column; its ``active_dims`` must be ``[0]``.
    :param knots: ascending, at least two.
    :param speeds: slopes of w at the knots, positive, [J]; ones by default.
    :param active_dims: the one column.
    :raises ValueError: knots that do not ascend, or are fewer than two.
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

    @inherit_check_shapes
    def K(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        return self.base(self._warp(X), None if X2 is None else self._warp(X2))

    @inherit_check_shapes
    def K_diag(self, X: TensorType) -> tf.Tensor:
        return self.base(self._warp(X), full_cov=False)

    def _warp(self, X: TensorType) -> tf.Tensor:
        return tf.linalg.matvec(_integrals(X, self.knots), self.speeds)[..., None]


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
    """The same [..., n, J] of X [..., n, 1]."""
    t = tf.constant(knots, X.dtype)
    h = t[1:] - t[:-1]
    u = tf.clip_by_value(X - t[:-1], tf.zeros_like(h), h)
    right, none = tf.square(u) / (2.0 * h), tf.zeros_like(X)
    left = u - right
    below, above = tf.minimum(X - t[0], 0.0), tf.maximum(X - t[-1], 0.0)
    found = tf.concat([left, none], axis=-1) + tf.concat([none, right], axis=-1)
    ends = [below, *([none] * (len(knots) - 2)), above]
    return found + tf.concat(ends, axis=-1)


class _WarpedShape(Shape):
    """A stationary correlation at distances that are linear in speeds."""

    level = True

    def __init__(self, kernel: Warped, apart: AnyNDArray) -> None:
        self._kernel, self._apart = kernel, apart  # [n, m, J], or [n, J]

    def __call__(self, values: Values, slopes: bool, deficit: bool = False) -> Dual:
        kernel = self._kernel
        speeds = np.asarray(values(kernel.speeds))
        scale = kernel.base.lengthscales
        length = float(np.ravel(values(scale))[0])
        distance = (self._apart @ speeds) / length
        value, slope = profile(type(kernel.base), np.square(distance), slopes, deficit)
        if slope is None:
            return Dual(value)
        # d k / d log speed_j = 2 d (d_j speed_j / length) dk/dr2, and of the length -2 d^2 dk/dr2
        along = 2.0 * distance * slope
        own = [
            (kernel.speeds, j, along * (self._apart[..., j] * (speeds[j] / length)))
            for j in range(len(speeds))
        ]
        return Dual(value, [(scale, None, -along * distance), *own])


@register_shape(Warped)
def _shape(kernel: Warped, A: AnyNDArray, B: AnyNDArray, elementwise: bool) -> Shape:
    (column,) = kernel_columns(kernel) or (0,)
    a, b = (integrated_hats(X[:, column], kernel.knots) for X in (A, B))
    return _WarpedShape(kernel, a - b if elementwise else a[:, None, :] - b[None, :, :])


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
