"""Sums over the rows of the data in memory that does not grow with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

Tensors = tuple[tf.Tensor, ...]
RowSum = Callable[..., Tensors]

DEFAULT_BLOCK = 8192
"""Rows of a block: large enough to keep two cores busy, small enough to stay near the caches."""


def sum_over_rows(
    fn: RowSum, rows: Sequence[tf.Tensor], inputs: Sequence[tf.Tensor], block: int = DEFAULT_BLOCK
) -> Tensors:
    """
    ``fn(inputs, *rows)``, which sums over rows [N, ...], block by block, and so its gradient.

    Gradients reach ``inputs`` and the variables that ``fn`` reads, in memory for one block.
    """
    number = rows[0].shape[0]
    if number is not None and number <= block:
        return fn(inputs, *rows)
    size = tf.shape(rows[0])[0]

    def slices(start: tf.Tensor) -> list[tf.Tensor]:
        return [r[start : start + block] for r in rows]

    def loop(step: Callable[[tf.Tensor], Tensors]) -> Tensors:
        def body(start: tf.Tensor, *totals: tf.Tensor) -> Tensors:
            return (start + block, *(t + s for t, s in zip(totals, step(start))))

        first = step(tf.constant(0))
        result = tf.while_loop(
            lambda start, *_: start < size,
            body,
            (tf.constant(block), *first),
            parallel_iterations=1,  # one block in memory at a time
        )
        return tuple(result[1:])

    @tf.custom_gradient
    def total(*flat: tf.Tensor) -> tuple[Tensors, Callable[..., Any]]:
        def gradient(*upstream: tf.Tensor, variables: Sequence[tf.Variable] | None = None) -> Any:
            sources = [*flat, *(variables or ())]

            def step(start: tf.Tensor) -> Tensors:
                with tf.GradientTape(watch_accessed_variables=False) as tape:
                    tape.watch(sources)
                    parts = fn(flat, *slices(start))
                    value = tf.add_n([tf.reduce_sum(u * p) for u, p in zip(upstream, parts)])
                grads = tape.gradient(value, sources, unconnected_gradients="zero")
                return tuple(tf.convert_to_tensor(g) for g in grads)

            grads = list(loop(step))
            own, others = grads[: len(flat)], grads[len(flat) :]
            return own if variables is None else (own, others)

        return loop(lambda start: fn(flat, *slices(start))), gradient

    return tuple(total(*inputs))
