"""Families whose positive mean has one of several links."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.config import default_float
from gpflow.likelihoods import Likelihood, ScalarLikelihood

from ... import likelihoods
from ...likelihoods import Heteroskedastic, LocationScale, unwrapped
from ...likelihoods.mean_link import POWERS, predictor_of
from ...storage import RowArray
from . import encoding
from .base import Family, first, number, own
from .encoding import Described, Observed, spread


class LinkedFamily(Family):
    """
    A family with a field ``link``, beside the link that its own likelihood has.

    Below a hundredth of the mean response links go over into others that keep the mean positive:
    see :class:`gpflow_gam.likelihoods.Linked`.
    """

    links: ClassVar[tuple[str, ...]]
    """Its own likelihood's first."""
    link: str

    def __post_init__(self) -> None:
        if self.link not in self.links:
            *others, last = map(repr, self.links)
            raise ValueError(
                f"link of family {self.name!r} must be {', '.join(others)} or {last}; got "
                f"{self.link!r}."
            )

    @property
    def own_link(self) -> bool:
        return self.link == self.links[0]

    @property
    def reads_response(self) -> bool:
        """The mean of all, about which another link is kept positive."""
        return self.calibrated or not self.own_link

    @property
    def log_link(self) -> bool:  # type: ignore[override]
        return self.link == "log"

    @property
    def heavy_tailed(self) -> bool:
        return self.link in ("log", "inverse")

    def linked(
        self,
        base: ScalarLikelihood | LocationScale | Heteroskedastic,
        Y: Observed,
        weights: RowArray | None,
    ) -> Likelihood:
        """
        The likelihood with the family's link.

        :param base: with the family's own; of a mean, or of that and a scale.
        :param Y: [N, 1], or stored so that slices of rows can be read.
        :param weights: how often each row counts, [N].
        :raises ValueError: responses whose mean no such link has.
        """
        if self.own_link:
            return base
        mean, _ = self._moments(Y, weights)
        if isinstance(Y, Described) and not mean > 0.0:
            mean = 1.0  # weights made it positive; what it settles comes from a file
        if not mean > 0.0:
            raise ValueError(
                f"y: link {self.link!r} is of positive means, and the mean response is {mean:g}; "
                f"take link={self.links[0]!r}."
            )
        if isinstance(base, ScalarLikelihood):
            return likelihoods.Linked(base, self.link, mean)
        return likelihoods.LinkedLocationScale(base, self.link, mean, self._size(Y, weights))

    def _moments(self, Y: Observed, weights: RowArray | None = None) -> tuple[float, float]:
        """Mean and standard deviation of all responses."""
        return encoding.moments(Y, weights)[0], spread(Y, weights)

    def log_mean(self, likelihood: Likelihood, F: AnyNDArray) -> AnyNDArray:
        """
        The logarithm of the mean, [...], of a family whose own link is that.

        :param likelihood: of the fit.
        :param F: predictors, [..., L].
        """
        if self.own_link:
            return first(F)
        base = own(likelihood, likelihoods.MeanLink)  # type: ignore[type-abstract]
        f = tf.constant(first(F), default_float())
        return np.asarray(base.log_mean(f), dtype=np.float64)

    def mean(self, likelihood: Likelihood, F: AnyNDArray) -> AnyNDArray:
        return np.exp(self.log_mean(likelihood, F))

    def scale(self, Y: RowArray, weights: RowArray | None = None) -> float:
        return self._size(Y, weights)

    def _size(self, Y: Observed, weights: RowArray | None = None) -> float:
        """Of a predictor that is no logarithm, to first order what the response's size makes it."""
        mean, sd = self._moments(Y, weights)
        if self.link == "log" or not mean > 0.0:
            return 1.0
        power = POWERS[self.link]
        # what varies more than its mean does so by chance
        return float(abs(power) * mean ** (power - 1.0) * min(sd, mean))

    def linked_null(
        self, Y: AnyNDArray, offset: AnyNDArray, weights: AnyNDArray | None
    ) -> AnyNDArray | None:
        """
        Of the mean of the responses, under which they are most likely.

        :param Y: [N, 1].
        :param offset: added to the predictor, [N].
        :param weights: how often each row counts, [N].
        :return: [1]; None where there are offsets, or no positive mean.
        """
        mean = float(np.average(Y[:, 0], weights=weights))
        if np.any(offset) or not mean > 0.0:
            return None
        return np.array([predictor_of(self.link, mean)])


def size_of(likelihood: Likelihood) -> float:
    """In which a model measures a predictor of the mean beside one of the scale."""
    base = unwrapped(likelihood)
    return number(base.size) if isinstance(base, likelihoods.LinkedLocationScale) else 1.0


def measured(link: str, what: str) -> str:
    """The predictor of a mean, in words."""
    words = {"log": "log {}", "inverse": "1 / {}", "sqrt": "root of {}"}
    return words.get(link, "{}").format(what)


def require_identity(family: LinkedFamily) -> None:
    """
    :raises ValueError: normal responses that are censored, under another link.
    """
    if not family.own_link:
        raise ValueError(
            "link: family 'gaussian' has the identity link with a censored response (Surv); got "
            f"{family.link!r}. Leave link out"
            + (", or take 'lognormal'." if family.link == "log" else ".")
        )
