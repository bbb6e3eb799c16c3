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

from ...bijectors import restore_on_error
from ...errors import NotPositiveDefinite
from ...kernels.fixed_inputs import fixed_input_kernel
from ...kernels.shaped import shaped_part
from ...models import AdditiveSGPR, AdditiveSVGP
from ...threads import SMALL, one_blas_thread
from ..minimizers import (
    Best,
    Callback,
    FitResult,
    OnInterrupt,
    Options,
    StopFit,
    TimeBudget,
    Tracker,
    converge,
    other_optimum,
)
from .checkpoint import Checkpoint, Snapshot, fingerprint
from .evidence import PseudoData, RowComponent, encoded, features_at_bins, slices, times
from .passes import Rows
from .rounds import MANY_ROWS, START_ROWS, Evaluation, FitState, Point, Rounds, StartError
from .solution import CollapsedBound, Solution, assign_posterior, has_shapes, learn_under_shapes

_MEASURED = 1000  # number of rows at which the errors of bins and nodes are measured
_SHIFTED = 10_000  # number of rows at which shifts of effects by nodes are measured
_MATTERS = 0.1  # loss in nats up to which its root is a sufficient bound of shifts
_PRICE = 20.0  # largest cost of a component beyond its gain, in nats: its prior's and its KL's


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
    """
    Fit q, hyperparameters and the likelihood's parameters by sums over rows.

    Options are those of :func:`~gpflow_gam.optimizers.fit`; ``others`` have no effect. Iterations
    are passes over the rows, or of L-BFGS on the collapsed bound of Gaussian data, which takes one
    pass (the default of :class:`~gpflow_gam.models.AdditiveSGPR`). Sites begin at ``start``,
    moments [N, L] of the predictor without m(x) or sums of sites; by default at the null model's.
    """
    Options(max_iterations, tolerance, **others)  # are checked
    if collapsed is None:
        collapsed = isinstance(model, AdditiveSGPR)
    if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
        checkpoint = Checkpoint(checkpoint)
    following = max_seconds, callback, progress, on_interrupt
    method = "collapsed bound" if collapsed else "sites + evidence"
    with (
        one_blas_thread(sum(model.inducing_variable.sizes) <= SMALL),
        np.errstate(over="ignore", invalid="ignore"),  # results are checked for finiteness
        restore_on_error(model),
        Tracker([], method, *following, "ELBO", max_iterations, tolerance) as tracker,
        contextlib.nullcontext() if checkpoint is None else checkpoint,
    ):
        if collapsed:
            result, solution = _fit_collapsed(model, rows, tracker, checkpoint)
        else:
            assert isinstance(model, AdditiveSVGP)
            result, solution = _fit_sites(model, rows, tracker, checkpoint, seed, start)
        if has_shapes(model):
            result, solution = learn_under_shapes(model, result, solution, tracker)
        loss, parts = _interpolation_loss(model, solution)
        shift = _interpolation_shift(model, solution) if loss > _MATTERS else math.sqrt(loss)
        result = dataclasses.replace(
            result,
            discretisation=_discretisation(model, solution),
            interpolation=loss,
            interpolation_by=parts,
            interpolation_shift=shift,
        )
        return result, solution


def _fit_collapsed(
    model: AdditiveSGPR | AdditiveSVGP,
    rows: Rows,
    tracker: Tracker,
    checkpoint: Checkpoint | None,
) -> tuple[FitResult, Solution]:
    """Maximise the collapsed bound by L-BFGS, and set the model to the optimum."""
    bound = CollapsedBound(model, rows, watch=tracker.watch(rows.number))
    u, name = bound.rounds.coordinates(), ""
    known: Snapshot | None = None
    if checkpoint is not None:
        name = checkpoint.begin()
        known = checkpoint.stage(name, fingerprint(rows, u))
    if known is not None:
        u = known.arrays["u"]
        tracker.history[:] = known.arrays["history"].tolist()
    converged, message = True, "nothing is trainable"

    def record(x: AnyNDArray, value: float) -> None:
        if checkpoint is not None:
            arrays = {"u": x.copy(), "history": np.array(tracker.history)}
            checkpoint.record(name, lambda: Snapshot({"value": float(value)}, arrays))

    def elsewhere(x: AnyNDArray) -> AnyNDArray | None:
        trials = bound.kernel.elsewhere(bound.split(x)[0])
        return other_optimum(bound.loss, x, trials, tracker.tolerance, tracker, bound.metric)

    try:
        value = bound.loss(u)[0] if known is None else known.numbers["value"]
    except NotPositiveDefinite:
        raise StartError(
            "the bound cannot be computed where the fit starts; standardise the data and look for "
            "extreme values in them."
        ) from None
    best = Best(u)
    try:
        if len(u):
            # an iteration's gain says less of what is left than a round's
            step = 0.1 * tracker.tolerance
            u, value, converged, message = converge(
                bound.loss, u, value, step, tracker, best, bound.metric, record, elsewhere
            )
    except (StopFit, KeyboardInterrupt) as error:
        u, converged, message = best.x, False, tracker.why(error)
    u = rows.communicator.agreed(u)
    bound.set(u)
    solution = Solution.of_bound(bound, u)
    solution.assign(model)
    return tracker.result(converged, message, -bound.loss(u)[0]), solution


def _fit_sites(
    model: AdditiveSVGP,
    rows: Rows,
    tracker: Tracker,
    checkpoint: Checkpoint | None,
    seed: int,
    given: tuple[AnyNDArray, AnyNDArray] | PseudoData | None = None,
) -> tuple[FitResult, Solution]:
    def rounds_of(some: Rows) -> Rounds:
        return Rounds(model.kernel, model.likelihood, some, tracker)

    rounds, limits = rounds_of(rows), (tracker.tolerance, tracker.max_iterations)
    start = rounds.coordinates()
    name = "" if checkpoint is None else checkpoint.begin()

    def run(
        some: Rounds, stage: str, begin: Callable[[], FitState], rough: bool = False
    ) -> tuple[Evaluation, bool, str]:
        """Rounds, from where an earlier run left them."""
        if checkpoint is None:
            return some.run(begin(), *limits, rough)
        known = checkpoint.stage(stage, fingerprint(some.rows, start))
        if known is not None:
            tracker.history[:] = known.arrays["history"].tolist()
        at = begin() if known is None else FitState.restored(known)

        def record(at: FitState) -> None:
            history = [*tracker.history, at.elbo]
            checkpoint.record(stage, lambda: at.snapshot(history))

        return some.run(at, *limits, rough, record)

    def first() -> FitState:
        if isinstance(given, PseudoData):
            learnt = rounds.hyperparameters.get(), rounds.family.get()
            return FitState(Point(given, *learnt), settled=True)
        if given is not None:
            return FitState(rounds.start_at(*given), settled=True)
        return FitState(rounds.start(constant))

    constant, begin, well = np.zeros(rows.num_outputs), first, True
    if (
        given is None
        and rows.number > MANY_ROWS
        and not (checkpoint is not None and checkpoint.knows(name))
    ):
        # most of the way on a part of the rows, whose sites then stand for all
        which = np.sort(np.random.default_rng(seed).choice(rows.number, START_ROWS, replace=False))
        part = rounds_of(rows.subset(which))
        now, well, message = run(
            part, f"{name} part", lambda: FitState(part.start(constant)), rough=True
        )
        tracker.restart()  # ELBOs of a part are not the whole's
        data = now.point.data * (rows.number / START_ROWS)
        begun = FitState(dataclasses.replace(now.point, data=data), settled=True)

        def begin() -> FitState:
            return begun

    if well:
        now, converged, message = run(rounds, name, begin)
    else:
        now, converged = rounds.evaluate(begun.point), False
    point = now.point
    optimum = np.concatenate([point.u, point.phi])
    rounds.set(optimum)
    if converged and len(rounds.family) and rows.number <= MANY_ROWS:
        short = _short_of_constant(rounds, now, constant)
        if short > 0.0:
            converged = False
            message = (
                f"stuck: a constant predictor is better by {short:.0f} nats. Try another link or "
                "family"
            )
    assign_posterior(model, now.q)
    rounds.tracker = None  # it is of this fit
    solution = Solution(
        rows,
        point.data,
        now.q,
        rounds.values(point.u),
        optimum,
        rounds,
        curvature=now.sweep.curvature,
    )
    return tracker.result(converged, message, now.elbo), solution


def _short_of_constant(rounds: Rounds, now: Evaluation, constant: AnyNDArray) -> float:
    """Nats below a constant predictor: a likelihood may be stuck with all data as noise."""
    there = rounds.rows.sweep_at(rounds.likelihood, constant, np.zeros_like(constant)).expected
    return there - _PRICE * (1 + len(rounds.rows.components)) - now.elbo


def _discretisation(model: AdditiveSGPR | AdditiveSVGP, solution: Solution) -> float:
    """The variance that rounding inputs to bins adds, as a share of the noise 1 / w_n of sites."""
    rows = solution.rows
    if all(c.bins.exact for c in rows.components):
        return 0.0
    some, q = rows.known(_MEASURED), solution.q
    places = slices([len(r) for r in q.roots])
    total = 0.0
    for at, mean, var in some.marginals(solution.values, q):
        exact = np.zeros_like(mean)
        for component, root, place in zip(some.components, q.roots, places):
            tangents = fixed_input_kernel(component.kernel, component.inducing, some.X[at])
            _, K, _ = tangents.matrices(solution.values)
            exact += solve_triangular(root, K, lower=True).T @ q.mean[place]
        _, w, _ = some.sites(model.likelihood, at, mean, var)
        total += float(np.sum(w * np.square(exact - mean)))
    return float(some.communicator.total([total])[0]) / some.number


def _interpolation_loss(
    model: AdditiveSGPR | AdditiveSVGP, solution: Solution
) -> tuple[float, dict[str, float]]:
    """About sum_n w_n E_q[(delta_n' v)^2] in nats, and of components; delta: errors of features."""
    rows, names = solution.rows, model.kernel.names
    between = _interpolated(rows)
    parts = dict.fromkeys(names, 0.0)
    if not between:
        return 0.0, parts
    some, q, total = rows.known(_MEASURED), solution.q, np.zeros(1 + len(between))
    features = [phi for phi, _ in features_at_bins(some.components, solution.values, q.roots)]
    components = [some.components[k] for k in between]
    errors = [_errors(rows.components[k], features[k]) for k in between]
    blocks = slices([len(phi) for phi in features])
    which = np.concatenate([np.arange(blocks[k].start, blocks[k].stop) for k in between])
    places = [slice(None), *slices([len(d) for d in errors])]
    for at, mean, var in some.marginals(solution.values, q):
        _, w, _ = some.sites(model.likelihood, at, mean, var)
        delta = [times(d[:, c], m) for d, c, m in zip(errors, *encoded(components, at))]
        for i in range(w.shape[1]):
            entered = [i in c.outputs_of(w.shape[1]) for c in components]
            every = np.concatenate([d if e else 0.0 * d for d, e in zip(delta, entered)])
            mu, cov = q.mean[which, i], q.covariance[i][np.ix_(which, which)]
            for j, place in enumerate(places):
                part = every[place]
                square = np.square(part.T @ mu[place])
                square += np.einsum("pn,pn->n", part, cov[place, place] @ part)
                total[j] += float(w[:, i] @ square)
    total = some.communicator.total([total])[0] * rows.number / some.number
    parts |= zip([names[k] for k in between], total[1:].tolist(), strict=True)
    return float(total[0]), parts


def _interpolation_shift(model: AdditiveSGPR | AdditiveSVGP, solution: Solution) -> float:
    """
    The largest shift of an effect by interpolation between nodes, in standard errors.

    Sums are of features ``phi_n - delta_n``, which moves E[v] by ``Cov[v] sum_n w_n phi_n delta_n'
    E[v]``: much less than the loss, which bounds it, where errors change sign between nodes.
    """
    rows, q = solution.rows, solution.q
    between, some = _interpolated(rows), rows.known(_SHIFTED)
    features = [phi for phi, _ in features_at_bins(some.components, solution.values, q.roots)]
    errors = {k: _errors(rows.components[k], features[k]) for k in between}
    places = slices([len(phi) for phi in features])
    slope = np.zeros_like(q.mean)
    for at, mean, var in some.marginals(solution.values, q):
        _, w, _ = some.sites(model.likelihood, at, mean, var)
        codes, factors = some.encoded(at)
        for i in range(w.shape[1]):
            error = np.zeros(len(w))
            for k in between:
                if i in some.components[k].outputs_of(w.shape[1]):
                    error += times((q.mean[places[k], i] @ errors[k])[codes[k]], factors[k])
            for k, place in enumerate(places):
                if i in some.components[k].outputs_of(w.shape[1]):
                    phi = times(features[k][:, codes[k]], factors[k])
                    slope[place, i] += phi @ (w[:, i] * error)
    slope = some.communicator.total([slope])[0] * rows.number / some.number
    largest = 0.0
    for i, covariance in enumerate(q.covariance):
        moved = covariance @ slope[:, i]
        for phi, place in zip(features, places):
            var = np.einsum("mg,mg->g", phi, covariance[place, place] @ phi)
            shift = np.square(phi.T @ moved[place])
            enters = var > 1e-12 * np.max(var, initial=0.0)
            largest = max(largest, float(np.max(shift[enters] / var[enters], initial=0.0)))
    return math.sqrt(largest)


def _interpolated(rows: Rows) -> list[int]:
    """Components that are interpolated; splines of shapes are exact."""
    return [
        k
        for k, c in enumerate(rows.components)
        if c.interpolation.matrix is not None and shaped_part(c.kernel) is None
    ]


def _errors(component: RowComponent, phi: AnyNDArray) -> AnyNDArray:
    """Interpolation errors of features [M, G] at bins."""
    nodes, matrix = component.interpolation.nodes, component.interpolation.matrix
    assert matrix is not None
    return np.asarray(phi - phi[:, nodes] @ matrix.T)
