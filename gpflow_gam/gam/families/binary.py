"""Binary responses, successes out of trials, and shares."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import scipy.stats
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood
from numpy.random import Generator
from scipy.special import digamma, expit, logit, xlogy

from ... import likelihoods
from ...likelihoods import links
from ...likelihoods.base import GaussHermite
from ...likelihoods.links import SHARE_LINKS, checked_link, predictor_of
from ..terms import Column
from . import encoding
from .base import Dispersed, Family, Levels, MaybeArray, Pair, QuasiFamily, Response, first
from .encoding import Observed

_ROUNDED = 1e-3
"""How far successes of a proportion may be from a whole number, as in R's ``glm``."""
_BISECTIONS = 60
_LEAST = 1e-300
"""A variance below which squares over it overflow."""


def probability(link: str, f: AnyNDArray) -> AnyNDArray:
    """P(success) at predictors [...]."""
    return np.asarray(links.probability(link, tf.constant(f, tf.float64)))


def log_probability(link: str, f: AnyNDArray) -> AnyNDArray:
    """Log P(success) at predictors [...]."""
    return np.asarray(links.log_probability(link, tf.constant(f, tf.float64)))


def log_failure(link: str, f: AnyNDArray) -> AnyNDArray:
    """Log P(failure) at predictors [...]: for symmetric links that of success at -f."""
    return np.asarray(links.log_failure(link, tf.constant(f, tf.float64)))


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
    Yes or no; the second of the two sorted labels is the one whose probability is modelled.

    :param link: "logit", "probit", "cloglog", "cauchit" or "log", under which effects are
        logarithms of ratios of probabilities (up to .99: see
        :class:`gpflow_gam.likelihoods.Bernoulli`).
    :raises ValueError: another link.
    """

    name: ClassVar[str] = "bernoulli"
    labelled: ClassVar[bool] = True
    discrete: ClassVar[bool] = True
    link: str = "logit"

    def __post_init__(self) -> None:
        checked_link(self.link)

    def _encode(self, y: AnyNDArray, levels: Levels | None, name: str) -> Response:
        y = encoding.values(y, name, self.name)
        if y.dtype.kind == "f":
            y = encoding.numbers(y, name, self.name)
        if levels is None:
            levels = encoding.learned_levels(y, name, self.name)
            if set(levels) <= {0, 1}:  # True and False too
                levels = (False, True) if isinstance(levels[0], bool) else (0, 1)
        if len(levels) != 2:
            raise ValueError(
                f"{name} must hold two labels for family 'bernoulli'; got {len(levels)}: "
                f"{encoding.shown(levels)}. For counts of successes take 'binomial'."
            )
        return Response(encoding.codes(y, levels, name, self.name)[:, None], levels)

    def _likelihood(self, y: Observed, levels: Levels | None) -> Likelihood:
        return likelihoods.Bernoulli(self.link, quadrature=GaussHermite())

    def null(self, Y: AnyNDArray, offset: AnyNDArray, weights: MaybeArray) -> MaybeArray:
        y = Y[:, 0]
        return None if np.any(offset) else constant_of(self.link, y, 1.0 - y, weights)

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        y, f = first(Y), first(F)
        logs = np.where(y == 1.0, log_probability(self.link, f), log_failure(self.link, f))
        return np.asarray(-2.0 * logs)

    def cdf(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> Pair:
        failure, success = np.exp(log_failure(self.link, first(F))), first(Y) == 1.0
        return np.where(success, failure, 0.0), np.where(success, 1.0, failure)

    def sample(
        self, likelihood: Likelihood, F: AnyNDArray, rng: Generator, trials: MaybeArray = None
    ) -> AnyNDArray:
        p = self.mean(likelihood, F)
        return (rng.uniform(size=p.shape) < p).astype(np.float64)


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
    :raises ValueError: another link.
    """

    name: ClassVar[str] = "binomial"
    discrete: ClassVar[bool] = True
    needs_trials: ClassVar[bool] = True
    link: str = "logit"
    proportion: bool = False

    def __post_init__(self) -> None:
        checked_link(self.link)

    def encode(
        self,
        y: AnyNDArray,
        levels: Levels | None = None,
        *,
        trials: AnyNDArray | None = None,
        name: str = "y",
    ) -> Response:
        if trials is None:
            raise ValueError("trials must be given for family 'binomial': how many, of each row.")
        of = "weights, the trials of proportions," if self.proportion else "trials"
        count = encoding.numbers(trials, of, self.name)
        whole = (count == np.round(count)) & (count >= 1.0)
        encoding.require(count, whole, "whole and at least 1", of, self.name)
        x = encoding.numbers(y, name, self.name)
        if x.shape != count.shape:
            raise ValueError(f"{name} has {len(x)} rows, trials has {len(count)}.")
        if self.proportion:
            successes = np.round(x * count)
            near = np.abs(x * count - successes) <= _ROUNDED
            encoding.require(
                x, near, "a whole number of successes when multiplied by its trials", name,
                self.name, "check that weights are the numbers of trials",
            )  # fmt: skip
            x = successes
        x = encoding.whole_counts(x, name, self.name, "successes")
        encoding.require(x, x <= count, "at most the row's trials", name, self.name)
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
        y, n, f = Y[..., 0], Y[..., 1], first(F)
        hits = xlogy(y, y / n) - y * log_probability(self.link, f)
        misses = xlogy(n - y, (n - y) / n) - (n - y) * log_failure(self.link, f)
        return np.maximum(2.0 * (hits + misses), 0.0)

    @property
    def overdispersed(self) -> str:
        return (
            "add random_effect() of what rows have in common, or of a column that numbers the rows "
            "(there is no beta-binomial family)"
        )

    def pearson(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> Pair:
        """A single trial shows no dispersion (McCullagh & Nelder 1989, section 4.4.5)."""
        y, n, f = Y[..., 0], Y[..., 1], first(F)
        p, q = probability(self.link, f), np.exp(log_failure(self.link, f))
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
            raise ValueError("trials must be given for family 'binomial': how many, of each row.")
        count = np.asarray(trials).astype(np.int64)
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

    def _likelihood(self, y: Observed, levels: Levels | None) -> Likelihood:
        return likelihoods.Quasi(likelihoods.Binomial(self.link))

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        return Binomial.deviance(self, likelihood, Y, F) / self._dispersion(likelihood)

    def pearson(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> Pair:
        """As of :class:`QuasiPoisson`."""
        y, n, f = Y[..., 0], Y[..., 1], first(F)
        p, q = probability(self.link, f), np.exp(log_failure(self.link, f))
        variance = np.maximum(p * q, _LEAST)
        gap = y / n - p
        square = n * np.square(gap) / variance / self._dispersion(likelihood)
        return square, 1.0 + (q - p) * gap / variance


@dataclass(frozen=True)
class Beta(Dispersed):
    """
    Beta; its scale is ``m (1 - m) / var - 1``, and its dispersion 1 over that.

    :param link: "logit", "probit", "cloglog" or "cauchit", of the mean.
    :raises ValueError: another link.
    """

    name: ClassVar[str] = "beta"
    link: str = "logit"
    varying: bool = field(default=False, kw_only=True)
    """Whether the logarithm of the dispersion has a predictor, the second."""

    def __post_init__(self) -> None:
        checked_link(self.link, SHARE_LINKS)

    def _encode(self, y: AnyNDArray, levels: Levels | None, name: str) -> Response:
        x = encoding.numbers(y, name, self.name)
        inside = (x > 0.0) & (x < 1.0)
        encoding.require(x, inside, "strictly between 0 and 1", name, self.name)
        return Response(x[:, None], None)

    def _likelihood(self, y: Observed, levels: Levels | None) -> Likelihood:
        if self.varying:
            return likelihoods.LogitBeta(link=self.link, varying=True)
        mean, variance, _ = y.moments
        # by moments, as if the predictor were to explain half of the variance
        scale = mean * (1.0 - mean) / max(0.5 * variance, _LEAST) - 1.0
        return likelihoods.LogitBeta(float(np.clip(scale, 1.0, 1e3)), self.link)

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        """Against the likeliest m: ``digamma(s m) - digamma(s (1 - m)) = logit(y)``."""
        y, scale = first(Y), np.exp(-self._parts(likelihood, F)[1])
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

    def distribution(self, likelihood: Likelihood, F: AnyNDArray) -> object:
        f, log_dispersion = self._parts(likelihood, F)
        scale = np.exp(-log_dispersion)
        a, b = scale * probability(self.link, f), scale * np.exp(log_failure(self.link, f))
        return scipy.stats.beta(np.maximum(a, 1e-10), np.maximum(b, 1e-10))
