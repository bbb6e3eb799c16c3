"""Quantiles of a response in place of its mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood
from scipy.stats import norm

from ... import likelihoods
from ...likelihoods.quantile import SMOOTHING, Loss
from ...storage import RowArray
from . import encoding
from .base import Family, Levels, Response, first
from .encoding import Observed, robust_spread
from .gaussian import Gaussian, sized
from .heteroskedastic import Heteroskedastic
from .location_scale import LocationScale
from .quasi import QuasiFamily

_NEAR = 0.5
"""Of the probability beyond a quantile, how much to either side the density at it is counted."""


@dataclass(frozen=True)
class Quantile(QuasiFamily, LocationScale):
    """
    The value below which the response is with probability ``tau``, of which nothing else is said.

    The smooth loss of :class:`gpflow_gam.likelihoods.Quantile`, over a dispersion at which the
    posterior's spread is that of the estimate: where the squared slopes of the loss, ``tau (1 -
    tau)`` on average, are its curvature, the density of residuals there (the information equality;
    Fasiolo et al. 2021 calibrate by the same comparison of covariances). With terms for the scale
    the loss has one that varies, and so have the limits.

    :param tau: the probability.
    :param smoothing: of the loss, in standard deviations of normal noise. The quantile is off by
        about its square; more rows than some ten thousand allow for less.
    :raises ValueError: no probability.
    """

    name: ClassVar[str] = "quantile"
    modelled: ClassVar[tuple[str, ...]] = ("quantile", "scale")
    kind: ClassVar[Any] = likelihoods.Quantile
    varying_kind: ClassVar[Any] = likelihoods.LocationScaleQuantile
    _instead: ClassVar[str] = "another family, fits at several tau"
    tau: float = 0.5
    smoothing: float = SMOOTHING

    def __post_init__(self) -> None:
        Loss(self.tau, self.smoothing)

    @property
    def _loss(self) -> Loss:
        return Loss(self.tau, self.smoothing)

    def _encode(self, y: AnyNDArray, levels: Levels | None, name: str) -> Response:
        return Response(encoding.numbers(y, name, self.name)[:, None], None)

    @property
    def begins(self) -> Family | None:
        """The loss is a line far from the quantile, where steps of Newton's go astray."""
        return _Beginning() if self.varying else Gaussian()

    def likelihood(
        self, Y: Observed, levels: Levels | None = None, weights: RowArray | None = None
    ) -> Likelihood:
        sd, loss = robust_spread(Y, weights), self._loss
        if self.varying:
            base = likelihoods.LocationScaleQuantile(self.tau, sd, self.smoothing)
        else:
            base = likelihoods.Quantile(self.tau, smoothing=self.smoothing)
            base.scale = sized(loss.density * sd, 1e-4 * loss.density * robust_spread(Y))
        # what normal noise comes to
        return likelihoods.Quasi(base, self.tau * (1.0 - self.tau) / loss.density**2)

    def scale(self, Y: RowArray, weights: RowArray | None = None) -> float:
        return 1.0 if self.varying else robust_spread(Y, weights)

    def mean(self, likelihood: Likelihood, F: AnyNDArray) -> AnyNDArray:
        """The quantile."""
        return self._unit(likelihood) * first(F)

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        loss, scale = self._loss, self._scale(likelihood, F)
        e = (first(Y) - self.mean(likelihood, F)) / scale
        at = (1.0 - self.tau) * e - loss.k * np.logaddexp(0.0, e / loss.k) - loss.constant
        return np.maximum(2.0 * (loss.best - at) / self._dispersion(likelihood), 0.0)

    def pearson(
        self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray
    ) -> tuple[AnyNDArray, AnyNDArray]:
        """
        Squared slopes of the loss, and the curvature that it has on average.

        That is the density of residuals at zero, counted between two quantiles of normal noise
        around this one, and taken to be as much larger there as it is of that.
        """
        scale = np.broadcast_to(self._scale(likelihood, F), len(Y))
        phi = self._dispersion(likelihood)
        reach = _NEAR * min(self.tau, 1.0 - self.tau)
        low, high = norm.ppf([self.tau - reach, self.tau + reach])
        z, density = norm.ppf(self.tau), self._loss.density
        # the loss's scale is a standard deviation times the density
        e = density * (first(Y) - self.mean(likelihood, F)) / scale
        near = (e > low - z) & (e < high - z)
        at_zero = near / (2.0 * reach) * density * density / scale
        slope = self.tau * (1.0 - self.tau) / np.square(scale)
        return slope / phi**2, at_zero / scale / phi

    def sharpness(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> float:
        """
        The width that most residuals have, in that of normal noise with the scale of the loss.

        The scale is an average loss, which few rows far away can make as large as they like; then
        the loss is bent over many times the ``smoothing`` that was asked for.

        :param likelihood: of the fit.
        :param Y: [N, 1].
        :param F: predictors [N, L].
        """
        e = (first(Y) - self.mean(likelihood, F)) / self._scale(likelihood, F)
        return encoding.robust_spread(self._loss.density * np.asarray(e)[:, None])


class _Beginning(Heteroskedastic):
    """Whose mean stands for the quantile."""

    modelled: ClassVar[tuple[str, ...]] = ("quantile", "scale")
