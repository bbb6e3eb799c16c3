"""Continuous observations, and the loss of a quantile."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray, MeanAndVariance, Parameter, PriorOn, TensorType
from gpflow.config import default_float, default_likelihood_positive_minimum
from gpflow.likelihoods import Gaussian, ScalarLikelihood
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
    LocationScale,
    PositiveParameter,
    Terms,
    checked_link,
    log_failure,
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
