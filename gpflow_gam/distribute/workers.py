"""The workers of a strategy, and what they have to agree about."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

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

    @contextmanager
    def scope(self) -> Iterator[None]:
        """The strategy's scope; empty variables stay here: TensorFlow dies of sending one."""

        def own_where_empty(create: Any, **options: Any) -> tf.Variable:
            if self.number == 1:
                return create(**options)
            value = options["initial_value"]
            options["initial_value"] = value = value() if callable(value) else value
            if tf.size(value) > 0:
                return create(**options)
            return default_variable_creator_v2(None, **options)

        with self.strategy.scope(), tf.variable_creator_scope(own_where_empty):
            yield

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


def first_difference(
    there: Mapping[str, Any], here: Mapping[str, Any]
) -> tuple[str, Any, Any] | None:
    """The first argument that is another one here than there, and both."""
    for name in dict.fromkeys([*there, *here]):
        if there.get(name) != here.get(name):
            return name, there.get(name), here.get(name)
    return None


def check_alike(arguments: Sequence[Mapping[str, str]]) -> None:
    """Raise ValueError if a worker was started with other arguments than the first."""
    for place, own in enumerate(arguments):
        if other := first_difference(arguments[0], own):
            name, first, here = other
            raise ValueError(
                f"{name}: worker {place} was started with {here}, worker 0 with {first}; all "
                "workers must be given the same arguments, but for their data."
            )
