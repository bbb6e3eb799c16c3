"""Fits of IterNCGP: budgets, interruptions, searches on some rows, posteriors on the way."""

from __future__ import annotations

import gpflow
import laplace
import numpy as np
import pytest
import tensorflow as tf
from gpflow.likelihoods import Poisson, Softmax
from iterncgp_cases import data, fit, kernel, made, noisy_classes
from test_solvers import covariance, problem, reference, run_to_the_end

import gpflow_gam as gg
from gpflow_gam.models import IterNCGP
from gpflow_gam.newton import reduced_newton
from gpflow_gam.newton.operators import KernelOperator, LatentKernels
from gpflow_gam.newton.solvers import (
    IterGP,
    ReducedNewton,
)


def bounds_of_calls(model, most, **options):
    """The bound after each call, up to the one that converged."""
    bounds = []
    for _ in range(most):
        result = fit(model, **options)
        bounds.append(model.objective())
        if result.converged:
            return bounds, result
    return bounds, result


MORE = [{"max_sweeps": 1}, {"max_sweeps": 6}, {"callback": lambda progress: True}]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("solver", "budgets"), [("variational", MORE[:1]), ("newton", MORE), ("itergp", MORE)]
)
def test_hyperparameters_are_learnt_in_as_many_calls_as_it_takes(solver, budgets, rng):
    rows = data(rng, 120)["counts"]

    def fresh():
        return IterNCGP(rows, kernel(), Poisson(), solver=solver)

    whole = fresh()
    long = fit(whole, hyperparameters=True)
    assert long.converged
    for budget in budgets:
        model = fresh()
        bounds, result = bounds_of_calls(model, 60, hyperparameters=True, **budget)
        assert result.converged
        assert result.elbo == model.objective()
        assert np.all(np.diff(bounds) >= -1e-9)
        assert bounds[-1] >= long.elbo - 0.02  # two rounds' tolerance


@pytest.mark.slow
def test_a_call_that_is_lower_leaves_the_model_and_goes_on_from_there(rng):
    """The literal algorithm's bound falls from its second step of classes to its third."""
    model = IterNCGP(data(rng, 400)["classes"], kernel(), Softmax(3), solver="itergp")
    fit(model, max_sweeps=1)
    fit(model, max_sweeps=1)
    before, mean = model.objective(), model.predict_f(model.data[0])[0]
    result = fit(model, max_sweeps=1)
    assert "the posterior of before this call is kept" in result.message
    np.testing.assert_array_equal(model.predict_f(model.data[0])[0], mean)
    assert model.objective() == before
    assert fit(model, max_sweeps=1).steps[0]["step"] == result.steps[-1]["step"] + 1
    # another problem's
    model.kernel.variance.assign(0.5)
    assert "kept" not in fit(model).message


def test_the_iteration_limit_ends_a_fit(rng):
    solver = ReducedNewton(num_pivots=2, tolerance=1e-11)
    model = IterNCGP(data(rng)["counts"], kernel(), Poisson(), solver=solver)
    result = fit(model, max_iterations=2)
    assert result.num_iterations == len(result.steps) == 2
    assert result.message == "iteration limit of 2 reached"
    assert not result.converged
    assert np.all(np.isfinite(model.predict_f(model.data[0])[1]))


INTERRUPTED = {
    "product": (gg.operators.KernelOperator, "product", KeyboardInterrupt, False),
    "search": (reduced_newton, "_maximise", KeyboardInterrupt, False),
    "posterior": (reduced_newton.ReducedNewtonRun, "finish", MemoryError, False),
    "hyperparameters": (gg.optimizers.newton, "noisy_actions", KeyboardInterrupt, True),
}


@pytest.mark.slow
def test_an_interrupted_fit_leaves_the_model_as_it_was(rng, monkeypatch):
    """Never fitted, and fitted to other parameters; compiled functions included."""
    model = IterNCGP(data(rng)["counts"], kernel(), Poisson(), solver=ReducedNewton(tolerance=1e-9))
    X, _ = model.data

    def broken(where):
        owner, name, error, hyperparameters = INTERRUPTED[where]
        original, calls = getattr(owner, name), []

        def interrupted(*arguments, **options):
            calls.append(1)
            if len(calls) == 2 or where == "posterior":
                raise error
            return original(*arguments, **options)

        before = [p.numpy() for p in model.parameters]
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, interrupted)
            with pytest.raises(error):
                fit(model, hyperparameters=hyperparameters)
        for parameter, value in zip(model.parameters, before):
            np.testing.assert_array_equal(parameter, value)

    broken("product")
    with pytest.raises(ValueError, match="not fitted"):
        model.predict_f(X)
    fit(model)
    compiled = tf.function(model.predict_f, autograph=False)
    model.kernel.variance.assign(2.5)
    before = *model.predict_f(X), *compiled(X)
    for where in INTERRUPTED:
        broken(where)
        for a, b in zip(before, (*model.predict_f(X), *compiled(X))):
            np.testing.assert_array_equal(a, b)
    fresh = made(model.data, gpflow.kernels.Matern32(2.5, 0.7), Poisson(), solver=model.solver)
    assert fit(model).converged
    np.testing.assert_allclose(model.predict_f(X)[0], fresh.predict_f(X)[0], atol=1e-6)


@pytest.mark.parametrize("hyperparameters", [False, True])
def test_an_interrupted_fit_keeps_what_it_has_if_so_wished(rng, hyperparameters):
    def ctrl_c(progress):
        if progress.iteration == 2:
            raise KeyboardInterrupt

    solver = ReducedNewton(num_pivots=2, tolerance=1e-11)
    model = IterNCGP(data(rng)["counts"], kernel(), Poisson(), solver=solver)
    result = fit(model, hyperparameters=hyperparameters, callback=ctrl_c, on_interrupt="keep")
    assert result.message == "interrupted; what was best so far is kept"
    assert not result.converged
    mean, var = model.predict_f(model.data[0])
    assert np.all(np.isfinite(mean))
    assert np.all(var > 0.0)
    prior = model.kernel.variance.numpy()
    assert np.mean(var) < 0.9 * prior  # two steps have told something


@pytest.mark.slow
def test_a_diverging_literal_fit_says_so_and_keeps_what_it_had():
    X = np.linspace(-1, 1, 400)[:, None]
    Y = (np.abs(X) < 0.5).astype(float)
    k = gpflow.kernels.Matern32(50.0, 0.5)
    rough = IterGP(max_steps=60, max_iterations=1, recycle=False, tolerance=1e-12)
    literal = made((X, Y), k, Poisson(), solver=rough)
    assert np.all(np.isfinite(literal.predict_f(X)[1]))
    safe = IterNCGP((X, Y), k, Poisson(), solver="newton")
    values = fit(safe).history
    assert np.all(np.diff(values) >= -1e-9)


def test_coming_back_from_far_beyond_the_mode_is_no_convergence():
    """Overshot counts: Newton goes back by one a step, a small part of where it is."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(100, 1))
    Y = rng.poisson(np.exp(3.0 + 3.0 * np.sin(3.0 * X))).astype(float)
    k = gpflow.kernels.SquaredExponential(9.0, 0.3)
    literal = IterNCGP((X, Y), k, Poisson(), solver="itergp")
    result = fit(literal)
    assert not result.converged
    assert "still rises by much" in result.message
    assert fit(IterNCGP((X, Y), k, Poisson(), solver="newton")).converged


@pytest.fixture
def coarse(monkeypatch):
    """Fits of 160 rows begin with 5, then 10, then 40 of them, then the columns of pivots."""
    monkeypatch.setattr(reduced_newton, "_FIRST", 5)
    monkeypatch.setattr(reduced_newton, "_MANY", 160)
    monkeypatch.setattr(reduced_newton, "_QUARTER", 10)
    monkeypatch.setattr(reduced_newton, "_SIXTEENTH", 10)


def of_classes(rng, n=160, **options):
    options.setdefault("solver", ReducedNewton(tolerance=1e-9))
    k = gpflow.kernels.Matern32(3.0, 0.4)
    return IterNCGP(noisy_classes(rng, n), k, Softmax(3), **options)


def white(rng, dtype=np.float64):
    """An operator with white noise, and its matrix."""
    kernel = gpflow.kernels.Matern32(1.5, 0.5) + gpflow.kernels.White(0.3)
    X = rng.uniform(-1, 1, (30, 2)).astype(dtype)
    X[7] = X[3]  # white noise is of the row, not of the point
    return KernelOperator(LatentKernels.of(kernel, 2), tf.constant(X)), kernel(X).numpy()


def test_products_of_some_rows_are_columns_of_the_matrix(rng):
    operator, K = white(rng)
    rows = np.array([11, 3, 25, 7])
    V = rng.normal(size=(2, 4, 5))
    result = operator.product_of_rows(tf.constant(rows), tf.constant(V))
    np.testing.assert_allclose(result, K[:, rows] @ V, rtol=1e-12)
    assert operator.sweeps == pytest.approx(4 / 30)
    some = operator.of_rows(tf.constant(rows))
    np.testing.assert_allclose(some.product(tf.constant(V)), K[np.ix_(rows, rows)] @ V, rtol=1e-12)
    wide = np.zeros((2, 30, 5))
    wide[:, rows] = V
    np.testing.assert_array_equal(operator.spread(tf.constant(rows), tf.constant(V)), wide)


# --- the search ----------------------------------------------------------------------------------


@pytest.mark.slow_but_first
@pytest.mark.parametrize("name", ["poisson", "softmax"])
def test_a_search_that_begins_with_some_rows_ends_at_the_same_mode(name, coarse, monkeypatch):
    of, K = problem(name, np.random.default_rng(0), 160)
    run, reports, _ = run_to_the_end(ReducedNewton(tolerance=1e-11, num_pivots=4), of)
    if name == "poisson":
        mode, _ = reference(name, of, K)
    else:
        mode = laplace.classes(K, of.Y.numpy()[:, 0], 3)[0].T
    np.testing.assert_allclose(run.g, mode, atol=1e-4)
    values = [r.log_posterior for r in reports]
    assert np.all(np.diff(values) >= -1e-9)
    assert [r.step for r in reports] == list(range(1, len(reports) + 1))
    first, tenth, quarter, pivots, full = reports[:5]
    assert tenth.log_posterior > first.log_posterior
    assert quarter.log_posterior > tenth.log_posterior
    # a quarter of the rows is a sixteenth of a sweep, and their columns a quarter
    assert first.sweeps < tenth.sweeps < quarter.sweeps < 2.0
    assert pivots.sweeps == pytest.approx(quarter.sweeps + 4 / 160)
    assert full.sweeps == pytest.approx(pivots.sweeps + 1.0)
    assert not any(r.converged for r in reports[:4])
    few, _ = problem(name, np.random.default_rng(0), 160)
    monkeypatch.setattr(reduced_newton, "_MANY", 161)
    without = run_to_the_end(ReducedNewton(num_pivots=4, max_steps=1), few)[1]
    assert full.log_posterior > without[0].log_posterior


# --- posteriors to ask for -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["poisson", "softmax"])
def test_cheap_posteriors_claim_no_more_than_all_data_do(name, rng, monkeypatch):
    monkeypatch.setattr(reduced_newton, "_CHEAP_ROWS", 1)
    of, K = problem(name, rng)
    _, dense = reference(name, of, K)
    run, _, _ = run_to_the_end(ReducedNewton(tolerance=1e-11), of)
    last = -np.inf
    for rows in (5, 15, 60):
        monkeypatch.setattr(reduced_newton, "_CHEAP_SIZE", rows * of.operator.num_latents)
        sweeps = of.operator.sweeps
        state = run.finish(cheap=True)
        assert of.operator.sweeps - sweeps == pytest.approx((rows / 60) ** 2)
        np.testing.assert_array_equal(state.weights, run.v)
        cov = covariance(state, K)
        assert np.linalg.eigvalsh(cov - dense).min() > -1e-6
        assert -np.trace(cov) > last
        last = -np.trace(cov)
    if name == "poisson":
        np.testing.assert_allclose(cov, dense, atol=1e-6)  # all rows: all there is


@pytest.mark.slow_but_first
@pytest.mark.parametrize("solver", [ReducedNewton(tolerance=1e-9, num_pivots=8), "itergp"])
def test_every_posterior_on_the_way_can_be_had(solver, rng):
    X, n = rng.uniform(-1, 1, (40, 2)), 160
    seen, moments = [], []

    def preview(progress: gg.optimizers.FitProgress) -> None:
        seen.append(progress.posterior())
        moments.append([t.numpy() for t in seen[-1].predict_f(X)])

    watched = of_classes(np.random.default_rng(1), n, solver=solver)
    result = gg.optimizers.fit(watched, hyperparameters=False, callback=preview)
    assert len(seen) == result.num_iterations > 1
    for posterior, (mean, var) in zip(seen, moments):  # each is a snapshot
        now = posterior.predict_f(X)
        np.testing.assert_array_equal(now[0], mean)
        np.testing.assert_array_equal(now[1], var)
    alone = of_classes(np.random.default_rng(1), n, solver=solver)
    unwatched = gg.optimizers.fit(alone, hyperparameters=False)
    assert unwatched.sweeps == pytest.approx(result.sweeps)  # looking is no part of the fit
    mean, var = (t.numpy() for t in watched.predict_f(X))
    np.testing.assert_allclose(alone.predict_f(X)[0], mean, atol=1e-10)
    np.testing.assert_allclose(alone.predict_f(X)[1], var, atol=1e-10)
    away = [np.abs(m - mean).max() for m, _ in moments]
    assert away[-1] <= 1e-6 < away[0]
    if isinstance(solver, ReducedNewton):
        assert np.mean(moments[-1][1]) > np.mean(var)  # what was not asked is variance


def test_a_posterior_is_asked_for_in_time(rng):
    one, kept = of_classes(rng), []
    gg.optimizers.fit(one, hyperparameters=False, callback=kept.append)
    with pytest.raises(RuntimeError, match="while the callback runs"):
        kept[0].posterior()
