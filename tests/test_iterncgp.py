"""The IterNCGP model: predictions, components, bound, budgets and errors."""

from __future__ import annotations

import concurrent.futures
import copy

import gpflow
import laplace
import numpy as np
import problems
import pytest
import tensorflow as tf
from gpflow.likelihoods import Gaussian, Poisson, Softmax
from scipy.stats import multivariate_normal

import gpflow_gam as gg
from gpflow_gam.models import IterNCGP
from gpflow_gam.newton.operators import compiled
from gpflow_gam.newton.solvers import IterGP, ReducedNewton, Residual, UnitVectors
from gpflow_gam.newton.solvers.expected import normal_points

N = 50


def fit(
    model: IterNCGP, hyperparameters: bool = False, **options: object
) -> gg.optimizers.FitResult:
    return gg.optimizers.fit(model, hyperparameters=hyperparameters, **options)


def data(rng, n=N, C=3):
    X = rng.uniform(-1, 1, (n, 2))
    f = 2.0 * np.sin(3 * X[:, :1]) + X[:, 1:] ** 2
    return {
        "counts": (X, rng.poisson(np.exp(0.5 * f)).astype(float)),
        "binary": (X, (rng.uniform(size=(n, 1)) < 1 / (1 + np.exp(-f))).astype(float)),
        "real": (X, f + 0.3 * rng.normal(size=(n, 1))),
        "classes": (X, (np.floor(1.5 * (X[:, :1] + 1)) % C).astype(float)),
    }


def kernel():
    return gpflow.kernels.Matern32(1.5, 0.7)


def additive():
    se = gpflow.kernels.SquaredExponential
    return gg.kernels.AdditiveKernel(
        {"a": se(2.0, 0.4, active_dims=[0]), "b": se(1.0, 0.8, active_dims=[1])}
    )


def fitted(name, rng, k=None, likelihood=None, **options):
    likelihood = (
        likelihood
        or {
            "counts": Poisson,
            "binary": gg.likelihoods.Bernoulli,
            "real": lambda: Gaussian(0.1),
            "classes": lambda: Softmax(3),
        }[name]()
    )
    options.setdefault("solver", ReducedNewton(num_actions=200, tolerance=1e-11))
    model = IterNCGP(data(rng)[name], k or kernel(), likelihood, **options)
    fit(model)
    return model


# --- predictions ---------------------------------------------------------------------------------


def test_predictions_of_counts_equal_the_dense_laplace_posterior(rng):
    model = fitted("counts", rng)
    X, Y = (t.numpy() for t in model.data)
    Xnew = rng.uniform(-1.5, 1.5, (9, 2))
    K, Ks, Kss = (kernel()(*a).numpy() for a in ((X,), (X, Xnew), (Xnew,)))
    y = Y[:, 0]
    _, a, W = laplace.binary_or_counts(K, lambda f: (y * f - np.exp(f), y - np.exp(f), np.exp(f)))
    expected = laplace.covariance(K, W, Ks, Kss)
    mean, cov = model.predict_f(Xnew, full_cov=True)
    np.testing.assert_allclose(mean[:, 0], Ks.T @ a, atol=1e-6)
    np.testing.assert_allclose(cov[0], expected, atol=1e-6)
    _, var = model.predict_f(Xnew)
    np.testing.assert_allclose(var[:, 0], np.diag(expected), atol=1e-6)
    log_density = model.predict_log_density((Xnew, np.ones((9, 1))))
    assert log_density.shape == (9,)


def test_gaussian_data_give_gpr(rng):
    model = fitted("real", rng)
    gpr = gpflow.models.GPR(model.data, kernel(), noise_variance=0.1)
    Xnew = rng.uniform(-1.5, 1.5, (9, 2))
    for ours, exact in zip(model.predict_y(Xnew), gpr.predict_y(Xnew)):
        np.testing.assert_allclose(ours, exact, atol=1e-7)
    # the bound is then the evidence
    assert float(model.elbo()) == pytest.approx(float(gpr.log_marginal_likelihood()), abs=1e-5)


@pytest.mark.slow
def test_cached_fused_and_compiled_predictions_are_equal(rng):
    model = fitted("classes", rng)
    Xnew = rng.uniform(-1, 1, (7, 2))
    posterior = model.posterior()
    for options in ({}, {"full_cov": True}, {"full_output_cov": True},
                    {"full_cov": True, "full_output_cov": True}):  # fmt: skip
        cached, fused = posterior.predict_f(Xnew, **options), model.predict_f(Xnew, **options)
        compiled = tf.function(lambda x, o=options: model.predict_f(x, **o))(tf.constant(Xnew))
        for a, b, c in zip(cached, fused, compiled):
            np.testing.assert_allclose(a, b, atol=1e-12)
            np.testing.assert_allclose(a, c, atol=1e-12)
    _, var = posterior.predict_f(Xnew)
    _, cov = posterior.predict_f(Xnew, full_output_cov=True)
    _, whole = posterior.predict_f(Xnew, full_cov=True, full_output_cov=True)
    np.testing.assert_allclose(np.einsum("nll->nl", cov), var, atol=1e-10)
    np.testing.assert_allclose(np.einsum("nlnk->nlk", whole), cov, atol=1e-10)
    assert np.abs(cov.numpy()[:, 0, 1]).max() > 1e-3  # the softmax couples its outputs
    unknown = tf.function(model.predict_f, input_signature=[tf.TensorSpec([None, 2], tf.float64)])
    np.testing.assert_allclose(unknown(Xnew)[1], var, atol=1e-12)


def test_predictions_in_blocks_equal_those_at_once(rng, monkeypatch):
    model = fitted("classes", rng, additive())
    Xnew = rng.uniform(-1, 1, (23, 2))
    whole = [*model.predict_f(Xnew), *model.predict_components(Xnew)]
    monkeypatch.setattr(gg.operators.kernel_operator, "_CROSS_ENTRIES", 5 * N)
    parts = [*model.predict_f(Xnew), *model.predict_components(Xnew)]
    signature = [tf.TensorSpec([None, 2], tf.float64)]
    graph = tf.function(model.predict_f, input_signature=signature, autograph=False)(Xnew)
    xla = tf.function(
        model.posterior().predict_f, input_signature=signature, jit_compile=True, autograph=False
    )(Xnew)
    for a, b in zip([*whole, *whole[:2], *whole[:2]], [*parts, *graph, *xla]):
        np.testing.assert_allclose(a, b, atol=1e-11)


def test_components_of_gaussian_data_equal_the_closed_form(rng):
    model = fitted("real", rng, additive())
    X, Y = (t.numpy() for t in model.data)
    Xnew, k = rng.uniform(-1, 1, (8, 2)), additive()
    inverse = np.linalg.inv(k(X).numpy() + 0.1 * np.eye(N))
    mean, cov = model.predict_components(Xnew, full_cov=True)
    _, var = model.predict_components(Xnew)
    for c, part in enumerate(k.kernels):
        cross = part(Xnew, X).numpy()
        np.testing.assert_allclose(mean[:, c], cross @ inverse @ Y[:, 0], atol=1e-6)
        expected = part(Xnew).numpy() - cross @ inverse @ cross.T
        np.testing.assert_allclose(cov[c], expected, atol=1e-6)
        np.testing.assert_allclose(var[:, c], np.diag(expected), atol=1e-6)


def test_components_add_up_and_their_draws_have_their_moments(rng):
    model = fitted("classes", rng, additive())
    posterior, Xnew = model.posterior(), rng.uniform(-1, 1, (5, 2))
    mean, var = posterior.predict_f(Xnew)
    part, part_var = posterior.predict_components(Xnew)
    between = posterior.predict_component_covariance(Xnew)
    np.testing.assert_allclose(np.sum(part, axis=1), mean, atol=1e-10)
    np.testing.assert_allclose(np.einsum("nccl->ncl", between), part_var, atol=1e-10)
    np.testing.assert_allclose(np.sum(between, axis=(1, 2)), var, atol=1e-9)
    draws = posterior.sample_components(Xnew, 20_000, seed=1).numpy()
    assert draws.shape == (20_000, 5, 2, 3)
    np.testing.assert_allclose(draws.mean(axis=0), part, atol=0.05)
    np.testing.assert_allclose(draws.var(axis=0), part_var, rtol=0.05)
    total = posterior.sample_f(Xnew, 20_000, seed=1).numpy()
    np.testing.assert_allclose(total, draws.sum(axis=2), atol=1e-10)
    _, whole = posterior.predict_f(Xnew, full_cov=True, full_output_cov=True)
    flat = np.cov(total.reshape(20_000, 15), rowvar=False)
    np.testing.assert_allclose(flat, np.reshape(whole, (15, 15)), atol=0.1)


def test_multioutput_kernels(rng):
    """Separate kernels with equal parameters are a shared one; mixing by I changes nothing."""
    X, Y = data(rng)["classes"]
    Xnew = rng.uniform(-1, 1, (6, 2))
    solver = ReducedNewton(num_actions=200, tolerance=1e-11)
    kernels = {
        "one": kernel(),
        "shared": gpflow.kernels.SharedIndependent(kernel(), output_dim=3),
        "separate": gpflow.kernels.SeparateIndependent([kernel() for _ in range(3)]),
        "mixed": gpflow.kernels.LinearCoregionalization([kernel() for _ in range(3)], np.eye(3)),
    }
    found = {}
    for name, k in kernels.items():
        model = IterNCGP((X, Y), k, Softmax(3), solver=solver)
        fit(model)
        found[name] = model.posterior().predict_f(Xnew, full_output_cov=True)
    for name in ("shared", "separate", "mixed"):
        for a, b in zip(found[name], found["one"]):
            np.testing.assert_allclose(a, b, atol=1e-5)


def test_coregionalised_outputs_equal_a_dense_laplace_posterior(rng):
    """Two Poisson-like outputs of one latent function, the second twice the first."""
    X = rng.uniform(-1, 1, (30, 2))
    Y = rng.poisson(1.5, (30, 2)).astype(float)
    W = np.array([[1.0], [0.5]])
    k = gpflow.kernels.LinearCoregionalization([kernel()], W)
    likelihood = Poisson()
    model = IterNCGP((X, Y), k, likelihood, solver=ReducedNewton(tolerance=1e-11))
    fit(model)
    K = kernel()(X).numpy()

    def derivatives(g):
        rate = np.exp(g[:, None] * W[:, 0])
        value = np.sum(Y * g[:, None] * W[:, 0] - rate, axis=1)
        return value, (Y - rate) @ W[:, 0], rate @ W[:, 0] ** 2

    g, _, w = laplace.binary_or_counts(K, derivatives)
    cov = laplace.covariance(K, w, K, K)
    mean, var = model.predict_f(X)
    np.testing.assert_allclose(mean, g[:, None] * W[:, 0], atol=1e-6)
    np.testing.assert_allclose(var, np.diag(cov)[:, None] * W[:, 0] ** 2, atol=1e-6)


def test_mean_function_is_exposure(rng):
    """Counts over twice the exposure with log 2 as the mean are counts of the doubled rate."""
    X, Y = data(rng)["counts"]
    plain = fitted("counts", np.random.default_rng(1))
    X, Y = plain.data
    shifted = IterNCGP(
        (X, Y), kernel(), Poisson(binsize=0.5), solver=plain.solver,
        mean_function=gpflow.functions.Constant(np.log(2.0)),
    )  # fmt: skip
    fit(shifted)
    a, b = plain.predict_f(X), shifted.predict_f(X)
    np.testing.assert_allclose(b[0] - np.log(2.0), a[0], atol=1e-7)
    np.testing.assert_allclose(b[1], a[1], atol=1e-7)


def test_class_probabilities(rng):
    model = fitted("classes", rng)
    Xnew = rng.uniform(-1, 1, (40, 2))
    p = {m: model.predict_probabilities(Xnew, m).numpy() for m in
         ("mean", "probit", "projected", "monte carlo")}  # fmt: skip
    for values in p.values():
        np.testing.assert_allclose(values.sum(axis=1), 1.0)
    mean, cov = model.predict_f(Xnew, full_output_cov=True)
    draws = np.stack([rng.multivariate_normal(m, c, 4000) for m, c in zip(mean, cov)])
    np.testing.assert_allclose(
        p["monte carlo"],
        laplace.softmax(draws.reshape(-1, 3)).reshape(40, -1, 3).mean(1),
        atol=0.04,
    )
    assert p["mean"].max(1).mean() > p["projected"].max(1).mean() > p["probit"].max(1).mean()
    with pytest.raises(ValueError, match="method must be one of mean, probit"):
        model.predict_probabilities(Xnew, "exact")
    with pytest.raises(ValueError, match="need a Bernoulli or softmax likelihood; got Poisson"):
        fitted("counts", rng).predict_probabilities(Xnew)
    binary = fitted("binary", rng)
    exact, _ = binary.predict_y(Xnew)
    for method in ("probit", "monte carlo"):
        found = binary.predict_probabilities(Xnew, method)[:, 1]
        np.testing.assert_allclose(found, exact[:, 0], atol=0.02)


def test_variance_is_mathematical_and_computational(rng):
    Xnew = rng.uniform(-1, 1, (20, 2))
    last = np.inf
    for number in (3, 10, 200):
        model = fitted("counts", rng, solver=ReducedNewton(num_actions=number))
        mathematical, computational = model.posterior().predict_variance_parts(Xnew)
        _, var = model.predict_f(Xnew)
        np.testing.assert_allclose(mathematical + computational, var, atol=1e-10)
        assert np.all(mathematical.numpy() >= -1e-10)
        assert np.sum(computational) < last
        last = float(np.sum(computational))
    exact = fitted("counts", rng, policy=None)
    X = exact.data[0]
    _, computational = exact.posterior().predict_variance_parts(X)
    np.testing.assert_allclose(computational, 0.0, atol=1e-5)  # every datum was asked


# --- the bound -----------------------------------------------------------------------------------


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
    model = IterNCGP((X, Y), kernel(), Poisson())
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
        few = IterNCGP((X, Y), kernel(), Poisson(), max_solver_steps=number)
        fit(few)
        assert float(few.elbo()) < evidence + 3 * error
    assert float(model.elbo()) > evidence - 0.5  # Laplace's q is not the best Gaussian


def test_bound_has_exact_gradients_and_minibatches(rng):
    X, Y = data(rng)["real"]
    model = IterNCGP((X, Y), kernel(), Gaussian(0.3), mean_function=gpflow.functions.Constant(0.1))
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
    model = IterNCGP((X, Y), kernel(), Gaussian(0.5))
    result = fit(model, hyperparameters=True)
    gpr = gpflow.models.GPR((X, Y), kernel(), noise_variance=0.5)
    gpflow.optimizers.Scipy().minimize(gpr.training_loss, gpr.trainable_variables)
    assert result.elbo == pytest.approx(float(gpr.log_marginal_likelihood()), abs=0.1)
    assert result.converged
    ours, theirs = (np.log(m.kernel.lengthscales.numpy()) for m in (model, gpr))
    assert ours == pytest.approx(theirs, abs=0.1)


def test_bound_never_falls_while_hyperparameters_are_learnt(rng):
    model = IterNCGP(data(rng)["counts"], kernel(), Poisson())
    fit(model)
    before = float(model.elbo())
    result = fit(model, hyperparameters=True, max_rounds=4)
    assert result.elbo >= before
    assert float(model.elbo()) == pytest.approx(result.elbo, abs=1e-6)


# --- fitting -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_history_budgets_and_going_on(rng):
    X, Y = data(rng, 300)["classes"]
    options = {"solver": ReducedNewton(num_pivots=4, tolerance=1e-8)}
    model = IterNCGP((X, Y), kernel(), Softmax(3), **options)
    whole = fit(model, validation_data=(X[:50], Y[:50]))
    assert whole.converged
    assert whole.steps[-1]["nlpd"] < whole.steps[0]["nlpd"]
    assert [h["step"] for h in whole.steps] == list(range(1, len(whole.steps) + 1))

    again = IterNCGP((X, Y), kernel(), Softmax(3), **options)
    first = fit(again, max_sweeps=4)
    assert first.sweeps <= 4
    assert not first.converged
    assert "budget of 4 sweeps" in first.message
    rest = fit(again)
    assert rest.converged
    assert rest.steps[0]["step"] == first.steps[-1]["step"] + 1
    for a, b in zip(again.predict_f(X), model.predict_f(X)):
        np.testing.assert_allclose(a, b, atol=1e-3)


def test_no_time_and_one_sweep_still_give_a_posterior(rng):
    X, Y = data(rng, 200)["classes"]
    exact = IterNCGP((X, Y), kernel(), Softmax(3))
    fit(exact)
    for budget in ({"max_seconds": 1e-9}, {"max_sweeps": 1}):
        model = IterNCGP((X, Y), kernel(), Softmax(3))
        result = fit(model, **budget)
        assert "budget" in result.message
        _, var = model.predict_f(X)
        assert np.all(np.isfinite(var))
        assert np.mean(var) > np.mean(exact.predict_f(X)[1])  # stopping early is more uncertainty


def test_callback_and_iteration_limit_end_a_fit(rng):
    for options, reason in (
        ({"callback": lambda progress: progress.iteration == 2}, "stopped by the callback"),
        ({"max_iterations": 2}, "iteration limit of 2 reached"),
    ):
        model = IterNCGP(data(rng)["counts"], kernel(), Poisson(),
                         solver=ReducedNewton(num_pivots=2, tolerance=1e-11))  # fmt: skip
        result = fit(model, **options)
        assert result.num_iterations == len(result.steps) == 2
        assert result.message == reason
        assert not result.converged
        assert np.all(np.isfinite(model.predict_f(model.data[0])[1]))


INTERRUPTED = {
    "product": (gg.operators.KernelOperator, "product", KeyboardInterrupt, False),
    "search": (gg.solvers.reduced_newton, "_maximise", KeyboardInterrupt, False),
    "posterior": (gg.solvers.reduced_newton.ReducedNewtonRun, "finish", MemoryError, False),
    "hyperparameters": (gg.optimizers.newton, "held_actions", KeyboardInterrupt, True),
}


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
    fresh = IterNCGP(model.data, gpflow.kernels.Matern32(2.5, 0.7), Poisson(), solver=model.solver)
    fit(fresh)
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
    assert (result.message, result.converged) == (
        "interrupted; what was best so far is kept",
        False,
    )
    mean, var = model.predict_f(model.data[0])
    assert np.all(np.isfinite(mean))
    assert np.all(var > 0.0)
    prior = model.kernel.variance.numpy()
    assert np.mean(var) < 0.9 * prior  # two steps have told something


def test_the_sweep_of_the_posterior_may_be_interrupted(rng, monkeypatch):
    model = IterNCGP(data(rng)["counts"], kernel(), Poisson())
    original, calls = gg.operators.KernelOperator.product, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return original(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(gg.operators.KernelOperator, "product", interrupted)
        result = fit(model, on_interrupt="keep")
    assert (result.message, result.converged) == (
        "interrupted; what was best so far is kept",
        False,
    )
    assert np.all(np.isfinite(model.predict_f(model.data[0])[1]))


def test_a_diverging_literal_fit_says_so_and_keeps_what_it_had():
    X = np.linspace(-1, 1, 400)[:, None]
    Y = (np.abs(X) < 0.5).astype(float)
    k = gpflow.kernels.Matern32(50.0, 0.5)
    rough = IterGP(max_steps=60, max_iterations=1, recycle=False, tolerance=1e-12)
    literal = IterNCGP((X, Y), k, Poisson(), solver=rough)
    fit(literal)
    assert np.all(np.isfinite(literal.predict_f(X)[1]))
    safe = IterNCGP((X, Y), k, Poisson())
    values = fit(safe).history
    assert np.all(np.diff(values) >= -1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_coming_back_from_far_beyond_the_mode_is_no_convergence(seed):
    """Overshot counts: Newton goes back by one a step, a small part of where it is."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(100, 1))
    Y = rng.poisson(np.exp(3.0 + 3.0 * np.sin(3.0 * X))).astype(float)
    k = gpflow.kernels.SquaredExponential(9.0, 0.3)
    literal = IterNCGP((X, Y), k, Poisson(), solver="itergp")
    result = fit(literal)
    assert not result.converged
    assert "still rises by much" in result.message
    assert fit(IterNCGP((X, Y), k, Poisson())).converged


def test_moved_parameters_are_noticed(rng):
    """Predictions and bound follow the kernel; a fit starts anew."""
    model = fitted("real", rng)
    X, Y = model.data
    model.kernel.lengthscales.assign(0.5)
    gpr = gpflow.models.GPR((X, Y), gpflow.kernels.Matern32(1.5, 0.5), noise_variance=0.1)
    for a, b in zip(model.predict_f(X), gpr.predict_f(X)):
        np.testing.assert_allclose(a, b, atol=1e-6)
    assert fit(model).converged
    for a, b in zip(model.predict_f(X), gpr.predict_f(X)):
        np.testing.assert_allclose(a, b, atol=1e-6)


def constant(value):
    return gpflow.functions.Constant(value)


REPLACED = {
    "kernel": lambda m: setattr(m, "kernel", gpflow.kernels.Matern32(100.0, 0.3)),
    "likelihood": lambda m: setattr(m, "likelihood", Poisson(binsize=0.1)),
    "mean_function": lambda m: setattr(m, "mean_function", constant(3.0)),
    "data": lambda m: setattr(m, "data", (m.data[0][:40], m.data[1][:40] + 1.0)),
    "a parameter": lambda m: setattr(m.kernel, "lengthscales", gpflow.Parameter(0.2)),
    "a setting": lambda m: setattr(m.kernel, "active_dims", [1]),
}


@pytest.mark.parametrize("what", REPLACED)
def test_parts_that_were_replaced(what, rng):
    """Nothing is predicted before the next fit, and that is one to the new parts."""
    solver = ReducedNewton(num_actions=200, tolerance=1e-11)
    model = IterNCGP(data(rng)["counts"], kernel(), Poisson(), solver=solver)
    fit(model)
    X, snapshot, before = model.data[0], model.posterior(), model.predict_f(model.data[0])
    compiled = tf.function(model.predict_f, autograph=False) if what == "kernel" else None
    if compiled is not None:
        compiled(X)
    REPLACED[what](model)
    part = what if hasattr(model, what) else "kernel"
    for use in (model.predict_f, model.predict_components, lambda _: model.elbo(),
                lambda _: model.posterior()):  # fmt: skip
        with pytest.raises(ValueError, match=f"^{part}: not that of the last fit"):
            use(X)
    assert fit(model).converged
    fresh = IterNCGP(
        model.data, model.kernel, model.likelihood, mean_function=model.mean_function, solver=solver
    )
    fit(fresh)
    for a, b, old in zip(model.predict_f(X), fresh.predict_f(X), before):
        np.testing.assert_allclose(a, b, atol=1e-9)
        assert np.abs(a - old).max() > 0.05
    # what was made before is of the fit before
    for a, b in zip(snapshot.predict_f(X), before):
        np.testing.assert_allclose(a, b, atol=1e-12)
    if compiled is not None:
        np.testing.assert_allclose(compiled(X)[0], before[0], atol=1e-12)


def test_data_that_are_assigned_are_checked_as_at_first(rng):
    """Arrays in other types are fitted as they would be by a new model; wrong ones are refused."""
    X, Y = data(rng)["classes"]
    model = IterNCGP((X, Y), kernel(), Softmax(3))
    fit(model)
    X = X[:40] * 0.5
    model.data = X, Y[:40].astype(int)
    fresh = IterNCGP((X, Y[:40]), kernel(), Softmax(3))
    for m in (model, fresh):
        fit(m)
    before = model.predict_f(X)
    for a, b in zip(before, fresh.predict_f(X)):
        np.testing.assert_allclose(a, b, atol=1e-9)
    for wrong in ((X[:30], Y[:40]), (X, Y[:40] + 7.0), (X[:0], Y[:0]), (X * np.nan, Y[:40])):
        with pytest.raises(ValueError, match="[XY]"):
            model.data = wrong
    for a, b in zip(model.predict_f(X), before):  # nothing was taken of them
        np.testing.assert_array_equal(a, b)


def test_parts_that_were_put_back(rng):
    model = fitted("counts", rng)
    X, before, own = model.data[0], model.predict_f(model.data[0]), model.kernel
    model.kernel = gpflow.kernels.Matern32(100.0, 0.3)
    model.kernel = own
    for a, b in zip(model.predict_f(X), before):
        np.testing.assert_array_equal(a, b)


def test_a_cached_posterior_is_a_snapshot(rng):
    """Of kernel and mean function too, until it is brought up to date."""
    model = fitted("counts", rng, mean_function=constant(0.3))
    X = model.data[0]
    before = model.predict_f(X)
    kept = {kind: model.posterior(kind) for kind in ("tensor", "variable")}
    model.kernel.lengthscales.assign(0.4)
    model.mean_function.c.assign(1.0)
    after = model.predict_f(X)
    assert np.abs(after[0] - before[0]).max() > 0.1
    for posterior in kept.values():
        for a, b in zip(posterior.predict_f(X), before):
            np.testing.assert_allclose(a, b, atol=1e-12)
        for a, b in zip(posterior.fused_predict_f(X), after):
            np.testing.assert_allclose(a, b, atol=1e-12)
        posterior.update_cache()
        for a, b in zip(posterior.predict_f(X), after):
            np.testing.assert_allclose(a, b, atol=1e-12)


@pytest.mark.parametrize("jit", [False, True])
def test_compiled_predictions_follow_parameters_and_fits(jit, rng):
    model = fitted("counts", rng, additive())
    X = model.data[0][:7]
    signature = [tf.TensorSpec([None, 2], tf.float64)]
    compiled = tf.function(
        lambda x: (*model.predict_f(x), *model.predict_components(x)),
        input_signature=signature, jit_compile=jit, autograph=False,
    )  # fmt: skip

    def agree(tolerance):
        for rows in (X,) if jit else (X, X[:0]):
            expected = *model.predict_f(rows), *model.predict_components(rows)
            for a, b in zip(compiled(rows), expected):
                np.testing.assert_allclose(a, b, atol=tolerance)
        return model.predict_f(X)[0]

    before = agree(1e-11)
    model.kernel["a"].lengthscales.assign(0.2)
    # rounding is blown up by S'(K + W^+)S, and XLA's eigenvectors have more of it
    moved = agree(1e-5)
    assert np.abs(moved - before).max() > 0.05
    model.solver = ReducedNewton(num_actions=30)  # another number of actions
    fit(model)
    assert np.abs(agree(1e-11) - moved).max() > 0.01


def test_predictions_follow_white_noise_whenever_it_moves(rng):
    """Before the first prediction or after it, eagerly or compiled."""
    found = []
    for early in (False, True):
        own = gpflow.kernels.SquaredExponential() + gpflow.kernels.White(0.3)
        model = fitted("counts", np.random.default_rng(5), own)
        X, predict = model.data[0], tf.function(model.predict_f, autograph=False)
        if early:
            model.predict_f(X)
            predict(X)
        own.kernels[1].variance.assign(3.0)
        found += [model.predict_f(X), predict(X)]
    for other in found[1:]:
        for a, b in zip(found[0], other):
            np.testing.assert_allclose(a, b, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("compiled", [False, True])
def test_predictions_have_gradients(compiled, rng):
    """In inputs and parameters, of mean and variance, against finite differences."""
    k = gpflow.kernels.LinearCoregionalization(
        [kernel(), gpflow.kernels.SquaredExponential(0.8, 0.5)], rng.normal(size=(3, 2))
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
    found = (tf.function(gradients, autograph=False) if compiled else gradients)()
    assert len(found) == 7
    for variable, gradient in zip(variables, found):
        start, step = variable.numpy(), 1e-5
        direction = rng.normal(size=start.shape)
        ends = []
        for sign in (1.0, -1.0):
            variable.assign(start + sign * step * direction)
            ends.append(float(value()))
        variable.assign(start)
        expected = (ends[0] - ends[1]) / (2.0 * step)
        assert float(np.sum(direction * gradient)) == pytest.approx(expected, rel=1e-4, abs=1e-4)


@pytest.mark.slow
def test_small_and_large_matrices_give_one_fit(rng, monkeypatch):
    """Made whole, or block by block in compiled functions: bound, gradients and predictions."""
    found = []
    for small in (compiled._SMALL, 0):
        monkeypatch.setattr(compiled, "_SMALL", small)
        model = IterNCGP(data(np.random.default_rng(3))["counts"], additive(), Poisson())
        fit(model)
        with tf.GradientTape() as tape:
            bound = model.elbo()
        slopes = tape.gradient(bound, model.trainable_variables)
        X = model.data[0]
        predict = tf.function(model.predict_f, autograph=False)
        predict(X)
        model.kernel["a"].lengthscales.assign(0.3)
        found.append([bound, *slopes, *model.predict_f(X), *predict(X)])
        programs = model.operator()._programs
        assert (len(programs.products[0]._compiled._concrete) > 0) == (small == 0)
    for whole, blocks in zip(*found):
        np.testing.assert_allclose(whole, blocks, rtol=1e-6, atol=1e-7)


@pytest.mark.slow
def test_parameters_may_be_frozen_and_set_free_again(rng, monkeypatch):
    """Fits learn what is trainable when they begin, whatever was compiled before."""
    monkeypatch.setattr(compiled, "_SMALL", 0)
    model = IterNCGP(data(rng)["counts"], kernel(), Poisson())
    gpflow.set_trainable(model.kernel.lengthscales, False)
    first = fit(model, hyperparameters=True).elbo
    assert float(model.kernel.lengthscales.numpy()) == pytest.approx(0.7, rel=1e-12)
    gpflow.set_trainable(model.kernel.lengthscales, True)
    assert fit(model, hyperparameters=True).elbo > first + 1e-3
    assert abs(float(model.kernel.lengthscales.numpy()) - 0.7) > 1e-2
    # GPflow's other sense: a copy of which nothing is trainable
    frozen = gpflow.utilities.freeze(model)
    for a, b in zip(frozen.predict_f(model.data[0]), model.predict_f(model.data[0])):
        np.testing.assert_allclose(a, b, atol=1e-9)


@pytest.mark.usefixtures("remembering")
def test_threads_predict_as_one(rng):
    model = fitted("counts", rng)
    X, post = model.data[0], model.posterior()
    model.kernel.variance.assign(2.5)  # makes the first one compute anew
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: (model.predict_f(X), post.predict_f(X)), range(12)))
    for pair in found:
        for moments, expected in zip(pair, found[0]):
            for a, b in zip(moments, expected):
                np.testing.assert_array_equal(a, b)


def test_copies_are_independent(rng):
    model = fitted("counts", rng)
    other = copy.deepcopy(model)
    other.kernel.variance.assign(9.0)
    X = model.data[0]
    assert np.abs(model.predict_f(X)[1] - other.predict_f(X)[1]).max() > 0.1
    assert fit(other).converged
    assert gpflow.utilities.parameter_dict(model).keys() == {
        ".kernel.variance",
        ".kernel.lengthscales",
    }


def test_float32(rng):
    double = fitted("classes", rng, solver=ReducedNewton(num_actions=50))
    X, Y = double.data
    gpflow.config.set_default_float(np.float32)
    single = IterNCGP((X.numpy().astype(np.float32), Y.numpy()), kernel(), Softmax(3))
    result = fit(single)
    assert result.converged
    mean, var = single.predict_f(X.numpy().astype(np.float32))
    assert mean.dtype == tf.float32
    for a, b in zip((mean, var), double.predict_f(X)):
        np.testing.assert_allclose(a, b, atol=2e-2)


# --- odd data and bad input ----------------------------------------------------------------------


def test_duplicated_rows_count_as_often_as_they_are(rng):
    X, Y = data(rng)["counts"]
    twice = IterNCGP((np.vstack([X, X]), np.vstack([Y, Y])), kernel(), Poisson(),
                     solver=ReducedNewton(num_actions=200, tolerance=1e-11))  # fmt: skip
    fit(twice)
    weighted = IterNCGP((np.column_stack([X, np.full(N, 2.0)]), Y),
                        gpflow.kernels.Matern32(1.5, 0.7, active_dims=[0, 1]),
                        gg.likelihoods.Weighted(Poisson(), 2), solver=twice.solver)  # fmt: skip
    fit(weighted)
    Xnew = rng.uniform(-1, 1, (9, 2))
    for a, b in zip(twice.predict_f(Xnew), weighted.predict_f(np.column_stack([Xnew, np.ones(9)]))):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_one_datum_one_class_and_no_variance(rng):
    one = IterNCGP((np.zeros((1, 1)), np.ones((1, 1))), kernel(), gpflow.likelihoods.Bernoulli())
    assert fit(one).converged
    assert 0.5 < float(one.predict_y(np.zeros((1, 1)))[0]) < 1.0
    X = rng.uniform(size=(30, 1))
    same = IterNCGP((X, np.zeros((30, 1))), kernel(), Softmax(3))
    assert fit(same).converged
    assert np.all(same.predict_probabilities(X).numpy().argmax(axis=1) == 0)
    flat = IterNCGP(
        (X, np.ones((30, 1))), gpflow.kernels.Matern32(1e-12), gg.likelihoods.Bernoulli()
    )
    fit(flat)
    np.testing.assert_allclose(flat.predict_f(X)[0], 0.0, atol=1e-9)


BAD = {
    "labels outside": (lambda X, Y: IterNCGP((X, Y + 9), kernel(), Softmax(3)),
                       ValueError, "Y must be whole labels 0 to 2"),
    "not finite": (lambda X, Y: IterNCGP((np.where(X > 0, np.nan, X), Y), kernel(), Softmax(3)),
                   ValueError, "X must be finite"),
    "no rows": (lambda X, Y: IterNCGP((X[:0], Y[:0]), kernel(), Softmax(3)),
                ValueError, "X has no rows"),
    "float16": (lambda X, Y: IterNCGP((X.astype(np.float16), Y.astype(np.float16)), kernel(),
                                      Poisson()), ValueError, "float32 or float64; got float16"),
    "R": (lambda X, Y: IterNCGP((X, Y), kernel(), Softmax(3), compression=0),
          ValueError, "compression must be at least 1; got 0"),
    "steps": (lambda X, Y: IterNCGP((X, Y), kernel(), Softmax(3), max_newton_steps=0),
              ValueError, "max_newton_steps must be at least 1; got 0"),
    "solver": (lambda X, Y: IterNCGP((X, Y), kernel(), Softmax(3), solver="cg"),
               ValueError, "solver must be 'newton', 'variational', 'itergp' or .*; got 'cg'"),
    "both": (lambda X, Y: IterNCGP((X, Y), kernel(), Softmax(3), solver=IterGP(), compression=3),
             ValueError, "solver has options of its own; set compression there"),
    "policy": (lambda X, Y: IterNCGP((X, Y), kernel(), Softmax(3), policy="cg"),
               TypeError, "policy must be a gpflow_gam.solvers.Policy; got str"),
    "kernel": (lambda X, Y: IterNCGP((X, Y), None, Softmax(3)), TypeError, "kernel must be"),
    "likelihood": (lambda X, Y: IterNCGP((X, Y), kernel(), "softmax"),
                   TypeError, "likelihood must be a gpflow likelihood; got str"),
    "unfitted": (lambda X, Y: IterNCGP((X, Y), kernel(), Softmax(3)).predict_f(X),
                 ValueError, "call fit"),
    "budget": (lambda X, Y: fit(IterNCGP((X, Y), kernel(), Softmax(3)), max_sweeps=0),
               ValueError, "max_sweeps must be positive; got 0"),
    "not log-concave": (lambda X, Y: fit(IterNCGP((X, 9.0 * Y), kernel(),
                                                  gpflow.likelihoods.StudentT(0.1))),
                        ValueError, "StudentT is not log-concave"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name, rng):
    call, error, message = BAD[name]
    with pytest.raises(error, match=message):
        call(*data(rng)["classes"])


def test_gpflow_bernoulli_is_used_without_its_squeeze(rng):
    """Its probit, squeezed into [0.001, 0.999], is not log-concave in the tails."""
    ours = fitted("binary", rng, likelihood=gg.likelihoods.Bernoulli("probit"))
    theirs = IterNCGP(ours.data, kernel(), gpflow.likelihoods.Bernoulli(), solver=ours.solver)
    fit(theirs)
    np.testing.assert_array_equal(
        ours.predict_f(ours.data[0])[0], theirs.predict_f(ours.data[0])[0]
    )


@pytest.mark.parametrize("policy", [UnitVectors(), UnitVectors("pivoted"), Residual()])
def test_other_policies_give_posteriors_between_prior_and_exact(policy, rng):
    exact = fitted("counts", rng)
    X = exact.data[0]
    model = IterNCGP(exact.data, kernel(), Poisson(), policy=policy, max_solver_steps=10)
    fit(model)
    _, var = model.predict_f(X)
    assert np.all(var <= 1.5 + 1e-9)
    assert np.all(var >= exact.predict_f(X)[1] - 1e-6)
    assert float(np.mean(var)) < 1.4


def test_names_of_components_and_of_a_plain_kernel(rng):
    assert fitted("counts", rng, additive()).posterior().names == ("a", "b")
    assert fitted("counts", rng).posterior().names == ("f",)
    assert problems.mixed().kernel().num_components == 8
