"""The curvature of any likelihood, by automatic differentiation."""

from __future__ import annotations

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType
from gpflow.likelihoods import Likelihood, ScalarLikelihood

from .curvature import Curvature
from .precisions import DensePrecision, DiagonalPrecision


@check_shapes("X: [N, D]", "F: [N, Q]", "Y: [N, K]")
def automatic_curvature(
    likelihood: Likelihood, X: TensorType, F: TensorType, Y: TensorType
) -> Curvature:
    """
    Two passes of differentiation, the second once a latent function.

    :param likelihood: with a ``log_prob`` that can be differentiated twice.
    :param X: inputs, [N, D].
    :param F: latent functions, [N, Q].
    :param Y: observations, [N, K].
    :raises ValueError: ``log_prob`` does not depend smoothly on F.
    """
    F = tf.convert_to_tensor(F)
    columns = tf.unstack(F, axis=1)
    with tf.GradientTape(persistent=True) as outer:
        outer.watch(columns)
        with tf.GradientTape() as inner:
            inner.watch(columns)
            log_prob = likelihood.log_prob(X, tf.stack(columns, axis=1), Y)
        gradient = inner.gradient(log_prob, columns)
        if any(g is None for g in gradient):
            raise ValueError(
                f"likelihood {type(likelihood).__name__} has no gradient in f, so Newton's method "
                "cannot use it; use a variational model (AdditiveSVGP)."
            )
    separate = isinstance(likelihood, ScalarLikelihood)
    rows = []
    for q, g in enumerate(gradient):
        sources = [columns[q]] if separate else columns
        rows.append(outer.gradient(g, sources, unconnected_gradients="zero"))
    del outer
    if separate:
        return Curvature(
            log_prob, tf.stack(gradient), DiagonalPrecision(-tf.stack([r[0] for r in rows]))
        )
    hessian = tf.stack([tf.stack(r, axis=-1) for r in rows], axis=-2)
    return Curvature(log_prob, tf.stack(gradient), DensePrecision(-hessian))
