"""Measures on finitely many points."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.config import default_float

from .base import Measure, checked_probabilities, checked_sample
from .continuous import checked_number
from .thinning import bin_means, cluster_means


def frequencies(
    points: AnyNDArray | Sequence[float], weights: AnyNDArray | Sequence[float] | None
) -> tuple[AnyNDArray, AnyNDArray]:
    """Distinct rows [Q, d] of a sample, and their shares [Q] of its weight."""
    rows, w = checked_sample("points", points, weights)
    distinct, inverse = np.unique(rows[w > 0.0], axis=0, return_inverse=True)
    mass = np.bincount(inverse.ravel(), w[w > 0.0])
    return distinct, mass / mass.sum()


class Discrete(Measure):
    """
    Finitely many points with probabilities: levels of a factor, hours of a day, nodes.

    Its points are never thinned: between two levels there is none.

    :param points: [Q] or [Q, d].
    :param probabilities: [Q], non-negative, summing to one; equal by default.
    :raises ValueError: no point, a non-finite point, or weights that are no probabilities.
    """

    def __init__(
        self,
        points: AnyNDArray | Sequence[float],
        probabilities: AnyNDArray | Sequence[float] | None = None,
    ) -> None:
        self.points, _ = checked_sample("points", points, None)
        self.probabilities = checked_probabilities(
            "probabilities", probabilities, len(self.points), "point"
        )

    @classmethod
    def from_data(cls, values: AnyNDArray, weights: AnyNDArray | None = None) -> Discrete:
        """
        The distinct rows of a sample and how often they occur.

        :param values: [N] or [N, d].
        :param weights: how often each row counts, [N].
        :raises ValueError: an empty sample, one that is not finite, or weights that are negative
            or all zero.
        """
        return cls(*frequencies(values, weights))

    @property
    def dimension(self) -> int:
        return int(self.points.shape[1])

    def nodes(self) -> tuple[AnyNDArray, AnyNDArray]:
        return self.points, self.probabilities

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.points)} points)"


class Empirical(Discrete):
    """
    A sample as a measure.

    :param points: the sample, [N] or [N, d]; repeated rows add up.
    :param weights: how often each point counts, [N], of any sum; once each by default.
    :raises ValueError: an empty sample, one that is not finite, or weights that are negative or
        all zero.
    """

    def __init__(
        self,
        points: AnyNDArray | Sequence[float],
        weights: AnyNDArray | Sequence[float] | None = None,
    ) -> None:
        super().__init__(*frequencies(points, weights))

    @classmethod
    def from_data(
        cls,
        values: AnyNDArray,
        weights: AnyNDArray | None = None,
        *,
        num_nodes: int | None = None,
        seed: int = 0,
    ) -> Empirical:
        """
        A sample, thinned to nodes that stand for it.

        In one column the nodes are the means of bins of about equal weight: averages over them
        equal averages over the data to second order in the bins' width, and exactly for straight
        lines. In several they are the means of k-means' clusters.

        :param values: [N] or [N, d].
        :param weights: how often each row counts, [N].
        :param num_nodes: at most so many; by default 48, 100 in two columns and 150 beyond.
        :param seed: of k-means.
        :raises ValueError: as the constructor.
        """
        whole = cls(values, weights)
        number = (
            NUM_NODES.get(whole.dimension, 150) if num_nodes is None else checked_number(num_nodes)
        )
        return whole.thinned(number, seed=seed)

    def thinned(self, num_nodes: int, *, seed: int = 0) -> Empirical:
        """
        Fewer points that stand for all: means of bins, or of k-means' clusters.

        :param num_nodes: at most so many.
        :param seed: of k-means.
        """
        number = checked_number(num_nodes)
        if len(self.points) <= number:
            return self
        if self.dimension == 1:
            return Empirical(*bin_means(self.points[:, 0], self.probabilities, number))
        return Empirical(*cluster_means(self.points, self.probabilities, number, seed))


class Nodes(tf.Module, Measure):
    """
    A discrete measure whose points are variables: state that can be set and saved.

    :param start: where it begins; its number of points is for good.
    """

    def __init__(self, start: Discrete) -> None:
        super().__init__()
        self.points = tf.Variable(start.points, trainable=False, dtype=default_float())
        self.probabilities = tf.Variable(
            start.probabilities, trainable=False, dtype=default_float()
        )

    @property
    def dimension(self) -> int:
        return int(self.points.shape[1])

    def nodes(self) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.convert_to_tensor(self.points), tf.convert_to_tensor(self.probabilities)

    def assign(self, measure: Discrete) -> None:
        """
        Take another measure's points, fewer ones with points of no weight beside them.

        :param measure: with points in as many columns.
        :raises ValueError: it has more points, or other columns.
        """
        have, want = measure.points.shape, tuple(self.points.shape)
        if have[0] > want[0] or have[1] != want[1]:
            raise ValueError(f"measure has points {have}; there is room for {want}.")
        spare = want[0] - have[0]
        self.points.assign(
            np.concatenate([measure.points, np.repeat(measure.points[-1:], spare, 0)])
        )
        self.probabilities.assign(np.concatenate([measure.probabilities, np.zeros(spare)]))

    def __repr__(self) -> str:
        return f"Nodes({self.points.shape[0]} points)"


NUM_NODES = {1: 48, 2: 100}
"""Nodes that stand for a sample, by dimension; 150 beyond."""
