"""Minibatch training under a strategy, from a checkpoint where there is one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from .batches import Data, batches_of
from .epochs import Epochs
from .metrics import Metrics
from .result import Callback, DistributedFit, Model
from .run import Run
from .steps import Steps
from .trainee import LearningRate, Trainee
from .validation import Validation
from .workers import workers_of


def fit_minibatches(
    build: Callable[[], Model],
    data: Data,
    *,
    strategy: tf.distribute.Strategy | None = None,
    batch_size: int,
    num_steps: int,
    learning_rate: LearningRate = None,
    seed: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
    save_every: int = 100,
    callback: Callback | None = None,
    timeout: float = 300.0,
    validation_data: Any = None,
    steps_per_epoch: int | None = None,
    steps_per_call: int | None = None,
) -> DistributedFit:
    """
    See :func:`gpflow_gam.distribute.fit`.
    """
    start = time.perf_counter()
    _check_options(build, batch_size, num_steps, learning_rate, save_every)
    _check_epochs(steps_per_epoch, steps_per_call)
    workers = workers_of(strategy, timeout)
    folder = None if checkpoint is None else Path(checkpoint)
    batches = batches_of(data, batch_size, workers.replicas, workers.local, seed)
    validation = None
    if validation_data is not None:
        validation = Validation(validation_data, batch_size, workers)
    with workers.scope():
        with workers.watched("It was lost before the first step; start all workers again."):
            trainee = Trainee(build(), batches, learning_rate, validation is not None)
            if workers.several:
                _check_one_type(trainee)
            epochs = Epochs(
                steps_per_epoch or batches.steps_per_epoch,
                trainee.model,
                Metrics(trainee.model, workers) if trainee.has_metrics or validation else None,
                validation,
            )
            run = Run(trainee, workers, batches, epochs, folder, seed)
            run.agree()
            resumed = run.resume(num_steps)
        take = Steps(trainee, workers, batches.structure, _most(steps_per_call, trainee))
        while run.step < num_steps:
            ends = [num_steps - run.step, take.most, epochs.left(run.step)]
            if folder is not None:
                ends.append(save_every - run.step % save_every)
            number = min(end for end in ends if end is not None)
            shares = [batches.shares(run.step + i, workers.local) for i in range(number)]
            with workers.watched(run.remedy):
                try:
                    told = take(shares)
                except tf.errors.InvalidArgumentError as error:
                    run.broken(run.step + 1, _essence(error), error, run.step + number)
                run.note(told)
                epoch = epochs.close(run.history)
                if run.step % save_every == 0:
                    run.save()
                seconds = time.perf_counter() - start
                asked = callback is not None and run.ask(callback, seconds, epoch)
                if asked or run.step == num_steps:
                    run.save()
                    workers.count(True)  # the last checkpoint is there before anyone returns
                    break
        trainee.finish()
    return DistributedFit(
        trainee.model,
        np.array(run.history),
        epochs.reports(run.history),
        resumed,
        time.perf_counter() - start,
    )


def _most(steps_per_call: int | None, trainee: Trainee) -> int:
    if steps_per_call is None:
        return int(getattr(trainee.model, "steps_per_execution", None) or 1)
    return steps_per_call


def _essence(error: tf.errors.OpError) -> str:
    """TensorFlow's message without the stack that comes before it and the nodes after it."""
    lines = [line for line in str(error.message).splitlines() if line and not line[0].isspace()]
    return lines[-1] if lines else type(error).__name__


def _check_one_type(trainee: Trainee) -> None:
    """
    :raises ValueError: gradients are of several types, which TensorFlow would send as one vector.
    """
    types = sorted({tf.as_dtype(v.dtype).name for v in trainee.trained})
    if len(types) > 1:
        raise ValueError(
            f"build returned a model that trains numbers of {' and '.join(types)}, and several "
            "workers add up gradients of one type alone: give its layers one dtype, such as by "
            "keras.config.set_floatx('float64') before they are made."
        )


def _check_options(
    build: object,
    batch_size: int,
    num_steps: int,
    learning_rate: LearningRate,
    save_every: int,
) -> None:
    if not callable(build):
        raise TypeError(f"build must be a function that makes a model; got {type(build).__name__}.")
    for name, value in (
        ("batch_size", batch_size),
        ("num_steps", num_steps),
        ("save_every", save_every),
    ):
        if value < 1:
            raise ValueError(f"{name} must be at least 1; got {value}.")
    if isinstance(learning_rate, (int, float)) and not (
        np.isfinite(learning_rate) and learning_rate > 0.0
    ):
        raise ValueError(f"learning_rate must be positive; got {learning_rate}.")


def _check_epochs(steps_per_epoch: int | None, steps_per_call: int | None) -> None:
    for name, value in (("steps_per_epoch", steps_per_epoch), ("steps_per_call", steps_per_call)):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1; got {value}.")
