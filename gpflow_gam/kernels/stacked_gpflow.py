"""Batched evaluation of GPflow's own kernels."""

from __future__ import annotations

import abc
import functools
from collections.abc import Hashable, Iterable

import numpy as np
import tensorflow as tf
from gpflow.kernels import Constant, Kernel, Linear, Periodic, Product, SquaredExponential, Sum

from .correlation import PROFILES, Profile
from .functional import Columns, kernel_columns
from .stacked import (
    Kernels,
    StackedKernel,
    fill,
    local_positions,
    register_stacked,
    signature,
    stack,
    stack_parameters,
    stack_variances,
    take,
)
from .terms import CentredLinear, StackedLines


def _reads(kernel: Kernel, columns: Columns) -> bool:
    """True if the inputs hold just what the kernel reads, in its order (scales are by place)."""
    return bool(columns) and kernel_columns(kernel) == columns


# --- stationary ----------------------------------------------------------------------------------


def _by_dimension(X: tf.Tensor, X2: tf.Tensor) -> list[tuple[tf.Tensor, tf.Tensor]]:
    """Each column of X [G, N, d] as [G, N, 1], and of X2 [G, N2, d] as [G, 1, N2]."""
    number, across = X.shape[-1], tf.linalg.matrix_transpose(X2)
    if number == 1:
        return [(X, across)]
    return list(zip(tf.split(X, number, axis=-1), tf.split(across, number, axis=-2)))


class _OfDistances(StackedKernel):
    """A variance, which is the level to take out, times a correlation of distances."""

    variances: tf.Tensor
    """[G, 1]."""
    profile: Profile

    @abc.abstractmethod
    def _distances(self, X: tf.Tensor, X2: tf.Tensor) -> tf.Tensor:
        """Squared distances [G, N, N2], in lengthscales and times the profile's scale."""

    def K(self, X: tf.Tensor, X2: tf.Tensor) -> tf.Tensor:
        return self.variances[:, :, None] * self.profile.tensor(self._distances(X, X2))

    def K_rest(self, X: tf.Tensor, X2: tf.Tensor) -> tf.Tensor:
        deficit = self.profile.tensor(self._distances(X, X2), deficit=True)
        return self.variances[:, :, None] * deficit

    def K_diag(self, X: tf.Tensor) -> tf.Tensor:
        return fill(self.variances, X)

    @property
    def level(self) -> tf.Tensor:
        return self.variances

    def K_diag_rest(self, X: tf.Tensor) -> tf.Tensor:
        return tf.zeros(tf.shape(X)[:-1], X.dtype)


@register_stacked(*PROFILES)
class StackedStationary(_OfDistances):
    """Isotropic stationary kernels, with or without ARD."""

    def __init__(self, kernels: Kernels, columns: Columns) -> None:
        super().__init__(kernels, columns)
        self.lengthscales = stack_parameters([k.lengthscales for k in kernels], rank=2)
        self.variances = stack_variances(kernels)
        self.profile = PROFILES[type(kernels[0])]

    @classmethod
    def signature(cls, kernel: Kernel, columns: Columns) -> Hashable | None:
        if not _reads(kernel, columns):
            return None
        return tuple(kernel.lengthscales.shape), tuple(kernel.variance.shape)

    def _distances(self, X: tf.Tensor, X2: tf.Tensor) -> tf.Tensor:
        # scaled before they are squared: one pass over [G, N, N2] less
        scale = tf.expand_dims(self.lengthscales, 1) / self.profile.scale
        if X.dtype != tf.float64:  # far from the origin X / scale is rounded more than distances
            middle = tf.stop_gradient(tf.reduce_mean(X2, axis=1, keepdims=True))
            X, X2 = X - middle, X2 - middle
        X, X2 = X / scale, X2 / scale
        # One difference per dimension: components read few columns, and unlike the expanded
        # square |x|^2 - 2 x'y + |y|^2 this loses no digits for inputs far from the origin.
        return tf.add_n([tf.square(a - b) for a, b in _by_dimension(X, X2)])


@register_stacked(Periodic)
class StackedPeriodic(_OfDistances):
    """Periodic squared exponentials (MacKay 1998, eq. 47, in GPflow's parameterisation)."""

    profile = PROFILES[SquaredExponential]

    def __init__(self, kernels: Kernels, columns: Columns) -> None:
        super().__init__(kernels, columns)
        bases = [k.base_kernel for k in kernels]
        shape = [len(bases), len(columns)]
        lengthscales = stack_parameters([k.lengthscales for k in bases], rank=2)
        self.scales = tf.broadcast_to(lengthscales / self.profile.scale, shape)
        periods = stack_parameters([k.period for k in kernels], rank=2)
        self.periods = tf.broadcast_to(periods, shape)
        self.variances = stack_variances(bases)

    @classmethod
    def signature(cls, kernel: Kernel, columns: Columns) -> Hashable | None:
        base = kernel.base_kernel
        # GPflow's periodic Matern kernels use the 1-norm of the sines: they go one at a time.
        if type(base) is not SquaredExponential or not _reads(base, columns):
            return None
        return tuple(base.lengthscales.shape), tuple(kernel.period.shape)

    def _distances(self, X: tf.Tensor, X2: tf.Tensor) -> tf.Tensor:
        terms = []
        for d, (a, b) in enumerate(_by_dimension(X, X2)):
            period, scale = self.periods[:, d, None, None], self.scales[:, d, None, None]
            terms.append(tf.square(tf.sin(np.pi * (a - b) / period) / scale))
        return tf.add_n(terms)


# --- linear, constant ----------------------------------------------------------------------------


@register_stacked(Linear)
class StackedLinear(StackedKernel):
    """Linear kernels, with or without ARD."""

    def __init__(self, kernels: Kernels, columns: Columns) -> None:
        super().__init__(kernels, columns)
        self.variances = stack_parameters([k.variance for k in kernels], rank=2)[:, None, :]

    @classmethod
    def signature(cls, kernel: Kernel, columns: Columns) -> Hashable | None:
        return tuple(kernel.variance.shape) if _reads(kernel, columns) else None

    def K(self, X: tf.Tensor, X2: tf.Tensor) -> tf.Tensor:
        return tf.matmul(X * self.variances, X2, transpose_b=True)

    def K_diag(self, X: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.square(X) * self.variances, axis=-1)


@register_stacked(Constant)
class StackedConstant(StackedKernel):
    """Constants, which read nothing."""

    def __init__(self, kernels: Kernels, columns: Columns) -> None:
        super().__init__(kernels, columns)
        self.variances = stack_variances(kernels)

    @classmethod
    def signature(cls, kernel: Kernel, columns: Columns) -> Hashable | None:
        return ()

    def K(self, X: tf.Tensor, X2: tf.Tensor) -> tf.Tensor:
        shape = [tf.shape(X)[0], tf.shape(X)[1], tf.shape(X2)[1]]
        return tf.broadcast_to(self.variances[:, :, None], shape)

    def K_diag(self, X: tf.Tensor) -> tf.Tensor:
        return fill(self.variances, X)


# --- products and sums ---------------------------------------------------------------------------


def _columns_of(factor: Kernel, columns: Columns) -> Columns:
    return tuple(columns[p] for p in local_positions(factor, columns))


class _Combined(StackedKernel):
    """Combinations whose parts stack one by one."""

    def __init__(self, kernels: Kernels, columns: Columns) -> None:
        super().__init__(kernels, columns)
        self.positions: list[list[int]] = []
        self.parts: list[StackedKernel | StackedLines] = []
        self._append(range(len(kernels[0].kernels)))

    def _append(self, places: Iterable[int]) -> None:
        """Stack what the kernels have at these places."""
        for i in places:
            part = self.kernels[0].kernels[i]
            self.positions.append(local_positions(part, self.columns))
            each = [k.kernels[i] for k in self.kernels]
            self.parts.append(stack(each, _columns_of(part, self.columns)))

    @classmethod
    def signature(cls, kernel: Kernel, columns: Columns) -> Hashable | None:
        parts = []
        for part in kernel.kernels:
            own = signature(part, _columns_of(part, columns))
            if own is None:
                return None
            parts.append((own, tuple(local_positions(part, columns))))
        return tuple(parts)

    @staticmethod
    @abc.abstractmethod
    def _combine(first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
        """The sum or product of two parts."""

    def K(self, X: tf.Tensor, X2: tf.Tensor) -> tf.Tensor:
        found = []
        for part, at in zip(self.parts, self.positions):
            own = take(X, at)
            found.append(part.K(own, own if X2 is X else take(X2, at)))
        return functools.reduce(self._combine, found)

    def K_diag(self, X: tf.Tensor) -> tf.Tensor:
        each = zip(self.parts, self.positions)
        return functools.reduce(self._combine, [p.K_diag(take(X, at)) for p, at in each])


@register_stacked(Product)
class StackedProduct(_Combined):
    """Products."""

    @staticmethod
    def _combine(first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
        return first * second


@register_stacked(Sum)
class StackedSum(_Combined):
    """Sums, all their lines at once: there is one for each column of a joint smooth."""

    def _append(self, places: Iterable[int]) -> None:
        first = self.kernels[0].kernels
        lines = [i for i in places if type(first[i]) is CentredLinear]
        super()._append(i for i in places if len(lines) < 2 or i not in lines)
        if len(lines) > 1:
            self.positions.append([local_positions(first[i], self.columns)[0] for i in lines])
            self.parts.append(StackedLines([[k.kernels[i] for i in lines] for k in self.kernels]))

    @staticmethod
    def _combine(first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
        return first + second
