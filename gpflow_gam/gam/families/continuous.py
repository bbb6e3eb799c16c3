"""Continuous responses, censored or not, and quantiles in place of a mean."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import gpflow
import numpy as np
import scipy.stats
import tensorflow as tf
from gpflow.base import AnyNDArray, Parameter
from gpflow.likelihoods import Likelihood
from numpy.random import Generator
from scipy.stats import norm

from ... import likelihoods
from ...bijectors import exponential
from ...errors import check_count, check_positive
from ...likelihoods.base import AMOUNTS, POSITIVE, GaussHermite
from ...likelihoods.continuous import SMOOTHING, Loss
from ...likelihoods.times import EXACT, INTERVAL, LEFT, RIGHT, Intervals, entry
from ..terms import Surv
from . import encoding
from .base import (
    Dispersed,
    Family,
    Levels,
    LinkedFamily,
    LocationScale,
    MaybeArray,
    Pair,
    QuasiFamily,
    Response,
    base_of,
    first,
    number,
)
from .encoding import Described, Observed, Sample

_CELLS = 4096  # number of cells of log time, at whose ends intervals of a baseline may begin
_SHORT = 1e-6  # the shortest time after the first entry that they tell from it, against the longest
_SDS = np.geomspace(5e-3, 3.0, 60)  # candidate standard deviations of the steps of a log baseline
_LOST = 1.0
"""Nats by which the evidence may be below the best: too smooth a baseline takes from slopes what
too rough a one does not, so that of all that the events allow the roughest is taken."""
_MAX_STEPS, _TOLERANCE = 100, 1e-8  # most steps and tolerance of Newton's method


@dataclass(frozen=True)
class Survival(LocationScale, abc.ABC):
    """A location and a scale of a response, or of its logarithm; rows may be censored."""

    # Y is [N, 1] of a column, [N, 3] of a Surv, and [N, 4] with starts: see likelihoods.Censored

    kind: ClassVar[type[likelihoods.Censored]]
    """Its likelihood."""
    start: ClassVar[float]
    """The scale at first, against the standard deviation of the response (or its logarithm)."""

    def axes(self, response: str) -> tuple[str, ...]:
        if not self.varying:
            return ()
        what = f"log {response}" if self.kind.logarithm else response
        return f"{self.modelled[0]} of {what}", f"log scale of {what}"

    def censored(self) -> Family:
        return self

    def encode_censored(self, columns: Sequence[AnyNDArray], surv: Surv) -> Response:
        Y = encoding.censored(columns, surv, self.name, self.kind.logarithm)
        return Response(Y[:, [0, 0, 2, 1]] if surv.type == "counting" else Y, None)

    def _likelihood(self, y: Observed, levels: Levels | None) -> Likelihood:
        sd = y.spread(self.kind.logarithm)
        # logarithms have no unit; and a floor must be the same where Y is only described
        floor = 1e-6 if self.kind.logarithm else 1e-3 * y.unweighted.spread()
        return self.kind(self.start * sd, floor, sd, self.varying)

    def _moments(self, y: Observed) -> tuple[float, float]:
        return y.moments[0], y.spread(self.kind.logarithm)

    def mean(self, likelihood: Likelihood, F: AnyNDArray) -> AnyNDArray:
        """Mean of the uncensored response, which need not be the location."""
        return Family.mean(self, likelihood, F)

    def _saturated(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> MaybeArray:
        base, (_, scale) = base_of(likelihood), self._parts(likelihood, F)
        y = tf.constant(Y[:, :1], dtype=tf.float64)
        unit = base._log_unit(y, np.reshape(scale, (-1, 1)))
        best: AnyNDArray = first(base._standard_log_density(tf.zeros_like(y)) - unit)
        if Y.shape[1] == 1:
            return best
        best, kind = np.where(Y[:, 2] == EXACT, best, 0.0), Y[:, 2]
        late = base._late(tf.constant(Y)).numpy()[:, 0]
        sought = (kind == INTERVAL) | (late & (kind == EXACT))
        if sought.any():
            found = super()._saturated(likelihood, Y[sought], F[sought])
            assert found is not None
            best[sought] = found
        return best

    def cdf(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> Pair:
        """Bounds of the distribution function at each response; equal where it is not censored."""
        Y, below = np.asarray(Y, dtype=np.float64), self.distribution(likelihood, F).cdf
        low = below(Y[:, 0])
        if Y.shape[1] == 1:
            return low, low
        kind, end = Y[:, 2], below(Y[:, 1])
        if Y.shape[1] == 4:  # given a response beyond where the row entered
            late = base_of(likelihood)._late(tf.constant(Y)).numpy()[:, 0]
            gone = below(np.where(late, Y[:, 3], 1.0))
            low = np.where(late, (low - gone) / np.maximum(1.0 - gone, 1e-300), low)
        at_most = np.select([kind == RIGHT, kind == INTERVAL], [1.0, end], low)
        return np.where(kind == LEFT, 0.0, low), at_most

    def observed(self, Y: AnyNDArray) -> AnyNDArray:
        y = first(Y)
        return y if Y.shape[1] == 1 else np.where(Y[:, 2] == EXACT, y, np.nan)

    def survival(self, likelihood: Likelihood, times: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        """P(y > t | F) at ``times`` t [...] and predictors F [..., L], which are broadcast."""
        return np.asarray(self.distribution(likelihood, F).sf(times))

    def score(self, likelihood: Likelihood, times: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        """``times`` t [...], or logs, in scales from the location at ``F`` and a ``likelihood``."""
        location, scale = self._parts(likelihood, F)
        return np.asarray(((np.log(times) if self.kind.logarithm else times) - location) / scale)


@dataclass(frozen=True)
class CensoredGaussian(Survival):
    """Normal and censored: the family of "gaussian" with a ``Surv`` response."""

    name: ClassVar[str] = "censored_gaussian"
    modelled: ClassVar[tuple[str, ...]] = ("mean", "scale")
    kind: ClassVar[type[likelihoods.Censored]] = likelihoods.CensoredGaussian
    start: ClassVar[float] = 0.7

    def distribution(self, likelihood: Likelihood, F: AnyNDArray) -> Any:
        return norm(*self._parts(likelihood, F))


@dataclass(frozen=True)
class LogNormal(Survival):
    """The logarithm is normal; the predictor is its mean."""

    name: ClassVar[str] = "lognormal"
    log_link: ClassVar[bool] = True
    support = POSITIVE
    kind: ClassVar[type[likelihoods.Censored]] = likelihoods.LogNormal
    start: ClassVar[float] = 0.7

    def distribution(self, likelihood: Likelihood, F: AnyNDArray) -> Any:
        location, scale = self._parts(likelihood, F)
        return scipy.stats.lognorm(scale, scale=np.exp(location))


@dataclass(frozen=True)
class Weibull(Survival):
    """
    Weibull times, ``exp(f)`` times the power ``scale`` of a standard exponential variable.

    Effects are of the logarithm of time (accelerated failure time, as R's ``survreg`` has them);
    divided by minus the scale, where it is one for all rows, they are logarithms of hazard ratios.
    """

    name: ClassVar[str] = "weibull"
    log_link: ClassVar[bool] = True
    support = POSITIVE
    kind: ClassVar[type[likelihoods.Censored]] = likelihoods.Weibull
    start: ClassVar[float] = 0.55  # the standard distribution's own is 1.28

    def distribution(self, likelihood: Likelihood, F: AnyNDArray) -> Any:
        location, scale = self._parts(likelihood, F)
        return scipy.stats.weibull_min(1.0 / scale, scale=np.exp(location))


@dataclass(frozen=True)
class Cox(Family):
    """
    Cox's proportional hazards, for ``Surv("time", "event")`` or ``Surv("start", "stop", "event")``.

    The baseline hazard is constant in each of so many intervals of time, between quantiles of the
    times of events, and a random walk from one to the next; how far its steps go is learnt from
    the events, too, so that more intervals tell much the same. The predictor is the logarithm of
    the hazard relative to that of all rows. Under
    ``"response"`` are relative hazards, under ``survival`` the curves. Of time before the first row
    enters nothing is known: curves are given being alive then.

    :param intervals: how many.
    :raises ValueError: fewer than two.
    """

    name: ClassVar[str] = "cox"
    log_link: ClassVar[bool] = True
    intercept_name: ClassVar[str] = "baseline hazard"
    intervals: int = 32

    def __post_init__(self) -> None:
        check_count("intervals", self.intervals, 2)

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

    def encode_censored(self, columns: Sequence[AnyNDArray], surv: Surv) -> Response:
        if surv.type not in ("right", "counting"):
            raise ValueError(
                f"y: family 'cox' takes Surv(time, event), and no {surv.type} censoring; take "
                "'weibull' or 'lognormal' for that."
            )
        return Response(encoding.censored(columns, surv, self.name, True), None)

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
        """H0 at times, [...], from the first entry on."""
        hazards = base_of(likelihood).hazards(tf.constant(t, tf.float64))
        return np.asarray(hazards[1], dtype=np.float64)

    def _risk(self, likelihood: Likelihood, Y: AnyNDArray) -> AnyNDArray:
        """H0 over each row's time at risk, [...]."""
        start = self._cumulative(likelihood, entry(Y))
        return self._cumulative(likelihood, Y[..., 0]) - start

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        """As of Poisson counts of events (Therneau & Grambsch 2000, section 4.3)."""
        event, f = Y[..., 2], first(F)
        risk = self._risk(likelihood, Y)
        expected = risk * np.exp(f)
        return np.maximum(2.0 * (expected - event - event * (np.log(risk) + f)), 0.0)

    def cdf(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> Pair:
        below = -np.expm1(-self._risk(likelihood, Y) * np.exp(first(F)))
        return below, np.where(Y[..., 2] == 1.0, below, 1.0)

    def ends(self, likelihood: Likelihood) -> tuple[float, float]:
        """First entry and longest time of the fit of a ``likelihood``: no more is known."""
        edges = base_of(likelihood).edges.numpy()
        return float(edges[0]), float(edges[-1])

    def survival(self, likelihood: Likelihood, times: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        """
        P(y > t | F), given y beyond the first entry, at ``times`` t [...], ``F`` [..., 1] and a
        ``likelihood``, broadcast.
        """
        H = np.maximum(self._cumulative(likelihood, np.asarray(times)), 0.0)
        return np.exp(-H * np.exp(first(F)))

    def score(self, likelihood: Likelihood, times: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        """Log of H from the first entry to ``times`` [...], ``F`` [..., 1] and a ``likelihood``."""
        return np.log(self._cumulative(likelihood, np.asarray(times))) + first(F)

    def _draw(self, likelihood: Likelihood, F: AnyNDArray, rng: Generator) -> AnyNDArray:
        raise ValueError(
            "family 'cox' draws no responses: what happens after the longest time of the data is "
            "not known; take survival(data, times), or 'weibull'."
        )


def _intervals(y: Sample, number: int) -> Intervals:
    """Intervals with about as many events each."""
    # a baseline from time 0 would carry the first hazards back to where nobody is at risk, and have
    # few cells where all times are far from 0
    begin = min(np.min(entry(rows)[w > 0.0], initial=np.inf) for rows, w in y.blocks())
    begin, longest = np.min(y.gathered(np.array([begin]))), y.moments[2]
    cells = begin + (longest - begin) * np.r_[0.0, np.geomspace(_SHORT, 1.0, _CELLS)]
    cells[-1] = longest

    count = np.zeros(len(cells))
    for rows, w in y.blocks():
        event = rows[:, 2] == 1.0
        at = np.searchsorted(cells, rows[event, 0])
        count += np.bincount(at, w[event], minlength=len(cells))
    reached = np.cumsum(y.summed(count))
    wanted = reached[-1] * np.arange(1, number) / number
    inner = cells[np.searchsorted(reached, wanted)]
    edges = np.concatenate([[begin], inner, [longest]])
    risk = np.zeros(number)
    for rows, w in y.blocks():
        start = entry(rows)[:, None]
        for times, sign in ((rows[:, :1], 1.0), (start, -1.0)):
            risk += sign * (w @ np.clip(times - edges[:-1], 0.0, np.diff(edges)))
    risk = y.summed(risk)
    events = np.diff(np.concatenate([[0.0], np.interp(inner, cells, reached), reached[-1:]]))
    sd = step_sd(events, risk)
    return Intervals(edges, risk / risk.sum(), reached[-1] / risk.sum(), sd)


def step_sd(events: AnyNDArray, risk: AnyNDArray) -> float:
    """The standard deviation of a log hazard's steps, given each interval's events and exposure."""
    # A random walk with Poisson counts of events: of all within a nat of the best evidence, by
    # Laplace's approximation (Rue & Held 2005, section 4.4), the greatest.
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


_LEAST = 1e-300  # A variance below which quotients by it overflow
_MOST = 1e9  # gamma amounts of which a response of Tweedie's is drawn
_FAR = 9.0  # standard deviations of their number that a distribution function sums over
_NEAR = 0.5
"""Half-width of the window for the density at a quantile, as a share of the smaller tail."""


class _Normal(LocationScale, LinkedFamily):
    """Normal responses, of a constant variance or not."""

    modelled: ClassVar[tuple[str, ...]] = ("mean", "scale")
    links: ClassVar[tuple[str, ...]] = ("identity", "log", "inverse")

    def censored(self) -> Family:
        if not self.default_link:
            raise ValueError(
                "link: family 'gaussian' has the identity link with a censored response (Surv); "
                f"got {self.link!r}. Leave link out"
                + (", or take 'lognormal'." if self.link == "log" else ".")
            )
        return CensoredGaussian(varying=self.varying)

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        mean, sd = self._parts(likelihood, F)
        return np.square((first(Y) - mean) / sd)

    def distribution(self, likelihood: Likelihood, F: AnyNDArray) -> Any:
        return norm(*self._parts(likelihood, F))


@dataclass(frozen=True)
class Gaussian(_Normal):
    """
    Normal with constant variance.

    :param link: "identity", under which the predictor is the mean; or "log" or "inverse", under
        which the mean is positive and the noise is not: see
        :class:`gpflow_gam.likelihoods.MeanLink`.
    """

    name: ClassVar[str] = "gaussian"
    varying: ClassVar[bool] = False  # type: ignore[misc]
    link: str = "identity"

    def _likelihood(self, y: Observed, levels: Levels | None) -> Likelihood:
        likelihood = gpflow.likelihoods.Gaussian(quadrature=GaussHermite())
        likelihood.variance = Parameter(  # moved by factors, whatever the response's unit
            0.5 * y.spread() ** 2,
            transform=exponential(1e-6 * y.unweighted.spread() ** 2),
        )
        return self.linked(likelihood, y)

    def of_all(self) -> Family:
        return Heteroskedastic(self.link)

    @property
    def conjugate(self) -> bool:  # type: ignore[override]
        return self.default_link

    def null(self, Y: AnyNDArray, offset: AnyNDArray, weights: MaybeArray) -> MaybeArray:
        if not self.default_link:
            return self.linked_null(Y, offset, weights)
        return np.array([np.average(Y[:, 0] - offset, weights=weights)])

    def _parts(self, likelihood: Likelihood, F: AnyNDArray) -> tuple[AnyNDArray, Any]:
        mean = first(F) if self.default_link else np.exp(self.log_mean(likelihood, F))
        return mean, float(np.sqrt(number(base_of(likelihood).variance)))


@dataclass(frozen=True)
class Heteroskedastic(_Normal):
    """
    Normal with a predictor each for mean and log standard deviation, mgcv's ``gaulss``.

    The model measures both in the standard deviation of the responses that were fitted; effects and
    predictions are in the response's unit. The null model has the fitted scale, so that what is
    explained is the share of squared residuals, each over its row's variance, as ``gaulss`` has it.

    :param link: "identity", under which the first predictor is the mean; or "log" or "inverse",
        under which the mean is positive and the noise is not: see
        :class:`gpflow_gam.likelihoods.MeanLink`.
    """

    name: ClassVar[str] = "heteroskedastic"
    varying: ClassVar[bool] = True  # type: ignore[misc]
    link: str = "identity"

    def _likelihood(self, y: Observed, levels: Levels | None) -> Likelihood:
        return self.linked(likelihoods.Heteroskedastic(y.spread()), y)

    def of_all(self) -> Family:
        return self

    def parameters(self, likelihood: Likelihood, levels: Levels | None) -> dict[str, float]:
        return {}  # its unit is not learnt

    def axes(self, response: str) -> tuple[str, ...]:
        return super().axes(response)[0], f"log sd of {response}"


@dataclass(frozen=True)
class StudentT(LocationScale, LinkedFamily):
    """
    Student's t; the predictor is the location, or a link of it.

    :param df: degrees of freedom, fixed.
    :param link: "identity", or "log" or "inverse", of a location that is positive while responses
        may not be: see :class:`gpflow_gam.likelihoods.MeanLink`.
    :raises ValueError: degrees of freedom that are not positive, or another link.
    """

    name: ClassVar[str] = "student_t"
    links: ClassVar[tuple[str, ...]] = ("identity", "log", "inverse")
    df: float = 4.0
    link: str = "identity"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("df", self.df)

    def _likelihood(self, y: Observed, levels: Levels | None) -> Likelihood:
        sd = y.robust[1]  # outliers are what the family is for
        if self.varying:
            base = likelihoods.StudentT(unit=sd, df=self.df, varying=True)
        else:
            base = likelihoods.StudentT(0.5 * sd, df=self.df, floor=1e-3 * y.unweighted.robust[1])
        return self.linked(base, y)

    def _moments(self, y: Observed) -> tuple[float, float]:
        return y.robust

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        location, scale = self._parts(likelihood, F)
        square = np.square((first(Y) - location) / scale)
        return (self.df + 1.0) * np.log1p(square / self.df)

    def heavy_noise(self, likelihood: Likelihood, F: AnyNDArray) -> AnyNDArray:
        ratio = self.df / (self.df - 2.0) if self.df > 2.0 else np.inf
        return ratio * np.square(self._parts(likelihood, F)[1]) + np.zeros(F.shape[:-1])

    def distribution(self, likelihood: Likelihood, F: AnyNDArray) -> Any:
        return scipy.stats.t(self.df, *self._parts(likelihood, F))


@dataclass(frozen=True)
class Gamma(Dispersed, LinkedFamily):
    """
    Gamma; its dispersion, ``var / mean^2``, is 1 over its shape.

    :param link: "log", "inverse" or "identity", of the mean, which stays positive: see
        :class:`gpflow_gam.likelihoods.MeanLink`.
    """

    name: ClassVar[str] = "gamma"
    links: ClassVar[tuple[str, ...]] = ("log", "inverse", "identity")
    support = POSITIVE
    link: str = "log"

    def _likelihood(self, y: Observed, levels: Levels | None) -> Likelihood:
        mean, variance, _ = y.moments
        # by moments, as if the predictor were to explain half of the variance
        shape = mean**2 / max(0.5 * variance, _LEAST)
        base = likelihoods.MeanGamma(float(np.clip(shape, 0.1, 100.0)), self.varying)
        return self.linked(base, y)

    def null(self, Y: AnyNDArray, offset: AnyNDArray, weights: MaybeArray) -> MaybeArray:
        if self.varying:
            return None
        if not self.default_link:
            return self.linked_null(Y, offset, weights)
        return np.log([np.average(Y[:, 0] * np.exp(-offset), weights=weights)])

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        f, log_dispersion = self._parts(likelihood, F)
        gap = np.log(first(Y)) - f
        return np.maximum(2.0 * np.exp(-log_dispersion) * (np.expm1(gap) - gap), 0.0)

    def distribution(self, likelihood: Likelihood, F: AnyNDArray) -> Any:
        f, log_dispersion = self._parts(likelihood, F)
        scale = np.maximum(np.exp(f + log_dispersion), _LEAST)
        return scipy.stats.gamma(np.exp(-log_dispersion), scale=scale)


@dataclass(frozen=True)
class Tweedie(LinkedFamily):
    """
    Amounts that are zero or positive: rain, claims, catches.

    The variance is ``dispersion mu^power``; both are learned, the power between 1.01 and 1.99.

    :param link: "log", "identity", "inverse" or "sqrt", of the mean, which stays positive: see
        :class:`gpflow_gam.likelihoods.MeanLink`.
    """

    name: ClassVar[str] = "tweedie"
    links: ClassVar[tuple[str, ...]] = ("log", "identity", "inverse", "sqrt")
    support = AMOUNTS
    link: str = "log"

    def _likelihood(self, y: Observed, levels: Levels | None) -> Likelihood:
        mean, variance, _ = y.moments
        # by moments, as if the predictor were to explain half of the variance
        mean = mean if mean > 0.0 else 1.0
        dispersion = 0.5 * variance / mean**2
        base = likelihoods.Tweedie(dispersion if dispersion > 0.0 else 1.0, unit=mean)
        return self.linked(base, y)

    def parameters(self, likelihood: Likelihood, levels: Levels | None) -> dict[str, float]:
        """The dispersion, of responses as they are, and the power."""
        dispersion, power = self._parameters(likelihood)
        return {"dispersion": dispersion, "power": power}

    def null(self, Y: AnyNDArray, offset: AnyNDArray, weights: MaybeArray) -> MaybeArray:
        return self.linked_null(Y, offset, weights)

    def _parameters(self, likelihood: Likelihood) -> tuple[float, float]:
        base = base_of(likelihood)
        return number(base.scaled()), number(base.power)

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        y, f = first(Y), self.log_mean(likelihood, F)
        phi, p = self._parameters(likelihood)
        best = y ** (2.0 - p) / ((1.0 - p) * (2.0 - p))
        gap = best - y * np.exp((1.0 - p) * f) / (1.0 - p) + np.exp((2.0 - p) * f) / (2.0 - p)
        return np.maximum(2.0 * gap / phi, 0.0)

    def _amounts(
        self, likelihood: Likelihood, F: AnyNDArray
    ) -> tuple[AnyNDArray, float, AnyNDArray]:
        """The mean number of gamma amounts, their shape, and their scale."""
        phi, p = self._parameters(likelihood)
        f = self.log_mean(likelihood, F)
        rate = np.exp((2.0 - p) * f) / (phi * (2.0 - p))
        return rate, (2.0 - p) / (p - 1.0), phi * (p - 1.0) * np.exp((p - 1.0) * f)

    def cdf(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> Pair:
        y = first(Y)
        rate, shape, scale = self._amounts(likelihood, F)
        none = np.exp(-rate)
        margin = _FAR * np.sqrt(rate) + 10.0
        low, high = np.maximum(np.floor(rate - margin), 1.0), np.ceil(rate + margin)
        total = none.copy()
        for k in range(int(np.max(high - low, initial=0.0)) + 1):
            count = low + k
            total += scipy.stats.poisson.pmf(count, rate) * scipy.stats.gamma.cdf(
                y / scale, count * shape
            )
        total = np.minimum(total, 1.0)
        return np.where(y > 0.0, total, 0.0), np.where(y > 0.0, total, none)

    def _draw(self, likelihood: Likelihood, F: AnyNDArray, rng: Generator) -> AnyNDArray:
        rate, shape, scale = self._amounts(likelihood, F)
        count = rng.poisson(np.minimum(rate, _MOST))
        some = rng.gamma(np.maximum(count, 1) * shape, scale)
        return np.where(count > 0, some, 0.0)


@dataclass(frozen=True)
class Quantile(QuasiFamily, LocationScale):
    """
    The value below which the response is with probability ``tau``, of which nothing else is said.

    The smooth loss of :class:`gpflow_gam.likelihoods.Quantile`, over a dispersion at which the
    posterior's spread is that of the estimate: where the squared slopes of the loss, ``tau (1 -
    tau)`` on average, are its curvature, the density of residuals there (the information equality;
    Fasiolo et al. 2021 calibrate by the same comparison of covariances). With terms for the scale
    the loss has one that varies, and so have the credible intervals.

    :param tau: the probability.
    :param smoothing: of the loss, in standard deviations of normal noise. The quantile is off by
        about its square; more rows than some ten thousand allow for less.
    :raises ValueError: no probability.
    """

    name: ClassVar[str] = "quantile"
    modelled: ClassVar[tuple[str, ...]] = ("quantile", "scale")
    _instead: ClassVar[str] = "another family, fits at several tau"
    tau: float = 0.5
    smoothing: float = SMOOTHING

    def __post_init__(self) -> None:
        Loss(self.tau, self.smoothing)

    @property
    def _loss(self) -> Loss:
        return Loss(self.tau, self.smoothing)

    @property
    def initial_family(self) -> Family:  # type: ignore[override]
        """The loss is a line far from the quantile, where steps of Newton's go astray."""
        return _Beginning() if self.varying else Gaussian()

    def _likelihood(self, y: Observed, levels: Levels | None) -> Likelihood:
        sd, loss, smoothing = y.robust[1], self._loss, self.smoothing
        if self.varying:
            base = likelihoods.Quantile(self.tau, unit=sd, smoothing=smoothing, varying=True)
        else:
            scale, floor = loss.density * sd, 1e-4 * loss.density * y.unweighted.robust[1]
            base = likelihoods.Quantile(self.tau, scale, smoothing=smoothing, floor=floor)
        # what normal noise comes to
        return likelihoods.Quasi(base, self.tau * (1.0 - self.tau) / loss.density**2)

    def _moments(self, y: Observed) -> tuple[float, float]:
        return y.robust

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        loss, (location, scale) = self._loss, self._parts(likelihood, F)
        e = (first(Y) - location) / scale
        at = (1.0 - self.tau) * e - loss.k * np.logaddexp(0.0, e / loss.k) - loss.constant
        return np.maximum(2.0 * (loss.best - at) / self._dispersion(likelihood), 0.0)

    def pearson(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> Pair:
        """Squared slopes of the loss, and the curvature that it has on average."""
        # that is the density of residuals at zero, counted between two quantiles of normal noise
        # around this one, and taken to be as much larger there as it is of that
        location, scale = self._parts(likelihood, F)
        scale = np.broadcast_to(scale, len(Y))
        phi = self._dispersion(likelihood)
        margin = _NEAR * min(self.tau, 1.0 - self.tau)
        low, high = norm.ppf([self.tau - margin, self.tau + margin])
        z, density = norm.ppf(self.tau), self._loss.density
        # the loss's scale is a standard deviation times the density
        e = density * (first(Y) - location) / scale
        near = (e > low - z) & (e < high - z)
        at_zero = near / (2.0 * margin) * density * density / scale
        slope = self.tau * (1.0 - self.tau) / np.square(scale)
        return slope / phi**2, at_zero / scale / phi

    def sharpness(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> float:
        """Width of most residuals of ``Y`` at ``F`` and a ``likelihood``, over that expected."""
        # The latter is of normal noise with the scale of the loss, an average loss, which few
        # outliers can make as large as they like; then the loss is bent over many times the
        # smoothing asked for.
        location, scale = self._parts(likelihood, F)
        e = self._loss.density * np.asarray((first(Y) - location) / scale)
        return Sample(e[:, None]).robust[1]


class _Beginning(Heteroskedastic):
    """A fit whose mean is where that of a quantile begins."""

    modelled: ClassVar[tuple[str, ...]] = ("quantile", "scale")
