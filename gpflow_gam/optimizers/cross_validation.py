"""Fits whose smoothness is chosen by predicting rows without their neighbourhoods."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray

from ..models import AdditiveSGPR, AdditiveSVGP
from ..statistics import Neighbourhoods, NotPositiveDefinite, sites_of
from ..threads import SMALL, one_blas_thread
from .collapsed import CollapsedBound
from .hyperparameters import differenced
from .left_out import LeftOut
from .minimizers import FitResult, StopFit, TimeBudget, Tracker, descend
from .minimizers.result import Callback
from .minimizers.tracker import OnInterrupt
from .posterior import assign_posterior
from .rounds import Rounds, Seen
from .settling import settled_at
from .solution import Solution
from .undoing import undone_on_error

_MAX_ROUNDS = 20
_HALVINGS = 4
_LEAST = 1e-2
"""What a coordinate is taken to curve by where nothing is known of it."""


def fit_left_out(
    model: AdditiveSGPR | AdditiveSVGP,
    solution: Solution,
    neighbourhoods: Neighbourhoods,
    *,
    max_iterations: int = 1000,
    tolerance: float = 1e-2,
    max_seconds: float | TimeBudget | None = None,
    callback: Callback | None = None,
    progress: bool | None = None,
    on_interrupt: OnInterrupt = "raise",
    **_: Any,
) -> tuple[FitResult, Solution]:
    """
    Go on from a fit to the hyperparameters under which left-out rows are predicted best.

    The criterion is the log predictive density of every row without its neighbourhood's sites, plus
    the priors' log-densities (Wood 2024, who has a loss in its place). It may have several optima:
    searches begin at the fit's and where the priors are highest, and the best is taken. Of Gaussian
    data the sites follow from the noise, and searches are all there is. Of others they are in turn
    with passes in which the sites settle at the new hyperparameters; a turn that predicts no better
    is shortened.

    :param model: as the fit left it; its parameters are set to what was found.
    :param solution: what the fit came to.
    :param neighbourhoods: of the rows.
    :param max_iterations: of L-BFGS.
    :param tolerance: improvement of the log density, in nats, that no longer counts.
    :param max_seconds: as for :func:`~gpflow_gam.optimizers.fit`.
    :param callback: as of that function.
    :param progress: as of that function.
    :param on_interrupt: as of that function.
    :return: how it ended, the ELBO (which is lower than where the fit began), and what it came to.
    :raises KeyboardInterrupt: Ctrl-C, unless what is best so far is to be kept.
    """
    with (
        one_blas_thread(sum(model.inducing_variable.sizes) <= SMALL),
        np.errstate(over="ignore", invalid="ignore"),
        undone_on_error(model),
        Tracker(
            [], "left-out rows", max_seconds, callback, progress, on_interrupt, "density"
        ) as tracker,
    ):
        search = _Search(neighbourhoods, tracker, max_iterations, tolerance)
        if solution.bound is not None:
            return search.gaussian(model, solution, solution.bound)
        assert isinstance(model, AdditiveSVGP)
        return search.by_turns(model, solution)


class _Search:
    """
    A search for the best hyperparameters.

    :param neighbourhoods: of the rows.
    :param tracker: of the fit.
    :param max_iterations: of L-BFGS.
    :param tolerance: in nats.
    """

    def __init__(
        self,
        neighbourhoods: Neighbourhoods,
        tracker: Tracker,
        max_iterations: int,
        tolerance: float,
    ) -> None:
        self.neighbourhoods, self.tracker = neighbourhoods, tracker
        self.max_iterations, self.tolerance = max_iterations, tolerance

    def gaussian(
        self, model: AdditiveSGPR | AdditiveSVGP, solution: Solution, bound: CollapsedBound
    ) -> tuple[FitResult, Solution]:
        """Of Gaussian data."""
        target = LeftOut(model, bound.rounds, self.neighbourhoods)
        starts = [solution.found, _smooth(bound.rounds, solution.found)]
        if len(bound.noise):
            # as much noise as there would be under half of what there is to explain
            square, number = bound.error
            starts[1][len(bound.kernel) :] = bound.noise.coordinates([0.5 * square / number])
        x, converged, message = self._best(target, starts, bound.metric)
        bound.set(x)
        elbo = -bound.loss(x)[0]
        hessian = differenced(lambda u: target.loss(u)[1], x) if len(x) else None
        bound.set(x)  # which the differences have moved
        found = dataclasses.replace(Solution.of_bound(bound, x), hessian=hessian)
        if isinstance(model, AdditiveSVGP):
            assign_posterior(model, found.q)
        return self._result(converged, message, elbo), found

    def by_turns(self, model: AdditiveSVGP, solution: Solution) -> tuple[FitResult, Solution]:
        """Of other data."""
        rounds, rows = solution.rounds, solution.rows

        def target_at(seen: Seen, x: AnyNDArray, signed: bool) -> LeftOut:
            values = rounds.values(x[: len(rounds.hyperparameters)])
            rounds.family.set(x[len(rounds.hyperparameters) :])
            sites, _ = sites_of(rows, model.likelihood, values, seen.q, signed)
            return LeftOut(model, rounds, self.neighbourhoods, sites)

        x, signed = solution.found, True
        seen = settled_at(model, rounds, x, solution, self.tolerance)
        try:
            target = target_at(seen, x, signed)
            value = target.loss(x)[0]
        except NotPositiveDefinite:
            # a neighbourhood's own weights may be all that holds negative ones of others: these
            # then count for nothing, in all that is compared
            signed = False
            target = target_at(seen, x, signed)
            value = target.loss(x)[0]
        converged, message = False, f"round limit of {_MAX_ROUNDS} reached"
        try:
            for turn in range(_MAX_ROUNDS):
                starts = [x, _smooth(rounds, x)][: 1 if turn else 2]
                there, _, _ = self._best(target, starts, _metric(rounds, seen, model), stop=True)
                new = None
                for share in 0.5 ** np.arange(_HALVINGS):
                    candidate = x + share * (there - x)
                    try:
                        after = settled_at(model, rounds, candidate, solution, self.tolerance)
                        moved = target_at(after, candidate, signed)
                        least = moved.loss(candidate)[0]
                    except NotPositiveDefinite:
                        continue
                    if least < value:
                        new = candidate, after, moved, least
                        break
                if new is None:
                    converged, message = True, "no step predicts left-out rows better any more"
                    break
                gain = value - new[3]
                x, seen, target, value = new
                if gain < self.tolerance:
                    converged, message = True, f"the last round gained {gain:.2g} nats"
                    break
        except StopFit as stop:
            converged, message = stop.converged, stop.message
        except KeyboardInterrupt:
            converged, message = False, self.tracker.interrupted()
        hessian = differenced(lambda u: target.loss(u)[1], x) if len(x) else None
        u, phi = target.split(x)
        rounds.hyperparameters.set(u)
        rounds.family.set(phi)
        assign_posterior(model, seen.q)
        prior = rounds.hyperparameters.log_prior(u)[0] + rounds.family.log_prior(phi)[0]
        found = Solution(
            rows, seen.state.data, seen.q, rounds.values(u), x, rounds, hessian=hessian
        )
        return self._result(converged, message, seen.elbo + prior), found

    def _best(
        self,
        target: LeftOut,
        starts: list[AnyNDArray],
        metric: Callable[[AnyNDArray], AnyNDArray | None],
        stop: bool = False,
    ) -> tuple[AnyNDArray, bool, str]:
        """
        The best that L-BFGS finds from several starts.

        :param starts: the first of which can be evaluated.
        :param stop: whether time that is up is the caller's to see to.
        """
        if not len(starts[0]):
            return starts[0], True, "nothing is trainable"
        found: list[tuple[float, AnyNDArray, bool, str]] = []
        seen = [starts[0]]
        try:
            for start in starts:
                seen[0] = start
                try:
                    found.append(self._descended(target, start, metric, seen))
                except NotPositiveDefinite:
                    if not found:
                        raise
        except StopFit as end:
            if stop:
                raise
            found.append((target.loss(seen[0])[0], seen[0], end.converged, end.message))
        except KeyboardInterrupt:
            if stop:
                raise
            message = self.tracker.interrupted()
            found.append((target.loss(seen[0])[0], seen[0], False, message))
        _, x, converged, message = min(found, key=lambda one: one[0])
        return x, converged and found[-1][2], message if found[-1][2] else found[-1][3]

    def _descended(
        self,
        target: LeftOut,
        x: AnyNDArray,
        metric: Callable[[AnyNDArray], AnyNDArray | None],
        seen: list[AnyNDArray],
    ) -> tuple[float, AnyNDArray, bool, str]:
        """
        L-BFGS until a run of it gains nothing.

        :param seen: holds the best so far.
        """

        def noted(at: AnyNDArray) -> None:
            seen[0] = at

        value = target.loss(x)[0]
        while True:
            left = self.max_iterations - len(self.tracker.history)
            if left <= 0:
                return value, x, False, f"iteration limit of {self.max_iterations} reached"
            x, converged, message = descend(
                target.loss, x, left, self.tolerance, self.tracker, True, noted, metric
            )
            now = target.loss(x)[0]
            gain, value = value - now, now
            if not converged or gain < self.tolerance:
                return value, x, converged, message

    def _result(self, converged: bool, message: str, elbo: float) -> FitResult:
        return self.tracker.result(converged, message, elbo)


def _smooth(rounds: Rounds, x: AnyNDArray) -> AnyNDArray:
    """
    Coordinates at which kernels are what their priors expect.

    The criterion may have an optimum there as well as near the ELBO's, which takes what rows have
    in common with their neighbours for a function.
    """
    number = len(rounds.hyperparameters)
    return np.concatenate([rounds.hyperparameters.prior_modes(x[:number]), x[number:]])


def _metric(
    rounds: Rounds, seen: Seen, model: AdditiveSVGP
) -> Callable[[AnyNDArray], AnyNDArray | None]:
    """About how the loss curves: as the evidence does, and the likelihood at held marginals."""
    number = len(rounds.hyperparameters)

    def metric(x: AnyNDArray) -> AnyNDArray | None:
        whole = np.zeros((len(x), len(x)))
        if number:
            own = rounds.metric(seen.state.data, x[:number])
            if own is None:
                return None
            whole[:number, :number] = own
        rest = np.arange(number, len(x))
        whole[rest, rest] = np.maximum(np.abs(curvature), _LEAST)
        return whole

    curvature = np.zeros(0)
    if len(rounds.family):
        values = rounds.values(rounds.hyperparameters.get())
        found = rounds.rows.sweep(model.likelihood, values, seen.q).curvature
        curvature = np.diag(found)
    return metric
