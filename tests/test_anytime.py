"""What a fit of IterNCGP has on the way: searches on some of the data, posteriors to ask for."""

from __future__ import annotations

import gpflow
import laplace
import numpy as np
import pytest
import tensorflow as tf
from gpflow.likelihoods import Poisson, Softmax
from test_solvers import covariance, problem, reference, run_to_the_end

import gpflow_gam as gg
from gpflow_gam.models import IterNCGP
from gpflow_gam.newton import reduced_newton
from gpflow_gam.newton.operators import KernelOperator, LatentKernels
from gpflow_gam.newton.solvers import Informative, LaplaceProblem, ReducedNewton
from gpflow_gam.newton.variational import ExpectedProblem
from gpflow_gam.newton.weights import ActionWeights
from gpflow_gam.posteriors import ActionPosterior


@pytest.fixture
def coarse(monkeypatch):
    """Fits of 160 rows begin with 5, then 10, then 40 of them, then the columns of pivots."""
    monkeypatch.setattr(reduced_newton, "_FIRST", 5)
    monkeypatch.setattr(reduced_newton, "_MANY", 160)
    monkeypatch.setattr(reduced_newton, "_QUARTER", 10)
    monkeypatch.setattr(reduced_newton, "_SIXTEENTH", 10)


def model(rng, n=160, **options):
    X = rng.uniform(-1, 1, (n, 2))
    Y = (np.floor(1.5 * (X[:, :1] + 1)) % 3).astype(float)
    options.setdefault("solver", ReducedNewton(tolerance=1e-9))
    return IterNCGP((X, Y), gpflow.kernels.Matern32(3.0, 0.4), Softmax(3), **options)


def white(rng, dtype=np.float64):
    """An operator with white noise, and its matrix."""
    kernel = gpflow.kernels.Matern32(1.5, 0.5) + gpflow.kernels.White(0.3)
    X = rng.uniform(-1, 1, (30, 2)).astype(dtype)
    X[7] = X[3]  # white noise is of the row, not of the point
    return KernelOperator(LatentKernels.of(kernel, 2), tf.constant(X)), kernel(X).numpy()


# --- some of the data ----------------------------------------------------------------------------


def test_products_of_some_rows_are_columns_of_the_matrix(rng):
    operator, K = white(rng)
    rows = np.array([11, 3, 25, 7])
    V = rng.normal(size=(2, 4, 5))
    found = operator.product_of_rows(tf.constant(rows), tf.constant(V))
    np.testing.assert_allclose(found, K[:, rows] @ V, rtol=1e-12)
    assert operator.sweeps == pytest.approx(4 / 30)
    some = operator.of_rows(tf.constant(rows))
    np.testing.assert_allclose(some.product(tf.constant(V)), K[np.ix_(rows, rows)] @ V, rtol=1e-12)
    wide = np.zeros((2, 30, 5))
    wide[:, rows] = V
    np.testing.assert_array_equal(operator.spread(tf.constant(rows), tf.constant(V)), wide)


def test_rounded_products_are_those_of_single_precision(rng):
    V = tf.constant(rng.normal(size=(2, 30, 5)))
    operator, _ = white(rng)
    np.testing.assert_array_equal(operator.rounded_product(V), operator.product(V))
    gpflow.config.set_default_float(np.float32)
    operator, _ = white(rng, np.float32)
    found = operator.rounded_product(V)
    assert found.dtype == tf.float64
    error = np.abs(found - operator.product(V)).max()
    assert 0.0 < error < 1e-5


@pytest.mark.parametrize("averaged", [False, True])
def test_a_problem_of_some_rows_is_that_of_their_data(averaged, rng):
    whole, _ = problem("softmax", rng)
    if averaged:
        run, _, _ = run_to_the_end(ReducedNewton(num_actions=9), whole)
        whole = ExpectedProblem(whole, *run.finish_with_products())
    whole.pivoted(12)
    rows = tf.constant(whole.order()[:20])
    some = whole.of_rows(rows)
    g = tf.constant(rng.normal(size=(3, 60)))
    own = tf.gather(g, rows, axis=1)
    all_, here = whole.curvature(g), some.curvature(own)
    np.testing.assert_allclose(here.log_prob, tf.gather(all_.log_prob, rows))
    np.testing.assert_allclose(here.gradient, tf.gather(all_.gradient, rows, axis=1))
    blocks = tf.gather(all_.precision.blocks(), rows)
    np.testing.assert_allclose(here.precision.blocks(), blocks, atol=1e-12)
    plain = LaplaceProblem(some.operator, whole.likelihood, some.Y, whole.mean_function)
    one, other = some.pivoted(12), plain.pivoted(12)
    np.testing.assert_allclose(
        one.factor @ tf.transpose(one.factor, [0, 2, 1]) + tf.linalg.diag(one.left),
        tf.linalg.set_diag(one.factor @ tf.transpose(one.factor, [0, 2, 1]), plain.operator.diag()),
        atol=1e-12,
    )
    assert one.rank == other.rank == 12
    triangle = tf.gather(one.factor[0], one.pivots[0]).numpy()
    np.testing.assert_allclose(triangle, np.tril(triangle), atol=1e-12)


def test_a_factor_knows_pivots_up_to_the_first_that_is_not_there(rng):
    whole, _ = problem("poisson", rng)
    pivots = whole.pivoted(10).pivots[0]
    rows = [*pivots[:4], *pivots[5:], 1, 2]  # without the fifth
    some = whole.of_rows(tf.constant(list(dict.fromkeys(int(i) for i in rows))))
    assert some._pivoted is not None
    assert some._pivoted.rank == 4
    assert some.pivoted(8).rank == 8  # looked for anew
    P = some._pivoted.of_rows(tf.range(5), some.operator.diag())
    assert P.factor.shape[1] == 5


# --- the search ----------------------------------------------------------------------------------


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


def test_sweeps_of_some_rows_are_known_beforehand(rng, coarse):
    """Two sweeps pay for all searches on some rows and the posterior, and are not gone over."""
    one = model(rng, solver=ReducedNewton(Informative(4), num_pivots=4))
    result = gg.optimizers.fit(one, hyperparameters=False, max_sweeps=2)
    assert result.num_iterations == 4
    assert "budget" in result.message
    assert 1.0 < result.sweeps <= 2.0
    again = gg.optimizers.fit(one, hyperparameters=False, max_sweeps=2.5)  # the first of all rows
    assert again.num_iterations == 1
    assert again.sweeps == pytest.approx(2.0)


def test_a_warm_start_needs_no_rows_first(rng, coarse):
    of, _ = problem("poisson", rng, 160)
    run, _, _ = run_to_the_end(ReducedNewton(), of)
    again, _ = problem("poisson", np.random.default_rng(0), 160)
    warm = ReducedNewton().start(again, run.finish(cheap=True))
    first = next(iter(warm.steps()))
    assert first.sweeps > 1.0


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
        cov = covariance(run.finish(cheap=True), K)
        assert of.operator.sweeps - sweeps == pytest.approx((rows / 60) ** 2)
        look = run.look()
        assert look.state.actions.shape[2] == rows
        np.testing.assert_array_equal(look.state.weights, run.v)
        assert np.linalg.eigvalsh(cov - dense).min() > -1e-6
        assert -np.trace(cov) > last
        last = -np.trace(cov)
    if name == "poisson":
        np.testing.assert_allclose(cov, dense, atol=1e-6)  # all rows: all there is


@pytest.mark.parametrize(
    "solver", [ReducedNewton(tolerance=1e-9, num_pivots=8), "variational", "itergp"]
)
def test_every_posterior_on_the_way_can_be_had(solver, rng):
    X, n = rng.uniform(-1, 1, (40, 2)), 160
    seen, moments = [], []

    def look(progress: gg.optimizers.FitProgress) -> None:
        seen.append(progress.posterior())
        moments.append([t.numpy() for t in seen[-1].predict_f(X)])

    watched = model(np.random.default_rng(1), n, solver=solver)
    result = gg.optimizers.fit(watched, hyperparameters=False, callback=look)
    assert len(seen) == result.num_iterations > 1
    for posterior, (mean, var) in zip(seen, moments):  # each is a snapshot
        now = posterior.predict_f(X)
        np.testing.assert_array_equal(now[0], mean)
        np.testing.assert_array_equal(now[1], var)
    alone = model(np.random.default_rng(1), n, solver=solver)
    unwatched = gg.optimizers.fit(alone, hyperparameters=False)
    assert unwatched.sweeps == pytest.approx(result.sweeps)  # looking is no part of the fit
    mean, var = (t.numpy() for t in watched.predict_f(X))
    np.testing.assert_allclose(alone.predict_f(X)[0], mean, atol=1e-10)
    np.testing.assert_allclose(alone.predict_f(X)[1], var, atol=1e-10)
    away = [np.abs(m - mean).max() for m, _ in moments]
    assert away[-1] <= 1e-6 < away[0]
    if isinstance(solver, ReducedNewton):
        assert np.mean(moments[-1][1]) > np.mean(var)  # what was not asked is variance


def test_posteriors_on_the_way_of_searches_on_some_rows(rng, coarse):
    X, errors = rng.uniform(-1, 1, (40, 2)), []
    watched = model(rng)

    def look(progress: gg.optimizers.FitProgress) -> bool:
        mean, var = progress.posterior().predict_f(X)
        assert np.all(var > 0.0)
        assert np.all(var <= 3.0)
        errors.append(mean.numpy())
        return progress.iteration == 3  # before the first sweep of all rows

    result = gg.optimizers.fit(watched, hyperparameters=False, callback=look)
    assert result.message == "stopped by the callback"
    early = watched.predict_f(X)[0].numpy()
    np.testing.assert_allclose(early, errors[-1], atol=1e-10)
    assert gg.optimizers.fit(watched, hyperparameters=False).converged
    mode = watched.predict_f(X)[0].numpy()
    away = [np.abs(mean - mode).max() for mean in errors]
    assert away[2] < away[0]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_actions_of_some_rows_predict_as_those_of_all_in_form(dtype, rng):
    gpflow.config.set_default_float(dtype)
    X = rng.uniform(-1, 1, (60, 2)).astype(dtype)
    se = gpflow.kernels.SquaredExponential
    kernel = gg.kernels.AdditiveKernel(
        {"a": se(2.0, 0.4, active_dims=[0]), "b": se(1.0, 0.8, active_dims=[1])}
    )
    labels = np.floor(1.5 * (X[:, :1] + 1)) % 3
    one = IterNCGP((X, labels), kernel, Softmax(3), solver="newton")
    gg.optimizers.fit(one, hyperparameters=False)
    look = one.run().look()
    v, E, E0, *_ = ActionWeights.of_fit(look.state)
    wide = np.zeros((2, *E.shape[:2], 60))
    wide[..., look.rows.numpy()] = np.stack([E, E0])
    points = tf.gather(X, look.rows)
    few, all_ = (
        ActionPosterior(one.latents, one.data[0], lambda w=w: w, precompute_cache="tensor", **some)
        for w, some in (((v, E, E0), {"X_actions": points}), ((v, *wide), {}))
    )
    new = rng.uniform(-1, 1, (7, 2)).astype(dtype)
    for predict in (
        lambda p: p.predict_f(new),
        lambda p: p.predict_f(new, full_cov=True),
        lambda p: p.predict_f(new, full_output_cov=True),
        lambda p: p.predict_components(new),
        lambda p: p.predict_components(new, full_cov=True),
        lambda p: p.predict_variance_parts(new),
        lambda p: p.joint_components({"a": new, "b": new[:4]}),
    ):
        for a, b in zip(predict(few), predict(all_)):
            np.testing.assert_allclose(a, b, atol=1e-10 if dtype is np.float64 else 1e-5)


def test_a_posterior_is_asked_for_in_time(rng):
    one, kept = model(rng), []
    gg.optimizers.fit(one, hyperparameters=False, callback=kept.append)
    with pytest.raises(RuntimeError, match="while the callback runs"):
        kept[0].posterior()


def test_other_models_have_no_posterior_to_ask_for(rng):
    X = rng.uniform(-1, 1, (20, 1))
    vgp = gg.models.AdditiveVGP(
        (X, rng.poisson(1.0, (20, 1)).astype(float)),
        gg.kernels.AdditiveKernel([gpflow.kernels.Matern32()]),
        Poisson(),
    )
    seen = []
    gg.optimizers.fit(vgp, max_iterations=2, callback=lambda p: seen.append(p.posterior))
    assert seen
    assert set(seen) == {None}


def test_ctrl_c_while_a_posterior_is_made_leaves_the_model_as_it_was(rng, monkeypatch):
    one = model(rng)
    gg.optimizers.fit(one, hyperparameters=False)
    before = one.predict_f(one.data[0])

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    def look(progress: gg.optimizers.FitProgress) -> None:
        monkeypatch.setattr(reduced_newton.ReducedNewtonRun, "look", interrupted)
        progress.posterior()

    one.kernel.variance.assign(2.0)
    with pytest.raises(KeyboardInterrupt):
        gg.optimizers.fit(one, hyperparameters=False, callback=look)
    one.kernel.variance.assign(3.0)
    for a, b in zip(one.predict_f(one.data[0]), before):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("num_data", "expected"),
    [(20_000, []), (40_000, [10_000]), (79_999, [19_999]), (100_000, [6250, 25_000])],
)
def test_shares_of_the_data_that_a_search_looks_at(num_data, expected):
    assert reduced_newton._shares(num_data) == expected
