"""What each observation says about its predictor: gradients of its expected log-density."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray, TensorType
from gpflow.likelihoods import Likelihood
from scipy.optimize import minimize

from .weighted import unwrapped


@check_shapes(
    "X: [N, D]",
    "mean: [N, L]",
    "var: [N, L]",
    "Y: [N, K]",
    "return[0]: [N]",
    "return[1]: [N, L]",
    "return[2]: [N, L]",
)
def expectation_gradients(
    likelihood: Likelihood, X: TensorType, mean: TensorType, var: TensorType, Y: TensorType
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """
    E[log p(y_n | rho_n)] for rho_n ~ N(mean_n, var_n), and how it changes.

    :return: the expectations; ``g = dE/dmean``; ``w = -2 dE/dvar``, which is not negative for
        log-concave likelihoods (Opper & Archambeau 2009).
    """
    mean, var = tf.convert_to_tensor(mean), tf.convert_to_tensor(var)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch([mean, var])
        expected = likelihood.variational_expectations(X, mean, var, Y)
    g, dv = tape.gradient(expected, [mean, var], unconnected_gradients="zero")
    return expected, g, -2.0 * dv


def constant_predictor(
    likelihood: Likelihood, X: TensorType, Y: TensorType, offset: TensorType, latent: int
) -> tf.Tensor:
    """
    The constant c [1, L] under which ``rho = offset + c`` makes Y most likely: the null model.

    Newton's method on a GAM started from rho = 0 overflows under a log link as soon as counts are
    large; started from here it does not.

    :param offset: [N, L].
    :param latent: the number of latent outputs, L.
    """
    X, Y, offset = (tf.convert_to_tensor(a) for a in (X, Y, offset))

    # not compiled: a dozen calls of a few operations are over before a trace is
    def loss(c: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(c)
            value = -tf.reduce_mean(likelihood.log_prob(X, offset + c, Y))
        return value, tape.gradient(value, c, unconnected_gradients="zero")

    def evaluate(c: AnyNDArray) -> tuple[float, AnyNDArray]:
        value, slope = loss(tf.constant(c[None], dtype=offset.dtype))
        if not (np.isfinite(value) and np.all(np.isfinite(slope))):
            return np.inf, np.zeros_like(c)
        return float(value), np.asarray(slope, dtype=np.float64)[0]

    # Behind a link 30 is as good as infinite; without one the predictor has Y's own scale.
    bounds = [(-30.0, 30.0)] * latent if hasattr(unwrapped(likelihood), "invlink") else None
    result = minimize(evaluate, np.zeros(latent), jac=True, method="L-BFGS-B", bounds=bounds)
    best = result.x if np.all(np.isfinite(result.x)) else np.zeros(latent)
    return tf.constant(best[None], dtype=offset.dtype)
