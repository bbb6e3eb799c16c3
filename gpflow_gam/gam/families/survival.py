"""Responses that may be censored: times to an event, and numbers with limits of detection."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.config import default_float
from gpflow.likelihoods import Likelihood

from ... import likelihoods
from ...likelihoods.standardised import EXACT, INTERVAL, LEFT, RIGHT
from ...storage import RowArray
from ..terms import Surv
from . import censoring, encoding
from .base import Family, Levels, Response, first, tensors
from .encoding import Observed, spread
from .location_scale import LocationScale


@dataclass(frozen=True)
class Survival(LocationScale, abc.ABC):
    """
    A location and a scale of a response, or of its logarithm; rows may be censored.

    Y is [N, 1] where the response is a column, and [N, 3] where it is a
    :class:`~gpflow_gam.gam.terms.Surv`: see :class:`gpflow_gam.likelihoods.Censored`.
    """

    kind: ClassVar[type[likelihoods.Censored]]
    varying_kind: ClassVar[type[likelihoods.LocationScaleCensored]]
    start: ClassVar[float]
    """The scale at first, against the standard deviation of the response (or its logarithm)."""

    def axes(self, response: str) -> tuple[str, ...]:
        if not self.varying:
            return ()
        what = f"log {response}" if self.kind.logarithm else response
        return f"{self.modelled[0]} of {what}", f"log scale of {what}"

    def _encode(self, y: AnyNDArray, levels: Levels | None, name: str) -> Response:
        x = encoding.numbers(y, name, self.name)
        if self.kind.logarithm:
            encoding.require(x, x > 0.0, "positive", name, self.name)
        return Response(x[:, None], None)

    def censored(self) -> Family:
        return self

    def encode_censored(self, first: AnyNDArray, second: AnyNDArray, stated: Surv) -> Response:
        positive = self.kind.logarithm
        return Response(censoring.encoded(first, second, stated, self.name, positive), None)

    def likelihood(
        self, Y: Observed, levels: Levels | None = None, weights: RowArray | None = None
    ) -> Likelihood:
        sd = spread(Y, weights, logarithm=self.kind.logarithm)
        if self.varying:
            return self.varying_kind(sd)
        # logarithms have no unit; and a floor must be the same where Y is only described
        return self.kind(self.start * sd, 1e-6 if self.kind.logarithm else 1e-3 * spread(Y))

    def scale(self, Y: RowArray, weights: RowArray | None = None) -> float:
        return 1.0 if self.varying else spread(Y, weights, logarithm=self.kind.logarithm)

    def _located(self, likelihood: Likelihood, F: AnyNDArray) -> tuple[AnyNDArray, Any]:
        """Location [..., 1], and scale, a number or [..., 1]."""
        scale = np.asarray(self._scale(likelihood, F))
        location = self._unit(likelihood) * np.asarray(F, dtype=np.float64)[..., :1]
        return location, scale[..., None] if self.varying else scale

    def mean(self, likelihood: Likelihood, F: AnyNDArray) -> AnyNDArray:
        """Of the response that nothing censors."""
        return first(np.asarray(self._own(likelihood).conditional_mean(*tensors(F))))

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        """Of a censored row the saturated model is the location at which it is most probable."""
        y = tf.constant(Y, dtype=default_float())
        best = self._own(likelihood).saturated(y, self._located(likelihood, F)[1])
        gap = np.asarray(best, dtype=np.float64) - self.log_density(likelihood, Y, F)
        return np.maximum(2.0 * gap, 0.0)

    def _standardised(self, likelihood: Likelihood, y: AnyNDArray, F: AnyNDArray) -> tf.Tensor:
        """(t(y) - location) / scale, [..., 1]."""
        f, scale = self._located(likelihood, F)
        y = tf.constant(y, default_float())
        found: tf.Tensor = self._own(likelihood).standardised(y, f, scale)
        return found

    def _below(self, likelihood: Likelihood, y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        """P(y' < y | F), [..., 1] as both."""
        z = self._standardised(likelihood, y, F)
        return np.exp(np.asarray(self._own(likelihood).log_below(z), dtype=np.float64))

    def cdf(
        self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray
    ) -> tuple[AnyNDArray, AnyNDArray]:
        """Of a censored row, the probabilities between which that of its response is."""
        Y = np.asarray(Y, dtype=np.float64)
        low = self._below(likelihood, Y[:, :1], F)[:, 0]
        if Y.shape[1] == 1:
            return low, low
        kind = Y[:, 2]
        high = self._below(likelihood, Y[:, 1:2], F)[:, 0]
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
        z = self._standardised(likelihood, np.asarray(times)[..., None], F)
        return first(np.exp(np.asarray(self._own(likelihood).log_above(z), dtype=np.float64)))

    def sample(
        self,
        likelihood: Likelihood,
        F: AnyNDArray,
        rng: np.random.Generator,
        trials: AnyNDArray | None = None,
    ) -> AnyNDArray:
        """Responses that nothing censors."""
        f, scale = self._located(likelihood, F)
        found = first(f + scale * self._standard(rng, f.shape))
        return np.exp(found) if self.kind.logarithm else found

    def _standard(self, rng: np.random.Generator, shape: tuple[int, ...]) -> AnyNDArray:
        """Draws from the standard distribution."""
        return rng.standard_normal(shape)


@dataclass(frozen=True)
class CensoredGaussian(Survival):
    """Normal and censored: what "gaussian" is with a ``Surv`` response."""

    name: ClassVar[str] = "censored_gaussian"
    modelled: ClassVar[tuple[str, ...]] = ("mean", "scale")
    kind: ClassVar[Any] = likelihoods.CensoredGaussian
    varying_kind: ClassVar[Any] = likelihoods.LocationScaleCensoredGaussian
    start: ClassVar[float] = 0.7


@dataclass(frozen=True)
class LogNormal(Survival):
    """The logarithm is normal; the predictor is its mean."""

    name: ClassVar[str] = "lognormal"
    log_link: ClassVar[bool] = True
    kind: ClassVar[Any] = likelihoods.LogNormal
    varying_kind: ClassVar[Any] = likelihoods.LocationScaleLogNormal
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
    kind: ClassVar[Any] = likelihoods.Weibull
    varying_kind: ClassVar[Any] = likelihoods.LocationScaleWeibull
    start: ClassVar[float] = 0.55  # the standard distribution's own is 1.28

    def _standard(self, rng: np.random.Generator, shape: tuple[int, ...]) -> AnyNDArray:
        return np.log(rng.standard_exponential(shape))
