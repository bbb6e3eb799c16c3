"""Curves and angles of pairs, by exponentials, sines and the error function: links and kernels."""

from __future__ import annotations

import math

import tensorflow as tf

from .pair_functions import OPERATIONS, pair_form, wave, where
from .pairs import Pair
from .plain import FORMULAS


def _abs(x: Pair) -> Pair:
    found: Pair = OPERATIONS["Abs"](None, x)
    return found


def _one() -> Pair:
    return Pair.of(1.0)


@pair_form("Sigmoid")
def _sigmoid(op: tf.Operation, x: Pair) -> Pair:
    small: Pair = OPERATIONS["Exp"](op, -_abs(x))
    return where(x.hi < 0.0, small, _one()) / (_one() + small)


@pair_form("Tanh")
def _tanh(op: tf.Operation, x: Pair) -> Pair:
    t: Pair = OPERATIONS["Expm1"](op, _abs(x).scaled(tf.constant(-2.0)))
    sign = tf.where(x.hi < 0.0, tf.constant(1.0), tf.constant(-1.0))
    return (t / (Pair.of(2.0) + t)).scaled(sign)


@pair_form("Erfc")
def _erfc(op: tf.Operation, x: Pair) -> Pair:
    # beyond, what is left of one has too few digits, and single precision's own form has enough
    near = _one() - OPERATIONS["Erf"](op, x)
    return where(x.hi < 2.0, near, Pair(FORMULAS["Erfc"](op, x.hi)))


@pair_form("Atan2")
def _atan2(op: tf.Operation, y: Pair, x: Pair) -> Pair:
    # turned back by the angle in single precision, a point is almost on the axis
    angle = Pair(FORMULAS["Atan2"](op, y.hi, x.hi))
    sine, cosine = wave(angle, 0.0), wave(angle, 0.5 * math.pi)
    along = (x * cosine + y * sine).hi
    nowhere = tf.equal(along, 0.0)
    rest = (y * cosine - x * sine).hi / tf.where(nowhere, tf.constant(1.0), along)
    return angle + Pair(tf.where(nowhere, tf.constant(0.0), rest))


@pair_form("Atan")
def _atan(op: tf.Operation, x: Pair) -> Pair:
    found: Pair = _atan2(op, x, Pair(tf.ones_like(x.hi)))
    return found


@pair_form("Acos")
def _acos(op: tf.Operation, x: Pair) -> Pair:
    found: Pair = _atan2(op, _beside(x), x)
    return found


@pair_form("Asin")
def _asin(op: tf.Operation, x: Pair) -> Pair:
    found: Pair = _atan2(op, x, _beside(x))
    return found


def _beside(x: Pair) -> Pair:
    """The cosine of an angle of which x is the sine, or the other way round."""
    found: Pair = OPERATIONS["Sqrt"](None, (_one() - x) * (_one() + x))
    return found
