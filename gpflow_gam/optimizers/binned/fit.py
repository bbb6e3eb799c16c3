"""Fits of GAMs by sums over rows."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray
from scipy.linalg import solve_triangular

from ...errors import NotPositiveDefinite
from ...frozen import restore_on_error
from ...kernels.shaped import shaped_part
from ...kernels.tangents import kernel_tangents
from ...models import AdditiveSGPR, AdditiveSVGP
from ...threads import SMALL, one_blas_thread
from ..minimizers import FitResult, StopFit, TimeBudget, Tracker, descend, other_optimum
from ..minimizers.tracker import Callback, OnInterrupt, check_options
from .checkpoint import Checkpoint, Record, sketch_of
from .collapsed import CollapsedBound
from .components import RowComponent, encoded, features_at_bins, times
from .evidence import GaussianPosterior, PseudoData, slices
from .passes import Rows
from .rounds import MANY_ROWS, START_ROWS, Position, Rounds, Seen, StartError, State
from .shaped import has_shapes, learn_under_shapes
from .solution import Solution, assign_posterior, present_posterior


def fit_gaussian(
    model: AdditiveSGPR | AdditiveSVGP,
    rows: Rows,
    tracker: Tracker,
    max_iterations: int,
    tolerance: float,
    checkpoint: Checkpoint | None = None,
) -> tuple[FitResult, Solution]:
    """Maximise the bound by L-BFGS, and give the model what was found."""
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
    u = rows.communicator.agreed(u)
    bound.set(u)
    solution = Solution.of_bound(bound, u)
    if isinstance(model, AdditiveSVGP):
        assign_posterior(model, solution.q)
    return tracker.result(converged, message, -bound.loss(u)[0]), solution


_MEASURED = 1000
"""Rows at which it is measured what bins and nodes change."""
_SHIFTED = 10_000
"""Rows at which it is measured how far nodes move effects."""
_MATTERS = 0.1
"""Nats of which the root bounds that well enough."""
_PRICE = 20.0
"""Nats that a component may cost beyond what it gains: its prior's and its KL's."""


def fit_rows(
    model: AdditiveSGPR | AdditiveSVGP,
    rows: Rows,
    *,
    max_iterations: int = 1000,
    tolerance: float = 1e-2,
    max_seconds: float | TimeBudget | None = None,
    callback: Callback | None = None,
    progress: bool | None = None,
    on_interrupt: OnInterrupt = "raise",
    seed: int = 0,
    collapsed: bool | None = None,
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
    start: tuple[AnyNDArray, AnyNDArray] | PseudoData | None = None,
    **others: Any,
) -> tuple[FitResult, Solution]:
    """Fit q, hyperparameters and the likelihood's parameters by sums over rows."""
    options: dict[str, Any] = {"batch_size": None, "learning_rate": 0.01, "rho": 0.1, "patience": 5}
    unknown = set(others) - set(options)
    if unknown:
        raise TypeError(f"fit() has no option {unknown.pop()!r}.")
    options |= others
    check_options(max_iterations, tolerance=tolerance, **options)
    number = sum(model.inducing_variable.sizes)
    if collapsed is None:
        collapsed = isinstance(model, AdditiveSGPR)
    if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
        checkpoint = Checkpoint(checkpoint)
    method = "collapsed bound" if collapsed else "sites + evidence"
    with (
        one_blas_thread(number <= SMALL),
        np.errstate(over="ignore", invalid="ignore"),  # what is not finite is seen to
        restore_on_error(model),
        Tracker([], method, max_seconds, callback, progress, on_interrupt) as tracker,
        contextlib.nullcontext() if checkpoint is None else checkpoint,
    ):
        how = tracker, max_iterations, tolerance, checkpoint
        if collapsed:
            result, solution = fit_gaussian(model, rows, *how)
        else:
            assert isinstance(model, AdditiveSVGP)
            result, solution = _fit_sites(model, rows, *how, seed, start)
        if has_shapes(model):
            result, solution = learn_under_shapes(model, result, solution, tracker, tolerance)
        changed = discretisation(model, solution)
        lost, parts = interpolation_loss(model, solution)
        shift = interpolation_shift(model, solution) if lost > _MATTERS else math.sqrt(lost)
        result = dataclasses.replace(
            result,
            discretisation=changed,
            interpolation=lost,
            interpolation_by=parts,
            interpolation_shift=shift,
        )
        return result, solution


def present_solution(
    model: AdditiveSGPR | AdditiveSVGP, rows: Rows, collapsed: bool | None = None
) -> Solution:
    """
    What a model that is fitted already came to: its hyperparameters and q are taken as they are.
    """
    with one_blas_thread(sum(model.inducing_variable.sizes) <= SMALL):
        if isinstance(model, AdditiveSGPR) or collapsed:
            bound = CollapsedBound(model, rows)
            return Solution.of_bound(bound, bound.start())
        rounds = Rounds(model.kernel, model.likelihood, rows, None)
        values = rounds.values(rounds.hyperparameters.get())
        q = present_posterior(model)
        data = rows.sweep(model.likelihood, values, q, tune=False, signed=True).data
        found = np.concatenate([rounds.hyperparameters.get(), rounds.family.get()])
        return Solution(rows, data, q, values, found, rounds)


def solution_of_sums(
    model: AdditiveSGPR | AdditiveSVGP,
    rows: Rows,
    data: PseudoData,
    q: GaussianPosterior,
    found: AnyNDArray,
    error: tuple[float, float] | None = None,
    curvature: AnyNDArray | None = None,
) -> Solution:
    """A solution of which everything is known."""
    if error is not None:
        bound = CollapsedBound(model, rows, sums=(data, error))
        values = bound.rounds.values(found[: len(bound.kernel)])
        return Solution(rows, data, q, values, found, bound.rounds, bound)
    rounds = Rounds(model.kernel, model.likelihood, rows, None)
    values = rounds.values(found[: len(rounds.hyperparameters)])
    return Solution(rows, data, q, values, found, rounds, curvature=curvature)


def discretisation(model: AdditiveSGPR | AdditiveSVGP, solution: Solution) -> float:
    """
    The share by which rounding inputs to bins adds to the noise.

    What a row's predictor changes on the way to its bin is like noise of its own, beside that of
    variance 1 / w_n that its site has: the mean of w_n times the change's square, at
    :data:`_MEASURED` rows.
    """
    rows = solution.rows
    if all(c.bins.exact for c in rows.components):
        return 0.0
    some, q = rows.known(_MEASURED), solution.q
    own = slices([len(r) for r in q.roots])
    found = 0.0
    for at, mean, var in some.marginals(solution.values, q):
        exact = np.zeros_like(mean)
        for component, root, place in zip(some.components, q.roots, own):
            tangents = kernel_tangents(component.kernel, component.inducing, some.X[at])
            _, K, _ = tangents.matrices(solution.values)
            exact += solve_triangular(root, K, lower=True).T @ q.mean[place]
        _, w, _ = some.sites(model.likelihood, at, mean, var)
        found += float(np.sum(w * np.square(exact - mean)))
    return float(some.communicator.total([found])[0]) / some.number


def interpolation_loss(
    model: AdditiveSGPR | AdditiveSVGP, solution: Solution
) -> tuple[float, dict[str, float]]:
    """
    About by how many nats it matters that components are interpolated between nodes.

    With delta_n what the interpolation leaves of row n's features, sum_n w_n E_q[(delta_n' v)^2]:
    sums see functions that are off by so much from those that predict. Far below one it is next to
    nothing. Measured at :data:`_MEASURED` rows.
    """
    rows, names = solution.rows, model.kernel.names
    between = _interpolated(rows)
    parts = dict.fromkeys(names, 0.0)
    if not between:
        return 0.0, parts
    some, q, found = rows.known(_MEASURED), solution.q, np.zeros(1 + len(between))
    features = [phi for phi, _ in features_at_bins(some.components, solution.values, q.roots)]
    components = [some.components[k] for k in between]
    left = [_lost(rows.components[k], features[k]) for k in between]
    everywhere = slices([len(phi) for phi in features])
    kept = np.concatenate([np.arange(everywhere[k].start, everywhere[k].stop) for k in between])
    places = [slice(None), *slices([len(d) for d in left])]
    for at, mean, var in some.marginals(solution.values, q):
        _, w, _ = some.sites(model.likelihood, at, mean, var)
        delta = [times(d[:, c], m) for d, c, m in zip(left, *encoded(components, at))]
        for i in range(w.shape[1]):
            entered = [i in c.outputs_of(w.shape[1]) for c in components]
            own = np.concatenate([d if e else 0.0 * d for d, e in zip(delta, entered)])
            mu, cov = q.mean[kept, i], q.covariance[i][np.ix_(kept, kept)]
            for j, place in enumerate(places):
                part = own[place]
                square = np.square(part.T @ mu[place])
                square += np.einsum("pn,pn->n", part, cov[place, place] @ part)
                found[j] += float(w[:, i] @ square)
    found = some.communicator.total([found])[0] * rows.number / some.number
    parts |= zip([names[k] for k in between], found[1:].tolist(), strict=True)
    return float(found[0]), parts


def interpolation_shift(model: AdditiveSGPR | AdditiveSVGP, solution: Solution) -> float:
    """
    By how many of its standard errors the interpolation between nodes moves an effect, at most.

    Sums see ``phi_n - delta_n`` where row n has the features phi_n: as if its pseudo-response were
    off by ``delta_n' E[v]``, which moves E[v] by ``Cov[v] sum_n w_n phi_n delta_n' E[v]``. The loss
    in nats bounds the square of it, and is far above where what is lost changes sign between nodes.
    Measured at :data:`_SHIFTED` rows.
    """
    rows, q = solution.rows, solution.q
    between, some = _interpolated(rows), rows.known(_SHIFTED)
    features = [phi for phi, _ in features_at_bins(some.components, solution.values, q.roots)]
    left = {k: _lost(rows.components[k], features[k]) for k in between}
    places = slices([len(phi) for phi in features])
    slope = np.zeros_like(q.mean)
    for at, mean, var in some.marginals(solution.values, q):
        _, w, _ = some.sites(model.likelihood, at, mean, var)
        codes, factors = some.encoded(at)
        for i in range(w.shape[1]):
            off = np.zeros(len(w))
            for k in between:
                if i in some.components[k].outputs_of(w.shape[1]):
                    off += times((q.mean[places[k], i] @ left[k])[codes[k]], factors[k])
            for k, place in enumerate(places):
                if i in some.components[k].outputs_of(w.shape[1]):
                    slope[place, i] += times(features[k][:, codes[k]], factors[k]) @ (w[:, i] * off)
    slope = some.communicator.total([slope])[0] * rows.number / some.number
    found = 0.0
    for i, covariance in enumerate(q.covariance):
        moved = covariance @ slope[:, i]
        for phi, place in zip(features, places):
            var = np.einsum("mg,mg->g", phi, covariance[place, place] @ phi)
            by = np.square(phi.T @ moved[place])
            known = var > 1e-12 * np.max(var, initial=0.0)  # it is zero where a component is off
            found = max(found, float(np.max(by[known] / var[known], initial=0.0)))
    return math.sqrt(found)


def _interpolated(rows: Rows) -> list[int]:
    """Components between whose nodes there are values; splines of shapes need no others."""
    return [
        k
        for k, c in enumerate(rows.components)
        if c.interpolation.matrix is not None and shaped_part(c.kernel) is None
    ]


def _lost(component: RowComponent, phi: AnyNDArray) -> AnyNDArray:
    """What interpolation leaves of features [M, G] at bins."""
    known = component.interpolation
    return np.asarray(phi - phi[:, known.nodes] @ known.dense().T)


def _fit_sites(
    model: AdditiveSVGP,
    rows: Rows,
    tracker: Tracker,
    max_iterations: int,
    tolerance: float,
    checkpoint: Checkpoint | None,
    seed: int,
    given: tuple[AnyNDArray, AnyNDArray] | PseudoData | None = None,
) -> tuple[FitResult, Solution]:
    def rounds_of(some: Rows) -> Rounds:
        return Rounds(model.kernel, model.likelihood, some, tracker)

    rounds = rounds_of(rows)
    start = np.concatenate([rounds.hyperparameters.get(), rounds.family.get()])
    name = "" if checkpoint is None else checkpoint.begin()

    def run(
        some: Rounds, stage: str, begin: Callable[[], Position], rough: bool = False
    ) -> tuple[Seen, bool, str]:
        """Rounds, from where an earlier start left them."""
        if checkpoint is None:
            return some.run(begin(), tolerance, max_iterations, rough)
        known = checkpoint.stage(stage, sketch_of(some.rows, start))
        if known is not None:
            tracker.history[:] = known.arrays["history"].tolist()
        at = begin() if known is None else Position.of(known)

        def note(at: Position) -> None:
            history = [*tracker.history, at.elbo]
            checkpoint.note(stage, lambda: at.record(history))

        return some.run(at, tolerance, max_iterations, rough, note)

    def first() -> Position:
        if isinstance(given, PseudoData):
            learnt = rounds.hyperparameters.get(), rounds.family.get()
            return Position(State(given, *learnt), settled=True)
        if given is not None:
            return Position(rounds.start_at(*given), settled=True)
        return Position(rounds.start(constant))

    constant, begin, well = np.zeros(rows.num_outputs), first, True
    if (
        given is None
        and rows.number > MANY_ROWS
        and not (checkpoint is not None and checkpoint.knows(name))
    ):
        # most of the way on a part of the rows, whose sites then count for all
        which = np.sort(np.random.default_rng(seed).choice(rows.number, START_ROWS, replace=False))
        part = rounds_of(rows.subset(which))
        seen, well, message = run(
            part, f"{name} part", lambda: Position(part.start(constant)), rough=True
        )
        tracker.restart()  # ELBOs of a part are none of the whole's
        data = seen.state.data * (rows.number / START_ROWS)
        begun = Position(dataclasses.replace(seen.state, data=data), settled=True)

        def begin() -> Position:
            return begun

    if well:
        seen, converged, message = run(rounds, name, begin)
    else:
        seen, converged = rounds.see(begun.state), False
    rounds.hyperparameters.set(seen.state.u)
    rounds.family.set(seen.state.phi)
    if converged and len(rounds.family) and rows.number <= MANY_ROWS:
        short = _short_of_constant(rounds, seen, constant)
        if short > 0.0:
            converged = False
            message = (
                f"stuck: a constant predictor is better by {short:.0f} nats. Try another link or "
                "family"
            )
    assign_posterior(model, seen.q)
    rounds.tracker = None  # which is of this fit
    state, curvature = seen.state, seen.sweep.curvature
    found, values = np.concatenate([state.u, state.phi]), rounds.values(state.u)
    solution = Solution(rows, state.data, seen.q, values, found, rounds, curvature=curvature)
    return tracker.result(converged, message, seen.elbo), solution


def _short_of_constant(rounds: Rounds, seen: Seen, constant: AnyNDArray) -> float:
    """
    By how much the bound is below that of a constant predictor, whatever priors may take, in nats.

    A likelihood that has parameters of its own may take all there is for noise, and be stuck.
    Components that vanish cost little: a bound far below is no fit.
    """
    there = rounds.rows.sweep_at(rounds.likelihood, constant, np.zeros_like(constant)).expected
    return there - _PRICE * (1 + len(rounds.rows.components)) - seen.elbo
