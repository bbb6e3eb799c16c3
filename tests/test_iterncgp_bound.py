"""The bound of IterNCGP, by which hyperparameters are learnt."""

from __future__ import annotations

import gpflow
import laplace
import numpy as np
import pytest
import tensorflow as tf
from gpflow.likelihoods import Gaussian, Poisson
from iterncgp_cases import N, data, fit, fitted, kernel
from scipy.stats import multivariate_normal

from gpflow_gam.models import IterNCGP
from gpflow_gam.newton.solvers import ReducedNewton
from gpflow_gam.newton.variational import normal_points


def numpy_bound(model):
    """E_q[log p] - KL with q's mean and covariance formed densely over all latent values."""
    state, (X, _) = model.state, model.data
    S = state.actions.numpy().reshape(state.actions.shape[0], -1).T  # [QN, B]
    Q = state.weights.shape[0]
    K = np.kron(np.eye(Q), kernel()(X).numpy()) + 1e-10 * np.eye(Q * len(X))
    G = S.T @ K @ S + state.noise.numpy()
    Gi = np.linalg.pinv(G, rcond=1e-13, hermitian=True)
    mean = K @ S @ Gi @ state.targets.numpy()
    cov = K - K @ S @ Gi @ S.T @ K
    trace = np.trace(np.linalg.solve(K, cov))
    _, log_K = np.linalg.slogdet(K)
    _, log_cov = np.linalg.slogdet(cov)
    kl = 0.5 * (trace + mean @ np.linalg.solve(K, mean) - len(K) + log_K - log_cov)
    F, V = mean.reshape(Q, -1).T, np.diag(cov).reshape(Q, -1).T
    if Q == 1:
        return float(np.sum(model.likelihood.variational_expectations(X, F, V, model.data[1]))) - kl
    expected, blocks = 0.0, cov.reshape(Q, len(X), Q, len(X))
    for n, label in enumerate(model.data[1].numpy()[:, 0].astype(int)):
        root = np.linalg.cholesky(blocks[:, n, :, n])  # the outputs' joint covariance
        p = laplace.softmax(F[n] + normal_points(Q) @ root.T)
        expected += np.log(p[:, label]).mean()
    return expected - kl


@pytest.mark.parametrize("name", ["counts", "binary", "classes"])
def test_bound_equals_dense_numpy(name, rng):
    """Also for the blocks of a softmax, whose noise is a pseudo-inverse."""
    model = fitted(name, rng, solver=ReducedNewton(num_actions=12))
    assert float(model.elbo()) == pytest.approx(numpy_bound(model), abs=1e-4)


def test_expectations_over_classes_are_those_of_draws(rng):
    """Fixed points have a Gaussian's moments; what they average to is right, and the same twice."""
    for Q in (2, 3, 10):
        points = normal_points(Q)
        np.testing.assert_allclose(points.mean(axis=0), 0.0, atol=1e-12)
        np.testing.assert_allclose(points.T @ points / len(points), np.eye(Q), atol=1e-12)
    A = rng.normal(size=(3, 3)) * 1.5
    mean, cov = rng.normal(size=3), A @ A.T
    draws = np.log(laplace.softmax(rng.multivariate_normal(mean, cov, 200_000))).mean(axis=0)
    fixed = mean + normal_points(3) @ np.linalg.cholesky(cov).T
    np.testing.assert_allclose(np.log(laplace.softmax(fixed)).mean(axis=0), draws, atol=0.02)
    model = fitted("classes", rng)
    assert float(model.elbo()) == float(model.elbo())


def test_bound_is_below_the_evidence(rng):
    """Against importance sampling from a wide Gaussian around the dense Laplace posterior."""
    X = rng.uniform(-1, 1, (12, 2))
    Y = rng.poisson(2.0, (12, 1)).astype(float)
    model = IterNCGP((X, Y), kernel(), Poisson(), solver="newton")
    fit(model)
    K = kernel()(X).numpy()
    y = Y[:, 0]
    f, _, W = laplace.binary_or_counts(K, lambda f: (y * f - np.exp(f), y - np.exp(f), np.exp(f)))
    proposal = multivariate_normal(f, 1.2 * laplace.covariance(K, W, K, K) + 1e-9 * np.eye(12))
    draws = proposal.rvs(200_000, random_state=1)
    log_w = multivariate_normal(np.zeros(12), K).logpdf(draws) - proposal.logpdf(draws)
    log_w += Poisson()._scalar_log_prob(None, draws, y).numpy().sum(axis=1)
    top = log_w.max()
    w = np.exp(log_w - top)
    evidence, error = top + np.log(w.mean()), w.std() / w.mean() / np.sqrt(len(w))
    assert error < 0.01
    for number in (1, 3, 12):
        few = IterNCGP((X, Y), kernel(), Poisson(), max_solver_steps=number, solver="newton")
        fit(few)
        assert float(few.elbo()) < evidence + 3 * error
    assert float(model.elbo()) > evidence - 0.5  # Laplace's q is not the best Gaussian


def test_bound_has_exact_gradients_and_minibatches(rng):
    X, Y = data(rng)["real"]
    model = IterNCGP(
        (X, Y),
        kernel(),
        Gaussian(0.3),
        mean_function=gpflow.functions.Constant(0.1),
        solver="newton",
    )
    fit(model)
    with tf.GradientTape() as tape:
        value = model.elbo()
    gradients = tape.gradient(value, model.trainable_variables)
    assert len(gradients) == 4
    for variable, gradient in zip(model.trainable_variables, gradients):
        start = variable.numpy()
        ends = []
        for step in (1e-5, -1e-5):
            variable.assign(start + step)
            ends.append(float(model.elbo()))
        variable.assign(start)
        assert float(gradient) == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-4, abs=1e-5)
    halves = [model.elbo(rows) for rows in np.arange(N).reshape(2, -1)]
    assert float(np.mean(halves)) == pytest.approx(float(value), rel=1e-12)


def test_bias_of_the_bound_and_of_its_gradient_vanishes_with_actions(rng):
    """Against the evidence of normal data; few actions lose evidence and bend the gradient."""
    X, Y = data(rng)["real"]
    gpr = gpflow.models.GPR((X, Y), kernel(), noise_variance=0.3)

    def of(model, function):
        parts = (model.kernel.variance, model.kernel.lengthscales, model.likelihood.variance)
        with tf.GradientTape() as tape:
            value = function()
        return float(value), np.array(
            tape.gradient(value, [part.unconstrained_variable for part in parts])
        )

    evidence, exact = of(gpr, gpr.log_marginal_likelihood)
    short, bent = [], []
    for number in (3, 10, N):
        model = IterNCGP((X, Y), kernel(), Gaussian(0.3), solver=ReducedNewton(num_actions=number))
        fit(model)
        bound, slopes = of(model, model.elbo)
        short.append(evidence - bound)
        bent.append(np.linalg.norm(slopes - exact) / np.linalg.norm(exact))
    assert short[0] > short[1] > short[2] > -1e-6
    assert bent[0] > bent[1] > bent[2]
    assert short[0] > 1.0
    assert bent[0] > 0.1
    assert max(short[2], bent[2]) < 1e-4


@pytest.mark.slow
def test_learnt_hyperparameters_equal_those_of_gpr(rng):
    X, Y = data(rng)["real"]
    model = IterNCGP((X, Y), kernel(), Gaussian(0.5), solver="newton")
    result = fit(model, hyperparameters=True)
    gpr = gpflow.models.GPR((X, Y), kernel(), noise_variance=0.5)
    gpflow.optimizers.Scipy().minimize(gpr.training_loss, gpr.trainable_variables)
    assert result.elbo == pytest.approx(float(gpr.log_marginal_likelihood()), abs=0.1)
    assert result.converged
    ours, theirs = (np.log(m.kernel.lengthscales.numpy()) for m in (model, gpr))
    assert ours == pytest.approx(theirs, abs=0.1)


def test_bound_never_falls_while_hyperparameters_are_learnt(rng):
    model = IterNCGP(data(rng)["counts"], kernel(), Poisson(), solver="newton")
    fit(model)
    before = float(model.elbo())
    result = fit(model, hyperparameters=True, max_rounds=4)
    assert result.elbo >= before
    assert float(model.elbo()) == pytest.approx(result.elbo, abs=1e-6)
