"""Counts, also overdispersed and with more or fewer zeros than their distribution has."""

from __future__ import annotations

import abc
from dataclasses import dataclass, field
from typing import Any, ClassVar

import gpflow
import numpy as np
import scipy.stats
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood
from numpy.random import Generator
from scipy.special import xlogy

from ... import likelihoods
from ...likelihoods.base import GaussHermite, unwrapped
from ...likelihoods.counts import SMALLEST
from ...likelihoods.links import checked_link
from . import encoding
from .base import (
    Dispersed,
    Family,
    Levels,
    LinkedFamily,
    MaybeArray,
    Pair,
    QuasiFamily,
    Reader,
    first,
    number,
    second,
    with_second_of,
)
from .binary import probability
from .encoding import Observed

_LARGEST = 1e18
"""Above this rate numpy draws no Poisson counts."""
_LEAST = 1e-300
"""Below this mean squares overflow."""
_BISECTIONS = 60
_LOWEST = -12.0
"""Log of a mean below which nearly every count above zero is one."""


@dataclass(frozen=True)
class Poisson(LinkedFamily):
    """
    Counts.

    :param link: "log", "identity" or "sqrt"; under the others means below a hundredth of that of
        all counts are kept positive by a logarithm: see :class:`gpflow_gam.likelihoods.MeanLink`.
    :raises ValueError: another link.
    """

    name: ClassVar[str] = "poisson"
    discrete: ClassVar[bool] = True
    links: ClassVar[tuple[str, ...]] = ("log", "identity", "sqrt")
    _reads: ClassVar[Reader] = encoding.whole_counts
    link: str = "log"

    def _likelihood(self, y: Observed, levels: Levels | None) -> Likelihood:
        base = gpflow.likelihoods.Poisson(quadrature=GaussHermite())
        return self.linked(base, y)

    def null(self, Y: AnyNDArray, offset: AnyNDArray, weights: MaybeArray) -> MaybeArray:
        if not self.default_link:
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

    def pearson(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> Pair:
        mean = np.maximum(self.mean(likelihood, F), _LEAST)
        return np.square(first(Y) - mean) / mean, 2.0 + 1.0 / mean

    def distribution(self, likelihood: Likelihood, F: AnyNDArray) -> Any:
        return scipy.stats.poisson(np.minimum(self.mean(likelihood, F), _LARGEST))


@dataclass(frozen=True)
class NegativeBinomial(Dispersed, Poisson):
    """
    Counts of variance ``mu + alpha mu^2``; alpha is the dispersion.

    :param link: as of :class:`Poisson`.
    """

    name: ClassVar[str] = "negative_binomial"
    varying: bool = field(default=False, kw_only=True)
    """Whether the logarithm of the dispersion has a predictor, the second."""

    def _likelihood(self, y: Observed, levels: Levels | None) -> Likelihood:
        if self.varying:
            return self.linked(likelihoods.NegativeBinomial(varying=True), y)
        mean, variance, _ = y.moments
        mean = max(mean, 1e-3)
        # by moments, as if the predictor were to explain half of the variance
        alpha = float(np.clip((0.5 * variance - mean) / mean**2, 0.05, 5.0))
        base = likelihoods.NegativeBinomial(alpha, quadrature=GaussHermite())
        return self.linked(base, y)

    def null(self, Y: AnyNDArray, offset: AnyNDArray, weights: MaybeArray) -> MaybeArray:
        return None if self.varying or np.any(offset) else super().null(Y, offset, weights)

    def _mean_alpha(self, likelihood: Likelihood, F: AnyNDArray) -> tuple[AnyNDArray, Any]:
        """The logarithm of the mean, and the dispersion."""
        f, log_alpha = self._parts(likelihood, F)
        return f, np.exp(np.maximum(log_alpha, np.log(SMALLEST)))

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        y, (f, alpha) = first(Y), self._mean_alpha(likelihood, F)
        tail = np.log1p(alpha * y) - np.logaddexp(0.0, f + np.log(alpha))
        return np.maximum(2.0 * (xlogy(y, y) - y * f - (y + 1.0 / alpha) * tail), 0.0)

    @property
    def overdispersed(self) -> str:
        return ""

    def pearson(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> Pair:
        f, alpha = self._mean_alpha(likelihood, F)
        mean = np.maximum(np.exp(f), _LEAST)
        variance = mean + alpha * mean**2
        return np.square(first(Y) - mean) / variance, 2.0 + 6.0 * alpha + 1.0 / variance

    def distribution(self, likelihood: Likelihood, F: AnyNDArray) -> Any:
        f, alpha = self._mean_alpha(likelihood, F)
        return scipy.stats.nbinom(1.0 / alpha, 1.0 / (1.0 + alpha * np.exp(f)))

    def sample(
        self, likelihood: Likelihood, F: AnyNDArray, rng: Generator, trials: MaybeArray = None
    ) -> AnyNDArray:
        """Poisson counts of gamma rates: scipy's refuses large ones."""
        f, alpha = self._mean_alpha(likelihood, F)
        rate = rng.gamma(1.0 / alpha, alpha * np.exp(f))
        return rng.poisson(np.minimum(rate, _LARGEST)).astype(np.float64)


@dataclass(frozen=True)
class QuasiPoisson(QuasiFamily, Poisson):  # type: ignore[misc]
    """
    Counts, or other amounts that are not negative, of variance ``dispersion mu``.

    :param link: as of :class:`Poisson`.
    """

    name: ClassVar[str] = "quasipoisson"
    discrete: ClassVar[bool] = False
    _reads: ClassVar[Reader] = encoding.amounts
    _instead: ClassVar[str] = "'negative_binomial'"

    def _likelihood(self, y: Observed, levels: Levels | None) -> Likelihood:
        return likelihoods.Quasi(Poisson._likelihood(self, y, levels))

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        return Poisson.deviance(self, likelihood, Y, F) / self._dispersion(likelihood)

    def pearson(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> Pair:
        """The second is one on average, and makes the first less variable (Fletcher 2012)."""
        y, mean = first(Y), np.maximum(self.mean(likelihood, F), _LEAST)
        gap = (y - mean) / mean
        return gap * (y - mean) / self._dispersion(likelihood), 1.0 + gap


@dataclass(frozen=True)
class ZeroAltered(Family, abc.ABC):
    """Counts with a log link, whose zeros have a predictor, by ``link``, of their own."""

    discrete: ClassVar[bool] = True
    modelled: ClassVar[tuple[str, ...]] = ("mean", "zero")
    of_first: ClassVar[bool] = True
    log_link: ClassVar[bool] = True
    kind: ClassVar[type[likelihoods.ZeroInflated | likelihoods.Hurdle]]
    """Its likelihood."""
    overdispersed_counts: ClassVar[bool] = False
    """Whether counts are negative binomial."""
    _reads: ClassVar[Reader] = encoding.whole_counts
    link: str = "logit"

    def __post_init__(self) -> None:
        checked_link(self.link)

    def _likelihood(self, y: Observed, levels: Levels | None) -> Likelihood:
        return self.kind(1.0 if self.overdispersed_counts else None, self.link)

    def num_predictors(self, levels: Levels | None = None) -> int:
        return 2

    def predictor_names(self, levels: Levels | None = None) -> tuple[str, ...]:
        return "mean", f"{self.link} zero"

    def axes(self, response: str) -> tuple[str, ...]:
        return f"log mean count of {response}", f"{self.link} P(zero) of {response}"

    def null_predictor(self, null: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        """A constant mean, ``null``, with the zeros that were fitted, of ``F``."""
        return with_second_of(F, null)

    def _counts(self, likelihood: Likelihood, f: AnyNDArray) -> Any:
        """The distribution of the count, of scipy, at predictors [...] of its mean."""
        mu = np.exp(np.minimum(f, np.log(_LARGEST)))
        alpha = unwrapped(likelihood).alpha
        if alpha is None:
            return scipy.stats.poisson(mu)
        size = 1.0 / number(alpha)
        return scipy.stats.nbinom(size, size / (size + mu))

    def _zero_counts(self, likelihood: Likelihood, F: AnyNDArray) -> tuple[AnyNDArray, Any]:
        """The probability of the second predictor, and the distribution of the count."""
        return probability(self.link, second(F)), self._counts(likelihood, first(F))

    def mean(self, likelihood: Likelihood, F: AnyNDArray) -> AnyNDArray:
        zero, counts = self._zero_counts(likelihood, F)
        return np.asarray((1.0 - zero) * counts.mean() / self._share(counts))

    @abc.abstractmethod
    def _share(self, counts: Any) -> Any:
        """Of its distribution that a count is drawn from where there is one."""


@dataclass(frozen=True)
class ZeroInflatedPoisson(ZeroAltered):
    """A zero with a probability, a Poisson count otherwise (Lambert 1992)."""

    name: ClassVar[str] = "zero_inflated_poisson"
    kind = likelihoods.ZeroInflated

    def _share(self, counts: Any) -> Any:
        return 1.0

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        """Against a mean for each row: of zeros the count is then zero for sure."""
        y, (zero, counts) = first(Y), self._zero_counts(likelihood, F)
        none = -np.log(zero + (1.0 - zero) * counts.pmf(0.0))
        best = self._counts(likelihood, np.log(np.maximum(y, 1.0)))
        some = best.logpmf(y) - counts.logpmf(y)
        return np.maximum(2.0 * np.where(y > 0.0, some, none), 0.0)

    def cdf(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> Pair:
        y, (zero, counts) = first(Y), self._zero_counts(likelihood, F)
        below = np.where(y > 0.0, zero + (1.0 - zero) * counts.cdf(y - 1.0), 0.0)
        return below, zero + (1.0 - zero) * counts.cdf(y)

    def sample(
        self, likelihood: Likelihood, F: AnyNDArray, rng: Generator, trials: MaybeArray = None
    ) -> AnyNDArray:
        zero, counts = self._zero_counts(likelihood, F)
        drawn = counts.rvs(size=zero.shape, random_state=rng)
        return np.where(rng.uniform(size=zero.shape) < zero, 0.0, drawn).astype(np.float64)


@dataclass(frozen=True)
class ZeroInflatedNegativeBinomial(ZeroInflatedPoisson):
    """A zero with a probability, a negative binomial count otherwise."""

    name: ClassVar[str] = "zero_inflated_negative_binomial"
    overdispersed_counts: ClassVar[bool] = True


@dataclass(frozen=True)
class HurdlePoisson(ZeroAltered):
    """A zero with a probability, a Poisson count above zero otherwise (Mullahy 1986)."""

    name: ClassVar[str] = "hurdle_poisson"
    kind = likelihoods.Hurdle

    def _share(self, counts: Any) -> Any:
        return np.maximum(counts.sf(0.0), _LEAST)

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        """Against a mean for each row; zeros say nothing of it."""
        y = first(Y)
        # the likeliest mean is that whose count above zero has the mean y
        low, high = np.full_like(y, _LOWEST), np.log(np.maximum(y, 1.0)) + 1.0
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            counts = self._counts(likelihood, middle)
            below = counts.mean() / self._share(counts) < y
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        best, at = (
            counts.logpmf(y) - np.log(self._share(counts))
            for counts in (self._counts(likelihood, f) for f in (low, first(F)))
        )
        return np.where(y > 0.0, np.maximum(2.0 * (best - at), 0.0), 0.0)

    def cdf(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> Pair:
        y, (zero, counts) = first(Y), self._zero_counts(likelihood, F)

        def upto(k: AnyNDArray) -> AnyNDArray:
            some = np.clip((counts.cdf(k) - counts.pmf(0.0)) / self._share(counts), 0.0, 1.0)
            return np.where(k >= 0.0, zero + (1.0 - zero) * np.where(k > 0.0, some, 0.0), 0.0)

        return upto(y - 1.0), upto(y)

    def sample(
        self, likelihood: Likelihood, F: AnyNDArray, rng: Generator, trials: MaybeArray = None
    ) -> AnyNDArray:
        zero, counts = self._zero_counts(likelihood, F)
        # above zero: the inverse of the survival function at a part of what is there
        some = counts.isf(rng.uniform(size=zero.shape) * counts.sf(0.0))
        some = np.maximum(some, 1.0)
        return np.where(rng.uniform(size=zero.shape) < zero, 0.0, some).astype(np.float64)


@dataclass(frozen=True)
class HurdleNegativeBinomial(HurdlePoisson):
    """A zero with a probability, a negative binomial count above zero otherwise."""

    name: ClassVar[str] = "hurdle_negative_binomial"
    overdispersed_counts: ClassVar[bool] = True
