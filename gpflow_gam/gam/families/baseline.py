"""How far a baseline hazard steps from one interval of time to the next."""

from __future__ import annotations

import numpy as np
from gpflow.base import AnyNDArray

_SDS = np.geomspace(5e-3, 3.0, 60)
"""Of steps, that are tried."""
_LOST = 1.0
"""Nats by which the evidence may be below the best: too smooth a baseline takes from slopes what
too rough a one does not, so that of all that the events allow the roughest is taken."""
_MAX_STEPS, _TOLERANCE = 100, 1e-8
"""Of Newton's method."""


def step_sd(events: AnyNDArray, risk: AnyNDArray) -> float:
    """
    The standard deviation of steps of a log hazard between neighbouring intervals.

    Events are Poisson counts with the time at risk as exposure, and their log hazard is a random
    walk, its level flat a priori; the rows' predictors are left out. That of the greatest standard
    deviation whose evidence, by Laplace's approximation (Rue & Held 2005, section 4.4), is within
    a nat of the best.

    :param events: in each interval, [J].
    :param risk: time at risk, [J], in any unit.
    """
    events, risk = (np.asarray(a, dtype=np.float64) for a in (events, risk))
    if not np.any(events):  # which say nothing
        return float(_SDS[-1])
    risk = risk / risk.sum()
    level = np.full(len(events), np.log(events.sum()))
    found = np.zeros(len(_SDS))
    for i, sd in enumerate(_SDS):
        found[i], level = _evidence(events, risk, sd, level)
    return float(_SDS[np.flatnonzero(found >= np.max(found) - _LOST)[-1]])


def _evidence(
    events: AnyNDArray, risk: AnyNDArray, sd: float, level: AnyNDArray
) -> tuple[float, AnyNDArray]:
    """
    Its logarithm, up to a constant, and the log hazard [J] that is most probable.

    :param level: where Newton's method starts, [J].
    """
    number = len(events)
    steps = np.diff(np.eye(number), axis=0) / sd
    prior = steps.T @ steps
    for _ in range(_MAX_STEPS):
        expected = risk * np.exp(level)
        precision = prior + np.diag(expected)
        move = np.linalg.solve(precision, events - expected - prior @ level)
        move /= max(1.0, float(np.max(np.abs(move))))
        level = level + move
        if np.max(np.abs(move)) < _TOLERANCE:
            break
    expected = risk * np.exp(level)
    fit = events @ level - expected.sum() - 0.5 * np.sum(np.square(steps @ level))
    spread = np.linalg.slogdet(prior + np.diag(expected))[1]
    return float(fit - (number - 1) * np.log(sd) - 0.5 * spread), level
