"""Censored responses, survival times and proportional hazards."""

from __future__ import annotations

import abc
import dataclasses
import math
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray, MeanAndVariance, Parameter, TensorType
from gpflow.config import default_float
from gpflow.likelihoods import QuadratureLikelihood

from .base import (
    Batch,
    GaussHermite,
    GaussHermitePlane,
    LocationScale,
    ParameterTerms,
    PositiveParameter,
    Terms,
    log_ndtr,
)

RIGHT, EXACT, LEFT, INTERVAL = 0.0, 1.0, 2.0, 3.0
"""
Kinds of rows, in the third column of Y: the response is greater than the first column, equal to
it, less than it, or between the first and the second (as R's ``survival::Surv``).
"""
_NODES, _PLANE_NODES = 32, 20
"""
Quadrature nodes over the location, alone and beside those over the scale: logarithms of
probabilities bend within a scale, which predictors may exceed.
"""
_NARROW = 1e-5  # width of an interval, in scales, below which a density times it has more digits
_LOW = -10.0  # logarithm of x below which a series of log(1 - exp(-x)) is exact


class Censored(LocationScale, abc.ABC):
    """
    ``t(y) = f + scale e`` with e of a given distribution, and t the identity or the logarithm.

    Y is [N, 1], or [N, 3] with the kind of each row: 0 of a response greater than the first column,
    1 of one that is equal to it, 2 of one less than it and 3 of one between the first and the
    second column, which is read in no other rows. Of a response that is not known exactly the
    log-density is the logarithm of the probability of what is known. In a fourth column, [N, 4], is
    where rows of kinds 0 and 1 entered: the density is that given a response beyond it (left
    truncation). Means and variances are those of the response that nothing censors or truncates.

    :param scale: trainable.
    :param floor: a lower bound of the scale.
    :param unit: a scalar, in which both predictors of a ``varying`` scale are measured.
    :param varying: whether the logarithm of the scale is a second predictor.
    """

    logarithm: ClassVar[bool] = False
    """True if t is the logarithm; the density then is that of y itself, not of its logarithm."""

    def __init__(
        self,
        scale: TensorType = 1.0,
        floor: float = 1e-6,
        unit: TensorType = 1.0,
        varying: bool = False,
        **kwargs: Any,
    ) -> None:
        if varying:
            kwargs.setdefault("quadrature", GaussHermitePlane(_PLANE_NODES, self.scale_nodes))
        else:
            kwargs.setdefault("quadrature", GaussHermite(_NODES))
        super().__init__(scale, unit, floor, varying, **kwargs)
        self.latent_dim, self.observation_dim = 2 if varying else 1, None
        if self.logarithm and not varying:
            self.invlink = tf.exp

    # --- the distribution of e, element by element -------------------------------------------

    @abc.abstractmethod
    def _standard_log_density(self, z: tf.Tensor) -> tf.Tensor:
        """Log p(e = z)."""

    @abc.abstractmethod
    def _log_above(self, z: tf.Tensor) -> tf.Tensor:
        """Log P(e > z)."""

    @abc.abstractmethod
    def _log_below(self, z: tf.Tensor) -> tf.Tensor:
        """Log P(e < z)."""

    @abc.abstractmethod
    def _log_between(self, a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        """Log P(a < e < b), a < b."""

    @abc.abstractmethod
    def _expected_log_density(self, z: tf.Tensor, var: tf.Tensor) -> tf.Tensor:
        """E[log p(e = x)] over x ~ N(z, var)."""

    # --- of observations ---------------------------------------------------------------------

    def support(self, Y: tf.Tensor) -> tuple[tf.Tensor, str]:
        """Mask of the possible elements of Y [N, K], and in words what they must be."""
        if Y.shape[-1] not in (1, 3, 4):
            raise ValueError(
                f"Y must be [N, 1], or [N, 3] with what is known of each row, or [N, 4] with where "
                f"it entered; got shape {Y.shape}."
            )
        first, what = Y[:, :1], "positive" if self.logarithm else "numbers"
        positive = first > 0.0 if self.logarithm else tf.ones_like(first, tf.bool)
        if Y.shape[-1] == 1:
            return positive, what
        kind = Y[:, 2:3]
        between = tf.not_equal(kind, INTERVAL) | (Y[:, 1:2] > first)
        kinds = tf.reduce_any([tf.equal(kind, k) for k in (RIGHT, EXACT, LEFT, INTERVAL)], axis=0)
        inside = tf.concat([positive, between, kinds, Y[:, 3:] < first], axis=1)
        return inside, f"{what}, ends of intervals beyond the first, kinds 0 to 3, earlier entries"

    def _standardised(self, y: tf.Tensor, location: tf.Tensor, scale: TensorType) -> tf.Tensor:
        """e = (t(y) - location) / scale."""
        return ((tf.math.log(y) if self.logarithm else y) - location) / scale

    def _log_unit(self, y: tf.Tensor, scale: TensorType) -> tf.Tensor:
        """Log of dy / de, by which densities of e are divided to be those of y."""
        log_scale = tf.math.log(tf.cast(scale, y.dtype)) + tf.zeros_like(y)
        return log_scale + tf.math.log(y) if self.logarithm else log_scale

    def _log_censored(self, f: tf.Tensor, Y: tf.Tensor, scale: TensorType) -> tf.Tensor:
        """Log-probabilities [..., 1] of rows that are not known exactly, and zero of others."""
        kind = Y[..., 2:3]
        # no overflow, nor its gradient, from a row that the answer is not about
        a = self._standardised(Y[..., :1], f, scale)
        right, left, between = (tf.equal(kind, k) for k in (RIGHT, LEFT, INTERVAL))
        zero, one = tf.zeros_like(a), tf.ones_like(a)
        out = zero
        if _occurs(right):
            out = tf.where(right, self._log_above(tf.where(right, a, zero)), out)
        if _occurs(left):
            out = tf.where(left, self._log_below(tf.where(left, a, zero)), out)
        if _occurs(between):
            lower = tf.where(between, a, zero)
            width = tf.where(between, self._standardised(Y[..., 1:2], f, scale) - a, one)
            out = tf.where(between, self._log_between(lower, lower + width), out)
        return out

    def _late(self, Y: tf.Tensor) -> tf.Tensor:
        """Whether rows entered later than all can, [..., 1]."""
        if Y.shape[-1] < 4:
            return tf.zeros_like(Y[..., :1], tf.bool)
        late = (Y[..., 2:3] < LEFT) & tf.math.is_finite(Y[..., 3:])
        return late & (Y[..., 3:] > 0.0) if self.logarithm else late

    def _log_entered(self, f: tf.Tensor, Y: tf.Tensor, scale: TensorType) -> tf.Tensor:
        """Log-probabilities [..., 1] of responses beyond where their rows entered."""
        late = self._late(Y)
        if Y.shape[-1] < 4 or not _occurs(late):
            return tf.zeros_like(f)
        a = self._standardised(tf.where(late, Y[..., 3:], tf.ones_like(Y[..., :1])), f, scale)
        return tf.where(late, self._log_above(tf.where(late, a, tf.zeros_like(a))), 0.0 * a)

    def _log_density(self, f: tf.Tensor, g: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        """Log-densities, or log-probabilities, of rows ``y``; ``g`` is the scale."""
        exact_y = y[..., :1]
        z, unit = self._standardised(exact_y, f, g), self._log_unit(exact_y, g)
        if y.shape[-1] == 1:
            return self._standard_log_density(z) - unit
        exact = tf.equal(y[..., 2:3], EXACT)
        known = self._standard_log_density(tf.where(exact, z, tf.zeros_like(z))) - unit
        return tf.where(exact, known, self._log_censored(f, y, g)) - self._log_entered(f, y, g)

    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """Over f in closed form where y is known, by quadrature elsewhere."""
        y, all_known = Y[..., :1], Y.shape[-1] == 1
        exact = None if all_known else tf.equal(Y[..., 2:3], EXACT)

        def over_f(f: tf.Tensor, var: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
            z, v = self._standardised(y, f, scale), var / tf.square(scale)
            if exact is not None:
                z, v = (tf.where(exact, t, tf.zeros_like(t)) for t in (z, v))
            return self._expected_log_density(z, v) - self._log_unit(y, scale)

        known = self._over_dispersion(over_f, Fmu, Fvar)
        if exact is None:
            return known[..., 0]

        def others(F: tf.Tensor) -> tf.Tensor:
            f, scale = self.split(F)
            return self._log_censored(f, Y, scale) - self._log_entered(f, Y, scale)

        known = tf.where(exact, known, tf.zeros_like(known))
        return (known + self.quadrature(others, Fmu, Fvar))[..., 0]

    def row_terms(self, rows: Batch) -> Terms | None:
        """In closed form, of ``rows`` all known and seen from the start, and of one scale."""
        Y = rows.Y
        if self.varying:
            return None
        if Y.shape[1] > 1 and (np.any(Y[:, 2] != EXACT) or np.any(self._late(tf.constant(Y)))):
            return None
        y, variable = Y[:, 0], self.scale.unconstrained_variable
        if any(v is not variable for v in rows.variables) or np.ndim(variable):
            return None
        if not np.all(np.isfinite(y)) or (self.logarithm and not np.all(y > 0.0)):
            return None
        scale = PositiveParameter.of(self.scale)
        s, log_unit = scale.value, float(np.log(scale.value))
        t = np.log(y) if self.logarithm else y
        z, v = (t - rows.mean[:, 0]) / s, rows.var[:, 0] / s**2
        value, slope, precision, derivatives = self._standard_terms(z, v, s)
        value = value - (log_unit + t if self.logarithm else log_unit)
        parameters = scale.terms(*derivatives, rows.weights) if rows.variables else None
        return Terms(value, slope, precision, parameters)

    @abc.abstractmethod
    def _standard_terms(
        self, z: AnyNDArray, v: AnyNDArray, s: float
    ) -> tuple[AnyNDArray, AnyNDArray, AnyNDArray, tuple[AnyNDArray, AnyNDArray, AnyNDArray]]:
        """E[log p(e)], slope and precision in the location, and derivatives in the log scale."""


def _occurs(rows: tf.Tensor) -> bool:
    """True if there may be such rows; most data have one kind, and work for others is spared."""
    return not tf.executing_eagerly() or bool(tf.reduce_any(rows))


class CensoredGaussian(Censored):
    """``y ~ N(f, scale^2)``, where it is known: the Tobit model (Tobin 1958)."""

    def _standard_log_density(self, z: tf.Tensor) -> tf.Tensor:
        return -0.5 * (tf.square(z) + math.log(2.0 * math.pi))

    def _expected_log_density(self, z: tf.Tensor, var: tf.Tensor) -> tf.Tensor:
        return self._standard_log_density(z) - 0.5 * var

    def _log_above(self, z: tf.Tensor) -> tf.Tensor:
        return log_ndtr(-z)

    def _log_below(self, z: tf.Tensor) -> tf.Tensor:
        return log_ndtr(z)

    def _log_between(self, a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        # by symmetry in the lower tail, where differences of probabilities keep their digits
        flip = a + b > 0.0
        a, b = tf.where(flip, -b, a), tf.where(flip, -a, b)
        width = b - a
        narrow = width < _NARROW
        high = log_ndtr(b)
        ratio = tf.where(narrow, -tf.ones_like(a), log_ndtr(a) - high)
        thin = self._standard_log_density(0.5 * (a + b)) + tf.math.log(width)
        return tf.where(narrow, thin, high + tf.math.log(-tf.math.expm1(ratio)))

    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        """Over f in closed form, where all rows can be seen from the start."""
        if Y.shape[-1] == 4 and _occurs(self._late(Y)):
            return super()._predict_log_density(X, Fmu, Fvar, Y)
        if not self.varying:
            return self._log_density(Fmu, tf.sqrt(tf.square(self.scale) + Fvar), Y)[..., 0]
        f, var = self.unit * Fmu[..., :1], tf.square(self.unit) * Fvar[..., :1]

        def over_f(g: tf.Tensor) -> tf.Tensor:
            scale = tf.sqrt(tf.square(self.unit) * tf.exp(2.0 * g) + var)
            return self._log_density(f + tf.zeros_like(scale), scale, Y + 0.0 * g)

        return self._scale_rule.logspace(over_f, Fmu[..., 1:], Fvar[..., 1:])[..., 0]

    def _moments(self, f: tf.Tensor, g: tf.Tensor) -> MeanAndVariance:
        return f + 0.0 * g, tf.zeros_like(f) + tf.square(g)

    def _standard_terms(
        self, z: AnyNDArray, v: AnyNDArray, s: float
    ) -> tuple[AnyNDArray, AnyNDArray, AnyNDArray, tuple[AnyNDArray, AnyNDArray, AnyNDArray]]:
        square, slope = z**2 + v, z / s
        value = -0.5 * (square + np.log(2.0 * np.pi))
        derivatives = square - 1.0, -2.0 * square, -2.0 * slope
        return value, slope, np.full_like(z, 1.0 / s**2), derivatives


class LogNormal(CensoredGaussian):
    """``log y ~ N(f, scale^2)``: the mean of y is ``exp(f + scale^2 / 2)``."""

    logarithm = True
    mean_of_first = False

    def _moments(self, f: tf.Tensor, g: tf.Tensor) -> MeanAndVariance:
        square = tf.square(g)
        return tf.exp(f + 0.5 * square), tf.math.expm1(square) * tf.exp(2.0 * f + square)


class Weibull(Censored):
    """
    ``log y = f + scale e``, e the logarithm of a standard exponential variable.

    An accelerated-failure-time model, and where the scale does not vary one of proportional
    hazards: the hazard of y is ``k y^(k - 1) exp(-k f)``, k = 1 / scale the shape (Kalbfleisch &
    Prentice 2002, section 2.2). The mean is ``exp(f) Gamma(1 + scale)``.

    A scale with a lognormal distribution may come near to zero: the mean of a log-density is then
    infinite, if by values that are next to impossible; few nodes, which stay away from them, give
    the finite part.
    """

    logarithm = True
    mean_of_first = False
    scale_nodes = 7

    def _standard_log_density(self, z: tf.Tensor) -> tf.Tensor:
        return z - tf.exp(z)

    def _expected_log_density(self, z: tf.Tensor, var: tf.Tensor) -> tf.Tensor:
        return z - tf.exp(z + 0.5 * var)

    def _log_above(self, z: tf.Tensor) -> tf.Tensor:
        return -tf.exp(z)

    def _log_below(self, z: tf.Tensor) -> tf.Tensor:
        low = z < _LOW
        x = tf.exp(z)
        usual = tf.math.log(-tf.math.expm1(-tf.where(low, tf.ones_like(x), x)))
        return tf.where(low, z - x * (0.5 - x / 24.0), usual)

    def _log_between(self, a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        # exp(-e^a) (1 - exp(-(e^b - e^a)))
        return self._log_above(a) + self._log_below(b + tf.math.log(-tf.math.expm1(a - b)))

    def _moments(self, f: tf.Tensor, g: tf.Tensor) -> MeanAndVariance:
        twice, once = tf.math.lgamma(1.0 + 2.0 * g), tf.math.lgamma(1.0 + g)
        mean = tf.exp(f + once)
        return mean, tf.exp(2.0 * (f + once)) * tf.math.expm1(twice - 2.0 * once)

    def _standard_terms(
        self, z: AnyNDArray, v: AnyNDArray, s: float
    ) -> tuple[AnyNDArray, AnyNDArray, AnyNDArray, tuple[AnyNDArray, AnyNDArray, AnyNDArray]]:
        hazard, moved = np.exp(z + 0.5 * v), z + v
        first = hazard * moved - z - 1.0
        second = z - hazard * (moved**2 + z + 2.0 * v)
        across = -(hazard * moved + hazard - 1.0) / s
        return z - hazard, (hazard - 1.0) / s, hazard / s**2, (first, second, across)


@dataclasses.dataclass(frozen=True)
class Intervals:
    """J pieces of time in which the baseline hazard is constant."""

    edges: AnyNDArray  # from the first entry to the longest time, [J + 1]; beyond, hazards stay
    shares: AnyNDArray  # shares of all time at risk, [J]
    hazard: float  # events over time at risk, of all rows
    sd: float = 1.0  # of the prior of steps of the log hazard between neighbouring intervals


_MOST_STARTS = 512  # at which hazards are evaluated that change along a curve


def entry(Y: AnyNDArray) -> AnyNDArray:
    """The times at which rows Y [..., 3] of :class:`Cox` enter, [...]."""
    return np.where(Y[..., 1] < Y[..., 0], Y[..., 1], 0.0)


def starts(times: AnyNDArray, counts: AnyNDArray | None = None) -> tuple[AnyNDArray, AnyNDArray]:
    """Distinct times of entry, sorted, and how many rows each stands for; some of very many."""
    times, place = np.unique(times, return_inverse=True)
    counts = np.bincount(place, counts)
    if len(times) <= _MOST_STARTS:
        return times, counts
    # even in time, so that none stands for a much later one, and in rows, so that common ones stay
    last = (times - times[0]) / np.ptp(times) + (np.cumsum(counts) - 1.0) / np.sum(counts)
    cells = np.floor(0.5 * _MOST_STARTS * last)
    kept = np.flatnonzero(np.diff(cells, prepend=-1.0))
    return times[kept], np.add.reduceat(counts, kept)


def tied(Y: AnyNDArray) -> float:
    """About how much nearer to zero slopes of rows Y [N, 3] are, as events are at the same time."""
    # at risk beside an event is, on average, half of its ties less than all (Efron 1977)
    at, number = np.unique(Y[Y[:, 2] == 1.0, 0], return_counts=True)
    ended, entered = (np.searchsorted(np.sort(t), at) for t in (Y[:, 0], entry(Y)))
    return float(np.sum(number * (number - 1.0) / (2.0 * (entered - ended))) / np.sum(number))


def _spent(time: AnyNDArray, edges: AnyNDArray) -> AnyNDArray:
    """Times from the first edge to each time [N] in intervals, below zero before it, [N, J]."""
    inner = edges[1:-1]
    return np.clip(time[:, None], np.r_[-np.inf, inner], np.r_[inner, np.inf]) - edges[:-1]


class Cox(QuadratureLikelihood):
    """
    Hazard ``h(t) = h0(t) exp(f)``, h0 constant in each of J intervals of time.

    The piecewise exponential model (Friedman 1982): what split tables of Poisson counts with the
    logarithm of exposure are used for is, row by row,
    ``log p = event (log h0(t) + f) - (H0(t) - H0(s)) exp(f)``, H0 the integral of h0. So Y [N, 3]
    has a row each: time t, the time s at which it entered (t again where that is 0), and 1 where
    the event was seen at t and 0 where the time at risk ended without. h0 is ``hazard`` on average
    over the time at risk, so that f is the logarithm of the hazard relative to that of all rows.
    Steps of log h0 from one interval to the next, a random walk, are learnt: ``sd`` of the
    intervals times ``steps``, which are standard normal a priori.

    Means are those of the relative hazard, exp(f).

    :param intervals: of time.
    """

    def __init__(self, intervals: Intervals) -> None:
        super().__init__(
            input_dim=None, latent_dim=1, observation_dim=None, quadrature=GaussHermite()
        )
        self.edges = Parameter(intervals.edges, trainable=False)
        self.shares = Parameter(intervals.shares, trainable=False)
        self.unit = Parameter(intervals.hazard, trainable=False)
        self.sd = Parameter(intervals.sd, trainable=False)
        zero, one = (tf.constant(v, default_float()) for v in (0.0, 1.0))
        self.steps = Parameter(
            np.zeros(len(intervals.shares) - 1), prior=tfp.distributions.Normal(zero, one)
        )
        self.invlink = tf.exp

    def support(self, Y: tf.Tensor) -> tuple[tf.Tensor, str]:
        """Mask of the possible elements of Y [N, K], and in words what they must be."""
        if Y.shape[-1] != 3:
            raise ValueError(f"Y must be [N, 3], time, entry, and 1 or 0; got shape {Y.shape}.")
        seen = tf.equal(Y[:, 2:], RIGHT) | tf.equal(Y[:, 2:], EXACT)
        times = tf.stack([Y[:, 0] > 0.0, (Y[:, 1] >= 0.0) & (Y[:, 1] <= Y[:, 0])], axis=1)
        return tf.concat([times, seen], axis=1), "positive times, earlier ones of entry, and 1 or 0"

    def log_baseline(self) -> tf.Tensor:
        """``log h0`` in each interval, [J]."""
        steps = tf.convert_to_tensor(self.steps) * self.sd.unconstrained_variable
        level = tf.concat([tf.zeros([1], steps.dtype), tf.cumsum(steps)], axis=0)
        shares = self.shares.unconstrained_variable
        mean = tf.math.log(tf.reduce_sum(shares * tf.exp(level)))
        return level - mean + tf.math.log(self.unit.unconstrained_variable)

    def hazards(self, t: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """``log h0``, and ``H0`` since the first edge (below zero before it), at times [...]."""
        edges, level = self.edges.unconstrained_variable, self.log_baseline()
        inner, at, none = edges[1:-1], t[..., None], tf.constant([np.inf], edges.dtype)
        place = tf.reduce_sum(tf.cast(at > inner, tf.int32), axis=-1)
        lower, upper = tf.concat([-none, inner], 0), tf.concat([inner, none], 0)
        spent = tf.minimum(tf.maximum(at, lower), upper) - edges[:-1]
        return tf.gather(level, place), tf.linalg.matvec(spent, tf.exp(level))

    def at_risk(self, Y: AnyNDArray) -> AnyNDArray:
        """The baseline hazard over the time at risk of each row, [N, J]."""
        edges, level = self.edges.numpy(), self.log_baseline().numpy()
        return (_spent(Y[:, 0], edges) - _spent(entry(Y), edges)) * np.exp(level)

    def _log_density(self, f: tf.Tensor, ratio: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        """With ratio = exp(f), or with the means of it and of f."""
        level, total = self.hazards(Y[..., 0])
        late = Y[..., 1] < Y[..., 0]
        _, before = self.hazards(tf.where(late, Y[..., 1], tf.zeros_like(Y[..., 1])))
        return Y[..., 2] * (level + f) - (total - before) * ratio

    def _log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        f = tf.convert_to_tensor(F)[..., 0]
        return self._log_density(f, tf.exp(f), tf.convert_to_tensor(Y))

    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        f = Fmu[..., 0]
        return self._log_density(f, tf.exp(f + 0.5 * Fvar[..., 0]), tf.convert_to_tensor(Y))

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.exp(F)

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.zeros_like(F)  # a relative hazard is known where f is

    def row_terms(self, rows: Batch) -> Terms | None:
        """In closed form, with derivatives in all steps at once, each a pass by differences."""
        Y = rows.Y
        if not np.all(self.support(tf.constant(Y))[0]):
            return None
        if any(v is not self.steps.unconstrained_variable for v in rows.variables):
            return None
        edges, level = self.edges.numpy(), self.log_baseline().numpy()
        time, event, mean = Y[:, 0], Y[:, 2], rows.mean[:, 0]
        place = np.searchsorted(edges[1:-1], time, side="left")
        spent = self.at_risk(Y)
        risk, ratio = spent.sum(axis=1), np.exp(mean + 0.5 * rows.var[:, 0])
        rate = risk * ratio
        terms = Terms(event * (level[place] + mean) - rate, event - rate, rate)
        if not rows.variables:
            return terms
        weights = np.ones(len(Y)) if rows.weights is None else rows.weights
        seen = np.bincount(place, weights=weights * event, minlength=len(level))
        expected = (weights * ratio) @ spent
        # a step moves the levels beyond it, and all so far that the hazard's average stays
        share = self.shares.numpy() * np.exp(level)
        beyond = np.cumsum((share / share.sum())[::-1])[::-1][1:]
        sd = float(self.sd.numpy())
        moves = sd * (np.tri(len(level), k=-1)[:, :-1] - beyond)  # [J, J - 1]
        curvature = -(moves * expected[:, None]).T @ moves
        both = np.minimum.outer(beyond, beyond) - np.outer(beyond, beyond)
        curvature -= np.sum(seen - expected) * sd**2 * both
        later = np.cumsum(spent[:, ::-1], axis=1)[:, ::-1][:, 1:]
        across = -sd * ratio[:, None] * (later - risk[:, None] * beyond)
        slope = moves.T @ (seen - expected)
        return terms._replace(parameters=ParameterTerms(slope, curvature, list(across.T)))
