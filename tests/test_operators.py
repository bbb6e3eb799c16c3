"""Matrix-free products, columns and partial factors against dense matrices."""

from __future__ import annotations

import gpflow
import numpy as np
import problems
import pytest
import tensorflow as tf

import gpflow_gam as gg
from gpflow_gam.newton import operators
from gpflow_gam.newton.operators import (
    KernelOperator,
    KernelProduct,
    LatentKernels,
)

N = 90


def _inputs(rng, n=N):
    return tf.constant(rng.uniform(size=(n, 3)))


KERNELS = {
    "se": lambda: gpflow.kernels.SquaredExponential(1.3, 0.4),
    "ard matern": lambda: gpflow.kernels.Matern52(0.7, [0.2, 0.5, 0.9]),
    "sum and product": lambda: (
        gpflow.kernels.Linear(active_dims=[0])
        + gpflow.kernels.Matern12(active_dims=[1])
        * gpflow.kernels.Periodic(gpflow.kernels.SquaredExponential(active_dims=[2]))
    ),
    "additive": lambda: problems.few().kernel(),
    "arc cosine": lambda: gpflow.kernels.ArcCosine(order=1),
}


@pytest.fixture
def large(monkeypatch):
    """Matrices of the tests are no small ones."""
    monkeypatch.setattr(operators, "_SMALL", 0)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("name", KERNELS)
def test_product_and_its_gradient_equal_the_dense_ones(name, rng, monkeypatch, large):
    monkeypatch.setattr(operators, "_ENTRIES", (7 * N, 7 * N))  # blocks of 7 rows, and a rest
    kernel, X = KERNELS[name](), _inputs(rng)
    V = tf.Variable(rng.normal(size=(N, 4)))
    product = KernelProduct(kernel)

    def values(multiply):
        with tf.GradientTape() as tape:
            out = multiply(V)
            loss = tf.reduce_sum(tf.sin(out))
        return out, tape.gradient(loss, [V, *kernel.trainable_variables])

    ours, dense = values(lambda V: product(X, X, V)), values(lambda V: kernel(X, X) @ V)
    np.testing.assert_allclose(ours[0], dense[0], rtol=1e-10, atol=1e-10)
    for a, b in zip(ours[1], dense[1]):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-8)


def test_product_inside_a_compiled_function_and_between_other_points(rng, large):
    kernel, X, X2 = KERNELS["se"](), _inputs(rng), _inputs(rng, 31)
    V = tf.constant(rng.normal(size=(31, 2)))
    product = KernelProduct(kernel)

    @tf.function(autograph=False)
    def gradient():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(product(X, X2, V) ** 2)
        return tape.gradient(loss, kernel.trainable_variables)

    with tf.GradientTape() as tape:
        loss = tf.reduce_sum((kernel(X, X2) @ V) ** 2)
    for a, b in zip(gradient(), tape.gradient(loss, kernel.trainable_variables)):
        np.testing.assert_allclose(a, b, rtol=1e-9)


@pytest.mark.slow
def test_product_never_holds_the_matrix(rng):
    """The largest tensor of the compiled program is far below N^2 entries."""
    X, V = _inputs(rng, 6000), tf.zeros([6000, 1], tf.float64)
    product = KernelProduct(KERNELS["se"]())

    @tf.function(jit_compile=True)
    def run(X, V):
        return product._product(X, X, V)

    text = run.experimental_get_compiler_ir(X, V)(stage="optimized_hlo")
    sizes = [
        np.prod([int(n) for n in shape.split(",")])
        for shape in __import__("re").findall(r"f64\[([\d,]+)\]", text)
    ]
    assert max(sizes) < 6000**2 / 50


@pytest.mark.parametrize("name", ["one", "separate"])
def test_outputs_of_multioutput_kernels(name, rng):
    """Independent latent functions have GPflow's own covariance of the outputs."""
    kernel = gpflow.kernels.SquaredExponential(1.0, 0.3)
    if name == "separate":
        kernel = gpflow.kernels.SeparateIndependent([kernel, gpflow.kernels.Matern32(0.5, 0.8)])
    X = _inputs(rng, 12)
    operator, V = KernelOperator(LatentKernels.of(kernel, 2), X), rng.normal(size=(2, 12, 3))
    ours = operator.product(tf.constant(V))
    if name == "one":
        dense = np.einsum("nm,lmr->lnr", kernel(X).numpy(), V)
    else:
        dense = np.einsum(
            "nlmk,kmr->lnr", kernel(X, full_cov=True, full_output_cov=True).numpy(), V
        )
    np.testing.assert_allclose(ours, dense, rtol=1e-9, atol=1e-10)
    assert operator.sweeps == 1.0


def _loop(K, number):
    """Pivots and factor, entry by entry."""
    left, rows, pivots = np.diag(K).copy(), [], []
    for _ in range(number):
        i = 0
        for n in range(len(K)):
            if left[n] > left[i] + 1e-13 * K.max():
                i = n
        if left[i] <= 1e-9 * np.diag(K).max():
            break
        row = np.array([K[n, i] - sum(r[n] * r[i] for r in rows) for n in range(len(K))])
        row /= np.sqrt(left[i])
        left = left - row**2
        rows.append(row)
        pivots.append(i)
    return np.array(pivots), np.array(rows).T


def _grid(rng):
    """Distances, and so variances left, that are equal but for rounding; and rows that are."""
    line = np.linspace(0.0, 1.0, 5)
    grid = np.stack(np.meshgrid(line, line, [0.3]), axis=-1).reshape(-1, 3)
    return tf.constant(np.concatenate([grid, grid[::3]]))


@pytest.mark.parametrize("route", ["whole", "compiled"])
@pytest.mark.parametrize(
    ("kernel", "X", "number", "rank"),
    [
        (KERNELS["se"], _grid, 25, 25),
        (gpflow.kernels.Linear, _inputs, 12, 3),
        (lambda: gpflow.kernels.SquaredExponential(1.3, 5.0), _inputs, 60, None),
        (gpflow.kernels.Linear, lambda rng: tf.zeros([N, 3], tf.float64), 5, 0),
        (lambda: KERNELS["se"]() + gpflow.kernels.White(0.3), _inputs, 12, 12),
    ],
    ids=["ties", "rank", "variance left", "nothing", "white"],
)
def test_pivots_and_factor_equal_a_loop(route, kernel, X, number, rank, rng, request):
    if route == "compiled":
        request.getfixturevalue("large")
    kernel, X = kernel(), X(rng)
    result = KernelOperator(LatentKernels.of(kernel, 1), X).pivoted(number)
    pivots, P = _loop(kernel(X).numpy(), number)
    np.testing.assert_array_equal(result.pivots[0], pivots)
    np.testing.assert_allclose(result.factor[0], P.reshape(len(X), -1), atol=1e-7)
    left = np.diag(kernel(X)) - np.sum(np.square(P), axis=-1)
    np.testing.assert_allclose(result.left[0], left, atol=1e-8)
    assert result.rank == len(pivots) == (len(pivots) if rank is None else rank)
    assert (len(pivots) < number) == (rank != number)


@pytest.mark.parametrize("route", ["whole", "compiled"])
def test_a_kernel_that_is_no_number_is_no_complete_factor(route, rng, request):
    """A rank of nothing would say that there is no variance."""
    if route == "compiled":
        request.getfixturevalue("large")
    kernel = KERNELS["se"]()
    kernel.variance.unconstrained_variable.assign(np.nan)
    operator = KernelOperator(LatentKernels.of(kernel, 1), _inputs(rng))
    assert np.any(np.isnan(operator.pivoted(4).factor))


def test_bad_kernels_are_named():
    k = gpflow.kernels.SquaredExponential()
    with pytest.raises(ValueError, match=r"kernel has 2 output\(s\), but the likelihood takes 3"):
        LatentKernels.of(gpflow.kernels.SeparateIndependent([k, k]), 3)
    with pytest.raises(TypeError, match="got LinearCoregionalization"):
        LatentKernels.of(gpflow.kernels.LinearCoregionalization([k], [[1.0], [0.5]]), 2)
    assert gg.operators.as_additive(k).num_components == 1
