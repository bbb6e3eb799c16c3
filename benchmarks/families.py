"""
How close does each family of q(U) come to the exact posterior, and what does it hold for that?

Gaussian noise, so that the posterior over the inducing values is known. Inputs are uniform with a
Gaussian copula of correlation r; every family minimises KL[q || exact] over its parameters, with
L-BFGS from where ``match`` puts it. Run it with ``python benchmarks/families.py``; takes ten
seconds or so.
"""

from __future__ import annotations

from collections.abc import Callable

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.kernels import SquaredExponential
from recording import parser_of, record
from scipy.stats import norm

import gpflow_gam as gg
from gpflow_gam.variational import (
    BlockPrecision,
    CoupledPrecision,
    DenseGaussian,
    MeanField,
    VariationalFamily,
    WhitenedGaussian,
)

NUM_COMPONENTS, NUM_INDUCING = 6, 16
CORRELATIONS = (0.0, 0.5, 0.9)
LENGTHSCALE, NOISE_VARIANCE = 0.3, 0.25  # about 34 effective degrees of freedom at N = 5000

FAMILIES: dict[str, Callable[[], VariationalFamily]] = {
    "mean field": MeanField,
    "precision, R = 16 (= M)": lambda: CoupledPrecision(rank=16),
    "precision, R = 32": lambda: CoupledPrecision(rank=32),
    "precision, R = 48": lambda: CoupledPrecision(rank=48),
    "block precision, R = 1": lambda: BlockPrecision(rank=1),
    "block precision, R = 4": lambda: BlockPrecision(rank=4),
    "block precision, R = 8": lambda: BlockPrecision(rank=8),
    "block precision, R = 16": lambda: BlockPrecision(rank=16),
}


def make_model(num_data: int, correlation: float) -> gg.models.AdditiveSGPR:
    """Smooth functions of correlated inputs, plus noise."""
    rng = np.random.default_rng(0)
    C = NUM_COMPONENTS
    copula = np.linalg.cholesky(correlation + (1.0 - correlation) * np.eye(C))
    X = norm.cdf(rng.standard_normal((num_data, C)) @ copula.T)
    f = np.sin(2.0 * np.pi * (X + np.arange(C) / C)).sum(axis=1, keepdims=True)
    Y = f + np.sqrt(NOISE_VARIANCE) * rng.standard_normal((num_data, 1))
    kernel = gg.kernels.AdditiveKernel(
        [SquaredExponential(lengthscales=LENGTHSCALE, active_dims=[c]) for c in range(C)]
    )
    grids = np.linspace(X.min(axis=0), X.max(axis=0), NUM_INDUCING).T
    inducing = gg.inducing_variables.AdditiveInducingVariables([grid[:, None] for grid in grids])
    return gg.models.AdditiveSGPR((X, Y), kernel, inducing, noise_variance=NOISE_VARIANCE)


def kl_to_exact(q: WhitenedGaussian, exact: DenseGaussian, precision: tf.Tensor) -> tf.Tensor:
    """KL[q || exact] = 1/2 (tr(A S) + d'A d - P + log|S*| - log|S|), d = mean of q - exact mean."""
    difference = q.mean - exact.mean
    moment = q.covariance()[0] + tf.matmul(difference, difference, transpose_b=True)
    trace = tf.reduce_sum(precision[0] * moment)
    return 0.5 * (trace - q.layout.total + exact.log_det[0] - q.log_det[0])


def best_of_family(
    family: VariationalFamily, model: gg.models.AdditiveSGPR, max_iterations: int
) -> tuple[int, float]:
    """
    Numbers of the covariance, and the least KL[q || exact] over the family, which comes unbuilt.

    ``match`` is the optimum for mean field and coupled precision (Eckart & Young 1936), and near it
    for block precision (factor analysis): L-BFGS only has the last digits to find. The mean does
    not interact with the covariance: it is set to its optimum and stays there.
    """
    exact = model.posterior().q()  # of the whitened inducing values, known as noise is normal
    assert isinstance(exact, DenseGaussian)
    precision, cholesky = tf.linalg.inv(exact.covariance()), model.blocks.cholesky()
    family.build(model.blocks.layout, 1)
    family.match(cholesky, exact.mean, precision)
    gpflow.set_trainable(family.q_mu, False)
    variables = family.trainable_variables
    result = gpflow.optimizers.Scipy().minimize(
        tf.function(
            lambda: kl_to_exact(family.whitened(cholesky), exact, precision), autograph=False
        ),
        variables,
        method="L-BFGS-B",
        options={"maxiter": max_iterations, "maxcor": 50, "ftol": 1e-7, "gtol": 1e-5},
    )
    return sum(v.shape.num_elements() for v in variables), float(result.fun)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--num-data", type=int, default=5000)
    parser.add_argument("--max-iterations", type=int, default=300, help="of L-BFGS")
    arguments = parser.parse_args()

    rows: list[dict[str, object]] = []
    for correlation in CORRELATIONS:
        model = make_model(arguments.num_data, correlation)
        for name, make in FAMILIES.items():
            number, kl = best_of_family(make(), model, arguments.max_iterations)
            row = {"correlation": correlation, "family of q(U)": name, "parameters": number}
            rows.append({**row, "KL, nats": kl})
    record(
        "families",
        "KL divergence from the exact posterior by family of q(U)",
        rows,
        arguments,
        within=["correlation"],
        method="family of q(U)",
        better={"KL, nats": "lower"},
    )


if __name__ == "__main__":
    main()
