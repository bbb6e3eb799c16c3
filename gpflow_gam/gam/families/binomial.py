"""Successes out of trials."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.stats
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood
from scipy.special import xlogy

from ... import likelihoods
from ...likelihoods.links import checked_link
from ...storage import RowArray
from ..terms import Column
from . import encoding
from .base import Family, Levels, Response, first
from .binary import Bernoulli, constant_of, log_failure, log_probability, probability
from .encoding import Observed

_ROUNDED = 1e-3
"""How far successes of a proportion may be from a whole number, as in R's ``glm``."""


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
        x = self._encode(x, levels, name).Y[:, 0]
        encoding.require(x, x <= count, "at most the row's trials", name, self.name)
        return Response(np.stack([x, count], axis=1), None)

    def _encode(self, y: AnyNDArray, levels: Levels | None, name: str) -> Response:
        x = encoding.whole_counts(y, name, self.name, "successes")
        return Response(x[:, None], None)

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

    def likelihood(
        self, Y: Observed, levels: Levels | None = None, weights: RowArray | None = None
    ) -> likelihoods.Binomial:
        return likelihoods.Binomial(self.link)

    def null(
        self, Y: AnyNDArray, offset: AnyNDArray, weights: AnyNDArray | None
    ) -> AnyNDArray | None:
        if np.any(offset):
            return None
        return constant_of(self.link, Y[:, 0], Y[:, 1] - Y[:, 0], weights)

    def mean(self, likelihood: Likelihood, F: AnyNDArray) -> AnyNDArray:
        return probability(self.link, first(F))

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

    def pearson(
        self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray
    ) -> tuple[AnyNDArray, AnyNDArray]:
        """A single trial shows no dispersion (McCullagh & Nelder 1989, section 4.4.5)."""
        y, n, f = Y[..., 0], Y[..., 1], first(F)
        p, q = probability(self.link, f), np.exp(log_failure(self.link, f))
        variance = np.maximum(n * p * q, 1e-300)
        several = n > 1.0
        square = np.where(several, np.square(y - n * p) / variance, np.nan)
        return square, np.where(several, 2.0 + (1.0 - 6.0 * p * q) / variance, np.nan)

    def cdf(
        self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray
    ) -> tuple[AnyNDArray, AnyNDArray]:
        y, n, p = Y[..., 0], Y[..., 1], probability(self.link, first(F))
        return scipy.stats.binom.cdf(y - 1.0, n, p), scipy.stats.binom.cdf(y, n, p)

    def sample(
        self,
        likelihood: Likelihood,
        F: AnyNDArray,
        rng: np.random.Generator,
        trials: AnyNDArray | None = None,
    ) -> AnyNDArray:
        if trials is None:
            raise ValueError("trials must be given for family 'binomial': how many, of each row.")
        count = np.asarray(trials).astype(np.int64)
        drawn = rng.binomial(count, probability(self.link, first(F))).astype(np.float64)
        return drawn / count if self.proportion else drawn
