"""Minibatch training under a strategy, from a checkpoint where there is one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf

from .batches import Data, Share, batches_of
from .result import Callback, DistributedFit, Model
from .run import Run, configuration
from .steps import compiled_step
from .trainee import LearningRate, Trainee
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
) -> DistributedFit:
    """
    See :func:`gpflow_gam.distribute.fit`.
    """
    start = time.perf_counter()
    _check_options(build, batch_size, num_steps, learning_rate, save_every)
    workers = workers_of(strategy, timeout)
    strategy = workers.strategy
    folder = None if checkpoint is None else Path(checkpoint)
    batches = batches_of(data, batch_size, workers.replicas, workers.local, seed)
    with workers.scope():
        with workers.watched("It was lost before the first step; start all workers again."):
            trainee = Trainee(build(), batches, learning_rate)
            if workers.several:
                _check_one_type(trainee)
            config = configuration(trainee, batches.digest(), batch_size, seed)
            run = Run(trainee, workers, folder, config)
            run.agree()
            resumed = run.resume(num_steps)
        take = compiled_step(trainee, workers, batches.structure)
        while run.step < num_steps:
            shares = batches.shares(run.step, workers.local)
            with workers.watched(run.remedy):
                try:
                    loss, finite = take(*_distributed(strategy, shares))
                except tf.errors.InvalidArgumentError as error:
                    run.broken(run.step + 1, _essence(error), error)
                run.note(float(loss), bool(finite))
                if run.step % save_every == 0:
                    run.save()
                seconds = time.perf_counter() - start
                asked = callback is not None and run.ask(callback, seconds)
                if asked or run.step == num_steps:
                    run.save()
                    workers.count(True)  # the last checkpoint is there before anyone returns
                    break
    return DistributedFit(
        trainee.model, np.array(run.history), resumed, time.perf_counter() - start
    )


def _essence(error: tf.errors.OpError) -> str:
    """TensorFlow's message without the stack that comes before it and the nodes after it."""
    lines = [line for line in str(error.message).splitlines() if line and not line[0].isspace()]
    return lines[-1] if lines else type(error).__name__


def _distributed(strategy: tf.distribute.Strategy, shares: dict[int, Share]) -> list[tf.Tensor]:
    tensors = {replica: tf.nest.flatten(share) for replica, share in shares.items()}
    return [
        strategy.experimental_distribute_values_from_function(
            lambda context, i=i: tensors[int(context.replica_id_in_sync_group)][i]
        )
        for i in range(len(next(iter(tensors.values()))))
    ]


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
