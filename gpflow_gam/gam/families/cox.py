"""Proportional hazards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.config import default_float
from gpflow.likelihoods import Likelihood

from ... import likelihoods
from ...likelihoods.cox import Intervals
from ...storage import RowArray, Stored
from ..terms import Surv
from . import censoring, encoding
from .base import Family, Levels, Response, first, own
from .baseline import step_sd
from .encoding import Described, Observed

_BLOCK = 2**20
"""Rows at a time."""
_CELLS = 4096
"""Of the logarithm of time, at whose ends intervals may begin."""
_SHORT = 1e-6
"""The shortest time that they tell from zero, against the longest."""


@dataclass(frozen=True)
class Cox(Family):
    """
    Cox's proportional hazards, for a response ``Surv("time", "event")``.

    The baseline hazard is constant in each of so many intervals of time, between quantiles of the
    times of events, and a random walk from one to the next; how far its steps go is learnt from
    the events, too, so that more intervals tell much the same. The predictor is the logarithm of
    the hazard relative to that of all rows. Under
    ``"response"`` are relative hazards, under ``survival`` the curves.

    :param intervals: how many.
    :raises ValueError: fewer than two.
    """

    name: ClassVar[str] = "cox"
    log_link: ClassVar[bool] = True
    own_constant: ClassVar[str] = "baseline hazard"
    intervals: int = 32

    def __post_init__(self) -> None:
        if isinstance(self.intervals, bool) or int(self.intervals) != self.intervals:
            raise ValueError(f"intervals must be a whole number; got {self.intervals!r}.")
        if self.intervals < 2:
            raise ValueError(f"intervals must be at least 2; got {self.intervals}.")

    @property
    def reads_response(self) -> bool:
        return True

    def _encode(self, y: AnyNDArray, levels: Levels | None, name: str) -> Response:
        raise ValueError(
            f"y: family 'cox' needs times and whether the event was seen: y=Surv({name!r}, event), "
            "event the column that says 1 where it was and 0 where it was not."
        )

    def censored(self) -> Family:
        return self

    def encode_censored(self, first: AnyNDArray, second: AnyNDArray, stated: Surv) -> Response:
        if stated.type != "right":
            raise ValueError(
                f"y: family 'cox' takes Surv(time, event), and no {stated.type} censoring; take "
                "'weibull' or 'lognormal' for that."
            )
        return Response(censoring.encoded(first, second, stated, self.name, True), None)

    def likelihood(
        self, Y: Observed, levels: Levels | None = None, weights: RowArray | None = None
    ) -> Likelihood:
        if isinstance(Y, Described):  # what is learnt comes from a file
            edges = np.linspace(0.0, Y.moments[2], self.intervals + 1)
            return likelihoods.Cox(Intervals(edges, np.diff(edges) / edges[-1], 1.0))
        return likelihoods.Cox(_intervals(Y, self.intervals, weights))

    def null(
        self, Y: AnyNDArray, offset: AnyNDArray, weights: AnyNDArray | None
    ) -> AnyNDArray | None:
        return None if np.any(offset) else np.zeros(1)

    def parameters(self, likelihood: Likelihood, levels: Levels | None) -> dict[str, float]:
        """None: a baseline is many numbers, and how far it steps a detail of its intervals."""
        return {}

    def mean(self, likelihood: Likelihood, F: AnyNDArray) -> AnyNDArray:
        """The hazard relative to that of all rows."""
        return np.exp(first(F))

    def observed(self, Y: AnyNDArray) -> AnyNDArray:
        """No row shows its hazard."""
        return np.full(len(Y), np.nan)

    def _cumulative(self, likelihood: Likelihood, t: AnyNDArray) -> AnyNDArray:
        """H0 at times, [...]."""
        base = own(likelihood, likelihoods.Cox)
        return np.asarray(base.hazards(tf.constant(t, default_float()))[1], dtype=np.float64)

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        """As of Poisson counts of events (Therneau & Grambsch 2000, section 4.3)."""
        event = Y[..., 2]
        risk = self._cumulative(likelihood, Y[..., 0])
        f = first(F)
        expected = risk * np.exp(f)
        return np.maximum(2.0 * (expected - event - event * (np.log(risk) + f)), 0.0)

    def cdf(
        self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray
    ) -> tuple[AnyNDArray, AnyNDArray]:
        below = -np.expm1(-self._cumulative(likelihood, Y[..., 0]) * np.exp(first(F)))
        return below, np.where(Y[..., 2] == 1.0, below, 1.0)

    def longest(self, likelihood: Likelihood) -> float:
        """
        The longest time of the fit, beyond which nothing is known.

        :param likelihood: of the fit.
        """
        return float(own(likelihood, likelihoods.Cox).edges.numpy()[-1])

    def survival(self, likelihood: Likelihood, times: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        """
        P(y > t | F).

        :param likelihood: of the fit.
        :param times: t, [...].
        :param F: [..., 1].
        :return: [...], of both broadcast.
        """
        return np.exp(-self._cumulative(likelihood, np.asarray(times)) * np.exp(first(F)))

    def sample(
        self,
        likelihood: Likelihood,
        F: AnyNDArray,
        rng: np.random.Generator,
        trials: AnyNDArray | None = None,
    ) -> AnyNDArray:
        raise ValueError(
            "family 'cox' draws no responses: what happens after the longest time of the data is "
            "not known; take survival(data, times), or 'weibull'."
        )


def _intervals(Y: RowArray, number: int, weights: RowArray | None = None) -> Intervals:
    """
    Intervals with about as many events each.

    :param Y: [N, 3], read a block of rows at a time.
    :param weights: how often each row counts, [N].
    """
    _, _, longest = encoding.moments(Y)
    cells = longest * np.concatenate([[0.0], np.geomspace(_SHORT, 1.0, _CELLS)])
    cells[-1] = longest

    def summed(part: AnyNDArray) -> AnyNDArray:
        return Y.gathered(part).sum(axis=0) if isinstance(Y, Stored) else part

    count = np.zeros(len(cells))
    for t, event, w in _blocks(Y, weights):
        at = np.searchsorted(cells, t[event])
        count += np.bincount(at, w[event], minlength=len(cells))
    reached = np.cumsum(summed(count))
    wanted = reached[-1] * np.arange(1, number) / number
    inner = cells[np.searchsorted(reached, wanted)]
    edges = np.concatenate([[0.0], inner, [longest]])
    risk = np.zeros(number)
    for t, _, w in _blocks(Y, weights):
        risk += w @ np.clip(t[:, None] - edges[:-1], 0.0, np.diff(edges))
    risk = summed(risk)
    events = np.diff(np.concatenate([[0.0], np.interp(inner, cells, reached), reached[-1:]]))
    sd = step_sd(events, risk)
    return Intervals(edges, risk / risk.sum(), reached[-1] / risk.sum(), sd)


def _blocks(
    Y: RowArray, weights: RowArray | None
) -> Iterator[tuple[AnyNDArray, AnyNDArray, AnyNDArray]]:
    """Times, which are of events, and how often they count."""
    for start in range(0, len(Y), _BLOCK):
        at = slice(start, start + _BLOCK)
        rows = np.asarray(Y[at], dtype=np.float64)
        w = np.ones(len(rows)) if weights is None else np.asarray(weights[at], dtype=np.float64)
        yield rows[:, 0], rows[:, 2] == 1.0, w
