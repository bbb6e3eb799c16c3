"""The workers of a strategy: what they tell each other, and what is said when one is gone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from tensorflow.python.ops.resource_variable_ops import default_variable_creator_v2

from ..optimizers.minimizers import Traced

_LOST = (
    tf.errors.UnavailableError,
    tf.errors.DeadlineExceededError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.InternalError,
    tf.errors.FailedPreconditionError,
)
"""Errors of TensorFlow where another process does not answer; which one depends on the moment."""

_FEW, _MANY = 64, 4096  # lengths up to which vectors are padded, as each is compiled anew


def workers_of(strategy: object, timeout: float) -> Workers:
    """This process among those of a strategy; None for that of the scope, or one device."""
    if strategy is not None and not isinstance(strategy, tf.distribute.Strategy):
        raise TypeError(f"strategy must be of tf.distribute; got {type(strategy).__name__}.")
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
        self._totals: dict[tuple[int, Any], Traced] = {}

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

    def sum(self, vector: AnyNDArray) -> AnyNDArray:
        """The sum of vectors [n] of 64-bit numbers over processes, the same bits on each."""
        if not self.several:
            return vector
        size = len(vector)
        if size > _MANY:
            return self._sum(vector)
        wider = np.zeros(max(1 << (size - 1).bit_length(), _FEW), dtype=vector.dtype)
        wider[:size] = vector
        return self._sum(wider)[:size]

    def count(self, flag: bool) -> int:
        """On how many workers ``flag`` is true; each waits for all."""
        return int(self._sum(np.array([int(flag)]))[0]) if self.several else int(flag)

    def from_chief(self, payload: bytes) -> bytes:
        """The chief's ``payload``, on every worker."""
        if not self.several:
            return payload
        # whole numbers, because a sum with zeros leaves those as they are, bit for bit
        size = int(self._sum(np.array([len(payload) if self.chief else 0]))[0])
        if size == 0:  # TensorFlow dies of reducing an empty vector
            return b""
        words = np.zeros(-(-size // 8) * 8, np.uint8)
        if self.chief:
            words[:size] = np.frombuffer(payload, np.uint8)
        return bytes(self._sum(words.view(np.int64)).tobytes()[:size])

    def gather(self, payload: bytes) -> list[bytes]:
        """The ``payload`` of each worker, on every one."""
        if not self.several:
            return [payload]
        sizes = np.zeros(self.number, np.int64)
        sizes[self.index] = len(payload)
        sizes = self.sum(sizes)
        # to few different lengths, each of which is compiled anew
        width = 1 << (-(-int(sizes.max()) // 8)).bit_length()
        words = np.zeros((self.number, width), np.int64)
        words[self.index].view(np.uint8)[: len(payload)] = np.frombuffer(payload, np.uint8)
        rows = self.sum(words.ravel()).reshape(words.shape)
        return [row.tobytes()[:size] for row, size in zip(rows, sizes)]

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

    def _sum(self, vector: AnyNDArray) -> AnyNDArray:
        """The sum over processes, to which the first replica of each contributes."""

        def share(context: tf.distribute.experimental.ValueContext) -> tf.Tensor:
            first = int(context.replica_id_in_sync_group) == self.local[0]
            return tf.constant(vector if first else np.zeros_like(vector))

        values = self.strategy.experimental_distribute_values_from_function(share)
        # one for each size: a trace is for arguments of the same shapes
        total = self._totals.setdefault((vector.size, vector.dtype), Traced(self._total))
        return self.strategy.experimental_local_results(total(values))[0].numpy()

    def _total(self, values: tf.Tensor) -> tf.Tensor:
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
