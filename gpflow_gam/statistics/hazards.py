"""Expected log-densities of times to an event and their derivatives, without TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood

from ..likelihoods import Cox
from .logistic import Terms


class Baseline(NamedTuple):
    """Derivatives in the steps of a baseline's logarithm, J - 1 of them."""

    slope: AnyNDArray
    """Of the sum over rows, [J - 1]."""
    curvature: AnyNDArray
    """Its second derivatives, [J - 1, J - 1]."""
    across: list[AnyNDArray]
    """How rows' slopes in their means change with each, [n]."""


def hazard_terms(
    likelihood: Likelihood,
    mean: AnyNDArray,
    var: AnyNDArray,
    Y: AnyNDArray,
    weights: AnyNDArray | None,
    variables: Sequence[tf.Variable],
) -> tuple[Terms, Baseline | None] | None:
    """
    What rows with proportional hazards say, ``event (log h0(t) + m) - H0(t) exp(m + v / 2)`` each.

    Derivatives in steps are as many as intervals: by differences each would take a pass of its own.

    :param mean: of the predictor, [n].
    :param var: [n].
    :param Y: [n, 3].
    :param weights: of rows in sums over them, [n].
    :param variables: of the likelihood, in which derivatives are wanted: none, or the steps.
    :return: of each row, and of the steps; None of another likelihood, other variables, or of rows
        that are an error elsewhere.
    """
    if type(likelihood) is not Cox or not _is_times(Y):
        return None
    wanted = [v for v in variables if v is not likelihood.steps.unconstrained_variable]
    if wanted:
        return None
    edges, level = likelihood.edges.numpy(), likelihood.log_baseline().numpy()
    time, event = Y[:, 0], Y[:, 2]
    place = np.searchsorted(edges[1:-1], time, side="left")
    spent = np.maximum(time[:, None] - edges[:-1], 0.0)
    spent[:, :-1] = np.minimum(spent[:, :-1], np.diff(edges)[:-1])
    spent *= np.exp(level)  # H0, by intervals
    risk, ratio = spent.sum(axis=1), np.exp(mean + 0.5 * var)
    rate = risk * ratio
    terms = Terms(event * (level[place] + mean) - rate, event - rate, rate, None)
    if not variables:
        return terms, None
    counted, at_risk = (event, ratio) if weights is None else (weights * event, weights * ratio)
    seen = np.bincount(place, weights=counted, minlength=len(level))
    expected = at_risk @ spent
    # a step moves the levels beyond it, and all so far that the hazard's average stays
    share = likelihood.shares.numpy() * np.exp(level)
    beyond = np.cumsum((share / share.sum())[::-1])[::-1][1:]
    sd = float(likelihood.sd.numpy())
    moves = sd * (np.tri(len(level), k=-1)[:, :-1] - beyond)  # [J, J - 1]
    curvature = -(moves * expected[:, None]).T @ moves
    both = np.minimum.outer(beyond, beyond) - np.outer(beyond, beyond)
    curvature -= np.sum(seen - expected) * sd**2 * both
    later = np.cumsum(spent[:, ::-1], axis=1)[:, ::-1][:, 1:]
    across = -sd * ratio[:, None] * (later - risk[:, None] * beyond)
    return terms, Baseline(moves.T @ (seen - expected), curvature, list(across.T))


def _is_times(Y: AnyNDArray) -> bool:
    if Y.shape[1] != 3:
        return False
    return bool(np.all(Y[:, :2] > 0.0) and np.all((Y[:, 2] == 0.0) | (Y[:, 2] == 1.0)))
