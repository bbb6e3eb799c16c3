"""One compiled step of all replicas."""

from __future__ import annotations

from collections.abc import Callable

import keras
import tensorflow as tf

from ..optimizers.minimizers import Traced
from .batches import Share
from .trainee import Trainee
from .workers import Workers

Step = Callable[..., tuple[tf.Tensor, tf.Tensor]]


def compiled_step(trainee: Trainee, workers: Workers, structure: Share) -> Step:
    """
    From each replica's share, its tensors in turn, to the whole batch's loss and whether its
    gradient is finite.

    The parameters move, on every replica alike.

    :param trainee: what is trained.
    :param workers: of the strategy.
    :param structure: of a share.
    """
    variables = trainee.trained
    sources = [v.value if isinstance(v, keras.Variable) else v for v in variables]
    clips = _clips(trainee.optimizer)
    total = tf.distribute.ReduceOp.SUM

    def of_replica(*tensors: tf.Tensor) -> tf.Tensor:
        context = tf.distribute.get_replica_context()
        with tf.GradientTape() as tape:
            loss = trainee.loss(*tf.nest.pack_sequence_as(structure, tensors))
        found = tape.gradient(loss, sources, unconnected_gradients="zero")
        gradients = [tf.convert_to_tensor(g) for g in found]
        broken = tf.add_n(
            [tf.reduce_sum(tf.cast(~tf.math.is_finite(g), tf.float64)) for g in gradients]
        )
        told = tf.stack([tf.cast(loss, tf.float64), broken])
        told = context.all_reduce(total, told, workers.options)
        if clips and workers.replicas > 1:
            # Keras clips what a replica hands in and sums afterwards: so one of them hands in the
            # whole gradient, the others zeros.
            whole = context.all_reduce(total, gradients, workers.options)
            first = tf.equal(context.replica_id_in_sync_group, 0)
            gradients = [tf.where(first, g, tf.zeros_like(g)) for g in whole]
        trainee.optimizer.apply(gradients, variables)
        return told

    def step(*tensors: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        told = workers.strategy.run(of_replica, args=tensors)
        loss, broken = tf.unstack(workers.strategy.experimental_local_results(told)[0])
        return loss, tf.equal(broken, 0.0)

    return Traced(step)


def _clips(optimizer: keras.optimizers.Optimizer) -> bool:
    limits = (optimizer.clipnorm, optimizer.global_clipnorm, optimizer.clipvalue)
    return any(limit is not None for limit in limits)
