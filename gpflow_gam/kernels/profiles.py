"""
Stationary correlations along a line, less one, and their integrals.

With ``g(s)`` a correlation at scaled distance s, centring under a uniform measure needs

    once(p) = int_0^p (g(s) - 1) ds,    twice(z) = int_0^z (z - s) (g(s) - 1) ds.

Where lengthscales are long these are tiny, and a zero-mean kernel is made of their differences:
what a formula loses to cancellation there is all there is. So near zero they are Taylor series.
"""

from __future__ import annotations

import abc
from math import factorial

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.kernels import (
    Exponential,
    Kernel,
    Matern12,
    Matern32,
    Matern52,
    SquaredExponential,
)
from numpy.polynomial import Polynomial

_NEAR = 0.5
"""Where the series give way to closed forms; the terms below are exact to rounding up to here."""
_TERMS = 16

_ROOT_2, _ROOT_HALF_PI = np.sqrt(2.0), np.sqrt(np.pi / 2.0)


class Profile(abc.ABC):
    """
    A correlation ``g(s) = sum_j a_j s^j`` at ``s = scale |x - y| / lengthscale``.

    :param scale: what distances over lengthscales are multiplied by.
    :param series: a_0 = 1, a_1, ...
    """

    def __init__(self, scale: float, series: AnyNDArray) -> None:
        powers = np.arange(1, len(series))
        self.scale = float(scale)
        # traced once: some forty operations each, in every graph of every kernel otherwise
        self.once = tf.function(self._once_of, reduce_retracing=True, autograph=False)
        self.twice = tf.function(self._twice_of, reduce_retracing=True, autograph=False)
        self._once = np.concatenate([[0.0, 0.0], series[1:] / (powers + 1)])
        self._twice = np.concatenate([[0.0, 0.0, 0.0], series[1:] / ((powers + 1) * (powers + 2))])

    def _once_of(self, p: tf.Tensor) -> tf.Tensor:
        """int_0^p (g - 1), odd in p."""
        return tf.sign(p) * self._joined(tf.abs(p), self._once, self._once_far)

    def _twice_of(self, z: tf.Tensor) -> tf.Tensor:
        """int_0^z (z - s)(g(s) - 1) ds, for z >= 0."""
        return self._joined(z, self._twice, self._twice_far)

    def _joined(self, s: tf.Tensor, series: AnyNDArray, far: object) -> tf.Tensor:
        # each branch sees arguments of its own range only: gradients of the other stay finite
        edge = tf.constant(_NEAR, s.dtype)
        near = _horner(series, tf.minimum(s, edge))
        return tf.where(s < edge, near, far(tf.maximum(s, edge)))  # type: ignore[operator]

    @abc.abstractmethod
    def _once_far(self, s: tf.Tensor) -> tf.Tensor:
        """``once`` where the series has given way, in closed form."""

    @abc.abstractmethod
    def _twice_far(self, s: tf.Tensor) -> tf.Tensor:
        """``twice`` there."""


class _Gauss(Profile):
    """exp(-s^2 / 2)."""

    def __init__(self) -> None:
        series = np.zeros(2 * _TERMS)
        series[::2] = [(-0.5) ** j / factorial(j) for j in range(_TERMS)]
        super().__init__(1.0, series[:-1])

    def _once_far(self, s: tf.Tensor) -> tf.Tensor:
        return _ROOT_HALF_PI * tf.math.erf(s / _ROOT_2) - s

    def _twice_far(self, s: tf.Tensor) -> tf.Tensor:
        half = 0.5 * tf.square(s)
        return s * _ROOT_HALF_PI * tf.math.erf(s / _ROOT_2) + tf.math.expm1(-half) - half


class _PolynomialExponential(Profile):
    """``P(s) exp(-s)``: Matern's correlations of half-integer order."""

    def __init__(self, scale: float, polynomial: list[float]) -> None:
        P = Polynomial(polynomial)
        exponential = np.array([(-1.0) ** j / factorial(j) for j in range(_TERMS)])
        super().__init__(scale, np.convolve(P.coef, exponential)[:_TERMS])
        # int_0^s P exp(-t) dt = A(0) - A(s) exp(-s), with A the sum of P and its derivatives
        self._a = _with_derivatives(P)
        self._b = _with_derivatives(self._a)

    def _once_far(self, s: tf.Tensor) -> tf.Tensor:
        return self._a.coef[0] - _horner(self._a.coef, s) * tf.exp(-s) - s

    def _twice_far(self, s: tf.Tensor) -> tf.Tensor:
        twice = self._b.coef[0] - _horner(self._b.coef, s) * tf.exp(-s)
        return self._a.coef[0] * s - twice - 0.5 * tf.square(s)


def _with_derivatives(P: Polynomial) -> Polynomial:
    total = P
    for order in range(1, len(P.coef)):
        total = total + P.deriv(order)  # type: ignore[no-untyped-call]
    return total


def _horner(coefficients: AnyNDArray, s: tf.Tensor) -> tf.Tensor:
    argument = s
    first = int(np.flatnonzero(coefficients)[0])
    step = coefficients[first:]
    if len(step) > 2 and not step[1::2].any():  # only every second power
        step, argument = step[::2], tf.square(s)
    result = tf.zeros_like(s)
    for a in step[::-1]:
        result = result * argument + tf.constant(a, s.dtype)
    for _ in range(first):
        result = result * s
    return result


PROFILES: dict[type[Kernel], Profile] = {
    SquaredExponential: _Gauss(),
    Exponential: _PolynomialExponential(0.5, [1.0]),
    Matern12: _PolynomialExponential(1.0, [1.0]),
    Matern32: _PolynomialExponential(np.sqrt(3.0), [1.0, 1.0]),
    Matern52: _PolynomialExponential(np.sqrt(5.0), [1.0, 1.0, 1.0 / 3.0]),
}
"""The correlations of GPflow's kernels along one column (Rasmussen & Williams 2006, ch. 4)."""
