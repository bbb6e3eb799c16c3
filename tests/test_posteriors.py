"""Inducing variables, families of q(U) against dense numpy, and what all posteriors share."""

import copy
import dataclasses
import functools
import itertools
import pickle
import re

import gpflow
import numpy as np
import problems
import pytest
import tensorflow as tf
from gpflow.covariances import Kuf, Kuu
from gpflow.kernels import Constant, Coregion, Linear, Product, SquaredExponential, Sum, White
from gpflow.posteriors import PrecomputeCacheType
from problems import FAMILIES, assert_close
from scipy.linalg import block_diag
from test_package import script

import gpflow_gam as gg
from gpflow_gam.covariances import InducingBlocks
from gpflow_gam.inducing_variables import AdditiveInducingVariables, select
from gpflow_gam.kernels import AdditiveKernel, Factor, Indicator, MarkovField, ZeroMean
from gpflow_gam.measures import Discrete
from gpflow_gam.variational import factor_analysis

vi = gg.variational

# --- inducing variables, their covariances in blocks and dense, and where to put them ------------

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


# --- every family of q(U) against dense, loop-written numpy ---------------------------------------


def blocks_in_component_order(family, parameters, index):
    """Group parameters [L, G, M, M] -> the [M_c, M_c] of each component, for output ``index``."""
    result = {}
    for indices, W in zip(family.layout.groups, parameters):
        for row, component in enumerate(indices):
            result[component] = W.numpy()[index, row]
    return [result[c] for c in range(family.layout.num_components)]


def reference_q(family, root, index):
    """Mean and covariance of U in component order, by the family's definition."""
    K = root @ root.T
    P = len(K)
    if isinstance(family, vi.OptimalPrecision):
        own = {}
        for indices, blocks in zip(family.layout.groups, family.reference):
            own |= dict(zip(indices, blocks.numpy()))
        L0 = block_diag(*(own[c] for c in range(len(own))))
        site = np.linalg.solve(L0.T, family.site_precision.numpy()[index])
        site = np.linalg.solve(L0.T, site.T)  # L_0^-T Lambda L_0^-1, the precision of t(U)
        S = np.linalg.inv(np.linalg.inv(K) + site)
        return S @ np.linalg.solve(L0.T, family.site_shift.numpy()[:, index]), S
    mean = family.q_mu.numpy()[:, index]
    if isinstance(family, vi.MeanField):
        W = block_diag(*blocks_in_component_order(family, family.q_sqrt, index))
        S = W @ W.T
    elif isinstance(family, vi.CoupledCovariance):
        W = family.q_sqrt.numpy()[index]
        S = W @ W.T
    elif isinstance(family, vi.CoupledPrecision):
        B = family.B.numpy()[index]
        S = np.linalg.inv(np.eye(P) + B @ B.T)
    else:
        W = block_diag(*blocks_in_component_order(family, family.q_sqrt, index))
        C = family.coupling.numpy()[index]
        D = np.linalg.inv(W @ W.T)
        B = np.linalg.solve(W.T, C)
        S = np.linalg.inv(D + B @ B.T)
    return root @ mean, root @ S @ root.T


@pytest.fixture(params=FAMILIES.values(), ids=FAMILIES)
def family(request):
    return request.param()


@pytest.mark.slow_but_first
def test_kl_and_marginals_against_dense_numpy(family, problem, rng):
    num_latent = 2
    kernel = problem.kernel()
    model = gg.models.AdditiveSVGP(
        kernel,
        gpflow.likelihoods.Gaussian(),
        problem.inducing(),
        variational=family,
        num_latent_gps=num_latent,
    )
    problems.randomise(family, rng)
    X = problem.X[:9]
    reference = problems.dense(list(kernel.kernels), list(problem.Z.values()), X, 1e-6)
    posterior = model.posterior()
    mean, var = (a.numpy() for a in posterior.predict_f(X))
    _, cov = posterior.predict_f(X, full_cov=True)
    c_mean, c_var = (a.numpy().reshape(9, -1, num_latent) for a in posterior.predict_components(X))
    c_cov = posterior.predict_components(X, full_cov=True)[1].numpy()
    c_cov = c_cov.reshape(-1, num_latent, 9, 9)
    cross = posterior.predict_component_covariance(X).numpy().reshape(9, 8, 8, num_latent)
    kl = 0.0
    for index in range(num_latent):
        m_U, S_U = reference_q(family, reference.root, index)
        # through U itself, not V: another route than the code's
        m = np.linalg.solve(reference.root, m_U)
        S = np.linalg.solve(reference.root, np.linalg.solve(reference.root, S_U).T).T
        kl += problems.gauss_kl(m, S)
        start, total, total_var = 0, np.zeros(9), np.zeros((9, 9))
        for c, phi in enumerate(reference.phi):
            at = slice(start, start + len(phi))
            own = phi.T @ m[at]
            own_cov = reference.prior_full[c] - phi.T @ phi + phi.T @ S[at, at] @ phi
            np.testing.assert_allclose(c_mean[:, c, index], own, atol=2e-7)
            np.testing.assert_allclose(c_var[:, c, index], np.diag(own_cov), atol=2e-7)
            np.testing.assert_allclose(c_cov[c, index], own_cov, atol=2e-7)
            total += own
            total_var += own_cov
            other = 0
            for d, phi_d in enumerate(reference.phi):
                if d != c:
                    between = phi.T @ S[at, other : other + len(phi_d)] @ phi_d
                    total_var += between
                    np.testing.assert_allclose(cross[:, c, d, index], np.diag(between), atol=2e-7)
                other += len(phi_d)
            np.testing.assert_allclose(cross[:, c, c, index], np.diag(own_cov), atol=2e-7)
            start += len(phi)
        np.testing.assert_allclose(mean[:, index], total, atol=2e-7)
        np.testing.assert_allclose(var[:, index], np.diag(total_var), atol=5e-7)
        np.testing.assert_allclose(cov[index], total_var, atol=5e-7)
    np.testing.assert_allclose(model.prior_kl(), kl, rtol=1e-6)


def test_starts_at_the_prior(family, problem):
    """Every family starts at (or, with a low rank to learn, within half a nat of) the prior."""
    model = problem.svgp(variational=family)
    start = float(model.prior_kl())
    low_rank = isinstance(family, vi.CoupledPrecision | vi.BlockPrecision)
    assert start == pytest.approx(0.0, abs=0.5 if low_rank else 1e-7)


def test_match_reaches_a_target_within_the_family(problem, rng):
    """match() is exact where the family holds the target."""
    kernel, inducing = problem.kernel(), problem.inducing()
    blocks = InducingBlocks(inducing, kernel)
    layout, cholesky = blocks.layout, blocks.cholesky()
    P = layout.total
    mean = tf.constant(rng.standard_normal((P, 1)))
    low = rng.standard_normal((P, 3))
    dense_target = np.eye(P) + low @ low.T
    roots = [rng.standard_normal((M, M)) for G, M in layout.group_shapes for _ in range(G)]
    block_target = block_diag(*(np.eye(len(A)) + A @ A.T for A in roots))
    for family, target in [
        (vi.MeanField(), block_target),
        (vi.CoupledCovariance(), dense_target),
        (vi.CoupledPrecision(rank=3), dense_target),
        (vi.BlockPrecision(rank=3), dense_target),
        (vi.BlockPrecision(rank=3), block_target),
        (vi.OptimalPrecision(), dense_target),
    ]:
        family.build(layout, 1)
        family.match(cholesky, mean, tf.constant(target[None]))
        q = family.whitened(cholesky)
        np.testing.assert_allclose(q.mean, mean, atol=1e-8)
        if isinstance(family, vi.BlockPrecision):  # found by iteration
            A_S = target @ q.covariance()[0].numpy()
            kl = 0.5 * (np.trace(A_S) - P - np.linalg.slogdet(A_S)[1])
            assert kl < 2e-3
        else:
            np.testing.assert_allclose(q.covariance()[0], np.linalg.inv(target), atol=1e-7)


def test_a_family_belongs_to_one_model_and_has_a_rank_below_its_size(problem):
    with pytest.raises(ValueError, match="rank must be a whole number of at least 1"):
        vi.BlockPrecision(rank=0)
    with pytest.raises(ValueError, match=f"rank=1000 exceeds .* P={problem.total}"):
        problem.svgp(variational=vi.BlockPrecision(rank=1000))
    family = vi.MeanField()
    with pytest.raises(ValueError, match="has no sizes yet"):
        _ = family.layout
    options = {"variational": family}
    likelihood = gpflow.likelihoods.Gaussian()
    problem.svgp(likelihood, **options)
    with pytest.raises(ValueError, match="belongs to a model already"):
        problem.svgp(likelihood, **options)


def test_factor_analysis_finds_all_its_columns_where_eigenvalues_are_equal():
    """LAPACK finds six of the eight largest of this matrix, if it is asked for no more."""
    rng = np.random.default_rng(55)
    coupling = np.zeros((30, 30))
    coupling[:3, 15:18] = rng.normal(size=(3, 3)) * 0.2
    turns = [np.linalg.qr(rng.normal(size=(15, 15)))[0] for _ in range(2)]
    Q = block_diag(*turns)
    A = Q @ (np.eye(30) + coupling + coupling.T) @ Q.T
    A = 0.5 * (A + A.T)
    D, B = factor_analysis(A, [15, 15], 8)
    assert B.shape == (30, 8)
    A_S = A @ np.linalg.inv(block_diag(*D) + B @ B.T)
    assert 0.5 * (np.trace(A_S) - 30 - np.linalg.slogdet(A_S)[1]) < 1e-3


families = script("benchmarks/families.py")


@pytest.mark.slow_but_first
@pytest.mark.parametrize("correlation", families.CORRELATIONS)
def test_how_far_each_family_is_from_the_exact_posterior(correlation):
    model = families.make_model(5000, correlation)

    def kl(name: str) -> float:
        return families.best_of_family(families.FAMILIES[name](), model, 300)[1]

    assert kl("mean field") > 20.0
    assert kl("precision, R = 16 (= M)") > 300.0
    assert kl("precision, R = 32") < 3.0
    assert kl("block precision, R = 8") < 0.1


# --- what all posteriors of additive models share: caches, shapes, draws --------------------------


def svgp(problem: problems.Problem, family: vi.VariationalFamily) -> gg.models.AdditiveSVGP:
    model = problem.svgp(
        variational=family,
        num_latent_gps=2,
        mean_function=gpflow.functions.Constant(np.array([1.0, -2.0])),
    )
    problems.randomise(family, np.random.default_rng(0))
    return model


def sgpr(problem: problems.Problem) -> gg.models.AdditiveSGPR:
    Y = np.hstack([problem.Y, problem.Y**2])
    return gg.models.AdditiveSGPR((problem.X, Y), problem.kernel(), problem.inducing(), 0.2)


def iterncgp(problem: problems.Problem) -> gg.models.IterNCGP:
    Y = np.hstack([problem.Y, problem.Y**2])
    likelihood = gpflow.likelihoods.Gaussian(0.2)
    model = gg.models.IterNCGP((problem.X, Y), problem.kernel(), likelihood, solver="newton")
    gg.optimizers.fit(model, hyperparameters=False)
    return model


DISTINCT = ("block precision", "iterncgp")
MODELS = {name: lambda p, f=family: svgp(p, f()) for name, family in FAMILIES.items()}
MODELS |= {"sgpr": sgpr, "iterncgp": iterncgp}


@pytest.fixture
def few() -> problems.Problem:
    return problems.few()


@functools.cache
def built(make):
    return make(problems.few())


@pytest.fixture(params=MODELS.values(), ids=MODELS)
def model(request):
    """Shared by the tests, which only read it."""
    return built(request.param)


@pytest.fixture(params=MODELS.values(), ids=MODELS)
def own_model(request, few):
    """To be changed."""
    return request.param(few)


def test_cached_equals_fused(model, few):
    X, without = few.X[:5], model.posterior("nocache")
    for kind in (PrecomputeCacheType.TENSOR, "variable"):
        cached = model.posterior(kind)
        for full_cov, full_output_cov in itertools.product([False, True], repeat=2):
            options = {"full_cov": full_cov, "full_output_cov": full_output_cov}
            assert_close(cached.predict_f(X, **options), model.predict_f(X, **options), atol=1e-9)
            ours, theirs = (p.predict_components(X, full_cov) for p in (cached, without))
            assert_close(ours, theirs, atol=1e-9)
        cross, expected = (p.predict_component_covariance(X) for p in (cached, without))
        np.testing.assert_allclose(cross, expected, atol=1e-9)
        draws, expected = (p.sample_components(X, 2, seed=1) for p in (cached, without))
        np.testing.assert_allclose(draws, expected, atol=1e-6)


@pytest.mark.parametrize(
    "model",
    [
        # one of each kind of posterior; families of q share theirs
        pytest.param(build, id=name, marks=() if name in DISTINCT else pytest.mark.slow)
        for name, build in MODELS.items()
    ],
    indirect=True,
)
def test_leading_dimensions(model, few):
    X, posterior = few.X[:8].reshape(2, 1, 4, 3), model.posterior()
    for full_cov, full_output_cov in [(False, False), (True, False), (False, True), (True, True)]:
        mean, cov = posterior.predict_f(X, full_cov=full_cov, full_output_cov=full_output_cov)
        for i in range(2):
            m, c = posterior.predict_f(X[i, 0], full_cov=full_cov, full_output_cov=full_output_cov)
            np.testing.assert_allclose(mean[i, 0], m, atol=1e-9)
            np.testing.assert_allclose(cov[i, 0], c, atol=1e-9)
    # outputs are independent: their covariances are zero, and the rest is the plain covariance
    full = posterior.predict_f(X[0, 0], full_cov=True, full_output_cov=True)[1].numpy()
    plain = posterior.predict_f(X[0, 0], full_cov=True)[1].numpy()
    rounding = 1e-9 if isinstance(model, gg.models.IterNCGP) else 0.0  # its actions are joint
    np.testing.assert_allclose(full[:, 0, :, 1], 0.0, atol=rounding)
    np.testing.assert_allclose(full[:, 1, :, 1], plain[1], rtol=0.0, atol=rounding)
    each = posterior.predict_f(X[0, 0], full_output_cov=True)[1]
    np.testing.assert_allclose(each, np.einsum("nlnk->nlk", full), atol=1e-9)


@pytest.mark.slow_but_first
def test_variable_cache_follows_training(own_model, few):
    model = own_model
    X = tf.constant(few.X[:4])
    posterior = model.posterior("variable")
    compiled = tf.function(posterior.predict_f)
    snapshot = model.posterior()
    before = compiled(X)[0].numpy()
    if hasattr(model, "variational"):
        problems.randomise(model.variational, np.random.default_rng(1))
    elif isinstance(model, gg.models.IterNCGP):
        model.accept(dataclasses.replace(model.state, weights=2.0 * model.state.weights))
    else:
        model.likelihood.variance.assign(0.9)
    np.testing.assert_array_equal(compiled(X)[0], before)
    posterior.update_cache()
    np.testing.assert_allclose(compiled(X)[0], model.predict_f(X)[0], atol=1e-9)
    np.testing.assert_allclose(snapshot.predict_f(X)[0], before, atol=1e-12)
    assert not np.allclose(before, compiled(X)[0])
    model.kernel["a"].variance.assign(2.0)
    model.kernel["rq"].lengthscales.assign(0.2)
    posterior.update_cache()
    np.testing.assert_allclose(compiled(X)[1], model.predict_f(X)[1], atol=1e-9)


def test_no_rows(model):
    X = np.zeros((0, 3))
    mean, var = model.predict_f(X)
    assert mean.shape == var.shape == (0, 2)
    assert model.predict_f(X, full_cov=True)[1].shape == (2, 0, 0)
    posterior = model.posterior()
    assert [a.shape for a in posterior.predict_components(X)] == [(0, 4, 2), (0, 4, 2)]
    assert posterior.predict_component_covariance(X).shape == (0, 4, 4, 2)


def test_components_and_their_covariances_add_up(model, few):
    X, posterior = few.X[:6], model.posterior()
    f_mean, f_var = posterior.predict_f(X)
    mean, var = posterior.predict_components(X)
    shift = model.mean_function(X)
    np.testing.assert_allclose(tf.reduce_sum(mean, axis=1) + shift, f_mean, atol=1e-9)
    cov = posterior.predict_component_covariance(X)
    np.testing.assert_allclose(tf.reduce_sum(cov, axis=[1, 2]), f_var, atol=1e-8)
    np.testing.assert_allclose(tf.einsum("nccl->ncl", cov), var, atol=1e-9)
    full = posterior.predict_components(X, full_cov=True)[1]
    np.testing.assert_allclose(tf.einsum("clnn->ncl", full), var, atol=1e-9)


def test_draws_have_the_posterior_moments(model, few):
    X, number = few.X[:4], 20_000
    posterior = model.posterior()
    draws = posterior.sample_components(X, number, seed=7).numpy()  # [S, N, C, L]
    mean, var = (a.numpy() for a in posterior.predict_components(X))
    cov = posterior.predict_component_covariance(X).numpy()
    np.testing.assert_allclose((draws.mean(axis=0) - mean) / np.sqrt(var + 1e-5), 0.0, atol=0.05)
    centred = draws - draws.mean(axis=0)
    sampled = np.einsum("sncl,sndl->ncdl", centred, centred) / number
    scale = np.sqrt(np.einsum("ncl,ndl->ncdl", var + 1e-5, var + 1e-5))
    np.testing.assert_allclose((sampled - cov) / scale, 0.0, atol=0.07)
    between = np.einsum("sncl,smcl->clnm", centred, centred) / number
    full = posterior.predict_components(X, full_cov=True)[1].numpy()
    spread = np.sqrt(np.einsum("clnn->cln", full) + 1e-5)
    scale = spread[..., :, None] * spread[..., None, :]
    np.testing.assert_allclose((between - full) / scale, 0.0, atol=0.07)


def test_draws_are_reproducible_and_add_up(model, few):
    X, posterior = few.X[:4], model.posterior()
    one = posterior.sample_components(X, 3, seed=1)
    np.testing.assert_array_equal(one, posterior.sample_components(X, 3, seed=1))
    assert not np.allclose(one, posterior.sample_components(X, 3, seed=2))
    assert not np.allclose(posterior.sample_components(X, 1), posterior.sample_components(X, 1))
    total = posterior.sample_f(X, 3, seed=1)
    np.testing.assert_allclose(
        total, tf.reduce_sum(one, axis=2) + model.mean_function(X), atol=1e-10
    )


def test_bad_requests_are_refused(few):
    posterior = MODELS["mean field"](few).posterior()
    with pytest.raises(ValueError, match="num_samples must be a whole number of at least 1"):
        posterior.sample_f(few.X, 0)
    with pytest.raises(ValueError, match="num_samples must be a whole number"):
        posterior.sample_components(few.X, 1.5)
    with pytest.raises(ValueError, match="reads column 1, but X has only 1"):
        posterior.predict_components(few.X[:, :1])
    with pytest.raises(ValueError, match="not a valid"):
        MODELS["mean field"](few).posterior("sometimes")


def test_every_posterior_class_is_tested_here():
    """A new posterior has to join MODELS above, or this fails."""
    from gpflow_gam.posteriors import AdditivePosterior
    from gpflow_gam.posteriors.inducing import ShapedPosterior  # no Gaussian one: test_shapes

    def leaves(cls: type) -> set[type]:
        return {x for s in cls.__subclasses__() for x in leaves(s)} or {cls}

    tested = {type(built(make).posterior("nocache")) for make in MODELS.values()}
    tested.add(ShapedPosterior)
    assert {c for c in leaves(AdditivePosterior) if c.__module__.startswith("gpflow_gam")} <= tested


HOW = {
    "deepcopy": copy.deepcopy,
    "gpflow's": gpflow.utilities.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
}
COPIED = {
    "sgpr": lambda problem: problem.sgpr(),
    "svgp": lambda problem: problem.svgp(gpflow.likelihoods.Gaussian(0.2)),
    "iterncgp": iterncgp,
}


@pytest.mark.slow_but_first
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", COPIED)
def test_a_copy_predicts_the_same_and_goes_on_alone(name, how):
    problem = problems.few(30)
    model, X = COPIED[name](problem), tf.constant(problem.X[:5])
    data = (problem.data,) if name == "svgp" else ()
    for parameter in model.trainable_parameters:
        shift = 0.1 * np.sin(np.arange(parameter.unconstrained_variable.shape.num_elements()))
        variable = parameter.unconstrained_variable
        variable.assign_add(shift.reshape(variable.shape))
    expected = [*model.predict_f(X), *model.predict_components(X), model.elbo(*data)]
    model.posterior().predict_f(X)
    for jit in (False, True):  # what was compiled of it is no part of the copy
        tf.function(model.predict_f, jit_compile=jit, autograph=False)(X)
    assert_close(copy.copy(model).predict_f(X), model.predict_f(X), rtol=0)
    other = HOW[how](model)
    result = [*other.predict_f(X), *other.predict_components(X), other.elbo(*data)]
    assert_close(result, expected, rtol=1e-10)
    with tf.GradientTape() as tape:
        loss = -other.elbo(*data)
    for variable, slope in zip(
        other.trainable_variables, tape.gradient(loss, other.trainable_variables)
    ):
        variable.assign_sub(1e-4 * slope)  # training goes on
    assert float(other.elbo(*data)) > float(expected[-1]) + 1e-3
    after = [*model.predict_f(X), *model.predict_components(X), model.elbo(*data)]
    assert_close(after, expected, rtol=1e-10)
