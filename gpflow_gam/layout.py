"""The places of components' blocks in a stacked vector of inducing values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray


@dataclass(frozen=True)
class BlockLayout:
    """
    The blocks of U = [U_1, ..., U_C] in R^P, of sizes M_c, and which are worked on together.

    Parameters are stored in *component order*. Inside, arrays are in *group order*: the blocks
    of one group, all of size M, stand side by side, so that a group's part reshapes to [G, M,
    ...].
    """

    sizes: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if sorted(i for g in self.groups for i in g) != list(range(len(self.sizes))):
            raise ValueError(f"groups {self.groups} are no partition of {len(self.sizes)} blocks.")
        for g in self.groups:
            if len({self.sizes[i] for i in g}) != 1:
                raise ValueError(f"group {g} mixes block sizes {[self.sizes[i] for i in g]}.")

    @property
    def num_components(self) -> int:
        """C."""
        return len(self.sizes)

    @property
    def total(self) -> int:
        """P, the sum of the block sizes."""
        return sum(self.sizes)

    @property
    def group_shapes(self) -> tuple[tuple[int, int], ...]:
        """(G, M) of every group."""
        return tuple((len(g), self.sizes[g[0]]) for g in self.groups)

    @property
    def component_order(self) -> list[int]:
        """Component indices in group order."""
        return [i for g in self.groups for i in g]

    @cached_property
    def offsets(self) -> AnyNDArray:
        """Offset of each component's block, in component order, and P at the end: [C + 1]."""
        return np.concatenate([[0], np.cumsum(self.sizes)])

    @cached_property
    def order(self) -> AnyNDArray:
        """Component-order positions in group order, [P]: ``x_group = x_component[order]``."""
        blocks = [np.arange(self.offsets[i], self.offsets[i + 1]) for i in self.component_order]
        return np.concatenate(blocks).astype(np.int32)

    def to_groups(self, x: tf.Tensor, axis: int = -2) -> tf.Tensor:
        """[..., P, ...] from component order to group order along ``axis``."""
        return _permuted(x, self.order, axis)

    def to_components(self, x: tf.Tensor, axis: int = -2) -> tf.Tensor:
        """[..., P, ...] from group order to component order along ``axis``."""
        return _permuted(x, np.argsort(self.order), axis)

    def spread(self, members: AnyNDArray | None) -> AnyNDArray | None:
        """Mask of the components of each output, [L, C], for each entry in group order, [L, P]."""
        if members is None:
            return None
        whole = np.repeat(members, self.sizes, axis=1)
        return np.asarray(whole[:, self.order], dtype=np.float64)

    def split(self, x: tf.Tensor) -> list[tf.Tensor]:
        """[..., P, K] in group order -> a list of [..., G, M, K]."""
        parts = tf.split(x, [g * m for g, m in self.group_shapes], axis=-2)
        return [_with_rows(p, 1, [g, m]) for p, (g, m) in zip(parts, self.group_shapes)]

    def concat(self, parts: Sequence[tf.Tensor]) -> tf.Tensor:
        """The inverse of :meth:`split`."""
        flat = [_with_rows(p, 2, [g * m]) for p, (g, m) in zip(parts, self.group_shapes)]
        return flat[0] if len(flat) == 1 else tf.concat(flat, axis=-2)

    def restore_components(self, parts: Sequence[tf.Tensor], axis: int = 0) -> tf.Tensor:
        """[..., G, ...] of each group, one slice a component along ``axis``, -> [..., C, ...]."""
        x = parts[0] if len(parts) == 1 else tf.concat(list(parts), axis=axis)
        return _permuted(x, np.argsort(self.component_order), axis)


def _permuted(x: tf.Tensor, places: AnyNDArray, axis: int) -> tf.Tensor:
    """Entries at these places along an axis; free where they are all in order."""
    if np.array_equal(places, np.arange(len(places))):
        return x
    return tf.gather(x, places, axis=axis)


def _with_rows(x: tf.Tensor, axes: int, rows: list[int]) -> tf.Tensor:
    """``x`` with the ``axes`` axes before its last one reshaped to ``rows``."""
    if x.shape.rank is not None:
        known = x.shape.as_list()
        wanted = [*known[: -axes - 1], *rows, known[-1]]
        if wanted.count(None) <= (0 not in wanted):  # one operation instead of a dozen
            return tf.reshape(x, [-1 if size is None else size for size in wanted])
    shape = tf.shape(x)
    return tf.reshape(x, tf.concat([shape[: -axes - 1], rows, shape[-1:]], axis=0))
