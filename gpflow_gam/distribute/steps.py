"""Compiled steps of all replicas, one or several a call."""

from __future__ import annotations

from collections.abc import Sequence

import keras
import tensorflow as tf
from gpflow.base import AnyNDArray

from ..optimizers.minimizers import Traced
from .arrays import Share
from .trainee import Trainee
from .workers import Workers

Shares = dict[int, Share]
"""Of a step, by replica."""


class Steps:
    """
    Moves the parameters, on every replica alike.

    :param trainee: what is trained.
    :param workers: of the strategy.
    :param structure: of a share.
    :param most: steps a call at most; one trace serves for fewer.
    """

    def __init__(self, trainee: Trainee, workers: Workers, structure: Share, most: int) -> None:
        self._trainee, self._workers, self._structure = trainee, workers, structure
        self.most = most
        self._clips = _clips(trainee.optimizer)
        self._call = Traced(self._step if most == 1 else self._several)

    def __call__(self, shares: Sequence[Shares]) -> AnyNDArray:
        """
        :param shares: of 1 to ``most`` steps.
        :return: the loss of each step's whole batch, and how many numbers of its gradient are not
            finite, [steps, 2]; up to the first step that is broken.
        """
        if self.most == 1:
            found: AnyNDArray = self._call(*self._distributed(shares[0]))[None].numpy()
            return found
        # to one length, for which there is one trace; what is behind the last step is not looked at
        padded = [*shares, *[shares[-1]] * (self.most - len(shares))]
        stacked = {
            replica: tf.nest.map_structure(lambda *v: tf.stack(v), *[s[replica] for s in padded])
            for replica in shares[0]
        }
        done, told = self._call(tf.constant(len(shares)), *self._distributed(stacked))
        several: AnyNDArray = told.numpy()[: int(done)]
        return several

    def _distributed(self, shares: Shares) -> list[tf.Tensor]:
        tensors = {replica: tf.nest.flatten(share) for replica, share in shares.items()}
        return [
            self._workers.strategy.experimental_distribute_values_from_function(
                lambda context, i=i: tensors[int(context.replica_id_in_sync_group)][i]
            )
            for i in range(len(next(iter(tensors.values()))))
        ]

    def _step(self, *tensors: tf.Tensor) -> tf.Tensor:
        told = self._workers.strategy.run(self._of_replica, args=tensors)
        return self._workers.strategy.experimental_local_results(told)[0]

    def _several(self, number: tf.Tensor, *stacks: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        def of_replica(i: tf.Tensor, *stacks: tf.Tensor) -> tf.Tensor:
            return self._of_replica(*[stack[i] for stack in stacks])

        def body(i: tf.Tensor, told: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, ...]:
            # the loop is outside of the replicas: collectives inside of theirs would not meet
            found = self._workers.strategy.run(of_replica, args=(i, *stacks))
            found = self._workers.strategy.experimental_local_results(found)[0]
            told = tf.tensor_scatter_nd_update(told, [[i]], found[None])
            return i + 1, told, tf.math.is_finite(found[0]) & tf.equal(found[1], 0.0)

        start = tf.constant(0), tf.zeros((self.most, 2), tf.float64), tf.constant(True)
        i, told, _ = tf.while_loop(
            lambda i, _, sound: (i < number) & sound, body, start, parallel_iterations=1
        )
        return i, told

    def _of_replica(self, *tensors: tf.Tensor) -> tf.Tensor:
        trainee, options = self._trainee, self._workers.options
        total = tf.distribute.ReduceOp.SUM
        variables = trainee.trained
        sources = [v.value if isinstance(v, keras.Variable) else v for v in variables]
        context = tf.distribute.get_replica_context()
        share = tf.nest.pack_sequence_as(self._structure, tensors)
        with tf.GradientTape() as tape:
            loss, outputs = trainee.loss(*share)
        found = tape.gradient(loss, sources, unconnected_gradients="zero")
        gradients = [tf.convert_to_tensor(g) for g in found]
        broken = tf.add_n(
            [tf.reduce_sum(tf.cast(~tf.math.is_finite(g), tf.float64)) for g in gradients]
        )
        told = tf.stack([tf.cast(loss, tf.float64), broken])
        told = context.all_reduce(total, told, options)
        if self._clips and self._workers.replicas > 1:
            # Keras clips what a replica hands in and sums afterwards: so one of them hands in the
            # whole gradient, the others zeros.
            whole = context.all_reduce(total, gradients, options)
            first = tf.equal(context.replica_id_in_sync_group, 0)
            gradients = [tf.where(first, g, tf.zeros_like(g)) for g in whole]
        trainee.optimizer.apply(gradients, variables)
        trainee.report(outputs, *share)
        return told


def _clips(optimizer: keras.optimizers.Optimizer) -> bool:
    limits = (optimizer.clipnorm, optimizer.global_clipnorm, optimizer.clipvalue)
    return any(limit is not None for limit in limits)
