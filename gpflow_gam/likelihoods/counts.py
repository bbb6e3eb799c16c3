"""Counts: negative binomial, and with more or fewer zeros than their distribution has."""

from __future__ import annotations

import abc
from typing import Any, ClassVar, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, MeanAndVariance, Parameter, TensorType
from gpflow.quadrature import NDiagGHQuadrature
from gpflow.utilities import positive
from scipy.special import digamma, expit, gammaln, polygamma

from ..threads import each
from .base import Dispersed
from .links import Log, checked_link, log_failure, log_probabilities, log_probability
from .row_terms import (
    SURE,
    Batch,
    ParameterTerms,
    PositiveParameter,
    Softplus,
    Terms,
    are_counts,
    logistic_terms,
)

SMALLEST = 1e-6
"""Dispersions nearer to Poisson's lose the digits of lgamma(y + 1/alpha) - lgamma(1/alpha)."""
_TINY = 1e-30
"""Of the probability of a count above zero."""
_CHUNK = 64
"""Rows whose quadrature nodes, a gross each, stay in a core's cache."""


def _whole_counts(Y: tf.Tensor) -> tuple[tf.Tensor, str]:
    return tf.equal(Y, tf.round(Y)) & (Y >= 0.0), "whole counts, not negative"


def _log_probability(f: tf.Tensor, log_alpha: tf.Tensor | None, y: tf.Tensor) -> tf.Tensor:
    """Of a count of mean exp(f); Poisson where there is no dispersion."""
    lgamma = tf.math.lgamma
    if log_alpha is None:
        return y * f - tf.exp(f) - lgamma(y + 1.0)
    size, odds = tf.exp(-log_alpha), f + log_alpha  # the latter is log(alpha mu)
    ways = lgamma(y + size) - lgamma(size) - lgamma(y + 1.0)
    return ways + y * odds - (y + size) * tf.math.softplus(odds)


class NegativeBinomial(Dispersed):
    """
    Counts of mean ``mu = exp(f)`` and variance ``mu + alpha mu^2`` (NB2; Hilbe 2011, ch. 8).

    :param alpha: dispersion, trainable; at 0 the counts would be Poisson.
    :param varying: whether the logarithm of the dispersion is a second predictor instead.
    """

    def __init__(self, alpha: TensorType = 1.0, varying: bool = False, **kwargs: Any) -> None:
        super().__init__(varying, **kwargs)
        if not varying:
            self.alpha = Parameter(alpha, transform=positive(lower=SMALLEST))
            self.invlink = tf.exp

    def support(self, Y: tf.Tensor) -> tuple[tf.Tensor, str]:
        """Which ``Y`` are possible, element by element, and what they must be."""
        return _whole_counts(Y)

    def _log_dispersion(self) -> tf.Tensor:
        return tf.math.log(self.alpha)

    def _log_density(self, f: tf.Tensor, g: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return _log_probability(f, tf.maximum(g, tf.cast(np.log(SMALLEST), g.dtype)), y)

    def _moments(self, f: tf.Tensor, g: tf.Tensor) -> MeanAndVariance:
        return tf.exp(f) + 0.0 * g, tf.exp(f) + tf.exp(2.0 * f + g)

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        if self.varying:
            return super()._predict_mean_and_var(X, Fmu, Fvar)
        mean = tf.exp(Fmu + 0.5 * Fvar)
        square = tf.exp(2.0 * Fmu + 2.0 * Fvar)  # E[mu^2]
        return mean, mean + (1.0 + self.alpha) * square - tf.square(mean)

    def row_terms(self, rows: Batch) -> Terms | None:
        """Of ``rows``, in closed form but for softplus; not where the dispersion varies."""
        y = rows.Y[:, 0]
        if self.varying or not are_counts(y):
            return None
        alpha = PositiveParameter.of(self.alpha)
        size, shift = 1.0 / alpha.value, float(np.log(alpha.value))
        total = y + size
        counts, back = np.unique(y, return_inverse=True)  # few beside the rows
        ways = gammaln(counts + size) - gammaln(size) - gammaln(counts + 1.0)

        def parameters(at: Softplus) -> ParameterTerms:
            steps = (size * (digamma(counts + size) - digamma(size)))[back]
            bend = (size**2 * (polygamma(1, counts + size) - polygamma(1, size)))[back]
            slope = y - steps - total * at.slope + size * at.value
            across = size * at.slope - total * at.curvature
            curvature = steps + bend + across + size * (at.slope - at.value)
            return alpha.terms(slope, curvature, across, rows.weights)

        level = ways[back] + y * shift
        return logistic_terms(self.quadrature, rows, level, y, total, shift, parameters)


class ZeroAltered(Dispersed, abc.ABC):
    """Counts, Poisson or of a dispersion ``alpha``, whose zeros have a predictor g."""

    mean_of_first: ClassVar[bool] = False

    def __init__(self, alpha: TensorType | None = None, link: str = "logit", **kwargs: Any) -> None:
        super().__init__(varying=True, **kwargs)
        self.link = checked_link(link)
        self.alpha = None
        if alpha is not None:
            self.alpha = Parameter(alpha, transform=positive(lower=SMALLEST))

    def support(self, Y: tf.Tensor) -> tuple[tf.Tensor, str]:
        """Which ``Y`` are possible, element by element, and what they must be."""
        return _whole_counts(Y)

    def _log_alpha(self) -> tf.Tensor | None:
        """Read once an evaluation: a parameter's transform costs more than a few rows do."""
        return None if self.alpha is None else tf.math.log(self.alpha)

    def _no_count(self, f: tf.Tensor, log_alpha: tf.Tensor | None) -> tf.Tensor:
        """Log-probability of a count of zero."""
        if log_alpha is None:
            return -tf.exp(f)
        return -tf.math.softplus(f + log_alpha) * tf.exp(-log_alpha)

    def _zero(self, g: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Logarithms of the probability, and of what is left of it."""
        return log_probability(self.link, g), log_failure(self.link, g)

    def _second_moment(self, f: tf.Tensor) -> tf.Tensor:
        """E[count^2]."""
        return tf.exp(f) + (1.0 if self.alpha is None else 1.0 + self.alpha) * tf.exp(2.0 * f)

    @staticmethod
    @abc.abstractmethod
    def _slopes(f: AnyNDArray, links: tuple[Log, Log], y: AnyNDArray, size: float | None) -> Slopes:
        """The log-density and its derivatives, given ``links`` (of P(zero)) and 1 / dispersion."""

    def row_terms(self, rows: Batch) -> Terms | None:
        """Of ``rows``, by the nodes of the likelihood's own rule."""
        y, mean = rows.Y[:, 0], rows.mean
        rule = self.quadrature
        if not isinstance(rule, NDiagGHQuadrature) or rows.Y.shape[1] != 1 or not are_counts(y):
            return None
        alpha = None if self.alpha is None else PositiveParameter.of(self.alpha)
        known = None if self.alpha is None else self.alpha.unconstrained_variable
        if any(v is not known for v in rows.variables):
            return None
        nodes, weights = np.asarray(rule.Z), np.ravel(rule.dZ)
        size = None if alpha is None else 1.0 / alpha.value
        out = Slopes(*(np.empty(len(y)) for _ in Slopes._fields))
        precision = np.empty_like(mean)

        def fill(start: int) -> None:
            at = slice(start, start + _CHUNK)
            sd = np.sqrt(rows.var[at])
            f, g = (mean[at, i, None] + sd[:, i, None] * nodes[:, i] for i in (0, 1))
            with np.errstate(over="ignore", invalid="ignore"):  # the caller judges the result
                slopes = self._slopes(f, log_probabilities(self.link, g), y[at, None], size)
            for into, term in zip(out, slopes):
                into[at] = term @ weights
            bends = np.stack([out.ff[at], out.gg[at]], axis=1)
            for i, slope in enumerate((slopes.f, slopes.g)):
                # that of the quadrature, which a bound that is made of it rises along
                moved = -(slope @ (nodes[:, i] * weights))
                sure = sd[:, i] > SURE
                np.divide(moved, sd[:, i], out=moved, where=sure)
                precision[at, i] = np.where(sure, moved, -bends[:, i])

        each(fill, range(0, len(y), _CHUNK))
        parameters = None
        if rows.variables and alpha is not None:
            across = np.stack([out.fa, out.ga], axis=1)
            parameters = alpha.terms(out.a, out.aa, across, rows.weights)
        return Terms(out.value, np.stack([out.f, out.g], axis=1), precision, parameters)


class ZeroInflated(ZeroAltered):
    """A zero with a probability, otherwise a count, which may be zero too (Lambert 1992)."""

    def _log_density(self, f: tf.Tensor, g: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        log_alpha = self._log_alpha()
        zero, some = self._zero(g)
        none = zero + tf.math.softplus(self._no_count(f, log_alpha) + some - zero)
        return tf.where(y > 0.0, _log_probability(f, log_alpha, y) + some, none)

    def _moments(self, f: tf.Tensor, g: tf.Tensor) -> MeanAndVariance:
        share = tf.exp(self._zero(g)[1])
        mean = share * tf.exp(f)
        return mean, share * self._second_moment(f) - tf.square(mean)

    @staticmethod
    def _slopes(f: AnyNDArray, links: tuple[Log, Log], y: AnyNDArray, size: float | None) -> Slopes:
        count, empty = _count(f, y, size), _count(f, np.zeros_like(y), size)
        zero, some = links
        above = Slopes(
            count.value + some.value,
            count.f,
            some.first,
            count.a,
            count.ff,
            some.second,
            count.aa,
            count.fa,
            0.0 * f,
        )
        value = np.logaddexp(zero.value, some.value + empty.value)
        p = np.exp(some.value + empty.value - value)  # that a zero is a count
        q = np.exp(zero.value - value)
        gap = some.first - zero.first
        below = Slopes(
            value,
            p * empty.f,
            zero.first + p * gap,
            p * empty.a,
            p * empty.ff + p * q * empty.f**2,
            q * zero.second + p * some.second + p * q * gap**2,
            p * empty.aa + p * q * empty.a**2,
            p * empty.fa + p * q * empty.a * empty.f,
            p * q * empty.a * gap,
        )
        return Slopes(*(np.where(y > 0.0, one, other) for one, other in zip(above, below)))


class Hurdle(ZeroAltered):
    """A zero with a probability, otherwise a count above zero (Mullahy 1986)."""

    def _log_density(self, f: tf.Tensor, g: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        log_alpha = self._log_alpha()
        above = _log_probability(f, log_alpha, y) - self._log_some(f, log_alpha)
        zero, some = self._zero(g)
        return tf.where(y > 0.0, above + some, zero)

    def _log_some(self, f: tf.Tensor, log_alpha: tf.Tensor | None) -> tf.Tensor:
        """Log-probability of a count above zero."""
        some = -tf.math.expm1(self._no_count(f, log_alpha))
        return tf.math.log(tf.maximum(some, tf.constant(_TINY, some.dtype)))

    def _moments(self, f: tf.Tensor, g: tf.Tensor) -> MeanAndVariance:
        share = tf.exp(self._zero(g)[1] - self._log_some(f, self._log_alpha()))
        mean = share * tf.exp(f)
        return mean, share * self._second_moment(f) - tf.square(mean)

    @staticmethod
    def _slopes(f: AnyNDArray, links: tuple[Log, Log], y: AnyNDArray, size: float | None) -> Slopes:
        count, empty = _count(f, y, size), _count(f, np.zeros_like(y), size)
        some = -np.expm1(empty.value)
        kept = some > _TINY
        odds = np.divide(np.exp(empty.value), some, out=np.zeros_like(some), where=kept)
        turn = odds + odds**2
        zero, left = links
        none = 0.0 * f
        above = Slopes(
            count.value - np.log(np.maximum(some, _TINY)) + left.value,
            count.f + odds * empty.f,
            left.first,
            count.a + odds * empty.a,
            count.ff + odds * empty.ff + turn * empty.f**2,
            left.second,
            count.aa + odds * empty.aa + turn * empty.a**2,
            count.fa + odds * empty.fa + turn * empty.a * empty.f,
            none,
        )
        below = Slopes(zero.value, none, zero.first, none, none, zero.second, none, none, none)
        return Slopes(*(np.where(y > 0.0, one, other) for one, other in zip(above, below)))


class Slopes(NamedTuple):
    """A log-density at predictors f, g and the logarithm of the dispersion, a, and derivatives."""

    value: AnyNDArray
    f: AnyNDArray
    g: AnyNDArray
    a: AnyNDArray
    ff: AnyNDArray
    gg: AnyNDArray
    aa: AnyNDArray
    fa: AnyNDArray
    ga: AnyNDArray


class CountSlopes(NamedTuple):
    """A log-probability of the count alone, and its derivatives."""

    value: AnyNDArray
    f: AnyNDArray
    a: AnyNDArray
    ff: AnyNDArray
    aa: AnyNDArray
    fa: AnyNDArray


def _count(f: AnyNDArray, y: AnyNDArray, size: float | None) -> CountSlopes:
    """Of Poisson counts, or negative binomial ones of variance ``mu + mu^2 / size``."""
    if size is None:
        mean, none = np.exp(f), 0.0 * f
        return CountSlopes(y * f - mean - gammaln(y + 1.0), y - mean, none, -mean, none, none)
    odds = f - np.log(size)
    soft, rate = np.logaddexp(0.0, odds), expit(odds)
    bend, total = rate * (1.0 - rate), y + size
    ways = gammaln(total) - gammaln(size) - gammaln(y + 1.0)
    first = size * (digamma(total) - digamma(size))
    second = first + size**2 * (polygamma(1, total) - polygamma(1, size))
    return CountSlopes(
        ways + y * odds - total * soft,
        y - total * rate,
        y - first + size * soft - total * rate,
        -total * bend,
        second - size * soft + 2.0 * size * rate - total * bend,
        size * rate - total * bend,
    )
