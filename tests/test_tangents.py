"""Kernels as functions of values, and their matrices and derivatives in numpy."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import (
    Constant,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    Product,
    RationalQuadratic,
    SquaredExponential,
)

from gpflow_gam.kernels import CentredLinear, Factor, Indicator, OnColumns, ZeroMean
from gpflow_gam.kernels.correlation import parameters_of, with_values
from gpflow_gam.kernels.fixed_inputs import _Automatic, fixed_input_kernel
from gpflow_gam.measures import Discrete, Uniform


def measure(dimension: int = 1, number: int = 20) -> Discrete:
    rng = np.random.default_rng(number)
    return Discrete(rng.uniform(size=(number, dimension)), rng.dirichlet(np.ones(number)))


def cyclic() -> Periodic:
    kernel = Periodic(SquaredExponential(1.5, 0.7, active_dims=[0]), period=0.8)
    gpflow.set_trainable(kernel.period, False)
    return kernel


LEVELS = Discrete(np.array([0.0, 1.0, 2.0]), [0.2, 0.3, 0.5])
KNOWN = {
    "se": lambda: SquaredExponential(2.0, 0.3, active_dims=[1]),
    "matern12": lambda: Matern12(2.0, 0.3, active_dims=[1]),
    "matern32 centred": lambda: ZeroMean(Matern32(2.0, 3.0, active_dims=[1]), measure()),
    "matern52 centred": lambda: ZeroMean(Matern52(2.0, 0.3, active_dims=[1]), measure()),
    "two lengthscales": lambda: ZeroMean(Matern52(2.0, [0.3, 0.9], active_dims=[0, 1]), measure(2)),
    "surface": lambda: ZeroMean(
        SquaredExponential(2.0, [0.3, 0.9], active_dims=[1, 0]), measure(2)
    ),
    "isotropic": lambda: ZeroMean(SquaredExponential(0.5, 0.6, active_dims=[0, 1]), measure(2)),
    "cyclic on a level": lambda: Product(
        [ZeroMean(cyclic(), measure()), Indicator(1.0, active_dims=[2])]
    ),
    "levels": lambda: ZeroMean(Factor(2.0, active_dims=[2]), LEVELS),
    "line": lambda: CentredLinear(0.3, 2.0, active_dims=[0]),
    "constant": lambda: Constant(3.0),
    "interaction": lambda: Product(
        [
            ZeroMean(Matern52(1.3, 0.3, active_dims=[0]), measure()),
            ZeroMean(SquaredExponential(1.0, 0.8, active_dims=[1]), measure(1, 15)),
        ]
    ),
    "smooth by level": lambda: ZeroMean(
        OnColumns(
            Product([Matern52(1.0, 0.4, active_dims=[0]), Factor(1.7, active_dims=[1])]), [1, 2]
        ),
        Discrete(np.array([[0.1, 0.0], [0.5, 1.0], [0.9, 2.0], [0.3, 2.0]])),
    ),
}
OTHERS = {
    "not a kernel of terms": lambda: RationalQuadratic(1.2, 0.4, alpha=0.7, active_dims=[1]),
    "a measure that is no list of points": lambda: ZeroMean(
        SquaredExponential(1.2, 0.4, active_dims=[1]), Uniform(-0.1, 1.1)
    ),
    "a period that is learnt": lambda: Periodic(
        SquaredExponential(1.5, 0.7, active_dims=[0]), period=0.8
    ),
}


@pytest.fixture
def inputs(rng):
    Z = np.c_[rng.uniform(size=(7, 2)), rng.integers(0, 3, 7)]
    X = np.c_[rng.uniform(size=(11, 2)), rng.integers(0, 3, 11)]
    return Z, X


def summed(gradients) -> dict[int, np.ndarray]:
    result: dict[int, np.ndarray] = {}
    for parameter, gradient in gradients:
        result[id(parameter)] = result.get(id(parameter), 0.0) + gradient
    return result


@pytest.mark.parametrize("name", [*KNOWN, *OTHERS])
def test_matrices_and_gradients_are_those_of_the_kernel(name, inputs, rng):
    kernel = {**KNOWN, **OTHERS}[name]()
    tangents = fixed_input_kernel(kernel, *inputs)
    assert isinstance(tangents, _Automatic) == (name in OTHERS)
    compare(tangents, kernel, inputs, rng)


def compare(tangents, kernel, inputs, rng) -> None:
    """Matrices with GPflow's, gradients with TensorFlow's."""
    Z, X = inputs
    result, pullback = tangents.evaluate(lambda p: p.numpy())
    upstream = tuple(rng.standard_normal(m.shape) for m in result)
    with tf.GradientTape() as tape:
        expected = kernel(Z), kernel(Z, X), kernel(X, full_cov=False)
        total = tf.add_n([tf.reduce_sum(u * e) for u, e in zip(upstream, expected)])
    for a, b in zip(result, expected):
        np.testing.assert_allclose(a, b, atol=1e-13)
    parameters = [p for p in kernel.parameters if p.trainable]
    slopes = tape.gradient(total, [p.unconstrained_variable for p in parameters])
    gradients = summed(pullback(upstream))
    for p, slope in zip(parameters, slopes):
        u = tf.constant(p.unconstrained_variable.numpy())
        with tf.GradientTape() as inner:
            inner.watch(u)
            value = p.transform.forward(u)
        chained = inner.gradient(value, u, output_gradients=tf.constant(gradients[id(p)]))
        np.testing.assert_allclose(chained, slope, rtol=1e-9, atol=1e-12)


def test_long_lengthscales_keep_their_digits(inputs):
    Z, X = inputs
    kernel = ZeroMean(Matern52(1.0, 1e4, active_dims=[0]), measure())
    (K, Kzx, _), _ = fixed_input_kernel(kernel, Z, X).evaluate(lambda p: p.numpy())
    assert 0.0 < np.abs(Kzx).max() < 1e-7
    np.testing.assert_allclose(Kzx, kernel(Z, X), rtol=1e-6)
    np.testing.assert_allclose(K, kernel(Z), rtol=1e-6)


def test_values_of_others_are_used_and_the_kernel_stays(inputs):
    Z, X = inputs
    for make in KNOWN.values():
        kernel, other = make(), make()
        for p in other.trainable_parameters:
            p.assign(1.7 * p)
        before = kernel(Z, X).numpy()
        values = {id(p): o.numpy() for p, o in zip(parameters_of(kernel), parameters_of(other))}
        (K, _, _), _ = fixed_input_kernel(kernel, Z, X).evaluate(lambda p, v=values: v[id(p)])
        np.testing.assert_allclose(K, other(Z), atol=1e-13)
        shell = with_values(kernel, [values[id(p)] for p in parameters_of(kernel)])
        np.testing.assert_allclose(shell(Z, X), other(Z, X), atol=1e-13)
        np.testing.assert_array_equal(kernel(Z, X), before)
        assert len(kernel.parameters) == len(other.parameters)


@pytest.mark.parametrize("extreme", [0.0, 1e-200, 1e200])
@pytest.mark.parametrize("name", ["se", "two lengthscales", "cyclic on a level", "interaction"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_values_out_of_range_are_no_errors_of_pythons(name, extreme, inputs):
    """A search tries them, and looks at what comes of it."""
    kernel = KNOWN[name]()
    values = {id(p): np.full(p.shape.as_list(), extreme) for p in parameters_of(kernel)}
    Z, X = inputs
    matrices, pullback = fixed_input_kernel(kernel, Z, X).evaluate(lambda p: values[id(p)])
    assert [m.shape for m in matrices] == [(len(Z), len(Z)), (len(Z), len(X)), (len(X),)]
    result = pullback([np.ones_like(m) for m in matrices])
    assert {id(p) for p, _ in result} <= set(values)
