"""Kernels whose draws integrate to zero under a measure (Durrande et al. 2013)."""

from __future__ import annotations

import abc
from collections.abc import Hashable, Sequence

import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel, SquaredExponential
from gpflow.kernels.base import ActiveDims, NormalizedActiveDims
from numpy.polynomial.legendre import leggauss

from ..measures import Gaussian, Measure, Uniform
from .additive import (
    Kernels,
    StackableKernel,
    StackedKernel,
    StackedStationary,
    register_stacked,
    rest_of,
    signature,
    stack_or_alone,
)
from .correlation import PROFILES, Columns, kernel_columns


class Embedding(abc.ABC):
    """The means of G kernels under their measures less their ``level``: digits stay."""

    total: tf.Tensor  # E_{t,u} g(t, u) - c, [G, 1]

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
        return tf.linalg.matvec(self.base.K(X, self.nodes, **rest_of(self.base)), self.weights)


# which are exact to rounding up to the reach of each correlation
_PLACES, _SHARES = leggauss(24)  # type: ignore[no-untyped-call]
_PLACES, _SHARES = 0.5 * (_PLACES + 1.0), 0.5 * _SHARES


class _Interval(Embedding):
    """Stationary kernels under Uniform[a, b], by integrals over distances, smooth on each side."""

    def __init__(self, base: StackedKernel, measures: Sequence[Measure], dtype: tf.DType) -> None:
        assert isinstance(base, StackedStationary)
        ends = [(m.lower, m.upper) for m in measures if isinstance(m, Uniform)]
        self.a, self.b = (tf.constant(e, dtype=dtype)[:, None] for e in zip(*ends))
        self.profile = PROFILES[type(base.kernels[0])]
        self.variance = base.variances
        self.unit = base.lengthscales / self.profile.scale  # [G, 1]
        self.width = (self.b - self.a) / self.unit
        pairs = self._integral(self.width, linear=True)
        self.total = 2.0 * self.variance * pairs / tf.square(self.width)

    def mean(self, X: tf.Tensor) -> tf.Tensor:
        x, once = X[..., 0], self._integral
        both = once((x - self.a) / self.unit) + once((self.b - x) / self.unit)
        return self.variance / self.width * both

    def _integral(self, end: tf.Tensor, linear: bool = False) -> tf.Tensor:
        """Of ``g - 1`` over distances from 0 to an end of either sign, or times ``end - s``."""
        most = tf.constant(self.profile.reach, end.dtype)
        inner = tf.clip_by_value(end, -most, most)  # beyond, g - 1 is minus one
        s = inner[..., None] * tf.constant(_PLACES, end.dtype)
        deficit = self.profile.tensor(tf.square(s), deficit=True)
        rest = end - inner
        if linear:
            deficit, rest = deficit * (end[..., None] - s), 0.5 * tf.square(rest)
        return inner * tf.linalg.matvec(deficit, tf.constant(_SHARES, end.dtype)) - rest


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
        away = tf.square(X[..., 0] - self.centre) / (2.0 * self.spread)
        return self.variance * tf.math.expm1(self.log_height - away)


_CLOSED_FORMS: dict[tuple[type[Kernel], type[Measure]], type[Embedding]] = {
    **{(kernel, Uniform): _Interval for kernel in PROFILES},
    (SquaredExponential, Gaussian): _SquaredExponentialGaussian,
}


def closed_form(kernel: Kernel, measure: Measure) -> type[Embedding] | None:
    """The class that has this pair in closed form, None where it goes by nodes."""
    return _CLOSED_FORMS.get((type(kernel), type(measure)))


class ZeroMean(StackableKernel):
    r"""
    ``base`` conditioned on a zero integral under ``measure``.

    .. math:: s(x, y) = g(x, y) - \frac{E_t g(x, t)\, E_t g(y, t)}{E_{t,u}\, g(t, u)}

    Main effects with such kernels are orthogonal to a constant, and products of them on different
    inputs to both, so that the components of a sum are identifiable (Durrande, Ginsbourger,
    Roustant & Carraro 2013, "ANOVA kernels and RKHS of zero mean functions"; eq. 8 of Adam et al.
    2018). Integrals are exact to rounding for the squared exponential and the Matern kernels under
    a uniform measure and for the squared exponential under a Gaussian one; every other pair goes by
    the measure's nodes.

    :param base: the kernel g; its ``active_dims`` are this kernel's.
    :param measure: the measure, on as many columns as ``base`` reads.
    :param extrapolate: whether the kernel may be used outside the measure's bounds, where it goes
        on by the same formula. By default it refuses to: draws there are in no way centred, and
        such inputs are mostly an error in the bounds.
    :raises ValueError: where ``base`` and ``measure`` are of different dimension, ``base`` does
        not say which columns it reads, or, when it is evaluated, inputs outside the bounds (in a
        graph ``tf.errors.InvalidArgumentError``; XLA drops the check).
    """

    def __init__(self, base: Kernel, measure: Measure, *, extrapolate: bool = False) -> None:
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
        self.extrapolate = extrapolate

    @property
    def active_dims(self) -> NormalizedActiveDims:
        # not the base's: a product of kernels slices for itself, the measure must not
        columns = kernel_columns(self.base)
        return np.array(columns, dtype=np.int32)

    @active_dims.setter
    def active_dims(self, value: ActiveDims) -> None:
        self.base.active_dims = value  # type: ignore[assignment]


@register_stacked(ZeroMean)
class StackedZeroMean(StackedKernel):
    """Zero-mean kernels over stacked bases."""

    def __init__(self, kernels: Kernels, columns: Columns) -> None:
        super().__init__(kernels, columns)
        self.base = stack_or_alone([k.base for k in kernels], columns)
        self._measures = [k.measure for k in kernels]
        self._made: Embedding | None = None
        self._last: tuple[tf.Tensor, tf.Tensor] | None = None

    def _mean(self, X: tf.Tensor) -> tf.Tensor:
        """The embedding's mean at X; covariances and variances are asked one after the other."""
        if self._last is None or self._last[0] is not X:
            self._last = X, self._embed(X.dtype).mean(X)
        return self._last[1]

    def _embed(self, dtype: tf.DType) -> Embedding:
        if self._made is None:
            form = closed_form(self.base.kernels[0], self._measures[0]) or _Nodes
            self._made = form(self.base, self._measures, dtype)  # type: ignore[call-arg]
        return self._made

    @classmethod
    def signature(cls, kernel: Kernel, columns: Columns) -> Hashable | None:
        base = signature(kernel.base, columns)
        if base is None:
            return None
        form: Hashable = closed_form(kernel.base, kernel.measure)
        if form is None:
            form = int(kernel.measure.nodes()[1].shape[0])
        return base, form, _checks(kernel)

    def K(self, X: tf.Tensor, X2: tf.Tensor, rest: bool = False) -> tf.Tensor:
        same = X2 is X
        X = self._inside(X)
        X2 = X if same else self._inside(X2)
        embedding, level = self._embed(X.dtype), self.base.level
        h = self.base.K(X, X2, **rest_of(self.base))
        mean, mean2 = self._mean(X), self._mean(X2)
        if level is None:
            scaled = tf.math.divide_no_nan(mean, embedding.total)  # a variance may be zero
            return h - scaled[:, :, None] * mean2[:, None, :]
        # With g = c + h: s = h + [c (E h - E_t h(x, t) - E_t h(y, t)) - E_t h(x, t) E_t h(y, t)]
        # / (c + E h), where what is of order c has cancelled on paper rather than in rounding.
        # (Slices, which Grappler does not look through: it would round otherwise than eager code,
        # and what is served is the model's to the last bit.)
        whole = level + embedding.total
        share = tf.math.divide_no_nan(level, whole)
        along = share * (embedding.total - mean)
        across = -(share + tf.math.divide_no_nan(mean, whole))
        return h + along[:, :, None] + across[:, :, None] * mean2[:, None, :]

    def K_diag(self, X: tf.Tensor, rest: bool = False) -> tf.Tensor:
        X = self._inside(X)
        embedding, level = self._embed(X.dtype), self.base.level
        h, mean = self.base.K_diag(X, **rest_of(self.base)), self._mean(X)
        if level is None:
            return h - tf.math.divide_no_nan(tf.square(mean), embedding.total)
        whole = level + embedding.total
        inner = level * (embedding.total - 2.0 * mean) - tf.square(mean)
        return tf.maximum(h + tf.math.divide_no_nan(inner, whole), tf.zeros([], X.dtype))

    def _inside(self, X: tf.Tensor) -> tf.Tensor:
        """X, once it is known to be within the measures' bounds."""
        if not _checks(self.kernels[0]):
            return X
        bounds = [m.bounds for m in self._measures]
        lower, upper = (np.stack([b[i] for b in bounds if b is not None]) for i in (0, 1))
        slack = 1e-6 * (upper - lower)  # inputs may have been rounded to single precision
        low = tf.constant((lower - slack)[:, None, :], X.dtype)
        high = tf.constant((upper + slack)[:, None, :], X.dtype)
        fine = tf.reduce_all((low <= X) & (high >= X))
        least, greatest = tf.reduce_min(X, axis=1), tf.reduce_max(X, axis=1)
        problem = f"inputs reach outside the bounds of {', '.join(map(repr, self._measures))}: from"
        advice = "; widen the measure, or pass extrapolate=True to ZeroMean."
        if tf.executing_eagerly():
            if not fine:
                low, high = (np.ravel(a).tolist() for a in (least, greatest))
                raise ValueError(f"{problem} {low} to {high}{advice}")
            return X
        message = [problem, least, "to", greatest, advice]
        with tf.control_dependencies([tf.debugging.Assert(fine, message, 64)]):
            return tf.identity(X)


def _checks(kernel: Kernel) -> bool:
    return kernel.measure.bounds is not None and not kernel.extrapolate
