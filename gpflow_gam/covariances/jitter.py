"""What is added to a covariance matrix so that it factorises: a share of its own variances."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from gpflow.config import default_jitter
from gpflow.kernels import Kernel

from ..kernels.levels import only_levels

_SINGLE = 1e-5
"""The least share in single precision, where less is lost in rounding."""
_LEVELS = 1e-12
"""Enough for levels in double precision: their eigenvalues are zero or far from it."""
_KNOWN = 1e-10
"""Share of a variance that is nothing: what rounding and the jitter of levels leave."""
_LEAST = 1e-6
"""Of a component's mean variance: what may be rounding where functions are centred."""


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


def open_variances(variances: tf.Tensor, left: tf.Tensor) -> tf.Tensor:
    """
    Sizes [..., N] of what inducing inputs leave open at points, of which jitter is a share.

    Each point's own variance a priori: the mean of all would be that of an outlier, and its jitter
    more than all that is known of the rest. Exactly zero where nothing is left, as of lines and
    levels, whose draws at equal rows are equal. In single precision rounding is as large as the
    largest.

    :param variances: a priori, [..., N].
    :param left: of these, [..., N].
    """
    mean = mean_variance(variances)
    if variances.dtype == tf.float32:
        return mean + tf.zeros_like(variances)
    size = tf.maximum(variances, _LEAST * mean)
    return tf.where((mean > 0.0) & (left > _KNOWN * variances), size, tf.zeros_like(size))


def sampling_root(covariance: tf.Tensor, size: tf.Tensor, message: str) -> tf.Tensor:
    """
    A square root [..., N, N] of covariances that rounding may have left slightly indefinite.

    Differences of covariances have errors of the size of what was subtracted. Where those exceed
    the jitter, as in single precision, the symmetric root without the negative eigenvalues takes
    the place of the Cholesky factor.

    :param covariance: [..., N, N].
    :param size: the variance a priori, [..., 1] or [..., N]. Where it is zero, so are draws.
    :param message: of the error.
    :raises tf.errors.InvalidArgumentError: negative by more than rounding, or not finite.
    """
    jitter = relative_jitter(None, covariance.dtype)
    size = tf.broadcast_to(size, tf.shape(covariance)[:-1])
    alive = size > 0.0
    both = alive[..., :, None] & alive[..., None, :]
    covariance = tf.where(both, covariance, tf.zeros_like(covariance))  # that may be rounding
    root = tf.linalg.cholesky(jittered(covariance, jitter, size))

    def clipped() -> tf.Tensor:
        # at unit variances: the components of one matrix may differ in size
        scale = tf.where(alive, tf.sqrt(size), tf.ones_like(size))
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
    return tf.where(alive, tf.ones_like(size), tf.zeros_like(size))[..., None] * root
