"""What each observation says about its predictor: gradients of its expected log-density."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray, TensorType
from gpflow.likelihoods import Likelihood, StudentT
from scipy.optimize import minimize

from ..measures import weighted_quantiles
from .linked import LinkedLocationScale
from .location_scale import LocationScaleStudentT
from .mean_link import MeanLink
from .quasi import Quasi
from .weighted import Weighted, unwrapped

_NEWTON, _STEP, _FLAT = 5, 1e-5, 1e-6
"""Steps of Newton's method; of differences; and curvature, against the largest, that is none."""


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

    :param likelihood: of the responses.
    :param X: inputs [N, D], for likelihoods that read them.
    :param mean: of the predictors, [N, L].
    :param var: of the predictors, [N, L].
    :param Y: [N, K], as the likelihood takes it.
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
    large; started from here it does not. In other units of Y the search is the same one.

    :param likelihood: of the responses.
    :param X: inputs [N, D].
    :param Y: [N, K], as the likelihood takes it.
    :param offset: [N, L].
    :param latent: the number of latent outputs, L.
    """
    X, Y, offset = (tf.convert_to_tensor(a) for a in (X, Y, offset))
    weights = np.asarray(likelihood.weights(X)) if isinstance(likelihood, Weighted) else None
    number = float(len(Y) if weights is None else np.sum(weights))

    # not compiled: a dozen calls of a few operations are over before a trace is
    def loss(c: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(c)
            value = -tf.reduce_sum(likelihood.log_prob(X, offset + c, Y)) / number
        return value, tape.gradient(value, c, unconnected_gradients="zero")

    base = unwrapped(likelihood)
    linked = hasattr(base.base if isinstance(base, Quasi) else base, "invlink")
    # Without a link the predictor has Y's own scale, with the logarithm for one Y's own level.
    level_of = getattr(base.base if isinstance(base, Quasi) else base, "level_of", None)
    start, level = np.zeros(latent), _level(likelihood, weights, offset, Y)
    start[: 1 if isinstance(base, LinkedLocationScale) else latent] = level
    if level_of is not None:
        start = level_of(np.asarray(Y)[:, 0] - np.asarray(offset)[:, 0], weights)
    scale = np.ones(latent) if linked else _unit(likelihood, X, offset + start, Y, number)
    least = float(loss(tf.constant(start[None], dtype=offset.dtype))[0])
    least = least if np.isfinite(least) else 0.0  # of log-densities, whose level is a unit's too

    def evaluate(t: AnyNDArray) -> tuple[float, AnyNDArray]:
        value, slope = loss(tf.constant((start + scale * t)[None], dtype=offset.dtype))
        if not (np.isfinite(value) and np.all(np.isfinite(slope))):
            return np.inf, np.zeros_like(t)
        return float(value) - least, scale * np.asarray(slope, dtype=np.float64)[0]

    bounds = [(-30.0, 30.0)] * latent if linked else None  # as good as infinite
    result = minimize(evaluate, np.zeros(latent), jac=True, method="L-BFGS-B", bounds=bounds)
    found = result.x if np.all(np.isfinite(result.x)) else np.zeros(latent)
    best = start + scale * _settled(lambda t: evaluate(t)[1], found, bounds)
    return tf.constant(best[None], dtype=offset.dtype)


def _settled(
    slope: Callable[[AnyNDArray], AnyNDArray],
    t: AnyNDArray,
    bounds: Sequence[tuple[float, float]] | None,
) -> AnyNDArray:
    """
    To the last digits, by Newton's method on the slope, where the value has no more of them.

    Fits begin here, and where they have two optima the start decides between them.
    """
    here = slope(t)
    for _ in range(_NEWTON):
        bends = [(slope(t + e) - here) / _STEP for e in _STEP * np.eye(len(t))]
        step = np.linalg.lstsq(np.stack(bends), here, rcond=_FLAT)[0]
        new = t - step if bounds is None else np.clip(t - step, *np.transpose(bounds))
        there = slope(new)
        if not np.linalg.norm(there) < np.linalg.norm(here):
            break
        t, here = new, there
    return t


def _level(
    likelihood: Likelihood, weights: AnyNDArray | None, offset: tf.Tensor, Y: tf.Tensor
) -> float:
    """About where the predictor of the mean is; 0 for links to probabilities."""
    base = unwrapped(likelihood)
    base = base.base if isinstance(base, Quasi) else base
    level = base.level if isinstance(base, MeanLink) else np.log
    if level is np.log and getattr(base, "invlink", None) not in (tf.exp, tf.math.exp):
        return 0.0
    y = np.asarray(Y)[:, 0]
    if isinstance(base, MeanLink) and isinstance(base.base, (StudentT, LocationScaleStudentT)):
        mean = float(weighted_quantiles(y, weights, [0.5])[0])  # whatever is far away
    else:
        mean = float(np.average(y, weights=weights))
    if not mean > 0.0:
        return 0.0
    found = level(mean) - weighted_quantiles(np.asarray(offset)[:, 0], weights, [0.5])[0]
    return float(found) if np.isfinite(found) else 0.0


def _unit(
    likelihood: Likelihood, X: tf.Tensor, F: tf.Tensor, Y: tf.Tensor, number: float
) -> AnyNDArray:
    """How far each predictor may move until log-densities bend, [L]; 1 where they do not."""
    F = tf.convert_to_tensor(F)
    found = []
    for i in range(F.shape[1]):
        with tf.GradientTape() as outer:
            outer.watch(F)
            with tf.GradientTape() as inner:
                inner.watch(F)
                total = tf.reduce_sum(likelihood.log_prob(X, F, Y))
            slope = inner.gradient(total, F, unconnected_gradients="zero")[:, i]
        bend = np.abs(outer.gradient(slope, F, unconnected_gradients="zero").numpy()[:, i])
        size = float(np.sum(bend)) / number
        found.append(1.0 / np.sqrt(size) if np.isfinite(size) and size > 0.0 else 1.0)
    return np.array(found)
