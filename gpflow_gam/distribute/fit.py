"""The function that trains under a strategy, from a checkpoint where there is one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf

from .batches import Data, batches_of
from .result import Callback, DistributedFit, Model
from .run import Run, configuration
from .steps import compiled_step
from .trainee import LearningRate, Trainee
from .workers import Workers


def fit(
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
    Minibatch training on one device, several devices of a host, or several hosts.

    The updates are those of one device, whatever the number of replicas: batches follow from
    ``seed`` and the step, each replica takes an equal share, and gradients are summed so that the
    KL divergence and priors count once. (Layers that look at a batch as a whole, such as batch
    normalisation, or that draw random numbers, see shares, and are an exception.)

    With several hosts run the same program on each, with ``TF_CONFIG`` set. Where a worker dies
    the others end with a :class:`LostWorkerError`; start all of them again to go on.

    :param build: makes the model, in the strategy's scope: an
        :class:`~gpflow_gam.models.AdditiveSVGP` with ``num_data``, or a compiled ``keras.Model``.
        A Keras model with a ``compute_loss`` of its own returns there, as for Keras's ``fit``,
        the replica's part of the loss: divided by the number of replicas. One with a
        ``train_step`` of its own is refused, which would not be called.
    :param data: one of

        - X [N, ...] and Y [N, ...], all of them on every worker, shuffled anew each epoch;
        - a ``tf.data.Dataset`` of (x, y), not batched, which every worker reads in its own order
          over and over. To be resumed it must come in the same order each time it is read;
        - a function from a ``tf.distribute.InputContext`` to a ``tf.data.Dataset`` of batches of
          ``batch_size / replicas`` rows: each worker's own share of the data.
    :param strategy: a ``MirroredStrategy`` or ``MultiWorkerMirroredStrategy``; by default that of
        the scope, or one device.
    :param batch_size: rows of a step, over all replicas.
    :param num_steps: steps in all, restarts included.
    :param learning_rate: Adam's, or a function that returns a Keras optimiser; by default 0.01, or
        the optimiser that the Keras model was compiled with. It is no part of a checkpoint.
    :param seed: of the order of the rows of arrays.
    :param checkpoint: folder for the state of the fit; goes on from the one that is there. Only the
        chief's is read and written.
    :param save_every: steps from one to the next; the last step is saved too.
    :param callback: called after each step on every worker; a true return value ends the fit.
    :param timeout: seconds that a worker waits for the others in a step.
    :raises TypeError: arguments of the wrong kind.
    :raises ValueError: arguments that do not fit together, or a checkpoint of another fit.
    :raises FailedStepError: a step's loss or gradient is NaN or infinite, or cannot be computed;
        the last checkpoint from before stays.
    :raises LostWorkerError: another worker is gone.
    """
    start = time.perf_counter()
    _check_options(build, strategy, batch_size, num_steps, learning_rate, save_every, timeout)
    strategy = tf.distribute.get_strategy() if strategy is None else strategy
    folder = None if checkpoint is None else Path(checkpoint)
    workers = Workers(strategy, timeout)
    batches = batches_of(data, batch_size, workers.replicas, workers.local, seed)
    with strategy.scope():
        with workers.watched("It was lost before the first step; start all workers again."):
            trainee = Trainee(build(), batches, learning_rate)
            config = configuration(trainee, batches.digest(), batch_size, seed)
            run = Run(trainee, workers, folder, config)
            run.agree()
            resumed = run.resume(num_steps)
        take = compiled_step(trainee, workers)
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


def _distributed(
    strategy: tf.distribute.Strategy, shares: dict[int, tuple[tf.Tensor, tf.Tensor]]
) -> tuple[tf.Tensor, tf.Tensor]:
    X, Y = (
        strategy.experimental_distribute_values_from_function(
            lambda context, i=i: shares[int(context.replica_id_in_sync_group)][i]
        )
        for i in range(2)
    )
    return X, Y


def _check_options(
    build: object,
    strategy: object,
    batch_size: int,
    num_steps: int,
    learning_rate: LearningRate,
    save_every: int,
    timeout: float,
) -> None:
    if not callable(build):
        raise TypeError(f"build must be a function that makes a model; got {type(build).__name__}.")
    if strategy is not None and not isinstance(strategy, tf.distribute.Strategy):
        raise TypeError(f"strategy must be of tf.distribute; got {type(strategy).__name__}.")
    if isinstance(strategy, tf.distribute.ParameterServerStrategy):
        raise TypeError(
            "strategy must be synchronous: a MirroredStrategy or MultiWorkerMirroredStrategy; got "
            "ParameterServerStrategy."
        )
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
    if not timeout > 0.0:
        raise ValueError(f"timeout must be positive; got {timeout}.")
