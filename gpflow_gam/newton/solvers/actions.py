"""What the data have been asked through a set of actions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes


@dataclass(frozen=True)
class ActionPosteriorState:
    """
    The posterior ``m + k v``, ``k - k S F F' S' k`` of the latent functions (k = k(., X)).

    ``S F F' S' = S (S'(K + W^+) S)^-1 S'`` is C of Tatzel et al. (2025), Algorithm 2.
    """

    weights: tf.Tensor
    """v, [Q, N]."""

    actions: tf.Tensor
    """S, [B, Q, N]: joint in the latent functions."""

    factor: tf.Tensor
    """F, [B, B]; columns of zeros for directions that are rounding only."""

    prior: tf.Tensor
    """S'K S, [B, B]."""

    noise: tf.Tensor
    """S'W^+ S, [B, B]."""

    targets: tf.Tensor
    """What the actions saw of the pseudo-observations: S'(yhat - m), [B]."""

    @classmethod
    def nothing(cls, weights: tf.Tensor) -> ActionPosteriorState:
        """
        No action yet: the prior covariance.

        :param weights: [Q, N].
        """
        Q, N = weights.shape
        empty = tf.zeros([0, 0], weights.dtype)
        S = tf.zeros([0, Q, N], weights.dtype)
        return cls(weights, S, empty, empty, empty, tf.zeros([0], weights.dtype))


@check_shapes("gram: [B, B]", "return: [B, B]")
def explained(gram: tf.Tensor) -> tf.Tensor:
    """
    F with ``F F' = gram^-1``, where gram = S'(K + W^+)S.

    Directions that are rounding only are left out: F has zeros for them.

    :param gram: [B, B], symmetric, positive semi-definite.
    """
    gram = 0.5 * (gram + tf.transpose(gram))
    if gram.shape[0] == 0:
        return gram
    diag = tf.linalg.diag_part(gram)
    tiny = np.finfo(gram.dtype.as_numpy_dtype).tiny
    scale = tf.where(diag > tiny, tf.math.rsqrt(tf.maximum(diag, tiny)), tf.zeros_like(diag))
    values, vectors = tf.linalg.eigh(scale[:, None] * gram * scale)
    eps = np.finfo(gram.dtype.as_numpy_dtype).eps
    keep = values > eps * tf.cast(tf.shape(gram)[0], gram.dtype)
    ones = tf.ones_like(values)
    inverse = tf.where(keep, tf.math.rsqrt(tf.where(keep, values, ones)), 0.0 * ones)
    return scale[:, None] * vectors * inverse
