"""Minibatch training, or a GAM's fit to shares of the rows, on the workers of a strategy."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from ..communicator import Communicator
from ..gam import GAM
from ..gam.fits.specification import check_names
from ..optimizers import TimeBudget
from ..optimizers.minimizers import (
    INTERRUPTED,
    Callback,
    FitProgress,
    OnInterrupt,
    check_on_interrupt,
)
from .training import FitState, LearningRate, Metrics, Model, TrainableModel, Validation
from .workers import Data, Workers, batches_of, workers_of

_REMEDY = "Start all workers again: the fit of a GAM has no checkpoint, and begins anew."


def fit_gam(
    gam: GAM,
    data: Any,
    *,
    y: Any = None,
    strategy: object = None,
    timeout: float = 300.0,
    max_seconds: float | None = None,
    callback: Callback | None = None,
    progress: bool | None = None,
    **options: Any,
) -> GAM:
    """Fit a GAM to the rows of all workers; see :func:`gpflow_gam.distribute.fit`."""
    workers = workers_of(strategy, timeout)
    # what can be read by rows is data, whatever else it can do
    is_function = callable(data) and not hasattr(data, "__iter__")

    def share() -> Any:
        _check(gam, max_seconds, options)  # where the others are told of errors
        return data(workers.context()) if is_function else data

    if not workers.several:
        asked = (("max_seconds", max_seconds), ("callback", callback), ("progress", progress))
        given: dict[str, Any] = {name: value for name, value in asked if value is not None}
        return gam.fit(share(), y, **given, **options)
    communicator = workers.communicator
    on_interrupt = options.get("on_interrupt", "raise")
    with (
        workers.watched(_REMEDY),
        StopSync(communicator, callback, max_seconds, on_interrupt) as stop,
    ):
        shown = progress if communicator.first else False
        return gam.fit_share(
            share, y, communicator=communicator, callback=stop, progress=shown, **options
        )


def _check(gam: GAM, max_seconds: float | None, options: Mapping[str, Any]) -> None:
    of_both = {"strategy", "seed", "callback", "timeout"}
    for name in (f.name for f in dataclasses.fields(_Options) if f.name not in of_both):
        if name in options:
            raise ValueError(
                f"{name} is of minibatch training, whose first argument is a function that builds "
                "a model; a GAM is fitted to all rows at once: leave the argument out."
            )
    if gam.is_fitted:
        raise ValueError("build: the GAM is fitted already; pass one that is not.")
    check_names(options)
    check_on_interrupt(options.get("on_interrupt", "raise"))
    TimeBudget(max_seconds)  # raises where it is none


class StopSync:
    """
    A fit's callback on every worker, in which all decide together whether they go on.

    Budgets and Ctrl-C are asked about once an iteration: if one stopped in between others would
    wait.
    """

    def __init__(
        self,
        communicator: Communicator,
        callback: Callback | None,
        max_seconds: float | None,
        on_interrupt: OnInterrupt = "raise",
    ) -> None:
        self._keep = on_interrupt == "keep"
        self._communicator, self._callback = communicator, callback
        self._budget = TimeBudget(max_seconds)
        self._interrupted = False
        self._handler: Any = None

    def __call__(self, progress: FitProgress) -> bool | str:
        """True, or a reason, if the fit ends; RuntimeError if workers went apart or one failed."""
        failed: Exception | None = None
        asked = False
        try:
            asked = self._callback is not None and bool(self._callback(progress))
        except Exception as error:  # the others are told first
            failed = error
        elbos = np.zeros(self._communicator.number)
        elbos[self._communicator.place] = progress.elbo
        flags = np.array(
            [failed is not None, asked, self._budget.spent, self._interrupted], dtype=np.float64
        )
        counts, elbos = self._communicator.total([flags, elbos])
        if failed is not None:
            raise failed
        if counts[0]:
            raise RuntimeError("the callback of another worker failed; see its error.")
        if np.any(elbos != elbos[0]):
            raise RuntimeError(
                "the workers' processors or libraries round differently, so that their fits went "
                "apart; run the same versions on machines of one kind."
            )
        if counts[3] and not self._keep:
            raise KeyboardInterrupt
        reasons = ("stopped by the callback", "time budget used up", INTERRUPTED)
        return next((why for count, why in zip(counts[1:], reasons) if count), False)

    def __enter__(self) -> StopSync:
        if threading.current_thread() is threading.main_thread():
            self._handler = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *error: object) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._interrupted:  # pressed twice
            raise KeyboardInterrupt
        self._interrupted = True


@dataclass(frozen=True)
class StepProgress:
    """The state of a running fit, as callbacks see it."""

    step: int
    """Steps done, counted from 1 over all restarts."""

    loss: float
    """Loss of the step's batch, at the parameters before the step."""

    seconds: float
    """Time since this start of the fit."""

    model: Model = field(repr=False)
    """The model that is being fitted."""

    epoch: Mapping[str, AnyNDArray] = field(default_factory=dict)
    """
    The compiled metrics and validation losses of a Keras model (`loss`, `val_loss`, ...) where an
    epoch ended at this step; empty at other steps.
    """


StepCallback = Callable[[StepProgress], bool | None]
"""Called once a step on every worker; a true return value on any of them ends the fit on all."""


@dataclass(frozen=True)
class DistributedFit:
    """The result of a distributed fit. Equal on every worker, but for the time."""

    model: Model
    """The fitted model; its variables live on the replicas and are read as any others are."""

    history: AnyNDArray = field(repr=False, default_factory=lambda: np.zeros(0))
    """The loss of each step's batch, from the first step on, restarts or not [steps]."""

    epochs: Mapping[str, AnyNDArray] = field(repr=False, default_factory=dict)
    """
    As the history of Keras's ``fit``: of each epoch that has ended the mean `loss` of its steps,
    compiled metrics by their names, and the same of validation data as `val_loss` and so on
    [epochs]. Empty where the data do not say how long an epoch is and ``steps_per_epoch`` does not,
    either.
    """

    resumed_from: int = 0
    """The step of the checkpoint that this start went on from; 0 without one."""

    seconds: float = 0.0
    """Duration of this start, in seconds."""


def fit(build: Any, data: Any, **arguments: Any) -> Any:
    """
    Fit on one device, several devices of a host, or several hosts.

    **A GAM**, to rows of which every worker has a share: workers sum over their own rows, one
    reduction a pass adds the sums up, and hyperparameters are learnt on every worker from the same
    sums. All workers return the same fitted GAM: that of one process which reads the shares one
    after the other, up to rounding. ``gam.fitted.communication`` says what was sent. With a single
    worker this is :meth:`gpflow_gam.GAM.fit`.

    **A model** that a function builds: minibatch training.

    The updates are those of one device, whatever the number of replicas: batches follow from
    ``seed`` and the step, each replica takes an equal share, and gradients are summed so that the
    KL divergence and priors count once. (Layers that look at a batch as a whole, such as batch
    normalisation, or that draw random numbers, see shares, and are an exception.)

    With several hosts run the same program on each, with ``TF_CONFIG`` set. Where a worker dies
    the others end with a :class:`LostWorkerError`; start all of them again to go on.

    :param build: a GAM that is not fitted; or a function that makes the model, in the strategy's
        scope: an :class:`~gpflow_gam.models.AdditiveSVGP` with ``num_data``, or a compiled
        ``keras.Model``. One with a ``compute_loss`` of its own returns there, as for Keras's
        ``fit``, the replica's part of the loss: divided by the number of replicas; one with
        a ``train_step`` of its own is refused, which would not be called.
    :param data: of a GAM the rows of this worker, as :meth:`gpflow_gam.GAM.fit` takes them (a
        table, the paths of Parquet files, tables one after the other), or a function from a
        ``tf.distribute.InputContext`` to them. Of a model one of

        - X [N, ...] and Y [N, ...], all of them on every worker, shuffled anew each epoch. For a
          Keras model X and Y may be dicts, lists or tuples of arrays, and sample weights [N] may
          come third: the loss is the sum of weighted rows over their number, as in Keras's ``fit``;
        - a ``tf.data.Dataset`` of (x, y) or (x, y, sample_weight), which every worker reads in its
          own order over and over. One of batches whose size is unknown, as ``batch`` leaves it,
          is taken apart. To be resumed it must come in the same order each time it is read;
        - a function from a ``tf.distribute.InputContext`` to a ``tf.data.Dataset`` of batches of
          ``batch_size / replicas`` rows: each worker's own share of the data.
    :param strategy: a ``MirroredStrategy`` or ``MultiWorkerMirroredStrategy``; by default that of
        the scope, or one device.
    :param y: of a GAM, the response's name, or its values in the rows of this worker.
    :param options: of a GAM, those of :meth:`gpflow_gam.GAM.fit`. Where ``max_seconds``,
        ``callback`` or Ctrl-C ends the fit on one worker, it ends on all, after the same iteration.
    :param batch_size: rows of a step, over all replicas.
    :param num_steps: steps in all, restarts included.
    :param learning_rate: Adam's, or a function that returns a Keras optimizer; by default 0.01, or
        the optimizer that the Keras model was compiled with. It is no part of a checkpoint.
    :param seed: of the order of the rows of arrays.
    :param checkpoint: folder for the state of the fit; goes on from the one that is there. Only the
        chief's is read and written.
    :param save_every: steps from one to the next; the last step is saved too.
    :param callback: called on every worker after each step; a true return value ends the fit.
    :param timeout: seconds that a worker waits for the others in a step.
    :param validation_data: of a Keras model, rows on which loss and metrics are evaluated once an
        epoch: arrays (X, Y) or (X, Y, sample_weight), or a ``tf.data.Dataset`` of those, the same
        on all workers, which share its batches of ``batch_size`` rows out among themselves.
    :param steps_per_epoch: after how many steps the metrics of a Keras model are reported and begun
        anew, and validation data evaluated; by default the whole batches among the rows of
        ``data``, where their number can be known.
    :return: the GAM, fitted; or a :class:`DistributedFit`.
    :raises TypeError: arguments of the wrong kind.
    :raises ValueError: arguments that do not fit together, or a checkpoint of another fit.
    :raises FailedStepError: a step's loss or gradient is NaN or infinite, or cannot be computed;
        the last checkpoint from before stays.
    :raises LostWorkerError: another worker is gone.
    """
    if isinstance(build, GAM):
        return fit_gam(build, data, **arguments)
    if "y" in arguments:
        raise TypeError("y is of a GAM; of other models data hold both X and Y.")
    return _fit_model(build, data, _Options(**arguments))


@dataclass(frozen=True)
class _Options:
    """Options of minibatch training, checked."""

    batch_size: int
    num_steps: int
    strategy: tf.distribute.Strategy | None = None
    learning_rate: LearningRate = None
    seed: int = 0
    checkpoint: str | os.PathLike[str] | None = None
    save_every: int = 100
    callback: StepCallback | None = None
    timeout: float = 300.0
    validation_data: Any = None
    steps_per_epoch: int | None = None

    def __post_init__(self) -> None:
        for name in ("batch_size", "num_steps", "save_every", "steps_per_epoch"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1; got {value}.")
        rate = self.learning_rate
        if isinstance(rate, (int, float)) and not (np.isfinite(rate) and rate > 0.0):
            raise ValueError(f"learning_rate must be positive; got {rate}.")


def _fit_model(build: Callable[[], Model], data: Data, options: _Options) -> DistributedFit:
    start = time.perf_counter()
    if not callable(build):
        raise TypeError(f"build must be a function that makes a model; got {type(build).__name__}.")
    workers = workers_of(options.strategy, options.timeout)
    batches = batches_of(data, options.batch_size, workers.replicas, workers.local, options.seed)
    whole_batches = None if batches.num_data is None else batches.num_data // options.batch_size
    validation = None
    if options.validation_data is not None:
        validation = Validation(options.validation_data, options.batch_size, workers)
    with workers.scope():
        with workers.watched("It was lost before the first step; start all workers again."):
            trainable = TrainableModel(build(), batches, options.learning_rate, workers)
            _check_model(trainable, workers, validation)
            reports = trainable.has_metrics or validation is not None
            state = FitState(
                trainable,
                workers,
                batches,
                None if options.checkpoint is None else Path(options.checkpoint),
                options.seed,
                options.steps_per_epoch or whole_batches,
                Metrics(trainable.model, workers) if reports else None,
                validation,
            )
            state.check_workers()
            resumed = state.resume(options.num_steps)
        ended, together = False, workers.communicator
        while state.step < options.num_steps and not ended:
            shares = batches.shares(state.step, workers.local)
            with workers.watched(state.remedy):
                try:
                    loss, broken = trainable.step(shares)
                except tf.errors.InvalidArgumentError as error:
                    state.fail(state.step + 1, _essence(error), error)
                state.record(loss, broken)
                epoch = state.end_epoch()
                if state.step % options.save_every == 0:
                    state.save()
                if options.callback is not None:
                    seconds = time.perf_counter() - start
                    progress = StepProgress(state.step, loss, seconds, trainable.model, epoch)
                    ended = together.total([bool(options.callback(progress))])[0] > 0
                if ended or state.step == options.num_steps:
                    state.save()
                    together.total([1.0])  # the last checkpoint is there before anyone returns
        trainable.finish()
    seconds = time.perf_counter() - start
    history = np.array(state.history)
    return DistributedFit(trainable.model, history, state.epochs(), resumed, seconds)


def _essence(error: tf.errors.OpError) -> str:
    """TensorFlow's message without the stack that comes before it and the nodes after it."""
    lines = [line for line in str(error.message).splitlines() if line and not line[0].isspace()]
    return lines[-1] if lines else type(error).__name__


def _check_model(
    trainable: TrainableModel, workers: Workers, validation: Validation | None
) -> None:
    if validation is not None and not hasattr(trainable.model, "test_step"):
        raise ValueError(
            "validation_data are of a keras.Model; build returned an AdditiveSVGP, whose "
            "predictive density at other rows is model.predict_log_density((X, Y))."
        )
    # of several types TensorFlow would send gradients as one vector
    types = sorted({tf.as_dtype(v.dtype).name for v in trainable.trained})
    if workers.several and len(types) > 1:
        raise ValueError(
            f"build returned a model that trains numbers of {' and '.join(types)}, and several "
            "workers add up gradients of one type alone: give its layers one dtype, such as by "
            "keras.config.set_floatx('float64') before they are made."
        )
