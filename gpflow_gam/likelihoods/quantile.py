"""The smooth loss of a quantile, as a density."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import AnyNDArray, MeanAndVariance, Parameter, TensorType
from gpflow.likelihoods import ScalarLikelihood
from gpflow.utilities import positive
from scipy.special import betaln, xlog1py, xlogy
from scipy.stats import norm

from ..measures import weighted_quantiles
from .location_scale import LocationScale
from .quadrature import GaussHermite
from .unit import fixed_unit

SMOOTHING = 0.1
"""Width of the loss's bend, in standard deviations of normal noise."""


class Loss:
    """
    The loss of Fasiolo et al. (2021), "Fast calibrated additive quantile regression".

    ``log p = (1 - tau) z / s - k log(1 + exp(z / (k s))) - log(k s B(k (1 - tau), k tau))`` with
    ``z = y - f``: that of Koenker & Bassett (1978), its kink smoothed over ``k s``.

    :param tau: between 0 and 1.
    :param smoothing: ``k s`` in standard deviations of normal noise, whose s is found.
    :raises ValueError: no probability, or a width that is none.
    """

    def __init__(self, tau: float, smoothing: float = SMOOTHING) -> None:
        if not 0.0 < tau < 1.0:
            raise ValueError(f"tau must be a probability between 0 and 1; got {tau}.")
        if not 0.0 < smoothing < np.inf:
            raise ValueError(f"smoothing must be positive and finite; got {smoothing}.")
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


class Quantile(ScalarLikelihood):
    """
    The quantile of a response, in place of its mean.

    Means are the quantile, and variances zero: what the response does beyond it is not said.

    :param tau: which, between 0 and 1.
    :param scale: of the loss, trainable.
    :param smoothing: see :class:`Loss`.
    """

    def __init__(
        self, tau: float, scale: TensorType = 1.0, smoothing: float = SMOOTHING, **kwargs: Any
    ) -> None:
        kwargs.setdefault("quadrature", GaussHermite())
        super().__init__(**kwargs)
        self.loss = Loss(tau, smoothing)
        self.scale = Parameter(scale, transform=positive(lower=0.0, base="exp"))

    def level_of(self, y: AnyNDArray, weights: AnyNDArray | None = None) -> AnyNDArray:
        """
        About where the predictor of a constant quantile is, [1].

        :param y: responses, [N].
        :param weights: how often each row counts, [N].
        """
        return weighted_quantiles(y, weights, [self.loss.tau])

    @inherit_check_shapes
    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self.loss.log_density(Y - F, tf.convert_to_tensor(self.scale))

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.identity(F)

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.zeros_like(F)


class LocationScaleQuantile(LocationScale):
    """
    The same with a loss whose scale varies: the quantile is ``u f``, the scale ``u exp(g)``.

    :param tau: which quantile, between 0 and 1.
    :param unit: u, fixed, such as the standard deviation of y.
    :param smoothing: see :class:`Loss`.
    """

    def __init__(
        self, tau: float, unit: TensorType = 1.0, smoothing: float = SMOOTHING, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.loss = Loss(tau, smoothing)
        self.unit = fixed_unit(unit)

    def level_of(self, y: AnyNDArray, weights: AnyNDArray | None = None) -> AnyNDArray:
        """
        As of :class:`Quantile`, [2].

        :param y: responses, [N].
        :param weights: how often each row counts, [N].
        """
        found = weighted_quantiles(y, weights, [self.loss.tau]) / self.unit.numpy()
        return np.append(found, 0.0)

    def _log_density(self, f: tf.Tensor, g: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        unit = tf.convert_to_tensor(self.unit)
        return self.loss.log_density(y - unit * f, unit * tf.exp(g))

    def _moments(self, f: tf.Tensor, g: tf.Tensor) -> MeanAndVariance:
        return self.unit * f + 0.0 * g, tf.zeros_like(f)
