"""The solvers of IterNCGP: the published theorems, dense references, and each other."""

import re

import gpflow
import laplace
import numpy as np
import problems
import pytest
import tensorflow as tf
from gpflow.functions import Zero
from gpflow.likelihoods import Gaussian, Poisson, Softmax
from scipy.linalg import block_diag, eigh

import gpflow_gam as gg
from gpflow_gam.newton import operators
from gpflow_gam.newton.curvatures import (
    DensePrecision,
    DiagonalPrecision,
    SoftmaxPrecision,
    automatic_curvature,
    checked_curvature,
    curvature,
)
from gpflow_gam.newton.operators import KernelOperator, KernelProduct, LatentKernels
from gpflow_gam.newton.problem import ActionPosteriorState, LaplaceProblem
from gpflow_gam.newton.solvers import Informative, IterGP, ReducedNewton, Residual, UnitVectors

N, C = 60, 3
Bernoulli = gg.likelihoods.Bernoulli


def problem(name, rng, n=N):
    """A small problem, its dense K and observations."""
    X = rng.uniform(-1, 1, (n, 2))
    kernel = gpflow.kernels.Matern32(3.0, 0.6)
    f = np.linalg.cholesky(kernel(X).numpy() + 1e-9 * np.eye(n)) @ rng.normal(size=(n, C))
    likelihood, Y = {
        "gaussian": (Gaussian(0.2), f[:, :1] + 0.4 * rng.normal(size=(n, 1))),
        "binary": (Bernoulli("logit"), (rng.uniform(size=(n, 1)) < 1 / (1 + np.exp(-f[:, :1])))),
        "poisson": (Poisson(), rng.poisson(np.exp(0.5 * f[:, :1]))),
        "softmax": (Softmax(C), f.argmax(axis=1)[:, None]),
    }[name]
    Y = tf.constant(np.asarray(Y, dtype=np.int32 if name == "softmax" else float))
    operator = KernelOperator(LatentKernels.of(kernel, C if name == "softmax" else 1), X_(X))
    return LaplaceProblem(operator, likelihood, Y, Zero()), kernel(X).numpy()


def X_(X):
    return tf.constant(X)


def test_a_problem_of_some_rows_has_their_prior_variances(rng):
    X = X_(rng.uniform(-1, 1, (N, 1)))
    operator = KernelOperator(LatentKernels.of(gpflow.kernels.Linear(), 1), X)
    of, rows = LaplaceProblem(operator, Poisson(), tf.ones([N, 1], X.dtype), Zero()), [3, 8, 5]
    expected = np.square(X.numpy()).T
    np.testing.assert_allclose(of.prior_variances(), expected)
    np.testing.assert_allclose(of.of_rows(tf.constant(rows)).prior_variances(), expected[:, rows])


def reference(name, result, K):
    """Mode [Q, N] and dense covariance at the data [Q N, Q N] by Rasmussen & Williams."""
    Y = result.Y.numpy()
    if name == "softmax":
        F, W, _ = laplace.classes(K, Y[:, 0], C)
        big = np.kron(np.eye(C), K)
        return F.T, np.linalg.solve(np.eye(C * N) + big @ W, big)
    y = Y[:, 0]

    def derivatives(f):
        if name == "poisson":
            return y * f - np.exp(f), y - np.exp(f), np.exp(f)
        p = 1 / (1 + np.exp(-f))
        return -np.logaddexp(0, (1 - 2 * y) * f), y - p, p * (1 - p)

    f, _, W = laplace.binary_or_counts(K, derivatives)
    return f[None], laplace.covariance(K, W, K, K)


def run_to_the_end(solver, of):
    run = solver.start(of)
    reports = list(run.steps())
    return run, reports, run.finish()


def covariance(state, K):
    """Posterior covariance at the data [Q N, Q N]."""
    S = state.actions.numpy()
    KS = np.stack([np.concatenate([K @ s for s in action]) for action in S], axis=1)
    E = KS @ state.factor.numpy()
    return np.kron(np.eye(S.shape[1]), K) - E @ E.T


# --- dense Laplace posteriors --------------------------------------------------------------------


@pytest.mark.parametrize("name", ["binary", "poisson", "softmax"])
def test_default_solver_finds_the_dense_laplace_posterior(name, rng):
    """And never claims less variance than that."""
    of, K = problem(name, rng)
    mode, dense = reference(name, of, K)
    for number in (1, 5, 25, N * C):
        solver = ReducedNewton(num_actions=number, tolerance=1e-11)
        run, reports, state = run_to_the_end(solver, of)
        assert np.linalg.eigvalsh(covariance(state, K) - dense).min() > -1e-6
    np.testing.assert_allclose(run.g, mode, atol=1e-6)
    np.testing.assert_allclose(covariance(state, K), dense, atol=1e-6)
    assert reports[-1].residual < 1e-5


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("name", "policy"),
    [
        *((name, UnitVectors()) for name in ("binary", "poisson", "softmax")),
        ("poisson", Residual()),
    ],
)
def test_literal_solver_with_all_actions_is_the_dense_laplace_posterior(name, policy, rng):
    of, K = problem(name, rng)
    mode, dense = reference(name, of, K)
    options = {"tolerance": 1e-9, "inner_tolerance": 1e-10}
    solver = IterGP(policy, max_steps=40, max_iterations=N * C, recycle=False, **options)
    run, _, state = run_to_the_end(solver, of)
    np.testing.assert_allclose(run.Kv, mode, atol=1e-6)
    if name == "softmax":
        # The pseudo-inverse has no noise where the softmax is blind, as if a common shift were
        # observed. Actions in the range of W, such as residuals and ours, never meet that.
        apart = np.kron(np.eye(C) - 1 / C, np.eye(N))
        dense = apart @ dense @ apart
    if not isinstance(policy, Residual):  # which stops once the mean is there
        np.testing.assert_allclose(covariance(state, K), dense, atol=1e-5)


# --- the paper's theorems ------------------------------------------------------------------------


def test_gaussian_likelihood_takes_one_step_to_gpr(rng):
    """Theorem A.2: IterGP on K + sigma^2 I, and the exact posterior at full rank."""
    of, K = problem("gaussian", rng)
    solver = IterGP(UnitVectors(), max_steps=1, max_iterations=N)
    run, _, state = run_to_the_end(solver, of)
    X, Y = of.X.numpy(), of.Y.numpy()
    gpr = gpflow.models.GPR((X, Y), gpflow.kernels.Matern32(3.0, 0.6), noise_variance=0.2)
    mean, cov = gpr.predict_f(X, full_cov=True)
    np.testing.assert_allclose(run.Kv[0], mean[:, 0], atol=1e-8)
    np.testing.assert_allclose(covariance(state, K), cov[0], atol=1e-8)
    again = run._outer()
    np.testing.assert_allclose(run.Kv[0], mean[:, 0], atol=1e-8)
    assert again.converged


def test_residual_actions_are_conjugate_gradients(rng):
    """After j residual actions v is the best of the Krylov space, which defines CG."""
    of, K = problem("gaussian", rng)
    A, b = K + 0.2 * np.eye(N), of.Y.numpy()[:, 0]
    for j in (1, 4, 12):
        basis = b[:, None] / np.linalg.norm(b)
        for _ in range(j - 1):
            basis, _ = np.linalg.qr(np.column_stack([basis, A @ basis[:, -1]]))
        x = basis @ np.linalg.solve(basis.T @ A @ basis, basis.T @ b)
        run, _, _ = run_to_the_end(IterGP(max_steps=1, max_iterations=j), of)
        np.testing.assert_allclose(run.v[0], x, atol=1e-7)


@pytest.mark.parametrize(
    ("name", "policy"),
    [("poisson", UnitVectors()), ("poisson", Residual()), ("softmax", Informative())],
)
def test_variance_never_grows_with_actions(name, policy, rng):
    """Theorem A.3, within a step; and no posterior claims less variance than the exact one."""
    of, K = problem(name, rng)
    last = np.tile(np.diag(K), C if name == "softmax" else 1)
    for iterations in (1, 2, 5, 10, 20):
        _, _, state = run_to_the_end(IterGP(policy, max_steps=1, max_iterations=iterations), of)
        now = np.diag(covariance(state, K))
        assert np.all(now <= last + 1e-9)
        last = now


@pytest.mark.parametrize(
    "solver",
    [
        ReducedNewton(),
        ReducedNewton(policy=Residual(), num_actions=400, tolerance=1e-9),
        IterGP(max_steps=60, max_iterations=200, tolerance=1e-8),
    ],
)
def test_kernels_of_their_own_lead_no_class_to_claim_more(solver, rng):
    """They lead out of the range of W, where an action would take a shift for observed."""
    X = rng.uniform(size=(N, 2))
    kernels = [
        gpflow.kernels.Matern32(10.0, 0.3),
        gpflow.kernels.SquaredExponential(10.0, 0.5),
        gpflow.kernels.Matern52(20.0, 0.2),
    ]
    F = np.stack([3 * np.sin(5 * X[:, 0]), 3 * np.cos(4 * X[:, 1]), np.zeros(N)], axis=1)
    labels = (F + rng.gumbel(size=F.shape)).argmax(axis=1)
    model = gg.models.IterNCGP(
        (X, labels[:, None].astype(float)),
        gpflow.kernels.SeparateIndependent(kernels),
        Softmax(C),
        solver=solver,
    )
    assert gg.optimizers.fit(model, hyperparameters=False).converged
    K = block_diag(*(k(X).numpy() for k in kernels))
    mode, W, _ = laplace.classes(K, labels, C)
    mean, found = model.predict_f(X, full_cov=True, full_output_cov=True)
    np.testing.assert_allclose(mean, mode, atol=0.02)
    found = found.numpy().transpose(1, 0, 3, 2).reshape(C * N, C * N)
    exact, least = np.linalg.solve(np.eye(C * N) + K @ W, K), 1e-3 * np.eye(C * N)
    assert eigh(found + least, exact + least, eigvals_only=True)[0] > 0.995


def test_recycling_changes_no_answer_but_saves_products(rng):
    of, _ = problem("poisson", rng)
    options = {"max_steps": 40, "max_iterations": 60, "tolerance": 1e-9, "inner_tolerance": 1e-10}
    fresh, with_out, _ = run_to_the_end(IterGP(recycle=False, **options), of)
    recycled, with_in, _ = run_to_the_end(IterGP(recycle=True, **options), of)
    np.testing.assert_allclose(recycled.Kv, fresh.Kv, atol=1e-6)
    assert len(with_in) > 2
    assert with_in[-1].sweeps - with_out[-1].sweeps < 0.6 * with_out[-1].sweeps


def test_operators_follow_parameters_and_white_noise(rng):
    """The next problem has other values of the kernel's parameters, and other noise."""
    X = X_(rng.uniform(-1, 1, (N, 2)))
    Y = X_(rng.poisson(1.5, (N, 1)).astype(float))
    kernel = gpflow.kernels.Matern32(1.0, 0.5) + gpflow.kernels.White(0.3)
    solver = IterGP(max_steps=30, max_iterations=N, tolerance=1e-10, inner_tolerance=1e-11)
    operator = KernelOperator(LatentKernels.of(kernel, 1), X)
    run_to_the_end(solver, LaplaceProblem(operator, Poisson(), Y, Zero()))
    kernel.kernels[0].lengthscales.assign(0.2)
    kernel.kernels[1].variance.assign(3.0)
    later = LaplaceProblem(operator.renewed(), Poisson(), Y, Zero())
    run, _, _ = run_to_the_end(solver, later)
    y, K = Y.numpy()[:, 0], kernel(X).numpy()
    mode, _, _ = laplace.binary_or_counts(
        K, lambda f: (y * f - np.exp(f), y - np.exp(f), np.exp(f))
    )
    np.testing.assert_allclose(run.Kv[0], mode, atol=1e-6)


# --- the safeguarded solver ----------------------------------------------------------------------


def test_kernels_that_are_nearly_singular(rng):
    """Smooth kernels and duplicated rows: T stays K S, and the mode is still found."""
    X = rng.uniform(-1, 1, (40, 1))
    X, kernel = np.vstack([X, X]), gpflow.kernels.SquaredExponential(2.0, 0.8)
    f = np.sin(4 * X)
    operator = KernelOperator(LatentKernels.of(kernel, 1), X_(X))
    of = LaplaceProblem(operator, Gaussian(0.1), X_(f + 0.3 * rng.normal(size=f.shape)), Zero())
    run = ReducedNewton(num_pivots=4, tolerance=1e-10).start(of)
    list(run.steps())
    K = kernel(X).numpy()
    np.testing.assert_allclose(run.T[0], K @ run.S[0].numpy(), atol=1e-6)
    exact = K @ np.linalg.solve(K + 0.1 * np.eye(80), of.Y.numpy()[:, 0])
    np.testing.assert_allclose(run.g[0], exact, atol=1e-5)


def test_a_warm_start_saves_sweeps(rng):
    of, _ = problem("softmax", rng)
    solver = ReducedNewton(num_pivots=3, tolerance=1e-8)
    cold, reports, _ = run_to_the_end(solver, of)
    run = solver.start(of, ActionPosteriorState.nothing(cold.v))
    warm = list(run.steps())
    assert len(warm) < len(reports)
    assert warm[0].log_posterior == pytest.approx(reports[-1].log_posterior, abs=1e-6)


def test_informative_actions_explain_more_than_any_unit_vectors(rng):
    of, K = problem("poisson", rng)
    left = {}
    for name, policy in {"ours": Informative(), "units": UnitVectors()}.items():
        solver = ReducedNewton(policy, num_actions=8, tolerance=1e-9)
        left[name] = np.trace(covariance(run_to_the_end(solver, of)[2], K))
    assert left["ours"] < 0.8 * left["units"]


# --- gradients and curvatures of likelihoods -----------------------------------------------------

lik = gg.likelihoods


def _binary(rng):
    return rng.integers(0, 2, (N, 1)).astype(float)


CASES = {
    "logit": (lambda: lik.Bernoulli("logit"), _binary, 1),
    "probit": (lambda: lik.Bernoulli("probit"), _binary, 1),
    "cloglog": (lambda: lik.Bernoulli("cloglog"), _binary, 1),
    "softmax": (lambda: gpflow.likelihoods.Softmax(4), lambda r: r.integers(0, 4, (N, 1)), 4),
}


@pytest.mark.parametrize("name", CASES)
def test_closed_forms_equal_automatic_differentiation(name, rng):
    make, draw, L = CASES[name]
    likelihood, Y = make(), tf.constant(draw(rng))
    X, F = rng.uniform(size=(N, 2)), tf.constant(3.0 * rng.normal(size=(N, L)))
    closed, automatic = curvature(likelihood, X, F, Y), automatic_curvature(likelihood, X, F, Y)
    np.testing.assert_allclose(closed.gradient, automatic.gradient, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(
        closed.precision.blocks(), automatic.precision.blocks(), rtol=1e-7, atol=1e-9
    )


def test_counts_are_differentiated(rng):
    """Poisson and binomial, by their closed forms."""
    F, trials = 3.0 * rng.normal(size=(N, 1)), rng.integers(1, 9, (N, 1))
    counts, hits = rng.poisson(3.0, (N, 1)), rng.binomial(trials, 0.4)
    rate, p = 2.5 * np.exp(F), 1.0 / (1.0 + np.exp(-F))
    for likelihood, Y, slope, bend in (
        (gpflow.likelihoods.Poisson(binsize=2.5), counts, counts - rate, rate),
        (lik.Binomial(), np.hstack([hits, trials]), hits - trials * p, trials * p * (1.0 - p)),
    ):
        result = curvature(likelihood, np.zeros((N, 1)), tf.constant(F), Y.astype(float))
        np.testing.assert_allclose(result.gradient, slope.T, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(result.precision.blocks()[:, 0], bend, rtol=1e-9)


@pytest.mark.parametrize("link", ["logit", "probit"])
def test_binary_curvature_far_out(link):
    """Far on the wrong side a logit has slope 1; a probit |f| + 1/|f| and curvature near 1."""
    F = tf.constant([[-300.0], [-30.0], [30.0], [300.0]], dtype=tf.float64)
    result = curvature(lik.Bernoulli(link), np.zeros((4, 1)), F, tf.ones_like(F))
    w = result.precision.blocks().numpy()[:, 0, 0]
    assert np.all(np.isfinite(result.gradient))
    assert np.all(np.isfinite(w) & (w >= 0))
    expected = [1.0, 1.0] if link == "logit" else [300 + 1 / 300, 30 + 1 / 30]
    np.testing.assert_allclose(result.gradient[0, :2], expected, rtol=1e-5)
    if link == "probit":
        np.testing.assert_allclose(w[1], 1 - 1 / 30**2, rtol=1e-4)


def _precisions(rng, Q=3):
    a = rng.uniform(0.1, 1.0, (Q, N))
    root = rng.normal(size=(N, Q, Q))
    return {
        "diagonal": DiagonalPrecision(tf.constant(a)),
        "softmax": SoftmaxPrecision(tf.constant(a)),
        "dense": DensePrecision(tf.constant(root @ root.transpose(0, 2, 1))),
        "singular": DensePrecision(tf.constant(root[:, :, :2] @ root[:, :, :2].transpose(0, 2, 1))),
    }


def test_dense_blocks_are_summed_some_data_at_a_time(rng, monkeypatch):
    W, T = _precisions(rng)["dense"], rng.normal(size=(3, N, 5))
    whole = W.gram(T)
    monkeypatch.setattr(gg.curvatures, "_ENTRIES", 3 * 5 * 3)
    np.testing.assert_allclose(W.gram(T), whole, atol=1e-12)


@pytest.mark.parametrize("name", ["diagonal", "softmax", "dense", "singular"])
def test_products_equal_those_of_the_blocks(name, rng):
    W = _precisions(rng)[name]
    blocks = W.blocks().numpy()
    V, T = rng.normal(size=(3, N, 2)), rng.normal(size=(3, N, 5))
    noise = rng.uniform(0.0, 2.0, (3, N))
    pinv = np.stack([np.linalg.pinv(b, rcond=1e-12) for b in blocks])
    shrunk = np.stack([np.linalg.solve(np.eye(3) + b * n, b) for b, n in zip(blocks, noise.T)])
    np.testing.assert_allclose(W.multiply(V), np.einsum("npq,qnr->pnr", blocks, V), atol=1e-12)
    np.testing.assert_allclose(W.solve(V), np.einsum("npq,qnr->pnr", pinv, V), atol=1e-9)
    np.testing.assert_allclose(W.shrunk(noise).blocks(), shrunk, atol=1e-10)
    seen = np.einsum("npq,nqk,kn->pn", blocks, pinv, V[..., 0])
    np.testing.assert_allclose(W.in_range(tf.constant(V[..., 0])), seen, atol=1e-10)
    for T_, Ts in ((T, T), (T[:1], np.repeat(T[:1], 3, axis=0))):
        gram = np.einsum("pnb,npq,qnc->pbqc", Ts, blocks, Ts).reshape(15, 15)
        np.testing.assert_allclose(W.gram(T_), gram, atol=1e-10)
    nodes = rng.uniform(size=2)
    halves = nodes @ blocks.reshape(2, -1)
    np.testing.assert_allclose(W.summed(nodes).numpy().ravel(), halves, atol=1e-12)
    smallest = np.linalg.eigvalsh(blocks).min(axis=1)
    if name != "softmax":  # whose own answer is a bound of the sign
        np.testing.assert_allclose(W.smallest(), smallest, atol=1e-10)
    np.testing.assert_allclose(W.weighted(noise[0]).blocks(), noise[0][:, None, None] * blocks)


def test_curvatures_that_overflow_say_so():
    poisson, F = gpflow.likelihoods.Poisson(), tf.fill([N, 1], tf.constant(800.0, tf.float64))
    with pytest.raises(ValueError, match="Poisson has no finite value"):
        checked_curvature(curvature(poisson, F, F, tf.ones_like(F)), poisson)


# --- products, columns and partial factors of kernels --------------------------------------------


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
    kernel, X, other = KERNELS[name](), _inputs(rng), _inputs(rng)
    V = tf.Variable(rng.normal(size=(N, 4)))
    product = KernelProduct(kernel)

    def values(multiply, X2):
        with tf.GradientTape() as tape:
            out = multiply(X2)
            loss = tf.reduce_sum(tf.sin(out))
        return out, tape.gradient(loss, [V, *kernel.trainable_variables])

    for X2 in (X, other):
        dense = values(lambda X2: kernel(X, X2) @ V, X2)
        for call in (values, tf.function(values, autograph=False)):
            ours = call(lambda X2: product(X, X2, V), X2)
            np.testing.assert_allclose(ours[0], dense[0], rtol=1e-10, atol=1e-10)
            problems.assert_close(ours[1], dense[1], rtol=1e-7, atol=1e-8)


@pytest.mark.slow
def test_product_never_holds_the_matrix(rng):
    """The largest tensor of the compiled program is far below N^2 entries."""
    X, V = _inputs(rng, 6000), tf.zeros([6000, 1], tf.float64)
    product = KernelProduct(KERNELS["se"]())

    @tf.function(jit_compile=True)
    def run(X, V):
        return product._product(X, X, V)

    text = run.experimental_get_compiler_ir(X, V)(stage="optimized_hlo")
    shapes = re.findall(r"f64\[([\d,]+)\]", text)
    sizes = [np.prod([int(n) for n in shape.split(",")]) for shape in shapes]
    assert max(sizes) < 6000**2 / 50


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
