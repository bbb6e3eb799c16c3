"""AdditiveSGPR and AdditiveVGP: bounds by several routes, and memory that does not grow."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import gpflow
import numpy as np
import problems
import pytest
from gpflow.kernels import SquaredExponential

import gpflow_gam as gg


def dense_bound(problem: problems.Problem, noise: float) -> float:
    """Titsias' bound with dense N x N matrices."""
    kernel = problem.kernel()
    d = problems.dense(list(kernel.kernels), list(problem.Z.values()), problem.X, 1e-6)
    Q = sum(phi.T @ phi for phi in d.phi)
    N = len(problem.X)
    C = Q + noise * np.eye(N)
    y = problem.Y[:, 0]
    log_density = -0.5 * (
        N * np.log(2 * np.pi) + np.linalg.slogdet(C)[1] + y @ np.linalg.solve(C, y)
    )
    return log_density - 0.5 * (sum(p.sum() for p in d.prior) - np.trace(Q)) / noise


@pytest.mark.slow
def test_bound_equals_dense_numpy_and_gpflow(problem):
    ours = problem.sgpr()
    theirs = gpflow.models.SGPR(
        problem.data, problem.kernel(), problem.inducing(), noise_variance=0.2
    )
    assert float(ours.elbo()) == pytest.approx(dense_bound(problem, 0.2), abs=1e-6)
    assert float(ours.elbo()) == pytest.approx(float(theirs.elbo()), abs=1e-6)
    for full_cov in (False, True):
        mine = ours.predict_f(problem.X[:7], full_cov=full_cov)
        other = theirs.predict_f(problem.X[:7], full_cov=full_cov)
        for a, b in zip(mine, other):
            np.testing.assert_allclose(a, b, atol=1e-7)


def test_inducing_inputs_at_the_data_give_gpr(rng):
    X = rng.uniform(size=(25, 2))
    Y = np.sin(6 * X[:, :1]) + X[:, 1:] + 0.3 * rng.standard_normal((25, 1))

    def kernels() -> list[gpflow.kernels.Kernel]:
        return [
            gpflow.kernels.Matern32(1.2, 0.5, active_dims=[0]),
            gpflow.kernels.Matern12(0.7, 0.8, active_dims=[1]),
        ]

    gpflow.config.set_default_jitter(1e-10)
    exact = gpflow.models.GPR((X, Y), gpflow.kernels.Sum(kernels()), noise_variance=0.1)
    sparse = gg.models.AdditiveSGPR(
        (X, Y),
        gg.kernels.AdditiveKernel(kernels()),
        gg.inducing_variables.AdditiveInducingVariables([X[:, :1], X[:, 1:]]),
        0.1,
    )
    assert float(sparse.elbo()) == pytest.approx(float(exact.log_marginal_likelihood()), abs=1e-6)
    new = rng.uniform(size=(9, 2))
    for a, b in zip(sparse.predict_f(new, full_cov=True), exact.predict_f(new, full_cov=True)):
        np.testing.assert_allclose(a, b, atol=1e-6)
    with_our_kernel = gpflow.models.GPR(
        (X, Y), gg.kernels.AdditiveKernel(kernels()), noise_variance=0.1
    )
    np.testing.assert_allclose(
        with_our_kernel.log_marginal_likelihood(), exact.log_marginal_likelihood(), rtol=1e-10
    )


def test_several_outputs_add_up(problem, rng):
    Y2 = rng.standard_normal((60, 1))

    def model(Y: np.ndarray) -> gg.models.AdditiveSGPR:
        return gg.models.AdditiveSGPR((problem.X, Y), problem.kernel(), problem.inducing(), 0.2)

    both = model(np.hstack([problem.Y, Y2]))
    one, two = model(problem.Y), model(Y2)
    assert float(both.elbo()) == pytest.approx(float(one.elbo() + two.elbo()), rel=1e-10)
    mean, var = both.posterior().predict_components(problem.X[:5])
    for index, single in enumerate((one, two)):
        m, v = single.posterior().predict_components(problem.X[:5])
        np.testing.assert_allclose(mean[..., index], m, atol=1e-9)
        np.testing.assert_allclose(var[..., index], v, atol=1e-9)


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
        run = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(MEMORY), str(rows)],
            capture_output=True,
            text=True,
            check=True,
        )
        return float(run.stdout.split()[-1])

    assert extra(1_000_000) < extra(30_000) + 200.0


def test_fit_learns_hyperparameters(rng):
    X = rng.uniform(size=(400, 2))
    Y = np.sin(8 * X[:, :1]) + 0.1 * rng.standard_normal((400, 1))
    kernel = gg.kernels.AdditiveKernel(
        {
            "signal": SquaredExponential(active_dims=[0]),
            "nothing": SquaredExponential(active_dims=[1]),
        }
    )
    model = gg.models.AdditiveSGPR((X, Y), kernel, gg.inducing_variables.select(X, kernel, 15))
    result = gg.optimizers.fit(model)
    assert result.converged
    assert model.likelihood.variance.numpy() == pytest.approx(0.01, rel=0.2)
    mean, _ = model.predict_components(X)
    np.testing.assert_allclose(mean[:, 1], 0.0, atol=0.03)
    assert result.elbo == pytest.approx(float(model.elbo()))


def test_bad_data_are_refused(problem):
    def model(X: np.ndarray, Y: np.ndarray) -> gg.models.AdditiveSGPR:
        return gg.models.AdditiveSGPR((X, Y), problem.kernel(), problem.inducing())

    X, Y = problem.data
    with pytest.raises(ValueError, match="component 'b' reads column 2"):
        model(X[:, :2], Y)
    with pytest.raises(ValueError, match="Y must be finite.*row 0"):
        model(X, np.full_like(Y, np.nan))
    with pytest.raises(ValueError, match="X has 60 rows, Y has 59"):
        model(X, Y[1:])
    with pytest.raises(ValueError, match=r"Y must be a matrix \[N, K\]"):
        model(X, Y[:, 0])
    with pytest.raises(ValueError, match=r"pair \(X, Y\)"):
        gg.models.AdditiveSGPR(X, problem.kernel(), problem.inducing())
    for variance in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(ValueError, match="noise_variance must be positive and finite"):
            gg.models.AdditiveSGPR(
                (X, Y), problem.kernel(), problem.inducing(), noise_variance=variance
            )


# --- AdditiveVGP ---------------------------------------------------------------------------------


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
