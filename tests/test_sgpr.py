"""AdditiveSGPR: bounds by several routes, and memory that does not grow."""

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
