"""Discrete observations: binary ones, successes out of trials, counts and classes."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray, MeanAndVariance, Parameter, TensorType
from gpflow.likelihoods import QuadratureLikelihood, ScalarLikelihood
from gpflow.quadrature import NDiagGHQuadrature, ndiag_mc
from scipy.special import digamma, expit, gammaln, ndtri, polygamma
from scipy.stats import qmc

from .. import bijectors
from ..errors import check_count
from ..kernels.correlation import float_type
from ..threads import each
from .base import (
    BINARY,
    COUNTS,
    ORDERED_LINKS,
    SURE,
    SYMMETRIC,
    Batch,
    Dispersed,
    Log,
    ParameterTerms,
    PositiveParameter,
    Softplus,
    Terms,
    checked_link,
    expected_probability,
    labels,
    log_failure,
    log_probabilities,
    log_probability,
    logistic_terms,
    probability,
)


class Bernoulli(gpflow.likelihoods.Bernoulli):
    """
    ``p(y = 1 | f) = g(f)`` for y in {0, 1}, g the inverse of the link.

    GPflow's takes ``log(1 - g(f))`` as written: minus infinity from f = 37 on under a logit link,
    which quadrature nodes reach; and its probit is squeezed into [0.001, 0.999].

    :param link: "logit", "probit", "cloglog" or "cauchit" (McCullagh & Nelder 1989, section 4.3),
        or "log", of probabilities up to .99: above, they approach one without reaching it.
    :raises ValueError: another link.
    """

    support = BINARY

    def __init__(self, link: str = "logit", **kwargs: Any) -> None:
        self.link = checked_link(link)
        super().__init__(invlink=functools.partial(probability, link), **kwargs)

    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        if self.link not in SYMMETRIC:
            return tf.where(Y > 0.5, log_probability(self.link, F), log_failure(self.link, F))
        return log_probability(self.link, (2.0 * Y - 1.0) * F)

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        p = expected_probability(self.link, self.quadrature, Fmu, Fvar)
        return p, p - tf.square(p)

    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        if self.link != "probit":
            return QuadratureLikelihood._predict_log_density(self, X, Fmu, Fvar, Y)
        margin = (2.0 * Y - 1.0) * Fmu / tf.sqrt(1.0 + Fvar)
        return tf.reduce_sum(log_probability("probit", margin), axis=-1)

    def row_terms(self, rows: Batch) -> Terms | None:
        """Terms of ``rows``, in closed form but for softplus; under the logit link only."""
        y = rows.Y[:, 0]
        if self.link != "logit" or not np.all((y == 0.0) | (y == 1.0)):
            return None
        return logistic_terms(self.quadrature, rows, np.zeros(len(y)), y, np.ones(len(y)))


class Binomial(QuadratureLikelihood):
    """
    ``p(y | f) = Binomial(y; n, g(f))``, g the inverse of the link.

    Y is [N, 2]: successes and trials. Means and variances are those of one trial, and (1, 0) for
    the trials' column: how many a new point has is not known here.

    :param link: "logit", "probit", "cloglog", "cauchit" or "log", as of :class:`Bernoulli`.
    :raises ValueError: another link.
    """

    def __init__(self, link: str = "logit", **kwargs: Any) -> None:
        super().__init__(input_dim=None, latent_dim=1, observation_dim=2, **kwargs)
        self.link = checked_link(link)
        self.invlink = functools.partial(probability, link)

    def support(self, Y: tf.Tensor) -> tuple[tf.Tensor, str]:
        """Mask of the possible elements of Y [N, K], and in words what they must be."""
        if Y.shape[-1] != 2:
            raise ValueError(f"Y must be [N, 2], successes and trials; got shape {Y.shape}.")
        y, trials = Y[:, :1], Y[:, 1:]
        whole = tf.equal(Y, tf.round(Y))
        inside = whole & tf.concat([(y >= 0.0) & (y <= trials), trials >= 1.0], axis=1)
        return inside, "whole successes from 0 to the trials, and whole trials from 1"

    @staticmethod
    def _support_of_shares(Y: tf.Tensor) -> tuple[tf.Tensor, str]:
        """The same of a quasi-likelihood."""
        return (Y >= 0.0) & (Y[:, 1:] >= Y) & (Y[:, 1:] > 0.0), "0 to the trials"

    def _log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        f, y, trials = F[..., 0], Y[..., 0], Y[..., 1]
        lgamma = tf.math.lgamma
        ways = lgamma(trials + 1.0) - lgamma(y + 1.0) - lgamma(trials - y + 1.0)
        hits, misses = log_probability(self.link, f), log_failure(self.link, f)
        return ways + y * hits + (trials - y) * misses

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return _one_trial(self.invlink(F))[0]

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return _one_trial(self.invlink(F))[1]

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        return _one_trial(expected_probability(self.link, self.quadrature, Fmu, Fvar))

    def conditional_response(self, X: TensorType, F: TensorType) -> tf.Tensor:
        """The probability [...] at predictors ``F`` [..., 1], whatever ``X``."""
        return self.invlink(F)[..., 0]

    def row_terms(self, rows: Batch) -> Terms | None:
        """Terms of ``rows``, in closed form but for softplus; under the logit link only."""
        y, trials = rows.Y[:, 0], rows.Y[:, 1]
        if self.link != "logit" or not np.all((y >= 0.0) & (y <= trials)):
            return None
        ways = gammaln(trials + 1.0) - gammaln(y + 1.0) - gammaln(trials - y + 1.0)
        return logistic_terms(self.quadrature, rows, ways, y, trials)


def _one_trial(p: tf.Tensor) -> MeanAndVariance:
    """Mean and variance [..., 2] of the outcome of one trial, and of the number of trials, 1."""
    mean = tf.concat([p, tf.ones_like(p)], axis=-1)
    return mean, tf.concat([p - tf.square(p), tf.zeros_like(p)], axis=-1)


SMALLEST = 1e-6
"""Dispersions nearer to Poisson's lose the digits of lgamma(y + 1/alpha) - lgamma(1/alpha)."""
_TINY = 1e-30  # smallest probability of a count above zero that is computed with
_CHUNK = 64  # rows whose quadrature nodes, 144 each, stay in a core's cache


def _log_probability(f: tf.Tensor, log_alpha: tf.Tensor | None, y: tf.Tensor) -> tf.Tensor:
    """Log-probability of a count of mean exp(f); Poisson where there is no dispersion."""
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

    support = COUNTS

    def __init__(self, alpha: TensorType = 1.0, varying: bool = False, **kwargs: Any) -> None:
        super().__init__(varying, **kwargs)
        if not varying:
            self.alpha = Parameter(alpha, transform=bijectors.softplus(SMALLEST))
            self.invlink = tf.exp

    def _log_dispersion(self) -> tf.Tensor:
        return tf.math.log(self.alpha)

    def _log_density(self, f: tf.Tensor, g: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return _log_probability(f, tf.maximum(g, tf.cast(np.log(SMALLEST), g.dtype)), y)

    def _moments(self, f: tf.Tensor, g: tf.Tensor) -> MeanAndVariance:
        return tf.exp(f) + 0.0 * g, tf.exp(f) + tf.exp(2.0 * f + g)

    def row_terms(self, rows: Batch) -> Terms | None:
        """Terms of ``rows``, in closed form but for softplus; not where the dispersion varies."""
        y = rows.Y[:, 0]
        if self.varying or not np.all(COUNTS.holds(y)):
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
    support = COUNTS

    def __init__(self, alpha: TensorType | None = None, link: str = "logit", **kwargs: Any) -> None:
        super().__init__(varying=True, **kwargs)
        self.link = checked_link(link)
        self.alpha = None
        if alpha is not None:
            self.alpha = Parameter(alpha, transform=bijectors.softplus(SMALLEST))

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
        """Terms of ``rows``, by the nodes of the likelihood's own rule."""
        y, mean = rows.Y[:, 0], rows.mean
        rule = self.quadrature
        if not isinstance(rule, NDiagGHQuadrature) or rows.Y.shape[1] != 1:
            return None
        if not np.all(COUNTS.holds(y)):
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
        above = count._replace(value=count.value + some.value, g=some.first, gg=some.second)
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
        above = Slopes(
            count.value - np.log(np.maximum(some, _TINY)) + left.value,
            count.f + odds * empty.f,
            left.first,
            count.a + odds * empty.a,
            count.ff + odds * empty.ff + turn * empty.f**2,
            left.second,
            count.aa + odds * empty.aa + turn * empty.a**2,
            count.fa + odds * empty.fa + turn * empty.a * empty.f,
            count.ga,
        )
        below = Slopes(*[0.0 * f] * 9)._replace(value=zero.value, g=zero.first, gg=zero.second)
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


def _count(f: AnyNDArray, y: AnyNDArray, size: float | None) -> Slopes:
    """Log-probability, and derivatives, of counts: Poisson, or of variance ``mu + mu^2 / size``."""
    none = Slopes(*[0.0 * f] * 9)
    if size is None:
        mean = np.exp(f)
        return none._replace(value=y * f - mean - gammaln(y + 1.0), f=y - mean, ff=-mean)
    odds = f - np.log(size)
    soft, rate = np.logaddexp(0.0, odds), expit(odds)
    bend, total = rate * (1.0 - rate), y + size
    ways = gammaln(total) - gammaln(size) - gammaln(y + 1.0)
    first = size * (digamma(total) - digamma(size))
    second = first + size**2 * (polygamma(1, total) - polygamma(1, size))
    return none._replace(
        value=ways + y * odds - total * soft,
        f=y - total * rate,
        a=y - first + size * soft - total * rate,
        ff=-total * bend,
        aa=second - size * soft + 2.0 * size * rate - total * bend,
        fa=size * rate - total * bend,
    )


_SMALLEST = 1e-6
_FAR = 80.0  # predictor above which exp(-exp(x)) is zero, and below which exp(x) is not infinite


class Ordered(ScalarLikelihood):
    """
    ``P(y <= k | f) = G(c_k - f)`` for labels 0 to K - 1, G the inverse link (McCullagh 1980).

    The first cutpoint is 0, the others are trained by their distances ``increments`` [K - 2].

    :param num_classes: K.
    :param link: ``"probit"``, ``"logit"``, ``"cloglog"`` or ``"cauchit"``.
    :raises ValueError: fewer than two classes, another link, or increments of another shape.
    """

    _has_labels: ClassVar[bool] = True

    def __init__(
        self,
        num_classes: int,
        increments: TensorType | None = None,
        link: str = "probit",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.link = checked_link(link, ORDERED_LINKS)
        check_count("num_classes", num_classes, 2)
        if increments is None:
            increments = np.ones(num_classes - 2)
        if np.shape(increments) != (num_classes - 2,):
            raise ValueError(
                f"increments must be [{num_classes - 2}], two fewer than the classes; got shape "
                f"{np.shape(increments)}."
            )
        self.num_classes = num_classes
        self.increments: Parameter | None = None
        if num_classes > 2:  # optimisers take no empty parameter
            self.increments = Parameter(increments, transform=bijectors.softplus(_SMALLEST))

    def support(self, Y: tf.Tensor) -> tuple[tf.Tensor, str]:
        """Mask of the possible elements of ``Y``, and in words what they must be."""
        return labels(self.num_classes)(Y)

    @check_shapes("return: [K]")
    def _cutpoints(self, dtype: tf.DType) -> tf.Tensor:
        first = tf.zeros([1], dtype=dtype)
        if self.increments is None:
            return first
        return tf.concat([first, tf.cumsum(tf.convert_to_tensor(self.increments))], axis=0)

    @property
    def cutpoints(self) -> tf.Tensor:
        """c_0 = 0 < c_1 < ..., [K - 1]."""
        dtype = tf.float64 if self.increments is None else self.increments.dtype
        return self._cutpoints(dtype)

    def _log_mass(self, F: tf.Tensor, Y: tf.Tensor, scale: tf.Tensor | float) -> tf.Tensor:
        """Log P(y) where the noise has the given standard deviation; shapes broadcast."""
        label, cut = tf.cast(Y, tf.int32), self._cutpoints(F.dtype)
        # the outer classes have no bound on one side; finite ones keep gradients free of NaN
        bounds = tf.concat([cut[:1] - 1.0, cut, cut[-1:] + 1.0], axis=0)
        lower = (tf.gather(bounds, label) - F) / scale
        upper = (tf.gather(bounds, label + 1) - F) / scale
        inner = self._log_between(lower, upper)
        below, above = log_probability(self.link, upper), log_failure(self.link, lower)
        outer = tf.where(tf.equal(label, 0), below, above)
        is_outer = tf.equal(label, 0) | tf.equal(label, self.num_classes - 1)
        return tf.where(is_outer, outer, inner)

    def _log_between(self, lower: tf.Tensor, upper: tf.Tensor) -> tf.Tensor:
        """Log of G(upper) - G(lower)."""
        if self.link not in SYMMETRIC:  # of cloglog the upper tail is exp(-exp(x))
            most = tf.constant(_FAR, lower.dtype)
            high, low = (log_failure(self.link, tf.minimum(x, most)) for x in (lower, upper))
        else:  # differences of G keep their digits in the lower tail only
            flip = lower > 0.0
            low, high = tf.where(flip, -upper, lower), tf.where(flip, -lower, upper)
            low, high = log_probability(self.link, low), log_probability(self.link, high)
        return high + tf.math.log(-tf.math.expm1(low - high))

    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self._log_mass(tf.convert_to_tensor(F), Y, 1.0)

    def _moments(self, F: TensorType, scale: tf.Tensor | float) -> MeanAndVariance:
        F, labels = tf.convert_to_tensor(F), tf.range(self.num_classes)
        wide = scale if isinstance(scale, float) else scale[..., None]
        p, labels = tf.exp(self._log_mass(F[..., None], labels, wide)), tf.cast(labels, F.dtype)
        mean = tf.reduce_sum(p * labels, axis=-1)
        return mean, tf.reduce_sum(p * tf.square(labels - mean[..., None]), axis=-1)

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self._moments(F, 1.0)[0]

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self._moments(F, 1.0)[1]

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        if self.link != "probit":
            return QuadratureLikelihood._predict_mean_and_var(self, X, Fmu, Fvar)
        return self._moments(Fmu, tf.sqrt(1.0 + Fvar))

    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        if self.link != "probit":
            return QuadratureLikelihood._predict_log_density(self, X, Fmu, Fvar, Y)
        mass = self._log_mass(tf.convert_to_tensor(Fmu), Y, tf.sqrt(1.0 + Fvar))
        return tf.reduce_sum(mass, axis=-1)

    def conditional_response(self, X: TensorType, F: TensorType) -> tf.Tensor:
        """Class probabilities [..., K] at predictors ``F`` [..., 1], whatever ``X``."""
        F = tf.convert_to_tensor(F)[..., :1]
        below = probability(self.link, self._cutpoints(F.dtype) - F)
        whole = tf.concat([tf.zeros_like(F), below, tf.ones_like(F)], axis=-1)
        return whole[..., 1:] - whole[..., :-1]


@functools.lru_cache(maxsize=16)
def normal_nodes(dimension: int, number: int, seed: int = 1) -> AnyNDArray:
    """Symmetric points [2 number, dimension] of unit covariance: exact to second order."""
    sobol = qmc.Sobol(dimension, seed=seed)
    half = ndtri(sobol.random(number))
    root = np.linalg.cholesky(half.T @ half / number)
    half = np.linalg.solve(root, half.T).T
    return np.concatenate([half, -half])


class FixedSoftmax(gpflow.likelihoods.Softmax):
    """
    GPflow's softmax over fixed nodes (Sobol' 1967), so that the bound does not flicker.

    :param num_classes: of labels 0 to ``num_classes - 1``.
    """

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes)
        pairs = 2 ** int(np.ceil(np.log2(max(64, num_classes))))
        self._epsilon = normal_nodes(num_classes, pairs)[:, None, :]
        self.num_monte_carlo_points = 2 * pairs

    def _variational_expectations(
        self,
        X: TensorType,
        Fmu: TensorType,
        Fvar: TensorType,
        Y: TensorType,
        epsilon: TensorType | None = None,
    ) -> tf.Tensor:
        if epsilon is not None:
            return super()._variational_expectations(X, Fmu, Fvar, Y, epsilon=epsilon)
        Fmu = tf.convert_to_tensor(Fmu)
        hit = tf.gather(Fmu, tf.cast(Y[..., 0], tf.int32), batch_dims=1)
        # nodes come in opposite pairs: the expectation of the label's predictor is its mean
        nodes = tf.constant(self._epsilon[:, 0, :], dtype=Fmu.dtype)
        f = Fmu[:, None, :] + tf.sqrt(Fvar)[:, None, :] * nodes
        return hit - tf.reduce_mean(tf.reduce_logsumexp(f, axis=-1), axis=-1)

    def _mc_quadrature(
        self,
        funcs: Callable[..., tf.Tensor] | Iterable[Callable[..., tf.Tensor]],
        Fmu: TensorType,
        Fvar: TensorType,
        logspace: bool = False,
        epsilon: TensorType | None = None,
        **Ys: TensorType,
    ) -> tf.Tensor:
        Fmu, Fvar = tf.convert_to_tensor(Fmu), tf.convert_to_tensor(Fvar)
        if epsilon is None:
            epsilon = tf.constant(self._epsilon, dtype=Fmu.dtype)
        number = self.num_monte_carlo_points
        with float_type(Fmu.dtype.name):  # that of the logarithm of their number, too
            return ndiag_mc(funcs, number, Fmu, Fvar, logspace, epsilon, **Ys)
