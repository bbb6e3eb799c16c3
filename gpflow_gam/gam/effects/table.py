"""An effect at points, with its uncertainty."""

from __future__ import annotations

import dataclasses

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
    :param covariance: [L, n, n].
    :param level: probability of the limits.
    :param seed: of the simulation behind simultaneous limits.
    :param predictors: names of the L predictors.
    :param axes: values on each axis where the points are all their combinations.
    """

    name: str
    component: Component
    columns: dict[Column, AnyNDArray]
    estimate: AnyNDArray
    covariance: AnyNDArray
    level: float
    seed: int
    predictors: tuple[str, ...] = ("",)
    axes: tuple[AnyNDArray, ...] | None = None

    def __post_init__(self) -> None:
        if not 0.0 < self.level < 1.0:
            raise ValueError(f"level must be a probability between 0 and 1; got {self.level}.")

    @property
    def se(self) -> AnyNDArray:
        """Posterior standard deviations, [n, L]."""
        variances = np.diagonal(self.covariance, axis1=1, axis2=2).T
        se: AnyNDArray = np.sqrt(np.maximum(variances, 0.0))
        return se

    def critical(self, predictor: int = 0) -> tuple[float, float]:
        """Standard errors on each side of pointwise and of simultaneous limits."""
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
