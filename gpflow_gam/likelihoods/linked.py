"""Links from a predictor to a positive mean, which stays positive at every predictor."""

from __future__ import annotations

from typing import Any, ClassVar

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, Parameter, TensorType
from gpflow.likelihoods import Exponential, Likelihood, Poisson, ScalarLikelihood

from ..errors import check_positive
from .base import NODES, GaussHermite, GaussHermitePlane, checked_link, fixed_unit
from .continuous import Heteroskedastic, MeanGamma, StudentT, Tweedie
from .discrete import NegativeBinomial
from .times import Cox, Weibull

MEAN_LINKS = ("log", "identity", "inverse", "sqrt")
POWERS = {"identity": 1.0, "inverse": -1.0, "sqrt": 0.5}
"""Power of the mean that is the predictor, by link."""
_FACTOR = 100.0  # by which the mean of a row may differ from that of all before a link gives way
_LEAST_FIRST = 0.3
"""Smallest mean of a row where a fit starts, as a share of the mean or median of all."""
_MOST_UNSURE = 0.5
"""Largest standard deviation of a predictor there, as a share of it; absolute under "log"."""
_SURE_INVERSE = 1e-3
"""Standard deviation there under "inverse" and a likelihood of a mean, as a share of 1 / mean."""
_SURE = 1e-2  # the variance of the logarithm of a scale there
_FENCE = 3.0
"""Ranges between quartiles beyond which a response is an outlier (Tukey 1977, section 2C)."""
_OF_MEAN = (gpflow.likelihoods.Gaussian, Heteroskedastic, StudentT)
"""Likelihoods whose own predictor is the mean, and not its logarithm."""


_OF_LOG_MEAN = (Exponential, MeanGamma, NegativeBinomial, Poisson)
_AS_EXPECTED = 0.1
"""Observations beside each row's where a fit starts, which are as the constant expects them."""


class MeanLink(ScalarLikelihood):
    """
    ``base`` with the mean ``mu = g^-1(s f)`` (McCullagh & Nelder 1989, section 2.2.4).

    Of a base with two predictors the scale stays as it is. A normal predictor is negative with some
    probability, where the mean would be, too. Below a hundredth of the mean of all rows the mean
    therefore goes on so that it is positive at every predictor, by a tangent: of log mu, but of
    1 / mu where the response is gamma, whose log-density is linear in that, of ``mu^(1 - p)`` where
    it is Tweedie's, and of mu under "inverse", above a hundred times the mean of all rows, where
    expectations stay finite.

    :param base: a likelihood of a mean (GPflow's Gaussian, :class:`Heteroskedastic` and
        ``StudentT``) or of its logarithm, with or without a predictor of the scale.
    :param link: "log", "identity", "inverse" or "sqrt".
    :param mean: of all responses, positive.
    :param size: s, fixed, a scalar: of a base with two predictors, which one prior serves, f is
        measured in a unit in which it is about as large as the logarithm of the scale.
    :raises ValueError: another link, or a mean that no positive response has.
    """

    mean_of_first: ClassVar[bool] = True
    _links_base: ClassVar[bool] = True

    def __init__(
        self,
        base: ScalarLikelihood,
        link: str,
        mean: float = 1.0,
        size: TensorType = 1.0,
        **kwargs: Any,
    ) -> None:
        checked_link(link, MEAN_LINKS)
        check_positive("mean", mean)
        varying = base.latent_dim is not None
        rule = GaussHermitePlane(NODES, NODES) if varying else GaussHermite()
        kwargs.setdefault("quadrature", rule)
        super().__init__(**kwargs)
        self.base, self.link, self.varying = base, link, varying
        if varying:
            self.latent_dim, self.observation_dim = 2, 1
            self.size = fixed_unit(size)
        edge = mean * _FACTOR if link == "inverse" else mean / _FACTOR
        self.unit = Parameter(predictor_of(link, edge) if link != "log" else 1.0, trainable=False)

    @property
    def measure(self) -> float:
        """The unit in which the predictor of the mean is measured."""
        return float(self.size.numpy()) if self.varying else 1.0

    @property
    def bend(self) -> TensorType | None:
        """
        k beyond the unit, where ``t = 1 - f / unit > 0`` and ``unit (1 + k t)^(-1 / k)`` stands in
        the place of f, a scalar; None of ``unit exp(-t)``.
        """
        if self.link == "inverse" or isinstance(self.base, MeanGamma):
            return 1.0
        return self.base.power - 1.0 if isinstance(self.base, Tweedie) else None

    def log_mean(self, F: TensorType) -> tf.Tensor:
        """The logarithm of the mean at predictors F [...]."""
        F = tf.convert_to_tensor(F)
        if self.varying:
            F = tf.cast(self.size, F.dtype) * F
        if self.link == "log":
            return F
        unit = tf.cast(self.unit.unconstrained_variable, F.dtype)  # which it is, without detours
        ratio = F / unit
        inside, k = ratio >= 1.0, self.bend
        log = tf.math.log(tf.where(inside, ratio, tf.ones_like(ratio)))
        beyond = tf.where(inside, tf.zeros_like(ratio), 1.0 - ratio)
        if k is not None:
            k = tf.cast(k, F.dtype)
            beyond = tf.math.log1p(k * beyond) / k
        return (tf.where(inside, log, -beyond) + tf.math.log(unit)) / POWERS[self.link]

    def level(self, mean: float) -> float:
        """
        The predictor of a positive mean.

        :param mean: in the response's unit.
        """
        return predictor_of(self.link, mean) / self.measure

    def first_predictors(
        self, Y: AnyNDArray, constant: AnyNDArray
    ) -> tuple[AnyNDArray, AnyNDArray]:
        """Predictors and their variances, [N, L], at which each row's mean is its response Y."""
        # that of a scale is the constant's [L]. GLMs start there (McCullagh & Nelder 1989, section
        # 2.5). From a constant rows of large responses, under whose mean a log-density is not
        # concave, send the predictor far off. Here residuals are nothing, and what the response
        # scatters would be, too: so the predictor is as uncertain as makes them half of what the
        # constant says of it.
        if not self.varying and self.link == "inverse" and isinstance(self.base, _OF_MEAN):
            # several optima: noise decides which one is found where predictors are less sure
            average = 1.0 / (_FACTOR * float(self.unit.numpy()))
            F = 1.0 / np.maximum(Y, _LEAST_FIRST * average)
            return F, np.full_like(F, (_SURE_INVERSE / average) ** 2)
        middle = float(np.median(Y))  # noise has brought some near zero
        least = _LEAST_FIRST * (middle if middle > 0.0 else float(np.mean(np.abs(Y))))
        mean = np.maximum(Y, least)
        if isinstance(self.base, StudentT):  # an outlier does not estimate its mean
            low, high = np.quantile(Y, [0.25, 0.75])
            mean = np.minimum(mean, max(high + _FENCE * (high - low), least))
        if self.link == "log":
            f, slope, most = np.log(mean), 1.0 / mean, np.ones_like(mean)
        else:
            power = POWERS[self.link]
            f = mean**power
            slope, most = np.abs(power) * f / mean, f
        rest = np.broadcast_to(constant[1:], (len(f), len(constant) - 1))
        F = np.concatenate([f / self.measure, rest], axis=1)
        if isinstance(self.base, StudentT) and not self.varying:  # whose variance may be infinite
            variance = np.square(self.base.scale.numpy())
        else:
            variance = self.conditional_variance(np.zeros_like(f), F).numpy()
        sd = np.minimum(slope * np.sqrt(0.5 * variance), _MOST_UNSURE * most) / self.measure
        return F, np.concatenate([np.square(sd), np.full_like(rest, _SURE)], axis=1)

    def split(self, F: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        """The first predictor and the log dispersion of ``base``, at predictors ``F``."""
        parts: tuple[tf.Tensor, tf.Tensor] = self.base.split(self._base_predictors(F))
        return parts

    def _base_predictors(self, F: TensorType) -> tf.Tensor:
        """Predictors of ``base``, [..., L]."""
        first = self.log_mean(F[..., :1] if self.varying else F)
        if isinstance(self.base, _OF_MEAN):
            first = tf.exp(first)
            if self.varying:
                first /= tf.cast(self.base.unit, first.dtype)
        return tf.concat([first, F[..., 1:]], axis=-1) if self.varying else first

    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self.base._scalar_log_prob(X, self._base_predictors(F), Y)

    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        if not isinstance(self.base, Tweedie):
            return super()._variational_expectations(X, Fmu, Fvar, Y)
        # whose series, most of the work, does not depend on the mean
        normaliser, exponent = self.base._parts(Y)
        mean = self.quadrature(lambda F: exponent(self.log_mean(F)), Fmu, Fvar)
        return tf.reduce_sum(normaliser + mean, axis=-1)

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.base.conditional_mean(X, self._base_predictors(F))

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.base.conditional_variance(X, self._base_predictors(F))


def first_predictors(
    likelihood: Likelihood, Y: AnyNDArray, known: AnyNDArray, constant: AnyNDArray
) -> tuple[AnyNDArray, AnyNDArray] | None:
    """Predictors and their variances [N, L] where a fit to Y starts; None for the constant's."""
    # GLMs start where each row's mean is its response (McCullagh & Nelder 1989, section 2.5): from
    # a constant, rows of large responses send the predictor far off
    if isinstance(likelihood, MeanLink):
        return likelihood.first_predictors(Y, constant)
    if len(constant) > 1:
        return None
    variance: Any
    if isinstance(likelihood, StudentT):  # an outlier does not estimate its mean
        low, high = np.quantile(Y, [0.25, 0.75])
        fence = _FENCE * (high - low)
        F, variance = np.clip(Y, low - fence, high + fence), likelihood.scale.numpy() ** 2
    elif isinstance(likelihood, Weibull):
        scale = float(likelihood.scale.numpy())
        F, variance = np.log(Y[:, :1]) + np.euler_gamma * scale, (np.pi * scale) ** 2 / 6.0
    else:
        rest, expected = _AS_EXPECTED, np.exp(known)
        if isinstance(likelihood, Cox):  # events are counts; hazards over time at risk, means
            Y, expected = Y[:, 2:], expected * likelihood.at_risk(Y).sum(axis=1, keepdims=True)
        elif not isinstance(likelihood, _OF_LOG_MEAN) or likelihood.invlink is not tf.exp:
            return None
        elif isinstance(likelihood, (Exponential, MeanGamma)):
            rest = rest * expected
        F = known + np.log((Y + rest) / (expected + rest))
        variance = likelihood.conditional_variance(np.zeros_like(F), F).numpy() / np.exp(2.0 * F)
        variance = np.minimum(variance, 2.0)
    # where residuals are nothing, scatter would seem to be: half of it is the predictor's
    return F, np.broadcast_to(0.5 * variance, F.shape)


def predictor_of(link: str, mean: float) -> float:
    """``g(mean)`` of a positive mean."""
    return float(np.log(mean)) if link == "log" else float(mean ** POWERS[link])
