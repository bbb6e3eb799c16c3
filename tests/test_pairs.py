"""Twice the precision of single: what pairs compute in LiteRT, against numpy in double."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special
import tensorflow as tf

from gpflow_gam.serving import pair_curves  # noqa: F401  which teaches OPERATIONS
from gpflow_gam.serving.litert_file import litert_bytes
from gpflow_gam.serving.pair_functions import OPERATIONS
from gpflow_gam.serving.pairs import Pair, matmul, total

N, M, P = 40, 21, 5
WEIGHTS = np.random.default_rng(3).normal(size=(M, P)) * 10.0 ** np.arange(-2, 3)
SHIFTS = np.random.default_rng(4).normal(size=M)


def apply(kind: str, *x: Pair, **attributes: Any) -> Any:
    op = types.SimpleNamespace(type=kind, get_attr=attributes.__getitem__)
    return OPERATIONS[kind](op, *x)


# by name: of pairs, of numpy's numbers, and what rounding is counted against
CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any] | None]] = {
    "sum": (lambda x, y: x + y, np.add, lambda x, y: np.abs(x) + np.abs(y)),
    "difference": (lambda x, y: x - y, np.subtract, lambda x, y: np.abs(x) + np.abs(y)),
    "constant": (
        lambda x, y: x + Pair.of(SHIFTS) - Pair.of(SHIFTS[0]),
        lambda x, y: x + SHIFTS - SHIFTS[0],
        lambda x, y: np.abs(x) + 3.0,
    ),
    "product": (lambda x, y: x * y, np.multiply, None),
    "halved": (lambda x, y: x * Pair.of(-0.5), lambda x, y: -0.5 * x, None),
    "quotient": (lambda x, y: x / y, np.divide, None),
    "share": (lambda x, y: x / Pair.of(SHIFTS), lambda x, y: x / SHIFTS, None),
    "no quotient": (
        lambda x, y: apply("DivNoNan", x, apply("Maximum", y, Pair.of(0.0))),
        lambda x, y: np.where(y > 0.0, x / np.where(y > 0.0, y, 1.0), 0.0),
        None,
    ),
    "square": (lambda x, y: apply("Square", x), lambda x, y: x * x, None),
    "root": (lambda x, y: apply("Sqrt", apply("Abs", x)), lambda x, y: np.sqrt(np.abs(x)), None),
    "exp": (lambda x, y: apply("Exp", x), lambda x, y: np.exp(x), None),
    "expm1": (lambda x, y: apply("Expm1", x), lambda x, y: np.expm1(x), None),
    "small": (
        lambda x, y: apply("Expm1", x * Pair.of(1e-4)),
        lambda x, y: np.expm1(1e-4 * x),
        None,
    ),
    "log": (
        lambda x, y: apply("Log", apply("Abs", x)),
        lambda x, y: np.log(np.abs(x)),
        lambda x, y: 1.0,
    ),
    "log1p": (
        lambda x, y: apply("Log1p", apply("Abs", x)),
        lambda x, y: np.log1p(np.abs(x)),
        lambda x, y: 1.0,
    ),
    "power": (
        lambda x, y: apply("Pow", apply("Abs", x), Pair.of(-1.7)),
        lambda x, y: np.abs(x) ** -1.7,
        None,
    ),
    "cube": (lambda x, y: apply("Pow", x, Pair.of(3.0)), lambda x, y: x**3, None),
    "inverse root": (
        lambda x, y: apply("Rsqrt", apply("Abs", x)),
        lambda x, y: 1.0 / np.sqrt(np.abs(x)),
        None,
    ),
    "inverse": (lambda x, y: apply("Reciprocal", x), lambda x, y: 1.0 / x, None),
    "sin": (lambda x, y: apply("Sin", x), lambda x, y: np.sin(x), lambda x, y: 1.0),
    "cos": (lambda x, y: apply("Cos", x), lambda x, y: np.cos(x), lambda x, y: 1.0),
    "erf": (lambda x, y: apply("Erf", x), lambda x, y: scipy.special.erf(x), lambda x, y: 1.0),
    "sigmoid": (lambda x, y: apply("Sigmoid", x), lambda x, y: scipy.special.expit(x), None),
    "tanh": (lambda x, y: apply("Tanh", x), lambda x, y: np.tanh(x), None),
    "small tanh": (lambda x, y: apply("Tanh", y), lambda x, y: np.tanh(y), None),
    "erfc": (
        lambda x, y: apply("Erfc", apply("Minimum", x, Pair.of(1.5))),
        lambda x, y: scipy.special.erfc(np.minimum(x, 1.5)),
        lambda x, y: 1.0,
    ),
    "atan2": (lambda x, y: apply("Atan2", x, y), np.arctan2, None),
    "atan": (lambda x, y: apply("Atan", x), lambda x, y: np.arctan(x), lambda x, y: 1.0),
    "acos": (
        lambda x, y: apply("Acos", apply("Tanh", y)),
        lambda x, y: np.arccos(np.tanh(y)),
        lambda x, y: np.cosh(y),  # near one, an angle is the root of what is left of it
    ),
    "asin": (
        lambda x, y: apply("Asin", apply("Tanh", y)),
        lambda x, y: np.arcsin(np.tanh(y)),
        lambda x, y: 1.0,
    ),
    "least": (lambda x, y: apply("Minimum", x, y), np.minimum, None),
    "added": (
        lambda x, y: total(x, [1]),
        lambda x, y: x.sum(1),
        lambda x, y: np.abs(x).sum(1),
    ),
    "matrix": (
        lambda x, y: matmul(x, Pair.of(WEIGHTS)),
        lambda x, y: x @ WEIGHTS,
        lambda x, y: np.abs(x) @ np.abs(WEIGHTS) + np.max(np.abs(x), 1)[:, None],
    ),
    "gram": (
        lambda x, y: matmul(x, y.moved(lambda t: tf.transpose(t))),
        lambda x, y: x @ y.T,
        lambda x, y: np.abs(x) @ np.abs(y).T + M * np.abs(x).max(1)[:, None] * np.abs(y).max(1),
    ),
}


@pytest.fixture(scope="module")
def answers() -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Two matrices of numbers that are none in single precision, and what LiteRT finds of them."""
    rng = np.random.default_rng(0)
    a = (3.0 * rng.normal(size=(N, M))).astype(np.float32)
    b = rng.normal(size=(N, M)) * 4.0 ** rng.integers(-6, 2, (N, M))
    b = b.astype(np.float32)

    def call(a: tf.Tensor, b: tf.Tensor) -> dict[str, tf.Tensor]:
        x, y = Pair(a) * Pair.of(np.pi), Pair(b) / Pair.of(np.e)
        found = {}
        for i, (function, _, _) in enumerate(CASES.values()):
            pair = function(x, y)
            zero = tf.zeros_like(pair.hi)
            found |= {f"hi{i}": pair.hi, f"lo{i}": zero if pair.lo is None else pair.lo}
        found["less"] = apply("Less", x, x + Pair.of(1e-9))
        found["equal"] = apply("Equal", x, x + Pair.of(1e-9))
        return found

    specs = {k: tf.TensorSpec([None, M], tf.float32, name=k) for k in "ab"}
    content = litert_bytes(tf.function(call, autograph=False).get_concrete_function(**specs), {})
    run = tf.lite.Interpreter(model_content=content).get_signature_runner("serving_default")
    return np.float64(a) * np.pi, np.float64(b) / np.e, run(a=a, b=b)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", CASES)
def test_digits(answers, name):
    x, y, found = answers
    _, function, size = CASES[name]
    wanted = np.asarray(function(x, y))
    i = list(CASES).index(name)
    value = np.float64(found[f"hi{i}"]) + found[f"lo{i}"]
    beside = np.abs(wanted) if size is None else size(x, y)
    away = np.max(np.abs(value - wanted) / np.where(beside == 0.0, 1.0, beside))
    assert away < 3e-13, away
    # in single precision it would have been otherwise
    assert np.max(np.abs(found[f"hi{i}"] - wanted)) > 0.0


def test_comparisons(answers):
    *_, found = answers
    assert np.all(found["less"])
    assert not np.any(found["equal"])


def test_what_is_no_number():
    odd = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 0.0], np.float32)
    for kind, wanted in (
        ("Exp", [np.nan, np.inf, 0.0, np.inf, 0.0, 1.0]),
        ("Expm1", [np.nan, np.inf, -1.0, np.inf, -1.0, 0.0]),
        ("Sqrt", [np.nan, np.nan, np.nan, 1e15, np.nan, 0.0]),
        ("Sigmoid", [np.nan, 1.0, 0.0, 1.0, 0.0, 0.5]),
        ("Tanh", [np.nan, 1.0, -1.0, 1.0, -1.0, 0.0]),
        ("Erfc", [np.nan, 0.0, 2.0, 0.0, 2.0, 1.0]),
    ):
        with np.errstate(invalid="ignore"):
            found = apply(kind, Pair(tf.constant(odd)))
        np.testing.assert_allclose(found.hi, wanted, rtol=1e-6, err_msg=kind)
