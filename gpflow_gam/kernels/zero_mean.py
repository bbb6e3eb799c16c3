"""Kernels whose draws integrate to zero under a measure (Durrande et al. 2013)."""

from __future__ import annotations

import abc
from collections.abc import Hashable, Sequence

import numpy as np
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import TensorType
from gpflow.kernels import Kernel, SquaredExponential
from gpflow.kernels.base import ActiveDims, NormalizedActiveDims

from ..measures import Measure, Uniform
from .columns import Columns, kernel_columns
from .stacked import Kernels, StackedKernel, register_stacked, signature, stack
from .stacked_gpflow import StackedStationary


class ZeroMean(Kernel):
    r"""
    ``base`` conditioned on a zero integral under ``measure``.

    .. math:: s(x, y) = g(x, y) - \frac{E_t g(x, t)\, E_t g(y, t)}{E_{t,u}\, g(t, u)}

    Main effects with such kernels are orthogonal to a constant, and products of them on different
    inputs to both, so that the components of a sum are identifiable (Durrande, Ginsbourger,
    Roustant & Carraro 2013, "ANOVA kernels and RKHS of zero mean functions"; eq. 8 of Adam et al.
    2018). Closed form for the
    squared exponential under a uniform measure; every other pair by the measure's nodes.

    :param base: the kernel g; its ``active_dims`` are this kernel's.
    :param measure: the measure, on as many columns as ``base`` reads.
    :raises ValueError: where ``base`` and ``measure`` are of different dimension, or ``base`` does
        not say which columns it reads.
    """

    def __init__(self, base: Kernel, measure: Measure) -> None:
        super().__init__()
        columns = kernel_columns(base)
        if columns is None:
            raise ValueError(
                f"base {type(base).__name__} reads every column; give it active_dims=[...], so "
                "that the measure is on the right ones."
            )
        if len(columns) != measure.dimension:
            raise ValueError(
                f"measure {measure!r} is on {measure.dimension} column(s), base "
                f"{type(base).__name__} reads {len(columns)}."
            )
        self.base = base
        self.measure = measure

    @property
    def active_dims(self) -> NormalizedActiveDims:
        return self.base.active_dims

    @active_dims.setter
    def active_dims(self, value: ActiveDims) -> None:
        self.base.active_dims = value  # type: ignore[assignment]

    @inherit_check_shapes
    def K(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        mean, total = self._embed(X)
        if X2 is None:
            return self.base.K(X) - mean[..., :, None] * mean[..., None, :] / total
        mean2, _ = self._embed(X2)
        return self.base.K(X, X2) - tf.tensordot(mean / total, mean2, axes=0)

    @inherit_check_shapes
    def K_diag(self, X: TensorType) -> tf.Tensor:
        mean, total = self._embed(X)
        return self.base.K_diag(X) - tf.square(mean) / total

    def _embed(self, X: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        """E_t g(x, t) [batch..., N] and E_{t,u} g(t, u) []."""
        flat = tf.reshape(X, [-1, X.shape[-1]])
        columns = kernel_columns(self.base)
        assert columns is not None
        if signature(self.base, columns) is not None:
            embedding = _embedding(stack([self.base], columns), [self.measure], flat.dtype)
            mean, total = embedding.mean(flat[None])[0], embedding.total[0]
        else:
            nodes, weights = (tf.cast(a, flat.dtype) for a in self.measure.nodes())
            mean = tf.linalg.matvec(self.base.K(flat, nodes), weights)
            total = tf.reduce_sum(weights * tf.linalg.matvec(self.base.K(nodes), weights))
        return tf.reshape(mean, tf.shape(X)[:-1]), total


class _Embedding(abc.ABC):
    """E_t g(x, t) and E_{t,u} g(t, u) of G kernels under their measures."""

    total: tf.Tensor
    """E_{t,u} g(t, u), [G]."""

    @abc.abstractmethod
    def mean(self, X: tf.Tensor) -> tf.Tensor:
        """E_t g(x, t), [G, N], for X [G, N, d]."""


class _Nodes(_Embedding):
    """By the measure's nodes: exact for discrete measures, quadrature for others."""

    def __init__(self, base: StackedKernel, measures: Sequence[Measure], dtype: tf.DType) -> None:
        nodes, weights = zip(*(m.nodes() for m in measures))
        self.base = base
        self.nodes = tf.stack([tf.cast(x, dtype) for x in nodes])
        self.weights = tf.stack([tf.cast(w, dtype) for w in weights])
        self.total = tf.reduce_sum(self.weights * self.mean(self.nodes), axis=-1)

    def mean(self, X: tf.Tensor) -> tf.Tensor:
        return tf.linalg.matvec(self.base.K(X, self.nodes), self.weights)


class _SquaredExponentialUniform(_Embedding):
    """Squared exponential under Uniform[a, b], by error functions."""

    def __init__(self, base: StackedKernel, measures: Sequence[Measure], dtype: tf.DType) -> None:
        assert isinstance(base, StackedStationary)
        ends = [(m.lower, m.upper) for m in measures if isinstance(m, Uniform)]
        self.a, self.b = (tf.constant(e, dtype=dtype)[:, None] for e in zip(*ends))
        self.length, self.variance = base.lengthscales, base.variances  # [G, 1]
        width = self.b - self.a
        z = width / (_ROOT_2 * self.length)
        inner = self.length * tf.math.expm1(-tf.square(z)) + width * _ROOT_HALF_PI * tf.math.erf(z)
        self.total = (self.variance * 2.0 * self.length / tf.square(width) * inner)[:, 0]

    def mean(self, X: tf.Tensor) -> tf.Tensor:
        x, scale = X[..., 0], _ROOT_2 * self.length
        both = tf.math.erf((self.b - x) / scale) + tf.math.erf((x - self.a) / scale)
        return self.variance * self.length / (self.b - self.a) * _ROOT_HALF_PI * both


_ROOT_2, _ROOT_HALF_PI = np.sqrt(2.0), np.sqrt(np.pi / 2.0)

_CLOSED_FORMS: dict[tuple[type, type], type[_Embedding]] = {
    (SquaredExponential, Uniform): _SquaredExponentialUniform
}


def _embedding(base: StackedKernel, measures: Sequence[Measure], dtype: tf.DType) -> _Embedding:
    pair = (type(base.kernels[0]), type(measures[0]))
    return _CLOSED_FORMS.get(pair, _Nodes)(base, measures, dtype)  # type: ignore[call-arg]


@register_stacked(ZeroMean)
class StackedZeroMean(StackedKernel):
    """Zero-mean kernels over stacked bases."""

    def __init__(self, kernels: Kernels, columns: Columns) -> None:
        super().__init__(kernels, columns)
        self.base = stack([k.base for k in kernels], columns)
        self._measures = [k.measure for k in kernels]
        self._made: _Embedding | None = None

    def _embed(self, dtype: tf.DType) -> _Embedding:
        if self._made is None:
            self._made = _embedding(self.base, self._measures, dtype)
        return self._made

    @classmethod
    def signature(cls, kernel: Kernel, columns: Columns) -> Hashable | None:
        base = signature(kernel.base, columns)
        if base is None:
            return None
        closed = (type(kernel.base), type(kernel.measure)) in _CLOSED_FORMS
        num_nodes = 0 if closed else int(kernel.measure.nodes()[1].shape[0])
        return base, type(kernel.measure), num_nodes

    def K(self, X: tf.Tensor, X2: tf.Tensor) -> tf.Tensor:
        embedding = self._embed(X.dtype)
        mean = embedding.mean(X)
        mean2 = mean if X2 is X else embedding.mean(X2)
        scaled = mean / embedding.total[:, None]
        return self.base.K(X, X2) - scaled[:, :, None] * mean2[:, None, :]

    def K_diag(self, X: tf.Tensor) -> tf.Tensor:
        embedding = self._embed(X.dtype)
        centre = tf.square(embedding.mean(X)) / embedding.total[:, None]
        return self.base.K_diag(X) - centre
