"""Products with a kernel's matrix: at once where it is small, else block by block, compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from gpflow.kernels import Kernel
from gpflow.utilities import deepcopy

from .compiled import Compiled, is_small

_NARROW, _ENTRIES = 64, (2**19, 2**22)
"""Entries of a block of rows: near the caches, or, with more right-hand sides than so many, large
enough that these are not read too often."""


def _rows_of_block(num_rows: int, num_columns: int, width: int | None) -> int:
    narrow = width is not None and width <= _NARROW
    entries = _ENTRIES[0] if narrow else _ENTRIES[1]
    return max(1, min(num_rows, entries // max(num_columns, 1)))


class KernelProduct:
    """
    ``k(X1, X2) V`` in memory for one block of rows, differentiable in V and kernel parameters.

    A small matrix is made whole, and nothing compiled. Any other takes a ``tf.while_loop`` over
    blocks inside one XLA program; the gradient is that of the whole product and runs a second such
    loop, where automatic differentiation would keep every block. In the scope of a
    ``tf.distribute`` strategy each replica takes a block of rows.

    The kernel is evaluated in the inputs' precision; entries are multiplied and summed in that of
    V. It may be frozen and set free again, but not taken apart: a kernel whose parameters were
    replaced by other objects needs a new product.

    :param kernel: any GPflow kernel of one output.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self._compiled = Compiled(self._product)
        self._copies: dict[tuple[str, ...], list[KernelProduct]] = {}
        self._runs: dict[tuple[str, ...], Callable[..., Any]] = {}

    def __call__(self, X1: tf.Tensor, X2: tf.Tensor, V: tf.Tensor) -> tf.Tensor:
        """
        :param X1: [N, D].
        :param X2: [M, D].
        :param V: [M, R]; R may be unknown while a function is compiled.
        :return: [N, R].
        """
        if tf.executing_eagerly() and tf.distribute.has_strategy():
            return self._distributed(tf.distribute.get_strategy(), X1, X2, V)
        return self._on_one_device(X1, X2, V)

    def _on_one_device(self, X1: tf.Tensor, X2: tf.Tensor, V: tf.Tensor) -> tf.Tensor:
        if is_small(X1, X2):
            return tf.matmul(tf.cast(self.kernel(X1, X2), V.dtype), V)
        # its gradient is of those variables that were trainable when it was traced
        return self._compiled(X1, X2, V, variant=tuple(v.trainable for v in self.kernel.variables))

    def _distributed(
        self, strategy: tf.distribute.Strategy, X1: tf.Tensor, X2: tf.Tensor, V: tf.Tensor
    ) -> tf.Tensor:
        """A block of rows on each replica. Not differentiable: gradients run on one device."""
        replicas, N = strategy.num_replicas_in_sync, int(X1.shape[0])
        rows = -(-N // replicas)
        X1 = tf.concat([X1, tf.repeat(X1[:1], replicas * rows - N, axis=0)], axis=0)
        blocks = tf.split(X1, replicas)
        mine = strategy.experimental_distribute_values_from_function(
            lambda context: blocks[context.replica_id_in_sync_group]
        )
        found = self._placed(strategy)(mine, X2, V)
        return strategy.gather(found, axis=0)[:N]

    def _placed(self, strategy: tf.distribute.Strategy) -> Callable[..., Any]:
        """The product of each replica's rows, in one compiled call."""
        devices = tuple(strategy.extended.worker_devices)
        copies = self._on_devices(devices)
        if devices not in self._runs:

            def run(block: tf.Tensor, X2: tf.Tensor, V: tf.Tensor) -> tf.Tensor:
                replica = tf.distribute.get_replica_context().replica_id_in_sync_group
                return copies[int(tf.get_static_value(replica))]._on_one_device(block, X2, V)

            self._runs[devices] = tf.function(
                lambda *arguments: strategy.run(run, args=arguments), autograph=False
            )
        return self._runs[devices]

    def _on_devices(self, devices: tuple[str, ...]) -> list[KernelProduct]:
        """The same product with the kernel's present parameters on each device: XLA reads no
        others."""
        if devices not in self._copies:
            copies = []
            for device in devices:
                with tf.device(device):
                    copies.append(KernelProduct(deepcopy(self.kernel)))
            self._copies[devices] = copies
        for copy in self._copies[devices]:
            for theirs, ours in zip(copy.kernel.variables, self.kernel.variables):
                theirs.assign(ours)
        return self._copies[devices]

    def _product(self, X1: tf.Tensor, X2: tf.Tensor, V: tf.Tensor) -> tf.Tensor:
        # The gradient has to be inside the compiled function: TensorFlow differentiates whatever
        # it calls while a tape is open, and would keep every block of the loop.
        @tf.custom_gradient
        def product(V: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
            def gradient(U: tf.Tensor, variables: Sequence[tf.Variable] | None = None) -> Any:
                to_V = self._run(X2, X1, U)
                if variables is None:
                    return to_V
                return to_V, self._run_gradient(X1, X2, V, U, variables)

            return self._run(X1, X2, V), gradient

        return product(V)

    def _blocks(self, X1: tf.Tensor, X2: tf.Tensor, V: tf.Tensor) -> tuple[tf.Tensor, int, int]:
        """X1 with rows to spare, how many blocks it has and of how many rows."""
        N = int(X1.shape[0])
        rows = _rows_of_block(N, int(X2.shape[0]), V.shape[1])
        number = -(-N // rows)
        spare = tf.repeat(X1[:1], number * rows - N, axis=0)
        return tf.concat([X1, spare], axis=0), number, rows

    def _run(self, X1: tf.Tensor, X2: tf.Tensor, V: tf.Tensor) -> tf.Tensor:
        N = int(X1.shape[0])
        if N == 0 or X2.shape[0] == 0:
            return tf.zeros([N, tf.shape(V)[1]], dtype=V.dtype)
        X1, number, rows = self._blocks(X1, X2, V)

        def body(i: tf.Tensor, done: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            block = tf.slice(X1, [i * rows, 0], [rows, X1.shape[1]])
            return i + 1, done.write(i, tf.matmul(tf.cast(self.kernel(block, X2), V.dtype), V))

        done = tf.TensorArray(V.dtype, size=number, element_shape=[rows, V.shape[1]])
        _, done = tf.while_loop(
            lambda i, _: i < number, body, (tf.constant(0), done), parallel_iterations=1
        )
        found = tf.reshape(done.stack(), [number * rows, tf.shape(V)[1]])[:N]
        return tf.ensure_shape(found, [N, V.shape[1]])

    def _run_gradient(
        self,
        X1: tf.Tensor,
        X2: tf.Tensor,
        V: tf.Tensor,
        U: tf.Tensor,
        variables: Sequence[tf.Variable],
    ) -> list[tf.Tensor]:
        """d tr(U' K V) / d theta of the kernel's variables."""
        N = int(X1.shape[0])
        X1, number, rows = self._blocks(X1, X2, V)
        U = tf.pad(U, [[0, number * rows - N], [0, 0]])

        def body(i: tf.Tensor, *totals: tf.Tensor) -> tuple[tf.Tensor, ...]:
            block = tf.slice(X1, [i * rows, 0], [rows, X1.shape[1]])
            weights = tf.slice(U, [i * rows, 0], [rows, tf.shape(U)[1]])
            weights = tf.matmul(weights, V, transpose_b=True)  # d / d K
            with tf.GradientTape() as tape:
                value = tf.reduce_sum(tf.cast(self.kernel(block, X2), V.dtype) * weights)
            parts = tape.gradient(value, variables, unconnected_gradients="zero")
            return (i + 1, *(t + tf.convert_to_tensor(p) for t, p in zip(totals, parts)))

        start = (tf.constant(0), *(tf.zeros(v.shape, dtype=v.dtype) for v in variables))
        found = tf.while_loop(lambda i, *_: i < number, body, start, parallel_iterations=1)
        return list(found[1:])
