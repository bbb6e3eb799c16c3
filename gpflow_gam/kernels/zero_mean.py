"""Kernels whose draws integrate to zero under a measure (Durrande et al. 2013)."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import TensorType
from gpflow.kernels import Kernel
from gpflow.kernels.base import ActiveDims, NormalizedActiveDims

from ..measures import Measure
from .columns import Columns, kernel_columns
from .embedding import Embedding, closed_form, embed
from .stacked import Alone, Kernels, StackedKernel, register_stacked, signature, stack


class ZeroMean(Kernel):
    r"""
    ``base`` conditioned on a zero integral under ``measure``.

    .. math:: s(x, y) = g(x, y) - \frac{E_t g(x, t)\, E_t g(y, t)}{E_{t,u}\, g(t, u)}

    Main effects with such kernels are orthogonal to a constant, and products of them on different
    inputs to both, so that the components of a sum are identifiable (Durrande, Ginsbourger,
    Roustant & Carraro 2013, "ANOVA kernels and RKHS of zero mean functions"; eq. 8 of Adam et al.
    2018). Closed forms for the squared exponential and the Matern kernels under a uniform measure
    and for the squared exponential under a Gaussian one; every other pair by the measure's nodes.

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

    @inherit_check_shapes
    def K(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        own = self._stacked()
        if X2 is None:  # leading dimensions take the place of G
            flat = tf.reshape(X, tf.concat([[-1], tf.shape(X)[-2:]], axis=0))
            return tf.reshape(
                own.K(flat, flat), tf.concat([tf.shape(X)[:-1], tf.shape(X)[-2:-1]], axis=0)
            )
        rows, columns = (tf.reshape(x, [1, -1, x.shape[-1]]) for x in (X, X2))
        shape = tf.concat([tf.shape(X)[:-1], tf.shape(X2)[:-1]], axis=0)
        return tf.reshape(own.K(rows, columns), shape)

    @inherit_check_shapes
    def K_diag(self, X: TensorType) -> tf.Tensor:
        rows = tf.reshape(X, [1, -1, X.shape[-1]])
        return tf.reshape(self._stacked().K_diag(rows), tf.shape(X)[:-1])

    def _stacked(self) -> StackedKernel:
        columns = kernel_columns(self)
        assert columns is not None
        return StackedZeroMean([self], columns)


@register_stacked(ZeroMean)
class StackedZeroMean(StackedKernel):
    """Zero-mean kernels over stacked bases."""

    def __init__(self, kernels: Kernels, columns: Columns) -> None:
        super().__init__(kernels, columns)
        bases = [k.base for k in kernels]
        known = signature(bases[0], columns) is not None
        self.base = stack(bases, columns) if known else Alone(bases, columns)
        self._measures = [k.measure for k in kernels]
        self._made: Embedding | None = None

    def _embed(self, dtype: tf.DType) -> Embedding:
        if self._made is None:
            self._made = embed(self.base, self._measures, dtype)
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

    def K(self, X: tf.Tensor, X2: tf.Tensor) -> tf.Tensor:
        same = X2 is X
        X = self._inside(X)
        X2 = X if same else self._inside(X2)
        embedding, level = self._embed(X.dtype), self.base.level
        rest = self.base.K_rest(X, X2)
        mean = embedding.mean(X)
        mean2 = mean if same else embedding.mean(X2)
        if level is None:
            scaled = tf.math.divide_no_nan(mean, embedding.total)  # a variance may be zero
            return rest - scaled[:, :, None] * mean2[:, None, :]
        # With g = c + h: s = h + [c (E h - E_t h(x, t) - E_t h(y, t)) - E_t h(x, t) E_t h(y, t)]
        # / (c + E h), where what is of order c has cancelled on paper rather than in rounding.
        # (Slices, which Grappler does not look through: it would round otherwise than eager code,
        # and what is served is the model's to the last bit.)
        whole = level + embedding.total
        share = tf.math.divide_no_nan(level, whole)
        along = share * (embedding.total - mean)
        across = -(share + tf.math.divide_no_nan(mean, whole))
        return rest + along[:, :, None] + across[:, :, None] * mean2[:, None, :]

    def K_diag(self, X: tf.Tensor) -> tf.Tensor:
        X = self._inside(X)
        embedding, level = self._embed(X.dtype), self.base.level
        rest, mean = self.base.K_diag_rest(X), embedding.mean(X)
        if level is None:
            return rest - tf.math.divide_no_nan(tf.square(mean), embedding.total)
        whole = level + embedding.total
        inner = level * (embedding.total - 2.0 * mean) - tf.square(mean)
        return tf.maximum(rest + tf.math.divide_no_nan(inner, whole), tf.zeros([], X.dtype))

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
