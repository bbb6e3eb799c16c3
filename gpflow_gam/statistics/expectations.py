"""What a likelihood says at rows whose predictor is normal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood, Poisson
from scipy.special import gammaln

from ..likelihoods import Weighted, checked_observations
from .hazards import Baseline, hazard_terms
from .located import located_terms
from .logistic import Terms, logistic_terms
from .zeros import zero_terms

_STEP = 1e-5
"""Of differences in a likelihood's (unconstrained) parameter."""


class Expectations(NamedTuple):
    """Sums and derivatives of E[log p(y_n | rho_n)] over rows."""

    total: float
    """Their sum."""
    slope: AnyNDArray
    """In means, [n, L] (Opper & Archambeau 2009)."""
    precision: AnyNDArray
    """Minus twice the slope in variances, [n, L]."""
    own_slope: AnyNDArray
    """Of the sum in the likelihood's parameters, [K]."""
    own_curvature: AnyNDArray
    """Second derivatives of the sum in them, [K, K]."""
    across: list[AnyNDArray]
    """How the slope in means changes with each of them, [n, L]."""


def expectations(
    likelihood: Likelihood,
    X: AnyNDArray,
    mean: AnyNDArray,
    var: AnyNDArray,
    Y: AnyNDArray,
    variables: Sequence[tf.Variable],
) -> Expectations:
    """
    What a likelihood says at rows whose predictor is N(mean, var).

    :param X: [n, D].
    :param mean: [n, L].
    :param var: [n, L].
    :param Y: [n, K].
    :param variables: of the likelihood's parameters, in which derivatives are wanted.
    """
    var = np.maximum(var, 0.0)
    known = _known(likelihood, X, mean, var, Y, variables)
    if known is not None:
        return known
    X, Y = tf.constant(X), checked_observations(tf.constant(Y), likelihood)
    mean, var = tf.constant(mean), tf.constant(var)

    def slopes(sources: Sequence[tf.Tensor | tf.Variable]) -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(sources)
            total = tf.reduce_sum(likelihood.variational_expectations(X, mean, var, Y))
        found: list[tf.Tensor] = tape.gradient(total, sources, unconnected_gradients="zero")
        return total, found

    def flat(parts: Sequence[tf.Tensor]) -> AnyNDArray:
        if not parts:
            return np.zeros(0)
        return np.concatenate([np.ravel(part.numpy()) for part in parts]).astype(np.float64)

    total, (g, dv, *own) = slopes([mean, var, *variables])
    slope = flat(own)
    # by differences: differentiated twice, a quadrature is thousands of operations
    rows, across = [], []
    for variable in variables:
        present = np.array(variable.numpy())
        for i in np.ndindex(present.shape):
            moved = present.copy()
            moved[i] += _STEP
            variable.assign(moved)
            try:
                there, *moved_slope = slopes([mean, *variables])[1]
                rows.append((flat(moved_slope) - slope) / _STEP)
                across.append((there - g).numpy() / _STEP)
            finally:
                variable.assign(present)
    curvature = np.stack(rows) if rows else np.zeros((0, 0))
    curvature = 0.5 * (curvature + curvature.T)
    return Expectations(float(total), g.numpy(), -2.0 * dv.numpy(), slope, curvature, across)


def mean_curvature(
    likelihood: Likelihood, X: AnyNDArray, mean: AnyNDArray, var: AnyNDArray, Y: AnyNDArray
) -> AnyNDArray:
    """
    Minus the second derivatives of each row's E[log p(y_n | rho_n)] in the means, [n, L, L].

    On its diagonal are the sites' precisions; beside it, how predictors wait for each other.

    :param X: [n, D].
    :param mean: [n, L].
    :param var: [n, L].
    :param Y: [n, K].
    """
    Y, at = checked_observations(tf.constant(Y), likelihood), tf.constant(mean)
    var = tf.constant(np.maximum(var, 0.0))
    with tf.GradientTape(persistent=True, watch_accessed_variables=False) as outer:
        outer.watch(at)
        with tf.GradientTape(watch_accessed_variables=False) as inner:
            inner.watch(at)
            total = tf.reduce_sum(likelihood.variational_expectations(X, at, var, Y))
        slope = inner.gradient(total, at)
        slopes = [slope[:, i] for i in range(mean.shape[1])]
    found = [outer.gradient(s, at, unconnected_gradients="zero").numpy() for s in slopes]
    return -np.stack(found, axis=1)


def _known(
    likelihood: Likelihood,
    X: AnyNDArray,
    mean: AnyNDArray,
    var: AnyNDArray,
    Y: AnyNDArray,
    variables: Sequence[tf.Variable],
) -> Expectations | None:
    """Without TensorFlow, whose first use takes longer than many passes; None where unknown."""
    base, weights = likelihood, None
    if type(likelihood) is Weighted:
        base, weights = likelihood.base, X[:, likelihood.column]
    baseline: Baseline | None = None
    with np.errstate(over="ignore", invalid="ignore"):  # the caller judges what comes of it
        if mean.shape[1] != 1:
            zeros = zero_terms(base, mean, var, Y, variables) if mean.shape[1] == 2 else None
            return None if zeros is None else _summed(zeros, weights)
        hazards = hazard_terms(base, mean[:, 0], var[:, 0], Y, weights, variables)
        if hazards is not None:
            terms, baseline = hazards
        elif _is_counts(base, Y):
            terms = _of_counts(float(base.binsize), mean[:, 0], var[:, 0], Y[:, 0])
        else:
            given = base, mean[:, 0], var[:, 0], Y, variables
            likely = logistic_terms(*given) or located_terms(*given)
            if likely is None:
                return None
            terms = likely

    found = _summed(terms, weights)
    if baseline is None:
        return found
    across = [counted(each, weights)[:, None] for each in baseline.across]
    return found._replace(own_slope=baseline.slope, own_curvature=baseline.curvature, across=across)


def counted(each: AnyNDArray, weights: AnyNDArray | None) -> AnyNDArray:
    """Of each row, [n, ...], as often as it counts; one that does not count may overflow."""
    if weights is None:
        return each
    weights = weights.reshape(-1, *[1] * (each.ndim - 1))
    return weights * np.where(weights == 0.0, 0.0, each)


def _summed(terms: Terms, weights: AnyNDArray | None) -> Expectations:
    """Of rows that are known."""

    def wide(each: AnyNDArray) -> AnyNDArray:
        return counted(each, weights).reshape(len(each), -1)

    total = float(np.sum(counted(terms.value, weights)))
    own, curvature, across = np.zeros(0), np.zeros((0, 0)), []
    if terms.own is not None:
        own = np.sum(counted(terms.own.slope, weights), keepdims=True)
        curvature = np.sum(counted(terms.own.curvature, weights)).reshape(1, 1)
        across = [wide(terms.own.across)]
    return Expectations(total, wide(terms.slope), wide(terms.precision), own, curvature, across)


def _is_counts(likelihood: Likelihood, Y: AnyNDArray) -> bool:
    """Whether these are Poisson's counts under a logarithm, and not such as are an error."""
    if type(likelihood) is not Poisson or likelihood.invlink is not tf.exp:
        return False
    return bool(np.all((Y >= 0.0) & (np.round(Y) == Y)))


def _of_counts(size: float, mean: AnyNDArray, var: AnyNDArray, y: AnyNDArray) -> Terms:
    rate = size * np.exp(mean + 0.5 * var)
    return Terms(y * (mean + np.log(size)) - rate - gammaln(y + 1.0), y - rate, rate, None)
