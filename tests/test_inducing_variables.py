"""Inducing variables, their covariances in blocks and dense, and where to put them."""

import re

import gpflow
import numpy as np
import problems
import pytest
import tensorflow as tf
from gpflow.covariances import Kuf, Kuu
from gpflow.kernels import Constant, Coregion, Linear, Product, SquaredExponential, Sum, White
from problems import assert_close

from gpflow_gam.covariances import InducingBlocks
from gpflow_gam.inducing_variables import AdditiveInducingVariables, select
from gpflow_gam.kernels import AdditiveKernel, Factor, Indicator, MarkovField, ZeroMean
from gpflow_gam.measures import Discrete

STRATEGIES = ["greedy", "quantiles"]


def test_dense_kuu_and_kuf_against_a_loop(problem):
    kernel, inducing = problem.kernel(), problem.inducing()
    reference = problems.dense(list(kernel.kernels), list(problem.Z.values()), problem.X, 1e-6)
    np.testing.assert_allclose(Kuu(inducing, kernel, jitter=1e-6), reference.K, atol=1e-12)
    kuf, start = Kuf(inducing, kernel, problem.X).numpy(), 0
    for name, phi in zip(kernel.names, reference.phi):
        stop = start + len(problem.Z[name])
        expected = reference.root[start:stop, start:stop] @ phi
        np.testing.assert_allclose(kuf[start:stop], expected, atol=1e-10)
        start = stop
    residual = [k - (f**2).sum(axis=0) for k, f in zip(reference.prior, reference.phi)]
    blocks = InducingBlocks(inducing, kernel)
    np.testing.assert_allclose(blocks.residual_variance(problem.X), residual, atol=1e-7)
    batched = Kuf(inducing, kernel, problem.X[:12].reshape(2, 6, 3))
    np.testing.assert_allclose(batched, kuf[:, :12].reshape(-1, 2, 6), atol=1e-12)


def test_features_with_closed_gradients_are_those_of_a_tape(problem):
    kernel, inducing = problem.kernel(), problem.inducing()
    X = tf.constant(problem.X)
    sources = [X, *(p.unconstrained_variable for p in kernel.trainable_parameters)]
    found = []
    for closed in (True, False):
        with tf.GradientTape() as tape:
            tape.watch(X)
            blocks = InducingBlocks(inducing, kernel)
            if closed:
                _, features = blocks.whitened(X)
            else:
                features = blocks.features(X, blocks.cholesky())
            parts = [*features.phi, *features.prior]
            value = tf.add_n([tf.reduce_sum(tf.sin(3.0 * part)) for part in parts])
        found.append([value, *tape.gradient(value, sources)])
    assert_close(*found, rtol=1e-8, atol=1e-8)


def test_factors_with_features_have_the_noise_of_inducing_inputs(rng):
    X = tf.constant(rng.uniform(size=(9, 1)))
    noisy = Sum([SquaredExponential(active_dims=[0]), White(0.1, active_dims=[0])])
    blocks = InducingBlocks(AdditiveInducingVariables([X[:4]]), AdditiveKernel([noisy]))
    factors, features = blocks.whitened(X)
    expected = blocks.cholesky()
    assert_close([factors, features.phi], [expected, blocks.features(X, expected).phi], atol=1e-12)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_strategies_are_deterministic_and_sized(strategy, rng):
    X = np.column_stack([rng.normal(size=200), rng.uniform(size=200), rng.integers(0, 2, 200)])
    kernel = AdditiveKernel(
        {
            "level": Constant(),
            "a": SquaredExponential(1.0, 0.5, active_dims=[0]),
            "ab": SquaredExponential(1.0, [0.5, 0.3], active_dims=[0, 1]),
            "by": Product([Indicator(1, [2]), SquaredExponential(1.0, 0.5, active_dims=[0])]),
        }
    )
    one, two = (select(X, kernel, 9, strategy, seed=3) for _ in range(2))
    assert_close(one.inputs, two.inputs, rtol=0)
    assert one.sizes == (1, 9, 9, 9)
    assert one["level"].shape == (1, 0)
    assert set(one["by"].numpy()[:, 1]) == {1.0}, "a by-component lives on its level only"
    for Z in [Z.numpy() for Z in one.inputs[1:]]:
        assert len(np.unique(Z, axis=0)) == len(Z)
        assert np.all(Z[:, 0] >= X[:, 0].min() - 1e-12)
        assert np.all(Z[:, 0] <= X[:, 0].max() + 1e-12)
    InducingBlocks(one, kernel).cholesky()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_duplicates_and_few_distinct_values(strategy):
    X = np.repeat([[0.0], [1.0], [2.0]], 50, axis=0)
    kernel = AdditiveKernel([SquaredExponential(active_dims=[0])])
    inducing = select(X, kernel, 10, strategy)
    assert np.linalg.cond(Kuu(inducing, kernel, jitter=1e-6)) < 1e7
    np.testing.assert_array_equal(inducing.inputs[0], [[0.0], [1.0], [2.0]])


def test_greedy_is_pivoted_cholesky(rng):
    """Each choice maximises the variance that those before leave, by dense numpy."""
    X = rng.uniform(size=(40, 1))
    kernel = SquaredExponential(1.0, 0.2, active_dims=[0])
    chosen = select(X, AdditiveKernel([kernel]), 6, "greedy").inputs[0].numpy()
    K, distinct, expected = kernel(np.unique(X, axis=0)).numpy(), np.unique(X, axis=0), []
    for _ in range(6):
        if expected:
            A = K[np.ix_(expected, expected)]
            left = np.diag(K) - np.diag(K[:, expected] @ np.linalg.solve(A, K[expected]))
        else:
            left = np.diag(K)
        expected.append(int(np.argmax(left)))
    np.testing.assert_allclose(chosen, np.sort(distinct[expected], axis=0))


def test_levels_all_have_inputs_at_their_codes(rng):
    X = np.column_stack([rng.integers(0, 30, 600), rng.integers(0, 3, 600), rng.uniform(size=600)])
    kernel = AdditiveKernel(
        {
            "one": Factor(active_dims=[0]),
            "centred": ZeroMean(Factor(active_dims=[0]), Discrete(range(30))),
            "areas": MarkovField(30, [(0, 1)], active_dims=[0]),
            "two": Product([Factor(active_dims=[0]), Factor(active_dims=[1])]),
            "curves": Product([SquaredExponential(active_dims=[2]), Factor(active_dims=[1])]),
            "surfaces": Product(
                [SquaredExponential(active_dims=[0, 2]), Coregion(3, 1, active_dims=[1])]
            ),
        }
    )
    inducing = select(X, kernel, 12)
    for name in ("one", "centred", "areas"):
        np.testing.assert_array_equal(inducing[name][:, 0], np.arange(30))
    np.testing.assert_array_equal(inducing["two"], np.unique(X[:, :2], axis=0))
    for name, place in {"curves": 0, "surfaces": 1}.items():
        codes, counts = np.unique(inducing[name][:, place], return_counts=True)
        assert codes.tolist() == [0.0, 1.0, 2.0], "inputs are at levels"
        assert counts.tolist() == [4, 4, 4]


def test_numbers_of_components_may_differ_and_bad_selections_are_refused(rng):
    X = rng.uniform(size=(50, 2))
    kernel = AdditiveKernel([SquaredExponential(active_dims=[0]), Linear(active_dims=[1])])
    assert select(X, kernel, {"f0": 7, "f1": 1}).sizes == (7, 1)
    with pytest.raises(ValueError, match="num_inducing of component 'f0' .* at least 1; got 0"):
        select(X, kernel, 0)
    with pytest.raises(ValueError, match="strategy must be 'greedy' or 'quantiles'"):
        select(X, kernel, 5, "best")
    with pytest.raises(ValueError, match=r"unknown: \['f9'\], missing: \['f1'\]"):
        select(X, kernel, {"f0": 3, "f9": 3})


@pytest.mark.parametrize(
    ("Z", "message"),
    [
        ({"a": np.zeros((3, 2))}, "component 'a' has 2 column.* reads 1"),
        ({"a": np.zeros((0, 1))}, r"component 'a' is empty \(M_c = 0\)"),
        ({"a": [[np.nan]]}, "component 'a' holds NaN"),
        ({"a": [0.0, 1.0]}, "component 'a' must be a matrix"),
        ([[[0.0]], [[1.0]]], "has 2 components, the kernel has 1"),
        ({"b": [[0.0]]}, "names its components"),
        ({}, "is empty"),
    ],
)
def test_bad_inducing_variables_are_refused(Z, message):
    kernel = AdditiveKernel({"a": SquaredExponential(active_dims=[0])})
    with pytest.raises(ValueError, match=message):
        InducingBlocks(AdditiveInducingVariables(Z), kernel)


@pytest.mark.parametrize("compiled", [False, True])
def test_singular_kernel_matrix_names_the_component(compiled):
    kernel = AdditiveKernel(
        {"fine": SquaredExponential(active_dims=[0]), "bad": SquaredExponential(active_dims=[0])}
    )
    gpflow.config.set_default_jitter(1e-18)
    kernel["fine"].lengthscales.assign(0.01)
    kernel["bad"].lengthscales.assign(1e3)
    line = np.linspace(0, 1, 40)[:, None]
    inducing = AdditiveInducingVariables({"fine": line, "bad": line})

    def factor() -> list[tf.Tensor]:
        return InducingBlocks(inducing, kernel).cholesky()

    guilty = "where 1 stands in the order fine, bad:] [0 1]" if compiled else "component bad even"
    with pytest.raises(tf.errors.InvalidArgumentError, match=re.escape(guilty)) as caught:
        tf.function(factor)() if compiled else factor()
    assert "inducing inputs (nearly) coincide" in str(caught.value)


def test_gpflow_dispatch_refuses_other_kernels(problem):
    other = SquaredExponential()
    with pytest.raises(TypeError, match="need an AdditiveKernel"):
        Kuu(problem.inducing(), other)
    with pytest.raises(TypeError, match="need an AdditiveKernel"):
        Kuf(problem.inducing(), other, problem.X)
    with pytest.raises(TypeError, match="need an AdditiveKernel"):
        gpflow.posteriors.get_posterior_class(other, problem.inducing())
