"""
Numbers of twice single precision, as sums of two: for formats that have no double precision.

A posterior is a difference of large numbers where a smooth function is known closely, so that the
digits of single precision are gone when it is computed. A :class:`Pair` keeps what an operation
rounds away beside its result, by sums and products of single precision alone (Dekker 1971, "A
floating-point technique for extending the available precision"): 14 digits in place of 7. Sums and
products of matrices cut their factors into slices that are so short that single precision adds up
their products exactly, in any order (Ozaki, Ogita, Oishi & Rump 2012, "Error-free transformations
of matrix multiplication").
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

DIGITS = 24
"""Of a number in single precision, binary ones."""
_SPLIT = 4097.0
"""2^12 + 1, by which a number is cut into two of 12 digits."""
_ENOUGH = 48
"""Binary digits of a factor that products of matrices look at."""

Structural = Callable[[tf.Tensor], Any]


class Pair:
    """
    The number ``hi + lo``, ``lo`` within the rounding of ``hi``; both in single precision.

    :param hi: [...].
    :param lo: of the same shape; None for zero.
    :param value: in double precision, where the number is a constant.
    """

    def __init__(
        self, hi: tf.Tensor, lo: tf.Tensor | None = None, value: AnyNDArray | None = None
    ) -> None:
        self.hi, self.lo, self.value = hi, lo, value

    @classmethod
    def of(cls, value: Any) -> Pair:
        """
        A constant.

        :param value: in double precision, [...].
        """
        value = np.asarray(value, np.float64)
        hi, lo = _parts(value)
        return cls(tf.constant(hi), tf.constant(lo) if np.any(lo) else None, value)

    def moved(self, function: Structural) -> Pair:
        """
        What a function that only arranges numbers makes of it.

        :param function: of tensors, linear, with factors 0 and 1 and no sums.
        """
        return Pair(function(self.hi), None if self.lo is None else function(self.lo))

    @property
    def shape(self) -> tf.TensorShape:
        """Of either part."""
        return self.hi.shape

    def __neg__(self) -> Pair:
        return Pair(-self.hi, None if self.lo is None else -self.lo)

    def __add__(self, other: Pair) -> Pair:
        if self.value is not None and other.value is not None:
            return Pair.of(self.value + other.value)
        hi, rest = exact_sum(self.hi, other.hi)
        return _near(hi, _plus(_plus(self.lo, other.lo), rest))

    def __sub__(self, other: Pair) -> Pair:
        return self + (Pair.of(-other.value) if other.value is not None else -other)

    def __mul__(self, other: Pair) -> Pair:
        if self.value is not None and other.value is not None:
            return Pair.of(self.value * other.value)
        for x, y in ((self, other), (other, self)):
            if x.value is not None and np.all(np.abs(np.frexp(x.value)[0]) == 0.5):
                return y.moved(lambda t: t * x.hi)  # noqa: B023  powers of two round nothing
        hi = self.hi * other.hi
        (a, b), (c, d) = _halves(self), _halves(other)
        rest = ((a * c - hi) + a * d + b * c) + b * d
        for x, y in ((self, other), (other, self)):
            if y.lo is not None:
                rest += x.hi * y.lo
        return _near(hi, rest)

    def __truediv__(self, other: Pair) -> Pair:
        if other.value is not None and np.all(other.value != 0.0):
            return self * Pair.of(1.0 / other.value)
        quotient = self.hi / other.hi
        left = self - Pair(quotient) * other
        return _near(quotient, left.hi / other.hi)

    def scaled(self, factor: tf.Tensor) -> Pair:
        """
        Times powers of two, which round nothing.

        :param factor: powers of two.
        """
        return self.moved(lambda t: t * factor)


def _parts(value: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
    with np.errstate(over="ignore", invalid="ignore"):
        hi = value.astype(np.float32)
        lo = np.where(np.isfinite(hi), value - hi, 0.0).astype(np.float32)
    return hi, lo


def _plus(x: tf.Tensor | None, y: tf.Tensor | None) -> tf.Tensor | None:
    return y if x is None else x if y is None else x + y


def exact_sum(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The sum as it is rounded, and what that leaves out (Knuth)."""
    s = x + y
    of_y = s - x
    return s, (x - (s - of_y)) + (y - of_y)


def _near(hi: tf.Tensor, rest: tf.Tensor | None) -> Pair:
    """A sum of two as a pair, the second much smaller."""
    if rest is None:
        return Pair(hi)
    s = hi + rest
    return Pair(s, rest - (s - hi))


def _halves(x: Pair) -> tuple[tf.Tensor, tf.Tensor]:
    """Two numbers of 12 digits whose sum is ``hi`` (Veltkamp)."""
    if x.value is not None:
        number = _parts(x.value)[0]
        with np.errstate(over="ignore", invalid="ignore"):
            c = np.float32(_SPLIT) * number
            a = c - (c - number)
        return tf.constant(a), tf.constant(number - a)
    c = x.hi * tf.constant(_SPLIT, tf.float32)
    a = c - (c - x.hi)
    return a, x.hi - a


# --- sums and products of many -----------------------------------------------------------------


def matmul(x: Pair, y: Pair) -> Pair:
    """
    Of matrices [..., N, M] and [..., M, P].

    Its error is 1e-14 of the product of their absolute values.
    """
    M = y.shape[-2] if x.shape[-1] is None else x.shape[-1]
    if M == 1:
        return x * y
    # sums of 3 M products of slices are exact, so that the first three orders are
    digits = int((DIGITS + 2 - math.log2(3 * M)) // 2)
    number = -(-_ENOUGH // digits)
    left, right = _slices(x, [-1], digits, number), _slices(y, [-2], digits, number)
    if any(v.value is not None for v in (x, y)):
        # of constants every slice is once in the file
        orders = [
            functools.reduce(tf.add, map(tf.matmul, left[: t + 1], right[t::-1]))
            for t in range(number)
        ]
    else:
        orders = [
            tf.matmul(tf.concat(left[: t + 1], -1), tf.concat(right[t::-1], -2))
            for t in range(number)
        ]
    return _total(orders, 3)


def total(x: Pair, axes: Sequence[int], keepdims: bool = False) -> Pair:
    """
    The sum along axes.

    :param x: [...].
    :param axes: of known sizes.
    :param keepdims: whether they stay, of size one.
    """
    M = math.prod(x.shape[axis] for axis in axes)
    if M == 1:
        found = x
        if not keepdims:
            rank = x.shape.rank
            gone = [axis % rank for axis in axes]
            index = tuple(0 if i in gone else slice(None) for i in range(rank))
            found = x.moved(lambda t: t[index])
        return found
    digits = int(DIGITS + 1 - math.log2(M))
    parts = _slices(x, axes, digits, 3)
    return _total([tf.reduce_sum(part, axes, keepdims) for part in parts], 2)


def _total(terms: list[tf.Tensor], exact: int) -> Pair:
    """The sum of tensors of falling size, of which the first are not rounded."""
    hi, rest = terms[0], functools.reduce(tf.add, terms[exact:])
    for term in terms[1:exact]:
        hi, away = exact_sum(hi, term)
        rest += away
    return _near(hi, rest)


def _slices(x: Pair, axes: Sequence[int], digits: int, number: int) -> list[tf.Tensor]:
    """
    Numbers as sums of shorter ones, whole multiples of one step along axes.

    :param axes: along which they are added up.
    :param digits: of each slice but the last, which is what is left.
    :param number: of slices.
    """
    if x.value is not None:
        return [tf.constant(s) for s in _constant_slices(x.value, axes, digits, number)]
    scale = _power_of_two(tf.reduce_max(tf.abs(x.hi), axes, keepdims=True))
    left, found, lo = x.hi, [], x.lo
    for k in range(1, number):
        # of a sum with a large number, the digits below are rounded away
        large = scale * tf.constant(1.5 * 2.0 ** (DIGITS - k * digits), tf.float32)
        found.append((left + large) - large)
        left -= found[-1]
        if lo is not None and (k * digits >= 20 or k == number - 1):
            left, lo = left + lo, None
    return [*found, left]


def _constant_slices(
    value: AnyNDArray, axes: Sequence[int], digits: int, number: int
) -> list[AnyNDArray]:
    largest = np.max(np.abs(value), axis=tuple(axes), keepdims=True)
    scale = np.exp2(np.ceil(np.log2(np.where(largest > 0.0, largest, 1.0))))
    found = []
    for k in range(1, number):
        step = scale * 2.0 ** (1 - k * digits)
        found.append(np.round(value / step) * step)
        value = value - found[-1]
    return [part.astype(np.float32) for part in (*found, value)]


def _power_of_two(x: tf.Tensor) -> tf.Tensor:
    """The least one that is no smaller (Rump 2009), zero of zero."""
    q = x * tf.constant(2.0 ** (DIGITS - 1) + 1.0, tf.float32)
    return tf.abs(q - q * tf.constant(1.0 - 2.0**-DIGITS, tf.float32))
