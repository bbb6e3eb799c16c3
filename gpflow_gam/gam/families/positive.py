"""Positive responses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

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
from .location_scale import Dispersed


@dataclass(frozen=True)
class Gamma(Dispersed, LinkedFamily):
    """
    Gamma; its dispersion, ``var / mean^2``, is 1 over its shape.

    :param link: "log", "inverse" or "identity", of the mean, which stays positive: see
        :class:`gpflow_gam.likelihoods.Linked`.
    :raises ValueError: another link.
    """

    name: ClassVar[str] = "gamma"
    links: ClassVar[tuple[str, ...]] = ("log", "inverse", "identity")
    link: str = "log"

    def _encode(self, y: AnyNDArray, levels: Levels | None, name: str) -> Response:
        x = encoding.numbers(y, name, self.name)
        encoding.require(x, x > 0.0, "positive", name, self.name)
        return Response(x[:, None], None)

    def likelihood(
        self, Y: Observed, levels: Levels | None = None, weights: RowArray | None = None
    ) -> Likelihood:
        if self.varying:
            return self.linked(likelihoods.LocationScaleGamma(), Y, weights)
        mean, variance, _ = encoding.moments(Y, weights)
        # by moments, as if the predictor were to explain half of the variance
        shape = mean**2 / max(0.5 * variance, 1e-300)
        base = likelihoods.MeanGamma(float(np.clip(shape, 0.1, 100.0)))
        return self.linked(base, Y, weights)

    def null(
        self, Y: AnyNDArray, offset: AnyNDArray, weights: AnyNDArray | None
    ) -> AnyNDArray | None:
        if self.varying:
            return None
        if not self.own_link:
            return self.linked_null(Y, offset, weights)
        return np.log([np.average(Y[:, 0] * np.exp(-offset), weights=weights)])

    def _shape(self, likelihood: Likelihood, F: AnyNDArray) -> Any:
        if self.varying:
            return np.exp(-np.asarray(F, dtype=np.float64)[..., 1])
        return number(own(likelihood, likelihoods.MeanGamma).shape)

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        y, f = first(Y), self.log_mean(likelihood, F)
        gap = np.log(y) - f
        return np.maximum(2.0 * self._shape(likelihood, F) * (np.expm1(gap) - gap), 0.0)

    def cdf(
        self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray
    ) -> tuple[AnyNDArray, AnyNDArray]:
        y, f = first(Y), self.log_mean(likelihood, F)
        shape = self._shape(likelihood, F)
        below = scipy.stats.gamma.cdf(shape * y * np.exp(-f), shape)
        return below, below

    def sample(
        self,
        likelihood: Likelihood,
        F: AnyNDArray,
        rng: np.random.Generator,
        trials: AnyNDArray | None = None,
    ) -> AnyNDArray:
        shape = self._shape(likelihood, F)
        return rng.gamma(shape, self.mean(likelihood, F) / shape)
