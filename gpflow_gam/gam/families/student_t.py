"""Responses with outliers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import gpflow
import numpy as np
import scipy.stats
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood

from ...statistics.stored import RowArray
from . import encoding
from .base import Family, Levels, Response, first, number, own, single
from .encoding import Observed
from .gaussian import sized, spread


@dataclass(frozen=True)
class StudentT(Family):
    """
    Student's t with constant scale; the predictor is the location.

    :param df: degrees of freedom, fixed.
    :raises ValueError: not positive.
    """

    name: ClassVar[str] = "student_t"
    df: float = 4.0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.df) and self.df > 0.0):
            raise ValueError(f"df must be positive and finite; got {self.df}.")

    def _encode(self, y: AnyNDArray, levels: Levels | None, name: str) -> Response:
        return Response(encoding.numbers(y, name, self.name)[:, None], None)

    def likelihood(self, Y: Observed, levels: Levels | None = None) -> gpflow.likelihoods.StudentT:
        sd = spread(Y)
        likelihood = gpflow.likelihoods.StudentT(df=self.df)
        likelihood.scale = sized(0.5 * sd, 1e-3 * sd)
        return likelihood

    def scale(self, Y: RowArray, weights: RowArray | None = None) -> float:
        return spread(Y, weights)

    def mean(self, likelihood: Likelihood, F: AnyNDArray) -> AnyNDArray:
        return first(F)

    def _scale(self, likelihood: Likelihood) -> float:
        return number(own(likelihood, gpflow.likelihoods.StudentT).scale)

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        y, f = single(Y, F)
        return (self.df + 1.0) * np.log1p(np.square((y - f) / self._scale(likelihood)) / self.df)

    def cdf(
        self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray
    ) -> tuple[AnyNDArray, AnyNDArray]:
        y, f = single(Y, F)
        below = scipy.stats.t.cdf((y - f) / self._scale(likelihood), self.df)
        return below, below

    def sample(
        self,
        likelihood: Likelihood,
        F: AnyNDArray,
        rng: np.random.Generator,
        trials: AnyNDArray | None = None,
    ) -> AnyNDArray:
        f = first(F)
        return f + self._scale(likelihood) * rng.standard_t(self.df, size=f.shape)
