"""
How close does each family of q(U) come to the exact posterior, and what does it hold for that?

Gaussian noise, so that the posterior over the inducing values is known. Inputs are uniform with a
Gaussian copula of correlation r; every family minimises KL(q || exact) over its parameters. Run it
with ``python benchmarks/families.py``; takes about a minute.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.kernels import SquaredExponential
from scipy.stats import norm
from tabulate import tabulate

import gpflow_gam as gg
from gpflow_gam.variational import (
    BlockPrecision,
    CoupledPrecision,
    DenseGaussian,
    MeanField,
    VariationalFamily,
)

CORRELATIONS = (0.0, 0.5, 0.9)
LENGTHSCALE, NOISE_VARIANCE = 0.3, 0.25  # about 34 effective degrees of freedom at N = 5000

FAMILIES: dict[str, Callable[[], VariationalFamily]] = {
    "mean field": MeanField,
    "precision, R = 16": lambda: CoupledPrecision(rank=16),
    "precision, R = 32": lambda: CoupledPrecision(rank=32),
    "precision, R = 48": lambda: CoupledPrecision(rank=48),
    "block, R = 1": lambda: BlockPrecision(rank=1),
    "block, R = 4": lambda: BlockPrecision(rank=4),
    "block, R = 8": lambda: BlockPrecision(rank=8),
    "block, R = 16": lambda: BlockPrecision(rank=16),
}


class Exact(NamedTuple):
    """The exact posterior over the whitened inducing values, in group order."""

    mean: tf.Tensor
    """[P, 1]."""

    precision: tf.Tensor
    """[1, P, P]."""

    log_det: tf.Tensor
    """Of the precision, [1]."""


class Fit(NamedTuple):
    """How a family ended."""

    kl: float
    num_parameters: int
    """Of the covariance."""

    iterations: int
    seconds: float
    message: str


def make_model(num_data: int, correlation: float, seed: int = 0) -> gg.models.AdditiveSGPR:
    """Six smooth functions of correlated inputs plus noise, 16 inducing inputs each."""
    num_components, num_inducing = 6, 16
    rng = np.random.default_rng(seed)
    copula = np.full((num_components, num_components), correlation)
    np.fill_diagonal(copula, 1.0)
    normal = rng.standard_normal((num_data, num_components)) @ np.linalg.cholesky(copula).T
    X = norm.cdf(normal)
    f = np.sin(2.0 * np.pi * (X + np.arange(num_components) / num_components)).sum(axis=1)
    Y = f[:, None] + np.sqrt(NOISE_VARIANCE) * rng.standard_normal((num_data, 1))

    kernel = gg.kernels.AdditiveKernel(
        [
            SquaredExponential(lengthscales=LENGTHSCALE, active_dims=[c])
            for c in range(num_components)
        ]
    )
    inducing = gg.inducing_variables.select(X, kernel, num_inducing, strategy="grid")
    return gg.models.AdditiveSGPR((X, Y), kernel, inducing, noise_variance=NOISE_VARIANCE)


def exact_posterior(model: gg.models.AdditiveSGPR) -> Exact:
    """N(mu, (I + Phi Phi' / s2)^-1)."""
    q = model.posterior().q()
    assert isinstance(q, DenseGaussian)
    return Exact(q.mean, tf.linalg.inv(q.covariance()), -q.log_det)


def degrees_of_freedom(exact: Exact) -> float:
    """tr(I - S), the effective degrees of freedom of all components together."""
    return float(exact.mean.shape[0] - tf.linalg.trace(tf.linalg.inv(exact.precision))[0])


def kl_to_exact(
    family: VariationalFamily, exact: Exact, cholesky: Sequence[tf.Tensor]
) -> tf.Tensor:
    """KL[q || exact] = 1/2 (tr(A S) + d'A d - P - log|A| - log|S|), d = mean of q - exact mean."""
    q = family.whitened(cholesky)
    difference = q.mean - exact.mean
    moment = q.covariance()[0] + tf.matmul(difference, difference, transpose_b=True)
    trace = tf.reduce_sum(exact.precision[0] * moment)
    return 0.5 * (trace - q.layout.total - exact.log_det[0] - q.log_det[0])


def best_of_family(
    family: VariationalFamily,
    model: gg.models.AdditiveSGPR,
    exact: Exact,
    max_iterations: int = 10_000,
) -> Fit:
    """
    Minimise KL[q || exact] over the family, which comes unbuilt and is left at the optimum.

    The mean does not interact with the covariance: it is set to its optimum and stays there.
    """
    blocks = model.blocks
    cholesky = blocks.cholesky()
    family.build(blocks.layout, 1, cholesky)
    family.match(cholesky, exact.mean, exact.precision)
    gpflow.set_trainable(family.q_mu, False)
    variables = family.trainable_variables

    start = time.perf_counter()
    result = gpflow.optimizers.Scipy().minimize(
        tf.function(lambda: kl_to_exact(family, exact, cholesky), autograph=False),
        variables,
        method="L-BFGS-B",
        options={
            "maxiter": max_iterations,
            "maxfun": 2 * max_iterations,
            "maxcor": 50,
            "ftol": 1e-11,
            "gtol": 1e-6,
        },
    )
    seconds = time.perf_counter() - start
    number = sum(int(np.prod(v.shape)) for v in variables)
    return Fit(float(result.fun), number, int(result.nit), seconds, str(result.message))


def main() -> None:
    parser = argparse.ArgumentParser(description="KL from the best q of each family to the truth.")
    parser.add_argument("--num-data", type=int, default=5000)
    parser.add_argument("--max-iterations", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verbose", action="store_true", help="how every optimisation ended")
    arguments = parser.parse_args()

    kls: dict[str, list[float]] = {name: [] for name in FAMILIES}
    numbers: dict[str, int] = {}
    freedom = []
    start = time.perf_counter()
    for correlation in CORRELATIONS:
        model = make_model(arguments.num_data, correlation, arguments.seed)
        exact = exact_posterior(model)
        freedom.append(degrees_of_freedom(exact))
        for name, make in FAMILIES.items():
            fit = best_of_family(make(), model, exact, arguments.max_iterations)
            kls[name].append(fit.kl)
            numbers[name] = fit.num_parameters
            if arguments.verbose:
                ended = f"{fit.iterations} iterations, {fit.seconds:.1f} s, {fit.message}"
                print(f"r = {correlation}, {name}: {fit.kl:.4f} ({ended})")

    print(f"KL (nats) from the best q to the exact posterior, N = {arguments.num_data}, C = 6, M = 16")
    header = ["family", "parameters", *(f"r = {r}" for r in CORRELATIONS)]
    rows = [[name, numbers[name], *kls[name]] for name in FAMILIES]
    print(tabulate(rows, header, floatfmt=("", "", ".2f", ".2f", ".2f")))
    print("effective degrees of freedom: " + ", ".join(f"{f:.1f}" for f in freedom))
    print(f"time taken: {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
