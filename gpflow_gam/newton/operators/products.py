"""Products with a kernel's matrix: at once where it is small, else block by block, compiled."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import tensorflow as tf
from gpflow.kernels import Kernel
from gpflow.utilities import deepcopy, set_trainable

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
    ``tf.distribute`` strategy each replica takes a block of rows, of the gradient, too.

    The kernel is evaluated in the inputs' precision; entries are multiplied and summed in that of
    V. It may be frozen and set free again, but not taken apart: a kernel whose parameters were
    replaced by other objects needs a new product.

    :param kernel: any GPflow kernel of one output.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self._compiled = Compiled(self._product)
        self._copies: dict[tuple[str, ...], list[KernelProduct]] = {}
        self._runs: dict[Hashable, Callable[..., Any]] = {}

    def __call__(self, X1: tf.Tensor, X2: tf.Tensor, V: tf.Tensor) -> tf.Tensor:
        """
        :param X1: [N, D].
        :param X2: [M, D].
        :param V: [M, R]; R may be unknown while a function is compiled.
        :return: [N, R].
        """
        if tf.distribute.has_strategy() and tf.distribute.in_cross_replica_context():
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
        """A block of rows of ``k(X1, X2)`` on each replica, and in the gradient, too."""
        variables = list(self.kernel.trainable_variables)

        def product(X1: tf.Tensor, X2: tf.Tensor, V: tf.Tensor) -> tf.Tensor:
            found = self._placed(strategy, "product")(_divisible(strategy, X1), X2, V)
            N = int(X1.shape[0])
            return tf.ensure_shape(strategy.gather(found, axis=0)[:N], [N, V.shape[1]])

        def slopes(U: tf.Tensor) -> list[tf.Tensor]:
            rows = _divisible(strategy, X1), _divisible(strategy, U, tf.zeros_like(U[:1]))
            found = self._placed(strategy, "slopes")(*rows, X2, V)
            return [strategy.reduce(tf.distribute.ReduceOp.SUM, part, axis=None) for part in found]

        def gradient(U: tf.Tensor) -> tuple[tf.Tensor, ...]:
            return (product(X2, X1, U), *(slopes(U) if variables else ()))

        found = product(X1, X2, tf.stop_gradient(V))

        # variables are inputs: a tape follows them and not the replicas' copies
        @tf.custom_gradient
        def follow(*_: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
            return tf.identity(found), gradient

        return follow(V, *variables)

    def _placed(self, strategy: tf.distribute.Strategy, what: str) -> Callable[..., Any]:
        """
        What every replica does with its rows, in one compiled call.

        :param what: "product", of X1, X2 and V, of whose X1 each has a share; or "slopes", of X1,
            U, X2 and V, of whose X1 and U each has a share.
        """
        devices = tuple(strategy.extended.worker_devices)
        copies = self._on_devices(devices)
        free = tuple(v.trainable for v in self.kernel.variables)
        key = devices, what, free
        if key not in self._runs:

            def run(*arguments: tf.Tensor) -> Any:
                replica = tf.distribute.get_replica_context().replica_id_in_sync_group
                at = int(tf.get_static_value(replica))
                copy, each = copies[at], int(arguments[0].shape[0]) // len(copies)
                mine = slice(at * each, (at + 1) * each)
                if what == "product":
                    X1, X2, V = arguments
                    return copy._on_one_device(X1[mine], X2, V)
                X1, U, X2, V = arguments
                variables = [v for v, is_free in zip(copy.kernel.variables, free) if is_free]
                return copy._slopes(X1[mine], X2, V, U[mine], variables)

            self._runs[key] = tf.function(
                lambda *arguments: strategy.run(run, args=arguments), autograph=False
            )
        return self._runs[key]

    def _on_devices(self, devices: tuple[str, ...]) -> list[KernelProduct]:
        """The same product with the kernel's present parameters on each device: XLA reads no
        others."""
        if devices not in self._copies:
            copies = []
            for device in devices:
                with tf.device(device):
                    copies.append(KernelProduct(deepcopy(self.kernel)))
                set_trainable(copies[-1].kernel, False)  # of which no tape takes notice
            self._copies[devices] = copies
        for copy in self._copies[devices]:
            for theirs, ours in zip(copy.kernel.variables, self.kernel.variables):
                theirs.assign(ours)
        return self._copies[devices]

    def _slopes(
        self,
        X1: tf.Tensor,
        X2: tf.Tensor,
        V: tf.Tensor,
        U: tf.Tensor,
        variables: Sequence[tf.Variable],
    ) -> list[tf.Tensor]:
        """d tr(U' K V) / d theta, where K is small at once."""
        if not is_small(X1, X2):

            def slopes(X1: tf.Tensor, X2: tf.Tensor, V: tf.Tensor, U: tf.Tensor) -> Any:
                return self._run_gradient(X1, X2, V, U, variables)

            return list(Compiled(slopes)(X1, X2, V, U))
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            K = tf.cast(self.kernel(X1, X2), V.dtype)
            value = tf.reduce_sum(K * tf.matmul(U, V, transpose_b=True))
        found = tape.gradient(value, variables, unconnected_gradients="zero")
        return [tf.convert_to_tensor(slope) for slope in found]

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
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(variables)  # replicas' are not trainable
                value = tf.reduce_sum(tf.cast(self.kernel(block, X2), V.dtype) * weights)
            parts = tape.gradient(value, variables, unconnected_gradients="zero")
            return (i + 1, *(t + tf.convert_to_tensor(p) for t, p in zip(totals, parts)))

        start = (tf.constant(0), *(tf.zeros(v.shape, dtype=v.dtype) for v in variables))
        found = tf.while_loop(lambda i, *_: i < number, body, start, parallel_iterations=1)
        return list(found[1:])


def _divisible(
    strategy: tf.distribute.Strategy, rows: tf.Tensor, spare: tf.Tensor | None = None
) -> tf.Tensor:
    """Rows [n, D] and some to spare, the first one over and over, as many for each replica."""
    missing = -int(rows.shape[0]) % strategy.num_replicas_in_sync
    spare = rows[:1] if spare is None else spare
    return tf.concat([rows, tf.repeat(spare, missing, axis=0)], axis=0)
