"""An effect at points, with its uncertainty."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray

from ..components import Component
from ..terms import Column
from .bands import critical_values


@dataclasses.dataclass(frozen=True)
class EffectTable:
    """
    An effect on the predictor's scale.

    :param name: what it is.
    :param component: the component behind it.
    :param columns: where: values of its columns, [n] each.
    :param estimate: posterior mean, [n, L].
    :param variance: posterior variance, [n, L].
    :param joint: gives the covariance [L, n, n], which of a map is dear, when it is asked for.
    :param level: probability of the limits.
    :param seed: of the simulation behind simultaneous limits.
    :param predictors: names of the L predictors.
    :param axes: values on each axis where the points are all their combinations.
    :raises ValueError: a level that is no probability.
    """

    name: str
    component: Component
    columns: dict[Column, AnyNDArray]
    estimate: AnyNDArray
    variance: AnyNDArray
    joint: Callable[[], AnyNDArray]
    level: float
    seed: int
    predictors: tuple[str, ...] = ("",)
    axes: tuple[AnyNDArray, ...] | None = None

    def __post_init__(self) -> None:
        if not 0.0 < self.level < 1.0:
            raise ValueError(f"level must be a probability between 0 and 1; got {self.level}.")

    @classmethod
    def known(
        cls,
        name: str,
        component: Component,
        columns: dict[Column, AnyNDArray],
        estimate: AnyNDArray,
        covariance: AnyNDArray,
        *others: Any,
    ) -> EffectTable:
        """
        Of a covariance [L, n, n] that is there already.

        :param name: as for the class.
        :param component: as for the class.
        :param columns: as for the class.
        :param estimate: posterior mean, [n, L].
        :param covariance: of all points, [L, n, n]; its diagonal is the variance.
        :param others: level and what follows it in the class, in that order.
        """
        variance = np.diagonal(covariance, axis1=1, axis2=2).T
        return cls(name, component, columns, estimate, variance, lambda: covariance, *others)

    @functools.cached_property
    def covariance(self) -> AnyNDArray:
        """Of all points, [L, n, n]."""
        return self.joint()

    @property
    def se(self) -> AnyNDArray:
        """Posterior standard deviations, [n, L]."""
        se: AnyNDArray = np.sqrt(np.maximum(self.variance, 0.0))
        return se

    def critical(self, predictor: int = 0) -> tuple[float, float]:
        """
        Standard errors on each side of pointwise and of simultaneous limits.

        :param predictor: whose, by its place among the L.
        """
        return critical_values(self.covariance[predictor], self.level, self.seed)

    def frame(self) -> pd.DataFrame:
        """
        Columns of the grid, ``estimate``, ``se``, and four limits.

        ``lower`` to ``upper`` holds the effect at each point with probability ``level``;
        ``lower_simultaneous`` to ``upper_simultaneous`` the whole of it.
        """
        frames = []
        for i, predictor in enumerate(self.predictors):
            estimate, se = self.estimate[:, i], self.se[:, i]
            pointwise, simultaneous = self.critical(i)
            several: dict[Column, str] = (
                {"predictor": predictor} if len(self.predictors) > 1 else {}
            )
            numbers: dict[Column, AnyNDArray] = {
                "estimate": estimate,
                "se": se,
                "lower": estimate - pointwise * se,
                "upper": estimate + pointwise * se,
                "lower_simultaneous": estimate - simultaneous * se,
                "upper_simultaneous": estimate + simultaneous * se,
            }
            frames.append(pd.DataFrame(self.columns | several | numbers))
        return pd.concat(frames, ignore_index=True)
