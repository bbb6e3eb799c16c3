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
from . import encoding
from .base import Family, Levels, Response, first, number, own, single
from .encoding import Observed

_BISECTIONS = 60


@dataclass(frozen=True)
class Beta(Family):
    """Beta with a logit link on the mean; its scale, ``m (1 - m) / var - 1``, is learned."""

    name: ClassVar[str] = "beta"

    def _encode(self, y: AnyNDArray, levels: Levels | None, name: str) -> Response:
        x = encoding.numbers(y, name, self.name)
        inside = (x > 0.0) & (x < 1.0)
        encoding.require(x, inside, "strictly between 0 and 1", name, self.name)
        return Response(x[:, None], None)

    def likelihood(self, Y: Observed, levels: Levels | None = None) -> likelihoods.LogitBeta:
        mean, variance, _ = encoding.moments(Y)
        # by moments, as if the predictor were to explain half of the variance
        scale = mean * (1.0 - mean) / max(0.5 * variance, 1e-300) - 1.0
        return likelihoods.LogitBeta(float(np.clip(scale, 1.0, 1e3)))

    def mean(self, likelihood: Likelihood, F: AnyNDArray) -> AnyNDArray:
        return np.asarray(expit(first(F)))

    def _shapes(self, likelihood: Likelihood, F: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
        scale, f = number(own(likelihood, likelihoods.LogitBeta).scale), first(F)
        return scale * expit(f), scale * expit(-f)

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        """
        Against the predictor that makes y most likely, which is not logit(y).

        It solves ``digamma(s m) - digamma(s (1 - m)) = logit(y)`` (Ferrari & Cribari-Neto 2004).
        """
        y = first(Y)
        target = logit(y)
        # at +-60 the smaller digamma is beyond any logit(y) that a double holds
        low, high = np.full_like(y, -60.0), np.full_like(y, 60.0)
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            a, b = self._shapes(likelihood, middle[:, None])
            below = digamma(a) - digamma(b) < target
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        best = self.log_density(likelihood, Y, 0.5 * (low + high)[:, None])
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
