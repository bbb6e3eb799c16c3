"""What is added to a covariance matrix so that it factorises: a share of its own variances."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.config import default_jitter
from gpflow.kernels import Kernel, Product

from ..kernels import CentredLinear
from ..kernels.levels import only_levels

_SINGLE = 1e-5
"""The least share in single precision, where less is lost in rounding."""
_LEVELS = 1e-12
"""Enough for levels in double precision: their eigenvalues are zero or far from it."""
_OPEN = 1e-10
"""Beside the rounding of what is left of them where they are known."""


def relative_jitter(jitter: float | None, dtype: tf.DType) -> float:
    """
    The share of its variances that is added to a covariance matrix.

    :param jitter: None for GPflow's default, and at least 1e-5 in single precision.
    :param dtype: of the matrix.
    """
    if jitter is not None:
        return jitter
    return max(default_jitter(), _SINGLE) if dtype == tf.float32 else default_jitter()


def own_jitter(jitter: float, kernel: Kernel, dtype: tf.DType) -> float:
    """
    The share of a component with this kernel, at most ``jitter``.

    What is added is variance that no data can take away. A millionth of a prior variance is little
    beside what inducing inputs of a smooth leave open, but not beside what is known of a factor's
    levels after a million rows.

    :param jitter: of components in general.
    :param kernel: of the component.
    :param dtype: of the matrix.
    """
    return min(jitter, _LEVELS) if dtype == tf.float64 and only_levels(kernel) else jitter


def mean_variance(variances: tf.Tensor) -> tf.Tensor:
    """
    The size [..., 1] of a function with these variances [..., N]: their mean.

    Exactly zero where it is too small to be told from it.
    """
    mean = tf.reduce_mean(variances, axis=-1, keepdims=True)
    limits = np.finfo(variances.dtype.as_numpy_dtype)
    return tf.where(mean > limits.tiny / limits.eps, mean, tf.zeros_like(mean))


def jittered(K: tf.Tensor, jitter: float, size: tf.Tensor | None = None) -> tf.Tensor:
    """
    ``K + jitter * size * I`` for each matrix of K [..., M, M].

    A response in other units is the same problem with another variance, so what is added has to
    follow the variance. Where that is zero, I is added: the matrix is zero, and has a factor all
    the same.

    :param K: covariance matrices.
    :param jitter: as a share of ``size``.
    :param size: [..., 1] or [..., M]; by default ``trace(K) / M``, and nothing is added to a
        matrix that is diagonal. It factorises as it is, and jitter is variance that no data can
        take away: 1e-6 of an intercept's prior is more than what 1e6 rows leave of it.
    """
    diag = tf.linalg.diag_part(K)
    if size is None:
        size = mean_variance(diag)
        others = tf.reduce_any(tf.linalg.set_diag(K, tf.zeros_like(diag)) != 0.0, axis=[-2, -1])
        jitter = (jitter * tf.cast(others, K.dtype))[..., None]
    return tf.linalg.set_diag(K, diag + tf.where(size > 0.0, jitter * size, tf.ones_like(size)))


def open_jitters(kernels: Sequence[Kernel], dtype: tf.DType) -> AnyNDArray:
    """
    Shares of their variances, [C, 1], of what inducing inputs leave open of components.

    Next to nothing of lines and levels, of which they leave nothing: draws at equal rows are equal.
    """
    jitter = relative_jitter(None, dtype)
    known = [dtype == tf.float64 and (_is_line(k) or only_levels(k)) for k in kernels]
    return np.array([[_OPEN if own else jitter] for own in known])


def _is_line(kernel: Kernel) -> bool:
    if isinstance(kernel, Product):
        return all(_is_line(part) or only_levels(part) for part in kernel.kernels)
    return isinstance(kernel, CentredLinear)


def sampling_root(
    covariance: tf.Tensor, size: tf.Tensor, message: str, jitters: AnyNDArray | None = None
) -> tf.Tensor:
    """
    A square root [..., N, N] of covariances that rounding may have left slightly indefinite.

    Differences of covariances have errors of the size of what was subtracted. Where those exceed
    the jitter, as in single precision, the symmetric root without the negative eigenvalues takes
    the place of the Cholesky factor.

    :param covariance: [..., N, N].
    :param size: the variance a priori, [..., 1] or [..., N]. Where it is zero, so are draws.
    :param message: of the error.
    :param jitters: shares of ``size``, [..., 1]; GPflow's default if None.
    :raises tf.errors.InvalidArgumentError: negative by more than rounding, or not finite.
    """
    jitter = relative_jitter(None, covariance.dtype) if jitters is None else jitters
    size = tf.broadcast_to(size, tf.shape(covariance)[:-1])
    root = tf.linalg.cholesky(jittered(covariance, jitter, size))

    def clipped() -> tf.Tensor:
        # at unit variances: the components of one matrix may differ in size
        scale = tf.where(size > 0.0, tf.sqrt(size), tf.ones_like(size))
        unit = covariance / (scale[..., :, None] * scale[..., None, :])
        values, vectors = tf.linalg.eigh(tf.cast(unit, tf.float64))
        eps = np.finfo(covariance.dtype.as_numpy_dtype).eps
        rounding = -np.sqrt(eps) * tf.cast(tf.shape(unit)[-1], tf.float64)
        values = tf.where(values > rounding, tf.maximum(values, 0.0), np.nan)
        values = tf.debugging.check_numerics(values, message)
        inner = tf.matmul(vectors * tf.sqrt(values)[..., None, :], vectors, transpose_b=True)
        return scale[..., None] * tf.cast(inner, covariance.dtype)

    finite = tf.reduce_all(tf.math.is_finite(root))
    root = tf.cond(finite, lambda: root, clipped)
    return tf.where(size > 0.0, tf.ones_like(size), tf.zeros_like(size))[..., None] * root
