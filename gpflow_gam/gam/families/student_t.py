"""Responses with outliers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import gpflow
import numpy as np
import scipy.stats
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood

from ... import likelihoods
from ...storage import RowArray
from . import encoding
from .base import Levels, Response, first
from .encoding import Observed, robust_moments, robust_spread
from .gaussian import sized
from .linked import LinkedFamily
from .location_scale import LocationScale


@dataclass(frozen=True)
class StudentT(LocationScale, LinkedFamily):
    """
    Student's t; the predictor is the location, or a link of it.

    :param df: degrees of freedom, fixed.
    :param link: "identity", or "log" or "inverse", of a location that is positive while responses
        may not be: see :class:`gpflow_gam.likelihoods.Linked`.
    :raises ValueError: degrees of freedom that are not positive, or another link.
    """

    name: ClassVar[str] = "student_t"
    kind: ClassVar[Any] = gpflow.likelihoods.StudentT
    varying_kind: ClassVar[Any] = likelihoods.LocationScaleStudentT
    links: ClassVar[tuple[str, ...]] = ("identity", "log", "inverse")
    df: float = 4.0
    link: str = "identity"

    def __post_init__(self) -> None:
        LinkedFamily.__post_init__(self)
        if not (np.isfinite(self.df) and self.df > 0.0):
            raise ValueError(f"df must be positive and finite; got {self.df}.")

    def _encode(self, y: AnyNDArray, levels: Levels | None, name: str) -> Response:
        return Response(encoding.numbers(y, name, self.name)[:, None], None)

    def likelihood(
        self, Y: Observed, levels: Levels | None = None, weights: RowArray | None = None
    ) -> Likelihood:
        sd = robust_spread(Y, weights)  # outliers are what the family is for
        if self.varying:
            return self.linked(likelihoods.LocationScaleStudentT(sd, self.df), Y, weights)
        likelihood = gpflow.likelihoods.StudentT(df=self.df)
        likelihood.scale = sized(0.5 * sd, 1e-3 * robust_spread(Y))
        return self.linked(likelihood, Y, weights)

    def _moments(self, Y: Observed, weights: RowArray | None = None) -> tuple[float, float]:
        return robust_moments(Y, weights)

    def scale(self, Y: RowArray, weights: RowArray | None = None) -> float:
        if self.own_link and not self.varying:
            return robust_spread(Y, weights)
        return super().scale(Y, weights)

    def mean(self, likelihood: Likelihood, F: AnyNDArray) -> AnyNDArray:
        if not self.own_link:
            return super().mean(likelihood, F)
        return self._unit(likelihood) * first(F)

    def _residual(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        return np.asarray((first(Y) - self.mean(likelihood, F)) / self._scale(likelihood, F))

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        return (self.df + 1.0) * np.log1p(np.square(self._residual(likelihood, Y, F)) / self.df)

    def cdf(
        self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray
    ) -> tuple[AnyNDArray, AnyNDArray]:
        below = scipy.stats.t.cdf(self._residual(likelihood, Y, F), self.df)
        return below, below

    def sample(
        self,
        likelihood: Likelihood,
        F: AnyNDArray,
        rng: np.random.Generator,
        trials: AnyNDArray | None = None,
    ) -> AnyNDArray:
        f = self.mean(likelihood, F)
        return f + self._scale(likelihood, F) * rng.standard_t(self.df, size=f.shape)
