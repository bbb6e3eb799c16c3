"""The one function of the package: minibatch training, or a GAM's fit to shares of the rows."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, overload

import tensorflow as tf

from ..gam import GAM
from .batches import Data
from .gam import fit_gam
from .minibatches import fit_minibatches
from .result import Callback, DistributedFit, Model
from .trainee import LearningRate

_OF_KERAS = {
    "x": "data hold x and y",
    "epochs": "num_steps counts steps, of batch_size rows each",
    "initial_epoch": "checkpoint=folder goes on where a fit ended",
    "sample_weight": "weights are the third of data, (x, y, sample_weight)",
    "class_weight": "give each row the weight of its class, (x, y, sample_weight)",
    "callbacks": "callback= is called after each step, and is told what an epoch came to",
    "validation_split": "give those rows as validation_data",
    "validation_batch_size": "validation data are read in batches of batch_size",
    "validation_freq": "validation data are evaluated every steps_per_epoch steps",
    "validation_steps": "validation data are read to their end; dataset.take(n) ends before",
    "shuffle": "the order of arrays is drawn from seed; datasets shuffle their own rows",
    "steps_per_execution": "steps_per_call is what it is called here",
    "verbose": "callback= may print what it is told",
}
"""What to do in the place of arguments that Keras has."""


@overload
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
    validation_data: Any = None,
    steps_per_epoch: int | None = None,
    steps_per_call: int | None = None,
) -> DistributedFit: ...


@overload
def fit(
    build: GAM,
    data: Any,
    *,
    y: Any = None,
    strategy: tf.distribute.Strategy | None = None,
    timeout: float = 300.0,
    **options: Any,
) -> GAM: ...


def fit(build: Any, data: Any, **arguments: Any) -> Any:
    """
    Fits on one device, several devices of a host, or several hosts.

    **Of a GAM**, to rows of which every worker has a share: workers sum over their own rows, one
    reduction a pass adds the sums up, and hyperparameters are learnt on every worker from the same
    sums. All workers return the same fitted GAM: that of one process which reads the shares one
    after the other, up to rounding. ``gam.fitted.communication`` says what was sent. With a single
    worker this is :meth:`gpflow_gam.GAM.fit`.

    **Of a model** that a function builds: minibatch training.

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
    :param learning_rate: Adam's, or a function that returns a Keras optimiser; by default 0.01, or
        the optimiser that the Keras model was compiled with. It is no part of a checkpoint.
    :param seed: of the order of the rows of arrays.
    :param checkpoint: folder for the state of the fit; goes on from the one that is there. Only the
        chief's is read and written.
    :param save_every: steps from one to the next; the last step is saved too.
    :param callback: called on every worker after each step, or each call of several steps; a true
        return value ends the fit.
    :param timeout: seconds that a worker waits for the others in a step.
    :param validation_data: of a Keras model, rows on which loss and metrics are evaluated once an
        epoch: arrays (X, Y) or (X, Y, sample_weight), or a ``tf.data.Dataset`` of those, the same
        on all workers, which share its batches of ``batch_size`` rows out among themselves.
    :param steps_per_epoch: after how many steps the metrics of a Keras model are reported and begun
        anew, and validation data evaluated; by default the whole batches among the rows of
        ``data``, where their number can be known.
    :param steps_per_call: steps that TensorFlow takes at once, without Python in between: the same
        answer sooner where steps are short. Calls end where an epoch does, and where the state is
        saved. By default the ``steps_per_execution`` that the Keras model was compiled with, or 1.
    :return: the GAM, fitted; or what minibatch training came to.
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
    for name in arguments:
        if name in _OF_KERAS:
            raise TypeError(f"{name} is of Keras's fit, and not taken here: {_OF_KERAS[name]}.")
    return fit_minibatches(build, data, **arguments)
