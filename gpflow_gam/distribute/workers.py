"""The workers of a strategy, and batches that follow from seed and step, cut into shares."""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import keras
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from tensorflow.python.ops.resource_variable_ops import default_variable_creator_v2

from ..optimizers.minimizers import Traced
from ..storage import ALONE, Communicator

_LOST = (
    tf.errors.UnavailableError,
    tf.errors.DeadlineExceededError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.InternalError,
    tf.errors.FailedPreconditionError,
)  # errors of TensorFlow where another process does not answer; which one depends on the moment

_FEW, _MANY = 64, 4096  # lengths up to which vectors are padded, as each is compiled anew


class LostWorkerError(RuntimeError):
    """Another worker is gone, or did not answer in time; nothing can be computed without it."""


class Workers:
    """This process among those of a strategy, None for that of the scope, or one device."""

    def __init__(self, strategy: Any, timeout: float) -> None:
        if isinstance(strategy, tf.distribute.ParameterServerStrategy):
            raise TypeError(
                "strategy must be synchronous: a MirroredStrategy or MultiWorkerMirroredStrategy; "
                "got ParameterServerStrategy."
            )
        if not timeout > 0.0:
            raise ValueError(f"timeout must be positive; got {timeout}.")
        self.strategy = tf.distribute.get_strategy() if strategy is None else strategy
        self.timeout = timeout  # seconds a reduction
        self.options = tf.distribute.experimental.CommunicationOptions(timeout_seconds=timeout)
        self.local: list[int] = []  # the replicas of this process, by their numbers among all

        def note(replica: int) -> tf.Tensor:
            self.local.append(replica)
            return tf.constant(0)

        self._by_replica(note)
        self.replicas = int(self.strategy.num_replicas_in_sync)
        self.number = self.replicas // len(self.local)  # of processes
        self.index = self.local[0] // len(self.local)  # of this one; 0 writes checkpoints
        self._total = Traced(self._added)
        self.communicator = ALONE
        if self.number > 1:
            self.communicator = Communicator(self.sum, self.index, self.number)

    def context(self) -> tf.distribute.InputContext:
        """Says to functions of data which share is this process's."""
        return tf.distribute.InputContext(self.number, self.index, self.replicas)

    def scope(self) -> AbstractContextManager[Any]:
        """The strategy's scope; empty variables stay here: TensorFlow dies of sending one."""

        def own_where_empty(create: Any, **options: Any) -> tf.Variable:
            value = options["initial_value"]
            options["initial_value"] = value = value() if callable(value) else value
            if tf.size(value) > 0:
                return create(**options)
            return default_variable_creator_v2(None, **options)

        stack = ExitStack()
        stack.enter_context(self.strategy.scope())
        if self.number > 1:
            stack.enter_context(tf.variable_creator_scope(own_where_empty))
        return stack

    def _by_replica(self, value: Callable[[int], tf.Tensor]) -> Any:
        return self.strategy.experimental_distribute_values_from_function(
            lambda context: value(int(context.replica_id_in_sync_group))
        )

    def distributed(self, tensors: Mapping[int, Sequence[tf.Tensor]]) -> list[Any]:
        """The local replicas' lists of tensors as one list of values per replica."""
        number = len(next(iter(tensors.values())))
        return [self._by_replica(lambda r: tensors[r][i]) for i in range(number)]  # noqa: B023

    def first(self, values: Any) -> Any:
        """The value of this process's first replica, as numpy's."""
        return self.strategy.experimental_local_results(values)[0].numpy()

    def sum(self, vector: AnyNDArray) -> AnyNDArray:
        """The sum of vectors [n] of 64-bit numbers over processes, the same bits on each."""
        size = len(vector)
        whole = np.zeros(size if size > _MANY else max(1 << (size - 1).bit_length(), _FEW))
        whole = whole.astype(vector.dtype)

        def share(replica: int) -> tf.Tensor:  # the first replica of each process contributes
            whole[:size] = vector if replica == self.local[0] else 0
            return tf.constant(whole)

        return self.first(self._total(self._by_replica(share)))[:size]

    def _added(self, values: tf.Tensor) -> tf.Tensor:
        def reduce(value: tf.Tensor) -> tf.Tensor:
            value = tf.identity(value)  # placed on a device, which an argument is not
            context = tf.distribute.get_replica_context()
            return context.all_reduce(tf.distribute.ReduceOp.SUM, value, self.options)

        return self.strategy.run(reduce, args=(values,))

    @contextmanager
    def watched(self, remedy: str) -> Iterator[None]:
        """Turns TensorFlow's errors of connections into a LostWorkerError."""
        try:
            yield
        except _LOST as error:
            if self.number == 1:
                raise
            raise LostWorkerError(
                f"another worker is gone, or did not answer within {self.timeout:g} s "
                f"({type(error).__name__}). {remedy}"
            ) from error


def check_alike(arguments: Sequence[Mapping[str, str]]) -> None:
    """Raise ValueError if a worker was started with other arguments than the first."""
    first = arguments[0]
    for place, own in enumerate(arguments):
        for name in dict.fromkeys([*first, *own]):
            here, there = own.get(name, "not given"), first.get(name, "not given")
            if here != there:
                raise ValueError(
                    f"{name}: worker {place} was started with {here}, worker 0 with {there}; all "
                    "workers must be given the same arguments, but for their data."
                )


# --- arrays and datasets as Keras's ``fit`` takes them ------------------------------------------

Share = tuple[Any, ...]
"""X and Y, and sample weights where there are any; X and Y may be dicts, lists or tuples."""
Data: TypeAlias = "tuple[Any, ...] | tf.data.Dataset | Callable[[Any], tf.data.Dataset]"


def named(share: Share) -> dict[str, Any]:
    """The parts of a share, under names for messages: ``X['wide']``."""
    return {
        name + "".join(f"[{key!r}]" for key in path): leaf
        for name, part in zip(("X", "Y", "sample_weight"), share)
        for path, leaf in keras.tree.flatten_with_path(part)
    }


def arrays_of(data: Sequence[Any], name: str = "data") -> Share:
    """X, Y and perhaps sample weights (or None) as numpy arrays; ``name`` is for messages."""
    data = tuple(data)
    if len(data) == 3 and data[2] is None:
        data = data[:2]
    if len(data) not in (2, 3):
        raise ValueError(
            f"{name}, where no sample_weight comes third, must be a pair (X, Y); got "
            f"{len(data)} entries."
        )
    arrays = tuple(_array(part) for part in data)
    sizes = {part: len(np.atleast_1d(values)) for part, values in named(arrays).items()}
    if len(set(sizes.values())) != 1:
        counted = ", ".join(f"{part} has {size} rows" for part, size in sizes.items())
        raise ValueError(f"{name}: {counted or 'no array'}; X and Y must have equally many rows.")
    if len(arrays) == 3:
        bad = np.flatnonzero(~(np.isfinite(arrays[2]) & (arrays[2] >= 0)))
        if len(bad):
            raise ValueError(
                f"{name}: sample_weight must be finite and not negative; entry {bad[0]} is not."
            )
    return arrays


def _array(part: Any) -> Any:
    if isinstance(part, Mapping):
        return {key: _array(value) for key, value in part.items()}
    if isinstance(part, (list, tuple)) and part and all(hasattr(v, "shape") for v in part):
        return tuple(np.asarray(value) for value in part)
    return np.asarray(part)


def number_of_rows(arrays: Share) -> int:
    """N of arrays [N, ...]."""
    return len(tf.nest.flatten(arrays)[0])


def rows_of(dataset: tf.data.Dataset, name: str = "data") -> tf.data.Dataset:
    """The rows of a dataset of rows, or of batches whose size ``batch`` leaves unknown."""
    specs = tf.nest.flatten(_checked(dataset, name).element_spec)
    batched = all(spec.shape.rank and spec.shape[0] is None for spec in specs)
    return dataset.unbatch() if batched else dataset


def _checked(dataset: tf.data.Dataset, name: str = "data") -> tf.data.Dataset:
    spec = dataset.element_spec
    dense = all(isinstance(s, tf.TensorSpec) for s in tf.nest.flatten(spec))
    if not (isinstance(spec, tuple) and len(spec) in (2, 3) and dense):
        raise ValueError(
            f"{name} must be a dataset of pairs (X, Y) of tensors, or of (X, Y, sample_weight); it "
            f"gives {spec}."
        )
    return dataset


def checksum(arrays: Share) -> int:
    """Tells other numbers from these."""
    value = 0
    for part in map(np.asarray, tf.nest.flatten(arrays)):
        part = part.astype(bytes) if part.dtype == object else part  # strings of a dataset
        value = zlib.crc32(np.ascontiguousarray(part).data, value)
    return value


class Reader:
    """A dataset's elements by number, the first again after the last; it can be resumed."""

    _FILES = ".index", ".data-00000-of-00001"

    def __init__(self, dataset: tf.data.Dataset) -> None:
        self._dataset = dataset.repeat().prefetch(1)
        self._iterator: Any = None
        self._next = 0

    def __call__(self, number: int) -> Share:
        """Element ``number``; fast if it follows the last one, otherwise all before are read."""
        if self._iterator is None or number != self._next:
            self._iterator, self._next = iter(self._dataset), 0
        while True:
            element = next(self._iterator, None)
            if element is None:
                raise ValueError(
                    "data ran out before the first whole batch; lower batch_size or give more rows."
                )
            self._next += 1
            if self._next > number:
                return element

    def position(self) -> bytes:
        """TensorFlow's state of the iterator; empty where it keeps none (``from_generator``)."""
        with tempfile.TemporaryDirectory() as folder:
            prefix = Path(folder) / "position"
            try:
                tf.train.Checkpoint(iterator=self._iterator).write(str(prefix))
            except tf.errors.OpError:
                return b""
            parts = [Path(f"{prefix}{end}").read_bytes() for end in self._FILES]
        return len(parts[0]).to_bytes(8, "little") + b"".join(parts)

    def restore(self, number: int, position: bytes) -> None:
        """Go on at element ``number``; where the position is of no use it is read up to."""
        if not position:
            return
        size = 8 + int.from_bytes(position[:8], "little")
        iterator = iter(self._dataset)
        with tempfile.TemporaryDirectory() as folder:
            prefix = Path(folder) / "position"
            for end, content in zip(self._FILES, (position[8:size], position[size:])):
                Path(f"{prefix}{end}").write_bytes(content)
            try:
                tf.train.Checkpoint(iterator=iterator).read(str(prefix)).assert_consumed()
            except Exception:  # TensorFlow reports other or damaged iterators in many ways
                return
        self._iterator, self._next = iterator, number


class Batches:
    """
    Batches that follow from the step alone, of which each replica has an equal share.

    Those of arrays come in a new order each epoch, those of a dataset in its own; of a function
    each worker has its own, which its replicas take in turn.
    """

    def __init__(
        self, data: Data, batch_size: int, replicas: int, local: Sequence[int], seed: int
    ) -> None:
        if batch_size % replicas:
            raise ValueError(
                f"batch_size={batch_size} must be a multiple of the {replicas} replicas, each of "
                "which takes an equal share; try "
                f"{batch_size - batch_size % replicas or replicas}."
            )
        self.batch_size, self.local, self._seed = batch_size, local, seed
        self.rows = batch_size // replicas  # of a share
        self.num_data: int | None = None
        self.is_shared = True  # whether all workers read the same
        self.arrays: Share | None = None
        self._order: tuple[int, AnyNDArray] | None = None
        self._reader: Reader | None = None
        if isinstance(data, tf.data.Dataset):
            dataset = rows_of(data)
            number = int(dataset.cardinality())
            self.num_data = number if number >= 0 else None
            self._reader = Reader(dataset.batch(batch_size, drop_remainder=True))
        elif isinstance(data, (tuple, list)):
            self.arrays = arrays_of(data)
            self.num_data = number_of_rows(self.arrays)
        elif callable(data):
            self.is_shared, workers = False, replicas // len(local)
            context = tf.distribute.InputContext(workers, local[0] // len(local), replicas)
            self._reader = Reader(_checked(data(context)))
        else:
            raise TypeError(
                "data must be a pair of arrays (X, Y), a tf.data.Dataset of pairs, or a function "
                f"from a tf.distribute.InputContext to a tf.data.Dataset; got "
                f"{type(data).__name__}."
            )
        if self.num_data is not None and batch_size > self.num_data:
            raise ValueError(
                f"batch_size={batch_size} is more than the {self.num_data} rows of data; lower it."
            )
        first = self._read(0)
        self.first = self._cut(first, 0)  # a share
        self.digest: int | None = None  # tells other data from these
        if self.is_shared:
            self.digest = checksum(first if self.arrays is None else self.arrays)

    def shares(self, step: int) -> dict[int, Share]:
        """X [B / R, ...], Y and perhaps sample weights of the local replicas at a step, from 0."""
        if self.is_shared:
            batch = self._read(step)
            return {r: self._cut(batch, r) for r in self.local}
        places = enumerate(self.local, step * len(self.local))
        return {r: self._own(self._read(number)) for number, r in places}

    def _read(self, number: int) -> Share:
        if self._reader is not None:
            return self._reader(number)
        assert self.arrays is not None
        assert self.num_data is not None
        epoch, batch = divmod(number, self.num_data // self.batch_size)
        if self._order is None or self._order[0] != epoch:
            rng = np.random.default_rng((self._seed, epoch))
            self._order = epoch, rng.permutation(self.num_data)
        rows = self._order[1][batch * self.batch_size : (batch + 1) * self.batch_size]
        return tf.nest.map_structure(lambda v: v[rows], self.arrays)

    def _cut(self, batch: Share, replica: int) -> Share:
        part = slice(replica * self.rows, (replica + 1) * self.rows)
        return tf.nest.map_structure(lambda v: tf.convert_to_tensor(v[part]), batch)

    def _own(self, share: Share) -> Share:
        sizes = {name: v.shape[0] if v.shape.rank else 1 for name, v in named(share).items()}
        if set(sizes.values()) != {self.rows}:
            counted = ", ".join(f"{rows} rows of {name}" for name, rows in sizes.items())
            raise ValueError(
                f"data gives a batch of {counted}; each replica needs batch_size / replicas = "
                f"{self.rows}. End the dataset in .batch({self.rows}, drop_remainder=True)."
            )
        return share

    def position(self) -> bytes:
        """Where reading goes on, of datasets."""
        return b"" if self._reader is None else self._reader.position()

    def restore(self, step: int, position: bytes) -> None:
        if self._reader is not None:
            reads = 1 if self.is_shared else len(self.local)
            self._reader.restore(step * reads, position)
