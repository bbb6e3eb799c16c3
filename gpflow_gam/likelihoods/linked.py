"""Links from a predictor to a positive mean, for likelihoods that have one link of their own."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import AnyNDArray, Parameter, TensorType
from gpflow.likelihoods import ScalarLikelihood

from .quadrature import GaussHermite
from .tweedie import Tweedie

MEAN_LINKS = ("log", "identity", "inverse", "sqrt")
_REACH = 100.0
"""By which factor the mean of a row may be away from that of all before a link gives way."""
_LEAST_FIRST = 0.3
"""Of the mean of all, that a row's is taken to be where a fit starts."""
_SURE = 1e-3
"""The deviation of predictors there, against that of the mean."""


_OF_MEAN = (gpflow.likelihoods.Gaussian, gpflow.likelihoods.StudentT)
"""Likelihoods whose own predictor is the mean, and not its logarithm."""


class Linked(ScalarLikelihood):
    """
    ``base`` with the mean ``mu = g^-1(f)`` (McCullagh & Nelder 1989, section 2.2.4).

    A normal predictor is negative with some probability, where the mean would be, too. Below
    ``unit`` the mean therefore goes on so that it is positive at every predictor, by a tangent: of
    log mu, but of 1 / mu where the response is gamma, whose log-density is linear in that, of
    ``mu^(1 - p)`` where it is Tweedie's, and of mu under "inverse", where expectations stay finite.
    There the mean of a row is less than a hundredth of that of all rows, or more than a hundred
    times as large.

    :param base: a scalar likelihood whose predictor is its mean (GPflow's Gaussian and StudentT),
        or the logarithm of that.
    :param link: "log", "identity", "inverse" or "sqrt".
    :param mean: of all responses, positive.
    :raises ValueError: another link, or a mean that no positive response has.
    """

    def __init__(self, base: ScalarLikelihood, link: str, mean: float = 1.0, **kwargs: Any) -> None:
        if link not in MEAN_LINKS:
            raise ValueError(f"link must be one of {', '.join(MEAN_LINKS)}; got {link!r}.")
        if not 0.0 < mean < np.inf:
            raise ValueError(f"mean must be positive and finite; got {mean:g}.")
        kwargs.setdefault("quadrature", GaussHermite())
        super().__init__(**kwargs)
        self.base, self.link = base, link
        edge = mean * _REACH if link == "inverse" else mean / _REACH
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
        if isinstance(self.base, gpflow.likelihoods.Gamma):
            below = -turned
        elif isinstance(self.base, Tweedie):
            k = tf.cast(self.base.power, F.dtype) - 1.0
            below = -tf.math.log1p(k * tf.where(inside, tf.zeros_like(away), 1.0 - away)) / k
        power = 2.0 if self.link == "sqrt" else 1.0
        return power * (tf.where(inside, log, below) + tf.math.log(unit))

    def level(self, mean: float) -> float:
        """
        The predictor of a positive mean.

        :param mean: in the response's unit.
        """
        return predictor_of(self.link, mean)

    def first_predictors(self, Y: AnyNDArray) -> tuple[AnyNDArray, float] | None:
        """
        Where each row's own response has the predictor, as GLMs start (McCullagh & Nelder 1989,
        section 2.5); None where a constant is as good a start.

        Noise of one size under "inverse" has several optima: from a constant, noise and units
        decide which of them is found, and often a poor one.

        :param Y: [N, 1].
        :return: [N, 1], and a variance that is small beside them.
        """
        if self.link != "inverse" or not isinstance(self.base, _OF_MEAN):
            return None
        mean = 1.0 / (_REACH * float(self.unit.numpy()))
        # what noise has brought near zero is anywhere
        return 1.0 / np.maximum(Y, _LEAST_FIRST * mean), (_SURE / mean) ** 2

    def _own(self, F: TensorType) -> tf.Tensor:
        """What ``base`` calls the predictor."""
        log = self.log_mean(F)
        return tf.exp(log) if isinstance(self.base, _OF_MEAN) else log

    @inherit_check_shapes
    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self.base._scalar_log_prob(X, self._own(F), Y)

    @inherit_check_shapes
    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        base = self.base
        if not isinstance(base, Tweedie):
            return super()._variational_expectations(X, Fmu, Fvar, Y)
        # whose series, most of the work, does not depend on the mean
        whole, exponent = base.parts(Y)
        mean = self.quadrature(lambda F: exponent(self.log_mean(F)), Fmu, Fvar)
        return tf.reduce_sum(whole + mean, axis=-1)

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.base.conditional_mean(X, self._own(F))

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.base.conditional_variance(X, self._own(F))


def predictor_of(link: str, mean: float) -> float:
    """``g(mean)`` of a positive mean."""
    if link == "log":
        return float(np.log(mean))
    power = {"identity": 1.0, "inverse": -1.0, "sqrt": 0.5}[link]
    return float(mean**power)
