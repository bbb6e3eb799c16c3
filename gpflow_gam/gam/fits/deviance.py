"""How far responses are from a fit: deviances, and Pearson's statistic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood

from ...likelihoods import Weighted
from ...likelihoods.support import checked_observations
from ...optimizers import Solution
from ...optimizers.binned.evidence import GaussianPosterior
from ...optimizers.binned.passes import Rows
from ..families import Family
from .specification import Specification

_STEPS, _HALVINGS, _GAIN = 50, 40, 1e-6
"""
Of Newton's method, from the constant that suits the sample best, at the parameters that the family
began with: most, halvings of one, and the nats that a further one has to promise.
"""


class Pearson(NamedTuple):
    """Pearson's statistic at the posterior mean of the predictor."""

    statistic: float
    """Sum of squared Pearson residuals."""

    variance: float
    """Their sum's variance, where the family holds and its mean is known."""

    number: float
    """How many rows are in it, weights counted."""


class Discrepancies(NamedTuple):
    """What one pass over the rows finds of how far responses are from the fit."""

    deviance: tuple[float, float] | None
    """At the posterior mean of the predictor, and the null model's; None where none is defined."""

    pearson: Pearson | None
    """None where the family's variance is no function of its mean."""


def discrepancies(
    family: Family,
    likelihood: Likelihood,
    Y: AnyNDArray,
    F: AnyNDArray,
    null: AnyNDArray,
    weights: AnyNDArray,
) -> Discrepancies:
    """Of rows in memory."""
    deviance = None
    own = family.deviance(likelihood, Y, F)
    least = family.deviance(likelihood, Y, family.null_predictor(null, F))
    if own is not None and least is not None:
        deviance = float(np.sum(weights * own)), float(np.sum(weights * least))
    return Discrepancies(deviance, pearson(family, likelihood, Y, F, weights))


def pearson(
    family: Family, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray, weights: AnyNDArray
) -> Pearson | None:
    """Pearson's statistic of rows in memory: as :func:`discrepancies`."""
    found = family.pearson(likelihood, Y, F)
    if found is None:
        return None
    known = np.isfinite(found[0])
    square, variance = (np.sum(weights[known] * part[known]) for part in found)
    return Pearson(float(square), float(variance), float(np.sum(weights[known])))


def discrepancies_of_rows(
    spec: Specification, likelihood: Likelihood, solution: Solution, q: GaussianPosterior
) -> Discrepancies:
    """Of rows that are read in blocks."""
    rows, constant = solution.rows, np.array(spec.constant)
    null = null_constant(likelihood, rows, constant)
    deviance, statistics = np.zeros(2), np.zeros(3)
    defined = scattered = True
    for at, F in rows.predictors(solution.values, q):
        n = at.stop - at.start
        w = np.ones(n)
        if isinstance(likelihood, Weighted):
            w = likelihood.weights(rows.X[at]).numpy()
        known = rows.mean[at] - constant + null
        found = discrepancies(spec.family, likelihood, rows.Y[at], F, known, w)
        defined, scattered = found.deviance is not None, found.pearson is not None
        deviance += np.array(found.deviance or (0.0, 0.0))
        statistics += np.array(found.pearson or (0.0, 0.0, 0.0))
    deviance, statistics = rows.communicator.total([deviance, statistics])
    return Discrepancies(
        (float(deviance[0]), float(deviance[1])) if defined else None,
        Pearson(*map(float, statistics)) if scattered else None,
    )


def null_constant(
    likelihood: Likelihood, rows: Rows, constant: AnyNDArray, begin: AnyNDArray | None = None
) -> AnyNDArray:
    """
    The constant [L] under which all rows are most likely.

    By Newton's method with steps that are halved until they gain: where the noise is small beside
    the response whole ones go where nothing is finite, or nowhere.
    """
    ends = [_climbed(likelihood, rows, constant, c) for c in (constant, begin) if c is not None]
    return max(ends, key=lambda end: end[0])[1]


def _climbed(
    likelihood: Likelihood, rows: Rows, constant: AnyNDArray, c: AnyNDArray
) -> tuple[float, AnyNDArray]:
    """The log-likelihood where a search ends, minus infinity for NaN, and the constant there."""
    found = _summed(likelihood, rows, c - constant)
    for _ in range(_STEPS):
        value, slope, curvature = found
        if not all(np.all(np.isfinite(a)) for a in found):
            break
        # where it is flat, as in a direction that the likelihood does not see, it stays
        sizes, vectors = np.linalg.eigh(0.5 * (curvature + curvature.T))
        sizes = np.abs(sizes)
        seen = sizes > 1e-10 * np.max(sizes, initial=0.0)
        step = vectors[:, seen] @ ((vectors[:, seen].T @ slope) / sizes[seen])
        if not (np.all(np.isfinite(step)) and slope @ step >= _GAIN):
            break
        for _ in range(_HALVINGS):
            following = _summed(likelihood, rows, c + step - constant)
            if following[0] >= value:  # false of NaN
                break
            step = 0.5 * step
        else:
            break
        c, found = c + step, following
    value = float(found[0])
    return (value if np.isfinite(value) else -np.inf), c


def _summed(
    likelihood: Likelihood, rows: Rows, shift: AnyNDArray
) -> tuple[AnyNDArray, AnyNDArray, AnyNDArray]:
    """The log-likelihood of all rows, and its derivatives in the shift, [], [L] and [L, L]."""
    value, slope, curvature = np.zeros(()), np.zeros(len(shift)), np.zeros([len(shift)] * 2)
    for own, g, H in _derivatives(likelihood, rows, shift):
        value, slope, curvature = value + own, slope + g, curvature + H
    value, slope, curvature = rows.communicator.total([value, slope, curvature])
    return value, slope, curvature


def _derivatives(
    likelihood: Likelihood, rows: Rows, shift: AnyNDArray
) -> Iterator[tuple[AnyNDArray, AnyNDArray, AnyNDArray]]:
    """The log-likelihood, and its derivatives in the shift of the mean function, by blocks."""
    for at in rows.blocks():
        X, F = tf.constant(rows.X[at]), tf.constant(rows.mean[at] + shift)
        Y = checked_observations(tf.constant(rows.Y[at]), likelihood)
        with tf.GradientTape(persistent=True) as outer:
            outer.watch(F)
            with tf.GradientTape() as inner:
                inner.watch(F)
                total = tf.reduce_sum(likelihood.log_prob(X, F, Y))
            g = inner.gradient(total, F)
            sums = [tf.reduce_sum(g[:, i]) for i in range(g.shape[1])]
        H = [tf.reduce_sum(outer.gradient(s, F), axis=0).numpy() for s in sums]
        yield total.numpy(), tf.reduce_sum(g, axis=0).numpy(), np.stack(H)
