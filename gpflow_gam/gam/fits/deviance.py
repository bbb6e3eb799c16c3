"""Deviances of rows that are read in blocks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood

from ...likelihoods import Weighted, checked_observations
from ...optimizers import Solution
from ...statistics import Rows
from .specification import Specification

_STEPS = 2
"""Of Newton's method, from the constant that suits the sample best: the error that is left is of
the fourth order in that of the sample."""


def deviance_of_rows(
    spec: Specification, likelihood: Likelihood, solution: Solution
) -> tuple[float, float] | None:
    """
    The deviance at the posterior mean and the null model's; None where the family has none.

    :param spec: what was fitted.
    :param likelihood: at its fitted parameters, with weights.
    :param solution: what the fit came to.
    """
    rows, constant = solution.rows, np.array(spec.constant)
    null = _null(likelihood, rows, constant)
    own = least = 0.0
    for at, F in rows.predictors(solution.values, solution.q):
        Y = rows.Y[at]
        found = spec.family.deviance(likelihood, Y, F)
        known = spec.family.deviance(likelihood, Y, rows.mean[at] - constant + null)
        if found is None or known is None:
            return None
        w = likelihood.weights(rows.X[at]).numpy() if isinstance(likelihood, Weighted) else 1.0
        own += float(np.sum(w * found))
        least += float(np.sum(w * known))
    found = rows.total(np.array([own, least]))[0]
    return float(found[0]), float(found[1])


def _null(likelihood: Likelihood, rows: Rows, constant: AnyNDArray) -> AnyNDArray:
    """The constant [L] under which all rows are most likely."""
    c = constant.copy()
    for _ in range(_STEPS):
        slope, curvature = np.zeros(len(c)), np.zeros((len(c), len(c)))
        for g, H in _derivatives(likelihood, rows, c - constant):
            slope += g
            curvature += H
        slope, curvature = rows.total(slope, curvature)
        # where it is flat, as in a direction that the likelihood does not see, it stays
        step = np.linalg.lstsq(curvature, -slope, rcond=1e-10)[0]
        c = c + step if np.all(np.isfinite(step)) else c
    return c


def _derivatives(
    likelihood: Likelihood, rows: Rows, shift: AnyNDArray
) -> Iterator[tuple[AnyNDArray, AnyNDArray]]:
    """Of the log-likelihood in the shift of the mean function, [L] and [L, L], by blocks."""
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
        yield tf.reduce_sum(g, axis=0).numpy(), np.stack(H)
