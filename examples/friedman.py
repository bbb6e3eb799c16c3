"""
The illustration of Adam, Durrande & John (2018), section 7: Figure 1 and its numbers.

    f(x) = 10 sin(pi x1 x2) + 20 (x3 - 1/2)^2 + 10 x4 + 5 x5,   x uniform on [0, 1]^6

from 5000 noisy observations, with zero-mean kernels (eq. 8), 16 regular inducing inputs a main
effect and a 4 x 4 grid for the interaction. Prints how far each estimated effect is from the
analytic one, the Sobol indices beside the analytic ones, and draws the effects. Run it with
``python examples/friedman.py``.

``--replicates R`` draws R data sets instead, learns each, and counts how often the 95 % intervals
hold the analytic indices (``python examples/friedman.py --replicates 100 --num-data 500``);
``--seed`` is that of the first.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
from gpflow.kernels import Constant, Product, SquaredExponential
from scipy.integrate import quad
from tabulate import tabulate

import gpflow_gam as gg
from gpflow_gam.kernels import AdditiveKernel, ZeroMean
from gpflow_gam.measures import Uniform

matplotlib.use("Agg")
import matplotlib.pyplot as plt

NAMES = ["x1", "x2", "x3", "x4", "x5", "x6"]


def observations(num_data: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """X [N, 6] and Y [N, 1] with unit noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(num_data, 6))
    f = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2
    f += 10 * X[:, 3] + 5 * X[:, 4]
    return X, (f + rng.standard_normal(num_data))[:, None]


def _sine_mean(x: np.ndarray) -> np.ndarray:
    """10 E_t sin(pi x t) for t uniform on [0, 1] = 10 (1 - cos(pi x)) / (pi x)."""
    return 10.0 * np.sin(0.5 * np.pi * x) * np.sinc(0.5 * x)


SINE_TOTAL = quad(lambda x: float(_sine_mean(np.array(x))), 0.0, 1.0)[0]
"""10 E sin(pi x1 x2)."""


def main_effect(name: str, x: np.ndarray) -> np.ndarray:
    """The analytic main effect of one input: f averaged over the others, less its mean."""
    if name in ("x1", "x2"):
        return _sine_mean(x) - SINE_TOTAL
    if name == "x3":
        return 20.0 * (x - 0.5) ** 2 - 20.0 / 12.0
    return {"x4": 10.0, "x5": 5.0, "x6": 0.0}[name] * (x - 0.5)


def interaction(x1: np.ndarray, x2: np.ndarray) -> np.ndarray:
    """What is left of 10 sin(pi x1 x2) after its mean and both main effects."""
    return 10.0 * np.sin(np.pi * x1 * x2) - _sine_mean(x1) - _sine_mean(x2) + SINE_TOTAL


def analytic_indices() -> dict[str, float]:
    """
    The Sobol indices of f: the variance of each effect over their sum.

    Of 20 (x - 1/2)^2 it is 20^2 (1/80 - 1/144) = 20^2 / 180, of c x it is c^2 / 12; those of the
    sine by quadrature of the analytic effects.
    """
    nodes, weights = Uniform(0.0, 1.0).nodes()
    x, w = nodes[:, 0], weights
    sine = float(w @ main_effect("x1", x) ** 2)
    variances = {"x1": sine, "x2": sine, "x3": 400.0 / 180.0, "x4": 100.0 / 12.0}
    variances |= {"x5": 25.0 / 12.0, "x6": 0.0}
    variances["x1:x2"] = float(w @ interaction(x[:, None], x[None, :]) ** 2 @ w)
    total = sum(variances.values())
    return {name: v / total for name, v in variances.items()}


def build(X: np.ndarray, Y: np.ndarray) -> gg.models.AdditiveSGPR:
    """sigma_0 + sum_i s_i(x_i) + s_7(x_1) s_8(x_2), unfitted."""

    def zero_mean(column: int) -> ZeroMean:
        base = SquaredExponential(lengthscales=0.3, active_dims=[column])
        return ZeroMean(base, Uniform(0.0, 1.0))

    components = {"mean": Constant(variance=100.0)}
    components |= {name: zero_mean(i) for i, name in enumerate(NAMES)}
    components["x1 x2"] = Product([zero_mean(0), zero_mean(1)])
    line = np.linspace(0.0, 1.0, 16)[:, None]
    square = np.stack(np.meshgrid(*[np.linspace(0.0, 1.0, 4)] * 2, indexing="ij"), -1)
    inducing = {"mean": np.zeros((1, 0))} | dict.fromkeys(NAMES, line)
    inducing["x1 x2"] = square.reshape(-1, 2)
    return gg.models.AdditiveSGPR(
        (X, Y),
        AdditiveKernel(components),
        gg.inducing_variables.AdditiveInducingVariables(inducing),
    )


def estimated_main_effect(
    model: gg.models.AdditiveSGPR, name: str, x: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Posterior mean and standard deviation of one main effect at x."""
    points = np.tile(x[:, None], (1, 6))
    mean, var = model.predict_components(points)
    c = model.kernel.names.index(name)
    return mean.numpy()[:, c], np.sqrt(var.numpy()[:, c])


def estimated_interaction(
    model: gg.models.AdditiveSGPR, x1: np.ndarray, x2: np.ndarray
) -> np.ndarray:
    """Posterior mean of the interaction at x1, x2 of equal shape."""
    points = np.zeros((x1.size, 6))
    points[:, 0], points[:, 1] = x1.ravel(), x2.ravel()
    mean, _ = model.predict_components(points)
    return mean.numpy()[:, model.kernel.names.index("x1 x2")].reshape(x1.shape)


def errors(model: gg.models.AdditiveSGPR) -> dict[str, float]:
    """Largest error of each main effect on [0.05, 0.95]; root mean square of the interaction's."""
    x = np.linspace(0.05, 0.95, 181)
    result = {
        name: float(np.abs(estimated_main_effect(model, name, x)[0] - main_effect(name, x)).max())
        for name in NAMES
    }
    grid = (np.arange(40) + 0.5) / 40
    x1, x2 = np.meshgrid(grid, grid, indexing="ij")
    difference = estimated_interaction(model, x1, x2) - interaction(x1, x2)
    result["x1 x2"] = float(np.sqrt(np.mean(difference**2)))
    return result


def indices(model: gg.models.AdditiveSGPR) -> pd.DataFrame:
    """First-order and interaction indices with 95 % limits, beside the analytic ones."""
    table = gg.sensitivity.functional_anova(model, names=NAMES, unconditional=True).sobol()
    table = table[table["kind"].isin(["first", "interaction"])].set_index("effect")
    return table.assign(analytic=pd.Series(analytic_indices()))


def coverage(replicates: int, num_data: int, first: int = 0) -> pd.DataFrame:
    """
    How often each interval holds the analytic index, and all of a data set together.

    :param first: the seed of the first data set.
    """
    inside = []
    for seed in range(first, first + replicates):
        model = build(*observations(num_data, seed))
        gg.optimizers.fit(model)
        table = indices(model)
        inside.append(table["analytic"].between(table["lower"], table["upper"]))
        print(f"data set {seed}: {int(inside[-1].sum())} of {len(table)} inside", flush=True)
    held = pd.DataFrame(inside)
    held["all of them"] = held.all(axis=1)
    return held.sum().rename(f"of {replicates}").to_frame()


def draw(model: gg.models.AdditiveSGPR, path: Path) -> None:
    """Figure 1: main effects with projected observations, and the interaction."""
    X, Y = (a.numpy() for a in model.data)
    means = model.predict_components(X)[0].numpy()
    x = np.linspace(0.0, 1.0, 200)
    figure = plt.figure(figsize=(15, 6.5), constrained_layout=True)
    cells = figure.add_gridspec(2, 5)
    for i, name in enumerate(NAMES):
        ax = figure.add_subplot(cells[i // 3, i % 3])
        own = means[:, model.kernel.names.index(name)]
        projected = Y[:, 0] - means.sum(axis=1) + own  # the observation less all other effects
        ax.plot(X[:, i], projected, ".", color="black", markersize=1, alpha=0.3)
        mean, sd = estimated_main_effect(model, name, x)
        ax.fill_between(x, mean - 1.96 * sd, mean + 1.96 * sd, alpha=0.4, linewidth=0)
        ax.plot(x, mean, label="estimated")
        ax.plot(x, main_effect(name, x), "--", color="red", label="analytic")
        ax.set_title(name)
        ax.set_ylim(-9.0, 9.0)
        if i == 0:
            ax.legend()
    x1, x2 = np.meshgrid(x, x, indexing="ij")
    surfaces = (
        ("x1 x2, estimated", estimated_interaction(model, x1, x2)),
        ("x1 x2, analytic", interaction(x1, x2)),
    )
    levels = np.linspace(-7.0, 4.0, 23)
    for row, (title, surface) in enumerate(surfaces):
        ax = figure.add_subplot(cells[row, 3:])
        filled = ax.contourf(x, x, surface.T, levels=levels, cmap="RdBu_r", extend="both")
        figure.colorbar(filled, ax=ax)
        ax.set(title=title, xlabel="x1", ylabel="x2")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--num-data", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--figure", type=Path, default=Path("friedman.png"))
    parser.add_argument("--replicates", type=int, help="count how often intervals hold the truth")
    arguments = parser.parse_args()
    if arguments.replicates:
        held = coverage(arguments.replicates, arguments.num_data, arguments.seed)
        print(tabulate(held, headers="keys"))
        return
    model = build(*observations(arguments.num_data, arguments.seed))
    result = gg.optimizers.fit(model)
    print(f"fit: {result.message}; {result.num_iterations} iterations, {result.seconds:.1f} s")
    print(f"ELBO: {result.elbo:.2f}")
    print(f"noise variance (true 1): {model.likelihood.variance.numpy():.3f}")
    rows = [
        [name, "rms" if name == "x1 x2" else "largest", error]
        for name, error in errors(model).items()
    ]
    print(tabulate(rows, ["effect", "error", "value"], floatfmt=".3f"))
    columns = ["estimate", "lower", "upper", "analytic"]
    print("\nSobol indices")
    print(tabulate(indices(model)[columns], headers="keys", floatfmt=".4f"))
    draw(model, arguments.figure)
    print(f"figure: {arguments.figure}")


if __name__ == "__main__":
    main()
