"""
Are hyperparameters learnt? Counts and binary data drawn from a known GP, N = 1000.

f ~ GP(0, Matern-5/2 of variance 2 and lengthscale 0.15) on 1000 points in [0, 1]; medians and
quartiles of what is learnt over the seeds, beside GPflow's VGP (the best Gaussian, O(N^3)) on as
many seeds as asked for. Run it with ``python benchmarks/iterncgp/hyperparameters.py``;
``--actions 25 100 400`` measures instead how far the bound and its gradient with so few actions are
from the evidence, which is known where noise is normal.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.likelihoods import Gaussian, Poisson
from tabulate import tabulate

from gpflow_gam import optimizers
from gpflow_gam.likelihoods import Bernoulli
from gpflow_gam.models import IterNCGP
from gpflow_gam.newton.solvers import ReducedNewton

VARIANCE, LENGTHSCALE = 2.0, 0.15


def draw(name: str, number: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = np.sort(rng.uniform(size=(number, 1)), axis=0)
    K = gpflow.kernels.Matern52(VARIANCE, LENGTHSCALE)(X).numpy()
    f = np.linalg.cholesky(K + 1e-8 * np.eye(number)) @ rng.normal(size=(number, 1))
    if name == "normal":
        return X, f + 0.5 * rng.normal(size=f.shape)
    if name == "poisson":
        return X, rng.poisson(np.exp(f)).astype(float)
    return X, (rng.uniform(size=f.shape) < 1 / (1 + np.exp(-f))).astype(float)


def bias(number: int, actions: list[int]) -> None:
    """Bound and gradient with few actions less the evidence and its own, by GPflow's GPR."""
    rows = []
    for lengthscale in (LENGTHSCALE, 0.02):
        X, Y = draw("normal", number, 0)
        gpr = gpflow.models.GPR((X, Y), gpflow.kernels.Matern52(VARIANCE, lengthscale), None, 0.25)
        evidence, exact = _value_and_slopes(gpr, gpr.log_marginal_likelihood)
        for few in actions:
            kernel, noise = gpflow.kernels.Matern52(VARIANCE, lengthscale), Gaussian(0.25)
            model = IterNCGP((X, Y), kernel, noise, solver=ReducedNewton(num_actions=few))
            optimizers.fit(model, hyperparameters=False)
            bound, slopes = _value_and_slopes(model, model.elbo)
            rows.append([lengthscale, few, bound - evidence, *(slopes - exact)])
        rows.append([lengthscale, "evidence", evidence, *exact])
    heads = ["lengthscale", "actions", "value", "d log variance", "d log lengthscale"]
    print(tabulate(rows, [*heads, "d log noise"], floatfmt=".3f"))
    print("less the evidence's; its own in the last row of each lengthscale")


def _value_and_slopes(
    model: gpflow.models.GPModel, value: Callable[[], tf.Tensor]
) -> tuple[float, np.ndarray]:
    """With the gradient in the logarithms of variance, lengthscale and noise."""
    parts = (model.kernel.variance, model.kernel.lengthscales, model.likelihood.variance)
    with tf.GradientTape() as tape:
        found = value()
    slopes = tape.gradient(found, [part.unconstrained_variable for part in parts])
    for at, part in enumerate(parts):
        with tf.GradientTape() as tape:
            log = tf.math.log(part.transform(part.unconstrained_variable))
        slopes[at] /= tape.gradient(log, part.unconstrained_variable)
    return float(found), np.array([float(slope) for slope in slopes])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--vgp-seeds", type=int, default=0)
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--actions", type=int, nargs="+", help="measure the bound's bias with them")
    arguments = parser.parse_args()
    if arguments.actions:
        bias(arguments.n, arguments.actions)
        return
    rows = []
    for name, likelihood in (("poisson", Poisson), ("binary", Bernoulli)):
        found: dict[str, list[list[float]]] = {"ours": [], "VGP": []}
        for seed in range(arguments.seeds):
            data = draw(name, arguments.n, seed)
            begun = time.perf_counter()
            model = IterNCGP(data, gpflow.kernels.Matern52(1.0, 0.5), likelihood(), solver="newton")
            result = optimizers.fit(model)
            found["ours"].append([*_values(model), time.perf_counter() - begun])
            print(name, seed, found["ours"][-1], result.elbo, result.message, flush=True)
            if seed < arguments.vgp_seeds:
                begun = time.perf_counter()
                vgp = gpflow.models.VGP(data, gpflow.kernels.Matern52(1.0, 0.5), likelihood())
                gpflow.optimizers.Scipy().minimize(
                    vgp.training_loss, vgp.trainable_variables, options={"maxiter": 300}
                )
                found["VGP"].append([*_values(vgp), time.perf_counter() - begun])
                print("VGP", found["VGP"][-1], float(vgp.elbo()), flush=True)
        for method, values in found.items():
            if values:
                low, middle, high = np.quantile(values, [0.25, 0.5, 0.75], axis=0)
                cells = [f"{m:.3f} ({a:.3f}, {b:.3f})" for m, a, b in zip(middle, low, high)]
                rows.append([name, method, len(values), *cells])
    print(tabulate(rows, ["data", "method", "seeds", "variance", "lengthscale", "s"]))
    print(f"truth: variance {VARIANCE}, lengthscale {LENGTHSCALE}; median (quartiles)")


def _values(model: gpflow.models.GPModel) -> list[float]:
    return [float(model.kernel.variance.numpy()), float(model.kernel.lengthscales.numpy())]


if __name__ == "__main__":
    main()
