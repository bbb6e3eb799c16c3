"""The solvers of IterNCGP: the published theorems, dense references, and each other."""

from __future__ import annotations

import gpflow
import laplace
import numpy as np
import pytest
import tensorflow as tf
from gpflow.functions import Zero
from gpflow.likelihoods import Gaussian, Poisson, Softmax

import gpflow_gam as gg
from gpflow_gam.newton.operators import KernelOperator, LatentKernels
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
    of, K = problem(name, rng)
    mode, dense = reference(name, of, K)
    solver = ReducedNewton(num_actions=N * C, tolerance=1e-11)
    run, reports, state = run_to_the_end(solver, of)
    np.testing.assert_allclose(run.g, mode, atol=1e-6)
    np.testing.assert_allclose(covariance(state, K), dense, atol=1e-6)
    assert reports[-1].residual < 1e-5


@pytest.mark.parametrize(
    ("name", "policy"),
    [("binary", UnitVectors()), ("poisson", UnitVectors()), ("poisson", Residual())],
)
def test_literal_solver_with_all_actions_is_the_dense_laplace_posterior(name, policy, rng):
    of, K = problem(name, rng)
    mode, dense = reference(name, of, K)
    solver = IterGP(
        policy, max_steps=30, max_iterations=N, recycle=False, tolerance=1e-9, inner_tolerance=1e-10
    )
    run, _, state = run_to_the_end(solver, of)
    np.testing.assert_allclose(run.Kv, mode, atol=1e-6)
    if not isinstance(policy, Residual):  # which stops once the mean is there
        np.testing.assert_allclose(covariance(state, K), dense, atol=1e-6)


def test_all_unit_vectors_know_too_much_of_a_common_shift(rng):
    """
    The pseudo-inverse has no noise where the softmax is blind, as if the shift were observed.

    So S = I is Rasmussen & Williams' posterior on differences of classes only: the paper's formula
    puts the variance of a common shift at 0, theirs leaves it at the prior's. Actions in the range
    of W, such as residuals and ours, never meet that.
    """
    of, K = problem("softmax", rng)
    mode, dense = reference("softmax", of, K)
    solver = IterGP(
        UnitVectors(), max_steps=40, max_iterations=N * C, recycle=False, tolerance=1e-8
    )
    run, _, state = run_to_the_end(solver, of)
    np.testing.assert_allclose(run.Kv, mode, atol=1e-5)
    P = np.kron(np.eye(C) - 1 / C, np.eye(N))
    one = np.kron(np.ones((1, C)) / C, np.eye(N))
    result = covariance(state, K)
    np.testing.assert_allclose(P @ result @ P, P @ dense @ P, atol=1e-5)
    np.testing.assert_allclose(one @ result @ one.T, 0.0, atol=1e-5)
    np.testing.assert_allclose(one @ dense @ one.T, K / C, atol=1e-6)


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


@pytest.mark.parametrize("name", ["binary", "softmax"])
def test_computed_posteriors_never_claim_more_than_the_exact_one(name, rng):
    of, K = problem(name, rng)
    _, dense = reference(name, of, K)
    for number in (1, 5, 25):
        _, _, state = run_to_the_end(ReducedNewton(num_actions=number, tolerance=1e-10), of)
        assert np.linalg.eigvalsh(covariance(state, K) - dense).min() > -1e-6


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


@pytest.mark.parametrize("variance", [0.5, 20.0])
def test_log_posterior_never_falls(variance, rng):
    X = rng.uniform(-1, 1, (150, 2))
    labels = (np.floor(2 * X[:, :1] + 2) % 4).astype(np.int32)
    operator = KernelOperator(LatentKernels.of(gpflow.kernels.Matern32(variance, 0.1), 4), X_(X))
    of = LaplaceProblem(operator, Softmax(4), tf.constant(labels), Zero())
    solver = ReducedNewton(num_actions=12, num_pivots=5, tolerance=1e-8)
    values = [r.log_posterior for r in solver.start(of).steps()]
    assert np.all(np.diff(values) >= -1e-9)
    assert len(values) > 4


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


# --- policies ------------------------------------------------------------------------------------


def test_informative_actions_explain_more_than_any_unit_vectors(rng):
    of, K = problem("poisson", rng)
    left = {}
    for name, policy in {"ours": Informative(), "units": UnitVectors()}.items():
        solver = ReducedNewton(policy, num_actions=8, tolerance=1e-9)
        left[name] = np.trace(covariance(run_to_the_end(solver, of)[2], K))
    assert left["ours"] < 0.8 * left["units"]
