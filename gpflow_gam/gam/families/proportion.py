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
from ...statistics.stored import RowArray
from . import encoding
from .base import Levels, Response, first, number, own, single
from .encoding import Observed
from .location_scale import Dispersed

_BISECTIONS = 60


@dataclass(frozen=True)
class Beta(Dispersed):
    """
    Beta with a logit link on the mean.

    Its scale is ``m (1 - m) / var - 1``, and its dispersion 1 over that.
    """

    name: ClassVar[str] = "beta"

    def _encode(self, y: AnyNDArray, levels: Levels | None, name: str) -> Response:
        x = encoding.numbers(y, name, self.name)
        inside = (x > 0.0) & (x < 1.0)
        encoding.require(x, inside, "strictly between 0 and 1", name, self.name)
        return Response(x[:, None], None)

    @property
    def _measured(self) -> str:
        return "logit mean"

    def likelihood(
        self, Y: Observed, levels: Levels | None = None, weights: RowArray | None = None
    ) -> Likelihood:
        if self.varying:
            return likelihoods.LocationScaleBeta()
        mean, variance, _ = encoding.moments(Y, weights)
        # by moments, as if the predictor were to explain half of the variance
        scale = mean * (1.0 - mean) / max(0.5 * variance, 1e-300) - 1.0
        return likelihoods.LogitBeta(float(np.clip(scale, 1.0, 1e3)))

    def mean(self, likelihood: Likelihood, F: AnyNDArray) -> AnyNDArray:
        return np.asarray(expit(first(F)))

    def _shapes(self, likelihood: Likelihood, F: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
        f = first(F)
        if self.varying:
            scale = np.exp(-np.asarray(F, dtype=np.float64)[..., 1])
        else:
            scale = np.asarray(number(own(likelihood, likelihoods.LogitBeta).scale))
        return scale * expit(f), scale * expit(-f)

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        """
        Against the predictor that makes y most likely, which is not logit(y).

        It solves ``digamma(s m) - digamma(s (1 - m)) = logit(y)`` (Ferrari & Cribari-Neto 2004).
        """
        y = first(Y)
        target = logit(y)

        def moved(f: AnyNDArray) -> AnyNDArray:
            return np.concatenate([f[:, None], np.asarray(F)[:, 1:]], axis=1)

        # at +-60 the smaller digamma is beyond any logit(y) that a double holds
        low, high = np.full_like(y, -60.0), np.full_like(y, 60.0)
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            a, b = self._shapes(likelihood, moved(middle))
            below = digamma(a) - digamma(b) < target
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        best = self.log_density(likelihood, Y, moved(0.5 * (low + high)))
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
