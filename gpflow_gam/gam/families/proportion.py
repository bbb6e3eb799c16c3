"""Responses between 0 and 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.stats
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood
from scipy.special import digamma, expit, logit

from ... import likelihoods
from ...likelihoods.logit_beta import SHARE_LINKS, checked_share_link
from ...storage import RowArray
from . import encoding
from .base import Levels, Response, first, number, own, single
from .binary import log_failure, probability
from .encoding import Observed
from .location_scale import Dispersed

_BISECTIONS = 60


@dataclass(frozen=True)
class Beta(Dispersed):
    """
    Beta; its scale is ``m (1 - m) / var - 1``, and its dispersion 1 over that.

    :param link: "logit", "probit", "cloglog" or "cauchit", of the mean.
    :raises ValueError: another link.
    """

    name: ClassVar[str] = "beta"
    links: ClassVar[tuple[str, ...]] = SHARE_LINKS
    link: str = "logit"

    def __post_init__(self) -> None:
        checked_share_link(self.link)

    def _encode(self, y: AnyNDArray, levels: Levels | None, name: str) -> Response:
        x = encoding.numbers(y, name, self.name)
        inside = (x > 0.0) & (x < 1.0)
        encoding.require(x, inside, "strictly between 0 and 1", name, self.name)
        return Response(x[:, None], None)

    @property
    def _measured(self) -> str:
        return f"{self.link} mean"

    def likelihood(
        self, Y: Observed, levels: Levels | None = None, weights: RowArray | None = None
    ) -> Likelihood:
        if self.varying:
            return likelihoods.LocationScaleBeta(self.link)
        mean, variance, _ = encoding.moments(Y, weights)
        # by moments, as if the predictor were to explain half of the variance
        scale = mean * (1.0 - mean) / max(0.5 * variance, 1e-300) - 1.0
        return likelihoods.LogitBeta(float(np.clip(scale, 1.0, 1e3)), self.link)

    def mean(self, likelihood: Likelihood, F: AnyNDArray) -> AnyNDArray:
        return probability(self.link, first(F))

    def _scale(self, likelihood: Likelihood, F: AnyNDArray) -> AnyNDArray:
        if self.varying:
            return np.exp(-np.asarray(F, dtype=np.float64)[..., 1])
        return np.asarray(number(own(likelihood, likelihoods.LogitBeta).scale))

    def _shapes(self, likelihood: Likelihood, F: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
        f, scale = first(F), self._scale(likelihood, F)
        return scale * probability(self.link, f), scale * np.exp(log_failure(self.link, f))

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        """
        Against the mean that makes y most likely, which is not y.

        It solves ``digamma(s m) - digamma(s (1 - m)) = logit(y)`` (Ferrari & Cribari-Neto 2004).
        """
        y, scale = first(Y), self._scale(likelihood, F)
        target = logit(y)

        def shapes(at: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
            return scale * expit(at), scale * expit(-at)

        # at +-60 the smaller digamma is beyond any logit(y) that a double holds
        low, high = np.full_like(y, -60.0), np.full_like(y, 60.0)
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            a, b = shapes(middle)
            below = digamma(a) - digamma(b) < target
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        best = scipy.stats.beta.logpdf(y, *shapes(0.5 * (low + high)))
        return np.maximum(2.0 * (best - self.log_density(likelihood, Y, F)), 0.0)

    def cdf(
        self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray
    ) -> tuple[AnyNDArray, AnyNDArray]:
        below = scipy.stats.beta.cdf(single(Y, F)[0], *self._shapes(likelihood, F))
        return below, below

    def sample(
        self,
        likelihood: Likelihood,
        F: AnyNDArray,
        rng: np.random.Generator,
        trials: AnyNDArray | None = None,
    ) -> AnyNDArray:
        a, b = self._shapes(likelihood, F)
        return rng.beta(np.maximum(a, 1e-10), np.maximum(b, 1e-10))
