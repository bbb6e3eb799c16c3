"""A Keras model's metrics on several replicas, each of which adds up its own rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from ..optimizers.minimizers import Traced
from .workers import Workers


class Metrics:
    """
    The metrics of a compiled model. Made in the strategy's scope.

    Each replica has their variables for itself; what is reported is computed from their sums.

    :param model: whose metrics are built.
    :param workers: of the strategy.
    :raises ValueError: a metric keeps numbers that replicas cannot add up.
    """

    def __init__(self, model: keras.Model, workers: Workers) -> None:
        self._model, self._workers = model, workers
        self._variables: list[Any] = list({id(v): v for v in model.metrics_variables}.values())
        for v in self._variables if workers.replicas > 1 else ():
            if v.aggregation != "sum":
                raise ValueError(
                    f"the metric variable {v.path} is of aggregation {v.aggregation!r}, which "
                    "several replicas cannot report; make it by add_variable(aggregation='sum')."
                )
        self._shapes = [tuple(v.shape) for v in self._variables]
        self._sums, self._assign = Traced(self._summed), Traced(self._assigned)

    def reset(self) -> None:
        """Begin anew, on all replicas."""
        self._model.reset_metrics()

    def totals(self) -> list[AnyNDArray]:
        """The variables' sums over all replicas, in double precision, equal on all workers."""
        if not self._variables:
            return []
        flat = self._workers.strategy.experimental_local_results(self._sums())[0].numpy()
        ends = np.cumsum([int(np.prod(shape)) for shape in self._shapes])
        return [part.reshape(s) for part, s in zip(np.split(flat, ends[:-1]), self._shapes)]

    def assign(self, totals: Sequence[AnyNDArray]) -> None:
        """
        Undo :meth:`totals`: the first replica gets them, the others zeros.

        :param totals: of the same metrics.
        """
        if self._variables:
            self._assign(*[tf.constant(t, tf.float64) for t in totals])

    def result(self, totals: Sequence[AnyNDArray]) -> dict[str, AnyNDArray]:
        """
        What the metrics come to, by name.

        :param totals: over all replicas.
        """
        values = [tf.cast(t, v.dtype) for v, t in zip(self._variables, totals)]
        with keras.StatelessScope(state_mapping=list(zip(self._variables, values))):
            found = self._model.get_metrics_result()
        return {name: np.asarray(value, np.float64) for name, value in found.items()}

    def names(self) -> list[str]:
        """What :meth:`result` reports."""
        return list(self.result([np.zeros(shape) for shape in self._shapes]))

    def _summed(self) -> tf.Tensor:
        def of_replica() -> tf.Tensor:
            values = [tf.cast(tf.convert_to_tensor(v), tf.float64) for v in self._variables]
            flat = tf.concat([tf.reshape(value, [-1]) for value in values], axis=0)
            context = tf.distribute.get_replica_context()
            return context.all_reduce(tf.distribute.ReduceOp.SUM, flat, self._workers.options)

        return self._workers.strategy.run(of_replica)

    def _assigned(self, *totals: tf.Tensor) -> None:
        def of_replica(*totals: tf.Tensor) -> None:
            context = tf.distribute.get_replica_context()
            first = tf.equal(context.replica_id_in_sync_group, 0)
            for variable, total in zip(self._variables, totals):
                value = tf.where(first, total, tf.zeros_like(total))
                variable.assign(tf.cast(value, variable.dtype))

        self._workers.strategy.run(of_replica, args=totals)
