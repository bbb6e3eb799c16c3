"""Saturated models of likelihoods of which only the log-density is known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from gpflow.base import AnyNDArray

_DOUBLINGS = 60
_HALVINGS = 60
_GOLDEN = (np.sqrt(5.0) - 1.0) / 2.0
_FLAT = 1e-9
"""Nats that a last doubling may gain where the largest density is at infinity."""


def greatest(
    log_density: Callable[[AnyNDArray], AnyNDArray], start: AnyNDArray
) -> AnyNDArray | None:
    """
    The greatest log-density of each row over its predictor, [N].

    Uphill from ``start`` in steps that double, then by golden sections: log-densities that rise and
    then fall, or approach a limit.

    :param log_density: of predictors [N], row by row.
    :param start: predictors at which to begin, [N].
    :return: None where one has no limit.
    """

    def at(f: AnyNDArray) -> AnyNDArray:
        with np.errstate(all="ignore"):
            return np.nan_to_num(log_density(f), nan=-np.inf, posinf=-np.inf)

    middle, value = start.astype(np.float64), at(start)
    step = np.full(len(start), 1e-3) * np.maximum(1.0, np.abs(start))
    up, down = at(middle + step), at(middle - step)
    step = np.where(up >= down, step, -step)
    behind, gained = middle - step, np.full(len(start), np.inf)
    ahead = middle + step
    for _ in range(_DOUBLINGS):
        new = at(ahead)
        climbs = new > value
        if not climbs.any():
            break
        gained = np.where(climbs, new - value, 0.0)
        behind = np.where(climbs, middle, behind)
        middle, value = np.where(climbs, ahead, middle), np.where(climbs, new, value)
        step = np.where(climbs, 2.0 * step, step)
        ahead = np.where(climbs, middle + step, ahead)
    else:
        if np.any(gained > _FLAT):
            return None
    low, high = np.minimum(behind, ahead), np.maximum(behind, ahead)
    for _ in range(_HALVINGS):
        width = _GOLDEN * (high - low)
        a, b = high - width, low + width
        left, right = at(a), at(b)
        value = np.maximum(value, np.maximum(left, right))
        low, high = np.where(left < right, a, low), np.where(left < right, high, b)
    return value if np.all(np.isfinite(value)) else None
