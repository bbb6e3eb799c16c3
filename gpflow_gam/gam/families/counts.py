"""Counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import gpflow
import numpy as np
import scipy.stats
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood
from scipy.special import xlogy

from ... import likelihoods
from ...storage import RowArray
from . import encoding
from .base import Levels, Response, first, number, own
from .encoding import Observed
from .linked import LinkedFamily
from .location_scale import Dispersed

_LARGEST = 1e18
"""Above this rate numpy draws no Poisson counts."""
_LEAST_LOG = float(np.log(1e-6))
"""Of the dispersion: nearer to Poisson, log-densities lose their digits."""
_LEAST = 1e-300
"""Below this mean squares overflow."""


@dataclass(frozen=True)
class Poisson(LinkedFamily):
    """
    Counts.

    :param link: "log", "identity" or "sqrt"; under the others means below a hundredth of that of
        all counts are kept positive by a logarithm: see :class:`gpflow_gam.likelihoods.Linked`.
    :raises ValueError: another link.
    """

    name: ClassVar[str] = "poisson"
    discrete: ClassVar[bool] = True
    links: ClassVar[tuple[str, ...]] = ("log", "identity", "sqrt")
    link: str = "log"

    def _encode(self, y: AnyNDArray, levels: Levels | None, name: str) -> Response:
        return Response(encoding.whole_counts(y, name, self.name)[:, None], None)

    def likelihood(
        self, Y: Observed, levels: Levels | None = None, weights: RowArray | None = None
    ) -> Likelihood:
        base = gpflow.likelihoods.Poisson(quadrature=likelihoods.GaussHermite())
        return self.linked(base, Y, weights)

    def null(
        self, Y: AnyNDArray, offset: AnyNDArray, weights: AnyNDArray | None
    ) -> AnyNDArray | None:
        if not self.own_link:
            return self.linked_null(Y, offset, weights)
        total = np.average(Y[:, 0], weights=weights)
        share = total / np.average(np.exp(offset), weights=weights)
        return np.log([share]) if 0.0 < share < np.inf else None

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        y, f = first(Y), self.log_mean(likelihood, F)
        return np.maximum(2.0 * (xlogy(y, y) - y * f - y + np.exp(f)), 0.0)

    @property
    def overdispersed(self) -> str:
        return "take family='negative_binomial'"

    def pearson(
        self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray
    ) -> tuple[AnyNDArray, AnyNDArray]:
        y, f = first(Y), self.log_mean(likelihood, F)
        mean = np.maximum(np.exp(f), _LEAST)
        return np.square(y - mean) / mean, 2.0 + 1.0 / mean

    def cdf(
        self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray
    ) -> tuple[AnyNDArray, AnyNDArray]:
        y, f = first(Y), self.log_mean(likelihood, F)
        rate = np.exp(f)
        return scipy.stats.poisson.cdf(y - 1.0, rate), scipy.stats.poisson.cdf(y, rate)

    def sample(
        self,
        likelihood: Likelihood,
        F: AnyNDArray,
        rng: np.random.Generator,
        trials: AnyNDArray | None = None,
    ) -> AnyNDArray:
        return rng.poisson(np.minimum(self.mean(likelihood, F), _LARGEST)).astype(np.float64)


@dataclass(frozen=True)
class NegativeBinomial(Dispersed, Poisson):
    """
    Counts of variance ``mu + alpha mu^2``; alpha is the dispersion.

    :param link: as of :class:`Poisson`.
    """

    name: ClassVar[str] = "negative_binomial"

    def likelihood(
        self, Y: Observed, levels: Levels | None = None, weights: RowArray | None = None
    ) -> Likelihood:
        if self.varying:
            return self.linked(likelihoods.LocationScaleNegativeBinomial(), Y, weights)
        mean, variance, _ = encoding.moments(Y, weights)
        mean = max(mean, 1e-3)
        # by moments, as if the predictor were to explain half of the variance
        alpha = (0.5 * variance - mean) / mean**2
        alpha = float(np.clip(alpha, 0.05, 5.0))
        base = likelihoods.NegativeBinomial(alpha, quadrature=likelihoods.GaussHermite())
        return self.linked(base, Y, weights)

    def null(
        self, Y: AnyNDArray, offset: AnyNDArray, weights: AnyNDArray | None
    ) -> AnyNDArray | None:
        return None if self.varying or np.any(offset) else super().null(Y, offset, weights)

    def _alpha(self, likelihood: Likelihood, F: AnyNDArray) -> Any:
        if self.varying:
            return np.exp(np.maximum(np.asarray(F, dtype=np.float64)[..., 1], _LEAST_LOG))
        return number(own(likelihood, likelihoods.NegativeBinomial).alpha)

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        y, f = first(Y), self.log_mean(likelihood, F)
        alpha = self._alpha(likelihood, F)
        tail = np.log1p(alpha * y) - np.logaddexp(0.0, f + np.log(alpha))
        return np.maximum(2.0 * (xlogy(y, y) - y * f - (y + 1.0 / alpha) * tail), 0.0)

    @property
    def overdispersed(self) -> str:
        return ""

    def pearson(
        self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray
    ) -> tuple[AnyNDArray, AnyNDArray]:
        y, f = first(Y), self.log_mean(likelihood, F)
        alpha, mean = self._alpha(likelihood, F), np.maximum(np.exp(f), _LEAST)
        variance = mean + alpha * mean**2
        return np.square(y - mean) / variance, 2.0 + 6.0 * alpha + 1.0 / variance

    def cdf(
        self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray
    ) -> tuple[AnyNDArray, AnyNDArray]:
        y, f = first(Y), self.log_mean(likelihood, F)
        alpha = self._alpha(likelihood, F)
        size, p = 1.0 / alpha, 1.0 / (1.0 + alpha * np.exp(f))
        return scipy.stats.nbinom.cdf(y - 1.0, size, p), scipy.stats.nbinom.cdf(y, size, p)

    def sample(
        self,
        likelihood: Likelihood,
        F: AnyNDArray,
        rng: np.random.Generator,
        trials: AnyNDArray | None = None,
    ) -> AnyNDArray:
        alpha = self._alpha(likelihood, F)
        rate = rng.gamma(1.0 / alpha, alpha * self.mean(likelihood, F))
        return rng.poisson(np.minimum(rate, _LARGEST)).astype(np.float64)
