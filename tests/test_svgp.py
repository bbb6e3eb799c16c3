"""AdditiveSVGP: equal to GPflow where both can do it, and to the collapsed bound at its optimum."""

import gpflow
import numpy as np
import problems
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import Parameter
from gpflow.kernels import SeparateIndependent, SquaredExponential
from problems import FAMILIES, assert_close
from programs import python

import gpflow_gam as gg
from gpflow_gam import optimizers
from gpflow_gam.bijectors import exponential, softplus
from gpflow_gam.inducing_variables import AdditiveInducingVariables
from gpflow_gam.kernels import AdditiveKernel, ZeroMean
from gpflow_gam.likelihoods import Heteroskedastic, base
from gpflow_gam.measures import Uniform
from gpflow_gam.models import AdditiveSGPR, AdditiveSVGP, IterNCGP
from gpflow_gam.models.additive import log_prior_density
from gpflow_gam.optimizers.binned.hyperparameters import Hyperparameters
from gpflow_gam.variational import (
    OptimalPrecision,
)

vi = gg.variational
LIKELIHOODS = {
    "gaussian": (lambda: gpflow.likelihoods.Gaussian(0.3), lambda f, rng: f),
    "poisson": (gpflow.likelihoods.Poisson, lambda f, rng: rng.poisson(np.exp(f)).astype(float)),
    "bernoulli": (gpflow.likelihoods.Bernoulli, lambda f, rng: (f > 0).astype(float)),
}


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_one_component_mean_field_equals_gpflow_svgp(name, rng):
    # GPflow's jitter stays where it is as the variance moves, ours follows: next to none of either
    gpflow.config.set_default_jitter(1e-14)
    make, observe = LIKELIHOODS[name]
    X = rng.uniform(size=(50, 2))
    Y = observe(np.sin(6 * X[:, 1:]), rng)
    Z, M = np.linspace(0, 1, 8)[:, None], 8
    ours = gg.models.AdditiveSVGP(
        gg.kernels.AdditiveKernel([SquaredExponential(0.8, 0.3, active_dims=[1])]),
        make(),
        gg.inducing_variables.AdditiveInducingVariables([Z], trainable=True),
        variational=vi.MeanField(),
        num_data=100,
    )
    theirs = gpflow.models.SVGP(
        SquaredExponential(0.8, 0.3), make(), gpflow.inducing_variables.InducingPoints(Z),
        num_data=100,
    )  # fmt: skip
    q_mu, q_sqrt = rng.standard_normal((M, 1)), np.tril(rng.standard_normal((1, M, M)))
    ours.variational.q_mu.assign(q_mu)
    ours.variational.q_sqrt[0].assign(q_sqrt[:, None])
    theirs.q_mu.assign(q_mu)
    theirs.q_sqrt.assign(q_sqrt)

    pairs = [
        (ours.kernel["f1"].variance, theirs.kernel.variance),
        (ours.kernel["f1"].lengthscales, theirs.kernel.lengthscales),
        (ours.inducing_variable.inputs[0], theirs.inducing_variable.Z),
        (ours.variational.q_mu, theirs.q_mu),
        (ours.variational.q_sqrt[0], theirs.q_sqrt),
    ]
    with tf.GradientTape(persistent=True) as tape:
        a, b = ours.elbo((X, Y)), theirs.elbo((X[:, 1:], Y))
    np.testing.assert_allclose(a, b, rtol=1e-10)
    for mine, other in pairs:
        mine = tape.gradient(a, mine.unconstrained_variable)
        other = tape.gradient(b, other.unconstrained_variable)
        scale = np.abs(other).max()
        np.testing.assert_allclose(np.ravel(mine), np.ravel(other), rtol=1e-8, atol=1e-8 * scale)
    for cov in (False, True):
        f, known = ours.predict_f(X[:7], full_cov=cov), theirs.predict_f(X[:7, 1:], full_cov=cov)
        assert_close(f, known, atol=1e-8)
    assert_close(ours.predict_y(X[:7]), theirs.predict_y(X[:7, 1:]), rtol=1e-8)
    if name == "poisson":  # for which GPflow's 20 nodes are too few
        theirs.likelihood.quadrature = gpflow.quadrature.NDiagGHQuadrature(1, 150)
    expected = theirs.predict_log_density((X[:, 1:], Y))
    np.testing.assert_allclose(ours.predict_log_density((X, Y)), expected, rtol=1e-8)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("whiten", [True, False])
def test_gpflow_svgp_on_our_pair_equals_coupled_covariance(problem, rng, whiten):
    likelihood = gpflow.likelihoods.StudentT()
    theirs = gpflow.models.SVGP(problem.kernel(), likelihood, problem.inducing(), whiten=whiten)
    ours = problem.svgp(likelihood, variational=vi.CoupledCovariance())
    problems.randomise(ours.variational, rng)
    root = np.eye(problem.total)
    if not whiten:
        kernels, Z = list(ours.kernel.kernels), list(problem.Z.values())
        root = problems.dense(kernels, Z, problem.X[:1], 1e-6).root
    theirs.q_mu.assign(root @ ours.variational.q_mu)
    theirs.q_sqrt.assign(root @ ours.variational.q_sqrt)
    np.testing.assert_allclose(ours.prior_kl(), theirs.prior_kl(), rtol=1e-7)
    np.testing.assert_allclose(ours.elbo(problem.data), theirs.elbo(problem.data), rtol=1e-7)
    for full_cov in (False, True):
        mine = ours.predict_f(problem.X[:6], full_cov=full_cov)
        other = theirs.predict_f(problem.X[:6], full_cov=full_cov)
        cached = theirs.posterior().predict_f(problem.X[:6], full_cov=full_cov)
        assert_close(mine, other, atol=2e-6)
        assert_close(mine, cached, atol=2e-6)


def test_minibatch_elbo_is_unbiased(problem):
    model = problem.svgp(num_data=60)
    X, Y = problem.data
    parts = [float(model.elbo((X[i : i + 20], Y[i : i + 20]))) for i in (0, 20, 40)]
    assert np.mean(parts) == pytest.approx(float(model.elbo((X, Y))), rel=1e-10)


@pytest.mark.slow
def test_large_data_are_summed_in_blocks(monkeypatch):
    """Value and gradient in blocks of rows equal those in one piece."""
    problem = problems.few()
    model = gg.models.AdditiveSVGP(
        problem.kernel(), gpflow.likelihoods.StudentT(), problem.inducing(trainable=True)
    )
    problems.randomise(model.variational, np.random.default_rng(0))

    def evaluate() -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            loss = model.training_loss(problem.data)
        variables = model.trainable_variables  # a constant's Z is [1, 0]: no gradient at all
        return loss, tape.gradient(loss, variables, unconnected_gradients="zero")

    whole, whole_gradients = evaluate()
    monkeypatch.setattr(gg.models.additive, "BLOCK", 13)
    blocked, blocked_gradients = tf.function(evaluate, autograph=False)()
    assert float(blocked) == pytest.approx(float(whole), rel=1e-11)
    assert_close(whole_gradients, blocked_gradients, rtol=1e-7, atol=1e-8)


@pytest.mark.slow
def test_softmax_has_several_latent_outputs(rng):
    X, _, kernel, inducing = problems.like(num_components=2)
    Y = np.digitize(X[:, :1], [0.35, 0.7]).astype(float)
    model = gg.models.AdditiveSVGP(kernel(), gpflow.likelihoods.Softmax(3), inducing())
    assert model.num_latent_gps == 3
    mean, var = model.predict_components(X)
    assert mean.shape == var.shape == (80, 2, 3)
    before = float(model.elbo((X, Y)))
    result = gg.optimizers.fit(
        model, (X, Y), batch_size=40, max_iterations=60, learning_rate=0.05, seed=1
    )
    assert result.elbo > before + 20.0
    probabilities, _ = model.predict_y(X)
    np.testing.assert_allclose(tf.reduce_sum(probabilities, axis=1), 1.0, atol=1e-10)
    assert np.mean(np.argmax(probabilities, axis=1) == Y[:, 0]) > 0.9
    # of outputs that q has apart, and of the same nodes at every call
    mean, var = (t.numpy() for t in model.predict_f(X))
    draws = mean + np.sqrt(var) * rng.standard_normal((20_000, *mean.shape))
    expected = tf.reduce_mean(tf.nn.softmax(draws), axis=0)
    np.testing.assert_allclose(probabilities, expected, atol=0.02)
    observed = probabilities.numpy()[np.arange(len(Y)), Y[:, 0].astype(int)]
    for labels in (Y, Y[:, 0], Y.astype(np.int16)):
        density = model.predict_log_density((X, labels))
        np.testing.assert_allclose(density, np.log(observed), atol=1e-9)


def test_the_bound_of_a_softmax_is_the_same_twice():
    """GPflow's own draws anew, and L-BFGS takes a difference of draws for one of parameters."""
    X, _, kernel, inducing = problems.like(num_components=2)
    Y = np.digitize(X[:, :1], [0.35, 0.7]).astype(float)
    model = gg.models.AdditiveSVGP(kernel(), gpflow.likelihoods.Softmax(3), inducing())
    assert float(model.elbo((X, Y))) == float(model.elbo((X, Y)))


def test_mean_function_is_added_once(problem):
    shift = gpflow.functions.Constant(2.5)
    plain, shifted = (problem.svgp(mean_function=mean) for mean in (None, shift))
    X, Y = problem.data
    assert float(plain.elbo((X, Y))) == pytest.approx(float(shifted.elbo((X, Y + 2.5))), rel=1e-12)
    np.testing.assert_allclose(shifted.predict_f(X)[0], plain.predict_f(X)[0] + 2.5, atol=1e-12)
    assert_close(plain.predict_components(X), shifted.predict_components(X), atol=1e-12)


def test_components_that_change_their_kind_are_right_or_refused(rng):
    X = rng.uniform(size=(60, 2))
    Y = np.sin(6.0 * X[:, :1]) + 3.0 * X[:, 1:]
    bases = {n: SquaredExponential(1.0, 0.3, active_dims=[i]) for i, n in enumerate("ab")}
    kernel = AdditiveKernel({n: ZeroMean(base, Uniform(0.0, 1.0)) for n, base in bases.items()})
    inducing, likelihood = gg.inducing_variables.select(X, kernel, 8), gpflow.likelihoods.Gaussian()
    model = AdditiveSVGP(kernel, likelihood, inducing, variational=OptimalPrecision())
    optimizers.NaturalGradient(rho=1.0).step(model, (X, Y))
    kept, expected = model.posterior(), model.predict_components(X)
    kernel["a"].extrapolate = True
    assert_close(model.predict_components(X), expected, atol=1e-12)
    assert_close(kept.predict_components(X), expected, atol=1e-12)
    with pytest.raises(ValueError, match="outside the bounds"):
        kernel.K_components(np.array([[2.0, 2.0]]))
    assert np.isfinite(kernel.K_components(np.array([[2.0, 1.0]]))).all()
    kernel.components["a"] = SquaredExponential(active_dims=[0])
    for call in (
        lambda: model.predict_components(X),
        lambda: kept.predict_components(X),
        lambda: model.elbo((X, Y)),
        lambda: optimizers.NaturalGradient(rho=1.0).step(model, (X, Y)),
    ):
        with pytest.raises(ValueError, match="build the model anew"):
            call()


@pytest.mark.slow
def test_gpflow_tools_work(tmp_path, capsys):
    problem = problems.few()
    model = problem.svgp()
    gpflow.utilities.print_summary(model)
    assert "kernel.components['rq']" in capsys.readouterr().out

    before = float(model.training_loss(problem.data))
    model.kernel["a"].lengthscales.prior = tfp.distributions.Gamma(np.float64(2.0), np.float64(3.0))
    prior = float(model.kernel["a"].lengthscales.log_prior_density())
    assert float(model.training_loss(problem.data)) == pytest.approx(before - prior, rel=1e-10)

    gpflow.set_trainable(model.kernel["c"], False)
    fixed = model.kernel["c"].variance.numpy()
    seen: list[float] = []
    task = gpflow.monitor.ExecuteCallback(lambda: seen.append(float(model.elbo(problem.data))))
    monitor = gpflow.monitor.Monitor(gpflow.monitor.MonitorTaskGroup([task]))
    gpflow.optimizers.Scipy().minimize(
        model.training_loss_closure(problem.data),
        model.trainable_variables,
        step_callback=monitor,
        compile=False,
        options={"maxiter": 5},
    )
    assert float(model.training_loss(problem.data)) < before
    assert model.kernel["c"].variance.numpy() == fixed
    assert len(seen) > 2
    assert seen[-1] > seen[0]

    fresh = problem.svgp()
    checkpoint = tf.train.Checkpoint(model=model).save(str(tmp_path / "checkpoint"))
    tf.train.Checkpoint(model=fresh).restore(checkpoint).assert_consumed()
    values = gpflow.utilities.read_values(model)
    other = problem.svgp()
    gpflow.utilities.multiple_assign(other, values)
    expected = model.predict_f(problem.X)
    for mine, theirs in zip(fresh.parameters, model.parameters):
        np.testing.assert_array_equal(mine.unconstrained_variable, theirs.unconstrained_variable)
    for restored in (fresh, other):  # threads add up in any order
        assert_close(restored.predict_f(problem.X), expected, rtol=1e-11)


def test_a_likelihood_that_tensorflow_cannot_compute_is_named(monkeypatch):
    """GPflow's Ordinal asks for erf(inf), which some versions of TensorFlow have as NaN."""
    X, _, kernel, inducing = problems.like(num_components=1, num_data=60)
    Y = np.arange(60.0)[:, None] % 3.0
    ordinal = gpflow.likelihoods.Ordinal(np.array([0.0, 1.0]))
    model = gg.models.AdditiveSVGP(kernel(), ordinal, inducing())
    broken = bool(np.isnan(tf.math.erf(tf.constant([np.inf], tf.float64)).numpy()[0]))
    assert base._erf_ends_in_nan(tf.float64) == broken
    monkeypatch.setattr(base, "_erf_ends_in_nan", lambda dtype: True)
    for elbo in (model.elbo, tf.function(model.elbo)):
        with pytest.raises(ValueError, match=r"erf\(inf\) is NaN.*Ordered\(3\)"):
            elbo((X, Y))
    with pytest.raises(ValueError, match=r"erf\(inf\) is NaN.*Ordered\(3\)"):
        gg.layers.AdditiveGP(gg.s(0), ordinal, num_data=60).build((None, 1))


def test_bad_inputs_and_arguments_are_refused(problem):
    model, k, Z, (X, Y) = problem.svgp(), problem.kernel(), problem.inducing(), problem.data
    bad, single, se, two = X.copy(), Y.astype("f"), _se(0, 1.0), AdditiveKernel.separate(_kernels())
    bad[3, 1] = np.nan
    normal, latent, alone = model.likelihood, Heteroskedastic(), SeparateIndependent([se])
    lines = [AdditiveInducingVariables([np.zeros((1, 1))] * number) for number in (1, 2, 3)]
    svgp, sgpr, softmax = AdditiveSVGP, AdditiveSGPR, gpflow.likelihoods.Softmax(3)
    for call, message in (
        (lambda: model.elbo((X[:, :2], Y)), "component 'b' reads column 2, but X has only 2"),
        (lambda: model.predict_f(X[:, :2]), "component 'b' reads column 2, but Xnew has only 2"),
        (lambda: model.elbo((bad, Y)), "X must be finite.*row 3, column 1"),
        (lambda: model.predict_components(bad), "Xnew must be finite.*row 3, column 1"),
        (lambda: model.elbo((X, np.full_like(Y, np.nan))), "Y must be finite.*row 0"),
        (lambda: model.elbo((X, single)), "float32"),
        (lambda: svgp(k, normal, Z, num_data=0), "num_data must be a whole number of at least 1"),
        (lambda: sgpr(X, k, Z, 1.0), r"pair \(X, Y\)"),
        (lambda: sgpr((X, Y[1:]), k, Z, 1.0), "X has 60 rows, Y has 59"),
        (lambda: sgpr((X, Y[:, 0]), k, Z, 1.0), r"Y must be a matrix \[N, K\]"),
        (lambda: sgpr((X, Y), k, Z, -1.0), "noise_variance must be positive and finite"),
        (lambda: sgpr((X, Y), k, Z, np.nan), "noise_variance must be positive and finite"),
        (lambda: svgp(two, softmax, lines[2]), "kernel has 2 output"),
        (lambda: svgp(two, latent, lines[1]), "has 2 components, the kernel has 3"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    for call, message in (
        (lambda: svgp(se, normal, Z), "kernel must be a gpflow_gam.kernels.AdditiveKernel"),
        (lambda: svgp(k, normal, X), "inducing_variable must be AdditiveInducingVariables"),
        (lambda: svgp(alone, latent, lines[0]), "SeparateIndependent of them"),
        (lambda: two(tf.zeros([3, 2], tf.float64)), "latent_kernels"),
    ):
        with pytest.raises(TypeError, match=message):
            call()


def test_data_that_are_assigned_are_checked_as_those_given(problem):
    """A column Y [N] had been spread out to [N, N], and its bound was of no model."""
    model, (X, Y) = problem.sgpr(), problem.data
    bound, bad = float(model.elbo()), np.where(np.arange(len(Y))[:, None] == 3, np.nan, Y)
    for data, match in (
        ((X, Y[:, 0]), r"Y must be a matrix \[N, K\]"),
        ((X, np.hstack([Y, Y])), r"Y must be \[N, 1\]"),
        ((X, bad), "Y must be finite"),
        ((X.astype(np.float32), Y.astype(np.float32)), "X is float32, but parameters of kernel"),
    ):
        with pytest.raises(ValueError, match=match):
            model.data = data
    assert float(model.elbo()) == bound
    model.data = X[:40], Y[:40]
    some = float(model.elbo())
    model.data, model.weights = (X, Y), np.arange(60) < 40
    assert float(model.elbo()) == pytest.approx(some, abs=1e-9)
    model.data = X[:40], Y[:40]
    with pytest.raises(ValueError, match="weights must be 40 finite numbers"):
        model.elbo()
    model.weights = None
    assert float(model.elbo()) == pytest.approx(some, abs=1e-9)


def parameters() -> list[Parameter]:
    """Every kind of prior, of scalars and vectors, and none."""
    f64, tfd, positive = np.float64, tfp.distributions, exponential()
    normal = lambda mean, sd: tfd.LogNormal(f64(mean), f64(sd))
    each = tfd.LogNormal(np.array([0.1, -0.4]), np.array([0.5, 2.0]))
    moving = tfd.LogNormal(f64(0.0), tf.Variable(f64(2.0)))
    free = {"prior": normal(0.0, 1.0), "prior_on": gpflow.base.PriorOn.UNCONSTRAINED}
    return [
        Parameter(0.7, transform=positive, prior=normal(0.3, 1.5)),
        Parameter([0.2, 3.0], transform=positive, prior=each),
        Parameter([0.9, 1.1], transform=positive, prior=normal(-1.0, 0.2)),
        Parameter(1.4, transform=softplus(), prior=normal(0.0, 1.0)),
        Parameter(2.0, transform=positive, prior=tfd.Gamma(f64(2.0), f64(3.0))),
        Parameter(3.0, transform=positive, **free),
        Parameter(0.5, transform=positive, prior=moving),
        Parameter(-0.5, prior=tfd.Normal(f64(0.0), f64(1.0))),
        Parameter(5.0, transform=positive),
    ]


def test_together_is_one_by_one() -> None:
    own = parameters()
    variables = [p.unconstrained_variable for p in own]
    with tf.GradientTape(persistent=True) as tape:
        together = log_prior_density(own)
        each = tf.add_n([p.log_prior_density() for p in own])
    np.testing.assert_allclose(together, each, rtol=1e-14)
    for ours, theirs in zip(tape.gradient(together, variables), tape.gradient(each, variables)):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            np.testing.assert_allclose(ours, theirs, rtol=1e-13)
    value, slope = Hyperparameters(own).log_prior(Hyperparameters(own).get())
    np.testing.assert_allclose(value, each, rtol=1e-13)
    whole = tape.gradient(each, variables, unconnected_gradients="zero")
    np.testing.assert_allclose(slope, np.concatenate([np.ravel(g) for g in whole]), rtol=1e-12)


# --- a kernel for each output --------------------------------------------------------------------


def _data(n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(n, 2))
    Y = np.sin(6.0 * X[:, :1]) + np.exp(-1.0 + X[:, 1:]) * rng.normal(size=(n, 1))
    return X, Y


def _se(column: int, lengthscale: float, variance: float = 1.0) -> SquaredExponential:
    return SquaredExponential(variance, lengthscale, active_dims=[column])


def _kernels() -> list[AdditiveKernel]:
    return [AdditiveKernel([_se(0, 0.3), _se(1, 0.6, 0.5)]), AdditiveKernel([_se(1, 0.4, 0.3)])]


def _inducing(*components: int) -> AdditiveInducingVariables:
    Z = np.linspace(0.0, 1.0, 7)[:, None]
    return AdditiveInducingVariables([(Z, Z[:5], Z)[i] for i in components])


@pytest.mark.parametrize("shared", [False, True])
def test_sgpr_is_one_model_an_output(shared: bool) -> None:
    X, y = _data()
    Y = np.concatenate([y, y[::-1] ** 2], axis=1)
    kernels, parts = _kernels(), ((0, 1), (2,))
    kernel = SeparateIndependent(kernels)
    if shared:
        kernel, kernels, parts = kernels[0], kernels[:1] * 2, ((0, 1),) * 2
    joint = AdditiveSGPR((X, Y), kernel, _inducing(*range(max(parts[1]) + 1)), 0.1)
    alone = [AdditiveSGPR((X, Y[:, [i]]), kernels[i], _inducing(*parts[i]), 0.1) for i in (0, 1)]
    np.testing.assert_allclose(joint.elbo(), sum(m.elbo() for m in alone), rtol=1e-10)
    new = np.random.default_rng(1).uniform(size=(9, 2))
    for full_cov in (False, True):
        mean, cov = joint.predict_f(new, full_cov=full_cov)
        for i, model in enumerate(alone):
            m, v = model.predict_f(new, full_cov=full_cov)
            np.testing.assert_allclose(mean[:, i], m[:, 0], atol=1e-8)
            own = v[0] if full_cov else v[:, 0]
            np.testing.assert_allclose(cov[i] if full_cov else cov[:, i], own, atol=1e-8)
    whole = joint.posterior().predict_components(new)
    for i, model in enumerate(alone):
        own = model.posterior().predict_components(new)
        assert_close([t.numpy()[:, list(parts[i]), i] for t in whole], own, atol=1e-9)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("family", FAMILIES)
def test_components_stay_with_their_outputs(family: str) -> None:
    """Sums of components are the predictor, and components are zero in other outputs."""
    own, rng = {"variational": FAMILIES[family]()}, np.random.default_rng(2)
    kernel = SeparateIndependent(_kernels())
    model = AdditiveSVGP(kernel, Heteroskedastic(), _inducing(0, 1, 2), **own)
    for variable in model.trainable_variables:  # any q at all
        variable.assign_add(0.1 * rng.normal(size=variable.shape))
    if family == "optimal precision":
        optimizers.NaturalGradient().step(model, _data())
    new = rng.uniform(size=(6, 2))
    assert model.kernel.names == ("0:f0", "0:f1", "1:f1")
    members = np.array([[1, 1, 0], [0, 0, 1]], dtype=bool)
    for full_cov in (False, True):
        mean, cov = model.posterior().predict_components(new, full_cov=full_cov)
        total, _ = model.predict_f(new)
        np.testing.assert_allclose(np.sum(mean, axis=1), total, atol=1e-10)
        assert not np.any(np.asarray(mean)[:, ~members.T])
        rows = (2, 3) if full_cov else 0  # of [C, L, N, N], or [N, C, L]
        np.testing.assert_array_equal(np.any(cov, axis=rows).T, members)
    cross = model.posterior().predict_component_covariance(new)
    np.testing.assert_allclose(np.sum(cross, axis=(1, 2)), model.predict_f(new)[1], atol=1e-10)
    draws = np.asarray(model.posterior().sample_components(new, 3, seed=0))
    assert not np.any(draws[..., ~members.T])
    f = model.posterior().sample_f(new, 3, seed=0)
    np.testing.assert_allclose(draws.sum(axis=2), f, atol=1e-12)
    together = model.predict_f(new, full_cov=True)[1]
    np.testing.assert_allclose(
        np.diagonal(together, axis1=1, axis2=2).T, model.predict_f(new)[1], atol=1e-8
    )
    # q is the prior where a component does not enter
    q = model.variational.whitened(model.blocks.cholesky())
    S = q.layout.to_components(q.covariance())
    S = np.asarray(q.layout.to_components(S, axis=-1))
    mean = np.asarray(q.layout.to_components(q.mean))
    np.testing.assert_allclose(S[0][12:, 12:], np.eye(7), atol=1e-12)
    np.testing.assert_allclose(S[1][:12, :12], np.eye(12), atol=1e-12)
    assert not np.any(S[:, :12, 12:])
    assert not np.any([*mean[12:, 0], *mean[:12, 1]])
    kl = 0.0
    for at, i in ((slice(0, 12), 0), (slice(12, 19), 1)):
        own, m = S[i][at, at], mean[at, i]
        kl += 0.5 * (np.trace(own) + m @ m - len(m) - np.linalg.slogdet(own)[1])
    np.testing.assert_allclose(model.prior_kl(), kl, rtol=1e-8)


def test_shared_component_has_one_name_and_one_kernel() -> None:
    shared = gpflow.kernels.Constant()
    kernel = AdditiveKernel.separate(
        [AdditiveKernel({"intercept": shared, "f": _se(0, length)}) for length in (0.3, 0.5)]
    )
    assert kernel.names == ("intercept", "0:f", "1:f")
    assert kernel.members.tolist() == [[True, True, False], [True, False, True]]
    assert len(kernel.trainable_parameters) == 5
    assert [k.names for k in kernel.latent_kernels] == [("intercept", "0:f"), ("intercept", "1:f")]


def test_other_engines() -> None:
    X, Y = _data(20)
    kernel = AdditiveKernel.separate(_kernels())
    K = gpflow.likelihoods.Softmax(2)
    labels = (Y > 0.0).astype(float)
    ours = IterNCGP((X, labels), kernel, K, solver="newton")
    theirs = IterNCGP(
        (X, labels), SeparateIndependent(list(kernel.latent_kernels)), K, solver="newton"
    )
    for model in (ours, theirs):
        optimizers.fit(model, hyperparameters=False)
    np.testing.assert_allclose(ours.predict_f(X)[0], theirs.predict_f(X)[0], atol=1e-6)


# --- AdditiveSGPR: bounds by several routes, and memory that does not grow -----------------------


def test_bound_equals_gpflow(problem):
    ours = problem.sgpr()
    theirs = gpflow.models.SGPR(
        problem.data, problem.kernel(), problem.inducing(), noise_variance=0.2
    )
    assert float(ours.elbo()) == pytest.approx(float(theirs.elbo()), abs=1e-6)
    for full_cov in (False, True):
        mine, other = (m.predict_f(problem.X[:7], full_cov=full_cov) for m in (ours, theirs))
        assert_close(mine, other, atol=1e-7)


MEMORY = """
import resource
import sys

import gpflow
import numpy as np
import tensorflow as tf

import gpflow_gam as gg

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0  # MiB

rows = int(sys.argv[1])
rng = np.random.default_rng(0)
X = rng.uniform(size=(rows, 4))
Y = np.sin(6.0 * X).sum(axis=1, keepdims=True) + rng.standard_normal((rows, 1))
kernel = gg.kernels.AdditiveKernel(
    [gpflow.kernels.SquaredExponential(1.0, 0.3, active_dims=[c]) for c in range(4)]
)
model = gg.models.AdditiveSGPR((X, Y), kernel, gg.inducing_variables.select(X, kernel, 20))
before = peak()

@tf.function(autograph=False)
def step():
    with tf.GradientTape() as tape:
        loss = model.training_loss()
    return loss, tape.gradient(loss, model.trainable_variables)

loss, gradients = step()
assert np.isfinite(loss) and all(np.all(np.isfinite(g)) for g in gradients)
print(peak() - before)
"""


@pytest.mark.slow
def test_a_million_rows_need_no_more_memory_than_a_few():
    """Bound and gradient at N = 1e6: one [N, P] matrix alone would be 610 MiB."""

    def extra(rows: int) -> float:
        return float(python(MEMORY, rows).split()[-1])

    assert extra(1_000_000) < extra(30_000) + 200.0
