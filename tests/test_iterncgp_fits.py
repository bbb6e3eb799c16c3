"""Fits of IterNCGP: budgets, interruptions, searches on some rows, posteriors on the way."""

import copy

import gpflow
import laplace
import numpy as np
import pytest
import tensorflow as tf
from gpflow.likelihoods import Gaussian, Poisson, Softmax
from iterncgp_cases import additive, data, fit, fitted, kernel, made, noisy_classes
from problems import assert_close, slope
from programs import python
from scipy.special import expit
from test_solvers import covariance, problem, reference, run_to_the_end

import gpflow_gam as gg
from gpflow_gam.models import IterNCGP, iterncgp
from gpflow_gam.newton import operators, reduced_newton
from gpflow_gam.newton.operators import KernelOperator, LatentKernels
from gpflow_gam.newton.solvers import IterGP, ReducedNewton, Variational


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
    """The literal algorithm's bound falls from its fourth step of classes to its fifth."""
    model = IterNCGP(data(rng, 400)["classes"], kernel(), Softmax(3), solver="itergp")
    for _ in range(4):
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


def nearly_separable():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(100, 2))
    Y = np.sin(2.0 * X[:, :1]) + 0.1 * rng.normal(size=(100, 1)) > 0.0
    return IterNCGP(
        (X[:, :1], Y.astype(float)),
        gpflow.kernels.SquaredExponential(),
        gpflow.likelihoods.Bernoulli(),
        solver="newton",
    )


def few_classes():
    rows = noisy_classes(np.random.default_rng(913), 150, 0.1)
    return IterNCGP(rows, gpflow.kernels.Matern32(1.5, 0.7), Softmax(3), solver="newton")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fresh", "optimum"), [(nearly_separable, -21.9177), (few_classes, -90.2418)]
)
def test_hyperparameters_of_laplace_are_where_the_bound_of_the_mode_is_highest(fresh, optimum):
    """Not where that of held curvatures is: -21.98 and -90.26, after which rounds lose."""
    result = fit(fresh(), hyperparameters=True)
    assert result.converged
    assert result.elbo == pytest.approx(optimum, abs=1e-3)


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
        assert_close(model.parameters, before, rtol=0)

    broken("product")
    with pytest.raises(ValueError, match="not fitted"):
        model.predict_f(X)
    fit(model)
    compiled = tf.function(model.predict_f, autograph=False)
    model.kernel.variance.assign(2.5)
    before = *model.predict_f(X), *compiled(X)
    for where in INTERRUPTED:
        broken(where)
        assert_close(before, (*model.predict_f(X), *compiled(X)), rtol=0)
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
    assert "far beyond the mode" in result.message
    assert fit(IterNCGP((X, Y), k, Poisson(), solver="newton")).converged


@pytest.mark.parametrize("level", [1e9, pytest.param(1e15, marks=pytest.mark.slow)])
def test_the_mode_of_huge_counts_is_found_from_far_away(level, rng):
    """The first Newton step from zero is as long as the counts are large."""
    X = np.linspace(0.0, 1.0, 30)[:, None]
    Y = rng.poisson(level * np.exp(np.sin(6.0 * X))).astype(float)
    model = IterNCGP((X, Y), gpflow.kernels.SquaredExponential(400.0, 0.3), Poisson())
    assert fit(model).converged
    np.testing.assert_allclose(model.predict_f(X)[0], np.log(Y), atol=1e-3)


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


def test_products_of_some_rows_are_columns_of_the_matrix(rng):
    kernel = gpflow.kernels.Matern32(1.5, 0.5) + gpflow.kernels.White(0.3)
    X = rng.uniform(-1, 1, (30, 2))
    X[7] = X[3]  # white noise is of the row, not of the point
    operator, K = KernelOperator(LatentKernels.of(kernel, 2), tf.constant(X)), kernel(X).numpy()
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


# --- what a fitted model follows: parameters, replaced parts, copies, files ----------------------


def constant(value):
    return gpflow.functions.Constant(value)


REPLACED = {
    "kernel": lambda m: setattr(m, "kernel", gpflow.kernels.Matern32(100.0, 0.3)),
    "likelihood": lambda m: setattr(m, "likelihood", Poisson(binsize=0.1)),
    "mean_function": lambda m: setattr(m, "mean_function", constant(3.0)),
    "data": lambda m: setattr(m, "data", (m.data[0][:40], m.data[1][:40] + 1.0)),
    "a parameter": lambda m: setattr(m.kernel, "lengthscales", gpflow.Parameter(0.2)),
}


@pytest.mark.slow_but_first
@pytest.mark.parametrize("what", REPLACED)
def test_parts_that_were_replaced(what, rng):
    """Nothing is predicted before the next fit, and that is one to the new parts."""
    model = fitted("counts", rng)
    X, snapshot, before = model.data[0], model.posterior(), model.predict_f(model.data[0])
    variable, following = model.posterior("variable"), model.posterior("nocache")
    REPLACED[what](model)
    part = what if hasattr(model, what) else "kernel"
    for use in (model.predict_f, model.predict_components, lambda _: model.elbo(),
                lambda _: model.posterior()):  # fmt: skip
        with pytest.raises(ValueError, match=f"^{part}: not that of the last fit"):
            use(X)
    assert fit(model).converged
    options = {"mean_function": model.mean_function, "solver": model.solver}
    fresh = made(model.data, model.kernel, model.likelihood, **options)
    for a, b, old in zip(model.predict_f(X), fresh.predict_f(X), before):
        np.testing.assert_allclose(a, b, atol=1e-9)
        assert np.abs(a - old).max() > 0.05
    # a snapshot is of the fit before
    assert_close(snapshot.predict_f(X), before, atol=1e-12)
    # and what follows the model has other parts than that: it had kept to the fit before, silently
    for use in (variable.update_cache, lambda: following.fused_predict_f(X),
                lambda: snapshot.fused_predict_f(X)):  # fmt: skip
        with pytest.raises(ValueError, match=f"^{part}: not that of this posterior"):
            use()


def test_copies_of_posteriors_are_whole(rng):
    """The copy's own kernel is what it follows: it had taken the model's beside old weights."""
    model = fitted("counts", rng)
    X, before = model.data[0], model.predict_f(model.data[0])
    copied = copy.deepcopy(model.posterior("variable"))
    model.kernel.lengthscales.assign(5.0 * model.kernel.lengthscales)
    copied.update_cache()
    for moments in (copied.predict_f(X), copied.fused_predict_f(X)):
        assert_close(moments, before, atol=1e-9)


# compiled by XLA they are traced as without
@pytest.mark.slow
@pytest.mark.parametrize("jit", [False, True])
def test_compiled_predictions_follow_parameters_and_fits(jit, rng):
    model = fitted("counts", rng, additive())
    X = model.data[0][:7]
    signature = [tf.TensorSpec([None, 2], tf.float64)]
    options = {"input_signature": signature, "jit_compile": jit, "autograph": False}
    compiled = tf.function(both_predictions(model), **options)

    def agree(tolerance):
        for rows in (X,) if jit else (X, X[:0]):
            expected = *model.predict_f(rows), *model.predict_components(rows)
            assert_close(compiled(rows), expected, atol=tolerance)
        return model.predict_f(X)[0]

    before = agree(1e-11)
    model.kernel["a"].lengthscales.assign(0.2)
    # rounding is blown up by S'(K + W^+)S, and XLA's eigenvectors have more of it
    moved = agree(1e-5)
    assert np.abs(moved - before).max() > 0.05
    model.solver = ReducedNewton(num_actions=30)  # another number of actions
    fit(model)
    assert np.abs(agree(1e-11) - moved).max() > 0.01


def test_another_solver_fits_anew(rng):
    """At the same parameters, at which the one before has nothing left to do."""
    model = fitted("counts", rng, kernel(), solver=ReducedNewton(num_actions=2))
    model.solver = "variational"
    fit(model, hyperparameters=False)
    fresh = made(model.data, kernel(), model.likelihood, solver="variational")
    fit(fresh, hyperparameters=False)
    assert_close(model.predict_f(model.data[0]), fresh.predict_f(model.data[0]), atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("compiled", [False, True])
def test_predictions_have_gradients(compiled, rng):
    """In inputs and parameters, of mean and variance, against finite differences."""
    k = gpflow.kernels.SeparateIndependent(
        [kernel(), gpflow.kernels.SquaredExponential(0.8, 0.5), gpflow.kernels.Matern52()]
    )
    solver = ReducedNewton(num_actions=20, tolerance=1e-11)
    mean = constant([0.1, 0.2, 0.3])
    model = fitted("classes", rng, k, solver=solver, mean_function=mean)
    Xnew = tf.Variable(rng.uniform(-1, 1, (4, 2)))
    slopes = [tf.constant(rng.normal(size=(4, 3))) for _ in range(2)]

    def value():
        return tf.add_n([tf.reduce_sum(a * b) for a, b in zip(slopes, model.predict_f(Xnew))])

    def gradients():
        variables = [Xnew, *model.trainable_variables]
        with tf.GradientTape() as tape:
            total = value()
        return tape.gradient(total, variables)

    variables = [Xnew, *model.trainable_variables]
    result = (tf.function(gradients, autograph=False) if compiled else gradients)()
    assert len(result) == 8
    for variable, gradient in zip(variables, result):
        direction = rng.normal(size=variable.shape)
        expected = slope(value, variable, direction)
        assert float(np.sum(direction * gradient)) == pytest.approx(expected, rel=1e-4, abs=1e-4)


@pytest.mark.slow
def test_parameters_may_be_frozen_and_set_free_again(rng, monkeypatch):
    """Fits learn what is trainable when they begin, whatever was compiled before."""
    monkeypatch.setattr(operators, "_SMALL", 0)
    model = IterNCGP(data(rng)["counts"], kernel(), Poisson(), solver="newton")
    gpflow.set_trainable(model.kernel.lengthscales, False)
    first = fit(model, hyperparameters=True).elbo
    assert float(model.kernel.lengthscales.numpy()) == pytest.approx(0.7, rel=1e-12)
    gpflow.set_trainable(model.kernel.lengthscales, True)
    assert fit(model, hyperparameters=True).elbo > first + 1e-3
    assert abs(float(model.kernel.lengthscales.numpy()) - 0.7) > 1e-2
    # GPflow's other sense: a copy of which nothing is trainable
    frozen = gpflow.utilities.freeze(model)
    assert_close(frozen.predict_f(model.data[0]), model.predict_f(model.data[0]), atol=1e-9)


def test_float32(rng):
    double = fitted("classes", rng, solver=ReducedNewton(num_actions=50))
    X, Y = double.data
    gpflow.config.set_default_float(np.float32)
    single = IterNCGP(
        (X.numpy().astype(np.float32), Y.numpy()), kernel(), Softmax(3), solver="newton"
    )
    result = fit(single)
    assert result.converged
    mean, var = single.predict_f(X.numpy().astype(np.float32))
    assert mean.dtype == tf.float32
    assert_close((mean, var), double.predict_f(X), atol=2e-2)


def few(rng, name="counts", kernel=None, number=10):
    return fitted(name, rng, kernel, solver=ReducedNewton(num_actions=number))


@pytest.mark.slow_but_first
@pytest.mark.parametrize("compiled", [False, True])
def test_slopes_of_frozen_parameters_that_are_watched_are_whole(compiled, rng):
    """By the weights, too: not by k(Xnew, X) alone."""
    model = few(rng, number=5)
    X, v = model.data[0][:5], model.kernel.lengthscales.unconstrained_variable

    def slope():
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(v)
            value = tf.reduce_sum(model.predict_f(X)[0])
        return tape.gradient(value, v)

    def result():
        return float((tf.function(slope, autograph=False) if compiled else slope)())

    free = result()
    gpflow.set_trainable(model.kernel, False)
    assert result() == pytest.approx(free, rel=1e-9)


LOADED = """
import sys
import numpy as np
sys.modules["gpflow_gam"] = sys.modules["gpflow"] = None  # importing either is an error
import tensorflow as tf
for folder in ("counts", "classes"):
    model, X = tf.saved_model.load(folder), np.load(folder + ".npy")
    parts = [model.compiled_elbo(), *tf.nest.flatten(model.compiled(X))]
    np.savez(folder + ".npz", *[part.numpy() for part in parts])
"""


def both_predictions(model):
    return lambda x: (*model.predict_f(x), *model.predict_components(x))


@pytest.mark.slow
def test_models_are_saved_with_functions_of_theirs(rng, tmp_path):
    """As GPflow's documentation has it: another process loads them without our code."""
    expected = {}
    for name in ("counts", "classes"):
        model = few(rng, name, additive())
        uses = model.predict_y if name == "classes" else both_predictions(model)
        signature = [tf.TensorSpec([None, 2], tf.float64)]
        model.compiled = tf.function(uses, input_signature=signature, autograph=False)
        model.compiled_elbo = tf.function(model.elbo, input_signature=[], autograph=False)
        X = model.data[0][:7].numpy()
        np.save(tmp_path / f"{name}.npy", X)
        model.kernel["a"].lengthscales.assign(0.4)  # the functions follow
        tf.saved_model.save(model, str(tmp_path / name))
        expected[name] = [model.elbo(), *uses(X)]
    python(LOADED, cwd=tmp_path)
    for name, parts in expected.items():
        with np.load(tmp_path / f"{name}.npz") as result:
            assert_close(result.values(), parts, rtol=1e-9, atol=1e-12)
    # parameters and checkpoints are what they were
    fresh = type(model)(model.data, additive(), model.likelihood)
    assert len(model.variables) == len(fresh.variables)
    kept = [tf.train.Checkpoint(model=m).save(str(tmp_path / "kept")) for m in (model, fresh)]
    first, second = ([key for key, _ in tf.train.list_variables(file)] for file in kept)
    assert first == second


# --- Newton steps to the nearest Gaussian --------------------------------------------------------

N = 30
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(40)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


def prior(variance=4.0):
    return gpflow.kernels.Matern32(variance, 0.5)


def nearest(data, likelihood, rounds=2, **options):
    solver = Variational(ReducedNewton(num_actions=200, tolerance=1e-11), rounds)
    return made(data, options.pop("kernel", prior()), likelihood, solver=solver)


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
@pytest.mark.parametrize("name", ["counts", "binary"])
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
    mean, cov = best_gaussian(prior()(X).numpy(), slopes)
    model = nearest((X, y[:, None]), likelihood, rounds=12)
    result = model.predict_f(X, full_cov=True)
    np.testing.assert_allclose(result[0][:, 0], mean, atol=1e-4)
    np.testing.assert_allclose(result[1][0], cov, atol=1e-4)
    # its bound is stationary in the mean, so none is better nearby; and Laplace's is less
    mode = made(model.data, prior(), likelihood, solver="newton")
    assert float(model.elbo()) > float(mode.elbo()) + 0.01


@pytest.mark.slow
def test_classes_have_expected_gradients_for_weights(rng):
    """At a fixed point v = E_q[g], and the bound is above Laplace's; by draws of q."""
    X, labels = noisy_classes(rng, N)
    model = nearest((X, labels), Softmax(3), rounds=6, kernel=prior(20.0))
    mean, cov = model.predict_f(X, full_output_cov=True)
    for n in range(N):
        draws = rng.multivariate_normal(mean[n], cov[n], 40_000)
        expected = np.eye(3)[int(labels[n, 0])] - laplace.softmax(draws).mean(axis=0)
        np.testing.assert_allclose(model.state.weights[:, n], expected, atol=0.02)
    mode = made((X, labels), prior(20.0), Softmax(3), solver="newton")
    assert float(model.elbo()) > float(mode.elbo()) + 1.0
    sure = [m.predict_y(X)[0].numpy().max(axis=1).mean() for m in (mode, model)]
    assert sure[1] > sure[0] + 0.01


def test_averages_that_overflow_leave_the_round_before(rng):
    X = rng.uniform(-1, 1, (N, 2))
    Y = rng.poisson(2.0, (N, 1)).astype(float)
    few = Variational(ReducedNewton(num_actions=1))
    model = IterNCGP((X, Y), prior(2e4), Poisson(), solver=few)
    result = fit(model)
    assert not result.converged
    assert "Poisson overflows where it is averaged" in result.message
    mode = made((X, Y), prior(2e4), Poisson(), solver=few.newton)
    assert_close(model.predict_f(X), mode.predict_f(X))


def test_it_is_the_default_of_few_rows_whose_noise_is_not_normal(rng, monkeypatch):
    X, Y = rng.uniform(0, 1, (N, 2)), np.ones((N, 1))
    weighted = gg.likelihoods.Weighted(Gaussian(0.1), 1)
    for likelihood, wanted in (
        (Poisson(), Variational),
        (Softmax(3), Variational),
        (Gaussian(0.1), ReducedNewton),
        (weighted, ReducedNewton),
    ):
        assert type(IterNCGP((X, Y), prior(), likelihood).solver) is wanted
    assert type(IterNCGP((X, Y), prior(), Poisson(), solver="newton").solver) is ReducedNewton
    monkeypatch.setattr(iterncgp, "_FEW", N - 1)
    assert type(IterNCGP((X, Y), prior(), Poisson()).solver) is ReducedNewton
