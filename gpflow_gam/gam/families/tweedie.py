"""Amounts that are zero or positive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.stats
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood

from ... import likelihoods
from ...storage import RowArray
from . import encoding
from .base import Levels, Response, first, number, own
from .encoding import Observed
from .linked import LinkedFamily

_MOST = 1e9
"""Gamma amounts of which a response is drawn."""
_FAR = 9.0
"""Standard deviations of their number that a distribution function sums over."""


@dataclass(frozen=True)
class Tweedie(LinkedFamily):
    """
    Amounts that are zero or positive: rain, claims, catches.

    The variance is ``dispersion mu^power``; both are learned, the power between 1.01 and 1.99.

    :param link: "log", "identity", "inverse" or "sqrt", of the mean, which stays positive: see
        :class:`gpflow_gam.likelihoods.Linked`.
    :raises ValueError: another link.
    """

    name: ClassVar[str] = "tweedie"
    links: ClassVar[tuple[str, ...]] = ("log", "identity", "inverse", "sqrt")
    link: str = "log"

    def _encode(self, y: AnyNDArray, levels: Levels | None, name: str) -> Response:
        return Response(encoding.amounts(y, name, self.name)[:, None], None)

    def likelihood(
        self, Y: Observed, levels: Levels | None = None, weights: RowArray | None = None
    ) -> Likelihood:
        mean, variance, _ = encoding.moments(Y, weights)
        # by moments, as if the predictor were to explain half of the variance
        mean = mean if mean > 0.0 else 1.0
        dispersion = 0.5 * variance / mean**2
        base = likelihoods.Tweedie(dispersion if dispersion > 0.0 else 1.0, unit=mean)
        return self.linked(base, Y, weights)

    def parameters(self, likelihood: Likelihood, levels: Levels | None) -> dict[str, float]:
        """The dispersion of responses as they are."""
        dispersion, power = self._parameters(likelihood)
        return {"dispersion": dispersion, "power": power}

    def null(
        self, Y: AnyNDArray, offset: AnyNDArray, weights: AnyNDArray | None
    ) -> AnyNDArray | None:
        return self.linked_null(Y, offset, weights)

    def _parameters(self, likelihood: Likelihood) -> tuple[float, float]:
        base = own(likelihood, likelihoods.Tweedie)
        return number(base.scaled()), number(base.power)

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        y, f = first(Y), self.log_mean(likelihood, F)
        phi, p = self._parameters(likelihood)
        best = y ** (2.0 - p) / ((1.0 - p) * (2.0 - p))
        found = best - y * np.exp((1.0 - p) * f) / (1.0 - p) + np.exp((2.0 - p) * f) / (2.0 - p)
        return np.maximum(2.0 * found / phi, 0.0)

    def _amounts(
        self, likelihood: Likelihood, F: AnyNDArray
    ) -> tuple[AnyNDArray, float, AnyNDArray]:
        """The mean number of gamma amounts, their shape, and their scale."""
        phi, p = self._parameters(likelihood)
        f = self.log_mean(likelihood, F)
        rate = np.exp((2.0 - p) * f) / (phi * (2.0 - p))
        return rate, (2.0 - p) / (p - 1.0), phi * (p - 1.0) * np.exp((p - 1.0) * f)

    def cdf(
        self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray
    ) -> tuple[AnyNDArray, AnyNDArray]:
        y = first(Y)
        rate, shape, scale = self._amounts(likelihood, F)
        none = np.exp(-rate)
        reach = _FAR * np.sqrt(rate) + 10.0
        low, high = np.maximum(np.floor(rate - reach), 1.0), np.ceil(rate + reach)
        total = none.copy()
        for k in range(int(np.max(high - low, initial=0.0)) + 1):
            number = low + k
            total += scipy.stats.poisson.pmf(number, rate) * scipy.stats.gamma.cdf(
                y / scale, number * shape
            )
        total = np.minimum(total, 1.0)
        return np.where(y > 0.0, total, 0.0), np.where(y > 0.0, total, none)

    def sample(
        self,
        likelihood: Likelihood,
        F: AnyNDArray,
        rng: np.random.Generator,
        trials: AnyNDArray | None = None,
    ) -> AnyNDArray:
        rate, shape, scale = self._amounts(likelihood, F)
        number = rng.poisson(np.minimum(rate, _MOST))
        some = rng.gamma(np.maximum(number, 1) * shape, scale)
        return np.where(number > 0, some, 0.0)
