"""Normal responses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import gpflow
import numpy as np
from gpflow.base import AnyNDArray, Parameter
from gpflow.likelihoods import Likelihood
from gpflow.utilities import positive
from scipy.special import ndtr

from ...likelihoods import GaussHermite
from ...statistics.stored import RowArray
from . import encoding
from .base import Family, Levels, Response, first, number, own, single
from .encoding import Observed, spread
from .heteroskedastic import Heteroskedastic
from .survival import CensoredGaussian


def sized(value: float, floor: float) -> Parameter:
    """A positive parameter that optimisers move by factors, whatever its unit."""
    return Parameter(value, transform=positive(lower=floor, base="exp"))


@dataclass(frozen=True)
class Gaussian(Family):
    """Normal with constant variance; the predictor is the mean."""

    name: ClassVar[str] = "gaussian"
    modelled: ClassVar[tuple[str, ...]] = ("mean", "scale")

    def _encode(self, y: AnyNDArray, levels: Levels | None, name: str) -> Response:
        return Response(encoding.numbers(y, name, self.name)[:, None], None)

    def likelihood(self, Y: Observed, levels: Levels | None = None) -> gpflow.likelihoods.Gaussian:
        variance = spread(Y) ** 2
        likelihood = gpflow.likelihoods.Gaussian(quadrature=GaussHermite())
        likelihood.variance = sized(0.5 * variance, 1e-6 * variance)
        return likelihood

    def of_all(self) -> Family:
        return Heteroskedastic()

    def censored(self) -> Family:
        return CensoredGaussian()

    def scale(self, Y: RowArray, weights: RowArray | None = None) -> float:
        return spread(Y, weights)

    def mean(self, likelihood: Likelihood, F: AnyNDArray) -> AnyNDArray:
        return first(F)

    def _sd(self, likelihood: Likelihood) -> float:
        return float(np.sqrt(number(own(likelihood, gpflow.likelihoods.Gaussian).variance)))

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        y, f = single(Y, F)
        return np.square((y - f) / self._sd(likelihood))

    def cdf(
        self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray
    ) -> tuple[AnyNDArray, AnyNDArray]:
        y, f = single(Y, F)
        below = ndtr((y - f) / self._sd(likelihood))
        return below, below

    def sample(
        self,
        likelihood: Likelihood,
        F: AnyNDArray,
        rng: np.random.Generator,
        trials: AnyNDArray | None = None,
    ) -> AnyNDArray:
        return rng.normal(first(F), self._sd(likelihood))
