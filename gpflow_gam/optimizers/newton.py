"""Newton fits: budgets, progress, interruption, hyperparameters."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.posteriors import PrecomputeCacheType

from ..likelihoods import checked_data
from ..models import IterNCGP
from ..newton import action_bound, held_actions
from ..newton.solvers import ActionPosteriorState, Diverged, StepReport
from ..newton.solvers.progress import Run
from ..newton.weights import ActionWeights
from ..posteriors import ActionPosterior
from .minimizers import LBFGS, FitResult, StopFit, Tracker

_MANY, _FEWEST, _COARSER = 1000, 300, 4
"""
Rows from which hyperparameters are first learnt from some of them; the fewest of those, and how
many times more there are in all.
"""


def fit_newton(
    model: IterNCGP,
    tracker: Tracker,
    max_iterations: int,
    tolerance: float,
    hyperparameters: bool,
    max_sweeps: float | None,
    max_rounds: int,
    validation_data: RegressionData | None,
) -> FitResult:
    """
    Find the mode and the posterior around it; a further call goes on from the buffers.

    Ended by a budget or a callback, it leaves the posterior of what was computed. Where an error
    comes out, Ctrl-C too, the model is what it was before.

    :param tracker: of this fit, without variables: the mode is no value of any that could be put
        back.
    :param max_iterations: limit on Newton steps.
    :param tolerance: a round of hyperparameters that gains less is the last.
    :param hyperparameters: whether to learn them.
    :param max_sweeps: budget.
    :param max_rounds: how often hyperparameters and mode take turns.
    :param validation_data: (X, Y), where their density is asked for.
    :raises ValueError: validation data that do not fit; the likelihood is not log-concave at a
        point reached.
    """
    if validation_data is not None:
        validation_data = checked_data(validation_data, model.latents.kernels[0], model.likelihood)
    with tracker, _undone_on_error(model):
        newton = _Newton(model, tracker, max_iterations, max_sweeps, validation_data)
        if hyperparameters:
            return _learn(newton, max_rounds, tolerance)
        return newton.result(*newton.solve(), math.nan)


@contextlib.contextmanager
def _undone_on_error(model: IterNCGP) -> Iterator[None]:
    """Puts parameters and posterior back to what they were before, where an error comes out."""
    before, fit = [(v, v.numpy()) for v in model.variables], model.last_fit
    try:
        yield
    except BaseException:
        for variable, value in before:
            variable.assign(value)
        model.forget_run()  # whose step may be half done
        model.restore(fit)
        raise


class _Newton:
    """One fit: its solver's steps, and what they have cost."""

    def __init__(
        self,
        model: IterNCGP,
        tracker: Tracker,
        max_iterations: int,
        max_sweeps: float | None,
        validation_data: RegressionData | None,
    ) -> None:
        self.model = model
        self.tracker = tracker
        self.max_iterations = max_iterations
        self.max_sweeps = math.inf if max_sweeps is None else max_sweeps
        self.validation_data = validation_data
        self.sweeps = 0.0
        self.steps: list[dict[str, Any]] = []
        self.round = 0
        self.running: Run | None = None
        """The run whose step a callback looks at, while it does."""

    @property
    def spent(self) -> bool:
        """Whether a budget is used up."""
        if self.tracker.budget.spent or self.sweeps >= self.max_sweeps:
            return True
        return len(self.steps) >= self.max_iterations

    def solve(self, before: ActionPosteriorState | None = None) -> tuple[bool, str]:
        """
        The mode at the present parameters and the posterior around it.

        :param before: what was found at other parameters.
        :return: whether it converged, and why it ended.
        """
        run = self.model.run(before)
        operator = run.problem.operator
        spent = self.sweeps - operator.sweeps  # by earlier rounds, less what the run has behind it
        converged, message, cheap = False, "step limit reached", False
        try:
            for report in run.steps():
                step = spent + operator.sweeps - self.sweeps
                self.sweeps = spent + operator.sweeps
                self._record(run, report)
                converged = report.converged
                if converged:
                    message = "converged"
                    break
                self._check(run.ahead(step) + run.closing)
        except StopFit as stop:
            message, cheap = stop.message, self.max_sweeps < 2.0
        except Diverged as diverged:
            message = str(diverged)
        except KeyboardInterrupt:
            message, cheap = self.tracker.interrupted(), True
        try:
            state = run.finish(cheap=cheap or self.tracker.budget.spent)
        except KeyboardInterrupt:  # in the posterior's own sweep
            converged, message = False, self.tracker.interrupted()
            state = run.finish(cheap=True)
        self.model.accept(state)
        self.sweeps = spent + operator.sweeps
        return converged, message

    def _check(self, ahead: float) -> None:
        """
        :param ahead: sweeps that the next step takes, and the posterior after it.
        :raises StopFit: they would go over a budget.
        """
        self.tracker.check()
        if len(self.steps) >= self.max_iterations:
            raise StopFit(f"iteration limit of {self.max_iterations} reached")
        if self.sweeps + ahead > self.max_sweeps + 1e-9:
            raise StopFit(f"budget of {self.max_sweeps:g} sweeps used up")

    def _record(self, run: Run, report: StepReport) -> None:
        row = {k: getattr(report, k) for k in report.__dataclass_fields__}
        row.update(sweeps=self.sweeps, seconds=self.tracker.seconds, round=self.round)
        row["rows"] = int(self.model.data[0].shape[0])
        shown = f"log posterior {report.log_posterior:.4f}, residual {report.residual:.2e}"
        if self.validation_data is not None:
            row["nlpd"] = self._validate(run)
            shown += f", nlpd {row['nlpd']:.4f}"
        self.steps.append(row)
        self.running = run
        try:
            look = functools.partial(self._look, len(self.steps))
            self.tracker.note(report.log_posterior, shown, look)
        finally:
            self.running = None

    def _look(self, step: int) -> ActionPosterior:
        """
        A posterior of what has been computed so far.

        :raises RuntimeError: the callback of the step has returned.
        """
        run = self.running
        if run is None or step != len(self.steps):
            raise RuntimeError(
                "progress.posterior() makes the posterior of the step that the callback is called "
                "for, while the callback runs; it has returned. Ask there, and keep the posterior."
            )
        operator = run.problem.operator
        counted = operator.sweeps
        look = run.look()
        operator.sweeps = counted  # looking is no part of the budget
        found = ActionWeights.of_fit(look.state)
        X = self.model.data[0]
        return ActionPosterior(
            self.model.latents,
            X,
            lambda: (found.v, found.E, found.E0),
            self.model.mean_function,
            precompute_cache=PrecomputeCacheType.TENSOR,
            snapshot=True,
            X_actions=None if look.rows is None else tf.gather(X, look.rows),
        )

    def _validate(self, run: Run) -> float:
        assert self.validation_data is not None
        operator = run.problem.operator
        counted = operator.sweeps
        self.model.accept(run.finish())
        operator.sweeps = counted  # looking is no part of the budget
        return -float(tf.reduce_mean(self.model.predict_log_density(self.validation_data)))

    def result(self, converged: bool, message: str, elbo: float) -> FitResult:
        """The fit's report."""
        return self.tracker.result(converged, message, elbo, sweeps=self.sweeps, steps=self.steps)


class _HeldBound:
    """
    The objective of hyperparameters, at actions that are variables: it is compiled once.

    :param model: whose state they are.
    """

    def __init__(self, model: IterNCGP) -> None:
        self.model = model
        S, targets = held_actions(model.state)
        room = model.state.actions.shape[0]
        self.S = tf.Variable(tf.zeros([room, *S.shape[1:]], S.dtype), trainable=False)
        self.targets = tf.Variable(tf.zeros([room], S.dtype), trainable=False)
        self.hold(S, targets)

    def hold(self, S: tf.Tensor, targets: tf.Tensor) -> None:
        """Take other actions, no more than there is room for."""
        spare = self.S.shape[0] - S.shape[0]
        self.S.assign(tf.pad(S, [[0, spare], [0, 0], [0, 0]]))
        self.targets.assign(tf.pad(targets, [[0, spare]]))

    def loss(self) -> tf.Tensor:
        """Minus the bound, and minus the log-densities of priors."""
        bound = action_bound(self.model.problem(), tf.identity(self.S), tf.identity(self.targets))
        return -(bound + tf.cast(self.model.log_prior_density(), bound.dtype))


def _learn(newton: _Newton, max_rounds: int, tolerance: float) -> FitResult:
    """
    Mode and hyperparameters in turn.

    Each round maximises the bound at held actions and pseudo-observations by L-BFGS, then finds the
    mode, and with it new ones, at the parameters reached. Of a new model with many rows the first
    round learns from a quarter of them instead, whose products take a sixteenth. A round whose new
    bound is worse than the old is taken back.
    """
    model = newton.model
    coarse = model.last_fit is None and model.data[0].shape[0] >= _MANY
    variables = list(model.trainable_variables)
    converged, message = newton.solve()
    held = _HeldBound(model)
    best = -float(held.loss())
    if not variables:
        return newton.result(converged, message + "; nothing is trainable", best)
    if newton.tracker.ended:
        return newton.result(False, message, best)
    optimiser = LBFGS(held.loss, variables)
    converged, message = False, f"limit of {max_rounds} rounds reached"
    for newton.round in range(1, max_rounds + 1):
        if newton.spent:
            message = "budget used up"
            break
        kept, state = [v.numpy() for v in variables], model.state
        interrupted, some = "", coarse and newton.round == 1
        if some:
            _learn_from_some(newton, max_rounds, tolerance)
        else:
            tracker = Tracker(variables, "L-BFGS", newton.tracker.budget, None, False)
            with tracker, contextlib.suppress(StopFit):
                try:
                    optimiser.run(tracker, max_iterations=25, tolerance=1e-4)
                except KeyboardInterrupt:
                    interrupted = newton.tracker.interrupted()
                    tracker.restore_best()
            newton.sweeps += 2.0 * len(tracker.history)  # each value with its gradient
        _, reason = newton.solve(state)
        if model.state.actions.shape[0] > held.S.shape[0]:
            held = _HeldBound(model)
            optimiser = LBFGS(held.loss, variables)
        held.hold(*held_actions(model.state))
        now = -float(held.loss())
        gain = now - best
        if not gain >= 0.0:  # worse, or not a number
            for variable, value in zip(variables, kept):
                variable.assign(value)
            model.accept(state)
        best = max(best, now) if np.isfinite(now) else best
        if newton.tracker.ended:
            message = interrupted or reason
            break
        if gain < tolerance and not some:
            converged, message = True, f"the last round gained {gain:.2g} nats"
            break
    return newton.result(converged, message, best)


def _learn_from_some(newton: _Newton, max_rounds: int, tolerance: float) -> None:
    """
    Hyperparameters that some of the rows choose, which are left in the model's.

    Its steps are in the history of the whole fit, with their number of rows, and its sweeps are
    counted by what they take.
    """
    model = newton.model
    X, Y = model.data
    N = int(X.shape[0])
    number = max(_FEWEST, N // _COARSER)
    rows = tf.constant(np.random.default_rng(0).permutation(N)[:number])
    data = tf.gather(X, rows), tf.gather(Y, rows)
    some = IterNCGP(
        data,
        model.kernel,
        model.likelihood,
        mean_function=model.mean_function,
        solver=model.solver,
    )
    share = (number / N) ** 2
    left = (newton.max_sweeps - newton.sweeps) / share
    inner = _Newton(some, newton.tracker, newton.max_iterations, left, None)
    inner.steps = newton.steps
    _learn(inner, max_rounds, tolerance)
    newton.sweeps += share * inner.sweeps
