"""AdditiveVGP: Appendix B against dense numpy over all components, and against GPflow."""

from __future__ import annotations

import gpflow
import numpy as np
import problems
import pytest

import gpflow_gam as gg


@pytest.fixture
def small() -> problems.Problem:
    return problems.mixed(num_data=20)


def fill(model: gg.models.AdditiveVGP, rng: np.random.Generator) -> None:
    model.q_alpha.assign(0.3 * rng.standard_normal(model.q_alpha.shape))
    model.q_lambda.assign(rng.uniform(0.2, 1.5, model.q_lambda.shape))


def test_against_the_joint_gaussian_over_all_components(small, rng):
    """Sigma_F of size [C N, C N] by its definition: KL, marginals, components, covariances."""
    kernel = small.kernel()
    model = gg.models.AdditiveVGP(small.data, kernel, gpflow.likelihoods.Gaussian(0.3))
    fill(model, rng)
    C, N = kernel.num_components, 20
    alpha, lam = model.q_alpha.numpy()[:, 0], model.q_lambda.numpy()[:, 0]
    K = np.zeros((C * N, C * N))
    for c, k in enumerate(kernel.kernels):
        K[c * N : (c + 1) * N, c * N : (c + 1) * N] = k(small.X) + 1e-9 * np.eye(N)
    site = np.tile(np.diag(lam), (C, 1))
    precision = np.linalg.inv(K) + site @ site.T
    S = np.linalg.inv(precision)
    mean = K @ np.tile(alpha, C)
    kl = 0.5 * (
        np.trace(precision_times := np.linalg.solve(K, S))
        + mean @ np.linalg.solve(K, mean)
        - C * N
        - np.linalg.slogdet(precision_times)[1]
    )
    summing = np.tile(np.eye(N), (1, C))
    total, total_cov = summing @ mean, summing @ S @ summing.T
    likelihood = model.likelihood
    expected = likelihood.variational_expectations(
        small.X, total[:, None], np.diag(total_cov)[:, None], small.Y
    )
    assert float(model.elbo()) == pytest.approx(float(np.sum(expected)) - kl, rel=1e-5)
    f_mean, f_cov = model.predict_f(small.X, full_cov=True)
    np.testing.assert_allclose(f_mean[:, 0], total, atol=1e-5)
    np.testing.assert_allclose(f_cov[0], total_cov, atol=1e-5)
    posterior = model.posterior()
    c_mean, c_cov = posterior.predict_components(small.X, full_cov=True)
    cross = posterior.predict_component_covariance(small.X)
    for c in range(C):
        at = slice(c * N, (c + 1) * N)
        np.testing.assert_allclose(c_mean[:, c], mean[at], atol=1e-5)
        np.testing.assert_allclose(c_cov[c], S[at, at], atol=1e-5)
        for d in range(C):
            other = slice(d * N, (d + 1) * N)
            np.testing.assert_allclose(cross[:, c, d], np.diag(S[at, other]), atol=1e-5)


def test_equals_gpflow_opper_archambeau(small, rng):
    ours = gg.models.AdditiveVGP(small.data, small.kernel(), gpflow.likelihoods.StudentT())
    theirs = gpflow.models.VGPOpperArchambeau(
        small.data, small.kernel(), gpflow.likelihoods.StudentT()
    )
    fill(ours, rng)
    theirs.q_alpha.assign(ours.q_alpha)
    theirs.q_lambda.assign(ours.q_lambda)
    assert float(ours.elbo()) == pytest.approx(float(theirs.elbo()), rel=1e-9)
    new = rng.uniform(size=(5, 3))
    for a, b in zip(ours.predict_f(new), theirs.predict_f(new)):
        np.testing.assert_allclose(a, b, atol=1e-8)


@pytest.mark.slow
def test_trained_equals_the_sparse_model_with_inducing_inputs_at_the_data(rng):
    """Two models, one posterior: Poisson counts, Z = X, both at their optimum."""
    X = rng.uniform(size=(25, 2))
    Y = rng.poisson(np.exp(1 + np.sin(6 * X[:, :1]))).astype(float)

    def kernel() -> gg.kernels.AdditiveKernel:
        return gg.kernels.AdditiveKernel(
            [
                gpflow.kernels.Matern32(0.8, 0.5, active_dims=[0]),
                gpflow.kernels.Matern12(0.5, 0.8, active_dims=[1]),
            ]
        )

    full = gg.models.AdditiveVGP((X, Y), kernel(), gpflow.likelihoods.Poisson())
    gpflow.config.set_default_jitter(1e-9)
    sparse = gg.models.AdditiveSVGP(
        kernel(),
        gpflow.likelihoods.Poisson(),
        gg.inducing_variables.AdditiveInducingVariables([X[:, :1], X[:, 1:]]),
        variational=gg.variational.OptimalPrecision(),
    )
    gpflow.set_trainable(full.kernel, False)
    gpflow.set_trainable(sparse.kernel, False)
    gg.optimizers.fit(full, tolerance=1e-10, max_iterations=5000)
    gg.optimizers.fit(sparse, (X, Y), tolerance=1e-10)
    assert float(full.elbo()) == pytest.approx(float(sparse.elbo((X, Y))), abs=1e-5)
    new = rng.uniform(size=(9, 2))
    for a, b in zip(full.predict_components(new), sparse.predict_components(new)):
        np.testing.assert_allclose(a, b, atol=1e-3)


def test_several_latent_outputs(rng):
    X, _, kernel, _ = problems.like(num_components=2, num_data=30)
    Y = np.digitize(X[:, :1], [0.35, 0.7])
    model = gg.models.AdditiveVGP((X, Y), kernel(), gpflow.likelihoods.Softmax(3))
    fill(model, rng)
    assert model.q_alpha.shape == (30, 3)
    assert np.isfinite(float(model.elbo()))
    mean, var = model.predict_components(X[:4])
    assert mean.shape == var.shape == (4, 2, 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scale", "tolerance", "of_sd"), [(10.0, 1e-6, 1e-3), (100.0, 3e-5, 0.03), (300.0, 2e-3, 0.5)]
)
def test_single_precision_equals_double_as_far_as_its_digits_go(scale, tolerance, of_sd, rng):
    """
    Components of very different sizes, and sites that see much more than single precision does:
    the bound is then that of less precise sites, and no error.
    """
    N = 1000
    X = rng.uniform(size=(N, 2))
    Y = rng.poisson(np.exp(np.sin(6 * X[:, :1]) + X[:, 1:])).astype(float)
    found = {}
    for dtype in (np.float32, np.float64):
        with gpflow.config.as_context(gpflow.config.Config(float=dtype)):
            se = gpflow.kernels.SquaredExponential
            kernel = gg.kernels.AdditiveKernel(
                {"a": se(30.0, 1.0, active_dims=[0]), "b": se(1.0, 1.0, active_dims=[1])}
            )
            data = X.astype(dtype), Y.astype(dtype)
            model = gg.models.AdditiveVGP(data, kernel, gpflow.likelihoods.Poisson())
            model.q_lambda.assign(scale * model.q_lambda)
            model.q_alpha.assign(1e-3 * np.sin(np.arange(N))[:, None].astype(dtype))
            found[dtype] = [float(model.elbo()), *model.predict_f(data[0][:20])]
            assert found[dtype][1].dtype == dtype
            draws = model.posterior().sample_components(data[0][:5], 3, seed=0)
            assert np.all(np.isfinite(draws))
    (elbo, mean, var), (exact, exact_mean, exact_var) = found.values()
    assert elbo == pytest.approx(exact, rel=tolerance)
    np.testing.assert_allclose(mean, exact_mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.sqrt(var), np.sqrt(exact_var), rtol=of_sd)
