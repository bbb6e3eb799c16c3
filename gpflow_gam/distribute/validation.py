"""Validation data, evaluated as Keras's ``evaluate`` does, by all replicas together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf
from gpflow.base import AnyNDArray

from ..optimizers.minimizers import Traced
from .arrays import Share, arrays_of, check_pairs, checksum, number_of_rows, rows_of
from .metrics import Metrics
from .workers import Workers


class Validation:
    """
    Rows that a model is not trained on.

    Replicas take whole batches in turn, so that each batch's loss is what it is on one device.

    :param data: arrays or a dataset, the same on all workers.
    :param batch_size: rows of a batch; the last may have fewer.
    :param workers: of the strategy.
    :raises TypeError: nothing of the kind.
    :raises ValueError: data that do not fit together, or have no end.
    """

    def __init__(self, data: Any, batch_size: int, workers: Workers) -> None:
        self._workers, self._batch_size = workers, batch_size
        self._take: dict[int, Callable[..., Any]] = {}
        self._source: Share | tf.data.Dataset
        if isinstance(data, tf.data.Dataset):
            check_pairs(data, "validation_data")
            if int(data.cardinality()) == tf.data.INFINITE_CARDINALITY:
                raise ValueError(
                    "validation_data is a dataset without an end; leave its repeat() out."
                )
            rows = rows_of(data)
            self._source, self._structure = rows.batch(batch_size), rows.element_spec
        elif isinstance(data, (tuple, list)):
            self._source = self._structure = arrays_of(data, "validation_data")
        else:
            raise TypeError(
                "validation_data must be arrays (X, Y) or (X, Y, sample_weight), or a "
                f"tf.data.Dataset of those, the same on all workers; got {type(data).__name__}."
            )

    def digest(self) -> int:
        """
        A checksum that tells other data from these.

        :raises ValueError: there are no rows.
        """
        if not isinstance(self._source, tf.data.Dataset):
            return checksum(self._source)
        for batch in self._source.as_numpy_iterator():
            return checksum(batch)
        raise ValueError("validation_data holds no rows.")

    def evaluate(self, model: keras.Model, metrics: Metrics) -> dict[str, AnyNDArray]:
        """
        The loss and the metrics, by name; ``model.test_step`` adds them up.

        :param model: compiled, its metrics built.
        :param metrics: of the model, which are begun anew.
        :raises ValueError: they cannot be evaluated.
        """
        metrics.reset()
        for batches in self._rounds():
            rows = number_of_rows(batches[0])
            if rows not in self._take:
                self._take[rows] = Traced(self._compiled(model))
            try:
                self._take[rows](*self._distributed(batches))
            except tf.errors.InvalidArgumentError as error:
                raise ValueError(f"validation_data cannot be evaluated: {error.message}") from error
        return metrics.result(metrics.totals())

    def _compiled(self, model: keras.Model) -> Callable[..., tf.Tensor]:
        def of_replica(here: tf.Tensor, *tensors: tf.Tensor) -> tf.Tensor:
            def test() -> tf.Tensor:
                model.test_step(tf.nest.pack_sequence_as(self._structure, tensors))
                return tf.constant(True)

            if self._workers.replicas == 1:
                return test()
            return tf.cond(here, test, lambda: tf.constant(False))

        return lambda *tensors: self._workers.strategy.run(of_replica, args=tensors)

    def _batches(self) -> Iterator[Share]:
        if isinstance(self._source, tf.data.Dataset):
            yield from self._source
            return
        for start in range(0, number_of_rows(self._source), self._batch_size):
            part = slice(start, start + self._batch_size)
            yield tf.nest.map_structure(lambda v, part=part: tf.constant(v[part]), self._source)

    def _rounds(self) -> Iterator[list[Share]]:
        """A batch for each replica, all of as many rows; fewer batches at the end."""
        waiting: list[Share] = []
        for batch in self._batches():
            if waiting and number_of_rows(batch) != number_of_rows(waiting[0]):
                yield waiting
                waiting = []
            waiting.append(batch)
            if len(waiting) == self._workers.replicas:
                yield waiting
                waiting = []
        if waiting:
            yield waiting

    def _distributed(self, batches: list[Share]) -> list[tf.Tensor]:
        """Whether there is a batch for the replica, and its tensors; the first's where not."""
        flat = [[tf.constant(True), *tf.nest.flatten(batch)] for batch in batches]
        idle = [tf.constant(False), *flat[0][1:]]

        def of_replica(context: tf.distribute.experimental.ValueContext, i: int) -> tf.Tensor:
            replica = int(context.replica_id_in_sync_group)
            return (flat[replica] if replica < len(flat) else idle)[i]

        return [
            self._workers.strategy.experimental_distribute_values_from_function(
                lambda context, i=i: of_replica(context, i)
            )
            for i in range(len(idle))
        ]
