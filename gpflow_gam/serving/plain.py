"""
Functions that other formats lack, by those that all have: sums, products and exponentials.

Each takes and returns tensors of TensorFlow, in the precision of its arguments, to its rounding.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.linalg
import scipy.special
import tensorflow as tf
from gpflow.base import AnyNDArray
from numpy.polynomial import Chebyshev, Polynomial

Formula = Callable[..., Any]

FORMULAS: dict[str, Formula] = {}
"""By the type of the operation that a formula stands in for."""


def _stands_for(*types: str) -> Callable[[Formula], Formula]:
    def register(function: Formula) -> Formula:
        FORMULAS.update(dict.fromkeys(types, function))
        return function

    return register


def _number(value: float, like: tf.Tensor) -> tf.Tensor:
    """For ``tf.where``, which takes a number of Python's for one in single precision."""
    return tf.constant(value, like.dtype)


# --- what is finite ----------------------------------------------------------------------------

# Converters turn the negation of ``<`` into ``>=``, which NaN does not satisfy either; only that of
# equality stays true of NaN.

FORMULAS["IsNan"] = lambda op, x: tf.not_equal(x, x)
FORMULAS["IsInf"] = lambda op, x: tf.equal(tf.abs(x), np.inf)
FORMULAS["IsFinite"] = lambda op, x: tf.equal(x - x, 0.0)


@_stands_for("DivNoNan", "MulNoNan", "Xdivy", "Xlogy")
def _no_nan(op: tf.Operation, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    none = tf.equal(y if op.type in ("DivNoNan", "MulNoNan") else x, 0.0)
    other = tf.where(none, _number(1.0, y), y)
    if op.type in ("DivNoNan", "Xdivy"):
        value = x / other
    else:
        value = x * (y if op.type == "MulNoNan" else tf.math.log(other))
    return tf.where(none, _number(0.0, value), value)


# --- exponentials and logarithms ---------------------------------------------------------------


@_stands_for("Expm1")
def _expm1(op: tf.Operation, x: tf.Tensor) -> tf.Tensor:
    # by the half-angle formula below one, where the exponential loses digits to the difference
    t = tf.tanh(0.5 * tf.minimum(x, 1.0))
    return tf.where(x < 1.0, 2.0 * t / (1.0 - t), tf.exp(x) - 1.0)


@_stands_for("Log1p")
def _log1p(op: tf.Operation, x: tf.Tensor) -> tf.Tensor:
    # what 1 + x rounds away is put back by the quotient (Kahan)
    u = 1.0 + x
    rest = u - 1.0
    none = tf.equal(rest, 0.0)
    value = tf.math.log(u) * (x / tf.where(none, _number(1.0, x), rest))
    return tf.where(none, x, tf.where(tf.equal(u, np.inf), u, value))


FORMULAS["Softplus"] = lambda op, x: tf.maximum(x, 0.0) + _log1p(op, tf.exp(-tf.abs(x)))


# --- the error function ------------------------------------------------------------------------


def _error_function(x: tf.Tensor, complement: bool) -> tf.Tensor:
    """By its series within one, beyond by the scaled complement, which is a polynomial."""
    size = tf.abs(x)
    inner = tf.minimum(size, 1.0)
    terms = [
        2.0 / math.sqrt(math.pi) * (-1) ** n / math.factorial(n) / (2 * n + 1) for n in range(22)
    ]
    near = tf.sign(x) * (inner * _polynomial(terms, inner * inner))
    # exp(z^2) erfc(z) on [1, inf) by v = 3 / (1 + z / 2) - 1 in (-1, 1]
    outer = tf.maximum(size, 1.0)
    v = 3.0 / (1.0 + 0.5 * outer) - 1.0
    far = tf.exp(-outer * outer) * _polynomial(_scaled_erfc(), v)
    if complement:
        return tf.where(size < 1.0, 1.0 - near, tf.where(x < 0.0, 2.0 - far, far))
    return tf.where(size < 1.0, near, tf.sign(x) * (1.0 - far))


FORMULAS["Erf"] = lambda op, x: _error_function(x, complement=False)
FORMULAS["Erfc"] = lambda op, x: _error_function(x, complement=True)


@functools.cache
def _scaled_erfc() -> list[float]:
    """Coefficients of the polynomial in v, from the constant on."""
    series = Chebyshev.interpolate(  # type: ignore[no-untyped-call]
        lambda v: scipy.special.erfcx(6.0 / np.maximum(v + 1.0, 1e-300) - 2.0), 26
    )
    coefficients: list[float] = series.convert(kind=Polynomial).coef.tolist()
    return coefficients


def _polynomial(coefficients: Sequence[float], x: tf.Tensor) -> tf.Tensor:
    value: Any = coefficients[-1]
    for a in coefficients[-2::-1]:
        value = value * x + a
    return value


# --- the gamma function ------------------------------------------------------------------------

_FAR = 10
"""From where on Stirling's series has all digits."""
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)


@_stands_for("Lgamma")
def _lgamma(op: tf.Operation, x: tf.Tensor) -> tf.Tensor:
    mirrored = x < 0.5  # Euler's reflection
    at = tf.where(mirrored, 1.0 - x, x)
    near = at < _FAR
    far = tf.where(near, at + _FAR, at)
    series = (
        0.5 * tf.math.log(2.0 * math.pi / far) + _polynomial(_STIRLING, 1.0 / (far * far)) / far
    )
    value = far * (tf.math.log(far) - 1.0) + series
    less = tf.where(near, at, _number(1.0, at))
    steps = [tf.math.log(less + k) for k in range(_FAR)]
    value = tf.where(near, value - functools.reduce(tf.add, steps), value)
    sine = tf.abs(tf.sin(math.pi * (x - tf.floor(x))))
    return tf.where(mirrored, tf.math.log(math.pi / sine) - value, value)


# --- angles ------------------------------------------------------------------------------------


@_stands_for("Atan2")
def _atan2(op: tf.Operation, y: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    up, ahead = tf.abs(y), tf.abs(x)
    most, least = tf.maximum(up, ahead), tf.minimum(up, ahead)
    t = least / tf.where(tf.equal(most, 0.0), _number(1.0, x), most)
    for _ in range(2):  # a quarter of the angle, by its series
        t /= 1.0 + tf.sqrt(1.0 + t * t)
    series = [(-1) ** n / (2 * n + 1) for n in range(12)]
    angle = 4.0 * (t * _polynomial(series, t * t))
    angle = tf.where(up > ahead, 0.5 * math.pi - angle, angle)
    angle = tf.where(x < 0.0, math.pi - angle, angle)
    return tf.where(y < 0.0, -angle, angle)


def _beside(x: tf.Tensor) -> tf.Tensor:
    """The cosine of an angle of which x is the sine, or the other way round."""
    return tf.sqrt((1.0 - x) * (1.0 + x))


FORMULAS["Atan"] = lambda op, x: _atan2(op, x, tf.ones_like(x))
FORMULAS["Acos"] = lambda op, x: _atan2(op, _beside(x), x)
FORMULAS["Asin"] = lambda op, x: _atan2(op, x, _beside(x))


# --- matrices ----------------------------------------------------------------------------------


@_stands_for("MatrixDiagPartV3", "MatrixDiagPart")
def _diag_part(op: tf.Operation, x: tf.Tensor, k: Any = None, padding: Any = None) -> tf.Tensor:
    if k is not None and np.any(tf.get_static_value(k)):
        raise ValueError(f"model: {op.name} takes other diagonals, which no other format has.")
    rows, columns = x.shape[-2:]
    return tf.reduce_sum(x * tf.eye(rows, columns, dtype=x.dtype), axis=-1)


@_stands_for("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def _matmul(op: tf.Operation, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    flags = ("transpose_a", "transpose_b") if op.type == "MatMul" else ("adj_x", "adj_y")
    x, y = (
        tf.transpose(v, _swapped(v.shape.rank)) if op.get_attr(flag) else v
        for v, flag in zip((x, y), flags)
    )
    return product(x, y)


def product(x: Any, y: Any) -> Any:
    """Of matrices [..., N, M] and [..., M, P]."""
    # LiteRT gets a product wrong that sums over one and repeats one factor along the others' batch
    if x.shape[-1] == 1:
        return x * y
    # and its converter cannot reshape what has two unknown sizes
    if y.shape[-1] == 1 and list(x.shape).count(None) > 1:
        return tf.reduce_sum(x * tf.transpose(y, _swapped(y.shape.rank)), axis=-1, keepdims=True)
    return tf.matmul(x, y)


@_stands_for("StridedSlice")
def _strided_slice(op: tf.Operation, x: tf.Tensor, *bounds: tf.Tensor) -> tf.Tensor:
    """LiteRT's adds no axes where ranks grow beyond what it knows: they are added behind it."""
    names = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
    masks = {name: int(op.get_attr(name)) for name in names}
    places = range(bounds[0].shape[0])
    new = [
        i for i in places if masks["new_axis_mask"] >> i & 1 and not masks["ellipsis_mask"] >> i & 1
    ]
    if not new:
        return tf.strided_slice(x, *bounds, **masks)
    kept = [i for i in places if i not in new]
    others = {
        name: sum((mask >> i & 1) << k for k, i in enumerate(kept)) for name, mask in masks.items()
    }
    others["new_axis_mask"] = 0
    rest = np.asarray(kept, np.int32)
    result = tf.strided_slice(x, *(tf.gather(b, rest) for b in bounds), **others)
    whole = bool(masks["ellipsis_mask"])
    place = 0
    for i in places:
        if i in new:
            result = tf.expand_dims(result, place)
            place += 1
        elif masks["ellipsis_mask"] >> i & 1:
            place += x.shape.rank - (len(kept) - whole)
        elif not masks["shrink_axis_mask"] >> i & 1:
            place += 1
    return result


@_stands_for("UpperBound", "LowerBound")
def _place(op: tf.Operation, bounds: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """How many of sorted numbers, [B, K], are below others, [B, M]."""
    x, bounds = tf.expand_dims(x, 2), tf.expand_dims(bounds, 1)
    below = bounds <= x if op.type == "UpperBound" else bounds < x
    return tf.reduce_sum(tf.cast(below, op.get_attr("out_type")), axis=-1)


@_stands_for("Squeeze")
def _squeeze(op: tf.Operation, x: tf.Tensor) -> tf.Tensor:
    rank = x.shape.rank
    gone = [i % rank for i in op.get_attr("squeeze_dims")]
    return _without(x, gone or [i for i, size in enumerate(x.shape) if size == 1])


def _without(x: tf.Tensor, axes: Sequence[int]) -> tf.Tensor:
    """A tensor without axes of size one, which LiteRT does not always take away."""
    return x[tuple(0 if i in axes else slice(None) for i in range(x.shape.rank))]


FORMULAS["AddN"] = lambda op, *x: functools.reduce(tf.add, x)


@_stands_for("Einsum")
def _einsum(op: tf.Operation, *factors: Any) -> Any:
    """By matrix products, of at most one index to sum over: LiteRT's converter errs on others."""
    equation = op.get_attr("equation").decode()
    left, out = equation.split("->")
    terms = left.split(",")
    if len(terms) != 2 or any(len(set(t)) < len(t) for t in (*terms, out)) or "." in equation:
        raise ValueError(f"model: {op.name} sums by {equation}, which only a SavedModel can do.")
    a, b = terms
    batch = [i for i in out if i in a and i in b]
    inner = [i for i in a if i in b and i not in out]
    # what one factor has alone and the result has not is summed at once
    alone = [[i for i in t if i in out and i not in batch] for t in terms]
    if max(len(inner), *map(len, alone)) > 1:
        raise ValueError(f"model: {op.name} sums by {equation}, which only a SavedModel can do.")
    x, y = (
        _arranged(f, term, [*batch, *free, *inner]) for f, term, free in zip(factors, terms, alone)
    )
    x = x if alone[0] else tf.expand_dims(x, len(batch))
    y = y if alone[1] else tf.expand_dims(y, len(batch))
    x, y = (v if inner else tf.expand_dims(v, -1) for v in (x, y))
    result = product(x, tf.transpose(y, _swapped(y.shape.rank)))
    if not alone[1]:
        result = result[..., 0]
    if not alone[0]:
        result = _without(result, [len(batch)])
    return _arranged(result, "".join([*batch, *alone[0], *alone[1]]), list(out))


def _arranged(x: tf.Tensor, indices: str, wanted: list[str]) -> tf.Tensor:
    """A tensor with its axes in another order, summed over those that are not wanted."""
    summed = [k for k, i in enumerate(indices) if i not in wanted]
    if summed:
        x = tf.reduce_sum(x, axis=summed)
        indices = "".join(i for i in indices if i in wanted)
    order = [indices.index(i) for i in wanted]
    return x if order == sorted(order) else tf.transpose(x, order)


def _swapped(rank: int) -> list[int]:
    return [*range(rank - 2), rank - 1, rank - 2]


def inverse_of(op: tf.Operation, matrix: AnyNDArray) -> AnyNDArray:
    """What a triangular solve multiplies by, [..., M, M]."""
    lower, adjoint = op.get_attr("lower"), op.get_attr("adjoint")
    eye = np.eye(matrix.shape[-1], dtype=matrix.dtype)
    flat = [
        scipy.linalg.solve_triangular(part, eye, lower=lower)
        for part in matrix.reshape(-1, *eye.shape)
    ]
    inverse = np.reshape(flat, matrix.shape)
    return np.swapaxes(inverse, -1, -2) if adjoint else inverse
