"""What all posteriors of additive models share: caches, shapes, draws."""

import copy
import dataclasses
import functools
import itertools
import pickle

import gpflow
import numpy as np
import problems
import pytest
import tensorflow as tf
from gpflow.posteriors import PrecomputeCacheType
from problems import assert_close

import gpflow_gam as gg

vi = gg.variational


def svgp(problem: problems.Problem, family: vi.VariationalFamily) -> gg.models.AdditiveSVGP:
    model = problem.svgp(
        variational=family,
        num_latent_gps=2,
        mean_function=gpflow.functions.Constant(np.array([1.0, -2.0])),
    )
    problems.randomise(family, np.random.default_rng(0))
    return model


def sgpr(problem: problems.Problem) -> gg.models.AdditiveSGPR:
    Y = np.hstack([problem.Y, problem.Y**2])
    return gg.models.AdditiveSGPR((problem.X, Y), problem.kernel(), problem.inducing(), 0.2)


def iterncgp(problem: problems.Problem) -> gg.models.IterNCGP:
    Y = np.hstack([problem.Y, problem.Y**2])
    likelihood = gpflow.likelihoods.Gaussian(0.2)
    model = gg.models.IterNCGP((problem.X, Y), problem.kernel(), likelihood, solver="newton")
    gg.optimizers.fit(model, hyperparameters=False)
    return model


DISTINCT = ("block precision", "iterncgp")
MODELS = {
    "block precision": lambda p: svgp(p, vi.BlockPrecision(rank=3)),
    "mean field": lambda p: svgp(p, vi.MeanField()),
    "coupled precision": lambda p: svgp(p, vi.CoupledPrecision(rank=4)),
    "coupled covariance": lambda p: svgp(p, vi.CoupledCovariance()),
    "optimal precision": lambda p: svgp(p, vi.OptimalPrecision()),
    "sgpr": sgpr,
    "iterncgp": iterncgp,
}


@pytest.fixture
def problem() -> problems.Problem:
    return problems.few()


@functools.cache
def built(make):
    return make(problems.few())


@pytest.fixture(params=MODELS.values(), ids=MODELS)
def model(request):
    """Shared by the tests, which only read it."""
    return built(request.param)


@pytest.fixture(params=MODELS.values(), ids=MODELS)
def own_model(request, problem):
    """To be changed."""
    return request.param(problem)


def test_cached_equals_fused(model, problem):
    X, without = problem.X[:5], model.posterior("nocache")
    for kind in (PrecomputeCacheType.TENSOR, "variable"):
        cached = model.posterior(kind)
        for full_cov, full_output_cov in itertools.product([False, True], repeat=2):
            options = {"full_cov": full_cov, "full_output_cov": full_output_cov}
            assert_close(cached.predict_f(X, **options), model.predict_f(X, **options), atol=1e-9)
            ours, theirs = (p.predict_components(X, full_cov) for p in (cached, without))
            assert_close(ours, theirs, atol=1e-9)
        cross, expected = (p.predict_component_covariance(X) for p in (cached, without))
        np.testing.assert_allclose(cross, expected, atol=1e-9)
        draws, expected = (p.sample_components(X, 2, seed=1) for p in (cached, without))
        np.testing.assert_allclose(draws, expected, atol=1e-6)


@pytest.mark.parametrize(
    "model",
    [
        # one of each kind of posterior; families of q share theirs
        pytest.param(build, id=name, marks=() if name in DISTINCT else pytest.mark.slow)
        for name, build in MODELS.items()
    ],
    indirect=True,
)
def test_leading_dimensions(model, problem):
    X, posterior = problem.X[:8].reshape(2, 1, 4, 3), model.posterior()
    for full_cov, full_output_cov in [(False, False), (True, False), (False, True), (True, True)]:
        mean, cov = posterior.predict_f(X, full_cov=full_cov, full_output_cov=full_output_cov)
        for i in range(2):
            m, c = posterior.predict_f(X[i, 0], full_cov=full_cov, full_output_cov=full_output_cov)
            np.testing.assert_allclose(mean[i, 0], m, atol=1e-9)
            np.testing.assert_allclose(cov[i, 0], c, atol=1e-9)
    # outputs are independent: their covariances are zero, and the rest is the plain covariance
    full = posterior.predict_f(X[0, 0], full_cov=True, full_output_cov=True)[1].numpy()
    plain = posterior.predict_f(X[0, 0], full_cov=True)[1].numpy()
    rounding = 1e-9 if isinstance(model, gg.models.IterNCGP) else 0.0  # its actions are joint
    np.testing.assert_allclose(full[:, 0, :, 1], 0.0, atol=rounding)
    np.testing.assert_allclose(full[:, 1, :, 1], plain[1], rtol=0.0, atol=rounding)
    each = posterior.predict_f(X[0, 0], full_output_cov=True)[1]
    np.testing.assert_allclose(each, np.einsum("nlnk->nlk", full), atol=1e-9)


@pytest.mark.slow_but_first
def test_variable_cache_follows_training(own_model, problem):
    model = own_model
    X = tf.constant(problem.X[:4])
    posterior = model.posterior("variable")
    compiled = tf.function(posterior.predict_f)
    snapshot = model.posterior()
    before = compiled(X)[0].numpy()
    if hasattr(model, "variational"):
        problems.randomise(model.variational, np.random.default_rng(1))
    elif isinstance(model, gg.models.IterNCGP):
        model.accept(dataclasses.replace(model.state, weights=2.0 * model.state.weights))
    else:
        model.likelihood.variance.assign(0.9)
    np.testing.assert_array_equal(compiled(X)[0], before)
    posterior.update_cache()
    np.testing.assert_allclose(compiled(X)[0], model.predict_f(X)[0], atol=1e-9)
    np.testing.assert_allclose(snapshot.predict_f(X)[0], before, atol=1e-12)
    assert not np.allclose(before, compiled(X)[0])
    model.kernel["a"].variance.assign(2.0)
    model.kernel["rq"].lengthscales.assign(0.2)
    posterior.update_cache()
    np.testing.assert_allclose(compiled(X)[1], model.predict_f(X)[1], atol=1e-9)


def test_no_rows(model):
    X = np.zeros((0, 3))
    mean, var = model.predict_f(X)
    assert mean.shape == var.shape == (0, 2)
    assert model.predict_f(X, full_cov=True)[1].shape == (2, 0, 0)
    posterior = model.posterior()
    assert [a.shape for a in posterior.predict_components(X)] == [(0, 4, 2), (0, 4, 2)]
    assert posterior.predict_component_covariance(X).shape == (0, 4, 4, 2)


def test_components_and_their_covariances_add_up(model, problem):
    X, posterior = problem.X[:6], model.posterior()
    f_mean, f_var = posterior.predict_f(X)
    mean, var = posterior.predict_components(X)
    shift = model.mean_function(X)
    np.testing.assert_allclose(tf.reduce_sum(mean, axis=1) + shift, f_mean, atol=1e-9)
    cov = posterior.predict_component_covariance(X)
    np.testing.assert_allclose(tf.reduce_sum(cov, axis=[1, 2]), f_var, atol=1e-8)
    np.testing.assert_allclose(tf.einsum("nccl->ncl", cov), var, atol=1e-9)
    full = posterior.predict_components(X, full_cov=True)[1]
    np.testing.assert_allclose(tf.einsum("clnn->ncl", full), var, atol=1e-9)


def test_draws_have_the_posterior_moments(model, problem):
    X, number = problem.X[:4], 20_000
    posterior = model.posterior()
    draws = posterior.sample_components(X, number, seed=7).numpy()  # [S, N, C, L]
    mean, var = (a.numpy() for a in posterior.predict_components(X))
    cov = posterior.predict_component_covariance(X).numpy()
    np.testing.assert_allclose((draws.mean(axis=0) - mean) / np.sqrt(var + 1e-5), 0.0, atol=0.05)
    centred = draws - draws.mean(axis=0)
    sampled = np.einsum("sncl,sndl->ncdl", centred, centred) / number
    scale = np.sqrt(np.einsum("ncl,ndl->ncdl", var + 1e-5, var + 1e-5))
    np.testing.assert_allclose((sampled - cov) / scale, 0.0, atol=0.07)
    between = np.einsum("sncl,smcl->clnm", centred, centred) / number
    full = posterior.predict_components(X, full_cov=True)[1].numpy()
    spread = np.sqrt(np.einsum("clnn->cln", full) + 1e-5)
    scale = spread[..., :, None] * spread[..., None, :]
    np.testing.assert_allclose((between - full) / scale, 0.0, atol=0.07)


def test_draws_are_reproducible_and_add_up(model, problem):
    X, posterior = problem.X[:4], model.posterior()
    one = posterior.sample_components(X, 3, seed=1)
    np.testing.assert_array_equal(one, posterior.sample_components(X, 3, seed=1))
    assert not np.allclose(one, posterior.sample_components(X, 3, seed=2))
    assert not np.allclose(posterior.sample_components(X, 1), posterior.sample_components(X, 1))
    total = posterior.sample_f(X, 3, seed=1)
    np.testing.assert_allclose(
        total, tf.reduce_sum(one, axis=2) + model.mean_function(X), atol=1e-10
    )


def test_bad_requests_are_refused(problem):
    posterior = MODELS["mean field"](problem).posterior()
    with pytest.raises(ValueError, match="num_samples must be a whole number of at least 1"):
        posterior.sample_f(problem.X, 0)
    with pytest.raises(ValueError, match="num_samples must be a whole number"):
        posterior.sample_components(problem.X, 1.5)
    with pytest.raises(ValueError, match="reads column 1, but X has only 1"):
        posterior.predict_components(problem.X[:, :1])
    with pytest.raises(ValueError, match="not a valid"):
        MODELS["mean field"](problem).posterior("sometimes")


def test_every_posterior_class_is_tested_here():
    """A new posterior has to join MODELS above, or this fails."""
    from gpflow_gam.posteriors import AdditivePosterior
    from gpflow_gam.posteriors.inducing import ShapedPosterior  # no Gaussian one: test_shapes

    def leaves(cls: type) -> set[type]:
        return {x for s in cls.__subclasses__() for x in leaves(s)} or {cls}

    tested = {type(built(make).posterior("nocache")) for make in MODELS.values()}
    tested.add(ShapedPosterior)
    assert {c for c in leaves(AdditivePosterior) if c.__module__.startswith("gpflow_gam")} <= tested


HOW = {
    "deepcopy": copy.deepcopy,
    "gpflow's": gpflow.utilities.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
}
COPIED = {
    "sgpr": lambda problem: problem.sgpr(),
    "svgp": lambda problem: problem.svgp(gpflow.likelihoods.Gaussian(0.2)),
    "iterncgp": iterncgp,
}


@pytest.mark.slow_but_first
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", COPIED)
def test_a_copy_predicts_the_same_and_goes_on_alone(name, how):
    problem = problems.few(30)
    model, X = COPIED[name](problem), tf.constant(problem.X[:5])
    data = (problem.data,) if name == "svgp" else ()
    for parameter in model.trainable_parameters:
        shift = 0.1 * np.sin(np.arange(parameter.unconstrained_variable.shape.num_elements()))
        variable = parameter.unconstrained_variable
        variable.assign_add(shift.reshape(variable.shape))
    expected = [*model.predict_f(X), *model.predict_components(X), model.elbo(*data)]
    model.posterior().predict_f(X)
    for jit in (False, True):  # what was compiled of it is no part of the copy
        tf.function(model.predict_f, jit_compile=jit, autograph=False)(X)
    assert_close(copy.copy(model).predict_f(X), model.predict_f(X), rtol=0)
    other = HOW[how](model)
    result = [*other.predict_f(X), *other.predict_components(X), other.elbo(*data)]
    assert_close(result, expected, rtol=1e-10)
    with tf.GradientTape() as tape:
        loss = -other.elbo(*data)
    for variable, slope in zip(
        other.trainable_variables, tape.gradient(loss, other.trainable_variables)
    ):
        variable.assign_sub(1e-4 * slope)  # training goes on
    assert float(other.elbo(*data)) > float(expected[-1]) + 1e-3
    after = [*model.predict_f(X), *model.predict_components(X), model.elbo(*data)]
    assert_close(after, expected, rtol=1e-10)
