"""Batches that follow from the seed and the step alone, cut into shares for the replicas."""

from __future__ import annotations

import abc
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

Share = tuple[tf.Tensor, tf.Tensor]
PerReplicaBatches = Callable[[Any], Any]
"""From a ``tf.distribute.InputContext`` to a ``tf.data.Dataset`` of one replica's batches."""
Data: TypeAlias = "tuple[Any, Any] | tf.data.Dataset | PerReplicaBatches"


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

    def __init__(self, batch_size: int, replicas: int) -> None:
        self.batch_size, self.replicas = batch_size, replicas
        self.rows = batch_size // replicas

    @abc.abstractmethod
    def shares(self, step: int, replicas: Sequence[int]) -> dict[int, Share]:
        """
        X [B / R, ...] and Y [B / R, ...] of some replicas, by replica.

        :param step: counted from 0; one more than at the last call is the fast way.
        :param replicas: those of this worker.
        """

    def digest(self) -> int | None:
        """A checksum that tells other data from these; None where there is none."""
        return None

    def _cut(self, X: Any, Y: Any, replicas: Sequence[int]) -> dict[int, Share]:
        parts = {r: slice(r * self.rows, (r + 1) * self.rows) for r in replicas}
        return {
            r: (tf.convert_to_tensor(X[part]), tf.convert_to_tensor(Y[part]))
            for r, part in parts.items()
        }


class ArrayBatches(Batches):
    """
    Batches of arrays, in a new order each epoch; the rows that fill no whole batch are left out.

    :param X: [N, ...].
    :param Y: [N, ...].
    :param seed: of the orders.
    """

    def __init__(
        self, X: AnyNDArray, Y: AnyNDArray, batch_size: int, replicas: int, seed: int
    ) -> None:
        super().__init__(batch_size, replicas)
        self.X, self.Y, self.seed = X, Y, seed
        self.num_data = len(X)
        self._order: tuple[int, AnyNDArray] | None = None

    def shares(self, step: int, replicas: Sequence[int]) -> dict[int, Share]:
        epoch, batch = divmod(step, len(self.X) // self.batch_size)
        if self._order is None or self._order[0] != epoch:
            rng = np.random.default_rng((self.seed, epoch))
            self._order = epoch, rng.permutation(len(self.X))
        rows = self._order[1][batch * self.batch_size : (batch + 1) * self.batch_size]
        return self._cut(self.X[rows], self.Y[rows], replicas)

    def digest(self) -> int:
        return _checksum(self.X, self.Y)


class StreamBatches(Batches):
    """
    Batches of a dataset of unbatched pairs, in its own order and over and over.

    Every worker reads all of it and takes its shares.

    :param dataset: of pairs.
    """

    def __init__(self, dataset: tf.data.Dataset, batch_size: int, replicas: int) -> None:
        super().__init__(batch_size, replicas)
        _check_pairs(dataset)
        number = int(dataset.cardinality())
        if number >= 0:
            _check_enough(number, batch_size)
            self.num_data = number
        self._batches = dataset.batch(batch_size, drop_remainder=True)
        self._next = 0
        self._iterator: Iterator[Share] | None = None

    def shares(self, step: int, replicas: Sequence[int]) -> dict[int, Share]:
        if self._iterator is None or step != self._next:
            self._iterator = iter(self._batches.repeat().skip(step).prefetch(1))
        self._next = step + 1
        X, Y = _following(self._iterator)
        return self._cut(X, Y, replicas)

    def digest(self) -> int:
        X, Y = _following(iter(self._batches))
        return _checksum(X.numpy(), Y.numpy())


class FunctionBatches(Batches):
    """
    Batches of each worker's own dataset, over and over: its replicas take them in turn.

    :param function: from a ``tf.distribute.InputContext`` to the worker's dataset.
    :param local: replicas of this worker.
    """

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
        _check_pairs(dataset)
        self._dataset = dataset
        self._next = 0
        self._iterator: Iterator[Share] | None = None

    def shares(self, step: int, replicas: Sequence[int]) -> dict[int, Share]:
        if self._iterator is None or step != self._next:
            self._iterator = iter(self._dataset.repeat().skip(step * self._local).prefetch(1))
        self._next = step + 1
        return {r: self._share(self._iterator) for r in replicas}

    def _share(self, iterator: Iterator[Share]) -> Share:
        X, Y = _following(iterator)
        if X.shape[0] != self.rows or Y.shape[0] != self.rows:
            raise ValueError(
                f"data gives a batch of {X.shape[0]} rows of X and {Y.shape[0]} of Y; each replica "
                f"needs batch_size / replicas = {self.batch_size} / {self.replicas} = {self.rows}. "
                f"End the dataset in .batch({self.rows}, drop_remainder=True)."
            )
        return X, Y


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
        X, Y = _arrays(data)
        _check_enough(len(X), batch_size)
        return ArrayBatches(X, Y, batch_size, replicas, seed)
    if callable(data):
        return FunctionBatches(data, batch_size, replicas, local)
    raise TypeError(
        "data must be a pair of arrays (X, Y), a tf.data.Dataset of pairs, or a function from a "
        f"tf.distribute.InputContext to a tf.data.Dataset; got {type(data).__name__}."
    )


def _arrays(data: Sequence[Any]) -> tuple[AnyNDArray, AnyNDArray]:
    if len(data) != 2:
        raise ValueError(f"data must be a pair (X, Y); got {len(data)} entries.")
    X, Y = (np.asarray(part) for part in data)
    for name, part in (("X", X), ("Y", Y)):
        if part.ndim == 0 or part.dtype == object:
            raise ValueError(
                f"data: {name} must be an array of rows; got shape {part.shape} of dtype "
                f"{part.dtype}."
            )
    if len(X) != len(Y):
        raise ValueError(f"data: X has {len(X)} rows, Y has {len(Y)}; they must be equal.")
    return X, Y


def _check_enough(number: int, batch_size: int) -> None:
    if batch_size > number:
        raise ValueError(
            f"batch_size={batch_size} is more than the {number} rows of data; lower it."
        )


def _check_pairs(dataset: tf.data.Dataset) -> None:
    spec = dataset.element_spec
    if not (isinstance(spec, tuple) and len(spec) == 2 and all(hasattr(s, "shape") for s in spec)):
        raise ValueError(f"data must be a dataset of pairs (X, Y) of tensors; it gives {spec}.")


def _following(iterator: Iterator[Share]) -> Share:
    try:
        return next(iterator)
    except StopIteration:
        raise ValueError(
            "data ran out before the first whole batch; lower batch_size or give more rows."
        ) from None


def _checksum(X: AnyNDArray, Y: AnyNDArray) -> int:
    found = 0
    for part in (X, Y):
        part = part.astype(bytes) if part.dtype == object else part  # strings of a dataset
        found = zlib.crc32(np.ascontiguousarray(part).data, found)
    return found
