"""L-BFGS in coordinates of a metric, on functions that cannot be computed everywhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from gpflow.base import AnyNDArray
from scipy.optimize import minimize

from ...errors import NotPositiveDefinite
from .tracker import Tracker

_LEG = 8
"""Iterations of L-BFGS after which it begins anew in other coordinates."""
_FIRST_LEG = 3
"""The same of the first, which leaves a start that may be far from all that follows."""
_STEPS = 60
"""Iterations of a search for another optimum."""
_FARTHEST = 2.0
"""Longest first step of a search, in any (logarithmic) hyperparameter."""

Loss = Callable[[AnyNDArray], tuple[float, AnyNDArray]]


class _BackAgain(Exception):
    """A search for another optimum is on its way back to the one that is known."""


def descend(
    loss: Loss,
    start: AnyNDArray,
    steps: int,
    tolerance: float,
    tracker: Tracker | None,
    record: bool = False,
    best_seen: Callable[[AnyNDArray], None] | None = None,
    metric: Callable[[AnyNDArray], AnyNDArray | None] = lambda _: None,
    anew: Callable[[AnyNDArray], None] = lambda _: None,
) -> tuple[AnyNDArray, bool, str]:
    """
    L-BFGS from ``start``, in coordinates in which its first step is Newton's by ``metric``.

    Every few iterations it begins anew in the coordinates of the best point so far: where variances
    are on their way to zero, how the loss curves soon is not what it was.

    A trial step that cannot be evaluated counts as one too far: it is given a value as far above
    the best one as the slope there promised to go below, so that the line search tries a ninth of
    the step (Moré & Thuente 1994, case 1).

    Shapes: start [K], metric [K, K].
    """
    best: tuple[float, AnyNDArray, AnyNDArray] | None = None

    def guarded(x: AnyNDArray) -> tuple[float, AnyNDArray]:
        nonlocal best
        if tracker is not None:
            tracker.check()
        try:
            value, gradient = loss(x)
        except NotPositiveDefinite:
            if best is None:
                raise
            value, gradient = np.inf, np.zeros_like(x)
        if not (np.isfinite(value) and np.all(np.isfinite(gradient))):
            if best is None:
                raise NotPositiveDefinite
            return best[0] + abs(float(best[2] @ (x - best[1]))), np.zeros_like(x)
        if best is None or value < best[0]:
            best = value, x.copy(), gradient
            if best_seen is not None:
                best_seen(best[1])
        return value, gradient

    guarded(start)
    assert best is not None
    last, taken = best[0], 0

    def after(_: AnyNDArray) -> None:
        nonlocal last, taken
        assert best is not None
        taken += 1
        if record and tracker is not None:
            tracker.record(-best[0])
        # not SciPy's own test, which is relative to a value that depends on the response's unit
        gain, last = last - best[0], best[0]
        if gain < 1e-2 * tolerance:
            raise StopIteration

    # one that goes on where another was left does as that would have done
    leg = _LEG if record and tracker is not None and tracker.history else _FIRST_LEG
    while taken < steps:
        value, origin, gradient = best
        anew(origin)
        curvature = metric(origin)
        axes = _axes(gradient, curvature)

        def along(
            z: AnyNDArray,
            origin: AnyNDArray = origin,
            axes: AnyNDArray = axes,
            first: tuple[float, AnyNDArray] = (value, gradient),
        ) -> tuple[float, AnyNDArray]:
            value, gradient = guarded(origin + axes @ z) if z.any() else first
            return value, axes.T @ gradient

        outcome = minimize(
            along,
            np.zeros_like(start),
            jac=True,
            method="L-BFGS-B",
            callback=after,
            options={
                "maxiter": steps - taken if curvature is None else min(leg, steps - taken),
                "maxfun": 20 * steps,
                "ftol": 0.0,
                "gtol": 1e-9,
                "maxcor": 20,
                "maxls": 40,
            },
        )
        leg = _LEG
        if outcome.status != 1:
            return best[1], True, "converged"
    return best[1], False, f"iteration limit of {steps} reached"


def other_optimum(
    loss: Loss,
    result: AnyNDArray,
    trials: Sequence[tuple[int, float, float]],
    tolerance: float,
    tracker: Tracker | None,
    metric: Callable[[AnyNDArray], AnyNDArray | None],
) -> AnyNDArray | None:
    """
    A better optimum than the one at ``found``; None where none is seen.

    Short lengthscales are often an optimum of their own: noise that is taken for quick changes.
    Long ones may be, where inducing inputs are uneven. And a variance that is on its way to zero
    feels no slope that would lead it back. Each trial sets one coordinate, the rest held. Where
    that is not much worse, another search begins there, and ends where it comes back; otherwise it
    costs one evaluation.

    Shapes: found [K].
    """
    value, best = loss(result)[0], None
    for k, point, slack in trials:
        start = (result if best is None else best).copy()
        start[k] = point

        def seen(x: AnyNDArray, k: int = k, point: float = point) -> None:
            if abs(x[k] - result[k]) < 0.5 * abs(point - result[k]):
                raise _BackAgain

        try:
            if loss(start)[0] > value + slack:
                continue
            there, _, _ = descend(loss, start, _STEPS, tolerance, tracker, False, seen, metric)
        except (NotPositiveDefinite, _BackAgain):
            continue
        now = loss(there)[0]
        if now < value - tolerance:
            value, best = now, there
    return best


def _axes(gradient: AnyNDArray, metric: AnyNDArray | None) -> AnyNDArray:
    """
    Directions [K, K], as columns, in which a step of length one down the slope is Newton's.

    SciPy's first step has length one whatever the slope.
    """
    if metric is None:
        return np.eye(len(gradient))
    try:
        root = np.linalg.cholesky(metric)
    except np.linalg.LinAlgError:  # rounding has left no direction in which it says anything
        return np.eye(len(gradient))
    axes: AnyNDArray = np.linalg.solve(root.T, np.eye(len(gradient)))
    slope = axes.T @ gradient
    length = float(np.linalg.norm(slope))
    if not np.isfinite(length) or length == 0.0:
        return axes
    longest = float(np.max(np.abs(axes @ slope)))
    return axes * length * min(1.0, _FARTHEST / longest)
