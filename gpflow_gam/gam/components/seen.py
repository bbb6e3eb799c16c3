"""The data of a component's columns: distinct rows, or what stands for them."""

from __future__ import annotations

import dataclasses

import numpy as np
from gpflow.base import AnyNDArray

from ...measures import weighted_quantiles
from ...optimizers.binned.columns import Columns, Level


@dataclasses.dataclass(frozen=True)
class Seen:
    """
    What a component sees.

    :param reach: least, 2.5 % point, 97.5 % point and greatest of each column over all rows: the
        levels of a factor share their prior.
    :param ends: least and greatest of each column over the rows on which it acts, [d, 2].
    :param points: distinct rows on which it acts, or what stands for them, [n, d].
    :param weights: their total weights.
    :param exact: whether they are the distinct rows.
    """

    reach: AnyNDArray
    ends: AnyNDArray
    points: AnyNDArray
    weights: AnyNDArray
    exact: bool

    @classmethod
    def of(cls, columns: Columns, places: list[int], level: Level | None = None) -> Seen:
        bins, everywhere = columns.bins(tuple(places)), columns.mass(tuple(places))
        seen = everywhere > 0.0
        levels = [0.0, 0.025, 0.975, 1.0]
        if bins.exact:
            reach = np.quantile(bins.points[seen], levels, axis=0)
        else:
            values, own = bins.points[seen].T, everywhere[seen]
            reach = np.stack([weighted_quantiles(v, own, levels) for v in values], axis=1)
        mass = everywhere if level is None else columns.mass(tuple(places), level)
        acts = mass > 0.0
        ends = np.array([columns.value_range(place, level) for place in places])
        return cls(reach, ends, bins.points[acts], mass[acts], bins.exact)

    def column(self, i: int) -> tuple[AnyNDArray, AnyNDArray]:
        """The distinct values of a column and their total weights."""
        values, inverse = np.unique(self.points[:, i], return_inverse=True)
        return values, np.bincount(inverse, self.weights)

    def quantiles(self, number: int) -> AnyNDArray:
        """Even quantiles of the one column's values, [number]: of distinct ones where known."""
        levels = np.linspace(0.0, 1.0, number)
        if self.exact:
            return np.asarray(np.quantile(self.points[:, 0], levels))
        return weighted_quantiles(self.points[:, 0], self.weights, levels)
