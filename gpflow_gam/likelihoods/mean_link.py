"""Links from a predictor to a positive mean, which stays positive at every predictor."""

from __future__ import annotations

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, Parameter, TensorType
from gpflow.likelihoods import Likelihood

from .heteroskedastic import Heteroskedastic
from .location_scale import LocationScaleGamma, LocationScaleStudentT
from .tweedie import Tweedie

MEAN_LINKS = ("log", "identity", "inverse", "sqrt")
POWERS = {"identity": 1.0, "inverse": -1.0, "sqrt": 0.5}
"""Of the mean, that predictors are."""
REACH = 100.0
"""By which factor the mean of a row may be away from that of all before a link gives way."""
LEAST_FIRST = 0.3
"""Of the mean of all, that a row's is taken to be where a fit starts."""
_MOST_UNSURE = 0.5
"""Of a predictor, its deviation there; of one that is a logarithm, by itself."""
_SURE = 1e-2
"""The variance of the logarithm of a scale there."""

_FENCE = 3.0
"""Ranges between quartiles beyond which a response is far away (Tukey 1977, section 2C)."""

_STUDENT = (gpflow.likelihoods.StudentT, LocationScaleStudentT)
_GAMMA = (gpflow.likelihoods.Gamma, LocationScaleGamma)
OF_MEAN = (
    gpflow.likelihoods.Gaussian,
    Heteroskedastic,
    *_STUDENT,
)
"""Likelihoods whose own predictor is the mean, and not its logarithm."""


class MeanLink(Likelihood):
    """
    What likelihoods share that put another link before the mean of ``base``.

    A normal predictor is negative with some probability, where the mean would be, too. Below
    ``unit`` the mean therefore goes on so that it is positive at every predictor, by a tangent: of
    log mu, but of 1 / mu where the response is gamma, whose log-density is linear in that, of
    ``mu^(1 - p)`` where it is Tweedie's, and of mu under "inverse", where expectations stay finite.
    There the mean of a row is less than a hundredth of that of all rows, or more than a hundred
    times as large.
    """

    base: Likelihood
    link: str
    unit: Parameter

    def _put(self, base: Likelihood, link: str, mean: float) -> None:
        """
        Put a link before a likelihood's mean.

        :raises ValueError: no such link, or a mean that no positive response has.
        """
        if link not in MEAN_LINKS:
            raise ValueError(f"link must be one of {', '.join(MEAN_LINKS)}; got {link!r}.")
        if not 0.0 < mean < np.inf:
            raise ValueError(f"mean must be positive and finite; got {mean:g}.")
        self.base, self.link = base, link
        edge = mean * REACH if link == "inverse" else mean / REACH
        self.unit = Parameter(predictor_of(link, edge) if link != "log" else 1.0, trainable=False)

    def log_mean(self, F: TensorType) -> tf.Tensor:
        """
        The logarithm of the mean at predictors F [...].

        :param F: predictors, [...].
        """
        F = tf.convert_to_tensor(F)
        if self.link == "log":
            return F
        unit = tf.cast(self.unit.unconstrained_variable, F.dtype)  # which it is, without detours
        away = F / unit
        inside = away >= 1.0
        log = tf.math.log(tf.where(inside, away, tf.ones_like(away)))
        turned = tf.math.log(tf.where(inside, tf.ones_like(away), 2.0 - away))
        if self.link == "inverse":
            return tf.where(inside, -log, turned) - tf.math.log(unit)
        below = away - 1.0
        if isinstance(self.base, _GAMMA):
            below = -turned
        elif isinstance(self.base, Tweedie):
            k = tf.cast(self.base.power, F.dtype) - 1.0
            below = -tf.math.log1p(k * tf.where(inside, tf.zeros_like(away), 1.0 - away)) / k
        power = 2.0 if self.link == "sqrt" else 1.0
        return power * (tf.where(inside, log, below) + tf.math.log(unit))

    @property
    def measure(self) -> float:
        """What the predictor of the mean is measured in."""
        return 1.0

    def level(self, mean: float) -> float:
        """
        The predictor of a positive mean.

        :param mean: in the response's unit.
        """
        return predictor_of(self.link, mean) / self.measure

    def first_predictors(
        self, Y: AnyNDArray, constant: AnyNDArray
    ) -> tuple[AnyNDArray, AnyNDArray]:
        """
        Where each row's own response has the predictor, as GLMs start (McCullagh & Nelder 1989,
        section 2.5); that of a scale is the constant's.

        From a constant rows of large responses, under whose mean a log-density is not concave, send
        the predictor far off. Here residuals are nothing, and what the response scatters would be,
        too: so the predictor is as uncertain as makes them half of what the constant says of it.

        :param Y: [N, 1].
        :param constant: the best one, [L].
        :return: predictors [N, L] and their variances, [N, L].
        """
        middle = float(np.median(Y))  # what noise has brought near zero is anywhere
        least = LEAST_FIRST * (middle if middle > 0.0 else float(np.mean(np.abs(Y))))
        mean = np.maximum(Y, least)
        if isinstance(self.base, _STUDENT):  # of which a row far away says nothing
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
        if isinstance(self.base, gpflow.likelihoods.StudentT):  # whose variance may be infinite
            variance = np.square(self.base.scale.numpy())
        else:
            variance = self.conditional_variance(np.zeros_like(f), F).numpy()
        sd = np.minimum(slope * np.sqrt(0.5 * variance), _MOST_UNSURE * most) / self.measure
        return F, np.concatenate([np.square(sd), np.full_like(rest, _SURE)], axis=1)

    def _own(self, F: TensorType) -> tf.Tensor:
        """What ``base`` calls the predictor of the mean, in its unit."""
        log = self.log_mean(F)
        if not isinstance(self.base, OF_MEAN):
            return log
        mean = tf.exp(log)
        if isinstance(self.base, (Heteroskedastic, LocationScaleStudentT)):
            mean /= tf.cast(self.base.unit, mean.dtype)
        return mean


def predictor_of(link: str, mean: float) -> float:
    """``g(mean)`` of a positive mean."""
    if link == "log":
        return float(np.log(mean))
    return float(mean ** POWERS[link])
