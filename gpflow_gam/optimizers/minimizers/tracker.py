"""Progress, history, time budget, early stop and report of a fit."""

from __future__ import annotations

import math
import numbers
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, get_args

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from tqdm.auto import tqdm

from ...posteriors import AdditivePosterior


class TimeBudget:
    """
    A time limit whose clock starts when it is made.

    Whatever takes ``max_seconds`` takes one of these, too: what shares it ends together.
    """

    def __init__(
        self, max_seconds: float | None = None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        if max_seconds is not None:
            number = isinstance(max_seconds, numbers.Real) and not isinstance(max_seconds, bool)
            if not (number and max_seconds > 0.0):
                raise ValueError(
                    f"max_seconds must be positive; got {max_seconds!r}. Leave it out for no limit."
                )
        self.max_seconds = None if max_seconds is None else float(max_seconds)
        self._clock = clock
        self._start = clock()

    @classmethod
    def of(cls, value: float | TimeBudget | None) -> TimeBudget:
        """A budget that runs already, or one that starts now."""
        return value if isinstance(value, TimeBudget) else cls(value)

    @property
    def seconds(self) -> float:
        """Time since the start."""
        return self._clock() - self._start

    @property
    def left(self) -> float:
        """Seconds until the limit, not less than zero; infinite where there is none."""
        return math.inf if self.max_seconds is None else max(self.max_seconds - self.seconds, 0.0)

    @property
    def spent(self) -> bool:
        """True if time is up."""
        return self.max_seconds is not None and self.seconds > self.max_seconds

    def __str__(self) -> str:
        return "no limit" if self.max_seconds is None else f"{self.max_seconds:g} s"


def progress_bar(
    what: str, unit: str, progress: bool | None, total: int | None = None, **options: Any
) -> Any:
    """A bar of tqdm's."""
    disable = None if progress is None else not progress
    if disable is None and _in_notebook():
        disable = False  # what a notebook writes to is no terminal, and tqdm would not draw
    return tqdm(desc=what, unit=unit, disable=disable, total=total, **options)


def _in_notebook() -> bool:
    """True if tqdm draws widgets here."""
    return any(kind.__module__ == "tqdm.notebook" for kind in tqdm.__mro__)


@dataclass(frozen=True)
class FitProgress:
    """The state of a running fit, as callbacks see it."""

    iteration: int
    """Iterations done, counted from 1."""

    elbo: float
    """The objective now (an epoch's mean under minibatches; the log posterior at a Newton step)."""

    seconds: float
    """Time since the fit began."""

    posterior: Callable[[], AdditivePosterior] | None = field(
        default=None, repr=False, compare=False
    )
    """Makes the posterior of what has been computed so far, a snapshot. It is to be called while
    the callback runs (later it raises RuntimeError), and takes time only where it is. ``None`` in
    fits that are not of an ``IterNCGP``: they change a model, which predicts for itself."""


Callback = Callable[[FitProgress], bool | str | None]
"""Called once an iteration; a true return value ends the fit, and a text says why."""


@dataclass(frozen=True)
class FitResult:
    """The result of a fit: how it ended, its objective and its history."""

    converged: bool
    """Whether the objective had stopped improving."""

    message: str
    """Why it ended, in words."""

    elbo: float
    """The objective at the end: the ELBO, plus the log-densities of priors where there are any. NaN
    where hyperparameters were held and the fit had no need of it."""

    num_iterations: int
    """How many iterations there were."""

    seconds: float
    """How long it took."""

    method: str
    """What was done."""

    history: AnyNDArray = field(repr=False, default_factory=lambda: np.zeros(0))
    """The objective after each iteration: under minibatches the mean of each epoch, then the steps
    on all data; under Newton steps the log posterior
    log p(y | f) + log p(f), without its constant."""

    sweeps: float | None = None
    """Passes over the kernel's entries, where kernel matrices are not held."""

    steps: list[dict[str, Any]] = field(repr=False, default_factory=list)
    """Of Newton steps, a dict each: the fields of :class:`~gpflow_gam.newton.solvers.StepReport`,
    ``seconds`` and ``round``; ``pandas.DataFrame(result.steps)`` is a
    table."""

    discretisation: float | None = None
    """How much rounding inputs to bins adds to the noise, as a share of it, measured at a thousand
    rows: posterior means move by about its square root in posterior standard deviations. 0 where
    nothing was rounded, None for fits that do not. Predictions are at exact inputs, always."""

    interpolation: float | None = None
    """About by how many nats it matters that curves are summed up at nodes, and are interpolated
    between: the squares of what is lost there, in standard deviations of rows, added up. None for
    fits that do not."""

    interpolation_by: dict[str, float] = field(repr=False, default_factory=dict)
    """The same of each component by itself."""

    interpolation_shift: float | None = None
    """By how many of its standard errors that moves an effect, at most and to first order."""

    ended: bool = False
    """Whether time, the callback or Ctrl-C asked for the end."""


_REDRAW = 0.1
"""Seconds between two looks of the bar within a pass."""


OnInterrupt = Literal["raise", "keep"]
"""What becomes of a fit that Ctrl-C ends: see :func:`~gpflow_gam.optimizers.fit`."""
INTERRUPTED = "interrupted; what was best so far is kept"


def check_on_interrupt(value: object) -> None:
    """Raise ValueError if it is none of the choices."""
    if value not in get_args(OnInterrupt):
        raise ValueError(f"on_interrupt must be 'raise' or 'keep'; got {value!r}.")


class StopFit(Exception):
    """Ends a fit from inside an optimiser; carries why."""

    def __init__(self, message: str, converged: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.converged = converged


class Tracker:
    """Follows one fit and keeps its best parameters."""

    def __init__(
        self,
        variables: Sequence[tf.Variable],
        method: str,
        max_seconds: float | TimeBudget | None,
        callback: Callback | None,
        progress: bool | None,
        on_interrupt: OnInterrupt = "raise",
        objective: str = "ELBO",
    ) -> None:
        check_on_interrupt(on_interrupt)
        self.variables = list(variables)
        self.method, self._objective = method, objective
        self.budget = TimeBudget.of(max_seconds)
        self.on_interrupt = on_interrupt
        self.callback = callback
        self.history: list[float] = []
        self.stopped: bool | str | None = False
        """Whether the callback has asked for the end, or why."""
        self.ended = False
        """Whether time, the callback or Ctrl-C has ended the fit."""
        self._best: tuple[float, list[AnyNDArray]] = (-np.inf, [])
        self._bar = progress_bar(method, "it", progress)
        self._passes, self._shown, self._drawn = 0, "", 0.0

    def __enter__(self) -> Tracker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.close()

    @property
    def max_seconds(self) -> float | None:
        """The time budget; None where there is none."""
        return self.budget.max_seconds

    @property
    def seconds(self) -> float:
        """Time since the budget's start."""
        return self.budget.seconds

    @property
    def best(self) -> float:
        """The best objective recorded."""
        return self._best[0]

    def record(self, elbo: float) -> None:
        """Record one iteration's objective; raises StopFit where the fit has to end."""
        self.append(elbo, f"{self._objective} {elbo:.4f}")
        self.check()

    def append(
        self,
        objective: float,
        shown: str,
        posterior: Callable[[], AdditivePosterior] | None = None,
    ) -> None:
        """Record one iteration's objective, whether or not the fit has to end."""
        self.history.append(objective)
        if objective > self._best[0]:
            self._best = (objective, [v.numpy() for v in self.variables])
        self._shown = shown
        self._bar.set_postfix_str(shown, refresh=False)
        self._bar.update()
        if self.callback is not None:
            progress = FitProgress(len(self.history), objective, self.seconds, posterior)
            self.stopped = self.callback(progress)

    def watch(self, rows: int) -> Callable[[int], None]:
        """A pass over rows begins."""
        self._passes += 1

        def passing(seen: int) -> None:
            if self.history:
                self.check()
            now = time.perf_counter()
            if self._bar.disable or (now - self._drawn < _REDRAW and seen < rows):
                return
            self._drawn = now
            text = f"pass {self._passes}, {seen:,} of {rows:,} rows"
            text += f", {self._shown}" if self._shown else ""
            self._bar.set_postfix_str(text, refresh=True)

        return passing

    def check(self) -> None:
        self.ended = bool(self.stopped) or self.budget.spent
        if self.stopped:
            why = self.stopped if isinstance(self.stopped, str) else "stopped by the callback"
            raise StopFit(why)
        if self.ended:
            raise StopFit(f"time budget of {self.budget} used up")

    def interrupted(self) -> str:
        """Called where Ctrl-C has been caught, and the fit has something to keep."""
        if self.on_interrupt != "keep":
            raise  # on, as it came
        self.ended = True
        return INTERRUPTED

    def restart(self) -> None:
        """Forget the objective so far: what follows is another one. The clock goes on."""
        self.history.clear()
        self._best = (-np.inf, [])

    def restore_best(self) -> None:
        """Put the variables back to the best iteration."""
        for variable, value in zip(self.variables, self._best[1]):
            variable.assign(value)

    def result(self, converged: bool, message: str, elbo: float, **details: Any) -> FitResult:
        """The fit's report; ``details`` are the fields that only some fits have."""
        history = np.array(self.history)
        return FitResult(
            converged,
            message,
            elbo,
            len(history),
            self.seconds,
            self.method,
            history,
            # also where a callback asked at what was the last iteration
            ended=self.ended or bool(self.stopped),
            **details,
        )


def check_options(
    max_iterations: int,
    batch_size: int | None,
    learning_rate: float,
    rho: float,
    tolerance: float,
    patience: int,
) -> None:
    """Raise ValueError if an option is out of range, naming it."""
    if max_iterations < 1:
        raise ValueError(f"max_iterations must be at least 1; got {max_iterations}.")
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"batch_size must be at least 1; got {batch_size}.")
    if not (np.isfinite(learning_rate) and learning_rate > 0.0):
        raise ValueError(f"learning_rate must be positive; got {learning_rate}.")
    if not 0.0 < rho <= 1.0:
        raise ValueError(f"rho must be in (0, 1]; got {rho}.")
    if not tolerance > 0.0:
        raise ValueError(f"tolerance must be positive; got {tolerance}.")
    if patience < 2:
        raise ValueError(f"patience must be at least 2, to tell a trend; got {patience}.")
