"""What data settle of rough functions of time, and of functions that vary quicker in places."""

from __future__ import annotations

import dataclasses

import numpy as np
from gpflow.base import AnyNDArray

from ...errors import ResolutionWarning, warn_caller
from ...measures import NUM_NODES
from ..terms import Smooth
from .component import Margin

NUM_INDUCING_ROUGH = 300
"""Inducing inputs of what has no slope: one for each value, up to so many."""
NUM_INDUCING_ADAPTIVE = 60
NUM_KNOTS = 6
"""Where the speed of an adaptive smooth is learnt."""
_MEMORY = 10.0
"""Spacings of values that count as the span of what forgets quickly."""
ROUGH = ("ou", "rw")


def rough_inducing(term: Smooth, points: AnyNDArray) -> AnyNDArray:
    """
    Every value, or even ranks of them where there are too many, [M, 1].

    Warns of the latter, unless the user has said how many there shall be.

    :param points: distinct values, [n, 1].
    """
    values = np.unique(points[:, 0])
    number = term.k or NUM_INDUCING_ROUGH
    if len(values) <= number:
        # the last follows from the others where it is on these that they average to zero
        return values[: -1 if len(values) <= NUM_NODES[1] else None, None]
    if term.k is None:
        warn_caller(
            f"{term.label} has {number} inducing inputs for {len(values)} values or more: what "
            "changes faster than from one to the next is taken for noise. Set k=, up to the "
            "number of values (time grows with its cube), or bin the column.",
            ResolutionWarning,
        )
    # values themselves: half way between two of them a rough function says little of either
    places = np.linspace(0.0, len(values) - 1.0, number).round().astype(int)
    return np.asarray(values[np.unique(places), None])


def short_memory(margin: Margin, points: AnyNDArray) -> Margin:
    """
    A margin whose span is of some steps from value to value.

    :param points: distinct values, [n, 1].
    """
    spacing = float(np.median(np.diff(np.unique(points[:, 0]))))
    return dataclasses.replace(margin, span=min(margin.span, _MEMORY * spacing))


def speed_knots(points: AnyNDArray) -> tuple[float, ...]:
    """Quantiles of distinct values, [n, 1]: where there are none, nothing tells a speed."""
    values = np.unique(points[:, 0])
    knots = np.quantile(values, np.linspace(0.0, 1.0, min(NUM_KNOTS, len(values))))
    return tuple(np.unique(knots).tolist())
