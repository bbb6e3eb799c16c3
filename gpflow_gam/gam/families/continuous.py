"""Continuous responses: normal, Student's t, gamma, Tweedie's, and quantiles in place of a mean."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import gpflow
import numpy as np
import scipy.stats
from gpflow.base import AnyNDArray, Parameter
from gpflow.likelihoods import Likelihood
from gpflow.utilities import positive
from numpy.random import Generator
from scipy.stats import norm

from ... import likelihoods
from ...likelihoods.base import GaussHermite
from ...likelihoods.continuous import SMOOTHING, Loss
from . import encoding
from .base import (
    Dispersed,
    Family,
    Levels,
    LinkedFamily,
    LocationScale,
    MaybeArray,
    Pair,
    QuasiFamily,
    Reader,
    base_of,
    first,
    number,
)
from .encoding import Observed, Sample
from .survival import CensoredGaussian

_LEAST = 1e-300
"""A variance below which quotients by it overflow."""
_MOST = 1e9
"""Gamma amounts of which a response of Tweedie's is drawn."""
_FAR = 9.0
"""Standard deviations of their number that a distribution function sums over."""
_NEAR = 0.5
"""Of the probability beyond a quantile, how much to either side the density at it is counted."""


class _Normal(LocationScale, LinkedFamily):
    """Normal responses, of a constant variance or not."""

    modelled: ClassVar[tuple[str, ...]] = ("mean", "scale")
    links: ClassVar[tuple[str, ...]] = ("identity", "log", "inverse")

    def censored(self) -> Family:
        if not self.default_link:
            raise ValueError(
                "link: family 'gaussian' has the identity link with a censored response (Surv); "
                f"got {self.link!r}. Leave link out"
                + (", or take 'lognormal'." if self.link == "log" else ".")
            )
        return CensoredGaussian(varying=self.varying)

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        mean, sd = self._parts(likelihood, F)
        return np.square((first(Y) - mean) / sd)

    def distribution(self, likelihood: Likelihood, F: AnyNDArray) -> Any:
        return norm(*self._parts(likelihood, F))


@dataclass(frozen=True)
class Gaussian(_Normal):
    """
    Normal with constant variance.

    :param link: "identity", under which the predictor is the mean; or "log" or "inverse", under
        which the mean is positive and the noise is not: see
        :class:`gpflow_gam.likelihoods.MeanLink`.
    :raises ValueError: another link.
    """

    name: ClassVar[str] = "gaussian"
    varying: ClassVar[bool] = False  # type: ignore[misc]
    link: str = "identity"

    def _likelihood(self, y: Observed, levels: Levels | None) -> Likelihood:
        likelihood = gpflow.likelihoods.Gaussian(quadrature=GaussHermite())
        likelihood.variance = Parameter(  # moved by factors, whatever the response's unit
            0.5 * y.spread() ** 2,
            transform=positive(lower=1e-6 * y.unweighted.spread() ** 2, base="exp"),
        )
        return self.linked(likelihood, y)

    def of_all(self) -> Family:
        return Heteroskedastic(self.link)

    @property
    def conjugate(self) -> bool:
        return self.default_link

    def _scale(self, y: Observed) -> float:
        return y.spread() if self.default_link else super()._scale(y)

    def null(self, Y: AnyNDArray, offset: AnyNDArray, weights: MaybeArray) -> MaybeArray:
        if not self.default_link:
            return self.linked_null(Y, offset, weights)
        return np.array([np.average(Y[:, 0] - offset, weights=weights)])

    def _parts(self, likelihood: Likelihood, F: AnyNDArray) -> tuple[AnyNDArray, Any]:
        mean = first(F) if self.default_link else np.exp(self.log_mean(likelihood, F))
        return mean, float(np.sqrt(number(base_of(likelihood).variance)))


@dataclass(frozen=True)
class Heteroskedastic(_Normal):
    """
    Normal with a predictor each for mean and log standard deviation, mgcv's ``gaulss``.

    The model measures both in ``unit``, the standard deviation of the responses that were fitted:
    ``y ~ N(unit f, (unit exp(g))^2)``. Effects and predictions are in the response's unit: of the
    mean, and of the logarithm of the standard deviation. The null model has the fitted scale. What
    is explained is then the share of the squared residuals of the null mean, each over the fitted
    variance of its row, that the fitted mean takes away: as ``gaulss`` has it. With a scale of its
    own the null model's squared residuals would be one on average, as those of any model are.

    :param link: "identity", under which the first predictor is the mean; or "log" or "inverse",
        under which the mean is positive and the noise is not: see
        :class:`gpflow_gam.likelihoods.MeanLink`.
    :raises ValueError: another link.
    """

    name: ClassVar[str] = "heteroskedastic"
    varying: ClassVar[bool] = True  # type: ignore[misc]
    link: str = "identity"

    def _likelihood(self, y: Observed, levels: Levels | None) -> Likelihood:
        return self.linked(likelihoods.Heteroskedastic(y.spread()), y)

    def of_all(self) -> Family:
        return self

    def parameters(self, likelihood: Likelihood, levels: Levels | None) -> dict[str, float]:
        return {}  # its unit is not learnt

    def axes(self, response: str) -> tuple[str, ...]:
        return super().axes(response)[0], f"log sd of {response}"


@dataclass(frozen=True)
class StudentT(LocationScale, LinkedFamily):
    """
    Student's t; the predictor is the location, or a link of it.

    :param df: degrees of freedom, fixed.
    :param link: "identity", or "log" or "inverse", of a location that is positive while responses
        may not be: see :class:`gpflow_gam.likelihoods.MeanLink`.
    :raises ValueError: degrees of freedom that are not positive, or another link.
    """

    name: ClassVar[str] = "student_t"
    links: ClassVar[tuple[str, ...]] = ("identity", "log", "inverse")
    df: float = 4.0
    link: str = "identity"
    varying: bool = field(default=False, kw_only=True)
    """Whether the logarithm of the scale has a predictor, the second."""

    def __post_init__(self) -> None:
        LinkedFamily.__post_init__(self)
        if not (np.isfinite(self.df) and self.df > 0.0):
            raise ValueError(f"df must be positive and finite; got {self.df}.")

    def _likelihood(self, y: Observed, levels: Levels | None) -> Likelihood:
        sd = y.robust[1]  # outliers are what the family is for
        if self.varying:
            base = likelihoods.StudentT(unit=sd, df=self.df, varying=True)
        else:
            base = likelihoods.StudentT(0.5 * sd, df=self.df, floor=1e-3 * y.unweighted.robust[1])
        return self.linked(base, y)

    def _moments(self, y: Observed) -> tuple[float, float]:
        return y.robust

    def _scale(self, y: Observed) -> float:
        if self.default_link and not self.varying:
            return y.robust[1]
        return super()._scale(y)

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        location, scale = self._parts(likelihood, F)
        square = np.square((first(Y) - location) / scale)
        return (self.df + 1.0) * np.log1p(square / self.df)

    def distribution(self, likelihood: Likelihood, F: AnyNDArray) -> Any:
        return scipy.stats.t(self.df, *self._parts(likelihood, F))


@dataclass(frozen=True)
class Gamma(Dispersed, LinkedFamily):
    """
    Gamma; its dispersion, ``var / mean^2``, is 1 over its shape.

    :param link: "log", "inverse" or "identity", of the mean, which stays positive: see
        :class:`gpflow_gam.likelihoods.MeanLink`.
    :raises ValueError: another link.
    """

    name: ClassVar[str] = "gamma"
    links: ClassVar[tuple[str, ...]] = ("log", "inverse", "identity")
    _reads: ClassVar[Reader] = encoding.positive
    link: str = "log"
    varying: bool = field(default=False, kw_only=True)
    """Whether the logarithm of the dispersion has a predictor, the second."""

    def _likelihood(self, y: Observed, levels: Levels | None) -> Likelihood:
        if self.varying:
            return self.linked(likelihoods.MeanGamma(varying=True), y)
        mean, variance, _ = y.moments
        # by moments, as if the predictor were to explain half of the variance
        shape = mean**2 / max(0.5 * variance, _LEAST)
        base = likelihoods.MeanGamma(float(np.clip(shape, 0.1, 100.0)))
        return self.linked(base, y)

    def null(self, Y: AnyNDArray, offset: AnyNDArray, weights: MaybeArray) -> MaybeArray:
        if self.varying:
            return None
        if not self.default_link:
            return self.linked_null(Y, offset, weights)
        return np.log([np.average(Y[:, 0] * np.exp(-offset), weights=weights)])

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        f, log_dispersion = self._parts(likelihood, F)
        gap = np.log(first(Y)) - f
        return np.maximum(2.0 * np.exp(-log_dispersion) * (np.expm1(gap) - gap), 0.0)

    def distribution(self, likelihood: Likelihood, F: AnyNDArray) -> Any:
        f, log_dispersion = self._parts(likelihood, F)
        scale = np.maximum(np.exp(f + log_dispersion), _LEAST)
        return scipy.stats.gamma(np.exp(-log_dispersion), scale=scale)


@dataclass(frozen=True)
class Tweedie(LinkedFamily):
    """
    Amounts that are zero or positive: rain, claims, catches.

    The variance is ``dispersion mu^power``; both are learned, the power between 1.01 and 1.99.

    :param link: "log", "identity", "inverse" or "sqrt", of the mean, which stays positive: see
        :class:`gpflow_gam.likelihoods.MeanLink`.
    :raises ValueError: another link.
    """

    name: ClassVar[str] = "tweedie"
    links: ClassVar[tuple[str, ...]] = ("log", "identity", "inverse", "sqrt")
    _reads: ClassVar[Reader] = encoding.amounts
    link: str = "log"

    def _likelihood(self, y: Observed, levels: Levels | None) -> Likelihood:
        mean, variance, _ = y.moments
        # by moments, as if the predictor were to explain half of the variance
        mean = mean if mean > 0.0 else 1.0
        dispersion = 0.5 * variance / mean**2
        base = likelihoods.Tweedie(dispersion if dispersion > 0.0 else 1.0, unit=mean)
        return self.linked(base, y)

    def parameters(self, likelihood: Likelihood, levels: Levels | None) -> dict[str, float]:
        """The dispersion, of responses as they are, and the power."""
        dispersion, power = self._parameters(likelihood)
        return {"dispersion": dispersion, "power": power}

    def null(self, Y: AnyNDArray, offset: AnyNDArray, weights: MaybeArray) -> MaybeArray:
        return self.linked_null(Y, offset, weights)

    def _parameters(self, likelihood: Likelihood) -> tuple[float, float]:
        base = base_of(likelihood)
        return number(base.scaled()), number(base.power)

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        y, f = first(Y), self.log_mean(likelihood, F)
        phi, p = self._parameters(likelihood)
        best = y ** (2.0 - p) / ((1.0 - p) * (2.0 - p))
        gap = best - y * np.exp((1.0 - p) * f) / (1.0 - p) + np.exp((2.0 - p) * f) / (2.0 - p)
        return np.maximum(2.0 * gap / phi, 0.0)

    def _amounts(
        self, likelihood: Likelihood, F: AnyNDArray
    ) -> tuple[AnyNDArray, float, AnyNDArray]:
        """The mean number of gamma amounts, their shape, and their scale."""
        phi, p = self._parameters(likelihood)
        f = self.log_mean(likelihood, F)
        rate = np.exp((2.0 - p) * f) / (phi * (2.0 - p))
        return rate, (2.0 - p) / (p - 1.0), phi * (p - 1.0) * np.exp((p - 1.0) * f)

    def cdf(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> Pair:
        y = first(Y)
        rate, shape, scale = self._amounts(likelihood, F)
        none = np.exp(-rate)
        margin = _FAR * np.sqrt(rate) + 10.0
        low, high = np.maximum(np.floor(rate - margin), 1.0), np.ceil(rate + margin)
        total = none.copy()
        for k in range(int(np.max(high - low, initial=0.0)) + 1):
            count = low + k
            total += scipy.stats.poisson.pmf(count, rate) * scipy.stats.gamma.cdf(
                y / scale, count * shape
            )
        total = np.minimum(total, 1.0)
        return np.where(y > 0.0, total, 0.0), np.where(y > 0.0, total, none)

    def sample(
        self, likelihood: Likelihood, F: AnyNDArray, rng: Generator, trials: MaybeArray = None
    ) -> AnyNDArray:
        rate, shape, scale = self._amounts(likelihood, F)
        count = rng.poisson(np.minimum(rate, _MOST))
        some = rng.gamma(np.maximum(count, 1) * shape, scale)
        return np.where(count > 0, some, 0.0)


@dataclass(frozen=True)
class Quantile(QuasiFamily, LocationScale):
    """
    The value below which the response is with probability ``tau``, of which nothing else is said.

    The smooth loss of :class:`gpflow_gam.likelihoods.Quantile`, over a dispersion at which the
    posterior's spread is that of the estimate: where the squared slopes of the loss, ``tau (1 -
    tau)`` on average, are its curvature, the density of residuals there (the information equality;
    Fasiolo et al. 2021 calibrate by the same comparison of covariances). With terms for the scale
    the loss has one that varies, and so have the credible intervals.

    :param tau: the probability.
    :param smoothing: of the loss, in standard deviations of normal noise. The quantile is off by
        about its square; more rows than some ten thousand allow for less.
    :raises ValueError: no probability.
    """

    name: ClassVar[str] = "quantile"
    modelled: ClassVar[tuple[str, ...]] = ("quantile", "scale")
    _instead: ClassVar[str] = "another family, fits at several tau"
    tau: float = 0.5
    smoothing: float = SMOOTHING
    varying: bool = field(default=False, kw_only=True)
    """Whether the logarithm of the scale has a predictor, the second."""

    def __post_init__(self) -> None:
        Loss(self.tau, self.smoothing)

    @property
    def _loss(self) -> Loss:
        return Loss(self.tau, self.smoothing)

    @property
    def initial_family(self) -> Family | None:
        """The loss is a line far from the quantile, where steps of Newton's go astray."""
        return _Beginning() if self.varying else Gaussian()

    def _likelihood(self, y: Observed, levels: Levels | None) -> Likelihood:
        sd, loss, smoothing = y.robust[1], self._loss, self.smoothing
        if self.varying:
            base = likelihoods.Quantile(self.tau, unit=sd, smoothing=smoothing, varying=True)
        else:
            scale, floor = loss.density * sd, 1e-4 * loss.density * y.unweighted.robust[1]
            base = likelihoods.Quantile(self.tau, scale, smoothing=smoothing, floor=floor)
        # what normal noise comes to
        return likelihoods.Quasi(base, self.tau * (1.0 - self.tau) / loss.density**2)

    def _scale(self, y: Observed) -> float:
        return 1.0 if self.varying else y.robust[1]

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        loss, (location, scale) = self._loss, self._parts(likelihood, F)
        e = (first(Y) - location) / scale
        at = (1.0 - self.tau) * e - loss.k * np.logaddexp(0.0, e / loss.k) - loss.constant
        return np.maximum(2.0 * (loss.best - at) / self._dispersion(likelihood), 0.0)

    def pearson(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> Pair:
        """
        Squared slopes of the loss, and the curvature that it has on average.

        That is the density of residuals at zero, counted between two quantiles of normal noise
        around this one, and taken to be as much larger there as it is of that.
        """
        location, scale = self._parts(likelihood, F)
        scale = np.broadcast_to(scale, len(Y))
        phi = self._dispersion(likelihood)
        margin = _NEAR * min(self.tau, 1.0 - self.tau)
        low, high = norm.ppf([self.tau - margin, self.tau + margin])
        z, density = norm.ppf(self.tau), self._loss.density
        # the loss's scale is a standard deviation times the density
        e = density * (first(Y) - location) / scale
        near = (e > low - z) & (e < high - z)
        at_zero = near / (2.0 * margin) * density * density / scale
        slope = self.tau * (1.0 - self.tau) / np.square(scale)
        return slope / phi**2, at_zero / scale / phi

    def sharpness(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> float:
        """
        The width of most residuals of ``Y`` at ``F`` and a ``likelihood``, over that expected.

        The latter is of normal noise with the scale of the loss. The scale is an average loss,
        which few outliers can make as large as they like; then the loss is bent over many times the
        ``smoothing`` that was asked for.
        """
        location, scale = self._parts(likelihood, F)
        e = self._loss.density * np.asarray((first(Y) - location) / scale)
        return Sample(e[:, None]).robust[1]


class _Beginning(Heteroskedastic):
    """A fit whose mean is where that of a quantile begins."""

    modelled: ClassVar[tuple[str, ...]] = ("quantile", "scale")
