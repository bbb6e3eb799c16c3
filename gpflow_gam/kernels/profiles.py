"""Stationary correlations, each written once: value, slope, and integrals along a line."""

from __future__ import annotations

import abc
from collections.abc import Callable
from math import factorial
from typing import Any

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
"""Distance at which series of so many terms, exact to rounding here, give way to closed forms."""
_TERMS = 16

_HALF_ROOT_PI = 0.5 * np.sqrt(np.pi)


class Profile(abc.ABC):
    """
    A correlation g at scaled distances ``s = scale |x - y| / lengthscale``.

    Uniform measures need ``once(p) = int_0^p (g(s) - 1) ds`` and ``twice(z) = int_0^z (z - s)
    (g(s) - 1) ds``, tiny for long lengthscales: Taylor series near zero.
    """

    def __init__(self, scale: float, series: AnyNDArray) -> None:
        powers = np.arange(1, len(series))
        self.scale = float(scale)
        # traced once: some forty operations each, in every graph of every kernel otherwise
        self.once = tf.function(self._once_of, reduce_retracing=True, autograph=False)
        self.twice = tf.function(self._twice_of, reduce_retracing=True, autograph=False)
        self._once = np.concatenate([[0.0, 0.0], series[1:] / (powers + 1)])
        self._twice = np.concatenate([[0.0, 0.0, 0.0], series[1:] / ((powers + 1) * (powers + 2))])

    @abc.abstractmethod
    def tensor(self, square: tf.Tensor, deficit: bool = False) -> tf.Tensor:
        """g, or g - 1, at squared scaled distances."""

    @abc.abstractmethod
    def array(
        self, square: AnyNDArray, slopes: bool, deficit: bool
    ) -> tuple[AnyNDArray, AnyNDArray | None]:
        """g, or g - 1, and its derivative in ``square``, which may be overwritten."""

    @abc.abstractmethod
    def _once_far(self, s: tf.Tensor) -> tf.Tensor:
        """``once`` where the series has given way, in closed form."""

    @abc.abstractmethod
    def _twice_far(self, s: tf.Tensor) -> tf.Tensor:
        """``twice`` there."""

    def _once_of(self, p: tf.Tensor) -> tf.Tensor:
        """Odd in p."""
        return tf.sign(p) * _joined(tf.abs(p), self._once, self._once_far)

    def _twice_of(self, z: tf.Tensor) -> tf.Tensor:
        return _joined(z, self._twice, self._twice_far)


class _Gauss(Profile):
    """exp(-s^2)."""

    def __init__(self) -> None:
        series = np.zeros(2 * _TERMS - 1)
        series[::2] = [(-1.0) ** j / factorial(j) for j in range(_TERMS)]
        super().__init__(np.sqrt(0.5), series)

    def tensor(self, square: tf.Tensor, deficit: bool = False) -> tf.Tensor:
        return tf.math.expm1(-square) if deficit else tf.exp(-square)

    def array(
        self, square: AnyNDArray, slopes: bool, deficit: bool
    ) -> tuple[AnyNDArray, AnyNDArray | None]:
        np.negative(square, out=square)
        value = np.expm1(square, out=square) if deficit else np.exp(square, out=square)
        if not slopes:
            return value, None
        return value, -value - 1.0 if deficit else -value

    def _once_far(self, s: tf.Tensor) -> tf.Tensor:
        return _HALF_ROOT_PI * tf.math.erf(s) - s

    def _twice_far(self, s: tf.Tensor) -> tf.Tensor:
        square = tf.square(s)
        return _HALF_ROOT_PI * s * tf.math.erf(s) + 0.5 * (tf.math.expm1(-square) - square)


class _PolynomialExponential(Profile):
    """``P(s) exp(-s)``: Matern's correlations of half-integer order."""

    def __init__(self, scale: float, polynomial: list[float]) -> None:
        P = Polynomial(polynomial)
        exponential = np.array([(-1.0) ** j / factorial(j) for j in range(_TERMS)])
        super().__init__(scale, np.convolve(P.coef, exponential)[:_TERMS])
        self._more = np.array([0.0, *polynomial[1:]])  # P - 1
        # dg / ds^2 = (P' - P) exp(-s) / 2 s
        slope = 0.5 * (P.deriv() - P).coef  # type: ignore[no-untyped-call]
        self._rough = bool(slope[0])
        self._slope = slope if self._rough else slope[1:]
        # int_0^s P exp(-t) dt = A(0) - A(s) exp(-s), with A the sum of P and its derivatives
        self._a = _with_derivatives(P)
        self._b = _with_derivatives(self._a)

    def tensor(self, square: tf.Tensor, deficit: bool = False) -> tf.Tensor:
        s = tf.sqrt(tf.maximum(square, 1e-36))  # GPflow's clip: a finite gradient at zero
        return self._value(s, tf.exp(-s), tf.math.expm1(-s) if deficit else None)

    def array(
        self, square: AnyNDArray, slopes: bool, deficit: bool
    ) -> tuple[AnyNDArray, AnyNDArray | None]:
        s = np.sqrt(square, out=square)
        e = np.exp(-s)
        value = self._value(s, e, np.expm1(-s) if deficit else None)
        if not slopes:
            return value, None
        slope = _polynomial(self._slope, s) * e
        if self._rough:  # infinite where inputs meet; its product with their distance is zero
            slope = np.divide(slope, s, out=np.zeros_like(s), where=s > 0.0)
        return value, slope

    def _value(self, s: Any, exponential: Any, less_one: Any) -> Any:
        if not self._more.any():
            return exponential if less_one is None else less_one
        more = _polynomial(self._more, s)
        return (1.0 + more) * exponential if less_one is None else less_one + more * exponential

    def _once_far(self, s: tf.Tensor) -> tf.Tensor:
        return self._a.coef[0] - _polynomial(self._a.coef, s) * tf.exp(-s) - s

    def _twice_far(self, s: tf.Tensor) -> tf.Tensor:
        twice = self._b.coef[0] - _polynomial(self._b.coef, s) * tf.exp(-s)
        return self._a.coef[0] * s - twice - 0.5 * tf.square(s)


def _with_derivatives(P: Polynomial) -> Polynomial:
    total = P
    for order in range(1, len(P.coef)):
        total = total + P.deriv(order)  # type: ignore[no-untyped-call]
    return total


def _joined(s: tf.Tensor, series: AnyNDArray, far: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
    # each branch sees arguments of its own range only: gradients of the other stay finite
    edge = tf.constant(_NEAR, s.dtype)
    return tf.where(s < edge, _polynomial(series, tf.minimum(s, edge)), far(tf.maximum(s, edge)))


def _polynomial(coefficients: AnyNDArray, s: Any) -> Any:
    """By Horner's rule, at arrays or tensors; a number where the polynomial is constant."""
    first = int(np.flatnonzero(coefficients)[0])
    step, argument = coefficients[first:].tolist(), s
    if len(step) > 2 and not any(step[1::2]):  # only every second power
        step, argument = step[::2], s * s
    result = step[-1]
    for a in step[-2::-1]:
        result = result * argument + a
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
"""The correlations of GPflow's stationary kernels (Rasmussen & Williams 2006, chapter 4)."""
