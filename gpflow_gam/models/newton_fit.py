"""Driving a Newton solver: budgets, progress, interruption, hyperparameters."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from tqdm.auto import tqdm

from ..minimizers import LBFGS, StopFit, Tracker
from ..newton.solvers import Diverged, StepReport
from .bound import action_bound, held_actions

if TYPE_CHECKING:
    from .iterncgp import IterNCGP


@dataclass(frozen=True)
class NewtonResult:
    """How a fit ended, and what happened in both of its loops."""

    converged: bool
    """Whether the solver would have stopped by itself."""

    message: str
    """Why it ended, in words."""

    log_posterior: float
    """log p(y | f) + log p(f), without its constant, at the end."""

    elbo: float | None
    """The bound that hyperparameters were learnt by; None where they were not."""

    sweeps: float
    """Passes over the kernel's entries that this call took."""

    seconds: float
    """How long it took."""

    history: list[dict[str, Any]] = field(repr=False, default_factory=list)
    """A dict an outer step: the fields of :class:`~gpflow_gam.newton.solvers.StepReport`,
    ``seconds``, ``nlpd`` of validation data, and ``round``; ``pandas.DataFrame(result.history)`` is
    a table."""


class _Stop(Exception):
    """Ends a fit; carries why."""


class _Follower:
    """One call of fit: its budget, its bar and its history."""

    def __init__(
        self,
        model: IterNCGP,
        max_sweeps: float | None,
        max_seconds: float | None,
        validation_data: RegressionData | None,
        progress: bool | None,
    ) -> None:
        self.model = model
        self.max_sweeps = math.inf if max_sweeps is None else max_sweeps
        self.max_seconds = math.inf if max_seconds is None else max_seconds
        self.validation_data = validation_data
        self.begun = time.perf_counter()
        self.sweeps = 0.0
        self.history: list[dict[str, Any]] = []
        self.round = 0
        disable = None if progress is None else not progress
        self.bar = tqdm(desc="IterNCGP", unit="sweep", disable=disable)

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.begun

    def solve(self, weights: tf.Tensor | None = None) -> tuple[bool, str]:
        """
        The mode at the present parameters and the posterior around it.

        :return: whether it converged, and why it ended.
        """
        run = self.model.run(weights)
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
                self._check(step)
        except _Stop as stop:
            message, cheap = str(stop), self.max_sweeps < 2.0
        except Diverged as diverged:
            message = str(diverged)
        except KeyboardInterrupt:
            message, cheap = "interrupted", True
        self.model.accept(run.finish(cheap=cheap or self.seconds > self.max_seconds))
        self.sweeps = spent + operator.sweeps
        return converged, message

    def _check(self, last: float) -> None:
        """
        :raises _Stop: the next step, and the posterior's sweep after it, would go over a budget.
        """
        if self.seconds > self.max_seconds:
            raise _Stop(f"time budget of {self.max_seconds:g} s used up")
        if self.sweeps + last + 1.0 > self.max_sweeps + 1e-9:
            raise _Stop(f"budget of {self.max_sweeps:g} sweeps used up")

    def _record(self, run: Any, report: StepReport) -> None:
        row = {k: getattr(report, k) for k in report.__dataclass_fields__}
        row.update(sweeps=self.sweeps, seconds=self.seconds, round=self.round)
        shown = {
            "log posterior": f"{report.log_posterior:.4f}",
            "residual": f"{report.residual:.2e}",
        }
        if self.validation_data is not None:
            row["nlpd"] = self._validate(run)
            shown["nlpd"] = f"{row['nlpd']:.4f}"
        self.history.append(row)
        self.bar.set_postfix(shown, refresh=False)
        self.bar.update()

    def _validate(self, run: Any) -> float:
        assert self.validation_data is not None
        operator = run.problem.operator
        counted = operator.sweeps
        self.model.accept(run.finish())
        operator.sweeps = counted  # looking is no part of the budget
        X, Y = self.validation_data
        mean, var = self.model.posterior().predict_f(X)
        density = self.model.likelihood.predict_log_density(X, mean, var, Y)
        return -float(tf.reduce_mean(density))

    def result(self, converged: bool, message: str, elbo: float | None) -> NewtonResult:
        last = self.history[-1]["log_posterior"] if self.history else math.nan
        return NewtonResult(converged, message, last, elbo, self.sweeps, self.seconds, self.history)


def follow(model: IterNCGP, **options: Any) -> NewtonResult:
    """The mode and the posterior at the present parameters."""
    follower = _Follower(model, **options)
    with follower.bar:
        return follower.result(*follower.solve(), None)


_GAIN = 1e-2
"""In nats: a round of hyperparameters that gains less is the last."""


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
        bound = action_bound(self.model, tf.identity(self.S), tf.identity(self.targets))
        return -(bound + self.model.log_prior_density())


def learn(model: IterNCGP, *, max_rounds: int, **options: Any) -> NewtonResult:
    """
    Mode and hyperparameters in turn.

    Each round maximises the bound at held actions and pseudo-observations by L-BFGS, then finds the
    mode, and with it new ones, at the parameters reached. A round whose new bound is worse than the
    old is taken back.
    """
    follower = _Follower(model, **options)
    variables = list(model.trainable_variables)
    with follower.bar:
        converged, message = follower.solve()
        held = _HeldBound(model)
        best = -float(held.loss())
        if not variables:
            return follower.result(converged, message + "; nothing is trainable", best)
        if message == "interrupted":
            return follower.result(False, message, best)
        optimiser = LBFGS(held.loss, variables)
        converged, message = False, f"limit of {max_rounds} rounds reached"
        for follower.round in range(1, max_rounds + 1):
            if follower.seconds > follower.max_seconds or follower.sweeps >= follower.max_sweeps:
                message = "budget used up"
                break
            kept, state = [v.numpy() for v in variables], model.state
            left = max(follower.max_seconds - follower.seconds, 0.0)
            with Tracker(variables, "L-BFGS", left, None, False) as tracker:
                try:
                    optimiser.run(tracker, max_iterations=25, tolerance=1e-4)
                except StopFit:
                    pass
                except KeyboardInterrupt:
                    message = "interrupted"
            follower.sweeps += 2.0 * len(tracker.history)  # each value with its gradient
            _, inner = follower.solve(state.weights)
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
            if "interrupted" in (message, inner):
                message = "interrupted"
                break
            if gain < _GAIN:
                converged, message = True, f"the last round gained {gain:.2g} nats"
                break
        return follower.result(converged, message, best)
