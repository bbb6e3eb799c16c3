"""Progress, history, time budget and early stop of a fit."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Literal, get_args

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from ...posteriors import AdditivePosterior
from .budget import TimeBudget
from .progress import progress_bar
from .result import Callback, FitProgress, FitResult

_REDRAW = 0.1
"""Seconds between two looks of the bar within a pass."""


OnInterrupt = Literal["raise", "keep"]
"""What becomes of a fit that Ctrl-C ends: see :func:`~gpflow_gam.optimizers.fit`."""
INTERRUPTED = "interrupted; what was best so far is kept"


def check_on_interrupt(value: object) -> None:
    """
    :raises ValueError: none of the choices.
    """
    if value not in get_args(OnInterrupt):
        raise ValueError(f"on_interrupt must be 'raise' or 'keep'; got {value!r}.")


class StopFit(Exception):
    """
    Ends a fit from inside an optimiser; carries why.

    :param message: why.
    :param converged: whether there was nothing more to gain.
    """

    def __init__(self, message: str, converged: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.converged = converged


class Tracker:
    """
    Follows one fit and keeps its best parameters.

    :param variables: what the fit changes; put back to the best seen where a fit breaks.
    :param method: what to call it.
    :param max_seconds: time budget, which may run already.
    :param callback: called once an iteration.
    :param progress: whether to draw a bar; None for "on a terminal or in a notebook only". It
        tells the iterations, and of fits that pass over rows the pass, the rows it has seen, and
        the last ELBO.
    :param on_interrupt: what Ctrl-C does: see :meth:`interrupted`.
    :param objective: what to call what is recorded.
    :raises ValueError: ``on_interrupt`` is none of its values, or a time budget that is none.
    """

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
        """
        Note one iteration's objective.

        :param elbo: the objective there.
        :raises StopFit: time is up or the callback says so.
        """
        self.note(elbo, f"{self._objective} {elbo:.4f}")
        self.check()

    def note(
        self,
        objective: float,
        shown: str,
        posterior: Callable[[], AdditivePosterior] | None = None,
    ) -> None:
        """
        Note one iteration's objective, whether or not the fit has to end.

        :param objective: there.
        :param shown: beside the bar.
        :param posterior: for the callback, where there is one so far.
        """
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
        """
        A pass over rows begins.

        :param rows: N.
        :return: is told how many of them the pass has seen. Once there is an iteration to fall
            back to, it raises :class:`StopFit` where time is up.
        """
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
        """
        :raises StopFit: time is up or the callback says so.
        """
        self.ended = bool(self.stopped) or self.budget.spent
        if self.stopped:
            why = self.stopped if isinstance(self.stopped, str) else "stopped by the callback"
            raise StopFit(why)
        if self.ended:
            raise StopFit(f"time budget of {self.budget} used up")

    def interrupted(self) -> str:
        """
        Called where Ctrl-C has been caught, and the fit has something to keep.

        :return: what is said of a fit that it ends with that.
        :raises KeyboardInterrupt: the fit was not asked to keep anything.
        """
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
        """
        The fit's report; ``details`` are the fields that only some fits have.

        :param converged: whether it did.
        :param message: why it ended.
        :param elbo: at the end.
        """
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
