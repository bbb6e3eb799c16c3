"""Minimising a function of some variables by L-BFGS, followed by a tracker that keeps the best."""

from __future__ import annotations

import math
import numbers
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, InputData, RegressionData
from gpflow.kernels import MultioutputKernel
from gpflow.models import BayesianModel, GPModel
from scipy.optimize import minimize
from tensorflow.python.framework import ops
from tqdm.auto import tqdm

from ..bijectors import has_softplus
from ..errors import NotPositiveDefinite, check_choice, check_count, check_positive
from ..posteriors import AdditivePosterior


class TimeBudget:
    """
    A time limit whose clock starts when it is made.

    :param max_seconds: None for no limit.
    :param clock: gives the time in seconds.
    :raises ValueError: a limit that is not positive.
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
        """``value`` if it is a budget that runs already, or one that starts now."""
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
    """True if the objective had stopped improving."""

    message: str
    """Why it ended, in words."""

    elbo: float
    """The objective at the end: the ELBO, plus the log-densities of priors where there are any. NaN
    where hyperparameters were held and the fit had no need of it."""

    num_iterations: int
    """Number of iterations."""

    seconds: float
    """Duration of the fit, in seconds."""

    method: str
    """Method of the fit, in words."""

    history: AnyNDArray = field(repr=False, default_factory=lambda: np.zeros(0))
    """The objective after each iteration: under minibatches the mean of each epoch, then the steps
    on all data; under Newton steps the log posterior
    log p(y | f) + log p(f), without its constant."""

    sweeps: float | None = None
    """Passes over the kernel's entries, where kernel matrices are not held."""

    steps: list[dict[str, Any]] = field(repr=False, default_factory=list)
    """Newton steps, a dict each: the fields of :class:`~gpflow_gam.newton.solvers.StepReport`,
    ``seconds`` and ``round``; ``pandas.DataFrame(result.steps)`` is a
    table."""

    discretisation: float | None = None
    """Noise that rounding inputs to bins adds, as a share of the noise, measured at a thousand
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
    """True if the time budget, the callback or Ctrl-C requested the end."""


_REDRAW = 0.1  # seconds between two looks of the bar within a pass


OnInterrupt = Literal["raise", "keep"]
"""Choices for a fit that Ctrl-C interrupts: see :func:`~gpflow_gam.optimizers.fit`."""
INTERRUPTED = "interrupted; what was best so far is kept"


class StopFit(Exception):
    """Ends a fit from inside an optimiser; its message says why."""


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
        max_iterations: int = 1000,
        tolerance: float = 1e-2,
    ) -> None:
        check_choice("on_interrupt", on_interrupt, get_args(OnInterrupt))
        self.max_iterations, self.tolerance = max_iterations, tolerance
        self.variables = list(variables)
        self.method, self._objective = method, objective
        self.budget = TimeBudget.of(max_seconds)
        self.on_interrupt = on_interrupt
        self.callback = callback
        self.history: list[float] = []
        self.stopped: bool | str | None = False
        """Last answer of the callback: true, or a text that says why, if it requests the end."""
        self.ended = False  # whether time, the callback or Ctrl-C has ended the fit
        self._best: tuple[float, list[AnyNDArray]] = (-np.inf, [])
        self._bar = progress_bar(method, "it", progress)
        self._passes, self._shown, self._drawn = 0, "", 0.0

    def __enter__(self) -> Tracker:
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.close()

    def record(self, elbo: float) -> None:
        """Record one iteration's objective; raises StopFit where the fit has to end."""
        self.append(elbo, f"{self._objective} {elbo:.4f}")
        self.check()

    def append(
        self, objective: float, shown: str, posterior: Callable[[], AdditivePosterior] | None = None
    ) -> None:
        """Record one iteration's objective, whether or not the fit has to end."""
        self.history.append(objective)
        if objective > self._best[0]:
            self._best = (objective, [v.numpy() for v in self.variables])
        self._shown = shown
        self._bar.set_postfix_str(shown, refresh=False)
        self._bar.update()
        if self.callback is not None:
            progress = FitProgress(len(self.history), objective, self.budget.seconds, posterior)
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

    def why(self, error: BaseException) -> str:
        """Why a fit that has something to keep has ended: by a StopFit, or by Ctrl-C if kept."""
        if isinstance(error, StopFit):
            return str(error)
        if self.on_interrupt != "keep":
            raise error
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
            self.budget.seconds,
            self.method,
            history,
            # also where a callback asked at what was the last iteration
            ended=self.ended or bool(self.stopped),
            **details,
        )


@dataclass(frozen=True)
class Options:
    """Options of fits, checked."""

    max_iterations: int = 1000
    tolerance: float = 1e-2
    batch_size: int | None = None
    learning_rate: float = 0.01
    rho: float = 0.1
    patience: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("max_iterations", self.max_iterations)
        check_count("batch_size", self.batch_size)
        check_positive("learning_rate", self.learning_rate)
        if not 0.0 < self.rho <= 1.0:
            raise ValueError(f"rho must be in (0, 1]; got {self.rho}.")
        check_positive("tolerance", self.tolerance)
        check_count("patience", self.patience, 2)  # to tell a trend


_LEG = 8  # iterations of L-BFGS after which it begins anew in other coordinates
_FIRST_LEG = 3  # the same of the first, which leaves a start that may be far from all that follows
_APPROXIMATE = 11  # iterations before second derivatives, which cost as much as ten, pay
_STEPS = 60  # iterations of a search for another optimum
_FARTHEST = 2.0  # longest first step of a search, in any (logarithmic) hyperparameter

_STUCK = "the line search found nothing lower"

Loss = Callable[[AnyNDArray], tuple[float, AnyNDArray]]


class _BackAgain(Exception):
    """A search for another optimum is on its way back to the one that is known."""


def descend(
    loss: Loss,
    start: AnyNDArray,
    steps: int,
    tolerance: float,
    tracker: Tracker | None,
    record: Callable[[AnyNDArray, float], None] | None = None,
    best_seen: Callable[[AnyNDArray], None] | None = None,
    metric: Callable[[AnyNDArray], AnyNDArray | None] = lambda _: None,
    anew: Callable[[AnyNDArray], None] = lambda _: None,
    hessian: Callable[[AnyNDArray], AnyNDArray | None] | None = None,
    near: bool = False,
) -> tuple[AnyNDArray, bool, str]:
    """L-BFGS from ``start``, in coordinates in which its first step is Newton's by ``metric``."""
    # The metric approximates second derivatives; with a Hessian these decide where it ends, and
    # take over after some iterations, or at once if the optimum is near.
    # It begins anew every few iterations, as curvature changes where variances go to zero. A trial
    # step that cannot be evaluated counts as one too far: it is given a value as far above the best
    # one as the slope there promised to go below, so that the line search tries a ninth of the step
    # (Moré & Thuente 1994, case 1). Where the slope is next to nothing SciPy may settle there,
    # which is no iteration. record takes the best point and value after each one.
    best: tuple[float, AnyNDArray, AnyNDArray] | None = None
    failed = False

    def guarded(x: AnyNDArray) -> tuple[float, AnyNDArray]:
        nonlocal best, failed
        if tracker is not None:
            tracker.check()
        try:
            value, gradient = loss(x)
        except NotPositiveDefinite:
            if best is None:
                raise
            value, gradient = np.inf, np.zeros_like(x)
        failed = not (np.isfinite(value) and np.all(np.isfinite(gradient)))
        if failed:
            if best is None:
                raise NotPositiveDefinite
            return best[0] + abs(float(best[2] @ (x - best[1]))), np.zeros_like(x)
        if best is None or value < best[0]:
            best = value, x.copy(), gradient
            if best_seen is not None:
                best_seen(best[1])
        return value, gradient

    guarded(start)
    assert best is not None
    last, taken, gained = best[0], 0, 0.0

    def after(_: AnyNDArray) -> None:
        nonlocal last, taken, gained
        assert best is not None
        if failed:
            raise StopIteration
        taken += 1
        if record is not None:
            record(best[1], best[0])
        # not SciPy's own test, which is relative to a value that depends on the response's unit
        gained, last = last - best[0], best[0]
        if gained < 1e-2 * tolerance:
            raise StopIteration

    # one that goes on where another was left does as that would have done
    before = len(tracker.history) if record is not None and tracker is not None else 0
    leg = _LEG if before else _FIRST_LEG
    final, checked = near or record is not None, record is None
    while taken < steps:
        value, origin, gradient = best
        anew(origin)
        near = near or before + taken >= _APPROXIMATE
        second = hessian(origin) if near and hessian is not None else None
        if second is not None and (gain := promised(gradient, second)) < 1e-2 * tolerance:
            # which leaves the square of that, so that equal models end at equal places
            if final:
                guarded(origin + newton_step(gradient, second))
            return best[1], True, f"a Newton step promises {gain:.2g} nats"
        curvature = metric(origin) if second is None else _absolute(second)
        axes = _axes(gradient, curvature)

        def along(
            z: AnyNDArray,
            origin: AnyNDArray = origin,
            axes: AnyNDArray | None = axes,
            first: tuple[float, AnyNDArray] = (value, gradient),
        ) -> tuple[float, AnyNDArray]:
            step = z if axes is None else axes @ z
            value, gradient = guarded(origin + step) if z.any() else first
            return value, gradient if axes is None else axes.T @ gradient

        outcome = minimize(
            along,
            np.zeros_like(start),
            jac=True,
            method="L-BFGS-B",
            callback=after,
            options={
                "maxiter": steps - taken if curvature is None else min(leg, steps - taken),
                "maxfun": 20 * steps,
                "ftol": 0.0,
                "gtol": 1e-9,
                "maxcor": 20,
                "maxls": 40,
            },
        )
        leg = _LEG
        if outcome.status != 1:
            if hessian is None or (near and (checked or outcome.status == 2)):
                small = f"the last iteration gained {gained:.2g} nats"
                return best[1], True, _STUCK if outcome.status == 2 else small
            checked, near = checked or near, True
    return best[1], False, f"iteration limit of {steps} reached"


def converge(
    loss: Loss,
    x: AnyNDArray,
    value: float,
    step: float,
    tracker: Tracker,
    metric: Callable[[AnyNDArray], AnyNDArray | None],
    anew: Callable[[AnyNDArray, float], None] = lambda *_: None,
    elsewhere: Callable[[AnyNDArray], AnyNDArray | None] = lambda _: None,
    hessian: Callable[[AnyNDArray], AnyNDArray | None] | None = None,
) -> tuple[AnyNDArray, bool, str]:
    """Runs of :func:`descend` from ``x``, where the loss is ``value``, until one gains nothing."""
    # Each ends with an iteration that gains less than a hundredth of step; from a better
    # optimum elsewhere they go on. What ends them early leaves the best point so far.
    best = x

    def set_best(x: AnyNDArray) -> None:
        nonlocal best
        best = x

    try:
        while True:
            left = tracker.max_iterations - len(tracker.history)
            if left <= 0:
                return x, False, f"iteration limit of {tracker.max_iterations} reached"
            x, converged, message = descend(
                loss,
                x,
                left,
                step,
                tracker,
                lambda _, value: tracker.record(-value),
                set_best,
                metric,
                lambda x, value=value: anew(x, value),  # type: ignore[misc]
                hessian,
            )
            now = loss(x)[0]
            gain, value = value - now, now
            if not converged:
                return x, False, message
            if gain < tracker.tolerance or hessian is not None:
                other = elsewhere(x)
                if other is None:
                    if hessian is None:
                        message = f"the last run of L-BFGS gained {gain:.2g} nats"
                    return x, True, message
                x = best = other
                value = loss(x)[0]
    except (StopFit, KeyboardInterrupt) as error:
        return best, False, tracker.why(error)


def other_optimum(
    loss: Loss,
    result: AnyNDArray,
    trials: Sequence[tuple[int, float, float]],
    tolerance: float,
    tracker: Tracker | None,
    metric: Callable[[AnyNDArray], AnyNDArray | None],
    alone: Callable[[AnyNDArray], Callable[[int], Loss | None]],
) -> AnyNDArray | None:
    """A better optimum than ``result`` [K]; None where none is seen."""
    # Short lengthscales may be an optimum (noise taken for quick changes), long ones, too (between
    # uneven inducing inputs), and a variance near zero feels no slope. Each trial sets one
    # coordinate: where that is not much worse a search begins there, and ends where it comes back.
    # Most come back by what one component costs alone, which is cheap.
    if not trials:
        return None
    value, best = loss(result)[0], None
    one = alone(result)
    for k, point, slack in trials:
        start = (result if best is None else best).copy()
        own = one(k) or loss
        try:
            limit = own(start)[0] + slack
        except NotPositiveDefinite:  # rounding has left nothing of what it costs alone
            own, limit = loss, value + slack
        start[k] = point

        def seen(x: AnyNDArray, k: int = k, point: float = point) -> None:
            if abs(x[k] - result[k]) < 0.5 * abs(point - result[k]):
                raise _BackAgain

        try:
            if own(start)[0] > limit:
                continue
            if own is not loss:
                start, _, _ = descend(own, start, _STEPS, tolerance, tracker, None, seen)
            there, _, _ = descend(loss, start, _STEPS, tolerance, tracker, None, seen, metric)
        except (NotPositiveDefinite, _BackAgain):
            continue
        now = loss(there)[0]
        if now < value - tolerance:
            value, best, one = now, there, alone(there)
    return best


_LEAST_CURVATURE = 1e-2  # of a direction of which neither data nor priors say anything


def _absolute(hessian: AnyNDArray) -> AnyNDArray:
    """Second derivatives [K, K], positive definite: downhill also where they are negative."""
    values, vectors = np.linalg.eigh(hessian)
    return (vectors * np.maximum(np.abs(values), _LEAST_CURVATURE)) @ vectors.T


def newton_step(gradient: AnyNDArray, hessian: AnyNDArray) -> AnyNDArray:
    """A Newton step downhill, [K]."""
    return -np.linalg.solve(_absolute(hessian), gradient)


def promised(gradient: AnyNDArray, hessian: AnyNDArray) -> float:
    """The gain that a Newton step promises."""
    return -0.5 * float(gradient @ newton_step(gradient, hessian))


def _axes(gradient: AnyNDArray, metric: AnyNDArray | None) -> AnyNDArray | None:
    """Directions [K, K], as columns, in which a unit step, as SciPy's first is, is Newton's."""
    if metric is None:
        return None
    try:
        root = np.linalg.cholesky(metric)
    except np.linalg.LinAlgError:  # rounding has left no direction in which it says anything
        return None
    axes: AnyNDArray = np.linalg.solve(root.T, np.eye(len(gradient)))
    slope = axes.T @ gradient
    length = float(np.linalg.norm(slope))
    if not np.isfinite(length) or length == 0.0:
        return axes
    longest = float(np.max(np.abs(axes @ slope)))
    return axes * length * min(1.0, _FARTHEST / longest)


_STEP_OF_GRADIENTS = 1e-3  # of differences of gradients


def differenced(
    gradient: Callable[[AnyNDArray], AnyNDArray], at: AnyNDArray, which: Sequence[int] | None = None
) -> AnyNDArray:
    """Second derivatives by one-sided differences of first ones: half of what central ones cost."""
    places = range(len(at)) if which is None else which
    if not len(places):
        return np.zeros((0, len(at)))
    here, steps = gradient(at), _STEP_OF_GRADIENTS * np.eye(len(at))
    rows = np.stack([(gradient(at + steps[i]) - here) / _STEP_OF_GRADIENTS for i in places])
    return rows if which is not None else 0.5 * (rows + rows.T)


_ATTRIBUTE = "_gradient_op_type"


def forget_gradients(graph: tf.Graph) -> None:
    """Let go of a graph that holds its own gradients."""
    # In a graph tf.custom_gradient (as of TFP's softplus) puts rules into a list of the whole
    # process, for ever, and with them all that they refer to. A graph that has its gradients needs
    # them no more.
    rules = getattr(ops.gradient_registry, "_registry", None)
    if rules is None:  # of another TensorFlow: memory is all that is lost
        return
    for operation in graph.get_operations():
        if operation.type == "IdentityN" and _ATTRIBUTE in operation.node_def.attr:
            rules.pop(operation.node_def.attr[_ATTRIBUTE].s.decode(), None)


class Traced:
    """A function compiled once for each combination of its arguments' shapes."""

    # TensorFlow warns of retracing a line of code when several models are fitted: not of concrete
    # functions, as here. After tf.config.run_functions_eagerly(True) nothing is compiled.
    # Nobody may differentiate it from outside: see forget_gradients.

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = tf.function(function, autograph=False)
        self._concrete: dict[tuple[Any, ...], Callable[..., Any]] = {}

    def __call__(self, *arguments: tf.Tensor) -> Any:
        if tf.config.functions_run_eagerly():
            return self._function(*arguments)
        key = tuple(map(tf.type_spec_from_value, arguments))
        if key not in self._concrete:
            self._concrete[key] = concrete = self._function.get_concrete_function(*arguments)
            forget_gradients(concrete.graph)
        return self._concrete[key](*arguments)


_HIGHEST = 80.0  # largest logarithm of a parameter, which single precision can hold
_STEP = 1e-4  # how small, against what still counts in all, a single step has to be to end a run


class LBFGS:
    """Minimises a loss of variables, compiled, several times if need be."""

    # Softplus is linear where it is large: a variance of 100 feels a hundredth of the slope in its
    # logarithm. Coordinates x of such parameters of a model are logarithmic there: u = exp(x - 1),
    # x > 1. Those of its mean function, u = unit x, do not depend on units of the data.

    def __init__(
        self,
        loss: Callable[[], tf.Tensor],
        variables: Sequence[tf.Variable],
        model: BayesianModel | None = None,
        X: InputData | None = None,
    ) -> None:
        self.variables, self._model, self._X = list(variables), model, X
        parameters = () if model is None else model.trainable_parameters
        soft = {id(p.unconstrained_variable) for p in parameters if has_softplus(p)}
        sizes = [int(tf.size(v)) for v in self.variables]
        self._ends = np.cumsum(sizes)
        self._soft = np.repeat([id(v) in soft for v in self.variables], sizes)
        self._unit = np.ones(len(self._soft))

        @Traced
        def evaluate() -> tuple[tf.Tensor, list[tf.Tensor]]:
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(self.variables)
                value = loss()
            gradients = tape.gradient(value, self.variables, unconnected_gradients="zero")
            return value, [tf.convert_to_tensor(g) for g in gradients]

        self._evaluate = evaluate

    def _unconstrained(self) -> AnyNDArray:
        return np.concatenate([np.ravel(v.numpy()) for v in self.variables]).astype(np.float64)

    def measure(self) -> None:
        """Take the units of a mean function's parameters from the present prior."""
        if isinstance(self._model, GPModel) and self._X is not None:
            units = _mean_units(self._model, self._X)
            every = [units.get(id(v), np.ones(v.shape)) for v in self.variables]
            self._unit = np.where(self._soft, 1.0, np.concatenate([np.ravel(u) for u in every]))

    def get(self) -> AnyNDArray:
        u = self._unconstrained()
        return np.where(self._soft & (u > 1.0), 1.0 + np.log(np.maximum(u, 1.0)), u / self._unit)

    def set(self, x: AnyNDArray) -> None:
        far = np.exp(np.clip(x - 1.0, 0.0, _HIGHEST))
        u = np.where(self._soft & (x > 1.0), far, self._unit * x)
        for variable, part in zip(self.variables, np.split(u, self._ends[:-1])):
            variable.assign(part.reshape(variable.shape).astype(variable.dtype.as_numpy_dtype))

    def here(self) -> tuple[float, AnyNDArray]:
        """Value and gradient where the variables are."""
        value, gradients = self._evaluate()
        flat = np.concatenate([np.ravel(g.numpy()) for g in gradients]).astype(np.float64)
        stretch = np.where(self._soft, np.maximum(self._unconstrained(), 1.0), self._unit)
        return float(value), stretch * flat

    def __call__(self, x: AnyNDArray) -> tuple[float, AnyNDArray]:
        """Value and gradient at x; NotPositiveDefinite where there are none."""
        self.set(x)
        try:
            value, gradient = self.here()
        except tf.errors.InvalidArgumentError:
            raise NotPositiveDefinite from None
        if not np.isfinite(value):
            raise NotPositiveDefinite
        return value, gradient

    def converge(
        self, tracker: Tracker, *, max_iterations: int, tolerance: float
    ) -> tuple[bool, str]:
        """Runs, each with a fresh memory of curvature, until one gains less than ``tolerance``."""
        # A single small step is no sign of convergence (the first follows the raw gradient), so
        # that runs go on until steps are tiny. Nor is a line search that finds nothing lower, by a
        # bad memory or rounding: another run tells, and the slope, which has to promise less than
        # tolerance to a unit step.
        tracker.check()
        value, begun = self.here()[0], len(tracker.history)
        while True:
            left = max_iterations - (len(tracker.history) - begun)
            if left <= 0:
                return False, f"iteration limit of {max_iterations} reached"
            converged, message, slope = self.run(
                tracker, max_iterations=left, tolerance=_STEP * tolerance
            )
            now = self.here()[0]
            gain, value = value - now, now
            if gain < tolerance and (converged or (slope is not None and slope < tolerance)):
                return True, f"the last run of L-BFGS gained {gain:.2g}"
            if not converged and (slope is None or gain < tolerance):
                return False, message

    def run(
        self, tracker: Tracker, *, max_iterations: int, tolerance: float
    ) -> tuple[bool, str, float | None]:
        """One run, to an iteration that gains less; the slope where a line search has failed."""
        self.measure()
        last = self.get()

        def record(x: AnyNDArray, value: float) -> None:
            nonlocal last
            last = x
            self.set(x)
            tracker.record(-value)

        try:
            last, converged, message = descend(
                self, last, max_iterations, 100.0 * tolerance, tracker, record
            )
        except NotPositiveDefinite:
            self.set(last)
            raise tf.errors.InvalidArgumentError(
                None,
                None,
                f"the loss is {self.here()[0]} where the fit starts, or its gradient is not "
                "finite.",
            ) from None
        finally:  # an error may come in the middle of a trial step
            self.set(last)
        if message != _STUCK:
            return converged, message, None
        return False, message, float(np.linalg.norm(self.here()[1]))


_PROBES, _PROBED = 16, 1000  # random vectors and number of rows that units are measured with


def _mean_units(model: GPModel, X: InputData) -> dict[int, AnyNDArray]:
    """What moves a mean function by one prior standard deviation, by the ids of its variables."""
    variables = model.mean_function.trainable_variables
    if not variables:
        return {}
    X = np.asarray(X)  # of variables, which may be of any length
    X = tf.constant(X[:: -(-len(X) // _PROBED)])
    with tf.GradientTape(persistent=True) as tape:
        mean = model.mean_function(X)
    # root mean squares of columns of the Jacobian J, as E (J' r)^2 is the diagonal of J' J for
    # random signs r (Hutchinson 1989)
    rng, squares = np.random.default_rng(0), [np.zeros(v.shape) for v in variables]
    for _ in range(_PROBES):
        signs = tf.constant(rng.choice([-1.0, 1.0], size=mean.shape), mean.dtype)
        slopes = tape.gradient(mean, variables, signs, unconnected_gradients="zero")
        for total, slope in zip(squares, slopes):
            total += slope.numpy() ** 2 / (_PROBES * X.shape[0])
    several = isinstance(model.kernel, MultioutputKernel)
    prior = model.kernel(X, full_cov=False, **({"full_output_cov": False} if several else {}))
    size = float(tf.reduce_mean(prior)) ** 0.5
    return {
        id(v): np.where((s > 0.0) & (size > 0.0), size / np.sqrt(np.maximum(s, 1e-300)), 1.0)
        for v, s in zip(variables, squares)
    }


@dataclass
class Settling:
    """Whether rounds of L-BFGS in turn with something else have come to their end."""

    # What is left is that of a geometric series of gains. And a first small step, along a gradient,
    # is no sign that a round has nothing to gain: once one settles, steps have to be smaller, and
    # the next has to agree.

    gain: float = 0.0  # of the last round
    settled: bool = False  # whether that left little
    fine: bool = False

    def step(self, tolerance: float) -> float:
        """The gain of an iteration that ends a round's run."""
        return (_STEP if self.fine else 1e-2) * tolerance

    def after(self, gain: float, tolerance: float) -> bool:
        """True if they end with a round that gains so much."""
        series = gain * gain < tolerance * (self.gain - gain)
        settled = abs(gain) < (tolerance if series else 1e-2 * tolerance)
        ends, self.settled, self.gain = settled and self.settled, settled, gain
        self.fine = self.fine or settled or not gain >= 0.0
        return ends


def fit_lbfgs(
    model: BayesianModel, data: RegressionData | None, tracker: Tracker, max_iterations: int
) -> FitResult:
    """Minimise the training loss of a model; ended early, it stays at the last iterate."""
    arguments = () if data is None else (data,)
    closure = model.training_loss_closure(*arguments, compile=False)
    with tracker:
        if not model.trainable_variables:
            return tracker.result(True, "nothing is trainable", -float(closure()))
        try:
            held = getattr(model, "data", None) if data is None else data
            X = held[0] if isinstance(held, tuple) else None
            converged, message = LBFGS(closure, model.trainable_variables, model, X).converge(
                tracker, max_iterations=max_iterations, tolerance=tracker.tolerance
            )
        except (StopFit, KeyboardInterrupt) as error:
            converged, message = False, tracker.why(error)
        return tracker.result(converged, message, -float(model.training_loss(*arguments)))
