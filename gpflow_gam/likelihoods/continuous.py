"""Continuous observations, censored or not, and the loss of a quantile."""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray, MeanAndVariance, Parameter, PriorOn, TensorType
from gpflow.config import default_float, default_likelihood_positive_minimum
from gpflow.likelihoods import Gaussian, QuadratureLikelihood, ScalarLikelihood
from gpflow.logdensities import gaussian
from gpflow.quadrature import NDiagGHQuadrature
from scipy.special import betaln, digamma, gammaln, polygamma, xlog1py, xlogy
from scipy.stats import norm

from ..bijectors import exponential, softplus
from ..errors import check_level, check_positive
from ..measures import weighted_quantiles
from .base import (
    AMOUNTS,
    POSITIVE,
    SHARE_LINKS,
    SHARES,
    SURE,
    Batch,
    Dispersed,
    GaussHermite,
    GaussHermitePlane,
    LocationScale,
    ParameterTerms,
    PositiveParameter,
    Terms,
    checked_link,
    log_failure,
    log_ndtr,
    probability,
)

POWERS = 1.01, 1.99
"""Range of Tweedie's variance power: the density is far enough from Poisson's and gamma's."""
SMOOTHING = 0.1
"""Width of the bend of a quantile's loss, in standard deviations of normal noise."""
_TERMS = 128
"""Number of terms of Tweedie's series; wider ones are thinned, over 8 deviations each way."""
_LEAST = 1e-300  # share below which the gamma function overflows


def _positive(value: TensorType) -> Parameter:
    return Parameter(value, transform=softplus(default_likelihood_positive_minimum()))


class Autoregressive(Gaussian):  # type: ignore[misc]
    """
    Gaussian noise that is autoregressive of order one along series of rows.

    ``e_t = r e_(t-1) + sqrt(1 - r^2) sd n_t``, so that each row by itself is Gaussian, as whose
    densities and predictions are. Fits by sums over rows take the correlation ``r`` into account.

    :param position: the column of X that is larger by one in a row than in the one before it.
    """

    def __init__(self, position: int) -> None:
        super().__init__(quadrature=GaussHermite())
        self.position = position
        self.correlation = Parameter(
            0.0,
            transform=tfp.bijectors.Tanh(),
            prior=tfp.distributions.Normal(*(np.array(x, default_float()) for x in (0.0, 1.0))),
            prior_on=PriorOn.UNCONSTRAINED,
        )


def predecessors(position: AnyNDArray) -> AnyNDArray:
    """The row before each row, [N], by positions [N] in series; -1 for none."""
    before: AnyNDArray = np.full(len(position), -1)
    order = np.argsort(position)
    follows = np.diff(position[order]) == 1.0
    before[order[1:][follows]] = order[:-1][follows]
    return before


class Heteroskedastic(LocationScale):
    """
    ``y ~ N(u f, (u exp(g))^2)`` with two predictors, f and g.

    Expectations are in closed form (Lazaro-Gredilla & Titsias 2011), unlike those of GPflow's
    ``HeteroskedasticTFPConditional``, which take 400 quadrature nodes.

    :param unit: u, a scalar, fixed. One prior serves both predictors, so f has to be measured in a
        unit in which it is about as large as g, such as the standard deviation of y.
    """

    def __init__(self, unit: TensorType = 1.0) -> None:
        super().__init__(unit=unit, varying=True)

    def _log_density(self, f: tf.Tensor, g: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return gaussian(y, f, tf.square(g))

    def _moments(self, f: tf.Tensor, g: tf.Tensor) -> MeanAndVariance:
        return f, tf.square(g)

    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        square = tf.square(Y[..., 0] / self.unit - Fmu[..., 0]) + Fvar[..., 0]
        precision = tf.exp(2.0 * (Fvar[..., 1] - Fmu[..., 1]))  # E[exp(-2 g)]
        constant = 0.5 * math.log(2.0 * math.pi) + tf.math.log(self.unit)
        return -constant - Fmu[..., 1] - 0.5 * precision * square

    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        def over_f(G: tf.Tensor) -> tf.Tensor:
            return gaussian(Y / self.unit, Fmu[..., :1], Fvar[..., :1] + tf.exp(2.0 * G))

        density = self._scale_rule.logspace(over_f, Fmu[..., 1:], Fvar[..., 1:])
        return density[..., 0] - tf.math.log(self.unit)

    def row_terms(self, rows: Batch) -> Terms | None:
        """Terms of ``rows`` in closed form."""
        unit = float(self.unit.numpy())
        (f, g), (v, w) = rows.mean.T, rows.var.T
        away, precision = rows.Y[:, 0] / unit - f, np.exp(2.0 * (w - g))
        if rows.variables or not np.all(np.isfinite(away)):
            return None
        square = precision * (np.square(away) + v)
        value = -0.5 * math.log(2.0 * math.pi) - math.log(unit) - g - 0.5 * square
        slopes = np.stack([precision * away, square - 1.0], axis=1)
        return Terms(value, slopes, np.stack([precision, 2.0 * square], axis=1))


class StudentT(LocationScale):
    """
    A location and a scale times Student's t.

    :param scale: trainable, a scalar.
    :param unit: of both predictors of a scale that varies, a scalar, fixed.
    :param df: degrees of freedom, fixed.
    """

    def __init__(
        self, scale: TensorType = 1.0, unit: TensorType = 1.0, df: float = 4.0, **kwargs: Any
    ) -> None:
        super().__init__(scale, unit, **kwargs)
        self.df = df

    def _log_density(self, f: tf.Tensor, g: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        df = tf.constant(self.df, f.dtype)
        constant = tf.math.lgamma(0.5 * (df + 1.0)) - tf.math.lgamma(0.5 * df)
        constant -= 0.5 * tf.math.log(df * np.pi) + tf.math.log(g)
        return constant - 0.5 * (df + 1.0) * tf.math.log1p(tf.square((y - f) / g) / df)

    def _moments(self, f: tf.Tensor, g: tf.Tensor) -> MeanAndVariance:
        spread = self.df / (self.df - 2.0) if self.df > 2.0 else np.inf
        return f + 0.0 * g, tf.square(g) * spread + tf.zeros_like(f)

    def row_terms(self, rows: Batch) -> Terms | None:
        """Terms of ``rows`` by quadrature; not where the scale varies."""
        y, mean, rule = rows.Y[:, :1], rows.mean, self.quadrature
        if self.varying or not (isinstance(rule, NDiagGHQuadrature) and np.all(np.isfinite(y))):
            return None
        scale, df = PositiveParameter.of(self.scale), float(self.df)
        s, sd = scale.value, np.sqrt(rows.var)
        nodes, weights = np.ravel(rule.Z), np.ravel(rule.dZ)
        u = (y - mean - sd * nodes) / s
        kept = 1.0 / (1.0 + np.square(u) / df)
        force, many = (df + 1.0) / (df * s) * u * kept, df + 1.0  # the former d log p / df
        bend = many / (df * s**2) * (1.0 - 2.0 * kept) * kept  # d^2 log p / df^2
        along = 0.5 * (bend @ weights)
        np.divide(force @ (0.5 * nodes * weights), sd[:, 0], out=along, where=sd[:, 0] > SURE * s)
        slope = force @ weights
        constant = gammaln(0.5 * many) - gammaln(0.5 * df) - 0.5 * math.log(df * math.pi * s**2)
        value = constant + 0.5 * many * (np.log(kept) @ weights)
        parameters = None
        if rows.variables:
            own = many * ((1.0 - kept) @ weights) - 1.0
            turn = -2.0 * many * ((kept * (1.0 - kept)) @ weights)
            across = (s * u * bend) @ weights - slope
            parameters = scale.terms(own, turn, across, rows.weights)
        return Terms(value, slope, -2.0 * along, parameters)


class MeanGamma(Dispersed):
    """
    ``y ~ Gamma(shape, scale = exp(f) / shape)``: mean exp(f), variance ``exp(2 f) / shape``.

    Mean and shape are orthogonal (McCullagh & Nelder 1989, ch. 8), unlike in GPflow's ``Gamma``.

    :param shape: trainable, a scalar.
    :param varying: True if the shape has a predictor, minus its logarithm.
    """

    support = POSITIVE

    def __init__(self, shape: TensorType = 1.0, varying: bool = False, **kwargs: Any) -> None:
        super().__init__(varying, **kwargs)
        if not varying:
            self.shape = _positive(shape)
            self.invlink = tf.exp

    def _log_dispersion(self) -> tf.Tensor:
        return -tf.math.log(self.shape)

    def _log_density(self, f: tf.Tensor, g: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return _gamma(f, y * tf.exp(-f), g, y)

    def _moments(self, f: tf.Tensor, g: tf.Tensor) -> MeanAndVariance:
        return tf.exp(f) + 0.0 * g, tf.exp(2.0 * f + g)

    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        def over_f(f: tf.Tensor, var: tf.Tensor, g: tf.Tensor) -> tf.Tensor:
            return _gamma(f, Y * tf.exp(0.5 * var - f), g, Y)

        return tf.reduce_sum(self._over_dispersion(over_f, Fmu, Fvar), axis=-1)

    def row_terms(self, rows: Batch) -> Terms | None:
        """Terms of ``rows`` in closed form; not where the shape varies."""
        y, f = rows.Y[:, 0], rows.mean[:, 0]
        if self.varying or not np.all(POSITIVE.holds(y)):
            return None
        shape = PositiveParameter.of(self.shape)
        a, ratio = shape.value, y * np.exp(0.5 * rows.var[:, 0] - f)
        about = math.log(a) - f - ratio + np.log(y)
        slope, precision = a * (ratio - 1.0), a * ratio
        own = a * (about + 1.0 - digamma(a))
        bend = own + a * (1.0 - a * polygamma(1, a))
        parameters = shape.terms(own, bend, slope, rows.weights) if rows.variables else None
        return Terms(a * about - np.log(y) - gammaln(a), slope, precision, parameters)


def _gamma(f: tf.Tensor, ratio: tf.Tensor, g: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """The log-density with ratio = y exp(-f), or with the means of it and of f."""
    shape = tf.exp(-g)
    powers = shape * (-g - f - ratio) + (shape - 1.0) * tf.math.log(y)
    return powers - tf.math.lgamma(shape)


class LogitBeta(Dispersed):
    """
    ``y ~ Beta(s m, s (1 - m))``, m the inverse link of f (Ferrari & Cribari-Neto 2004).

    GPflow's subtracts s m from s, which is 0 from f = 37 on, and clips y.

    :param scale: s, trainable, a scalar.
    :param link: ``"logit"``, ``"probit"``, ``"cloglog"`` or ``"cauchit"``.
    :param varying: True if the scale has a predictor, minus its logarithm.
    """

    support = SHARES

    def __init__(
        self, scale: TensorType = 1.0, link: str = "logit", varying: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(varying, **kwargs)
        self.link = checked_link(link, SHARE_LINKS)
        if not varying:
            self.scale = _positive(scale)
            self.invlink = functools.partial(probability, link)

    def _log_dispersion(self) -> tf.Tensor:
        return -tf.math.log(self.scale)

    def _shares(self, f: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """m and 1 - m, neither of which is zero."""
        if self.link == "logit":
            return tf.sigmoid(f), tf.sigmoid(-f)
        least = tf.constant(_LEAST, f.dtype)
        m, rest = probability(self.link, f), tf.exp(log_failure(self.link, f))
        return tf.maximum(m, least), tf.maximum(rest, least)

    def _log_density(self, f: tf.Tensor, g: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        scale, lgamma = tf.exp(-g), tf.math.lgamma
        a, b = (scale * share for share in self._shares(f))
        powers = (a - 1.0) * tf.math.log(y) + (b - 1.0) * tf.math.log1p(-y)
        return powers + lgamma(scale) - lgamma(a) - lgamma(b)

    def _moments(self, f: tf.Tensor, g: tf.Tensor) -> MeanAndVariance:
        m, rest = self._shares(f)
        return m + 0.0 * g, m * rest * tf.sigmoid(g)


class Tweedie(ScalarLikelihood):
    """
    Mean ``mu = exp(f)``, variance ``dispersion mu^power``: a Poisson number of gamma amounts.

    Of powers between 1 and 2, zero has a probability and what is above zero a density (Jorgensen
    1987). The density's series has its largest term in closed form and is summed around it (Dunn &
    Smyth 2005); it does not depend on the mean, so expectations are in closed form.

    :param dispersion: trainable, of responses measured in ``unit``: what the dispersion is measured
        in moves with the power, and fits to responses in other units would go other ways.
    :param power: between 1.01 and 1.99, trainable.
    :param unit: fixed, such as the mean response.
    """

    support = AMOUNTS

    def __init__(
        self,
        dispersion: TensorType = 1.0,
        power: TensorType = 1.5,
        unit: TensorType = 1.0,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("quadrature", GaussHermite())
        super().__init__(**kwargs)
        self.dispersion = Parameter(dispersion, transform=exponential())
        ends = (tf.constant(end, default_float()) for end in POWERS)
        self.power = Parameter(power, transform=tfp.bijectors.Sigmoid(*ends))
        self.unit = Parameter(unit, trainable=False)
        self.invlink = tf.exp

    def scaled(self) -> tf.Tensor:
        """The dispersion of responses as they are, a scalar: ``dispersion unit^(2 - power)``."""
        return self._numbers()[1]

    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        normaliser, exponent = self._parts(Y)
        return normaliser + exponent(F)

    def _parts(self, Y: TensorType) -> tuple[tf.Tensor, Callable[[TensorType], tf.Tensor]]:
        """Log-densities without what depends on the mean, and that, a function of its logarithm."""
        Y = tf.convert_to_tensor(Y)
        p, phi = self._numbers()

        def exponent(F: TensorType) -> tf.Tensor:
            return _exponent(tf.exp((1.0 - p) * F), tf.exp((2.0 - p) * F), Y, p, phi)

        return _normaliser(Y, p, phi), exponent

    def _numbers(self) -> tuple[tf.Tensor, tf.Tensor]:
        """The power, and the dispersion of responses as they are."""
        p = tf.convert_to_tensor(self.power)
        unit = self.unit.unconstrained_variable  # which it is, without detours
        return p, self.dispersion * tf.exp((2.0 - p) * tf.math.log(unit))

    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        p, phi = self._numbers()

        def power(k: tf.Tensor) -> tf.Tensor:
            return tf.exp(k * Fmu + 0.5 * tf.square(k) * Fvar)  # E[mu^k]

        mean = _exponent(power(1.0 - p), power(2.0 - p), Y, p, phi)
        return tf.reduce_sum(_normaliser(Y, p, phi) + mean, axis=-1)

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.exp(F)

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.scaled() * tf.exp(self.power * F)


def _exponent(
    inverse: tf.Tensor, rate: tf.Tensor, Y: tf.Tensor, p: tf.Tensor, phi: tf.Tensor
) -> tf.Tensor:
    """Exponent of Tweedie's density, from ``mu^(1 - p)`` and ``mu^(2 - p)`` or their means."""
    return (Y * inverse / (1.0 - p) - rate / (2.0 - p)) / phi


def _normaliser(Y: tf.Tensor, p: tf.Tensor, phi: tf.Tensor) -> tf.Tensor:
    """``log(W(y) / y)`` of y > 0, and 0 of zero."""
    y = tf.where(Y > 0.0, Y, tf.ones_like(Y))[..., None]
    shape = (2.0 - p) / (p - 1.0)  # of one gamma amount
    largest = tf.stop_gradient(tf.pow(y, 2.0 - p) / (phi * (2.0 - p)))
    width = tf.stop_gradient(tf.sqrt(largest * (p - 1.0)))
    step = tf.maximum(width * (16.0 / _TERMS), tf.ones_like(width))
    first = tf.maximum(tf.floor(largest - 0.5 * _TERMS * step), tf.ones_like(largest))
    j = first + step * tf.range(_TERMS, dtype=y.dtype)
    each = shape * tf.math.log(y / (p - 1.0)) - (1.0 + shape) * tf.math.log(phi)
    logs = j * (each - tf.math.log(2.0 - p)) - tf.math.lgamma(j + 1.0) - tf.math.lgamma(j * shape)
    total = tf.reduce_logsumexp(logs, axis=-1) + tf.math.log(step[..., 0])
    return tf.where(Y > 0.0, total - tf.math.log(y[..., 0]), tf.zeros_like(Y))


class Loss:
    """The smooth loss of Fasiolo et al. (2021), "Fast calibrated additive quantile regression"."""

    # log p = (1 - tau) z / s - k log(1 + exp(z / (k s))) - log(k s B(k (1 - tau), k tau)), z
    # = y - f; k s is smoothing standard deviations of normal noise of scale s.

    def __init__(self, tau: float, smoothing: float = SMOOTHING) -> None:
        check_level(tau, "tau")
        check_positive("smoothing", smoothing)
        self.tau = float(tau)
        # of normal noise the scale of the loss is its density there, in standard deviations
        self.density = float(norm.pdf(norm.ppf(tau)))
        self.k = float(smoothing) / self.density
        self.constant = float(np.log(self.k) + betaln(self.k * (1.0 - tau), self.k * tau))

    def log_density(self, z: tf.Tensor, s: tf.Tensor) -> tf.Tensor:
        """At residuals z and scales s, which broadcast."""
        e, k = z / s, tf.constant(self.k, z.dtype)
        bent = k * tf.math.softplus(e / k)
        return (1.0 - self.tau) * e - bent - self.constant - tf.math.log(s)

    @property
    def best(self) -> float:
        """The greatest log-density of scale one."""
        tau, k = self.tau, self.k
        return float(k * (xlog1py(1.0 - tau, -tau) + xlogy(tau, tau)) - self.constant)


class Quantile(LocationScale):
    """
    The quantile of a response, in place of its mean.

    Means are the quantile, and variances zero: the response beyond it is not modelled.

    :param tau: which, between 0 and 1.
    :param scale: of the loss, trainable.
    :param unit: of the predictors of a varying scale, a scalar, such as the standard deviation of
        y.
    :param smoothing: of the loss, in standard deviations of normal noise.
    """

    def __init__(
        self,
        tau: float,
        scale: TensorType = 1.0,
        unit: TensorType = 1.0,
        smoothing: float = SMOOTHING,
        **kwargs: Any,
    ) -> None:
        super().__init__(scale, unit, **kwargs)
        self.loss = Loss(tau, smoothing)

    def level_of(self, y: AnyNDArray, weights: AnyNDArray | None = None) -> AnyNDArray:
        """About where the predictors of a constant quantile of y [N] are, [L]."""
        level = weighted_quantiles(y, weights, [self.loss.tau])
        return np.append(level / self.unit.numpy(), 0.0) if self.varying else level

    def _log_density(self, f: tf.Tensor, g: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return self.loss.log_density(y - f, g)

    def _moments(self, f: tf.Tensor, g: tf.Tensor) -> MeanAndVariance:
        return f + 0.0 * g, tf.zeros_like(f)


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

    edges: AnyNDArray  # from zero to the longest time, [J + 1]; later ones are in the last interval
    shares: AnyNDArray  # shares of all time at risk, [J]
    hazard: float  # events over time at risk, of all rows
    sd: float = 1.0  # of the prior of steps of the log hazard between neighbouring intervals


_MOST_STARTS = 512  # at which hazards are evaluated that change along a curve


def entry(Y: AnyNDArray) -> AnyNDArray:
    """The times at which rows Y [..., 3] of :class:`Cox` enter, [...]."""
    return np.where(Y[..., 1] < Y[..., 0], Y[..., 1], 0.0)


def starts(Y: AnyNDArray) -> AnyNDArray:
    """The times at which rows Y [N, 3] enter, sorted and distinct; some of very many."""
    times = np.sort(entry(Y))
    result: AnyNDArray = np.unique(times)
    if len(result) <= _MOST_STARTS:
        return result
    # even in time, so that none stands for a much later one, and in rows, so that common ones stay
    place = times / times[-1] + np.arange(len(times)) / len(times)
    cells = np.floor(0.5 * _MOST_STARTS * place)
    return np.unique(times[np.unique(cells, return_index=True)[1]])


def tied(Y: AnyNDArray) -> float:
    """About how much nearer to zero slopes of rows Y [N, 3] are, as events are at the same time."""
    # at risk beside an event is, on average, half of its ties less than all (Efron 1977)
    at, number = np.unique(Y[Y[:, 2] == 1.0, 0], return_counts=True)
    ended, entered = (np.searchsorted(np.sort(t), at) for t in (Y[:, 0], entry(Y)))
    return float(np.sum(number * (number - 1.0) / (2.0 * (entered - ended))) / np.sum(number))


def _spent(time: AnyNDArray, edges: AnyNDArray) -> AnyNDArray:
    """Times before each time [N] in intervals, the last of which has no end, [N, J]."""
    spent = np.maximum(time[:, None] - edges[:-1], 0.0)
    spent[:, :-1] = np.minimum(spent[:, :-1], np.diff(edges)[:-1])
    return spent


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
        """``log h0`` and ``H0`` at times since the start, [...] each."""
        edges, level = self.edges.unconstrained_variable, self.log_baseline()
        lower, upper = edges[:-1], edges[1:]
        at = t[..., None]
        place = tf.reduce_sum(tf.cast(at > upper[:-1], tf.int32), axis=-1)
        spent = tf.maximum(at - lower, tf.zeros([], at.dtype))
        spent = tf.concat([tf.minimum(spent[..., :-1], (upper - lower)[:-1]), spent[..., -1:]], -1)
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
