"""Likelihoods of two predictors: of the mean, and of the logarithm of how responses scatter."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import MeanAndVariance, TensorType

from .logit_beta import checked_share_link, shares
from .quadrature import GaussHermite
from .two_predictors import TwoPredictors
from .unit import fixed_unit


class LocationScale(TwoPredictors):
    """
    ``y ~ p(y | f, g)``: f sets the mean, by a link, and g is the logarithm of a dispersion.

    Generalized additive models for location, scale and shape (Rigby & Stasinopoulos 2005) of two
    parameters.
    """

    mean_of_first: ClassVar[bool] = True


class LocationScaleGamma(LocationScale):
    """
    Gamma of mean ``mu = exp(f)`` and variance ``exp(g) mu^2`` (``gammals`` of R's mgcv).

    f is integrated in closed form, g by quadrature.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._line = GaussHermite()

    def _log_density(self, f: tf.Tensor, g: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return self._of_shape(f, y * tf.exp(-f), g, y)

    def _of_shape(self, f: tf.Tensor, ratio: tf.Tensor, g: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        """With ratio = y exp(-f), or the means of it and of f."""
        shape = tf.exp(-g)
        powers = shape * (-g - f - ratio) + (shape - 1.0) * tf.math.log(y)
        return powers - tf.math.lgamma(shape)

    def _moments(self, f: tf.Tensor, g: tf.Tensor) -> MeanAndVariance:
        return tf.exp(f) + 0.0 * g, tf.exp(2.0 * f + g)

    @inherit_check_shapes
    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        f, y = Fmu[..., :1], Y
        ratio = y * tf.exp(0.5 * Fvar[..., :1] - f)
        expected = self._line(lambda g: self._of_shape(f, ratio, g, y), Fmu[..., 1:], Fvar[..., 1:])
        return expected[..., 0]


class LocationScaleNegativeBinomial(LocationScale):
    """Counts of mean ``mu = exp(f)`` and variance ``mu + exp(g) mu^2`` (NB2; Hilbe 2011, ch. 8)."""

    def _log_density(self, f: tf.Tensor, g: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        g = tf.maximum(g, tf.cast(_LEAST, g.dtype))
        size, lgamma = tf.exp(-g), tf.math.lgamma
        ways = lgamma(y + size) - lgamma(size) - lgamma(y + 1.0)
        return ways + y * (f + g) - (y + size) * tf.math.softplus(f + g)

    def _moments(self, f: tf.Tensor, g: tf.Tensor) -> MeanAndVariance:
        return tf.exp(f) + 0.0 * g, tf.exp(f) + tf.exp(2.0 * f + g)


_LEAST = float(np.log(1e-6))
"""Nearer to Poisson, lgamma(y + 1/alpha) - lgamma(1/alpha) loses its digits."""


class LocationScaleBeta(LocationScale):
    """
    Beta of mean ``m``, the inverse link of f, and variance ``m (1 - m) / (1 + exp(-g))``.

    :param link: "logit", "probit", "cloglog" or "cauchit".
    :raises ValueError: another link.
    """

    def __init__(self, link: str = "logit", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.link = checked_share_link(link)

    def _log_density(self, f: tf.Tensor, g: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        scale, lgamma = tf.exp(-g), tf.math.lgamma
        a, b = (scale * share for share in shares(self.link, f))
        powers = (a - 1.0) * tf.math.log(y) + (b - 1.0) * tf.math.log1p(-y)
        return powers + lgamma(scale) - lgamma(a) - lgamma(b)

    def _moments(self, f: tf.Tensor, g: tf.Tensor) -> MeanAndVariance:
        m, rest = shares(self.link, f)
        return m + 0.0 * g, m * rest * tf.sigmoid(g)


class LocationScaleStudentT(LocationScale):
    """
    ``y = u f + u exp(g) t`` with Student's t of given degrees of freedom.

    :param unit: u, fixed: one prior serves both predictors, so f is measured in a unit in which it
        is about as large as g, such as the standard deviation of y.
    :param df: degrees of freedom, fixed.
    """

    def __init__(self, unit: TensorType = 1.0, df: float = 4.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.unit = fixed_unit(unit)
        self.df = df

    def _log_density(self, f: tf.Tensor, g: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        df = tf.constant(self.df, f.dtype)
        constant = tf.math.lgamma(0.5 * (df + 1.0)) - tf.math.lgamma(0.5 * df)
        constant -= 0.5 * tf.math.log(df * np.pi) + tf.math.log(self.unit)
        square = tf.square((y / self.unit - f) * tf.exp(-g))
        return constant - g - 0.5 * (df + 1.0) * tf.math.log1p(square / df)

    def _moments(self, f: tf.Tensor, g: tf.Tensor) -> MeanAndVariance:
        spread = self.df / (self.df - 2.0) if self.df > 2.0 else np.inf
        return self.unit * f + 0.0 * g, tf.square(self.unit) * tf.exp(2.0 * g) * spread
