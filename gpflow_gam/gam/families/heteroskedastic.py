"""Normal responses whose spread varies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood
from scipy.special import ndtr

from ... import likelihoods
from ...storage import RowArray
from . import encoding
from .base import Family, Levels, Response, first, number, own
from .encoding import Observed, spread
from .linked import LinkedFamily, measured, require_identity, size_of
from .survival import CensoredGaussian


@dataclass(frozen=True)
class Heteroskedastic(LinkedFamily):
    """
    Normal with a predictor each for mean and log standard deviation, mgcv's ``gaulss``.

    The model measures both in ``unit``, the standard deviation of the responses that were fitted:
    ``y ~ N(unit f, (unit exp(g))^2)``. Effects and predictions are in the response's unit: of the
    mean, and of the logarithm of the standard deviation.

    :param link: "identity", under which the first predictor is the mean; or "log" or "inverse",
        under which the mean is positive and the noise is not: see
        :class:`gpflow_gam.likelihoods.MeanLink`.
    :raises ValueError: another link.
    """

    name: ClassVar[str] = "heteroskedastic"
    modelled: ClassVar[tuple[str, ...]] = ("mean", "scale")
    takes_offset: ClassVar[bool] = False
    links: ClassVar[tuple[str, ...]] = ("identity", "log", "inverse")
    link: str = "identity"

    def _encode(self, y: AnyNDArray, levels: Levels | None, name: str) -> Response:
        return Response(encoding.numbers(y, name, self.name)[:, None], None)

    def censored(self) -> Family:
        require_identity(self)
        return CensoredGaussian(varying=True)

    def likelihood(
        self, Y: Observed, levels: Levels | None = None, weights: RowArray | None = None
    ) -> Likelihood:
        return self.linked(likelihoods.Heteroskedastic(spread(Y, weights)), Y, weights)

    def num_predictors(self, levels: Levels | None = None) -> int:
        return 2

    def predictor_names(self, levels: Levels | None = None) -> tuple[str, ...]:
        return ("mean", "log scale")

    def scale(self, Y: RowArray, weights: RowArray | None = None) -> float:
        return 1.0  # the model measures both predictors in units of its own

    def parameters(self, likelihood: Likelihood, levels: Levels | None) -> dict[str, float]:
        return {}  # its unit is not learnt

    def axes(self, response: str) -> tuple[str, ...]:
        return f"{measured(self.link, 'mean')} of {response}", f"log sd of {response}"

    def units(self, likelihood: Likelihood) -> tuple[AnyNDArray, AnyNDArray]:
        unit = number(own(likelihood, likelihoods.Heteroskedastic).unit)
        size = unit if self.own_link else size_of(likelihood)
        return np.array([size, 1.0]), np.array([0.0, np.log(unit)])

    def null_predictor(self, null: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        """
        A constant mean, with the scale that was fitted.

        What is explained is then the share of the squared residuals of the null mean, each over the
        fitted variance of its row, that the fitted mean takes away: as ``gaulss`` of R's mgcv has
        it. With a scale of its own the null model's squared residuals would be one on average, as
        those of any model are, whatever its mean.
        """
        return np.stack([null[..., 0], F[..., 1]], axis=-1)

    def _mean_sd(self, likelihood: Likelihood, F: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
        unit = number(own(likelihood, likelihoods.Heteroskedastic).unit)
        F = np.asarray(F, dtype=np.float64)
        mean = unit * F[..., 0] if self.own_link else super().mean(likelihood, F)
        return mean, unit * np.exp(F[..., 1])

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
