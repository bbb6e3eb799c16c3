"""Measures made of others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from .base import Measure, checked_probabilities


class Mixture(Measure):
    """
    One of several measures, drawn with given probabilities.

    :param measures: on as many columns each.
    :param probabilities: one a measure, summing to one; equal by default.
    :raises ValueError: no measure, measures of several dimensions, or bad probabilities.
    :raises TypeError: what is no measure.
    """

    def __init__(
        self,
        measures: Sequence[Measure],
        probabilities: AnyNDArray | Sequence[float] | None = None,
    ) -> None:
        self.measures = _checked_parts(measures)
        if len({m.dimension for m in self.measures}) > 1:
            raise ValueError(
                "measures must be on as many columns each; got "
                f"{[m.dimension for m in self.measures]}."
            )
        self.probabilities = checked_probabilities(
            "probabilities", probabilities, len(self.measures), "measure"
        )

    @property
    def dimension(self) -> int:
        return self.measures[0].dimension

    @property
    def bounds(self) -> tuple[AnyNDArray, AnyNDArray] | None:
        ends = [m.bounds for m in self.measures]
        known = [e for e in ends if e is not None]
        if len(known) < len(ends):
            return None
        lower, upper = zip(*known)
        return np.min(lower, axis=0), np.max(upper, axis=0)

    def nodes(self) -> tuple[tf.Tensor | AnyNDArray, tf.Tensor | AnyNDArray]:
        points, weights = zip(*(m.nodes() for m in self.measures))
        shares = [np.asarray(w) * p for w, p in zip(weights, self.probabilities)]
        return np.concatenate([np.asarray(x) for x in points]), np.concatenate(shares)

    def thinned(self, num_nodes: int) -> Mixture:
        each = max(num_nodes // len(self.measures), 1)
        return Mixture([m.thinned(each) for m in self.measures], self.probabilities)

    def transport(self, u: AnyNDArray) -> AnyNDArray:
        # the first number also says which part: within its share it is uniform again
        edges = np.concatenate([[0.0], np.cumsum(self.probabilities)])
        part = np.clip(np.searchsorted(edges, u[:, 0], side="right") - 1, 0, len(edges) - 2)
        inner = np.array(u)
        share = np.maximum(self.probabilities[part], np.finfo(np.float64).tiny)
        inner[:, 0] = np.clip((u[:, 0] - edges[part]) / share, 0.0, 1.0 - 1e-16)
        result = np.empty_like(inner)
        for i, measure in enumerate(self.measures):
            result[part == i] = measure.transport(inner[part == i])
        return result

    def __repr__(self) -> str:
        return f"Mixture({', '.join(map(repr, self.measures))})"


class Product(Measure):
    """
    Independent measures, the columns of one after those of the other.

    :param measures: the factors.
    :raises ValueError: no measure.
    :raises TypeError: what is no measure.
    """

    def __init__(self, measures: Sequence[Measure]) -> None:
        self.measures = _checked_parts(measures)

    @property
    def dimension(self) -> int:
        return sum(m.dimension for m in self.measures)

    @property
    def bounds(self) -> tuple[AnyNDArray, AnyNDArray] | None:
        ends = [m.bounds for m in self.measures]
        if all(e is None for e in ends):
            return None
        free = [np.full(m.dimension, np.inf) for m in self.measures]
        lower = [-f if e is None else e[0] for e, f in zip(ends, free)]
        upper = [f if e is None else e[1] for e, f in zip(ends, free)]
        return np.concatenate(lower), np.concatenate(upper)

    def nodes(self) -> tuple[AnyNDArray, AnyNDArray]:
        """All combinations of the factors' nodes; their numbers multiply."""
        points, weights = np.zeros((1, 0)), np.ones(1)
        for measure in self.measures:
            x, w = (np.asarray(a) for a in measure.nodes())
            points = np.concatenate(
                [np.repeat(points, len(x), axis=0), np.tile(x, (len(points), 1))], axis=1
            )
            weights = np.outer(weights, w).ravel()
        return points, weights

    def thinned(self, num_nodes: int) -> Product:
        each = max(int(num_nodes ** (1.0 / len(self.measures)) + 1e-9), 1)
        return Product([m.thinned(each) for m in self.measures])

    def transport(self, u: AnyNDArray) -> AnyNDArray:
        ends = np.cumsum([m.dimension for m in self.measures])[:-1]
        parts = np.split(u, ends, axis=1)
        return np.concatenate([m.transport(p) for m, p in zip(self.measures, parts)], axis=1)

    def __repr__(self) -> str:
        return f"Product({', '.join(map(repr, self.measures))})"


def _checked_parts(measures: Sequence[Measure]) -> tuple[Measure, ...]:
    parts = tuple(measures)
    if not parts:
        raise ValueError("measures is empty; give at least one.")
    for part in parts:
        if not isinstance(part, Measure):
            raise TypeError(f"measures must be measures; got {part!r}.")
    return parts
