"""Newton steps to the nearest Gaussian: closed forms, dense references, and what it is for."""

from __future__ import annotations

import gpflow
import laplace
import numpy as np
import pytest
from gpflow.likelihoods import Gaussian, Poisson, Softmax
from iterncgp_cases import fit, made, noisy_classes
from scipy.special import expit

import gpflow_gam as gg
from gpflow_gam.models import IterNCGP, iterncgp
from gpflow_gam.newton.solvers import ReducedNewton, Variational

N = 30
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(40)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


def kernel(variance=4.0):
    return gpflow.kernels.Matern32(variance, 0.5)


def exact(rounds=2):
    return Variational(ReducedNewton(num_actions=200, tolerance=1e-11), rounds)


def fitted(data, likelihood, rounds=2, **options):
    return made(data, options.pop("kernel", kernel()), likelihood, solver=exact(rounds))


def best_gaussian(K, slopes):
    """Opper & Archambeau (2009), damped; slopes(f): d log p / df and minus its derivative."""
    m, a, w = np.zeros(N), np.zeros(N), np.ones(N)
    for _ in range(150):
        root = np.sqrt(w)
        B = np.eye(N) + root[:, None] * K * root
        V = K - K @ (root[:, None] * np.linalg.solve(B, root[:, None] * K))
        m = K @ a
        each = [slopes(m + x * np.sqrt(np.diag(V))) for x in NODES]
        g = sum(c * e[0] for c, e in zip(WEIGHTS, each))
        bend = sum(c * e[1] for c, e in zip(WEIGHTS, each))
        # a Newton step for the mean, at the averaged curvature
        root = np.sqrt(bend)
        B = np.eye(N) + root[:, None] * K * root
        b = bend * m + g
        new = b - root * np.linalg.solve(B, root * (K @ b))
        a, w = a + 0.5 * (new - a), w + 0.5 * (bend - w)
    return m, V


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param("counts", marks=pytest.mark.slow), "binary"])
def test_it_is_the_best_gaussian(name, rng):
    X = rng.uniform(-1, 1, (N, 2))
    f = 2.0 * np.sin(3 * X[:, 0])
    if name == "counts":
        y = rng.poisson(np.exp(f)).astype(float)
        likelihood, slopes = Poisson(), lambda f: (y - np.exp(f), np.exp(f))
    else:
        y = (rng.uniform(size=N) < expit(f)).astype(float)
        likelihood = gg.likelihoods.Bernoulli()
        slopes = lambda f: (y - expit(f), expit(f) * expit(-f))
    mean, cov = best_gaussian(kernel()(X).numpy(), slopes)
    model = fitted((X, y[:, None]), likelihood, rounds=12)
    result = model.predict_f(X, full_cov=True)
    np.testing.assert_allclose(result[0][:, 0], mean, atol=1e-4)
    np.testing.assert_allclose(result[1][0], cov, atol=1e-4)
    # its bound is stationary in the mean, so none is better nearby; and Laplace's is less
    mode = made(model.data, kernel(), likelihood, solver="newton")
    assert float(model.elbo()) > float(mode.elbo()) + 0.01


@pytest.mark.slow
def test_classes_have_expected_gradients_for_weights(rng):
    """At a fixed point v = E_q[g], and the bound is above Laplace's; by draws of q."""
    X, labels = noisy_classes(rng, N)
    model = fitted((X, labels), Softmax(3), rounds=6, kernel=kernel(20.0))
    mean, cov = model.predict_f(X, full_output_cov=True)
    for n in range(N):
        draws = rng.multivariate_normal(mean[n], cov[n], 40_000)
        expected = np.eye(3)[int(labels[n, 0])] - laplace.softmax(draws).mean(axis=0)
        np.testing.assert_allclose(model.state.weights[:, n], expected, atol=0.02)
    mode = made((X, labels), kernel(20.0), Softmax(3), solver="newton")
    assert float(model.elbo()) > float(mode.elbo()) + 1.0
    sure = [m.predict_y(X)[0].numpy().max(axis=1).mean() for m in (mode, model)]
    assert sure[1] > sure[0] + 0.01


def test_averages_that_overflow_leave_the_round_before(rng):
    X = rng.uniform(-1, 1, (N, 2))
    Y = rng.poisson(2.0, (N, 1)).astype(float)
    few = Variational(ReducedNewton(num_actions=1))
    model = IterNCGP((X, Y), kernel(2e4), Poisson(), solver=few)
    result = fit(model)
    assert not result.converged
    assert "Poisson overflows where it is averaged" in result.message
    mode = made((X, Y), kernel(2e4), Poisson(), solver=few.newton)
    for a, b in zip(model.predict_f(X), mode.predict_f(X)):
        np.testing.assert_allclose(a, b)


def test_it_is_the_default_of_few_rows_whose_noise_is_not_normal(rng, monkeypatch):
    X, Y = rng.uniform(0, 1, (N, 2)), np.ones((N, 1))
    weighted = gg.likelihoods.Weighted(Gaussian(0.1), 1)
    for likelihood, wanted in (
        (Poisson(), Variational),
        (Softmax(3), Variational),
        (Gaussian(0.1), ReducedNewton),
        (weighted, ReducedNewton),
    ):
        assert type(IterNCGP((X, Y), kernel(), likelihood).solver) is wanted
    assert type(IterNCGP((X, Y), kernel(), Poisson(), solver="newton").solver) is ReducedNewton
    monkeypatch.setattr(iterncgp, "_FEW", N - 1)
    assert type(IterNCGP((X, Y), kernel(), Poisson()).solver) is ReducedNewton
