"""Operations of TensorFlow on pairs: by their types, in some 13 digits."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.special
import tensorflow as tf
from gpflow.base import AnyNDArray
from numpy.polynomial import hermite

from .pairs import Pair, matmul, total
from .plain import FORMULAS

Operation = Callable[..., Any]

OPERATIONS: dict[str, Operation] = {}
"""What an operation does to pairs, by its type: of the operation and its inputs."""

ARRANGING = {
    *("BroadcastTo", "ConcatV2", "EnsureShape", "ExpandDims", "Fill", "Gather", "GatherV2"),
    *("Identity", "MatrixDiagPart", "MatrixDiagPartV3", "MatrixDiagV3", "Pack", "Pad", "PadV2"),
    *("PreventGradient", "Reshape", "ReverseV2", "SelectV2", "Slice", "Split", "SplitV"),
    *("Squeeze", "StopGradient", "StridedSlice", "Tile", "Transpose", "Unpack"),
}
"""Those that move numbers and change none."""


def pair_form(*types: str) -> Callable[[Operation], Operation]:
    """
    Registers what an operation does to pairs.

    :param types: of the operation.
    """

    def register(function: Operation) -> Operation:
        OPERATIONS.update(dict.fromkeys(types, function))
        return function

    return register


def arranged(again: Operation, arguments: Sequence[Any]) -> Any:
    """
    What an operation of :data:`ARRANGING` makes of pairs.

    :param again: the operation on tensors.
    :param arguments: pairs and tensors.
    """

    def parts(part: str) -> list[Any]:
        return [getattr(a, part) if isinstance(a, Pair) else a for a in arguments]

    his = again(*parts("hi"))
    if all(a.lo is None for a in arguments if isinstance(a, Pair)):
        return Pair(his) if not isinstance(his, (list, tuple)) else [Pair(h) for h in his]
    rests = [
        tf.zeros_like(a.hi) if rest is None and isinstance(a, Pair) else rest
        for a, rest in zip(arguments, parts("lo"))
    ]
    los = again(*rests)
    if isinstance(his, (list, tuple)):
        return [Pair(h, lo) for h, lo in zip(his, los)]
    return Pair(his, los)


def where(condition: tf.Tensor, x: Pair, y: Pair) -> Pair:
    """Entries of one or the other."""
    found: Pair = arranged(tf.where, [condition, x, y])
    return found


# --- arithmetic --------------------------------------------------------------------------------


@pair_form("Add", "AddV2", "AddN")
def _add(op: tf.Operation, *x: Pair) -> Pair:
    return functools.reduce(lambda a, b: a + b, x)


@pair_form("Sub")
def _sub(op: tf.Operation, x: Pair, y: Pair) -> Pair:
    return x - y


@pair_form("Mul")
def _mul(op: tf.Operation, x: Pair, y: Pair) -> Pair:
    return x * y


@pair_form("Square")
def _square(op: tf.Operation, x: Pair) -> Pair:
    return x * x


@pair_form("SquaredDifference")
def _squared_difference(op: tf.Operation, x: Pair, y: Pair) -> Pair:
    d = x - y
    return d * d


@pair_form("RealDiv")
def _div(op: tf.Operation, x: Pair, y: Pair) -> Pair:
    return x / y


@pair_form("DivNoNan")
def _div_no_nan(op: tf.Operation, x: Pair, y: Pair) -> Pair:
    none = tf.equal(y.hi, 0.0)
    known = y.value is not None and np.all(y.value != 0.0)
    whole = y if known else where(none, Pair.of(1.0), y)
    return x / whole if known else where(none, Pair.of(0.0), x / whole)


@pair_form("Neg")
def _neg(op: tf.Operation, x: Pair) -> Pair:
    return -x


@pair_form("Abs")
def _abs(op: tf.Operation, x: Pair) -> Pair:
    sign = tf.where(x.hi < 0.0, tf.constant(-1.0), tf.constant(1.0))
    return x.scaled(sign)


@pair_form("Sqrt")
def _sqrt(op: tf.Operation, x: Pair) -> Pair:
    root = tf.sqrt(x.hi)
    left = x - Pair(root) * Pair(root)
    holds = root > 0.0
    rest = left.hi / tf.where(holds, root + root, tf.constant(1.0))
    return Pair(root) + Pair(tf.where(holds, rest, tf.constant(0.0)))


@pair_form("Rsqrt")
def _rsqrt(op: tf.Operation, x: Pair) -> Pair:
    root: Pair = _sqrt(op, x)
    return Pair.of(1.0) / root


@pair_form("Reciprocal", "Inv")
def _reciprocal(op: tf.Operation, x: Pair) -> Pair:
    return Pair.of(1.0) / x


@pair_form("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def _matmul(op: tf.Operation, x: Pair, y: Pair) -> Pair:
    flags = ("transpose_a", "transpose_b") if op.type == "MatMul" else ("adj_x", "adj_y")
    x, y = (_transposed(v) if op.get_attr(flag) else v for v, flag in zip((x, y), flags))
    return matmul(x, y)


def _transposed(x: Pair) -> Pair:
    rank = x.shape.rank
    axes = [*range(rank - 2), rank - 1, rank - 2]
    if x.value is not None:
        return Pair.of(np.transpose(x.value, axes))
    return x.moved(lambda t: tf.transpose(t, axes))


@pair_form("Einsum")
def _einsum(op: tf.Operation, *x: Pair) -> Pair:
    found: Pair = FORMULAS["Einsum"](op, *x)
    return found


@pair_form("Cast")
def _cast(op: tf.Operation, x: Pair) -> Any:
    return x if op.get_attr("DstT") == tf.float64 else tf.cast(x.hi, op.get_attr("DstT"))


@pair_form("Sum")
def _sum(op: tf.Operation, x: Pair, axes: tf.Tensor) -> Pair:
    return total(x, _axes(axes), op.get_attr("keep_dims"))


@pair_form("Mean")
def _mean(op: tf.Operation, x: Pair, axes: tf.Tensor) -> Pair:
    where_ = _axes(axes)
    found = total(x, where_, op.get_attr("keep_dims"))
    return found * Pair.of(1.0 / math.prod(x.shape[axis] for axis in where_))


def _axes(axes: tf.Tensor) -> list[int]:
    return [int(axis) for axis in np.ravel(tf.get_static_value(axes))]


# --- comparisons -------------------------------------------------------------------------------


def _less(x: Pair, y: Pair) -> tf.Tensor:
    if x.lo is None and y.lo is None:
        return x.hi < y.hi
    zero = tf.constant(0.0)
    within = (zero if x.lo is None else x.lo) < (zero if y.lo is None else y.lo)
    return (x.hi < y.hi) | (tf.equal(x.hi, y.hi) & within)


def _equal(x: Pair, y: Pair) -> tf.Tensor:
    same = tf.equal(x.hi, y.hi)
    if x.lo is None and y.lo is None:
        return same
    zero = tf.constant(0.0)
    return same & tf.equal(zero if x.lo is None else x.lo, zero if y.lo is None else y.lo)


@pair_form("Less", "Greater", "LessEqual", "GreaterEqual", "Equal", "NotEqual")
def _compare(op: tf.Operation, x: Pair, y: Pair) -> tf.Tensor:
    if op.type.startswith("Greater"):
        x, y = y, x
    if op.type in ("Less", "Greater"):
        return _less(x, y)
    if op.type == "NotEqual":
        return ~_equal(x, y)
    return _equal(x, y) if op.type == "Equal" else _less(x, y) | _equal(x, y)


@pair_form("Maximum", "Minimum")
def _extreme(op: tf.Operation, x: Pair, y: Pair) -> Pair:
    if x.lo is None and y.lo is None:
        return Pair((tf.maximum if op.type == "Maximum" else tf.minimum)(x.hi, y.hi))
    return where(_less(x, y) if op.type == "Maximum" else _less(y, x), y, x)


# --- functions by tables and short series ------------------------------------------------------


def _reduced(x: Pair, step: float) -> tuple[tf.Tensor, Pair]:
    """m and b with ``x = m step + b``, m whole and less than 2^15, |b| <= step / 2."""
    m = tf.round(x.hi * tf.constant(1.0 / step, tf.float32))
    # m times nine digits of the step is exact (Cody & Waite 1980)
    pieces, left = [], step
    for _ in range(3):
        fraction, exponent = math.frexp(left)
        pieces.append(math.ldexp(round(fraction * 2**9), exponent - 9))
        left -= pieces[-1]
    found = Pair(x.hi - m * tf.constant(pieces[0], tf.float32), x.lo)
    for piece in pieces[1:]:
        found = found + Pair(m * tf.constant(-piece, tf.float32))
    return m, found + Pair(m * tf.constant(-left, tf.float32))


def _looked_up(table: AnyNDArray, place: tf.Tensor) -> Pair:
    """Entries of a table in double precision, [K], at whole numbers."""
    places = tf.cast(place, tf.int32)  # of NaN it is anything
    places = tf.minimum(tf.maximum(places, 0), len(table) - 1)
    known = Pair.of(table)
    return known.moved(lambda t: tf.gather(t, places))


def _tail(b: tf.Tensor, coefficients: Sequence[float]) -> tf.Tensor:
    """A polynomial in single precision, where it is small beside what it is added to."""
    found = tf.constant(coefficients[-1], tf.float32)
    for a in coefficients[-2::-1]:
        found = found * b + tf.constant(a, tf.float32)
    return found


_PARTS = 128
_LARGEST = math.log(float(np.finfo(np.float32).max))


def _exponential(x: Pair) -> tuple[tf.Tensor, tf.Tensor, Pair, Pair]:
    """m, 2^n, F and p with ``exp(x) = 2^n F (1 + p)``, p small and 2^n F = 2^(m / 128)."""
    m, b = _reduced(x, math.log(2.0) / _PARTS)
    n = tf.floor(m * tf.constant(1.0 / _PARTS, tf.float32))
    with np.errstate(over="ignore"):
        powers = np.exp2(np.arange(-127.0, 128.0)).astype(np.float32)
    powers[0] = 0.0
    places = tf.minimum(tf.maximum(tf.cast(n, tf.int32) + 127, 0), len(powers) - 1)
    part = _looked_up(np.exp2(np.arange(_PARTS) / _PARTS), m - n * _PARTS)
    half = (b * b).scaled(tf.constant(0.5))
    cube = b.hi * b.hi * b.hi * _tail(b.hi, [1.0 / 6.0, 1.0 / 24.0, 1.0 / 120.0])
    return m, tf.gather(tf.constant(powers), places), part, b + (half + Pair(cube))


def _within(x: Pair, found: Pair, least: float) -> Pair:
    """An exponential where it is one: infinite beyond what single precision holds."""
    zero = tf.constant(0.0)
    over, under = x.hi > _LARGEST, x.hi < -_LARGEST
    hi = tf.where(over, tf.constant(np.inf, tf.float32), found.hi)
    hi = tf.where(under, tf.constant(least, tf.float32), hi)
    lo = zero if found.lo is None else found.lo
    return Pair(hi, tf.where(over | under, zero, lo))


@pair_form("Exp")
def _exp(op: tf.Operation | None, x: Pair) -> Pair:
    _, power, part, p = _exponential(x)
    return _within(x, (part + part * p).scaled(power), 0.0)


@pair_form("Expm1")
def _expm1(op: tf.Operation, x: Pair) -> Pair:
    m, power, part, p = _exponential(x)
    near = np.expm1(np.log(2.0) * np.arange(-_PARTS, _PARTS + 1) / _PARTS)
    less = where(
        tf.abs(m) > _PARTS, part.scaled(power) - Pair.of(1.0), _looked_up(near, m + _PARTS)
    )
    return _within(x, less + (part * p).scaled(power), -1.0)


@pair_form("Log")
def _log(op: tf.Operation | None, x: Pair) -> Pair:
    y = tf.math.log(x.hi)
    inverse: Pair = _exp(None, Pair(-y))
    away = x * inverse - Pair.of(1.0)
    holds = (x.hi > 0.0) & (tf.abs(y) < 80.0)
    zero = tf.constant(0.0)
    rest = away - (away * away).scaled(tf.constant(0.5))
    return Pair(y) + Pair(tf.where(holds, rest.hi, zero))


@pair_form("Log1p")
def _log1p(op: tf.Operation, x: Pair) -> Pair:
    found: Pair = _log(None, x + Pair.of(1.0))
    return found


@pair_form("Pow")
def _pow(op: tf.Operation, x: Pair, y: Pair) -> Pair:
    if y.value is not None and y.value.ndim == 0 and y.value in (2.0, 3.0):
        return x * x if y.value == 2.0 else x * x * x
    positive = x.hi > 0.0
    found = _exp(None, y * _log(None, where(positive, x, Pair.of(1.0))))
    single = tf.pow(tf.where(positive, tf.constant(1.0), x.hi), y.hi)
    return where(positive, found, Pair(single))


@pair_form("Sin", "Cos")
def _sin(op: tf.Operation, x: Pair) -> Pair:
    return wave(x, 0.0 if op.type == "Sin" else 0.5 * math.pi)


def wave(x: Pair, shift: float) -> Pair:
    """The sine of x + shift."""
    parts = 256
    m, b = _reduced(x, 2.0 * math.pi / parts)
    place = m - parts * tf.floor(m * tf.constant(1.0 / parts, tf.float32))
    angles = 2.0 * np.pi * np.arange(parts) / parts
    value, slope = (_looked_up(f(angles + shift), place) for f in (np.sin, np.cos))
    square = b * b
    sine = b + Pair(b.hi * square.hi * _tail(square.hi, [-1 / 6, 1 / 120, -1 / 5040]))
    fourth = square.hi * square.hi * _tail(square.hi, [1 / 24, -1 / 720])
    less = square.scaled(tf.constant(-0.5)) + Pair(fourth)
    return value + (value * less + slope * sine)


_ERF_STEP = 1.0 / 16.0
_ERF_END = 6.0


@functools.cache
def _erf_table() -> list[AnyNDArray]:
    """Its derivatives over factorials at multiples of a step, [K] each."""
    a = np.arange(-_ERF_END, _ERF_END + _ERF_STEP, _ERF_STEP)
    found = [scipy.special.erf(a)]
    density = 2.0 / math.sqrt(math.pi) * np.exp(-a * a)
    for k in range(8):
        own = hermite.hermval(a, [0.0] * k + [1.0])  # type: ignore[no-untyped-call]
        found.append((-1.0) ** k * own * density / math.factorial(k + 1))
    return found


@pair_form("Erf")
def _erf(op: tf.Operation, x: Pair) -> Pair:
    inner = tf.minimum(tf.maximum(x.hi, -_ERF_END), _ERF_END)
    m = tf.round(inner * tf.constant(1.0 / _ERF_STEP, tf.float32))
    b = Pair(inner - m * tf.constant(_ERF_STEP, tf.float32), x.lo)
    place = m + tf.constant(_ERF_END / _ERF_STEP, tf.float32)
    table = [_looked_up(column, place) for column in _erf_table()]
    tail = table[-1].hi
    for column in table[-2:3:-1]:
        tail = tail * b.hi + column.hi
    found = Pair(tail)
    for column in table[3::-1]:
        found = found * b + column
    return found
