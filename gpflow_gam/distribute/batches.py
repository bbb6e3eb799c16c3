"""Batches that follow from the seed and the step alone, cut into shares for the replicas."""

from __future__ import annotations

import abc
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import keras
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

Share = tuple[Any, ...]
"""X and Y, and sample weights where there are any; X and Y may be dicts, lists or tuples."""
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

    def __init__(self, batch_size: int, replicas: int) -> None:
        self.batch_size, self.replicas = batch_size, replicas
        self.rows = batch_size // replicas

    @abc.abstractmethod
    def shares(self, step: int, replicas: Sequence[int]) -> dict[int, Share]:
        """
        X [B / R, ...] and Y [B / R, ...], and sample weights, of some replicas, by replica.

        :param step: counted from 0; one more than at the last call is the fast way.
        :param replicas: those of this worker.
        """

    def digest(self) -> int | None:
        """A checksum that tells other data from these; None where there is none."""
        return None

    def _cut(self, batch: Share, replicas: Sequence[int]) -> dict[int, Share]:
        parts = {r: slice(r * self.rows, (r + 1) * self.rows) for r in replicas}
        return {
            r: tf.nest.map_structure(lambda v, part=part: tf.convert_to_tensor(v[part]), batch)
            for r, part in parts.items()
        }


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
        self._number = self.num_data = len(tf.nest.flatten(arrays)[0])
        self._order: tuple[int, AnyNDArray] | None = None

    def shares(self, step: int, replicas: Sequence[int]) -> dict[int, Share]:
        epoch, batch = divmod(step, self._number // self.batch_size)
        if self._order is None or self._order[0] != epoch:
            rng = np.random.default_rng((self.seed, epoch))
            self._order = epoch, rng.permutation(self._number)
        rows = self._order[1][batch * self.batch_size : (batch + 1) * self.batch_size]
        return self._cut(tf.nest.map_structure(lambda v: v[rows], self.arrays), replicas)

    def digest(self) -> int:
        return _checksum(self.arrays)


class StreamBatches(Batches):
    """
    Batches of a dataset of rows, in its own order and over and over.

    Every worker reads all of it and takes its shares. A dataset of batches, whatever their size, is
    taken apart again.

    :param dataset: of pairs, or of triples with sample weights.
    """

    def __init__(self, dataset: tf.data.Dataset, batch_size: int, replicas: int) -> None:
        super().__init__(batch_size, replicas)
        _check_pairs(dataset)
        if _is_batched(dataset.element_spec):
            dataset = dataset.unbatch()
        self.structure = dataset.element_spec
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
        return self._cut(_following(self._iterator), replicas)

    def digest(self) -> int:
        first = _following(iter(self._batches))
        return _checksum(tf.nest.map_structure(lambda v: v.numpy(), first))


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
        self._dataset, self.structure = dataset, dataset.element_spec
        self._next = 0
        self._iterator: Iterator[Share] | None = None

    def shares(self, step: int, replicas: Sequence[int]) -> dict[int, Share]:
        if self._iterator is None or step != self._next:
            self._iterator = iter(self._dataset.repeat().skip(step * self._local).prefetch(1))
        self._next = step + 1
        return {r: self._share(self._iterator) for r in replicas}

    def _share(self, iterator: Iterator[Share]) -> Share:
        share = _following(iterator)
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
        arrays = _arrays(data)
        _check_enough(len(tf.nest.flatten(arrays)[0]), batch_size)
        return ArrayBatches(arrays, batch_size, replicas, seed)
    if callable(data):
        return FunctionBatches(data, batch_size, replicas, local)
    raise TypeError(
        "data must be a pair of arrays (X, Y), a tf.data.Dataset of pairs, or a function from a "
        f"tf.distribute.InputContext to a tf.data.Dataset; got {type(data).__name__}."
    )


def named(share: Share) -> dict[str, Any]:
    """What a share is made of, under names for messages: ``X['wide']``."""
    found = {}
    for name, part in zip(("X", "Y", "sample_weight"), share):
        for path, leaf in keras.tree.flatten_with_path(part):
            found[name + "".join(f"[{key!r}]" for key in path)] = leaf
    return found


def _arrays(data: Sequence[Any]) -> Share:
    data = tuple(data)
    if len(data) == 3 and data[2] is None:
        data = data[:2]
    if len(data) not in (2, 3):
        raise ValueError(
            "data, where no sample_weight comes third, must be a pair (X, Y); got "
            f"{len(data)} entries."
        )
    arrays = tuple(_array(part) for part in data)
    rows = {}
    for name, part in named(arrays).items():
        if part.ndim == 0 or part.dtype == object:
            raise ValueError(
                f"data: {name} must be an array of rows; got shape {part.shape} of dtype "
                f"{part.dtype}."
            )
        rows[name] = len(part)
    if not rows:
        raise ValueError("data: X and Y hold no array.")
    if len(set(rows.values())) > 1:
        sizes = ", ".join(
            f"{name} has {number}" + (" rows" if i == 0 else "")
            for i, (name, number) in enumerate(rows.items())
        )
        raise ValueError(f"data: {sizes}; they must be equal.")
    for name, part in named(arrays).items():
        if name.startswith("sample_weight") and not np.all(np.isfinite(part) & (part >= 0)):
            bad = int(np.flatnonzero(~(np.isfinite(part) & (part >= 0)))[0])
            raise ValueError(f"data: {name} must be finite and not negative; entry {bad} is not.")
    return arrays


def _array(part: Any) -> Any:
    """An array, or several as Keras takes them: in a dict, a list or a tuple."""
    if isinstance(part, Mapping):
        return {key: _array(value) for key, value in part.items()}
    if isinstance(part, (list, tuple)) and part and all(hasattr(v, "shape") for v in part):
        return tuple(np.asarray(value) for value in part)
    return np.asarray(part)


def _check_enough(number: int, batch_size: int) -> None:
    if batch_size > number:
        raise ValueError(
            f"batch_size={batch_size} is more than the {number} rows of data; lower it."
        )


def _check_pairs(dataset: tf.data.Dataset) -> None:
    spec = dataset.element_spec
    dense = all(isinstance(s, tf.TensorSpec) for s in tf.nest.flatten(spec))
    if not (isinstance(spec, tuple) and len(spec) in (2, 3) and dense):
        raise ValueError(
            "data must be a dataset of pairs (X, Y) of tensors, or of (X, Y, sample_weight); it "
            f"gives {spec}."
        )


def _is_batched(spec: Share) -> bool:
    """
    Whether a dataset gives batches: all first dimensions are unknown, as ``batch`` leaves them.
    """
    shapes = [s.shape for s in tf.nest.flatten(spec)]
    if any(shape.rank is None or shape.rank == 0 for shape in shapes):
        return False
    return all(shape[0] is None for shape in shapes)


def _following(iterator: Iterator[Share]) -> Share:
    try:
        return next(iterator)
    except StopIteration:
        raise ValueError(
            "data ran out before the first whole batch; lower batch_size or give more rows."
        ) from None


def _checksum(arrays: Share) -> int:
    found = 0
    for part in tf.nest.flatten(arrays):
        part = part.astype(bytes) if part.dtype == object else part  # strings of a dataset
        found = zlib.crc32(np.ascontiguousarray(part).data, found)
    return found
