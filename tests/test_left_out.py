"""What is predicted of a datum from all others, and the default of class probabilities."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.likelihoods import Poisson, Softmax
from iterncgp_cases import N, classes_by, data, fit, kernel
from laplace import softmax

import gpflow_gam as gg
from gpflow_gam.models import IterNCGP
from gpflow_gam.newton.left_out import SHARES, LeftOutRows, left_out
from gpflow_gam.newton.solvers import ReducedNewton, UnitVectors, Variational


def model(name, rng, likelihood, number=400):
    solver = ReducedNewton(num_actions=number, tolerance=1e-11)
    found = IterNCGP(data(rng)[name], kernel(), likelihood, solver=solver)
    fit(found)
    return found


@pytest.mark.parametrize("name", ["counts", "binary", "classes"])
def test_with_every_action_it_is_the_cavity(name, rng):
    """m - C_n g and C_n = C (I - W C)^-1: the site of datum n divided out (R & W 2006, 3.66)."""
    likelihoods = {"counts": Poisson, "binary": gg.likelihoods.Bernoulli}
    found = model(name, rng, likelihoods.get(name, lambda: Softmax(3))())
    X, Y = (t.numpy() for t in found.data)
    m, C = (t.numpy() for t in found.predict_f(X, full_output_cov=True))
    rows = np.array([0, 7, N - 1])
    mean, cov = left_out(found.problem(), found.state, rows, False)
    for at, n in enumerate(rows):
        if name == "counts":
            g, W = Y[n] - np.exp(m[n]), np.diag(np.exp(m[n]))
        elif name == "binary":
            p = 1 / (1 + np.exp(-m[n]))
            g, W = Y[n] - p, np.diag(p * (1 - p))
        else:
            p = softmax(m[n : n + 1])[0]
            g, W = np.eye(3)[int(Y[n, 0])] - p, np.diag(p) - np.outer(p, p)
        expected = np.linalg.inv(np.eye(len(W)) - C[n] @ W) @ C[n]
        np.testing.assert_allclose(cov[at], expected, atol=1e-5)
        np.testing.assert_allclose(mean[at], m[n] - expected @ g, atol=1e-5)


@pytest.mark.parametrize("number", [3, 12])
def test_few_actions_forget_the_datum_and_no_more(number, rng):
    """The same by its definition: actions with zeros at the datum, their posterior made anew."""
    found = model("classes", rng, Softmax(3), number=number)
    state, problem = found.state, found.problem()
    K, Y = kernel()(found.data[0]).numpy(), found.data[1]
    S = state.actions.numpy()
    g = np.einsum("nm,qm->qn", K, state.weights.numpy())
    p = softmax(g.T)
    hit = np.eye(3)[Y.numpy().astype(int)[:, 0]]
    rows = np.array([3, 20])
    mean, cov = left_out(problem, state, rows, False)
    for at, n in enumerate(rows):
        others = S.copy()
        others[:, :, n] = 0.0
        prior = np.einsum("aqn,nm,bqm->ab", others, K, others)
        noise, targets = np.zeros_like(prior), np.zeros(len(S))
        for i in range(N):
            W = np.linalg.pinv(np.diag(p[i]) - np.outer(p[i], p[i]), rcond=1e-10)
            noise += others[:, :, i] @ W @ others[:, :, i].T
            targets += others[:, :, i] @ (g[:, i] + W @ (hit[i] - p[i]))
        h = np.einsum("m,aqm->qa", K[n], others)
        inverse = np.linalg.pinv(prior + noise)
        np.testing.assert_allclose(mean[at], h @ inverse @ targets, atol=1e-4)
        np.testing.assert_allclose(cov[at], K[n, n] * np.eye(3) - h @ inverse @ h.T, atol=1e-4)


def test_white_noise_unit_vectors_and_mixed_outputs(rng):
    X, labels = data(rng)["classes"]
    W = np.array([[1.0, 0.3], [-0.4, 0.8], [0.2, 0.5]])
    parts = [kernel() + gpflow.kernels.White(0.2), gpflow.kernels.SquaredExponential(0.8, 0.5)]
    k = gpflow.kernels.LinearCoregionalization(parts, W=W)
    solver = ReducedNewton(num_actions=2 * N, tolerance=1e-11, policy=UnitVectors())
    found = IterNCGP((X, labels), k, Softmax(3), solver=solver)
    fit(found)
    rows = np.arange(N)[::9]
    mean, cov = left_out(found.problem(), found.state, rows, False)
    for at, n in enumerate(rows):
        rest = np.delete(np.arange(N), n)
        # pseudo-observations of the others, as one Gaussian regression in numpy
        g = np.stack([k_(X).numpy() @ v for k_, v in zip(parts, found.state.weights.numpy())])
        F = (W @ g).T
        p = softmax(F)
        precision, linear = np.zeros((2 * N, 2 * N)), np.zeros(2 * N)
        for i in rest:
            bend = W.T @ (np.diag(p[i]) - np.outer(p[i], p[i])) @ W
            slope = W.T @ (np.eye(3)[int(labels[i, 0])] - p[i])
            place = [i, N + i]
            precision[np.ix_(place, place)] = bend
            linear[place] = slope + bend @ g[:, i]
        K = np.zeros((2 * N, 2 * N))
        K[:N, :N], K[N:, N:] = parts[0](X), parts[1](X)
        whole = np.linalg.solve(np.eye(2 * N) + K @ precision, K)
        place = [n, N + n]
        np.testing.assert_allclose(mean[at], W @ (whole @ linear)[place], atol=1e-4)
        expected = W @ whole[np.ix_(place, place)] @ W.T
        np.testing.assert_allclose(cov[at], expected, atol=1e-4)


def test_the_nearest_gaussians_cavity_is_of_averages(rng):
    X, Y = data(rng)["counts"]
    solver = Variational(ReducedNewton(num_actions=N, tolerance=1e-11), rounds=12)
    found = IterNCGP((X, Y), kernel(), Poisson(), solver=solver)
    fit(found)
    m, C = (t.numpy()[:, 0] for t in found.predict_f(X))
    rows = np.array([1, 30])
    mean, cov = left_out(found.problem(), found.state, rows, True)
    rate = np.exp(m + C / 2)[rows]  # E exp f: gradient and curvature are averages
    expected = C[rows] / (1 - rate * C[rows])
    np.testing.assert_allclose(cov[:, 0, 0], expected, rtol=1e-3)
    np.testing.assert_allclose(mean[:, 0], m[rows] - expected * (Y[rows, 0] - rate), atol=1e-3)


# --- the default ---------------------------------------------------------------------------------


def classes(rng, variance, noise=0.0, n=120):
    X = rng.uniform(-1, 1, (n, 2))
    labels = np.floor(1.5 * (X[:, :1] + 1)) % 3
    wrong = rng.uniform(size=(n, 1)) < noise
    labels = np.where(wrong, rng.integers(0, 3, (n, 1)), labels).astype(float)
    found = IterNCGP((X, labels), gpflow.kernels.Matern32(variance, 0.7), Softmax(3))
    fit(found)
    return found


def test_less_variance_counts_only_where_rows_say_so_beyond_chance(rng):
    """By the mean of differences and its standard error, row by row."""
    chosen = []
    for _ in range(60):
        weights = rng.integers(1, 4, 25)
        logs = rng.normal(-1.0, 0.5, 25) + rng.normal(0.0, 0.1, (6, 25))
        rows = LeftOutRows(logs, weights / weights.sum())
        means = [sum(w * p for w, p in zip(weights, own)) / weights.sum() for own in logs]
        np.testing.assert_allclose(list(rows.means().values()), means)
        best = int(np.argmax(means))
        gain = means[best] - means[0]
        away = [w * (a - b - gain) for w, a, b in zip(weights, logs[best], logs[0])]
        certain = gain > np.linalg.norm(away) / weights.sum()
        assert rows.share() == (SHARES[best] if certain else 1.0)
        chosen.append((certain, best > 0))
    assert {(True, True), (False, True), (False, False)} == set(chosen)


def test_the_default_is_what_left_out_rows_prefer(rng):
    """Clean classes are surer than the posterior is, noisy ones under a large variance are not."""
    Xnew = rng.uniform(-1, 1, (30, 2))
    chosen = []
    for variance, noise in ((3.0, 0.0), (2000.0, 0.5)):
        found = classes(rng, variance, noise)
        chosen.append(found._left_out().share())
        mean, cov = (t.numpy() for t in found.predict_f(Xnew, full_output_cov=True))
        P = np.eye(3) - 1 / 3
        var = np.einsum("ij,njk,ki->ni", P, cov, P)
        expected = softmax(mean / np.sqrt(1 + chosen[-1] * np.pi / 8 * var))
        assert found.predictive_share() == chosen[-1]
        np.testing.assert_allclose(found.predict_y(Xnew)[0], expected, atol=1e-9)
    assert chosen[0] == 0.0
    assert chosen[1] > 0.0


@pytest.mark.slow
def test_left_out_rows_predict_as_refits_do(rng):
    """Against fits without the row: the same density but for what the mode itself moves."""
    found = classes(rng, 5.0, 0.2, n=40)
    ours = found.left_out_log_probabilities()
    X, Y = (t.numpy() for t in found.data)
    logs = {0.0: [], 1.0: []}
    for n in range(40):
        rest = np.delete(np.arange(40), n)
        one = IterNCGP((X[rest], Y[rest]), found.kernel, Softmax(3))
        fit(one)
        for share, values in logs.items():
            values.append(np.log(classes_by(one, X[n : n + 1], share)[0, int(Y[n, 0])]))
    means = {share: np.mean(values) for share, values in logs.items()}
    assert abs(means[0.0] - ours[0.0]) < 0.03
    assert abs(means[1.0] - ours[1.0]) < 0.03
    # what is chosen by: .020 apart here, and .014 by refits, whose modes move
    assert (means[0.0] > means[1.0]) == (ours[0.0] > ours[1.0])


# compiled by XLA it is traced as without
@pytest.mark.parametrize("jit", [pytest.param(False, marks=pytest.mark.slow), True])
def test_compiled_probabilities_follow_the_next_fit(jit, rng):
    found, Xnew = classes(rng, 3.0), tf.constant(rng.uniform(-1, 1, (9, 2)))
    compiled = tf.function(lambda x: found.predict_y(x)[0], jit_compile=jit)
    np.testing.assert_allclose(compiled(Xnew), found.predict_y(Xnew)[0], atol=1e-10)
    before = found._cache.share.numpy()
    other = classes(rng, 2000.0, 0.5)
    found.data = tuple(t.numpy() for t in other.data)
    with pytest.raises(ValueError, match="data"):
        found.predict_y(Xnew)[0]
    found.kernel.variance.assign(2000.0)
    fit(found)
    expected = other.predict_y(Xnew)[0]
    np.testing.assert_allclose(found.predict_y(Xnew)[0], expected, atol=1e-6)
    again = tf.function(lambda x: found.predict_y(x)[0], jit_compile=jit)
    np.testing.assert_allclose(again(Xnew), expected, atol=1e-6)
    assert found._cache.share.numpy() != before
    found.kernel.variance.assign(3.0)
    fit(found)  # of the same data: compiled functions follow
    expected = found.predict_y(Xnew)[0]
    np.testing.assert_allclose(again(Xnew), expected, atol=1e-10)


def test_weights_count_rows(rng):
    """A row of weight two as the row twice; of weight zero as no row."""
    X, Y = data(rng)["classes"]
    w = rng.integers(0, 3, N).astype(float)
    k = gpflow.kernels.Matern32(1.5, 0.7, active_dims=[0, 1])
    solver = ReducedNewton(num_actions=400, tolerance=1e-11)
    weighted = IterNCGP((np.column_stack([X, w]), Y), k,
                        gg.likelihoods.Weighted(Softmax(3), 2), solver=solver)  # fmt: skip
    fit(weighted)
    Xnew = rng.uniform(-1, 1, (7, 2))
    wide = np.column_stack([Xnew, np.ones(7)])
    repeated = IterNCGP((np.repeat(X, w.astype(int), axis=0), np.repeat(Y, w.astype(int), axis=0)),
                        k, Softmax(3), solver=solver)  # fmt: skip
    fit(repeated)
    for share in (0.0, 1.0):
        found = classes_by(weighted, wide, share)
        expected = classes_by(repeated, Xnew, share)
        np.testing.assert_allclose(found, expected, atol=1e-5)
    assert all(np.isfinite(v) for v in weighted.left_out_log_probabilities().values())


def test_what_has_no_classes_is_refused(rng):
    X, Y = data(rng)["counts"]
    found = IterNCGP((X, Y), kernel(), Poisson())
    fit(found)
    with pytest.raises(ValueError, match="need a Bernoulli or softmax likelihood; got Poisson"):
        found.left_out_log_probabilities()
    unfitted = IterNCGP(data(rng)["classes"], kernel(), Softmax(3))
    with pytest.raises(ValueError, match="not fitted"):
        unfitted.left_out_log_probabilities()
