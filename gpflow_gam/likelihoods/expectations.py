"""Expected log-densities at normal predictors and their gradients, and the best constant one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray, TensorType
from gpflow.likelihoods import Likelihood, Poisson
from scipy.optimize import minimize
from scipy.special import gammaln

from ..measures import weighted_quantiles
from ..storage import blocks
from .base import COUNTS, Batch, Quasi, Terms, Weighted, checked_observations, unwrapped, weighted
from .continuous import StudentT
from .linked import MeanLink

_DIFFERENCE = 1e-5
"""Step of finite differences in a likelihood's (unconstrained) parameter, and in predictors."""
_DENSITIES = {"_log_density", "_scalar_log_prob", "_log_prob", "_variational_expectations"}
"""The methods that say what a likelihood is."""
_ROWS = 2**13
"""Rows whose quadrature is in memory at a time: of two predictors it has 144 nodes a row."""
_NEWTON, _FLAT = 5, 1e-6
"""Steps of Newton's method, and curvature, against the largest, that is none."""


class Expectations(NamedTuple):
    """Sums and derivatives of E[log p(y_n | rho_n)] over rows."""

    total: float  # their sum
    slope: AnyNDArray  # in means, [n, L] (Opper & Archambeau 2009)
    precision: AnyNDArray  # minus twice the slope in variances, [n, L]
    own_slope: AnyNDArray  # derivatives of the sum in the likelihood's parameters, [K]
    own_curvature: AnyNDArray  # second derivatives of the sum in them, [K, K]
    across: list[AnyNDArray]
    """Derivatives of the slope in means in each of these parameters, [n, L]."""


def expectations(
    likelihood: Likelihood,
    X: AnyNDArray,
    mean: AnyNDArray,
    var: AnyNDArray,
    Y: AnyNDArray,
    variables: Sequence[tf.Variable],
) -> Expectations:
    """At rows of predictors N(mean, var), [n, L], with derivatives in parameters' ``variables``."""
    var = np.maximum(var, 0.0)
    in_numpy = _in_numpy(likelihood, X, mean, var, Y, variables)
    if in_numpy is not None:
        return in_numpy
    if len(mean) > _ROWS:
        checked_observations(tf.constant(Y), likelihood)  # whose error names a row among all
        parts = [
            expectations(likelihood, X[at], mean[at], var[at], Y[at], variables)
            for at in blocks(len(mean), _ROWS)
        ]
        return _added(parts)
    X, Y = tf.constant(X), checked_observations(tf.constant(Y), likelihood)
    mean, var = tf.constant(mean), tf.constant(var)

    def slopes(sources: Sequence[tf.Tensor | tf.Variable]) -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(sources)
            total = tf.reduce_sum(likelihood.variational_expectations(X, mean, var, Y))
        gradients: list[tf.Tensor] = tape.gradient(total, sources, unconnected_gradients="zero")
        return total, gradients

    def flat(parts: Sequence[tf.Tensor]) -> AnyNDArray:
        if not parts:
            return np.zeros(0)
        return np.concatenate([np.ravel(part.numpy()) for part in parts]).astype(np.float64)

    total, (g, dv, *in_parameters) = slopes([mean, var, *variables])
    slope = flat(in_parameters)
    # by differences: differentiated twice, a quadrature is thousands of operations
    rows, across = [], []
    for variable in variables:
        present = np.array(variable.numpy())
        for i in np.ndindex(present.shape):
            moved = present.copy()
            moved[i] += _DIFFERENCE
            variable.assign(moved)
            try:
                there, *moved_slope = slopes([mean, *variables])[1]
                rows.append((flat(moved_slope) - slope) / _DIFFERENCE)
                across.append((there - g).numpy() / _DIFFERENCE)
            finally:
                variable.assign(present)
    curvature = np.stack(rows) if rows else np.zeros((0, 0))
    curvature = 0.5 * (curvature + curvature.T)
    return Expectations(float(total), g.numpy(), -2.0 * dv.numpy(), slope, curvature, across)


def _added(parts: Sequence[Expectations]) -> Expectations:
    """Those of all rows from those of blocks of them."""
    totals, slopes, precisions, own, curvatures, across = zip(*parts)
    rows = np.concatenate(slopes), np.concatenate(precisions)
    moved = [np.concatenate(values) for values in zip(*across)]
    return Expectations(sum(totals), *rows, sum(own), sum(curvatures), moved)


def _in_numpy(
    likelihood: Likelihood,
    X: AnyNDArray,
    mean: AnyNDArray,
    var: AnyNDArray,
    Y: AnyNDArray,
    variables: Sequence[tf.Variable],
) -> Expectations | None:
    """By ``row_terms`` of the likelihood, or of GPflow's Poisson; None where there is no such."""
    base, weights = unwrapped(likelihood), None
    if isinstance(likelihood, Weighted):
        weights = X[:, likelihood.column]
    rows = Batch(mean, var, Y, weights, variables)
    with np.errstate(over="ignore", invalid="ignore"):  # the caller judges what comes of it
        if type(base) is Poisson:
            terms = _poisson_terms(base, rows)
        elif (own := _row_terms(base)) is not None and mean.shape[1] == (base.latent_dim or 1):
            terms = own(rows)
        else:
            terms = None
        if terms is None:
            return None

        def wide(values: AnyNDArray) -> AnyNDArray:
            return weighted(values, weights).reshape(len(values), -1)

        total = float(np.sum(weighted(terms.value, weights)))
        slope, precision = wide(terms.slope), wide(terms.precision)
        if terms.parameters is None:
            return Expectations(total, slope, precision, np.zeros(0), np.zeros((0, 0)), [])
        in_parameters, curvature, across = terms.parameters
        across = [wide(values) for values in across]
        return Expectations(total, slope, precision, in_parameters, curvature, across)


def _row_terms(likelihood: Likelihood) -> Callable[[Batch], Terms | None] | None:
    """Its ``row_terms``, unless a class of others has another density and keeps them."""
    kinds = type(likelihood).__mro__
    for i, kind in enumerate(kinds):
        if "row_terms" in vars(kind):
            others = (k for k in kinds[:i] if k.__module__ != kind.__module__)
            changed = any(not _DENSITIES.isdisjoint(vars(k)) for k in others)
            return None if changed else likelihood.row_terms
    return None


def _poisson_terms(likelihood: Poisson, rows: Batch) -> Terms | None:
    y, mean = rows.Y[:, 0], rows.mean[:, 0]
    if likelihood.invlink is not tf.exp or rows.mean.shape[1] > 1 or not np.all(COUNTS.holds(y)):
        return None
    size = float(likelihood.binsize)
    rate = size * np.exp(mean + 0.5 * rows.var[:, 0])
    most = int(y.max(initial=0.0))
    if most < len(y):  # each of the numbers once
        factorials = gammaln(np.arange(most + 1) + 1.0).take(y.astype(np.intp))
    else:
        factorials = gammaln(y + 1.0)
    return Terms(y * (mean + np.log(size)) - rate - factorials, y - rate, rate)


def mean_curvature(
    likelihood: Likelihood, X: AnyNDArray, mean: AnyNDArray, var: AnyNDArray, Y: AnyNDArray
) -> AnyNDArray:
    """Minus the second derivatives of each row's E[log p(y_n | rho_n)] in the means, [n, L, L]."""
    Y, at = checked_observations(tf.constant(Y), likelihood), tf.constant(mean)
    var = tf.constant(np.maximum(var, 0.0))
    return -_second_derivatives(lambda at: likelihood.variational_expectations(X, at, var, Y), at)


def _second_derivatives(function: Callable[[tf.Tensor], tf.Tensor], at: tf.Tensor) -> AnyNDArray:
    """Of a function of each row, at rows [N, L], [N, L, L]."""
    with tf.GradientTape(persistent=True, watch_accessed_variables=False) as outer:
        outer.watch(at)
        with tf.GradientTape(watch_accessed_variables=False) as inner:
            inner.watch(at)
            total = tf.reduce_sum(function(at))
        slope = inner.gradient(total, at, unconnected_gradients="zero")
        slopes = [slope[:, i] for i in range(at.shape[1])]
    rows = [outer.gradient(s, at, unconnected_gradients="zero").numpy() for s in slopes]
    return np.stack(rows, axis=1)


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
    """E[log p(y_n | rho_n)], ``g = dE/dmean`` and ``w = -2 dE/dvar`` (Opper & Archambeau 2009)."""
    mean, var = tf.convert_to_tensor(mean), tf.convert_to_tensor(var)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch([mean, var])
        expected = likelihood.variational_expectations(X, mean, var, Y)
    g, dv = tape.gradient(expected, [mean, var], unconnected_gradients="zero")
    return expected, g, -2.0 * dv


def constant_predictor(
    likelihood: Likelihood, X: TensorType, Y: TensorType, offset: TensorType, latent: int
) -> tf.Tensor:
    """The constant c [1, L] under which ``offset + c`` makes Y most likely: the null model."""
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
    base = base.base if isinstance(base, Quasi) else base
    linked = hasattr(base, "invlink")
    # Without a link the predictor has Y's own scale, with the logarithm for one Y's own level.
    start, level = np.zeros(latent), _level(base, weights, offset, Y)
    start[: 1 if isinstance(base, MeanLink) else latent] = level
    if hasattr(base, "level_of"):
        start = base.level_of(np.asarray(Y)[:, 0] - np.asarray(offset)[:, 0], weights)
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
    t = result.x if np.all(np.isfinite(result.x)) else np.zeros(latent)
    best = start + scale * _polished(lambda t: evaluate(t)[1], t, bounds)
    return tf.constant(best[None], dtype=offset.dtype)


def _polished(
    slope: Callable[[AnyNDArray], AnyNDArray],
    t: AnyNDArray,
    bounds: Sequence[tuple[float, float]] | None,
) -> AnyNDArray:
    """To the last digits, by Newton's method on the slope: the start decides between two optima."""
    here = slope(t)
    for _ in range(_NEWTON):
        bends = [(slope(t + e) - here) / _DIFFERENCE for e in _DIFFERENCE * np.eye(len(t))]
        step = np.linalg.lstsq(np.stack(bends), here, rcond=_FLAT)[0]
        new = t - step if bounds is None else np.clip(t - step, *np.transpose(bounds))
        there = slope(new)
        if not np.linalg.norm(there) < np.linalg.norm(here):
            break
        t, here = new, there
    return t


def _level(base: Likelihood, weights: AnyNDArray | None, offset: tf.Tensor, Y: tf.Tensor) -> float:
    """About where the predictor of the mean is; 0 for links to probabilities."""
    level = base.level if isinstance(base, MeanLink) else np.log
    if level is np.log and getattr(base, "invlink", None) not in (tf.exp, tf.math.exp):
        return 0.0
    y = np.asarray(Y)[:, 0]
    if isinstance(base, MeanLink) and isinstance(base.base, StudentT):
        mean = float(weighted_quantiles(y, weights, [0.5])[0])  # whatever outliers are
    else:
        mean = float(np.average(y, weights=weights))
    if not mean > 0.0:
        return 0.0
    at = level(mean) - weighted_quantiles(np.asarray(offset)[:, 0], weights, [0.5])[0]
    return float(at) if np.isfinite(at) else 0.0


def _unit(
    likelihood: Likelihood, X: tf.Tensor, F: tf.Tensor, Y: tf.Tensor, number: float
) -> AnyNDArray:
    """Scale of each predictor: inverse root of the mean absolute curvature, [L]; 1 without any."""
    bends = _second_derivatives(lambda F: likelihood.log_prob(X, F, Y), tf.convert_to_tensor(F))
    sizes = np.sum(np.abs(np.diagonal(bends, axis1=1, axis2=2)), axis=0) / number
    return np.array(
        [1.0 / np.sqrt(s) if np.isfinite(s) and s > 0.0 else 1.0 for s in sizes.tolist()]
    )
