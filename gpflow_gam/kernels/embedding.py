"""Means of kernels under measures, ``E_t g(x, t)`` and ``E_{t,u} g(t, u)``."""

from __future__ import annotations

import abc
from collections.abc import Sequence

import tensorflow as tf
from gpflow.kernels import Kernel, SquaredExponential

from ..measures import Gaussian, Measure, Uniform
from .profiles import PROFILES
from .stacked import StackedKernel
from .stacked_gpflow import StackedStationary


class Embedding(abc.ABC):
    """
    The means of G kernels under their measures, less each kernel's ``level`` c.

    A kernel with a long lengthscale is nearly constant. What differs from the constant is kept
    by itself, so that nothing of it is lost in rounding.
    """

    total: tf.Tensor
    """E_{t,u} g(t, u) - c, [G, 1]."""

    @abc.abstractmethod
    def mean(self, X: tf.Tensor) -> tf.Tensor:
        """E_t g(x, t) - c, [G, N], for X [G, N, d]."""


class _Nodes(Embedding):
    """By the measure's nodes: exact for discrete measures, quadrature for others."""

    def __init__(self, base: StackedKernel, measures: Sequence[Measure], dtype: tf.DType) -> None:
        nodes, weights = zip(*(m.nodes() for m in measures))
        self.base = base
        self.nodes = tf.stack([tf.cast(x, dtype) for x in nodes])
        self.weights = tf.stack([tf.cast(w, dtype) for w in weights])
        inner = self.mean(self.nodes)
        self.total = tf.reduce_sum(self.weights * inner, axis=-1, keepdims=True)

    def mean(self, X: tf.Tensor) -> tf.Tensor:
        return tf.linalg.matvec(self.base.K_rest(X, self.nodes), self.weights)


class _Interval(Embedding):
    """Stationary kernels under Uniform[a, b], by the integrals of their correlation."""

    def __init__(self, base: StackedKernel, measures: Sequence[Measure], dtype: tf.DType) -> None:
        assert isinstance(base, StackedStationary)
        ends = [(m.lower, m.upper) for m in measures if isinstance(m, Uniform)]
        self.a, self.b = (tf.constant(e, dtype=dtype)[:, None] for e in zip(*ends))
        self.profile = PROFILES[type(base.kernels[0])]
        self.variance = base.variances
        self.unit = base.lengthscales / self.profile.scale  # [G, 1]
        self.width = (self.b - self.a) / self.unit
        self.total = 2.0 * self.variance * self.profile.twice(self.width) / tf.square(self.width)

    def mean(self, X: tf.Tensor) -> tf.Tensor:
        x, once = tf.squeeze(X, -1), self.profile.once
        both = once((x - self.a) / self.unit) + once((self.b - x) / self.unit)
        return self.variance / self.width * both


class _SquaredExponentialGaussian(Embedding):
    """The squared exponential under N(m, d^2): a product of normal densities."""

    def __init__(self, base: StackedKernel, measures: Sequence[Measure], dtype: tf.DType) -> None:
        assert isinstance(base, StackedStationary)
        moments = [(m.mean, m.sd) for m in measures if isinstance(m, Gaussian)]
        self.centre, sd = (tf.constant(v, dtype=dtype)[:, None] for v in zip(*moments))
        self.variance = base.variances
        square = tf.square(base.lengthscales)
        self.spread = square + tf.square(sd)
        self.log_height = -0.5 * tf.math.log1p(tf.square(sd) / square)
        log_total = -0.5 * tf.math.log1p(2.0 * tf.square(sd) / square)
        self.total = self.variance * tf.math.expm1(log_total)

    def mean(self, X: tf.Tensor) -> tf.Tensor:
        away = tf.square(tf.squeeze(X, -1) - self.centre) / (2.0 * self.spread)
        return self.variance * tf.math.expm1(self.log_height - away)


_CLOSED_FORMS: dict[tuple[type[Kernel], type[Measure]], type[Embedding]] = {
    **{(kernel, Uniform): _Interval for kernel in PROFILES},
    (SquaredExponential, Gaussian): _SquaredExponentialGaussian,
}


def closed_form(kernel: Kernel, measure: Measure) -> type[Embedding] | None:
    """The class that has this pair in closed form, None where it goes by nodes."""
    return _CLOSED_FORMS.get((type(kernel), type(measure)))


def embed(base: StackedKernel, measures: Sequence[Measure], dtype: tf.DType) -> Embedding:
    """
    The embeddings of stacked kernels.

    :param base: G kernels.
    :param measures: G measures, of one kind as :func:`closed_form` tells them apart.
    :param dtype: of the result.
    """
    form = closed_form(base.kernels[0], measures[0]) or _Nodes
    return form(base, measures, dtype)  # type: ignore[call-arg]
