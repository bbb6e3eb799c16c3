"""Discrete responses: binary ones, successes out of trials and shares, counts, labels."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import gpflow
import numpy as np
import scipy.stats
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood
from numpy.random import Generator
from scipy.special import log_softmax, xlogy

from ... import likelihoods
from ...likelihoods.base import (
    AMOUNTS,
    COUNTS,
    LINKS,
    ORDERED_LINKS,
    SHARE_LINKS,
    SHARES,
    GaussHermite,
    log_probabilities,
    predictor_of,
    unwrapped,
)
from ...likelihoods.discrete import SMALLEST
from ..frames.table import listed
from ..terms.base import Column
from . import encoding
from .base import (
    Dispersed,
    Family,
    Levels,
    LinkedFamily,
    MaybeArray,
    Pair,
    QuasiFamily,
    Response,
    base_of,
    first,
    number,
    with_second_of,
)
from .encoding import Observed

_ROUNDED = 1e-3  # tolerance for successes of a proportion that are no whole number, as in R's glm
_NO_TRIALS = (
    "trials must be given for family 'binomial': how many, of each row; or write cbind(k, n - k), "
    "successes and failures, as the formula's response."
)
_LEAST = 1e-300  # A mean or variance below which squares of it, or over it, overflow


def probabilities(link: str, f: AnyNDArray) -> Pair:
    """Logarithms of the probabilities of success and failure at predictors [...]."""
    with np.errstate(over="ignore", invalid="ignore"):  # of derivatives, which are of no use here
        success, failure = log_probabilities(link, f)
    return success.value, failure.value


def constant_of(
    link: str, successes: AnyNDArray, failures: AnyNDArray, weights: AnyNDArray | None
) -> AnyNDArray | None:
    """The constant predictor [1] of counts [N]; None without a closed form."""
    w = np.ones(len(successes)) if weights is None else weights
    yes, no = float(w @ successes), float(w @ failures)
    if link == "log" or not (yes > 0.0 and no > 0.0):
        return None
    return predictor_of(link, np.array([yes / (yes + no)]), np.array([no / (yes + no)]))


@dataclass(frozen=True)
class Bernoulli(Family):
    """
    Yes or no, of two labels, the second of which is the one whose probability is modelled.

    Labels are sorted, but for those of a pandas.Categorical, which are in the order of its
    categories, as in R.

    :param link: "logit", "probit", "cloglog", "cauchit" or "log", under which effects are
        logarithms of ratios of probabilities (up to .99: see
        :class:`gpflow_gam.likelihoods.Bernoulli`).
    """

    name: ClassVar[str] = "bernoulli"
    labelled: ClassVar[bool] = True
    discrete: ClassVar[bool] = True
    links: ClassVar[tuple[str, ...]] = LINKS
    link: str = "logit"

    def _encode(self, y: AnyNDArray, levels: Levels | None, name: str) -> Response:
        known = levels is not None
        y, levels = encoding.labels(y, levels, name, self.name)
        if not known and set(levels) <= {0, 1}:  # True and False too
            levels = (False, True) if isinstance(levels[0], bool) else (0, 1)
        if len(levels) != 2:
            raise ValueError(
                f"{name} must hold two labels for family 'bernoulli'; got {len(levels)}: "
                f"{listed(levels)}. For counts of successes take 'binomial'."
            )
        return Response(encoding.codes(y, levels, name, self.name)[:, None], levels)

    def _likelihood(self, y: Observed, levels: Levels | None) -> Likelihood:
        return likelihoods.Bernoulli(self.link, quadrature=GaussHermite())

    def null(self, Y: AnyNDArray, offset: AnyNDArray, weights: MaybeArray) -> MaybeArray:
        y = Y[:, 0]
        return None if np.any(offset) else constant_of(self.link, y, 1.0 - y, weights)

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        success, failure = probabilities(self.link, first(F))
        return np.asarray(-2.0 * np.where(first(Y) == 1.0, success, failure))

    def distribution(self, likelihood: Likelihood, F: AnyNDArray) -> Any:
        return scipy.stats.bernoulli(self.mean(likelihood, F))


@dataclass(frozen=True)
class Binomial(Family):
    """
    Counts of successes; Y is [N, 2], successes and trials.

    Without trials a fit is one of :class:`Bernoulli`, where responses are 0 and 1, truth values or
    two labels; or, where they are proportions, one with the weights as trials, as in R's ``glm``.

    :param link: "logit", "probit", "cloglog", "cauchit" or "log", under which effects are
        logarithms of ratios of probabilities (up to .99: see
        :class:`gpflow_gam.likelihoods.Bernoulli`).
    :param proportion: whether the response is the proportion of successes, and not their number.
    """

    name: ClassVar[str] = "binomial"
    discrete: ClassVar[bool] = True
    needs_trials: ClassVar[bool] = True
    overdispersed: ClassVar[str] = (
        "add random_effect() of what rows have in common, or of a column that numbers the rows "
        "(there is no beta-binomial family)"
    )
    links: ClassVar[tuple[str, ...]] = LINKS
    link: str = "logit"
    proportion: bool = False

    def encode(
        self,
        y: AnyNDArray,
        levels: Levels | None = None,
        *,
        trials: AnyNDArray | None = None,
        name: str = "y",
    ) -> Response:
        x, whole = encoding.numbers(y, name, self.name), self.discrete
        if trials is None:
            if self.needs_trials:
                raise ValueError(_NO_TRIALS)
            shares = (x >= 0.0) & (x <= 1.0)
            encoding.require(
                x, shares, "a share from 0 to 1", name, self.name, "give trials= of counts"
            )
            return Response(np.stack([x, np.ones_like(x)], axis=1), None)
        of = "weights, the trials of proportions," if self.proportion and whole else "trials"
        count = encoding.numbers(trials, of, self.name)
        some = COUNTS.holds(count) & (count >= 1.0) if whole else count > 0.0
        said = "whole and at least 1" if whole else "positive"
        encoding.require(count, some, said, of, self.name)
        if x.shape != count.shape:
            raise ValueError(f"{name} has {len(x)} rows, trials has {len(count)}.")
        given, x = x, x * count if self.proportion else x
        if whole and self.proportion:
            near = np.abs(x - np.round(x)) <= _ROUNDED
            encoding.require(
                given, near, "a whole number of successes when multiplied by its trials", name,
                self.name, "check that weights are the numbers of trials",
            )  # fmt: skip
            x = np.round(x)
        if whole:
            said = "whole counts of successes, not negative"
            encoding.require(x, COUNTS.holds(x), said, name, self.name)
        inside = (x >= 0.0) & (x <= count)
        encoding.require(x, inside, "from 0 to the row's trials", name, self.name)
        return Response(np.stack([x, count], axis=1), None)

    def without_trials(self, fractions: bool, weights: Column | None, name: str) -> Family:
        """
        The family of a fit without trials.

        :param fractions: whether some responses are between 0 and 1.
        :param weights: the column of weights.
        :param name: of the response.
        :raises ValueError: proportions of unknown trials.
        """
        if not fractions:
            return Bernoulli(self.link)
        if weights is None:
            raise ValueError(
                f"{name} holds fractions, for family 'binomial', which needs the number of trials "
                "of each row: give trials='column' with numbers of successes, or weights='column' "
                "of trials with proportions; without known trials take family='quasibinomial'."
            )
        return dataclasses.replace(self, proportion=True)

    def _likelihood(self, y: Observed, levels: Levels | None) -> Likelihood:
        return likelihoods.Binomial(self.link)

    def null(self, Y: AnyNDArray, offset: AnyNDArray, weights: MaybeArray) -> MaybeArray:
        if np.any(offset):
            return None
        return constant_of(self.link, Y[:, 0], Y[:, 1] - Y[:, 0], weights)

    def observed(self, Y: AnyNDArray) -> AnyNDArray:
        return Y[:, 0] / Y[:, 1]

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        y, n, (success, failure) = Y[..., 0], Y[..., 1], probabilities(self.link, first(F))
        hits = xlogy(y, y / n) - y * success
        misses = xlogy(n - y, (n - y) / n) - (n - y) * failure
        return np.maximum(2.0 * (hits + misses), 0.0)

    def pearson(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> Pair:
        """A single trial shows no dispersion (McCullagh & Nelder 1989, section 4.4.5)."""
        y, n, (p, q) = Y[..., 0], Y[..., 1], np.exp(probabilities(self.link, first(F)))
        variance = np.maximum(n * p * q, _LEAST)
        several = n > 1.0
        square = np.where(several, np.square(y - n * p) / variance, np.nan)
        return square, np.where(several, 2.0 + (1.0 - 6.0 * p * q) / variance, np.nan)

    def cdf(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> Pair:
        y, trials = Y[..., 0], scipy.stats.binom(Y[..., 1], self.mean(likelihood, F))
        return trials.cdf(y - 1.0), trials.cdf(y)

    def sample(
        self, likelihood: Likelihood, F: AnyNDArray, rng: Generator, trials: MaybeArray = None
    ) -> AnyNDArray:
        if trials is None:
            raise ValueError(_NO_TRIALS)
        given = encoding.numbers(np.asarray(trials), "trials", self.name)
        said = "whole counts, not negative"
        encoding.require(given, COUNTS.holds(given), said, "trials", self.name)
        count = given.astype(np.int64)
        drawn = rng.binomial(count, self.mean(likelihood, F)).astype(np.float64)
        return drawn / count if self.proportion else drawn


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

    def pearson(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> Pair:
        """As of :class:`QuasiPoisson`."""
        y, n, (p, q) = Y[..., 0], Y[..., 1], np.exp(probabilities(self.link, first(F)))
        variance = np.maximum(p * q, _LEAST)
        gap = y / n - p
        square = n * np.square(gap) / variance / self._dispersion(likelihood)
        return square, 1.0 + (q - p) * gap / variance


@dataclass(frozen=True)
class Beta(Dispersed):
    """
    Beta; its scale is ``m (1 - m) / var - 1``, and its dispersion 1 over that.

    :param link: "logit", "probit", "cloglog" or "cauchit", of the mean.
    """

    name: ClassVar[str] = "beta"
    support = SHARES
    links: ClassVar[tuple[str, ...]] = SHARE_LINKS
    link: str = "logit"

    def _likelihood(self, y: Observed, levels: Levels | None) -> Likelihood:
        mean, variance, _ = y.moments
        # by moments, as if the predictor were to explain half of the variance
        scale = mean * (1.0 - mean) / max(0.5 * variance, _LEAST) - 1.0
        return likelihoods.LogitBeta(float(np.clip(scale, 1.0, 1e3)), self.link, self.varying)

    def distribution(self, likelihood: Likelihood, F: AnyNDArray) -> object:
        f, log_dispersion = self._parts(likelihood, F)
        shapes = np.exp(np.array(probabilities(self.link, f)) - log_dispersion)
        return scipy.stats.beta(*np.maximum(shapes, 1e-10))


_LARGEST = 1e18  # above this rate numpy draws no Poisson counts


@dataclass(frozen=True)
class Poisson(LinkedFamily):
    """
    Counts.

    :param link: "log", "identity" or "sqrt"; under the others means below a hundredth of that of
        all counts are kept positive by a logarithm: see :class:`gpflow_gam.likelihoods.MeanLink`.
    """

    name: ClassVar[str] = "poisson"
    discrete: ClassVar[bool] = True
    links: ClassVar[tuple[str, ...]] = ("log", "identity", "sqrt")
    overdispersed: ClassVar[str] = "take family='negative_binomial'"
    support = COUNTS
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
    overdispersed: ClassVar[str] = ""

    def _likelihood(self, y: Observed, levels: Levels | None) -> Likelihood:
        mean, variance, _ = y.moments
        mean = max(mean, 1e-3)
        # by moments, as if the predictor were to explain half of the variance
        alpha = float(np.clip((0.5 * variance - mean) / mean**2, 0.05, 5.0))
        return self.linked(likelihoods.NegativeBinomial(alpha, self.varying), y)

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

    def pearson(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> Pair:
        f, alpha = self._mean_alpha(likelihood, F)
        mean = np.maximum(np.exp(f), _LEAST)
        variance = mean + alpha * mean**2
        return np.square(first(Y) - mean) / variance, 2.0 + 6.0 * alpha + 1.0 / variance

    def distribution(self, likelihood: Likelihood, F: AnyNDArray) -> Any:
        f, alpha = self._mean_alpha(likelihood, F)
        return scipy.stats.nbinom(1.0 / alpha, 1.0 / (1.0 + alpha * np.exp(f)))

    def _draw(self, likelihood: Likelihood, F: AnyNDArray, rng: Generator) -> AnyNDArray:
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
    support = AMOUNTS
    _instead: ClassVar[str] = "'negative_binomial'"

    def pearson(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> Pair:
        """The second is one on average, and makes the first less variable (Fletcher 2012)."""
        y, mean = first(Y), np.maximum(self.mean(likelihood, F), _LEAST)
        gap = (y - mean) / mean
        return gap * (y - mean) / self._dispersion(likelihood), 1.0 + gap


@dataclass(frozen=True)
class _Altered:
    """Counts whose zeros have a probability of their own, as scipy's frozen distributions."""

    zero: AnyNDArray  # a probability
    counts: Any  # the distribution of the other counts, of which ``positive`` ones are above zero
    positive: bool

    @property
    def _share(self) -> Any:
        """Share of the count distribution that counts are drawn from."""
        return np.maximum(self.counts.sf(0.0), _LEAST) if self.positive else 1.0

    def mean(self) -> AnyNDArray:
        return np.asarray((1.0 - self.zero) * self.counts.mean() / self._share)

    def cdf(self, k: AnyNDArray) -> AnyNDArray:
        some = self.counts.cdf(k)
        if self.positive:
            some = np.clip((some - self.counts.pmf(0.0)) / self._share, 0.0, 1.0) * (k > 0.0)
        return np.where(k >= 0.0, self.zero + (1.0 - self.zero) * some, 0.0)

    def rvs(self, size: tuple[int, ...], random_state: Generator) -> AnyNDArray:
        if self.positive:  # the inverse of the survival function at a part of what is there
            some = self.counts.isf(random_state.uniform(size=size) * self.counts.sf(0.0))
            some = np.maximum(some, 1.0)
        else:
            some = self.counts.rvs(size=size, random_state=random_state)
        return np.where(random_state.uniform(size=size) < self.zero, 0.0, some)


@dataclass(frozen=True)
class ZeroAltered(Family):
    """Counts with a log link, whose zeros have a predictor, by ``link``, of their own."""

    discrete: ClassVar[bool] = True
    modelled: ClassVar[tuple[str, ...]] = ("mean", "zero")
    of_first: ClassVar[bool] = True
    log_link: ClassVar[bool] = True
    kind: ClassVar[type[likelihoods.ZeroInflated | likelihoods.Hurdle]]  # its likelihood
    overdispersed_counts: ClassVar[bool] = False  # true if counts are negative binomial
    support = COUNTS
    links: ClassVar[tuple[str, ...]] = LINKS
    link: str = "logit"

    def _likelihood(self, y: Observed, levels: Levels | None) -> Likelihood:
        return self.kind(1.0 if self.overdispersed_counts else None, self.link)

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

    def distribution(self, likelihood: Likelihood, F: AnyNDArray) -> _Altered:
        zero = np.exp(probabilities(self.link, first(F[..., 1:]))[0])
        positive = self.kind is likelihoods.Hurdle
        return _Altered(zero, self._counts(likelihood, first(F)), positive)

    def mean(self, likelihood: Likelihood, F: AnyNDArray) -> AnyNDArray:
        return self.distribution(likelihood, F).mean()


@dataclass(frozen=True)
class ZeroInflatedPoisson(ZeroAltered):
    """A zero with a probability, a Poisson count otherwise (Lambert 1992)."""

    name: ClassVar[str] = "zero_inflated_poisson"
    kind = likelihoods.ZeroInflated

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        """Against a mean for each row: of zeros the count is then zero for sure."""
        y, altered = first(Y), self.distribution(likelihood, F)
        best = self._counts(likelihood, np.log(np.maximum(y, 1.0)))
        some = best.logpmf(y) - altered.counts.logpmf(y)
        return np.maximum(2.0 * np.where(y > 0.0, some, -np.log(altered.cdf(0.0 * y))), 0.0)


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


@dataclass(frozen=True)
class HurdleNegativeBinomial(HurdlePoisson):
    """A zero with a probability, a negative binomial count above zero otherwise."""

    name: ClassVar[str] = "hurdle_negative_binomial"
    overdispersed_counts: ClassVar[bool] = True


class LabelledFamily(Family):
    """A family whose Y [N, 1] holds codes of labels, and whose mean is their probabilities."""

    labelled: ClassVar[bool] = True
    discrete: ClassVar[bool] = True

    def _encode(self, y: AnyNDArray, levels: Levels | None, name: str) -> Response:
        """Codes of a column and their labels, learned where none are given."""
        y, levels = encoding.labels(y, levels, name, self.name)
        if len(levels) < 2:
            raise ValueError(
                f"{name} must hold at least two labels for family {self.name!r}; got only "
                f"{listed(levels)}."
            )
        return Response(encoding.codes(y, levels, name, self.name)[:, None], levels)

    def _known(self, levels: Levels | None) -> Levels:
        if levels is None:
            raise ValueError(
                f"levels must be given for family {self.name!r}: its labels, in order."
            )
        return levels

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        return -2.0 * self.log_density(likelihood, Y, F)

    def _draw(self, likelihood: Likelihood, F: AnyNDArray, rng: Generator) -> AnyNDArray:
        p = self.mean(likelihood, F)
        above = np.cumsum(p, axis=-1)[..., :-1] < rng.uniform(size=(*p.shape[:-1], 1))
        return np.sum(above, axis=-1)


@dataclass(frozen=True)
class Categorical(LabelledFamily):
    """
    Classes, each with a predictor of its own, behind a softmax.

    A category that a pandas categorical declares and no row has is a class that may yet come, and
    keeps next to no probability. ``Series.cat.remove_unused_categories`` takes it out beforehand.
    """

    name: ClassVar[str] = "categorical"
    ordered: ClassVar[bool] = False
    modelled: ClassVar[tuple[str, ...]] = ()

    def for_parameters(self, names: Sequence[str]) -> tuple[Family, tuple[str, ...]]:
        return self, tuple(names)  # labels, which only data have

    def _likelihood(self, y: Observed, levels: Levels | None) -> Likelihood:
        return likelihoods.FixedSoftmax(self.num_predictors(levels))

    def predictor_names(self, levels: Levels | None = None) -> tuple[str, ...]:
        return tuple(str(level) for level in self._known(levels))

    def log_density(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        logs = log_softmax(np.asarray(F, dtype=np.float64), axis=-1)
        code = np.broadcast_to(np.asarray(Y)[..., :1].astype(np.int64), (*logs.shape[:-1], 1))
        return np.take_along_axis(logs, code, axis=-1)[..., 0]

    def cdf(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> None:
        return None


@dataclass(frozen=True)
class Ordinal(LabelledFamily):
    """
    Ordered classes, ``P(y <= k) = G(c_k - f)``; the cutpoints are learned, the first is 0.

    :param levels: the labels from lowest to highest. By default those of an ordered categorical
        column (of pandas; an Enum of polars; an ordered dictionary of Arrow) in its order, and
        numbers in theirs. Text has no order: it needs one of the two. Levels given here also hold
        for a column that is ordered otherwise.
    :param link: of which G is the inverse: "probit", "logit" (proportional odds), "cloglog"
        (proportional hazards) or "cauchit".
    :raises ValueError: fewer than two labels, one twice, or another link.
    """

    name: ClassVar[str] = "ordinal"
    intercept_name: ClassVar[str] = "cutpoints"
    links: ClassVar[tuple[str, ...]] = ORDERED_LINKS
    levels: Levels | None = None
    link: str = "probit"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.levels is None:
            return
        object.__setattr__(self, "levels", tuple(self.levels))
        if len(self.levels) < 2 or len(set(self.levels)) < len(self.levels):
            raise ValueError(f"levels must be two or more different labels; got {self.levels}.")

    def labels_of(self, categories: Levels | None, ordered: bool) -> Levels | None:
        return self.levels or (categories if ordered else None)

    def _encode(self, y: AnyNDArray, levels: Levels | None, name: str) -> Response:
        stated = levels or self.levels
        response = super()._encode(y, stated, name)
        labels = response.levels or ()
        if stated is None and any(isinstance(level, str) for level in labels):
            raise ValueError(
                f"{name} holds text ({listed(labels)}), which has no order, for family "
                f"'ordinal': give one, from lowest to highest, by family=gg.families.Ordinal("
                f"levels=[...]), or make {name} pd.Categorical(..., categories=[...], "
                "ordered=True)."
            )
        return response

    def _likelihood(self, y: Observed, levels: Levels | None) -> Likelihood:
        number = len(self._known(levels or self.levels))
        counts = y.occurring(number)
        # where a constant predictor puts them, half an observation more in each class
        shares = np.cumsum(counts + 0.5)[:-1] / np.sum(counts + 0.5)
        steps = np.diff(predictor_of(self.link, shares, 1.0 - shares))
        return likelihoods.Ordered(number, np.maximum(steps, 1e-3), self.link)

    def parameters(self, likelihood: Likelihood, levels: Levels | None) -> dict[str, float]:
        """Cutpoints of a ``likelihood``, each by the ``levels`` between which it is."""
        cutpoints = np.asarray(base_of(likelihood).cutpoints, dtype=np.float64)
        pairs = itertools.pairwise(self._known(levels or self.levels))
        return {f"{low} | {high}": float(c) for (low, high), c in zip(pairs, cutpoints)}

    def cdf(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> Pair:
        p = self.mean(likelihood, F)
        code = np.asarray(Y)[..., :1].astype(np.int64)
        own, upper = (np.take_along_axis(v, code, axis=-1)[..., 0] for v in (p, p.cumsum(axis=-1)))
        return upper - own, upper
