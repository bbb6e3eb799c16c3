"""Responses that may be censored: times to an event, and numbers with limits of detection."""

from __future__ import annotations

import abc
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.config import default_float
from gpflow.likelihoods import Likelihood
from numpy.random import Generator

from ... import likelihoods
from ...likelihoods.censored import EXACT, INTERVAL, LEFT, RIGHT, Intervals
from ..terms import Surv
from . import encoding
from .base import Family, Levels, LocationScale, MaybeArray, Pair, Response, base_of, first
from .encoding import Described, Observed, Sample

_CELLS = 4096
"""Of the logarithm of time, at whose ends intervals of a baseline may begin."""
_SHORT = 1e-6
"""The shortest time that they tell from zero, against the longest."""
_SDS = np.geomspace(5e-3, 3.0, 60)
"""Of steps of a log baseline, that are tried."""
_LOST = 1.0
"""Nats by which the evidence may be below the best: too smooth a baseline takes from slopes what
too rough a one does not, so that of all that the events allow the roughest is taken."""
_MAX_STEPS, _TOLERANCE = 100, 1e-8
"""Of Newton's method."""


@dataclass(frozen=True)
class Survival(LocationScale, abc.ABC):
    """
    A location and a scale of a response, or of its logarithm; rows may be censored.

    Y is [N, 1] where the response is a column, and [N, 3] where it is a
    :class:`~gpflow_gam.gam.terms.Surv`: see :class:`gpflow_gam.likelihoods.Censored`.
    """

    kind: ClassVar[type[likelihoods.Censored]]
    """Its likelihood."""
    start: ClassVar[float]
    """The scale at first, against the standard deviation of the response (or its logarithm)."""
    varying: bool = field(default=False, kw_only=True)
    """Whether the logarithm of the scale has a predictor, the second."""

    def axes(self, response: str) -> tuple[str, ...]:
        if not self.varying:
            return ()
        what = f"log {response}" if self.kind.logarithm else response
        return f"{self.modelled[0]} of {what}", f"log scale of {what}"

    def _encode(self, y: AnyNDArray, levels: Levels | None, name: str) -> Response:
        reads = encoding.positive if self.kind.logarithm else encoding.numbers
        return Response(reads(y, name, self.name)[:, None], None)

    def censored(self) -> Family:
        return self

    def encode_censored(self, first: AnyNDArray, second: AnyNDArray, surv: Surv) -> Response:
        Y = encoding.censored(first, second, surv, self.name, self.kind.logarithm)
        return Response(Y, None)

    def _likelihood(self, y: Observed, levels: Levels | None) -> Likelihood:
        sd = y.spread(self.kind.logarithm)
        if self.varying:
            return self.kind(unit=sd, varying=True)
        # logarithms have no unit; and a floor must be the same where Y is only described
        floor = 1e-6 if self.kind.logarithm else 1e-3 * y.unweighted.spread()
        return self.kind(self.start * sd, floor)

    def _scale(self, y: Observed) -> float:
        return 1.0 if self.varying else y.spread(self.kind.logarithm)

    def _located(self, likelihood: Likelihood, F: AnyNDArray) -> tuple[AnyNDArray, Any]:
        """Location [..., 1], and scale, a number or [..., 1]."""
        location, scale = self._parts(likelihood, F)
        scale = np.asarray(scale)  # TensorFlow rounds Python's numbers to single precision
        return location[..., None], scale[..., None] if self.varying else scale

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        """Of a censored row the saturated model is the location at which it is most probable."""
        y = tf.constant(Y, dtype=default_float())
        best = base_of(likelihood).saturated(y, self._located(likelihood, F)[1])
        gap = np.asarray(best, dtype=np.float64) - self.log_density(likelihood, Y, F)
        return np.maximum(2.0 * gap, 0.0)

    def _below(self, likelihood: Likelihood, y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        """P(y' < y | F) of y [N, 1], [N]."""
        y = tf.constant(y, default_float())
        return first(
            np.exp(np.asarray(base_of(likelihood).log_cdf(y, *self._located(likelihood, F))))
        )

    def cdf(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> Pair:
        """Of a censored row, the probabilities between which that of its response is."""
        Y = np.asarray(Y, dtype=np.float64)
        low = self._below(likelihood, Y[:, :1], F)
        if Y.shape[1] == 1:
            return low, low
        kind = Y[:, 2]
        high = self._below(likelihood, Y[:, 1:2], F)
        at_most = np.select([kind == RIGHT, kind == INTERVAL], [1.0, high], low)
        return np.where(kind == LEFT, 0.0, low), at_most

    def observed(self, Y: AnyNDArray) -> AnyNDArray:
        y = first(Y)
        return y if Y.shape[1] == 1 else np.where(Y[:, 2] == EXACT, y, np.nan)

    def survival(self, likelihood: Likelihood, times: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        """
        P(y > t | F).

        :param likelihood: of the fit.
        :param times: t, [...].
        :param F: [..., L].
        :return: [...], of both broadcast.
        """
        y = tf.constant(np.asarray(times)[..., None], default_float())
        logs = base_of(likelihood).log_survival(y, *self._located(likelihood, F))
        return first(np.exp(np.asarray(logs, dtype=np.float64)))

    def sample(
        self, likelihood: Likelihood, F: AnyNDArray, rng: Generator, trials: MaybeArray = None
    ) -> AnyNDArray:
        """Responses that nothing censors."""
        location, scale = self._parts(likelihood, F)
        drawn = location + scale * self._standard(rng, location.shape)
        return np.exp(drawn) if self.kind.logarithm else drawn

    def _standard(self, rng: np.random.Generator, shape: tuple[int, ...]) -> AnyNDArray:
        """Draws from the standard distribution."""
        return rng.standard_normal(shape)


@dataclass(frozen=True)
class CensoredGaussian(Survival):
    """Normal and censored: the family of "gaussian" with a ``Surv`` response."""

    name: ClassVar[str] = "censored_gaussian"
    modelled: ClassVar[tuple[str, ...]] = ("mean", "scale")
    kind: ClassVar[type[likelihoods.Censored]] = likelihoods.CensoredGaussian
    start: ClassVar[float] = 0.7


@dataclass(frozen=True)
class LogNormal(Survival):
    """The logarithm is normal; the predictor is its mean."""

    name: ClassVar[str] = "lognormal"
    log_link: ClassVar[bool] = True
    kind: ClassVar[type[likelihoods.Censored]] = likelihoods.LogNormal
    start: ClassVar[float] = 0.7


@dataclass(frozen=True)
class Weibull(Survival):
    """
    Weibull times, ``exp(f)`` times the power ``scale`` of a standard exponential variable.

    Effects are of the logarithm of time (accelerated failure time, as R's ``survreg`` has them);
    divided by minus the scale, where it is one for all rows, they are logarithms of hazard ratios.
    """

    name: ClassVar[str] = "weibull"
    log_link: ClassVar[bool] = True
    kind: ClassVar[type[likelihoods.Censored]] = likelihoods.Weibull
    start: ClassVar[float] = 0.55  # the standard distribution's own is 1.28

    def _standard(self, rng: np.random.Generator, shape: tuple[int, ...]) -> AnyNDArray:
        return np.log(rng.standard_exponential(shape))


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

    def encode_censored(self, first: AnyNDArray, second: AnyNDArray, surv: Surv) -> Response:
        if surv.type != "right":
            raise ValueError(
                f"y: family 'cox' takes Surv(time, event), and no {surv.type} censoring; take "
                "'weibull' or 'lognormal' for that."
            )
        return Response(encoding.censored(first, second, surv, self.name, True), None)

    def _likelihood(self, y: Observed, levels: Levels | None) -> Likelihood:
        if isinstance(y, Described):  # what is learnt comes from a file
            edges = np.linspace(0.0, y.moments[2], self.intervals + 1)
            return likelihoods.Cox(Intervals(edges, np.diff(edges) / edges[-1], 1.0))
        return likelihoods.Cox(_intervals(y, self.intervals))

    def null(self, Y: AnyNDArray, offset: AnyNDArray, weights: MaybeArray) -> MaybeArray:
        return None if np.any(offset) else np.zeros(1)

    def parameters(self, likelihood: Likelihood, levels: Levels | None) -> dict[str, float]:
        """None: a baseline is many numbers, and how far it steps a detail of its intervals."""
        return {}

    def observed(self, Y: AnyNDArray) -> AnyNDArray:
        """No row shows its hazard."""
        return np.full(len(Y), np.nan)

    def _cumulative(self, likelihood: Likelihood, t: AnyNDArray) -> AnyNDArray:
        """H0 at times, [...]."""
        hazards = base_of(likelihood).hazards(tf.constant(t, default_float()))
        return np.asarray(hazards[1], dtype=np.float64)

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        """As of Poisson counts of events (Therneau & Grambsch 2000, section 4.3)."""
        event, f = Y[..., 2], first(F)
        risk = self._cumulative(likelihood, Y[..., 0])
        expected = risk * np.exp(f)
        return np.maximum(2.0 * (expected - event - event * (np.log(risk) + f)), 0.0)

    def cdf(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> Pair:
        below = -np.expm1(-self._cumulative(likelihood, Y[..., 0]) * np.exp(first(F)))
        return below, np.where(Y[..., 2] == 1.0, below, 1.0)

    def longest(self, likelihood: Likelihood) -> float:
        """The longest time of the fit of a ``likelihood``, beyond which nothing is known."""
        return float(base_of(likelihood).edges.numpy()[-1])

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
        self, likelihood: Likelihood, F: AnyNDArray, rng: Generator, trials: MaybeArray = None
    ) -> AnyNDArray:
        raise ValueError(
            "family 'cox' draws no responses: what happens after the longest time of the data is "
            "not known; take survival(data, times), or 'weibull'."
        )


def _intervals(y: Sample, number: int) -> Intervals:
    """Intervals with about as many events each."""
    longest = y.moments[2]
    cells = longest * np.concatenate([[0.0], np.geomspace(_SHORT, 1.0, _CELLS)])
    cells[-1] = longest

    count = np.zeros(len(cells))
    for rows, w in y.blocks():
        event = rows[:, 2] == 1.0
        at = np.searchsorted(cells, rows[event, 0])
        count += np.bincount(at, w[event], minlength=len(cells))
    reached = np.cumsum(y.summed(count))
    wanted = reached[-1] * np.arange(1, number) / number
    inner = cells[np.searchsorted(reached, wanted)]
    edges = np.concatenate([[0.0], inner, [longest]])
    risk = np.zeros(number)
    for rows, w in y.blocks():
        risk += w @ np.clip(rows[:, :1] - edges[:-1], 0.0, np.diff(edges))
    risk = y.summed(risk)
    events = np.diff(np.concatenate([[0.0], np.interp(inner, cells, reached), reached[-1:]]))
    sd = step_sd(events, risk)
    return Intervals(edges, risk / risk.sum(), reached[-1] / risk.sum(), sd)


def step_sd(events: AnyNDArray, risk: AnyNDArray) -> float:
    """
    The standard deviation of steps of a log hazard, given events and time at risk of each interval.

    A random walk with Poisson counts of events: of all within a nat of the best evidence, by
    Laplace's approximation (Rue & Held 2005, section 4.4), the greatest.
    """
    events, risk = (np.asarray(a, dtype=np.float64) for a in (events, risk))
    if not np.any(events):  # which say nothing
        return float(_SDS[-1])
    risk = risk / risk.sum()
    level = np.full(len(events), np.log(events.sum()))
    logs = np.zeros(len(_SDS))
    for i, sd in enumerate(_SDS):
        logs[i], level = _evidence(events, risk, sd, level)
    return float(_SDS[np.flatnonzero(logs >= np.max(logs) - _LOST)[-1]])


def _evidence(
    events: AnyNDArray, risk: AnyNDArray, sd: float, level: AnyNDArray
) -> tuple[float, AnyNDArray]:
    """Its logarithm, up to a constant, and the log hazard [J] that is most probable."""
    number = len(events)
    steps = np.diff(np.eye(number), axis=0) / sd
    prior = steps.T @ steps
    for _ in range(_MAX_STEPS):
        expected = risk * np.exp(level)
        precision = prior + np.diag(expected)
        move = np.linalg.solve(precision, events - expected - prior @ level)
        move /= max(1.0, float(np.max(np.abs(move))))
        level = level + move
        if np.max(np.abs(move)) < _TOLERANCE:
            break
    expected = risk * np.exp(level)
    fit = events @ level - expected.sum() - 0.5 * np.sum(np.square(steps @ level))
    spread = np.linalg.slogdet(prior + np.diag(expected))[1]
    return float(fit - (number - 1) * np.log(sd) - 0.5 * spread), level
