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
from ...storage import RowArray
from . import encoding
from .base import Family, Levels, Response, first, number, own
from .encoding import Observed, spread
from .heteroskedastic import Heteroskedastic
from .linked import LinkedFamily, require_identity
from .survival import CensoredGaussian


def sized(value: float, floor: float) -> Parameter:
    """A positive parameter that optimisers move by factors, whatever its unit."""
    return Parameter(value, transform=positive(lower=floor, base="exp"))


@dataclass(frozen=True)
class Gaussian(LinkedFamily):
    """
    Normal with constant variance.

    :param link: "identity", under which the predictor is the mean; or "log" or "inverse", under
        which the mean is positive and the noise is not: see
        :class:`gpflow_gam.likelihoods.Linked`.
    :raises ValueError: another link.
    """

    name: ClassVar[str] = "gaussian"
    modelled: ClassVar[tuple[str, ...]] = ("mean", "scale")
    links: ClassVar[tuple[str, ...]] = ("identity", "log", "inverse")
    link: str = "identity"

    def _encode(self, y: AnyNDArray, levels: Levels | None, name: str) -> Response:
        return Response(encoding.numbers(y, name, self.name)[:, None], None)

    def likelihood(
        self, Y: Observed, levels: Levels | None = None, weights: RowArray | None = None
    ) -> Likelihood:
        floor = 1e-6 * spread(Y) ** 2
        likelihood = gpflow.likelihoods.Gaussian(quadrature=GaussHermite())
        likelihood.variance = sized(0.5 * spread(Y, weights) ** 2, floor)
        return self.linked(likelihood, Y, weights)

    def of_all(self) -> Family:
        return Heteroskedastic(self.link)

    def censored(self) -> Family:
        require_identity(self)
        return CensoredGaussian()

    @property
    def conjugate(self) -> bool:
        return self.own_link

    def scale(self, Y: RowArray, weights: RowArray | None = None) -> float:
        return spread(Y, weights) if self.own_link else super().scale(Y, weights)

    def null(
        self, Y: AnyNDArray, offset: AnyNDArray, weights: AnyNDArray | None
    ) -> AnyNDArray | None:
        if not self.own_link:
            return self.linked_null(Y, offset, weights)
        return np.array([np.average(Y[:, 0] - offset, weights=weights)])

    def mean(self, likelihood: Likelihood, F: AnyNDArray) -> AnyNDArray:
        return first(F) if self.own_link else super().mean(likelihood, F)

    def _sd(self, likelihood: Likelihood) -> float:
        return float(np.sqrt(number(own(likelihood, gpflow.likelihoods.Gaussian).variance)))

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        y, mean = first(Y), self.mean(likelihood, F)
        return np.square((y - mean) / self._sd(likelihood))

    def cdf(
        self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray
    ) -> tuple[AnyNDArray, AnyNDArray]:
        y, mean = first(Y), self.mean(likelihood, F)
        below = ndtr((y - mean) / self._sd(likelihood))
        return below, below

    def sample(
        self,
        likelihood: Likelihood,
        F: AnyNDArray,
        rng: np.random.Generator,
        trials: AnyNDArray | None = None,
    ) -> AnyNDArray:
        return rng.normal(self.mean(likelihood, F), self._sd(likelihood))
