"""Counts with more or fewer zeros than their distribution has."""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.stats
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood

from ... import likelihoods
from ...likelihoods import unwrapped
from ...likelihoods.links import checked_link
from ...storage import RowArray
from . import encoding
from .base import Family, Levels, Response, first, number
from .binary import probability
from .encoding import Observed

_BISECTIONS = 60
_LOWEST = -12.0
"""Log of a mean below which nearly every count above zero is one."""
_LARGEST = 1e18
"""Above this rate numpy draws no Poisson counts."""


@dataclass(frozen=True)
class ZeroAltered(Family, abc.ABC):
    """
    Counts of mean ``mu`` with a log link, whose zeros have a predictor of their own.

    Terms are of the count unless they are given for ``"zero"``, a probability's predictor, which is
    a constant otherwise.

    :param link: of that probability: "logit", "probit", "cloglog", "cauchit" or "log", as of
        :class:`Bernoulli`.
    :raises ValueError: another link.
    """

    discrete: ClassVar[bool] = True
    modelled: ClassVar[tuple[str, ...]] = ("mean", "zero")
    of_first: ClassVar[bool] = True
    log_link: ClassVar[bool] = True
    overdispersed_counts: ClassVar[bool] = False
    """Whether counts are negative binomial."""
    link: str = "logit"

    def __post_init__(self) -> None:
        checked_link(self.link)

    def _encode(self, y: AnyNDArray, levels: Levels | None, name: str) -> Response:
        return Response(encoding.whole_counts(y, name, self.name)[:, None], None)

    @abc.abstractmethod
    def _kind(self) -> Callable[[float | None, str], Likelihood]:
        """The likelihood's class."""

    def likelihood(
        self, Y: Observed, levels: Levels | None = None, weights: RowArray | None = None
    ) -> Likelihood:
        return self._kind()(1.0 if self.overdispersed_counts else None, self.link)

    def num_predictors(self, levels: Levels | None = None) -> int:
        return 2

    def predictor_names(self, levels: Levels | None = None) -> tuple[str, ...]:
        return "mean", f"{self.link} zero"

    def axes(self, response: str) -> tuple[str, ...]:
        return f"log mean count of {response}", f"{self.link} P(zero) of {response}"

    def null_predictor(self, null: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        """A constant mean, with the zeros that were fitted."""
        return np.stack([np.broadcast_to(null[..., 0], len(F)), F[..., 1]], axis=-1)

    def _counts(self, likelihood: Likelihood, F: AnyNDArray) -> Any:
        """The distribution of the count, of scipy."""
        mu = np.exp(np.minimum(first(F), np.log(_LARGEST)))
        alpha = getattr(unwrapped(likelihood), "alpha", None)
        if alpha is None:
            return scipy.stats.poisson(mu)
        size = 1.0 / number(alpha)
        return scipy.stats.nbinom(size, size / (size + mu))

    def _zero(self, F: AnyNDArray) -> AnyNDArray:
        """The probability that has the second predictor."""
        return probability(self.link, np.asarray(F, dtype=np.float64)[..., 1])

    def mean(self, likelihood: Likelihood, F: AnyNDArray) -> AnyNDArray:
        counts = self._counts(likelihood, F)
        return np.asarray((1.0 - self._zero(F)) * counts.mean() / self._share(counts))

    @abc.abstractmethod
    def _share(self, counts: Any) -> Any:
        """Of its distribution that a count is drawn from where there is one."""


@dataclass(frozen=True)
class ZeroInflatedPoisson(ZeroAltered):
    """A zero with a probability, a Poisson count otherwise (Lambert 1992)."""

    name: ClassVar[str] = "zero_inflated_poisson"

    def _kind(self) -> Callable[[float | None, str], Likelihood]:
        return likelihoods.ZeroInflated

    def _share(self, counts: Any) -> Any:
        return 1.0

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        """Against a mean for each row: of zeros the count is then zero for sure."""
        y, zero, counts = first(Y), self._zero(F), self._counts(likelihood, F)
        none = -np.log(zero + (1.0 - zero) * counts.pmf(0.0))
        at = np.stack([np.log(np.maximum(y, 1.0)), np.asarray(F)[:, 1]], axis=1)
        some = self._counts(likelihood, at).logpmf(y) - counts.logpmf(y)
        return np.maximum(2.0 * np.where(y > 0.0, some, none), 0.0)

    def cdf(
        self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray
    ) -> tuple[AnyNDArray, AnyNDArray]:
        y, zero, counts = first(Y), self._zero(F), self._counts(likelihood, F)
        below = np.where(y > 0.0, zero + (1.0 - zero) * counts.cdf(y - 1.0), 0.0)
        return below, zero + (1.0 - zero) * counts.cdf(y)

    def sample(
        self,
        likelihood: Likelihood,
        F: AnyNDArray,
        rng: np.random.Generator,
        trials: AnyNDArray | None = None,
    ) -> AnyNDArray:
        zero = self._zero(F)
        drawn = self._counts(likelihood, F).rvs(size=zero.shape, random_state=rng)
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

    def _kind(self) -> Callable[[float | None, str], Likelihood]:
        return likelihoods.Hurdle

    def _share(self, counts: Any) -> Any:
        return np.maximum(counts.sf(0.0), 1e-300)

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        """Against a mean for each row; zeros say nothing of it."""
        y, F = first(Y), np.asarray(F, dtype=np.float64)

        def at(f: AnyNDArray) -> AnyNDArray:
            return np.stack([f, F[:, 1]], axis=1)

        # the likeliest mean is that whose count above zero has the mean y
        low, high = np.full_like(y, _LOWEST), np.log(np.maximum(y, 1.0)) + 1.0
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            counts = self._counts(likelihood, at(middle))
            below = counts.mean() / self._share(counts) < y
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        logs = [
            c.logpmf(y) - np.log(self._share(c))
            for c in (self._counts(likelihood, G) for G in (at(low), F))
        ]
        return np.where(y > 0.0, np.maximum(2.0 * (logs[0] - logs[1]), 0.0), 0.0)

    def cdf(
        self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray
    ) -> tuple[AnyNDArray, AnyNDArray]:
        y, zero, counts = first(Y), self._zero(F), self._counts(likelihood, F)

        def upto(k: AnyNDArray) -> AnyNDArray:
            some = np.clip((counts.cdf(k) - counts.pmf(0.0)) / self._share(counts), 0.0, 1.0)
            return np.where(k >= 0.0, zero + (1.0 - zero) * np.where(k > 0.0, some, 0.0), 0.0)

        return upto(y - 1.0), upto(y)

    def sample(
        self,
        likelihood: Likelihood,
        F: AnyNDArray,
        rng: np.random.Generator,
        trials: AnyNDArray | None = None,
    ) -> AnyNDArray:
        zero, counts = self._zero(F), self._counts(likelihood, F)
        # above zero: the inverse of the survival function at a part of what is there
        some = counts.isf(rng.uniform(size=zero.shape) * counts.sf(0.0))
        some = np.maximum(some, 1.0)
        return np.where(rng.uniform(size=zero.shape) < zero, 0.0, some).astype(np.float64)


@dataclass(frozen=True)
class HurdleNegativeBinomial(HurdlePoisson):
    """A zero with a probability, a negative binomial count above zero otherwise."""

    name: ClassVar[str] = "hurdle_negative_binomial"
    overdispersed_counts: ClassVar[bool] = True
