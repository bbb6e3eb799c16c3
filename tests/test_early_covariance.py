"""The covariance's sweep before the search has ended: when it is due, and what it is worth then."""

from __future__ import annotations

from dataclasses import replace

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from test_solvers import N, covariance, problem, reference, run_to_the_end

import gpflow_gam as gg
from gpflow_gam.models import IterNCGP
from gpflow_gam.newton import reduced_newton
from gpflow_gam.newton.reduced_newton import Mode
from gpflow_gam.newton.solvers import Informative, ReducedNewton, Residual

EARLY = ReducedNewton(tolerance=1e-9, num_pivots=8)
LATE = replace(EARLY, early_covariance=False)


@pytest.fixture
def many(monkeypatch):
    """160 rows are many, of which a preview asks 20, and entries of K take no time."""
    monkeypatch.setattr(reduced_newton, "_FIRST", 20)
    monkeypatch.setattr(reduced_newton, "_MANY", 160)
    monkeypatch.setattr(reduced_newton, "_CHEAP_SIZE", 20)
    monkeypatch.setattr(reduced_newton, "_CHEAP_ROWS", 20)


@pytest.fixture
def at_once(many, monkeypatch):
    """The sweep is worth more than anything, after the first of the search."""
    monkeypatch.setattr(Mode, "expected_gains", lambda self, move: (np.inf, 1.0))


def large(name):
    """The same 160 rows whenever they are asked for."""
    return problem(name, np.random.default_rng(0), 160)


def followed(solver, of):
    """A run at its end, its reports, and by report what it had bought, and its posterior."""
    run = solver.start(of)
    reports, bought, looks = [], [], []
    for report in run.steps():
        reports.append(report)
        bought.append(run._early)
        preview = run.preview()
        looks.append(run.finish(cheap=True) if preview.rows is not None else preview.state)
    return run, reports, bought, looks


@pytest.mark.parametrize(("name", "pivots"), [("poisson", N), ("softmax", 9)])
def test_expected_falls_by_loops(name, pivots, rng, monkeypatch):
    """Of normal observations with variance 1 / W, under what K's partial factor can tell."""
    monkeypatch.setattr(reduced_newton, "_CHEAP_SIZE", 10)
    monkeypatch.setattr(reduced_newton, "_CHEAP_ROWS", 10)
    of, K = problem(name, rng)
    Q = of.operator.num_latents
    g, move = tf.constant(rng.normal(size=(2, Q, N)))
    mode = Mode(of, tf.zeros_like(g), g, Informative(), 20, pivots * Q)
    found = mode.expected_gains(move)
    P = of.pivoted(pivots).factor.numpy()[0]
    D = np.diag(K - P @ P.T)
    if pivots == N:
        np.testing.assert_allclose(D, 0.0, atol=1e-10)
    rows = of.order()[: max(-(-10 // Q), 10)]
    blocks = of.curvature(g).precision.blocks().numpy()

    def normal(at, mean, variance):
        return -0.5 * np.log(2.0 * np.pi * variance) - 0.5 * (at - mean) ** 2 / variance

    nodes, weights = np.polynomial.hermite_e.hermegauss(3)
    weights = weights / weights.sum()
    expected = np.zeros(2)
    for q in range(Q):
        noise = 1.0 / blocks[:, q, q]
        left = []
        for seen in (np.arange(N), rows):
            A = P[seen] @ P[seen].T + np.diag(D[seen] + noise[seen])
            B = P @ P[seen].T
            left.append(np.diag(P @ P.T - B @ np.linalg.solve(A, B.T)))
        for n in range(N):
            after, before = (own[n] + D[n] + noise[n] for own in left)
            truth = left[0][n] + D[n] * noise[n] / (D[n] + noise[n]) + noise[n]
            y = np.sqrt(truth) * nodes
            expected[0] += weights @ (normal(y, 0.0, after) - normal(y, 0.0, before)) / N
            far = normal(y + move[q, n].numpy(), 0.0, before)
            expected[1] += weights @ (normal(y, 0.0, before) - far) / N
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert min(found) > 0.0


@pytest.mark.parametrize("fall", [1e-12, 8.0])
def test_it_is_done_early_when_it_gains_more_for_its_time(fall, many, monkeypatch):
    """Here the mean's moves are worth their share of the log posterior."""
    options = ReducedNewton(num_actions=40, num_pivots=8)
    of, _ = large("poisson")
    plain, _ = large("poisson")
    values = [r.log_posterior for r in followed(replace(options, early_covariance=False), plain)[1]]
    gains = np.diff(values, prepend=np.nan)
    seen = iter(gains[2:])  # a start from some of the rows, one from the pivots' columns, sweeps
    monkeypatch.setattr(Mode, "expected_gains", lambda self, move: (fall, next(seen)))
    _, reports, bought, _ = followed(options, of)
    expected = None
    for step in range(2, len(values) - 1):
        slowing = 1.0 if step == 2 else min(1.0, gains[step] / gains[step - 1])
        if fall / (100 + 40) > gains[step] * slowing / (100 + 2):
            expected = step + 1
            break
    found = [i for i, own in enumerate(bought) if own is not None]
    assert (found[0] if found else None) == expected
    assert (expected is None) == (fall == 1e-12)
    assert len(reports) == len(values) + (expected is not None)
    assert reports[-1].converged


def test_the_search_goes_on_as_without_it(at_once):
    of, _ = large("softmax")
    run, reports, bought, _ = followed(EARLY, of)
    other, _ = large("softmax")
    late, plain, never, _ = followed(LATE, other)
    late.finish()
    assert never == [None] * len(plain)
    first = next(i for i, own in enumerate(bought) if own is not None)
    assert first == 3
    values = [r.log_posterior for r in reports]
    assert values.pop(first) == values[first - 1]
    np.testing.assert_allclose(values, [r.log_posterior for r in plain], rtol=1e-12)
    assert [r.step for r in reports] == list(range(1, len(reports) + 1))
    assert reports[first].sweeps - reports[first - 1].sweeps == pytest.approx(
        other.operator.sweeps - plain[-1].sweeps  # of the late one, at its end
    )
    np.testing.assert_allclose(run.v, late.v, atol=1e-12)


@pytest.mark.parametrize("name", ["poisson", "softmax"])
def test_looks_have_it_and_so_has_the_end(name, at_once):
    of, K = large(name)
    run, _, bought, looks = followed(EARLY, of)
    first = next(i for i, own in enumerate(bought) if own is not None)
    sweeps = of.operator.sweeps
    state, products = run.finish_with_products()
    took = of.operator.sweeps - sweeps
    other, _ = large(name)
    _, _, late = run_to_the_end(LATE, other)
    wanted = np.trace(covariance(late, K))
    before, after = (np.trace(covariance(looks[i], K)) for i in (first - 1, first))
    assert before > 1.1 * after  # a preview from an eighth of the rows
    assert after == pytest.approx(wanted, rel=0.1)
    np.testing.assert_array_equal(looks[first].weights, looks[first - 1].weights)
    found = covariance(state, K)
    if name == "softmax":  # whose noise W^+ is boundless: asked anew, as without
        assert took == run.closing == 1.0
        np.testing.assert_allclose(found, covariance(late, K), atol=1e-10)
    else:
        assert took == run.closing == 0.0
        assert np.trace(found) == pytest.approx(wanted, rel=1e-3)
        _, dense = reference(name, of, K)
        assert np.linalg.eigvalsh(found - dense).min() > -1e-5  # claims no more than data say
    actions = state.actions.numpy()
    for action, product in zip(actions, products.numpy()):
        np.testing.assert_allclose(product, action @ K, atol=1e-8)


def test_actions_that_are_residuals_are_not_known_before(at_once):
    of, _ = large("poisson")
    run, reports, bought, _ = followed(replace(EARLY, policy=Residual()), of)
    other, _ = large("poisson")
    plain, _, _ = run_to_the_end(replace(LATE, policy=Residual()), other)
    assert bought == [None] * len(reports)
    assert run.closing == 1.0
    np.testing.assert_allclose(run.g, plain.g, atol=1e-8)


def test_fits_that_are_ended_have_the_early_covariance(at_once, rng):
    X = rng.uniform(-1, 1, (160, 2))
    Y = rng.poisson(np.exp(np.sin(5.0 * X[:, :1]))).astype(float)

    def fitted(solver, stop):
        data, kernel = (X, Y), gpflow.kernels.Matern32(1.0, 0.4)
        model = IterNCGP(data, kernel, gpflow.likelihoods.Poisson(), solver=solver)
        seen = []

        def preview(progress):
            seen.append(progress.posterior().predict_f(X)[1].numpy().mean())
            return progress.iteration == stop

        result = gg.optimizers.fit(model, hyperparameters=False, callback=preview)
        return seen, model.predict_f(X)[1].numpy().mean(), result

    seen, var, result = fitted(EARLY, 4)
    assert "callback" in result.message
    assert result.sweeps == result.steps[-1]["sweeps"]  # it was the posterior's, too
    assert seen[3] < 0.9 * seen[2]
    assert var == pytest.approx(seen[3], rel=1e-3)
    _, late, _ = fitted(LATE, 3)
    assert var == pytest.approx(late, rel=1e-3)
