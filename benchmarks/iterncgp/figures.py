"""
The small experiments of Tatzel et al. (2025), Figures 1 to 5, with our solvers beside theirs.

Binary data in one dimension (N = 50) and two (N = 100): posteriors after a few actions by policy,
and what compression costs. Counts (N = 100): 100 inner iterations as 5, 10, 20 or 100 Newton
steps. Run it with ``python benchmarks/iterncgp/figures.py --out FOLDER``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import gpflow
import matplotlib.pyplot as plt
import numpy as np
from gpflow.kernels import SquaredExponential
from gpflow.likelihoods import Poisson
from tabulate import tabulate

from gpflow_gam import optimizers
from gpflow_gam.likelihoods import Bernoulli
from gpflow_gam.models import IterNCGP
from gpflow_gam.newton.solvers import (
    Diverged,
    Informative,
    IterGP,
    Policy,
    ReducedNewton,
    Residual,
    UnitVectors,
)

POLICIES: dict[str, Policy] = {
    "unit vectors": UnitVectors(),
    "residual (CG)": Residual(),
    "informative (ours)": Informative(),
}
EXACT = ReducedNewton(num_actions=200, tolerance=1e-9)


def binary(X: np.ndarray, kernel: gpflow.kernels.Kernel, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    K = kernel(X).numpy() + 1e-8 * np.eye(len(X))
    f = np.linalg.cholesky(K) @ rng.normal(size=(len(X), 1))
    return (rng.uniform(size=f.shape) < 1 / (1 + np.exp(-f))).astype(float)


def one_dimension(out: Path) -> None:
    kernel = SquaredExponential(5.0, 1.0)
    X = np.random.default_rng(1).uniform(-3, 5, (50, 1))
    Y, grid = binary(X, kernel, 1), np.linspace(-4, 6, 200)[:, None]
    exact = IterNCGP((X, Y), kernel, Bernoulli(), solver=EXACT)
    optimizers.fit(exact, hyperparameters=False)
    counts = (1, 3, 6, 12)
    figure, axes = plt.subplots(3, 4, figsize=(12, 6.5), sharex=True, sharey=True)
    for row, (name, policy) in zip(axes, POLICIES.items()):
        for ax, number in zip(row, counts):
            solver = IterGP(policy, max_steps=10, max_iterations=number, recycle=False)
            model = IterNCGP((X, Y), kernel, Bernoulli(), solver=solver)
            optimizers.fit(model, hyperparameters=False)
            for one, colour, label in ((exact, "0.6", "exact"), (model, "C0", "computed")):
                mean, var = (t.numpy()[:, 0] for t in one.predict_f(grid))
                half = 2 * np.sqrt(var)
                ax.fill_between(grid[:, 0], mean - half, mean + half, color=colour, alpha=0.3)
                ax.plot(grid[:, 0], mean, color=colour, label=label)
            ax.plot(X, 7 * (2 * Y - 1), "k|", markersize=5)
            ax.set_title(f"{name}, {number}", fontsize=9)
    axes[0, 0].legend(fontsize=8)
    figure.supylabel("f, mean and two standard deviations")
    figure.tight_layout()
    figure.savefig(out / "binary_1d.png", dpi=110)


def two_dimensions(out: Path) -> None:
    rng = np.random.default_rng(2)
    kernel = SquaredExponential(10.0, 1.0)
    X = rng.uniform([-3, -4], [5, 1], (100, 2))
    Y = binary(X, kernel, 3)
    a, b = np.meshgrid(np.linspace(-3, 5, 60), np.linspace(-4, 1, 40))
    grid = np.column_stack([a.ravel(), b.ravel()])
    exact = IterNCGP((X, Y), kernel, Bernoulli(), solver=EXACT)
    optimizers.fit(exact, hyperparameters=False)
    models = {"exact": exact}
    for name, policy in POLICIES.items():
        solver = IterGP(policy, max_steps=10, max_iterations=10, recycle=False)
        models[f"{name}, 10"] = IterNCGP((X, Y), kernel, Bernoulli(), solver=solver)
        optimizers.fit(models[f"{name}, 10"], hyperparameters=False)
    figure, axes = plt.subplots(
        2, 4, figsize=(13, 4.6), sharex=True, sharey=True, layout="constrained"
    )
    for column, (name, model) in zip(axes.T, models.items()):
        mean, var = (t.numpy().reshape(a.shape) for t in model.predict_f(grid))
        first = column[0].pcolormesh(a, b, mean, cmap="RdBu", vmin=-6, vmax=6)
        second = column[1].pcolormesh(a, b, np.sqrt(var), cmap="viridis", vmin=0, vmax=3.2)
        for ax in column:
            ax.scatter(*X.T, c=Y[:, 0], cmap="gray", edgecolor="k", s=8, linewidth=0.4)
        column[0].set_title(name, fontsize=9)
    figure.colorbar(first, ax=axes[0], label="mean of f")
    figure.colorbar(second, ax=axes[1], label="standard deviation")
    figure.savefig(out / "binary_2d.png", dpi=110)


def compression(out: Path) -> None:
    """Newton steps of five iterations, with R actions kept in between."""
    kernel = SquaredExponential(10.0, 1.0)
    X = np.random.default_rng(2).uniform([-3, -4], [5, 1], (100, 2))
    Y = binary(X, kernel, 3)
    exact = IterNCGP((X, Y), kernel, Bernoulli(), solver=EXACT)
    best = optimizers.fit(exact, hyperparameters=False).history[-1]
    mode, least = exact.predict_f(X)
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.6))
    rows = []
    for kept in (0, 1, 3, 10, None):
        solver = IterGP(
            max_steps=12,
            max_iterations=5,
            compression=kept or None,
            recycle=kept != 0,
            tolerance=1e-15,
        )
        run = solver.start(IterNCGP((X, Y), kernel, Bernoulli()).run().problem)
        away, variance, values = [], [], []
        for report in run.steps():
            state = run.finish()
            seen = kernel(X).numpy() @ state.actions.numpy()[:, 0].T @ state.factor.numpy()
            values.append(report.log_posterior)
            away.append(float(np.sqrt(np.mean((run.Kv.numpy()[0] - mode.numpy()[:, 0]) ** 2))))
            var = np.diag(kernel(X).numpy()) - np.sum(seen**2, axis=1)
            variance.append(float(np.mean(var - least.numpy()[:, 0])))
        products = 5 * np.arange(1, len(away) + 1)
        label = f"R = {'all' if kept is None else kept}"
        axes[0].semilogy(products, away, marker=".", label=label)
        axes[1].semilogy(products, variance, marker=".", label=label)
        rows.append([label, away[3], away[-1], variance[3], variance[-1], values[-1] - best])
    axes[0].set_ylabel("rms of f - mode")
    axes[1].set_ylabel("excess variance")
    for ax in axes:
        ax.set_xlabel("products with K")
    axes[0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(out / "compression.png", dpi=110)
    heads = ["kept", "rms at 20", "at 60", "excess variance at 20", "at 60", "log posterior - mode"]
    print(tabulate(rows, heads, floatfmt=".3g"))


def counts(out: Path) -> None:
    kernel, X = SquaredExponential(5.0, 0.1), np.linspace(0, 1, 100)[:, None]
    K = kernel(X).numpy() + 1e-8 * np.eye(100)
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.6))
    ends: dict[int, list[float]] = {}
    for seed in range(10):
        rng = np.random.default_rng(seed)
        f = np.linalg.cholesky(K) @ rng.normal(size=(100, 1))
        data = X, rng.poisson(np.exp(f)).astype(float)
        exact = IterNCGP(data, kernel, Poisson(), solver=EXACT)
        optimizers.fit(exact, hyperparameters=False)
        mode = exact.predict_f(X)[0].numpy()
        scale = np.sqrt(np.mean(mode**2))
        for steps in (5, 10, 20, 100):
            solver = IterGP(max_steps=steps, max_iterations=100 // steps, tolerance=1e-15)
            run, path = solver.start(exact.run().problem), []
            try:
                for _ in run.steps():
                    away = run.Kv.numpy()[0] - mode[:, 0]
                    path.append(float(np.sqrt(np.mean(away**2)) / scale))
            except Diverged:  # the published loop has no safeguard
                path.append(np.inf)
            ends.setdefault(steps, []).append(path[-1])
            if seed == 1:  # one where all of them end
                done = 100 // steps * np.arange(1, len(path) + 1)
                axes[0].semilogy(done, path, label=f"{steps} Newton steps")
    axes[0].set_xlabel("products with K")
    axes[0].set_ylabel("relative rms of f - mode")
    axes[0].legend(fontsize=8)
    finite = [[e for e in values if np.isfinite(e)] for values in ends.values()]
    axes[1].boxplot(finite, tick_labels=[str(s) for s in ends])
    axes[1].set_yscale("log")
    axes[1].set_xlabel("Newton steps, 100 products in all, ten data sets")
    figure.tight_layout()
    figure.savefig(out / "poisson.png", dpi=110)
    quartiles = [0.25, 0.5, 0.75]
    rows = [
        [s, *np.quantile(e, quartiles, method="nearest"), int(np.sum(~np.isfinite(e)))]
        for s, e in ends.items()
    ]
    heads = ["Newton steps", "lower quartile", "median", "upper", "diverged"]
    print(tabulate(rows, heads, floatfmt=".2g"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the figures")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    for part in (one_dimension, two_dimensions, compression, counts):
        part(out)
        print(part.__name__, "done", flush=True)


if __name__ == "__main__":
    main()
