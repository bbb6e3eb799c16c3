"""Two-valued responses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood
from scipy.special import expit, log_ndtr, ndtr, ndtri

from ... import likelihoods
from ...likelihoods import links
from ...likelihoods.links import checked_link
from ...storage import RowArray
from . import encoding
from .base import Family, Levels, Response, first, single
from .encoding import Observed

_LEAST = -700.0
"""Predictor below which its exponential underflows."""


def probability(link: str, f: AnyNDArray) -> AnyNDArray:
    """P(success) at predictors [...]."""
    if link == "logit":
        return np.asarray(expit(f))
    if link == "probit":
        return np.asarray(ndtr(f))
    if link == "cloglog":
        return np.asarray(-np.expm1(-np.exp(f)))
    if link == "log":
        return np.exp(log_probability(link, f))
    return np.asarray(np.arctan2(1.0, -f) / np.pi)


def log_probability(link: str, f: AnyNDArray) -> AnyNDArray:
    """Log P(success) at predictors [...]."""
    if link == "logit":
        return np.asarray(-np.logaddexp(0.0, -f))
    if link == "probit":
        return np.asarray(log_ndtr(f))
    if link == "log":
        return np.asarray(links.log_probability(link, tf.constant(f, tf.float64)))
    return np.asarray(np.log(probability(link, np.maximum(f, _LEAST))))


def log_failure(link: str, f: AnyNDArray) -> AnyNDArray:
    """Log P(failure) at predictors [...]: for symmetric links that of success at -f."""
    if link == "log":
        return np.asarray(links.log_failure(link, tf.constant(f, tf.float64)))
    return np.asarray(-np.exp(f)) if link == "cloglog" else log_probability(link, -f)


def constant_of(
    link: str, successes: AnyNDArray, failures: AnyNDArray, weights: AnyNDArray | None
) -> AnyNDArray | None:
    """
    The constant predictor [1] of counted successes and failures; None without a closed form.

    :param successes: [N].
    :param failures: [N].
    :param weights: how often each row counts, [N].
    """
    w = np.ones(len(successes)) if weights is None else weights
    yes, no = float(w @ successes), float(w @ failures)
    if link == "log" or not (yes > 0.0 and no > 0.0):
        return None
    return predictor_of(link, np.array([yes / (yes + no)]), np.array([no / (yes + no)]))


def predictor_of(link: str, p: AnyNDArray, q: AnyNDArray) -> AnyNDArray:
    """
    The predictor at which success has a probability, [...], for links but "log".

    :param p: of success, [...].
    :param q: of failure, [...].
    """
    if link == "logit":
        return np.asarray(np.log(p / q))
    if link == "probit":
        return np.where(p < 0.5, ndtri(p), -ndtri(q))
    return np.asarray(np.log(-np.log(q)) if link == "cloglog" else np.tan(np.pi * (p - 0.5)))


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

    def likelihood(
        self, Y: Observed, levels: Levels | None = None, weights: RowArray | None = None
    ) -> likelihoods.Bernoulli:
        return likelihoods.Bernoulli(self.link, quadrature=likelihoods.GaussHermite())

    def null(
        self, Y: AnyNDArray, offset: AnyNDArray, weights: AnyNDArray | None
    ) -> AnyNDArray | None:
        y = Y[:, 0]
        return None if np.any(offset) else constant_of(self.link, y, 1.0 - y, weights)

    def mean(self, likelihood: Likelihood, F: AnyNDArray) -> AnyNDArray:
        return probability(self.link, first(F))

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        y, f = single(Y, F)
        logs = np.where(y == 1.0, log_probability(self.link, f), log_failure(self.link, f))
        return np.asarray(-2.0 * logs)

    def cdf(
        self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray
    ) -> tuple[AnyNDArray, AnyNDArray]:
        y, f = single(Y, F)
        failure = np.exp(log_failure(self.link, f))
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
