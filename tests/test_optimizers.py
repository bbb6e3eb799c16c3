"""Natural gradients, sites, and the one function that fits."""

import functools
from typing import Any

import gpflow
import numpy as np
import pandas as pd
import problems
import pytest
import tensorflow as tf
from gpflow.kernels import SquaredExponential

import gpflow_gam as gg
from gpflow_gam.optimizers import fits, sites
from gpflow_gam.optimizers.binned import rounds
from gpflow_gam.optimizers.minimizers import LBFGS, Settling, Tracker
from gpflow_gam.optimizers.sites import data_sites, elbo_at_sites

vi = gg.variational


def counts(num_data: int = 150, level: float = 3.0, seed: int = 3):
    rng = np.random.default_rng(seed)
    X, _, kernel, inducing = problems.like(num_components=2, num_inducing=6, num_data=num_data)
    Y = rng.poisson(np.exp(level + np.sin(6 * X[:, :1]) + 0.5 * X[:, 1:])).astype(float)
    return X, Y, kernel, inducing


def poisson(family: vi.VariationalFamily, **options: object):
    X, Y, kernel, inducing = counts(**options)
    model = gg.models.AdditiveSVGP(
        kernel(), gpflow.likelihoods.Poisson(), inducing(), variational=family
    )
    return model, (X, Y)


def curve(k: gpflow.kernels.Kernel, likelihood: Any, number: int, q: Any = None, **options: Any):
    """One component, with inducing inputs on a line."""
    Z = gg.inducing_variables.AdditiveInducingVariables([np.linspace(0, 1, number)[:, None]])
    options["variational"] = q or vi.OptimalPrecision()
    return gg.models.AdditiveSVGP(gg.kernels.AdditiveKernel([k]), likelihood, Z, **options)


def with_outliers(rng: np.random.Generator):
    """Student-t responses, a tenth of them far off: weights of sites are negative there."""
    X, Y, kernel, inducing = problems.like(num_components=2)
    Y = Y + 50.0 * (rng.uniform(size=Y.shape) < 0.1)
    likelihood = gpflow.likelihoods.StudentT(scale=0.2, df=3.0)
    family = vi.OptimalPrecision()
    return gg.models.AdditiveSVGP(kernel(), likelihood, inducing(), variational=family), X, Y


# --- gradients of expectations, and sites -------------------------------------------------------


def test_bound_at_fixed_sites_is_the_collapsed_bound_for_gaussian_data(problem):
    """At any hyperparameters, not only those at which the sites were made."""
    model = problem.svgp(gpflow.likelihoods.Gaussian(0.2), variational=vi.OptimalPrecision())
    X, Y = tf.constant(problem.X), tf.constant(problem.Y)
    cholesky = model.blocks.cholesky()
    sites = data_sites(model, (X, Y), cholesky, model.variational.whitened(cholesky))
    np.testing.assert_allclose(sites.weight, 5.0)
    model.kernel["a"].lengthscales.assign(0.7)
    model.kernel["b"].variance.assign(2.0)
    collapsed = gg.models.AdditiveSGPR(problem.data, model.kernel, model.inducing_variable, 0.2)
    np.testing.assert_allclose(elbo_at_sites(model, (X, Y), sites), collapsed.elbo(), rtol=1e-9)


# --- natural gradients ---------------------------------------------------------------------------


def test_natural_gradient_step_against_a_dense_loop(rng):
    """One step of size 0.3 from a random site, data point by data point."""
    model, (X, Y) = poisson(vi.OptimalPrecision(), num_data=25, level=1.0)
    problems.randomise(model.variational, rng)
    model.num_data = 75
    cholesky = model.blocks.cholesky()
    Lambda, eta = (a.numpy() for a in model.variational.sites(cholesky))
    features = model.blocks.features(X, cholesky)
    phi = model.blocks.layout.concat(features.phi).numpy()
    mean, var = (a.numpy() for a in model.predict_f(X))
    new_Lambda, new_eta = 0.7 * Lambda, 0.7 * eta
    for n in range(25):
        rate = np.exp(mean[n, 0] + 0.5 * var[n, 0])  # E exp(rho): Poisson in closed form
        g, w = Y[n, 0] - rate, rate
        new_Lambda[0] += 0.3 * 3.0 * w * np.outer(phi[:, n], phi[:, n])
        new_eta[:, 0] += 0.3 * 3.0 * (g + w * mean[n, 0]) * phi[:, n]
    step = gg.optimizers.NaturalGradient(rho=0.3).step(model, (X, Y))
    got_Lambda, got_eta = model.variational.sites(cholesky)
    np.testing.assert_allclose(got_Lambda, new_Lambda, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(got_eta, new_eta, rtol=1e-9, atol=1e-9)
    assert step.num_negative == 0


def test_a_step_sees_that_a_part_was_replaced(rng):
    model, X, Y = with_outliers(rng)
    step = gg.optimizers.NaturalGradient(rho=0.5).step
    for _ in range(2):
        step(model, (X, Y))
    other, normal = with_outliers(rng)[0], gpflow.likelihoods.Gaussian(0.5)
    moved = {name: 0.5 * Z for name, Z in other.inducing_variable.components.items()}
    moved = gg.inducing_variables.AdditiveInducingVariables(moved)
    for part, name, new in (
        (model, "likelihood", normal),
        (model, "num_data", 3 * len(X)),
        (normal, "variance", gpflow.Parameter(2.0)),
        (model.kernel.kernels[0], "lengthscales", gpflow.Parameter(0.05)),
        (model, "inducing_variable", moved),
        (model, "variational", other.variational),
    ):
        setattr(part, name, new)
        expected = float(model.elbo((X, Y)))
        assert step(model, (X, Y)).elbo == pytest.approx(expected, rel=1e-9), name


def test_negative_weights_are_counted_and_harmless(rng):
    """Student-t: outliers have w < 0; the precision has to stay positive."""
    model, X, Y = with_outliers(rng)
    gradient = gg.optimizers.NaturalGradient(rho=0.5)
    before = float(model.elbo((X, Y)))
    seen = [gradient.step(model, (X, Y)).num_negative for _ in range(15)]
    assert max(seen) > 0
    assert np.isfinite(float(model.elbo((X, Y))))
    assert float(model.elbo((X, Y))) > before
    weights = np.linalg.eigvalsh(model.variational.site_precision.numpy()[0])
    assert weights[0] > -1e-8 * weights[-1]
    # nor do they harm where they count, and all that rows say is that nothing is known
    Lambda = tf.zeros_like(model.variational.site_precision)
    model.variational.assign_sites(model.blocks.cholesky(), Lambda, Lambda[0, :, :1])
    signed = gg.optimizers.NaturalGradient(rho=0.5, signed=True)
    for _ in range(2):
        assert signed.step(model, (X, Y + 50.0)).num_negative > 0
    precision, _ = model.variational.sites(model.blocks.cholesky())
    assert -0.5 - 1e-8 < np.linalg.eigvalsh(precision.numpy()[0])[0] < 0.0  # the prior's is 1
    assert np.all(np.isfinite(model.predict_f(X)[1]))


def test_minibatches_are_as_sure_as_all_rows_are(monkeypatch):
    """Heavy tails: without the negative weights of two rows in five, errors are .96 of these."""
    monkeypatch.setattr(sites, "POLISH_ROWS", 0)
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(600, 1))
    Y = np.sin(4.0 * X) + 0.2 * rng.standard_t(1.5, size=X.shape)

    def fresh() -> gg.models.AdditiveSVGP:
        heavy = gpflow.likelihoods.StudentT(scale=0.2, df=1.5)
        model = curve(SquaredExponential(lengthscales=0.3), heavy, 8, num_data=len(X))
        gpflow.set_trainable(model.kernel, False)
        gpflow.set_trainable(model.likelihood, False)
        return model

    known, model = fresh(), fresh()
    gg.optimizers.fit(known, (X, Y))
    gg.optimizers.fit(model, (X, Y), batch_size=100, rho=0.1, max_iterations=150)
    clipped, steps = fresh(), gg.optimizers.NaturalGradient(0.5)
    for _ in range(30):
        steps.step(clipped, (X, Y))
    at = np.linspace(0.0, 1.0, 9)[:, None]
    (mean, var), (exact, known_var) = model.predict_f(at), known.predict_f(at)
    np.testing.assert_allclose(np.sqrt(var), np.sqrt(known_var), rtol=0.01)
    assert np.max(np.abs(mean - exact) / np.sqrt(known_var)) < 0.2
    ratio = np.sqrt(clipped.predict_f(at)[1] / known_var)
    assert 0.94 < np.mean(ratio) < 0.975


def test_likelihoods_that_are_not_log_concave_have_the_best_q():
    """As L-BFGS finds it, which knows nothing of sites."""
    X, Y, kernel, inducing = problems.like(num_components=2)
    elbos, variances = [], []
    for q in (vi.OptimalPrecision(), vi.CoupledCovariance()):
        likelihood = gpflow.likelihoods.StudentT(scale=0.1, df=2.5)
        model = gg.models.AdditiveSVGP(kernel(), likelihood, inducing(), variational=q)
        for part in (model.kernel, model.likelihood, model.inducing_variable):
            gpflow.set_trainable(part, False)
        elbos.append(gg.optimizers.fit(model, (X, Y), tolerance=1e-7).elbo)
        variances.append(model.predict_f(X)[1])
    assert elbos[0] == pytest.approx(elbos[1], abs=1e-5)
    np.testing.assert_allclose(variances[0], variances[1], rtol=1e-3)


def test_variational_pirls_converges_from_large_counts_in_few_steps():
    model, data = poisson(vi.OptimalPrecision(), level=8.0)
    gpflow.set_trainable(model.kernel, False)
    result = gg.optimizers.fit(model, data, tolerance=1e-6)
    assert result.converged
    assert result.num_iterations <= 15
    assert np.all(np.diff(result.history) > -1e-6)


def test_natural_gradients_need_sites(problem):
    model = problem.svgp()
    with pytest.raises(TypeError, match=r"variational=OptimalPrecision\(\); got .*BlockPrecision"):
        gg.optimizers.NaturalGradient().step(model, problem.data)
    with pytest.raises(ValueError, match=r"rho must be in \(0, 1\]; got 0"):
        gg.optimizers.NaturalGradient(rho=0.0)


# --- fit -----------------------------------------------------------------------------------------


@functools.cache
def reference() -> float:
    """What sites reach on :func:`poisson`."""
    model, data = poisson(vi.OptimalPrecision())
    return gg.optimizers.fit(model, data, tolerance=1e-4).elbo


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("family", "options", "gap"),
    [
        (vi.OptimalPrecision, {}, 0.1),
        (vi.BlockPrecision, {}, 2.0),
        (vi.OptimalPrecision, {"batch_size": 50, "learning_rate": 0.05}, 4.0),
        (vi.BlockPrecision, {"batch_size": 50, "learning_rate": 0.05, "patience": 20}, 12.0),
    ],
    ids=["sites", "L-BFGS", "minibatch sites", "minibatch Adam"],
)
def test_fit_learns_hyperparameters_by_every_route(family, options, gap):
    """First-order routes end within some nats of what sites reach, far above where q began."""
    model, data = poisson(family())
    start = float(model.elbo(data))
    result = gg.optimizers.fit(model, data, max_iterations=1000, **options)
    best = reference()
    assert best - gap < result.elbo < best + 0.01
    assert start < best - 1000.0
    assert result.elbo == pytest.approx(float(model.elbo(data)), rel=1e-8)
    assert model.num_data is None, "the model's own setting was changed"
    assert len(result.history) == result.num_iterations
    assert result.seconds > 0.0


@pytest.mark.parametrize("route", ["sites", "actions"])
def test_the_level_is_learnt_by_the_mean_function(route, rng):
    """At its best value residuals add up to nothing; a kernel of variance one holds them back."""
    X = rng.uniform(size=(60, 1))
    Y = rng.poisson(np.exp(3.0 + np.sin(6.0 * X))).astype(float)
    k, mean = SquaredExponential(lengthscales=0.3), gpflow.functions.Constant(0.0)
    gpflow.set_trainable(k, False)
    likelihood = gpflow.likelihoods.Poisson()
    if route == "sites":
        model = curve(k, likelihood, 15, mean_function=mean)
        result = gg.optimizers.fit(model, (X, Y))
    else:
        model = gg.models.IterNCGP((X, Y), k, likelihood, mean_function=mean)
        result = gg.optimizers.fit(model)
    assert result.converged
    left = np.sum(Y - model.predict_y(X)[0])
    assert abs(left) < 1e-3 * np.sum(Y)
    assert abs(float(mean.c.numpy()) - np.mean(np.log(Y + 0.5))) < 0.5


@pytest.mark.parametrize(
    "unit", [*(pytest.param(u, marks=pytest.mark.slow) for u in (1e-3, 1.0)), 1e3]
)
@pytest.mark.parametrize("route", ["sites", "actions", "collapsed", "GPR"])
def test_a_line_is_learnt_in_any_unit(route, unit, rng):
    """GPR begins at the line by least squares, in units of one."""
    x = rng.uniform(size=(100, 1))
    y = 50.0 - 30.0 * x + np.sin(6.0 * x) + 0.1 * rng.normal(size=x.shape)

    def parts(unit: float, line: np.ndarray) -> tuple[Any, ...]:
        k = SquaredExponential(unit**2, 30.0 * unit)
        noise = gpflow.likelihoods.Gaussian(0.1 * unit**2, variance_lower_bound=1e-6 * unit**2)
        A = line[:1, None] * unit / (100.0 * unit)
        mean = gpflow.functions.Linear(A, line[1:] * unit)
        return (100.0 * unit * x, unit * y), k, noise, mean

    line = np.linalg.lstsq(np.column_stack([x, np.ones(100)]), y, rcond=None)[0][:, 0]
    data, k, noise, mean = parts(1.0, line)
    best = gpflow.models.GPR(data, k, mean, likelihood=noise)
    gpflow.optimizers.Scipy().minimize(best.training_loss, best.trainable_variables)

    data, k, noise, mean = parts(unit, np.zeros(2))
    terms = gg.kernels.AdditiveKernel([k])
    Z = [100.0 * unit * np.linspace(0.0, 1.0, 20)[:, None]]
    Z = gg.inducing_variables.AdditiveInducingVariables(Z)
    gpflow.set_trainable(Z, False)
    if route == "GPR":  # with data that may be assigned
        held = [tf.Variable(a, shape=[None, 1], trainable=False) for a in data]
        model = gpflow.models.GPR(tuple(held), k, mean, likelihood=noise)
    elif route == "actions":
        model = gg.models.IterNCGP(data, k, noise, mean_function=mean)
    elif route == "collapsed":
        model = gg.models.AdditiveSGPR(data, terms, Z, 0.1 * unit**2, mean_function=mean)
    else:
        q = vi.OptimalPrecision()
        model = gg.models.AdditiveSVGP(terms, noise, Z, variational=q, mean_function=mean)
    result = gg.optimizers.fit(model, data if route == "sites" else None)
    assert result.converged
    bound = result.elbo + len(x) * np.log(unit)
    assert bound == pytest.approx(float(best.log_marginal_likelihood()), abs=0.1)


@pytest.mark.parametrize("route", ["sites", "actions", "L-BFGS"])
def test_a_variance_that_begins_far_too_large_comes_down(route, rng):
    """Where softplus is linear, and slopes in it next to nothing; GPR begins where it is right."""
    X = rng.uniform(size=(80, 1))
    Y = np.sin(6.0 * X) + 0.1 * rng.normal(size=X.shape)
    exact = gpflow.models.GPR((X, Y), SquaredExponential(0.5, 0.3), noise_variance=0.1)
    gpflow.optimizers.Scipy().minimize(exact.training_loss, exact.trainable_variables)
    k, likelihood = SquaredExponential(100.0, 0.3), gpflow.likelihoods.Gaussian(0.1)
    if route == "actions":
        result = gg.optimizers.fit(gg.models.IterNCGP((X, Y), k, likelihood))
    else:
        q = vi.OptimalPrecision() if route == "sites" else vi.CoupledCovariance()
        model = curve(k, likelihood, 20, q)
        result = gg.optimizers.fit(model, (X, Y))
    assert result.converged
    assert result.elbo == pytest.approx(float(exact.log_marginal_likelihood()), abs=0.1)


def test_slow_rounds_go_on_until_little_is_left(rng):
    """Sites and a Gamma's shape take turns, each of which gains a sixth of what is left."""
    X = rng.uniform(size=(60, 1))
    Y = rng.gamma(5.0, np.exp(1.5 + np.sin(6.0 * X)) / 5.0)
    model = curve(gpflow.kernels.Matern52(1.0, 0.3), gpflow.likelihoods.Gamma(), 12)
    first = gg.optimizers.fit(model, (X, Y))
    assert first.converged
    assert gg.optimizers.fit(model, (X, Y), tolerance=1e-4).elbo < first.elbo + 0.02


def test_rounds_that_lose_have_not_settled():
    settling = Settling()
    assert [settling.after(gain, 1e-2) for gain in (1.0, -0.3, -0.3, 1e-5, 1e-5)] == [
        *(False,) * 4, True
    ]  # fmt: skip


def test_callback_and_time_budget_stop_a_fit():
    model, data = poisson(vi.OptimalPrecision())
    seen: list[gg.optimizers.FitProgress] = []

    def stop(progress: gg.optimizers.FitProgress) -> bool:
        seen.append(progress)
        return progress.iteration == 4

    result = gg.optimizers.fit(model, data, callback=stop)
    assert not result.converged
    assert "callback" in result.message
    assert [p.iteration for p in seen] == [1, 2, 3, 4]
    assert result.elbo == pytest.approx(float(model.elbo(data)), rel=1e-8)
    model, data = poisson(vi.MeanField())
    result = gg.optimizers.fit(model, data, max_seconds=1e-6)
    assert "time budget" in result.message
    assert result.ended
    assert result.num_iterations == 0


def _walled(x, wall):
    """-exp(-(x - 2)^2 / 2), which cannot be evaluated beyond 2.05: a first step goes too far."""
    one, zero = tf.ones([], tf.float64), tf.zeros([], tf.float64)

    def loss():
        if wall == "raises":
            inside = tf.linalg.cholesky([[one, zero], [zero, 2.05 - x]])[1, 1]
        else:
            inside = x * tf.where(x < 2.05, one, np.nan)
        return -tf.exp(-0.5 * tf.square(x - 2.0)) + 1e-12 * inside

    return loss


@pytest.mark.parametrize("wall", ["raises", "nan"])
def test_lbfgs_steps_back_from_where_nothing_can_be_evaluated(wall):
    x = tf.Variable(-1.0, dtype=tf.float64)
    try:
        gpflow.optimizers.Scipy().minimize(_walled(x, wall), [x])
    except tf.errors.InvalidArgumentError:
        assert wall == "raises"
    assert abs(x.numpy() - 2.0) > 0.04  # so the wall is in the way of a search that knows none
    x.assign(-1.0)
    with Tracker([x], "L-BFGS", None, None, progress=False) as tracker:
        converged, _ = LBFGS(_walled(x, wall), [x]).converge(
            tracker, max_iterations=50, tolerance=1e-6
        )
    assert converged
    assert x.numpy() == pytest.approx(2.0, abs=1e-6)
    x.assign(3.0)
    with pytest.raises(tf.errors.InvalidArgumentError):
        LBFGS(_walled(x, wall), [x]).run(tracker, max_iterations=1, tolerance=1.0)


@pytest.mark.parametrize(("wrong", "converges"), [(1e-5, True), (0.5, False)])
def test_lbfgs_where_the_line_search_finds_nothing_lower(wrong, converges):
    """At the bottom of a bowl, by a gradient that is ``wrong``: by less than asked for, or not."""
    x = tf.Variable(1.0, dtype=tf.float64)

    def loss():
        return tf.square(x - 2.0) + wrong * (x - tf.stop_gradient(x))

    with Tracker([x], "L-BFGS", None, None, progress=False) as tracker:
        own = LBFGS(loss, [x])
        converged, _ = own.converge(tracker, max_iterations=50, tolerance=1e-3)
        ended, _, slope = own.run(tracker, max_iterations=50, tolerance=1e-7)
    assert converged == converges
    assert not ended
    assert slope == pytest.approx(abs(2.0 * (x.numpy() - 2.0) + wrong))


# --- minibatches ---------------------------------------------------------------------------------


def many_counts(num_data: int = 20_000):
    """A sine of x at a lengthscale that starts far off, in one component of seven inputs."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(num_data, 1))
    Y = rng.poisson(np.exp(np.sin(6.0 * X))).astype(float)
    k = SquaredExponential(lengthscales=1.5)
    return curve(k, gpflow.likelihoods.Poisson(), 7), (X, Y)


@pytest.mark.slow
def test_minibatches_reach_the_hyperparameters_of_all_data(monkeypatch):
    """Without steps on all rows, and with them."""
    reference, data = many_counts()
    full = gg.optimizers.fit(reference, data, tolerance=1e-3)
    assert full.method == "sites + L-BFGS", "minibatches are for those who ask for them"
    model, _ = many_counts()

    def check(result, lengthscale, elbo):
        ends = [m.kernel.kernels[0].lengthscales.numpy() for m in (model, reference)]
        assert ends[1] < 0.6, "it has to move far"
        assert abs(np.log(ends[0] / ends[1])) < lengthscale
        assert full.elbo - elbo < result.elbo < full.elbo + 0.01
        assert result.converged

    begun = []
    epochs = sites._epochs

    def once(*arguments):
        """The second fit goes on from where the first one's epochs ended."""
        begun.append(begun[0] if begun else epochs(*arguments))
        return begun[0]

    monkeypatch.setattr(sites, "_epochs", once)
    options = {"batch_size": 1000, "learning_rate": 0.02}
    with monkeypatch.context() as context:
        context.setattr(sites, "POLISH_ROWS", 10_000)
        result = gg.optimizers.fit(model, data, **options)
    check(result, 0.15, 0.5)
    ended = "minibatches ended without a trend (the last 5 epochs gained"
    assert ended in result.message
    assert "; no steps on all rows, of which there are 20000, more than" in result.message
    result = gg.optimizers.fit(model, data, **options)
    check(result, 0.03, 0.1)
    assert ended in result.message
    assert "; then, on all rows: the last round of site and hyper" in result.message


def test_a_budget_too_short_for_an_epoch_says_so():
    model, data = many_counts()
    start = float(model.elbo(data))
    result = gg.optimizers.fit(model, data, batch_size=2, max_seconds=3.0)
    assert not result.converged
    assert result.message == "time budget of 3 s used up"
    assert result.num_iterations == 0, "an epoch takes 10 000 steps"
    assert result.elbo > start
    assert model.num_data is None


def test_an_interruption_within_an_epoch_leaves_the_best_epoch(monkeypatch):
    batches, epochs = sites._batches, []

    def interrupted(rng, rows, size):
        epochs.append(0)
        for i, batch in enumerate(batches(rng, rows, size)):
            if len(epochs) == 4 and i == 2:
                raise KeyboardInterrupt
            yield batch

    monkeypatch.setattr(sites, "_batches", interrupted)
    model, data = poisson(vi.OptimalPrecision())
    seen = []

    def remember(progress):
        seen.append([v.numpy() for v in model.variables])

    options = {"batch_size": 50, "callback": remember, "on_interrupt": "keep"}
    result = gg.optimizers.fit(model, data, **options)
    assert result.message == "interrupted; what was best so far is kept"
    assert len(result.history) == 3
    for variable, value in zip(model.variables, seen[int(np.argmax(result.history))]):
        np.testing.assert_array_equal(variable.numpy(), value)


def test_trend_is_told_from_noise(rng):
    """The error of a gain is that of noise, in which a rise has no part."""
    assert sites.trend(np.zeros(9), 5) is None
    line = 2.0 * np.arange(10)
    gains, errors = zip(*(sites.trend(line + rng.standard_normal(10), 5) for _ in range(400)))
    assert np.mean(gains) == pytest.approx(10.0, abs=0.1)
    assert np.std(gains) == pytest.approx(np.sqrt(np.mean(np.square(errors))), rel=0.15)


def test_priors_enter_the_objective():
    import tensorflow_probability as tfp

    model, data = poisson(vi.OptimalPrecision())
    model.kernel["f0"].lengthscales.prior = tfp.distributions.LogNormal(
        np.float64(np.log(0.9)), np.float64(0.001)
    )
    result = gg.optimizers.fit(model, data)
    assert model.kernel["f0"].lengthscales.numpy() == pytest.approx(0.9, rel=0.01)
    expected = float(model.elbo(data) + model.log_prior_density())
    assert result.elbo == pytest.approx(expected, rel=1e-8)


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("name", ["svgp", "iterncgp"])
def test_what_is_no_number_of_the_precision_is_refused(name, rng):
    X, Y = rng.integers(0, 5, (20, 2)).astype(float), rng.poisson(2.0, (20, 1)).astype(float)
    kernel = gg.kernels.AdditiveKernel([SquaredExponential(active_dims=[c]) for c in (0, 1)])
    inducing, likelihood = gg.inducing_variables.select(X, kernel, 4), gpflow.likelihoods.Poisson()

    def fit(*data):
        if name == "svgp":
            model = gg.models.AdditiveSVGP(kernel, likelihood, inducing)
            gg.optimizers.fit(model, data, max_iterations=1)
        else:
            model = gg.models.IterNCGP(data, kernel, likelihood)
            gg.optimizers.fit(model, max_iterations=1)
        return model

    model = fit(X, Y)
    single, text = X.astype(np.float32), np.where(X > 2.0, "high", "low")
    tasks = [model.predict_f, model.predict_components, model.predict_y, model.predict_f_samples]
    tasks += [lambda x: model.predict_log_density((x, Y))]
    if name == "iterncgp":  # others compute in double precision what they are asked
        tasks += [model.posterior().predict_f, model.posterior().sample_f]
    for task in tasks:
        with pytest.raises(TypeError, match="Xnew must be float64, as the data are; got float32"):
            task(single)
    for wrong in (text, text.tolist(), text.astype(object), X.astype(complex), [[1.0], [1.0, 2.0]]):
        for task in (model.predict_f, model.posterior().predict_f):
            with pytest.raises(ValueError, match="Xnew must hold numbers"):
                task(wrong)
    for data, message in (
        ((single, Y.astype(np.float32)), r"X is float32, but parameters of kernel are float64"),
        ((X, text[:, :1]), "Y must hold numbers"),
        ((text, Y), "X must hold numbers"),
    ):
        with pytest.raises(ValueError, match=message):
            fit(*data)


def test_bad_options_are_refused():
    model, data = poisson(vi.OptimalPrecision())
    (X, Y), kernel, inducing = data, model.kernel, model.inducing_variable
    short = gg.models.AdditiveSVGP(kernel, model.likelihood, inducing, num_data=7)
    newton = gg.models.IterNCGP(data, kernel, gpflow.likelihoods.Poisson(), solver="newton")
    regression = gg.models.AdditiveSGPR(data, kernel, inducing)
    theirs = gpflow.models.SVGP(SquaredExponential(), model.likelihood, X[:3])
    for bad, given, options, message in (
        (model, [data], {"hyperparameters": False}, "options of IterNCGP; got a AdditiveSVGP"),
        (newton, [], {"batch_size": 10}, "IterNCGP takes no minibatches"),
        (newton, [data], {}, "IterNCGP holds its own"),
        (model, [], {}, "data: AdditiveSVGP holds none"),
        (model, [(X, Y + 0.5)], {}, "Y must be whole counts"),
        (short, [data], {}, "num_data=7 of the model is not the 150 rows"),
        (model, [data], {"max_iterations": 0}, "max_iterations must be"),
        (model, [data], {"batch_size": 0}, "batch_size must be"),
        (model, [data], {"learning_rate": -1.0}, "learning_rate must be"),
        (model, [data], {"rho": 2.0}, "rho must be"),
        (model, [data], {"tolerance": 0.0}, "tolerance must be"),
        (model, [data], {"patience": 1}, "patience must be"),
        (regression, [data], {}, "data: AdditiveSGPR holds its own"),
        (regression, [], {"batch_size": 50}, "takes no minibatches; build an AdditiveSVGP"),
        (theirs, [data], {}, "must be additive or hold its data; got SVGP"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            gg.optimizers.fit(bad, *given, **options)


# --- other optima -----------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "seed", "gain"), [("gaussian", 34, 1.4), ("poisson", 8, 0.7)])
def test_noise_is_not_taken_for_quick_changes(family, seed, gain, monkeypatch):
    """Short lengthscales are an optimum of their own, from which searches do not come back."""
    rng = np.random.default_rng(seed)
    x, z = rng.uniform(size=(2, 300))
    f = np.exp(2.0 * x) / 2.0 + np.sin(6.0 * z)
    data = pd.DataFrame({"x": x, "z": z, "gaussian": f + 1.5 * rng.normal(size=300)})
    data["poisson"] = rng.poisson(np.exp(0.3 * f))
    data["w"] = np.random.default_rng([seed, 1]).uniform(size=300)
    names = "xzw" if family == "gaussian" else "xz"
    terms = " + ".join(f"s({name}, bs='se')" for name in names)
    result = gg.GAM(f"{family} ~ {terms}", family).fit(data).fitted.result.elbo
    for module in (fits, rounds):
        monkeypatch.setattr(module, "other_optimum", lambda *_: None)
    alone = gg.GAM(f"{family} ~ {terms}", family).fit(data).fitted.result.elbo
    assert result > alone + gain


@pytest.mark.parametrize("family", ["poisson", "heteroskedastic"])
def test_one_component_alone_costs_what_it_costs_among_all(family):
    """Pseudo-data of one component, all others integrated out, against the evidence of all."""
    rng = np.random.default_rng(0)
    data = pd.DataFrame(rng.uniform(size=(200, 2)), columns=["x", "z"])
    data["z"] = 0.7 * data["x"] + 0.3 * data["z"]
    data["y"] = rng.poisson(np.exp(np.sin(6.0 * data["x"]) + data["z"]))
    solution = gg.GAM(gg.s("x") + gg.s("z"), family).fit(data, y="y").fitted.solution
    search, u = solution.rounds, solution.rounds.split(solution.optimum)[0]
    loss, alone = search.loss(solution.data), search.alone(solution.data, u)
    for k, step in enumerate(0.3 * np.eye(len(u))):
        (before, _), (after, slope) = loss(u), loss(u + step)
        (held, _), (moved, own) = alone(k)(u), alone(k)(u + step)
        assert moved - held == pytest.approx(after - before, abs=1e-8)
        assert own[k] == pytest.approx(slope[k], rel=1e-6, abs=1e-8)
