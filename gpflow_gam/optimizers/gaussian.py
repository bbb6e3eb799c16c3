"""Fits to Gaussian data: a search on the collapsed bound."""

from __future__ import annotations

import numpy as np
from gpflow.base import AnyNDArray

from ..models import AdditiveSGPR, AdditiveSVGP
from ..statistics import NotPositiveDefinite, Rows
from .checkpoint import Checkpoint, Record
from .collapsed import CollapsedBound
from .minimizers import FitResult, StopFit, Tracker, descend, other_optimum
from .posterior import assign_posterior
from .rounds import StartError
from .sketch import sketch_of
from .solution import Solution


def fit_gaussian(
    model: AdditiveSGPR | AdditiveSVGP,
    rows: Rows,
    tracker: Tracker,
    max_iterations: int,
    tolerance: float,
    checkpoint: Checkpoint | None = None,
) -> tuple[FitResult, Solution]:
    """
    Maximise the bound by L-BFGS, and give the model what was found.

    :param model: with a Gaussian likelihood.
    :param rows: its data.
    :param tracker: of the fit.
    :param max_iterations: of L-BFGS.
    :param tolerance: improvement of the bound, in nats, that no longer counts.
    :param checkpoint: where the search is kept, and goes on from.
    :raises StartError: the bound cannot be computed where the fit starts.
    """
    bound = CollapsedBound(model, rows, watch=tracker.watch(rows.number))
    u, name = bound.start(), ""
    known: Record | None = None
    if checkpoint is not None:
        name = checkpoint.begin()
        known = checkpoint.stage(name, sketch_of(rows, u))
    if known is not None:
        u = known.arrays["u"]
        tracker.history[:] = known.arrays["history"].tolist()
    best = [u]
    converged, message = True, "nothing is trainable"

    def noted(x: AnyNDArray) -> None:
        best[0] = x

    def kept(x: AnyNDArray) -> None:
        if checkpoint is not None:
            arrays = {"u": x.copy(), "history": np.array(tracker.history)}
            numbers = {"value": float(value)}
            checkpoint.note(name, lambda: Record(numbers, arrays))

    try:
        value = bound.loss(u)[0] if known is None else known.numbers["value"]
    except NotPositiveDefinite:
        raise StartError(
            "the bound cannot be computed where the fit starts; standardise the data and look for "
            "extreme values in them."
        ) from None
    try:
        while len(u):
            left = max_iterations - len(tracker.history)
            if left <= 0:
                converged, message = False, f"iteration limit of {max_iterations} reached"
                break
            u, converged, message = descend(
                bound.loss,
                u,
                left,
                tolerance,
                tracker,
                record=True,
                best_seen=noted,
                metric=bound.metric,
                anew=kept,
            )
            now = bound.loss(u)[0]
            gain, value = value - now, now
            if not converged:
                break
            if gain < tolerance:
                trials = bound.kernel.elsewhere(bound.split(u)[0])
                other = other_optimum(bound.loss, u, trials, tolerance, tracker, bound.metric)
                if other is not None:
                    u = best[0] = other
                    value = bound.loss(u)[0]
                    continue
                message = f"the last run of L-BFGS gained {gain:.2g} nats"
                break
    except StopFit as stop:
        u, converged, message = best[0], stop.converged, stop.message
    except KeyboardInterrupt:
        u, converged, message = best[0], False, tracker.interrupted()
    u = rows.agreed(u)
    bound.set(u)
    solution = Solution.of_bound(bound, u)
    if isinstance(model, AdditiveSVGP):
        assign_posterior(model, solution.q)
    return tracker.result(converged, message, -bound.loss(u)[0]), solution
