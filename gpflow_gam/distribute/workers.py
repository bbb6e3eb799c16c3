"""The workers of a strategy, and batches that follow from seed and step, cut into shares."""

from __future__ import annotations

import abc
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


def workers_of(strategy: object, timeout: float) -> Workers:
    """This process among those of a strategy; None for that of the scope, or one device."""
    if isinstance(strategy, tf.distribute.ParameterServerStrategy):
        raise TypeError(
            "strategy must be synchronous: a MirroredStrategy or MultiWorkerMirroredStrategy; got "
            "ParameterServerStrategy."
        )
    if not timeout > 0.0:
        raise ValueError(f"timeout must be positive; got {timeout}.")
    return Workers(tf.distribute.get_strategy() if strategy is None else strategy, timeout)


def _own_where_empty(create: Any, **options: Any) -> tf.Variable:
    value = options["initial_value"]
    value = value() if callable(value) else value
    if tf.size(value) > 0:
        return create(**{**options, "initial_value": value})
    return default_variable_creator_v2(None, **{**options, "initial_value": value})


class LostWorkerError(RuntimeError):
    """Another worker is gone, or did not answer in time; nothing can be computed without it."""


class Workers:
    """This process among those of a strategy; ``timeout`` is seconds a reduction."""

    def __init__(self, strategy: tf.distribute.Strategy, timeout: float) -> None:
        self.strategy, self.timeout = strategy, timeout
        self.options = tf.distribute.experimental.CommunicationOptions(timeout_seconds=timeout)
        self.local: list[int] = []  # the replicas of this process, by their numbers among all

        def note(context: tf.distribute.experimental.ValueContext) -> tf.Tensor:
            self.local.append(int(context.replica_id_in_sync_group))
            return tf.constant(0)

        strategy.experimental_distribute_values_from_function(note)
        self.replicas = int(strategy.num_replicas_in_sync)
        self._total = Traced(self._added)
        self.communicator = ALONE
        if self.several:
            self.communicator = Communicator(self.sum, self.index, self.number)

    @property
    def chief(self) -> bool:
        """True in the process that writes checkpoints."""
        return 0 in self.local

    @property
    def several(self) -> bool:
        """True if there are other processes."""
        return self.replicas > len(self.local)

    @property
    def index(self) -> int:
        """This process's number, from 0."""
        return self.local[0] // len(self.local)

    @property
    def number(self) -> int:
        """Number of processes."""
        return self.replicas // len(self.local)

    def context(self) -> tf.distribute.InputContext:
        """Says to functions of data which share is this process's."""
        return tf.distribute.InputContext(self.number, self.index, self.replicas)

    def scope(self) -> AbstractContextManager[Any]:
        """The strategy's scope; empty variables stay here: TensorFlow dies of sending one."""
        stack = ExitStack()
        stack.enter_context(self.strategy.scope())
        if self.several:
            stack.enter_context(tf.variable_creator_scope(_own_where_empty))
        return stack

    def distributed(self, tensors: Mapping[int, Sequence[tf.Tensor]]) -> list[Any]:
        """The local replicas' lists of tensors as one list of values per replica."""
        number = len(next(iter(tensors.values())))
        return [
            self.strategy.experimental_distribute_values_from_function(
                lambda context, i=i: tensors[int(context.replica_id_in_sync_group)][i]
            )
            for i in range(number)
        ]

    def sum(self, vector: AnyNDArray) -> AnyNDArray:
        """The sum of vectors [n] of 64-bit numbers over processes, the same bits on each."""
        size = len(vector)
        wide = size if size > _MANY else max(1 << (size - 1).bit_length(), _FEW)

        def share(context: tf.distribute.experimental.ValueContext) -> tf.Tensor:
            # the first replica of each process contributes
            first = int(context.replica_id_in_sync_group) == self.local[0]
            whole = np.zeros(wide, dtype=vector.dtype)
            whole[:size] = vector if first else 0
            return tf.constant(whole)

        values = self.strategy.experimental_distribute_values_from_function(share)
        return self.strategy.experimental_local_results(self._total(values))[0].numpy()[:size]

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
            if not self.several:
                raise
            raise LostWorkerError(
                f"another worker is gone, or did not answer within {self.timeout:g} s "
                f"({type(error).__name__}). {remedy}"
            ) from error


Share = tuple[Any, ...]
"""X and Y, and sample weights where there are any; X and Y may be dicts, lists or tuples."""
PerReplicaBatches = Callable[[Any], Any]  # from an InputContext to a replica's batches
Data: TypeAlias = "tuple[Any, ...] | tf.data.Dataset | PerReplicaBatches"


# --- arrays and datasets as Keras's ``fit`` takes them ------------------------------------------


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
    sizes = {}
    for part_name, part in named(arrays).items():
        if part.ndim == 0 or part.dtype == object:
            raise ValueError(
                f"{name}: {part_name} must be an array of rows; got shape {part.shape} of dtype "
                f"{part.dtype}."
            )
        sizes[part_name] = len(part)
    if len(set(sizes.values())) != 1:
        counted = ", ".join(f"{part_name} has {size} rows" for part_name, size in sizes.items())
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
    spec = _checked_spec(dataset, name)
    shapes = [s.shape for s in tf.nest.flatten(spec)]
    batched = all(shape.rank and shape[0] is None for shape in shapes)
    return dataset.unbatch() if batched else dataset


def _checked_spec(dataset: tf.data.Dataset, name: str = "data") -> Share:
    spec = dataset.element_spec
    dense = all(isinstance(s, tf.TensorSpec) for s in tf.nest.flatten(spec))
    if not (isinstance(spec, tuple) and len(spec) in (2, 3) and dense):
        raise ValueError(
            f"{name} must be a dataset of pairs (X, Y) of tensors, or of (X, Y, sample_weight); it "
            f"gives {spec}."
        )
    return spec


def checksum(arrays: Share) -> int:
    """Tells other numbers from these."""
    value = 0
    for part in tf.nest.flatten(arrays):
        part = part.astype(bytes) if part.dtype == object else part  # strings of a dataset
        value = zlib.crc32(np.ascontiguousarray(part).data, value)
    return value


def next_element(iterator: Iterator[Share]) -> Share:
    """The next element; ValueError if there is none."""
    try:
        return next(iterator)
    except StopIteration:
        raise ValueError(
            "data ran out before the first whole batch; lower batch_size or give more rows."
        ) from None


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
            self._iterator = iter(self._dataset)
            for _ in range(number):
                next_element(self._iterator)
        self._next = number + 1
        return next_element(self._iterator)

    def position(self) -> bytes:
        """TensorFlow's state of the iterator; empty where it keeps none (``from_generator``)."""
        if self._iterator is None:
            return b""
        with tempfile.TemporaryDirectory() as folder:
            prefix = Path(folder) / "position"
            try:
                tf.train.Checkpoint(iterator=self._iterator).write(str(prefix))
            except tf.errors.OpError:
                return b""
            parts = [Path(f"{prefix}{end}").read_bytes() for end in self._FILES]
        return len(parts[0]).to_bytes(8, "little") + b"".join(parts)

    def restore(self, number: int, position: bytes) -> bool:
        """Go on at element ``number``; False if the position is of no use, and is read up to."""
        if not position:
            return False
        size = 8 + int.from_bytes(position[:8], "little")
        iterator = iter(self._dataset)
        with tempfile.TemporaryDirectory() as folder:
            prefix = Path(folder) / "position"
            for end, content in zip(self._FILES, (position[8:size], position[size:])):
                Path(f"{prefix}{end}").write_bytes(content)
            try:
                tf.train.Checkpoint(iterator=iterator).read(str(prefix)).assert_consumed()
            except Exception:  # TensorFlow reports other or damaged iterators in many ways
                return False
        self._iterator, self._next = iterator, number
        return True


class Batches(abc.ABC):
    """A source of batches that follow from the step alone, however many replicas share them."""

    num_data: int | None = None
    is_shared = True  # whether all workers read the same
    reader: Reader | None = None
    reads_per_step = 1

    def __init__(self, structure: Share, batch_size: int, replicas: int) -> None:
        self.structure = structure  # shapes and types of a row
        self.batch_size, self.replicas = batch_size, replicas
        self.rows = batch_size // replicas

    @abc.abstractmethod
    def shares(self, step: int, replicas: Sequence[int]) -> dict[int, Share]:
        """X [B / R, ...], Y and perhaps sample weights of some replicas at a step, from 0."""

    def specs(self) -> Share:
        """The shapes [B / R, ...] and types of a share."""
        return tf.nest.map_structure(self._spec, self.structure)

    def digest(self) -> int | None:
        """A checksum that tells other data from these; None where there is none."""
        return None

    def position(self) -> bytes:
        return b"" if self.reader is None else self.reader.position()

    def restore(self, step: int, position: bytes) -> None:
        if self.reader is not None:
            self.reader.restore(step * self.reads_per_step, position)

    def _cut(self, batch: Share, replicas: Sequence[int]) -> dict[int, Share]:
        parts = {r: slice(r * self.rows, (r + 1) * self.rows) for r in replicas}
        return {
            r: tf.nest.map_structure(lambda v, part=part: tf.convert_to_tensor(v[part]), batch)
            for r, part in parts.items()
        }

    def _spec(self, row: tf.TensorSpec) -> tf.TensorSpec:
        if row.shape.rank is None:
            raise ValueError(
                "data is a dataset that does not say what shape its rows have, which metrics are "
                "made for; state it by tf.ensure_shape in a map."
            )
        return tf.TensorSpec((self.rows, *row.shape), row.dtype)


class ArrayBatches(Batches):
    """Batches of arrays, in a new order each epoch; rows that fill no whole batch are left out."""

    def __init__(self, arrays: Share, batch_size: int, replicas: int, seed: int) -> None:
        specs = tf.nest.map_structure(lambda v: tf.TensorSpec(v.shape[1:], v.dtype), arrays)
        super().__init__(specs, batch_size, replicas)
        self.arrays = arrays
        self._seed = seed
        self.num_data: int = number_of_rows(arrays)
        self._order: tuple[int, AnyNDArray] | None = None

    def shares(self, step: int, replicas: Sequence[int]) -> dict[int, Share]:
        epoch, batch = divmod(step, self.num_data // self.batch_size)
        if self._order is None or self._order[0] != epoch:
            rng = np.random.default_rng((self._seed, epoch))
            self._order = epoch, rng.permutation(self.num_data)
        rows = self._order[1][batch * self.batch_size : (batch + 1) * self.batch_size]
        return self._cut(tf.nest.map_structure(lambda v: v[rows], self.arrays), replicas)

    def digest(self) -> int:
        return checksum(self.arrays)


class StreamBatches(Batches):
    """Batches of a dataset of rows, in its own order, which every worker reads completely."""

    reader: Reader

    def __init__(self, dataset: tf.data.Dataset, batch_size: int, replicas: int) -> None:
        dataset = rows_of(dataset)
        super().__init__(dataset.element_spec, batch_size, replicas)
        number = int(dataset.cardinality())
        if number >= 0:
            _check_enough(number, batch_size)
            self.num_data = number
        self._batches = dataset.batch(batch_size, drop_remainder=True)
        self.reader = Reader(self._batches)

    def shares(self, step: int, replicas: Sequence[int]) -> dict[int, Share]:
        return self._cut(self.reader(step), replicas)

    def digest(self) -> int:
        return checksum(next_element(self._batches.as_numpy_iterator()))


class FunctionBatches(Batches):
    """Batches of each worker's own dataset, which its replicas take in turn."""

    is_shared = False
    reader: Reader

    def __init__(
        self, function: PerReplicaBatches, batch_size: int, replicas: int, local: Sequence[int]
    ) -> None:
        context = tf.distribute.InputContext(
            num_input_pipelines=replicas // len(local),
            input_pipeline_id=local[0] // len(local),
            num_replicas_in_sync=replicas,
        )
        dataset = function(context)
        specs = _checked_spec(dataset)
        rows = tf.nest.map_structure(lambda s: tf.TensorSpec(s.shape[1:], s.dtype), specs)
        super().__init__(rows, batch_size, replicas)
        self.reads_per_step = len(local)
        self.reader = Reader(dataset)

    def shares(self, step: int, replicas: Sequence[int]) -> dict[int, Share]:
        return {r: self._share(step * self.reads_per_step + i) for i, r in enumerate(replicas)}

    def _share(self, number: int) -> Share:
        share = self.reader(number)
        sizes = {name: v.shape[0] if v.shape.rank else 1 for name, v in named(share).items()}
        if set(sizes.values()) != {self.rows}:
            counted = ", ".join(f"{rows} rows of {name}" for name, rows in sizes.items())
            raise ValueError(
                f"data gives a batch of {counted}; each replica needs batch_size / replicas = "
                f"{self.batch_size} / {self.replicas} = {self.rows}. End the dataset in "
                f".batch({self.rows}, drop_remainder=True)."
            )
        return share


def batches_of(
    data: Data, batch_size: int, replicas: int, local: Sequence[int], seed: int
) -> Batches:
    """The source of batches for ``data``; ``local`` are this worker's replicas."""
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
