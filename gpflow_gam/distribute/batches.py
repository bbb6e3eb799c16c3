"""Batches that follow from the seed and the step alone, cut into shares for the replicas."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from .arrays import Share, arrays_of, check_pairs, checksum, named, number_of_rows, rows_of
from .reading import Reader, first_numbers

PerReplicaBatches = Callable[[Any], Any]
"""From a ``tf.distribute.InputContext`` to a ``tf.data.Dataset`` of one replica's batches."""
Data: TypeAlias = "tuple[Any, ...] | tf.data.Dataset | PerReplicaBatches"


class Batches(abc.ABC):
    """
    A source of batches.

    The union of the replicas' shares does not depend on how many replicas there are, and a source
    that begins at a step gives what one gives there that began at the first.

    :param batch_size: rows of all shares of a step.
    :param replicas: number of shares.
    """

    num_data: int | None = None
    """Rows, where that can be known."""
    structure: Share
    """What a share is made of, with anything for tensors."""
    is_shared = True
    """Whether all workers read the same."""

    def __init__(self, batch_size: int, replicas: int) -> None:
        self.batch_size, self.replicas = batch_size, replicas
        self.rows = batch_size // replicas

    @property
    def steps_per_epoch(self) -> int | None:
        """Whole batches among the rows, where that can be known."""
        return None if self.num_data is None else self.num_data // self.batch_size

    @abc.abstractmethod
    def shares(self, step: int, replicas: Sequence[int]) -> dict[int, Share]:
        """
        X [B / R, ...] and Y [B / R, ...], and sample weights, of some replicas, by replica.

        :param step: counted from 0; one more than at the last call is the fast way.
        :param replicas: those of this worker.
        """

    @abc.abstractmethod
    def specs(self) -> Share:
        """The shapes [B / R, ...] and types of a share."""

    def digest(self) -> int | None:
        """A checksum that tells other data from these; None where there is none."""
        return None

    def place(self) -> bytes:
        """Where reading goes on after the last share; nothing where a step's number tells it."""
        return b""

    def go_to(self, step: int, place: bytes) -> None:
        """
        :param step: whose shares come next.
        :param place: that :meth:`place` told before it; without one the way there is read.
        """
        return

    def _cut(self, batch: Share, replicas: Sequence[int]) -> dict[int, Share]:
        parts = {r: slice(r * self.rows, (r + 1) * self.rows) for r in replicas}
        return {
            r: tf.nest.map_structure(lambda v, part=part: tf.convert_to_tensor(v[part]), batch)
            for r, part in parts.items()
        }

    def _spec(self, row: Any, dtype: Any) -> tf.TensorSpec:
        row = tf.TensorShape(row)
        if row.rank is None:
            raise ValueError(
                "data is a dataset that does not say what shape its rows have, which metrics are "
                "made for; state it by tf.ensure_shape in a map."
            )
        return tf.TensorSpec((self.rows, *row), dtype)


class ArrayBatches(Batches):
    """
    Batches of arrays, in a new order each epoch; the rows that fill no whole batch are left out.

    :param arrays: X and Y, and sample weights, each [N, ...].
    :param seed: of the orders.
    """

    def __init__(self, arrays: Share, batch_size: int, replicas: int, seed: int) -> None:
        super().__init__(batch_size, replicas)
        self.arrays, self.seed = arrays, seed
        self.structure = arrays
        self._number = self.num_data = number_of_rows(arrays)
        self._order: tuple[int, AnyNDArray] | None = None

    def shares(self, step: int, replicas: Sequence[int]) -> dict[int, Share]:
        epoch, batch = divmod(step, self._number // self.batch_size)
        if self._order is None or self._order[0] != epoch:
            rng = np.random.default_rng((self.seed, epoch))
            self._order = epoch, rng.permutation(self._number)
        rows = self._order[1][batch * self.batch_size : (batch + 1) * self.batch_size]
        return self._cut(tf.nest.map_structure(lambda v: v[rows], self.arrays), replicas)

    def specs(self) -> Share:
        found: Share = tf.nest.map_structure(
            lambda v: self._spec(v.shape[1:], tf.as_dtype(v.dtype)), self.arrays
        )
        return found

    def digest(self) -> int:
        return checksum(self.arrays)


class StreamBatches(Batches):
    """
    Batches of a dataset of rows, in its own order and over and over.

    Every worker reads all of it and takes its shares. A dataset of batches, whatever their size, is
    taken apart again.

    :param dataset: of pairs, or of triples with sample weights.
    """

    def __init__(self, dataset: tf.data.Dataset, batch_size: int, replicas: int) -> None:
        super().__init__(batch_size, replicas)
        check_pairs(dataset)
        dataset = rows_of(dataset)
        self.structure = dataset.element_spec
        number = int(dataset.cardinality())
        if number >= 0:
            _check_enough(number, batch_size)
            self.num_data = number
        self._batches = dataset.batch(batch_size, drop_remainder=True)
        self._read = Reader(self._batches)

    def shares(self, step: int, replicas: Sequence[int]) -> dict[int, Share]:
        return self._cut(self._read(step), replicas)

    def specs(self) -> Share:
        found: Share = tf.nest.map_structure(lambda s: self._spec(s.shape, s.dtype), self.structure)
        return found

    def digest(self) -> int:
        return checksum(first_numbers(self._batches))

    def place(self) -> bytes:
        return self._read.place()

    def go_to(self, step: int, place: bytes) -> None:
        self._read.go_to(step, place)


class FunctionBatches(Batches):
    """
    Batches of each worker's own dataset, over and over: its replicas take them in turn.

    :param function: from a ``tf.distribute.InputContext`` to the worker's dataset.
    :param local: replicas of this worker.
    """

    is_shared = False

    def __init__(
        self,
        function: PerReplicaBatches,
        batch_size: int,
        replicas: int,
        local: Sequence[int],
    ) -> None:
        super().__init__(batch_size, replicas)
        self._local = len(local)
        context = tf.distribute.InputContext(
            num_input_pipelines=replicas // len(local),
            input_pipeline_id=local[0] // len(local),
            num_replicas_in_sync=replicas,
        )
        dataset = function(context)
        if not isinstance(dataset, tf.data.Dataset):
            raise TypeError(
                "data must return a tf.data.Dataset of one replica's batches; it returned "
                f"{type(dataset).__name__}."
            )
        check_pairs(dataset)
        self.structure = dataset.element_spec
        self._read = Reader(dataset)

    def shares(self, step: int, replicas: Sequence[int]) -> dict[int, Share]:
        return {r: self._share(step * self._local + i) for i, r in enumerate(replicas)}

    def specs(self) -> Share:
        found: Share = tf.nest.map_structure(
            lambda s: self._spec(s.shape[1:], s.dtype), self.structure
        )
        return found

    def place(self) -> bytes:
        return self._read.place()

    def go_to(self, step: int, place: bytes) -> None:
        self._read.go_to(step * self._local, place)

    def _share(self, number: int) -> Share:
        share = self._read(number)
        found = {name: v.shape[0] if v.shape.rank else 1 for name, v in named(share).items()}
        if set(found.values()) != {self.rows}:
            sizes = ", ".join(f"{rows} rows of {name}" for name, rows in found.items())
            raise ValueError(
                f"data gives a batch of {sizes}; each replica "
                f"needs batch_size / replicas = {self.batch_size} / {self.replicas} = {self.rows}. "
                f"End the dataset in .batch({self.rows}, drop_remainder=True)."
            )
        return share


def batches_of(data: Data, batch_size: int, replicas: int, local: Sequence[int], seed: int) -> Any:
    """
    The source that fits ``data``.

    :param data: arrays, a dataset or a function.
    :param batch_size: rows of a step.
    :param replicas: of all workers.
    :param local: those of this worker.
    :param seed: of the order of arrays' rows.
    :raises TypeError: nothing of the kind.
    :raises ValueError: data that do not fit together, or too few.
    """
    if batch_size % replicas:
        raise ValueError(
            f"batch_size={batch_size} must be a multiple of the {replicas} replicas, each of which "
            f"takes an equal share; try {batch_size - batch_size % replicas or replicas}."
        )
    if isinstance(data, tf.data.Dataset):
        return StreamBatches(data, batch_size, replicas)
    if isinstance(data, (tuple, list)):
        arrays = arrays_of(data)
        _check_enough(number_of_rows(arrays), batch_size)
        return ArrayBatches(arrays, batch_size, replicas, seed)
    if callable(data):
        return FunctionBatches(data, batch_size, replicas, local)
    raise TypeError(
        "data must be a pair of arrays (X, Y), a tf.data.Dataset of pairs, or a function from a "
        f"tf.distribute.InputContext to a tf.data.Dataset; got {type(data).__name__}."
    )


def _check_enough(number: int, batch_size: int) -> None:
    if batch_size > number:
        raise ValueError(
            f"batch_size={batch_size} is more than the {number} rows of data; lower it."
        )
