"""Two-valued responses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood
from scipy.special import expit, log_ndtr, ndtr

from ... import likelihoods
from ...likelihoods.links import checked_link
from . import encoding
from .base import Family, Levels, Response, first, single
from .encoding import Observed


def probability(link: str, f: AnyNDArray) -> AnyNDArray:
    """P(success) at predictors [...]."""
    return np.asarray(expit(f) if link == "logit" else ndtr(f))


def log_probability(link: str, f: AnyNDArray) -> AnyNDArray:
    """Log P(success) at predictors [...]; that of failure is at -f."""
    return np.asarray(-np.logaddexp(0.0, -f) if link == "logit" else log_ndtr(f))


@dataclass(frozen=True)
class Bernoulli(Family):
    """
    Yes or no; the second of the two sorted labels is the one whose probability is modelled.

    :param link: "logit" or "probit".
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

    def likelihood(self, Y: Observed, levels: Levels | None = None) -> likelihoods.Bernoulli:
        return likelihoods.Bernoulli(self.link, quadrature=likelihoods.GaussHermite())

    def mean(self, likelihood: Likelihood, F: AnyNDArray) -> AnyNDArray:
        return probability(self.link, first(F))

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        y, f = single(Y, F)
        return -2.0 * log_probability(self.link, np.where(y == 1.0, f, -f))

    def cdf(
        self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray
    ) -> tuple[AnyNDArray, AnyNDArray]:
        y, f = single(Y, F)
        failure = probability(self.link, -f)
        return np.where(y == 1.0, failure, 0.0), np.where(y == 1.0, 1.0, failure)

    def sample(
        self,
        likelihood: Likelihood,
        F: AnyNDArray,
        rng: np.random.Generator,
        trials: AnyNDArray | None = None,
    ) -> AnyNDArray:
        p = probability(self.link, first(F))
        return (rng.uniform(size=p.shape) < p).astype(np.float64)
