"""Quasi-likelihoods: means and variances, and no distribution."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar, NoReturn

import numpy as np
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood

from ... import likelihoods
from ...likelihoods import unwrapped
from ...storage import RowArray
from ..terms import Column
from . import encoding
from .base import Family, Levels, Response, first, number
from .binary import log_failure, probability
from .binomial import Binomial
from .counts import Poisson
from .encoding import Observed

_LEAST = 1e-300
"""Below this mean squares overflow."""


class QuasiFamily(Family):
    """
    A family whose variance is multiplied by a dispersion, found by Pearson's statistic.

    Standard errors grow by its root. It has no density, no distribution function and no sampler.
    """

    calibrated: ClassVar[bool] = True
    _instead: ClassVar[str]

    def _dispersion(self, likelihood: Likelihood) -> float:
        base = unwrapped(likelihood)
        assert isinstance(base, likelihoods.Quasi)
        return number(base.dispersion)

    @property
    def overdispersed(self) -> str:
        return ""

    def cdf(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> None:
        return None

    def sample(
        self,
        likelihood: Likelihood,
        F: AnyNDArray,
        rng: np.random.Generator,
        trials: AnyNDArray | None = None,
    ) -> NoReturn:
        raise ValueError(
            f"family {self.name!r} is no distribution, and no responses can be drawn from it; take "
            f"{self._instead}, or type='response'."
        )


@dataclass(frozen=True)
class QuasiPoisson(QuasiFamily, Poisson):  # type: ignore[misc]
    """
    Counts, or other amounts that are not negative, of variance ``dispersion mu``.

    :param link: as of :class:`Poisson`.
    """

    name: ClassVar[str] = "quasipoisson"
    discrete: ClassVar[bool] = False
    _instead: ClassVar[str] = "'negative_binomial'"

    def _encode(self, y: AnyNDArray, levels: Levels | None, name: str) -> Response:
        return Response(encoding.amounts(y, name, self.name)[:, None], None)

    def likelihood(
        self, Y: Observed, levels: Levels | None = None, weights: RowArray | None = None
    ) -> Likelihood:
        return likelihoods.Quasi(Poisson.likelihood(self, Y, levels, weights))

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        return Poisson.deviance(self, likelihood, Y, F) / self._dispersion(likelihood)

    def pearson(
        self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray
    ) -> tuple[AnyNDArray, AnyNDArray]:
        """The second is one on average, and makes the first less variable (Fletcher 2012)."""
        y, mean = first(Y), np.maximum(self.mean(likelihood, F), _LEAST)
        away = (y - mean) / mean
        return away * (y - mean) / self._dispersion(likelihood), 1.0 + away


@dataclass(frozen=True)
class QuasiBinomial(QuasiFamily, Binomial):  # type: ignore[misc]
    """
    Successes out of trials, or shares from 0 to 1, of variance ``dispersion p (1 - p) / trials``.

    Without trials the response is a share (Papke & Wooldridge 1996); with weights beside shares
    these are the trials, as in R's ``glm``.

    :param link: as of :class:`Binomial`.
    :param proportion: as of :class:`Binomial`.
    """

    name: ClassVar[str] = "quasibinomial"
    discrete: ClassVar[bool] = False
    needs_trials: ClassVar[bool] = False
    _instead: ClassVar[str] = "'binomial' or 'beta'"

    def without_trials(self, fractions: bool, weights: Column | None, name: str) -> Family:
        return dataclasses.replace(self, proportion=True) if fractions else self

    def encode(
        self,
        y: AnyNDArray,
        levels: Levels | None = None,
        *,
        trials: AnyNDArray | None = None,
        name: str = "y",
    ) -> Response:
        x = encoding.numbers(y, name, self.name)
        if trials is None:
            shares = (x >= 0.0) & (x <= 1.0)
            encoding.require(
                x, shares, "a share from 0 to 1", name, self.name, "give trials= of counts"
            )
            return Response(np.stack([x, np.ones_like(x)], axis=1), None)
        count = encoding.numbers(trials, "trials", self.name)
        encoding.require(count, count > 0.0, "positive", "trials", self.name)
        x = x * count if self.proportion and x.shape == count.shape else x
        if x.shape != count.shape:
            raise ValueError(f"{name} has {len(x)} rows, trials has {len(count)}.")
        inside = (x >= 0.0) & (x <= count)
        encoding.require(x, inside, "from 0 to the row's trials", name, self.name)
        return Response(np.stack([x, count], axis=1), None)

    def likelihood(
        self, Y: Observed, levels: Levels | None = None, weights: RowArray | None = None
    ) -> Likelihood:
        return likelihoods.Quasi(likelihoods.Binomial(self.link))

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        return Binomial.deviance(self, likelihood, Y, F) / self._dispersion(likelihood)

    def pearson(
        self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray
    ) -> tuple[AnyNDArray, AnyNDArray]:
        """As of :class:`QuasiPoisson`."""
        y, n, f = Y[..., 0], Y[..., 1], first(F)
        p, q = probability(self.link, f), np.exp(log_failure(self.link, f))
        variance = np.maximum(p * q, _LEAST)
        away = y / n - p
        square = n * np.square(away) / variance / self._dispersion(likelihood)
        return square, 1.0 + (q - p) * away / variance
