"""L-BFGS on a compiled loss, with progress and without dying of one bad step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, RegressionData
from gpflow.models import BayesianModel
from gpflow.optimizers import Scipy
from tensorflow.python.framework import ops

from .tracker import FitResult, StopFit, Tracker

_ATTRIBUTE = "_gradient_op_type"


def forget_traced(function: Any) -> None:
    """:func:`forget_gradients` of whatever has been traced of a function."""
    for concrete in getattr(function, "_list_all_concrete_functions", list)():
        forget_gradients(concrete.graph)


def forget_gradients(graph: tf.Graph) -> None:
    """
    Let go of a graph that holds its own gradients.

    In a graph, ``tf.custom_gradient`` puts the rule of each of its results into a list of the whole
    process, for ever, and with it all that the rule refers to: the graph, and what that was made
    from. TFP's softplus, through which GPflow reads positive parameters, is one. Rules are looked
    up while gradients are traced: of a graph that has them they are not needed any more.
    """
    rules = getattr(ops.gradient_registry, "_registry", None)
    if rules is None:  # of another TensorFlow: memory is all that is lost
        return
    for operation in graph.get_operations():
        if operation.type == "IdentityN" and _ATTRIBUTE in operation.node_def.attr:
            rules.pop(operation.node_def.attr[_ATTRIBUTE].s.decode(), None)


class Traced:
    """
    A function compiled at its first call, for arguments of the same shapes ever after.

    TensorFlow counts the traces of a line of code over the whole program, and warns of retracing
    when several models are fitted one after the other: it looks only at calls through
    ``tf.function`` itself, not at those of the concrete function that is called here. After
    ``tf.config.run_functions_eagerly(True)`` nothing is compiled, as nowhere in TensorFlow: for a
    look inside with a debugger, and quicker where a fit is so small that compiling is most of it.
    Nobody may differentiate it from outside: see :func:`forget_gradients`.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = tf.function(function, autograph=False)
        self._concrete: Callable[..., Any] | None = None

    def __call__(self, *arguments: tf.Tensor) -> Any:
        if tf.config.functions_run_eagerly():
            return self._function(*arguments)
        if self._concrete is None:
            concrete = self._function.get_concrete_function(*arguments)
            forget_gradients(concrete.graph)
            self._concrete = concrete
        return self._concrete(*arguments)


Closure = Callable[[], tf.Tensor]


_AS_WRITTEN = {"autograph": False}
"""How GPflow is to compile: it has no control flow over tensors that AutoGraph would look for."""
_STEP = 1e-4
"""How small, against what still counts in all, a single step has to be to end a run."""


class _Guarded(Scipy):
    """
    GPflow's SciPy optimiser, for which a trial step that cannot be evaluated is one too far.

    Far out on a line search a kernel matrix may not factorise, or a loss overflow. SciPy's line
    search takes neither an exception nor an infinity, so it is given a value as far above the
    best one as the slope there promised to go below: its interpolation then tries a ninth of the
    step (Moré & Thuente 1994, case 1). Where the slope is next to nothing, so is that penalty, and
    SciPy may settle on such a step: ``failed`` says whether the last one was.
    """

    failed = False
    tracker: Tracker | None = None
    """Is asked before each evaluation whether time is up."""

    def eval_func(
        self, *args: Any, **kwargs: Any
    ) -> Callable[[AnyNDArray], tuple[AnyNDArray, AnyNDArray]]:
        evaluate = super().eval_func(*args, **kwargs)
        best: tuple[float, AnyNDArray, AnyNDArray] | None = None  # loss, where, gradient

        def guarded(x: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
            nonlocal best
            if self.tracker is not None:
                self.tracker.check()
            try:
                loss, gradient = evaluate(x)
            except tf.errors.InvalidArgumentError:
                if best is None:
                    raise
                loss, gradient = np.array(np.inf), np.zeros_like(x)
            self.failed = not (np.isfinite(loss) and np.all(np.isfinite(gradient)))
            if self.failed:
                if best is None:
                    raise tf.errors.InvalidArgumentError(
                        None,
                        None,
                        f"the loss is {float(loss)} where the fit starts, or its "
                        "gradient is not finite.",
                    )
                promised = abs(float(best[2] @ (x - best[1])))
                return np.array(best[0] + promised), np.zeros_like(x)
            if best is None or loss < best[0]:
                best = float(loss), np.array(x), gradient
            return loss, gradient

        return guarded


class Ended(NamedTuple):
    """The end of a run of L-BFGS."""

    converged: bool
    message: str
    slope: float | None = None
    """Where a line search found nothing lower: the norm of the gradient there."""


class LBFGS:
    """
    Minimises one loss over some variables, several times if need be.

    Around GPflow's SciPy optimiser, whose compiled function is used again from run to run.
    """

    def __init__(self, loss: Closure, variables: Sequence[tf.Variable]) -> None:
        self.variables = list(variables)
        self._seen = tf.Variable(0.0, dtype=tf.float64, trainable=False)
        self._scipy = _Guarded()
        self._loss = loss

    def _watch(self) -> tf.Tensor:
        value = self._loss()
        self._seen.assign(tf.cast(value, tf.float64))  # for the history: SciPy passes no value
        return value

    def value(self) -> float:
        """The loss where the variables are: of the function that SciPy is given, compiled once."""
        evaluate = Scipy.eval_func(self._scipy, self._watch, self.variables, _AS_WRITTEN)
        here = np.asarray(self._scipy.initial_parameters(self.variables), dtype=np.float64)
        result = float(evaluate(here)[0])
        self._let_go()
        return result

    def _let_go(self) -> None:
        """Forget gradient rules that compiled functions need no more."""
        for compiled in self._scipy.compile_cache.values():
            forget_traced(compiled)

    def converge(
        self, tracker: Tracker, *, max_iterations: int, tolerance: float
    ) -> tuple[bool, str]:
        """
        Runs, each with a fresh memory of curvature, until one gains less than ``tolerance``.

        A single small step is no sign of convergence: the first one follows the raw gradient, and
        later ones may have a bad memory. So a run goes on until its steps are tiny.

        A run may also end because its line search finds nothing lower, which a bad memory may be
        guilty of, or the rounding of the loss. Another one tells, and it is the optimum where that
        gains less than ``tolerance`` and the slope promises no more to a step of length one.
        """
        tracker.check()
        value, begun = self.value(), len(tracker.history)
        while True:
            left = max_iterations - (len(tracker.history) - begun)
            if left <= 0:
                return False, f"iteration limit of {max_iterations} reached"
            ended = self.run(tracker, max_iterations=left, tolerance=_STEP * tolerance)
            now = self.value()
            gain, value = value - now, now
            level = ended.converged or (ended.slope is not None and ended.slope < tolerance)
            if gain < tolerance and level:
                return True, f"the last run of L-BFGS gained {gain:.2g}"
            if not ended.converged and (ended.slope is None or gain < tolerance):
                return False, ended.message

    def run(self, tracker: Tracker, *, max_iterations: int, tolerance: float) -> Ended:
        """One run."""
        last: list[Any] = [v.numpy() for v in self.variables]
        scale = tracker.best if tracker.history else self.value()

        def after(step: int, moved: Sequence[tf.Variable], values: Sequence[Any]) -> None:
            nonlocal last
            if self._scipy.failed:
                return  # SciPy has settled on a step that cannot be evaluated
            last = [tf.identity(v).numpy() for v in values]
            self._assign(last)
            tracker.record(-float(self._seen.numpy()))

        options = {
            "maxiter": max_iterations,
            "maxfun": 20 * max_iterations,
            # SciPy's test is relative to the value; ask for an absolute improvement.
            "ftol": tolerance / max(abs(scale), 1.0),
            "gtol": 1e-9,
            "maxcor": 20,
            "maxls": 40,
        }
        self._scipy.tracker = tracker
        try:
            outcome = self._scipy.minimize(
                self._watch,
                self.variables,
                step_callback=after,
                tf_fun_args=_AS_WRITTEN,
                options=options,
            )
        except BaseException:  # it may come in the middle of a trial step
            self._assign(last)
            raise
        finally:
            self._let_go()
        if self._scipy.failed:
            self._assign(last)
        if outcome.status == 1:
            return Ended(False, f"iteration limit of {max_iterations} reached")
        slope = None if outcome.success else float(np.linalg.norm(outcome.jac))
        return Ended(bool(outcome.success), str(outcome.message), slope)

    def _assign(self, values: Sequence[Any]) -> None:
        for variable, value in zip(self.variables, values):
            variable.assign(value)


def fit_lbfgs(
    model: BayesianModel,
    data: RegressionData | None,
    tracker: Tracker,
    max_iterations: int,
    tolerance: float,
) -> FitResult:
    """Minimise the training loss of a model; ended early, it stays at the last iterate."""
    arguments = () if data is None else (data,)
    closure = model.training_loss_closure(*arguments, compile=False)
    with tracker:
        if not model.trainable_variables:
            return tracker.result(True, "nothing is trainable", -float(closure()))
        try:
            converged, message = LBFGS(closure, model.trainable_variables).converge(
                tracker, max_iterations=max_iterations, tolerance=tolerance
            )
        except StopFit as stop:
            converged, message = stop.converged, stop.message
        except KeyboardInterrupt:
            converged, message = False, tracker.interrupted()
        return tracker.result(converged, message, -float(model.training_loss(*arguments)))
