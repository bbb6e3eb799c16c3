"""L-BFGS on a GPflow closure, with progress and without dying of one bad step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from gpflow.optimizers import Scipy

from .tracker import Tracker

Closure = Callable[[], tf.Tensor]


class LBFGS:
    """
    Minimises one loss over some variables, several times if need be.

    Around GPflow's SciPy optimiser, whose compiled function is used again from run to run.

    :param loss: closure.
    :param variables: what to move.
    """

    def __init__(self, loss: Closure, variables: Sequence[tf.Variable]) -> None:
        self.variables = list(variables)
        self._seen = tf.Variable(0.0, dtype=tf.float64, trainable=False)
        self._scipy = Scipy()
        self._loss = loss
        self._watched = tf.autograph.experimental.do_not_convert(self._watch)

    def _watch(self) -> tf.Tensor:
        value = self._loss()
        self._seen.assign(tf.cast(value, tf.float64))  # for the history: SciPy passes no value
        return value

    def converge(
        self, tracker: Tracker, *, max_iterations: int, tolerance: float
    ) -> tuple[bool, str]:
        """
        Runs, each with a fresh memory of curvature, until one gains less than ``tolerance``.

        A single small step is no sign of convergence: it may be the memory that is bad.

        :return: whether it converged, and why it ended.
        :raises StopFit: from ``tracker``.
        """
        value, begun = float(self._loss()), len(tracker.history)
        while True:
            left = max_iterations - (len(tracker.history) - begun)
            if left <= 0:
                return False, f"iteration limit of {max_iterations} reached"
            converged, message = self.run(tracker, max_iterations=left, tolerance=0.1 * tolerance)
            now = float(self._loss())
            gain, value = value - now, now
            if converged and gain < tolerance:
                return True, f"the last run of L-BFGS gained {gain:.2g}"
            if not converged:
                return converged, message

    def run(self, tracker: Tracker, *, max_iterations: int, tolerance: float) -> tuple[bool, str]:
        """
        One run.

        :param tracker: is told of each iteration.
        :param max_iterations: limit.
        :param tolerance: an iteration that improves the loss by less than this, in nats, ends it.
        :return: whether it converged, and why it ended.
        :raises StopFit: from ``tracker``.
        """
        last: list[Any] = [v.numpy() for v in self.variables]
        scale = tracker.best if tracker.history else float(self._loss())

        def after(step: int, moved: Sequence[tf.Variable], values: Sequence[Any]) -> None:
            nonlocal last
            last = [tf.identity(v).numpy() for v in values]
            self._assign(last)
            tracker.record(-float(self._seen))

        options = {
            "maxiter": max_iterations,
            "maxfun": 20 * max_iterations,
            # SciPy's test is relative to the value; ask for an absolute improvement.
            "ftol": tolerance / max(abs(scale), 1.0),
            "gtol": 1e-9,
            "maxcor": 20,
            "maxls": 40,
        }
        try:
            outcome = self._scipy.minimize(
                self._watched, self.variables, step_callback=after, options=options
            )
        except tf.errors.InvalidArgumentError as error:
            # A trial step left the region where matrices factorise.
            self._assign(last)
            reason = str(error.message).strip().splitlines()[0]
            return False, f"stopped at the last good step, since the next one failed: {reason}"
        except BaseException:  # an interruption may come in the middle of a trial step
            self._assign(last)
            raise
        if outcome.status == 1:
            return False, f"iteration limit of {max_iterations} reached"
        return bool(outcome.success), str(outcome.message)

    def _assign(self, values: Sequence[Any]) -> None:
        for variable, value in zip(self.variables, values):
            variable.assign(value)
