"""Newton fits: budgets, progress, interruption, hyperparameters."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from ..models import IterNCGP
from ..models.iterncgp import Snapshot
from ..newton.problem import ActionPosteriorState, Diverged, Run, StepReport
from ..newton.solvers import Variational
from ..newton.weights import ActionWeights, action_bound, noisy_actions, slope_of_sites
from ..posteriors import ActionPosterior
from .minimizers import LBFGS, FitResult, Settling, StopFit, Tracker


def fit_newton(
    model: IterNCGP,
    tracker: Tracker,
    hyperparameters: bool,
    max_sweeps: float | None,
    max_rounds: int,
) -> FitResult:
    """Find the mode and the posterior around it; a further call goes on where this one ended."""
    # Ended by a budget or a callback, it leaves the posterior of what was computed, or that of
    # before if its bound is higher, and takes one step at least. After an error the model is what
    # it was.
    with tracker, _restore_on_error(model) as before:
        newton = _Newton(model, tracker, math.inf if max_sweeps is None else max_sweeps)
        bound = model.objective() if model.goes_on else -math.inf
        elbo = math.nan
        if model.unfinished is not None and not model.unfinished.shown.is_present:
            model.unfinished = None
        left = model.unfinished
        if hyperparameters:
            learnt = [id(v) for v in model.trainable_variables]
            if left is not None and [id(v) for v in left.variables] == learnt:
                left.reached.put_back()
            else:
                model.unfinished = None
            converged, message = _learn(newton, max_rounds)
            reached, elbo = _Place(model), model.objective()
        else:
            converged, message = newton.solve()
        # where parameters were assigned, the mode there is wanted, however good the held posterior
        same = hyperparameters or left is not None or before.at_its_parameters
        rounding = 10.0 * float(np.finfo(model.precision.as_numpy_dtype).eps) * max(1.0, abs(bound))
        compared = (same or not converged) and bound > -math.inf
        if compared and model.objective() < bound - rounding:
            before.put_back()
            message += "; the posterior of before this call is kept, as its bound is higher"
            elbo = bound if hyperparameters else elbo
        if model.unfinished is not None and hyperparameters:
            model.unfinished.reached, model.unfinished.shown = reached, _Place(model)
        costs = {"sweeps": newton.sweeps, "steps": newton.steps}
        return tracker.result(converged, message, elbo, **costs)


class _Place:
    """The values of a model's parameters, and its posterior, at one time."""

    def __init__(self, model: IterNCGP) -> None:
        self._model, self._fit, self._at = model, model.last_fit, Snapshot(model)
        self._values = [(v, v.numpy()) for v in model.variables]
        self.at_its_parameters = self._fit is not None and self._fit.at.is_present(model)
        """True if the posterior was computed at these parameters."""

    @property
    def is_present(self) -> bool:
        return self._model.last_fit is self._fit and self._at.is_present(self._model)

    def put_back(self) -> None:
        for variable, value in self._values:
            variable.assign(value)
        self._model.restore(self._fit)


@contextlib.contextmanager
def _restore_on_error(model: IterNCGP) -> Iterator[_Place]:
    """Puts parameters and posterior back to what they were before, where an error comes out."""
    before = _Place(model)
    try:
        yield before
    except BaseException:
        model.forget_run()  # whose step may be half done
        before.put_back()
        raise


@dataclass(eq=False)
class _Newton:
    """One fit: its solver's steps, and what they have cost."""

    model: IterNCGP
    tracker: Tracker
    max_sweeps: float
    sweeps: float = 0.0
    steps: list[dict[str, Any]] = field(default_factory=list)
    round: int = 0
    running: Run | None = None  # the run whose step a callback looks at, while it does
    progressed: bool = False  # whether there was a step yet, of Newton's or of L-BFGS
    stopped: bool = False  # whether a budget, a callback or Ctrl-C has ended it

    def solve(self, before: ActionPosteriorState | None = None) -> tuple[bool, str]:
        """The mode at the present parameters and the posterior around it."""
        run = self.model.run(before)
        operator, closing = run.problem.operator, run.ended
        spent = self.sweeps - operator.sweeps  # by earlier rounds, less what the run has behind it
        converged, message, cheap, ended = False, "step limit reached", False, closing
        try:
            for report in run.steps() if closing is None else (closing,):
                step = spent + operator.sweeps - self.sweeps
                self.sweeps, self.progressed = spent + operator.sweeps, True
                ended = report if report.converged else None
                self._record(run, report)
                if report.converged:
                    if closing is None and self.tracker.budget.spent:
                        self.tracker.check()  # the posterior is the next call's
                    converged, message = True, "converged"
                    break
                self.check(run.ahead(step) + 1.0)  # one for the posterior
        except StopFit as stop:
            message, self.stopped = str(stop), True
            cheap = self.max_sweeps < 2.0 or self.tracker.budget.spent
        except Diverged as diverged:
            message, cheap = str(diverged), self.tracker.budget.spent
        except KeyboardInterrupt as error:
            message, cheap, self.stopped = self.tracker.why(error), True, True
        try:
            state = run.finish(cheap=cheap)
        except KeyboardInterrupt as error:  # in the posterior's own sweep
            converged, message = False, self.tracker.why(error)
            cheap = self.stopped = True
            state = run.finish(cheap=True)
        run.ended = ended if cheap else None
        self.model.accept(state, complete=not (cheap or self.stopped))
        self.sweeps = spent + operator.sweeps
        return converged, message

    def check(self, ahead: float) -> None:
        self.tracker.check()
        if len(self.steps) >= self.tracker.max_iterations:
            raise StopFit(f"iteration limit of {self.tracker.max_iterations} reached")
        if self.sweeps + ahead > self.max_sweeps + 1e-9:
            raise StopFit(f"budget of {self.max_sweeps:g} sweeps used up")

    def _record(self, run: Run, report: StepReport) -> None:
        here = {"sweeps": self.sweeps, "seconds": self.tracker.budget.seconds, "round": self.round}
        shown = f"log posterior {report.log_posterior:.4f}, residual {report.residual:.2e}"
        self.steps.append(vars(report) | here)
        self.running = run
        try:
            look = functools.partial(self._look, len(self.steps))
            self.tracker.append(report.log_posterior, shown, look)
        finally:
            self.running = None

    def _look(self, step: int) -> ActionPosterior:
        """A posterior of what has been computed so far."""
        run = self.running
        if run is None or step != len(self.steps):
            raise RuntimeError(
                "progress.posterior() makes the posterior of the step that the callback is called "
                "for, while the callback runs; it has returned. Ask there, and keep the posterior."
            )
        operator = run.problem.operator
        counted = operator.sweeps
        weights = ActionWeights.of_fit(run.finish(cheap=True))
        operator.sweeps = counted  # looking is no part of the budget
        model = self.model
        prior_and_q = model.latents, model.data[0], lambda: weights[:3], model.mean_function
        return ActionPosterior(*prior_and_q, precompute_cache="tensor")


class _FixedActionsBound:
    """The objective of hyperparameters, at actions that are variables: it is compiled once."""

    # Its slope, where actions are held, is that of the bound found anew: the mode moves as the mean
    # of q does, by a Newton step, and W and the pseudo-observations with it (third derivatives, as
    # in Rasmussen & Williams 2006, section 5.5.1). The nearest Gaussian's bound has no such slope.
    def __init__(self, model: IterNCGP, variables: list[tf.Variable]) -> None:
        self.model = model
        room = model.state.actions, model.state.targets, model.problem().mean
        parts = [tf.Variable(tf.zeros_like(x), trainable=False) for x in room]
        self.S, self.targets, self.slope = parts
        self.lbfgs = LBFGS(self.loss, variables, model, model.data[0])

    def hold(self) -> None:
        """Take the present actions, no more than there is room for."""
        fit = self.model.last_fit
        assert fit is not None
        S, targets = noisy_actions(fit.state)
        spare = self.S.shape[0] - S.shape[0]
        self.S.assign(tf.pad(S, [[0, spare], [0, 0], [0, 0]]))
        self.targets.assign(tf.pad(targets, [[0, spare]]))
        if not isinstance(self.model.solver, Variational):
            self.slope.assign(slope_of_sites(self.model.problem(), S, targets))

    def loss(self) -> tf.Tensor:
        """Minus the bound and what the sites add, and minus the log-densities of priors."""
        held = tf.identity(self.S), tf.identity(self.targets)
        bound, mean = action_bound(self.model.problem(), *held)
        bound += tf.reduce_sum(self.slope * mean)
        return -(bound + tf.cast(self.model.log_prior_density(), bound.dtype))


@dataclass
class _Round:
    """A round of hyperparameters."""

    begun: _Place
    bound: float  # where it began
    whole: bool = False  # whether L-BFGS was ended by nothing but itself


class _Learning:
    """Hyperparameters that are being learnt, in one call or, where a budget ends it, in several."""

    reached: _Place  # where the last call ended, and
    shown: _Place  # where it left the model: there, or where it began

    def __init__(self, model: IterNCGP) -> None:
        self.variables = list(model.trainable_variables)
        self.round: _Round | None = None
        self.settling = Settling()
        self._held: _FixedActionsBound | None = None

    def optimiser(self, model: IterNCGP) -> LBFGS:
        """L-BFGS on the bound at the present actions; compiled once."""
        if self._held is None or model.state.actions.shape[0] > self._held.S.shape[0]:
            self._held = _FixedActionsBound(model, self.variables)
        self._held.hold()
        return self._held.lbfgs


class _OneAtLeast(Tracker):
    """The tracker of L-BFGS, which takes one iteration where a call has not got anywhere yet."""

    progressed = False

    def check(self) -> None:
        if self.progressed or self.history:
            super().check()


def _learn(newton: _Newton, max_rounds: int) -> tuple[bool, str]:
    """Mode and hyperparameters in turn."""
    # Each round maximises the bound at held actions by L-BFGS, then finds the mode, and new
    # actions, there. Rounds that lose are taken back. What the next call needs is kept.
    model, number = newton.model, 0
    learning: _Learning = model.unfinished or _Learning(model)
    model.unfinished = learning
    while True:
        last = learning.round
        if not (learning.variables and model.is_complete):
            converged, message = newton.solve(model.state if model.goes_on else None)
            if newton.stopped:
                return False, message
            if not learning.variables:
                model.unfinished = None
                return converged, message + "; nothing is trainable"
        bound, converged = model.objective(), False
        if last is not None:
            gain, learning.round = bound - last.bound, None
            message = f"the last round gained {gain:.2g} nats"
            fine, tolerance = learning.settling.fine, newton.tracker.tolerance
            if last.whole:
                converged = learning.settling.after(gain, tolerance)
            if not gain >= 0.0:  # worse, or not a number
                last.begun.put_back()
                bound = last.bound
                if last.whole and fine:  # the next one would be the same
                    model.unfinished = None
                    return gain > -tolerance, message + "; it is undone"
        if converged or number == max_rounds:
            model.unfinished = None
            return converged, message if converged else f"limit of {max_rounds} rounds reached"
        number += 1
        newton.round = number
        try:
            if newton.progressed:
                newton.check(2.0)
            _maximise(newton, learning, _Round(_Place(model), bound))
        except (StopFit, KeyboardInterrupt) as error:
            newton.stopped = True
            return False, newton.tracker.why(error)


def _maximise(newton: _Newton, learning: _Learning, begun: _Round) -> None:
    """The bound at held actions, by L-BFGS."""
    optimiser = learning.optimiser(newton.model)
    tracker = _OneAtLeast(learning.variables, "L-BFGS", newton.tracker.budget, None, False)
    tracker.progressed, learning.round = newton.progressed, begun
    try:
        with tracker:
            step = learning.settling.step(newton.tracker.tolerance)
            optimiser.run(tracker, max_iterations=25, tolerance=step)
            begun.whole = True
    except (StopFit, KeyboardInterrupt):
        tracker.restore_best()
        newton.tracker.check()  # which knows that time has ended it
        raise
    finally:
        newton.progressed |= len(tracker.history) > 0
        newton.sweeps += 2.0 * len(tracker.history) + 1.0  # values with gradients; the sites' slope
