"""Normal responses whose spread varies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood
from scipy.special import ndtr

from ... import likelihoods
from . import encoding
from .base import Family, Levels, Response, first, number, own
from .encoding import Observed
from .gaussian import spread


@dataclass(frozen=True)
class Heteroskedastic(Family):
    """
    Normal with a predictor each for mean and log standard deviation, mgcv's ``gaulss``.

    Both are measured in ``unit``, the standard deviation of the responses that were fitted:
    ``y ~ N(unit f, (unit exp(g))^2)``.
    """

    name: ClassVar[str] = "heteroskedastic"

    def _encode(self, y: AnyNDArray, levels: Levels | None, name: str) -> Response:
        return Response(encoding.numbers(y, name, self.name)[:, None], None)

    def likelihood(self, Y: Observed, levels: Levels | None = None) -> likelihoods.Heteroskedastic:
        return likelihoods.Heteroskedastic(spread(Y))

    def num_predictors(self, levels: Levels | None = None) -> int:
        return 2

    def predictor_names(self, levels: Levels | None = None) -> tuple[str, ...]:
        return ("mean", "log scale")

    def _mean_sd(self, likelihood: Likelihood, F: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
        unit = number(own(likelihood, likelihoods.Heteroskedastic).unit)
        F = np.asarray(F, dtype=np.float64)
        return unit * F[..., 0], unit * np.exp(F[..., 1])

    def mean(self, likelihood: Likelihood, F: AnyNDArray) -> AnyNDArray:
        return self._mean_sd(likelihood, F)[0]

    def _residual(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        mean, sd = self._mean_sd(likelihood, F)
        return (first(Y) - mean) / sd

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        return np.square(self._residual(likelihood, Y, F))

    def cdf(
        self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray
    ) -> tuple[AnyNDArray, AnyNDArray]:
        below = ndtr(self._residual(likelihood, Y, F))
        return below, below

    def sample(
        self,
        likelihood: Likelihood,
        F: AnyNDArray,
        rng: np.random.Generator,
        trials: AnyNDArray | None = None,
    ) -> AnyNDArray:
        return rng.normal(*self._mean_sd(likelihood, F))
