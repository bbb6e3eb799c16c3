"""
Where inducing inputs are poor: a rough function of several inputs, by IterNCGP and by AdditiveSVGP.

Yes and no of a draw of Matern-1/2 on the unit cube, whose every row says something that its
neighbours do not, kernel held. Ours: NLL on held-out rows after every Newton step of one fit, by a
posterior asked for on the way (without the covariance's own sweep), and at its end. AdditiveSVGP:
the optimum, which its site updates find in some ten passes, for each number of inducing inputs.
Both after every step, too, where there is a limit of ``--seconds``; ours then ends with what it
has, without a sweep for the covariance. ``--single`` has ours evaluate the kernel in single
precision. With ``--components`` it is a sum of so many functions, each of ``--dimensions`` columns
of its own, and the kernel is additive.
Seconds are of CPU in all threads, and on the clock; scoring is in neither. Run it with
``python benchmarks/iterncgp/rough.py`` (minutes).
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import gpflow
import matplotlib.pyplot as plt
import numpy as np
from scipy.special import expit, roots_hermitenorm
from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from recording import add_option, record

import gpflow_gam as gg

FIGURE = Path(__file__).resolve().parents[2] / "docs" / "figures" / "rough.png"
NUM_WAVES, NUM_TEST = 3000, 2000
KERNELS = {"matern12": gpflow.kernels.Matern12, "matern32": gpflow.kernels.Matern32}
BETTER = {"NLL": "lower", "RMSE of f": "lower", "CPU s": "lower"}


class Problem:
    """A draw by random waves (frequencies of Matern-1/2 are Cauchy's), and its answers."""

    def __init__(self, options: argparse.Namespace) -> None:
        rng = np.random.default_rng(0)
        number, D = options.n, options.dimensions
        X = rng.uniform(size=(number + NUM_TEST, D * options.components))
        f = np.zeros(len(X))
        self.columns = [list(range(c * D, (c + 1) * D)) for c in range(options.components)]
        for columns in self.columns:
            waves = rng.normal(size=(NUM_WAVES, D)) / options.lengthscale
            # frequencies of Matern kernels are Student's t
            spread = rng.standard_normal((NUM_WAVES, 1 if options.kernel == "matern12" else 3))
            waves /= np.sqrt(np.mean(np.square(spread), axis=1, keepdims=True))
            heights = np.sqrt(2.0 * options.variance / NUM_WAVES) * rng.normal(size=NUM_WAVES)
            phases = rng.uniform(0.0, 2.0 * np.pi, NUM_WAVES)
            f += np.cos(X[:, columns] @ waves.T + phases) @ heights
        y = rng.binomial(1, expit(f)).astype(float)[:, None]
        self.X, self.Y, self.Xt, self.Yt = X[:number], y[:number], X[number:], y[number:]
        self.truth = f[number:]
        self.kind = KERNELS[options.kernel]
        self.options = options.variance, options.lengthscale

    def kernel(self) -> gg.kernels.AdditiveKernel:
        parts = [self.kind(*self.options, active_dims=columns) for columns in self.columns]
        return gg.kernels.AdditiveKernel(parts)


class Clock:
    """Seconds of CPU and on the clock, which stand still while posteriors are scored."""

    def __init__(self, problem: Problem, name: str, method: str) -> None:
        self.problem, self.labels = problem, {"fit": name, "method": method}
        self.rows: list[dict[str, Any]] = []
        self._worked, self._begun = time.process_time(), time.perf_counter()

    def score(self, model: Any, end: bool) -> None:
        now = time.process_time(), time.perf_counter()
        of = self.problem
        X = of.Xt.astype(gpflow.config.default_float())
        mean, var = (np.asarray(t, dtype=float) for t in model.predict_f(X))
        density = log_density(of.Yt[:, 0], mean[:, 0], var[:, 0])
        error = np.sqrt(np.mean((np.asarray(mean)[:, 0] - of.truth) ** 2))
        scores = {"NLL": -float(np.mean(density)), "RMSE of f": float(error)}
        times = {"CPU s": now[0] - self._worked, "s": now[1] - self._begun}
        self.rows.append({**self.labels, "end": "yes" if end else "", **scores, **times})
        print(self.rows[-1], flush=True)
        self._worked += time.process_time() - now[0]
        self._begun += time.perf_counter() - now[1]


def log_density(y: np.ndarray, mean: np.ndarray, var: np.ndarray) -> np.ndarray:
    """Of yes and no, by 50 points of quadrature: the same in single and double precision."""
    nodes, weights = roots_hermitenorm(50)
    p = expit(mean + np.sqrt(var) * nodes[:, None])
    yes = weights @ p / weights.sum()
    return np.log(np.where(y > 0.5, yes, 1.0 - yes))


def ours(problem: Problem, solver: str, single: bool, limit: float | None) -> list[dict[str, Any]]:
    dtype = np.float32 if single else np.float64
    gpflow.config.set_default_float(dtype)
    likelihood = gg.likelihoods.Bernoulli()
    clock = Clock(problem, f"IterNCGP, {solver}", "ours")
    data = problem.X.astype(dtype), problem.Y.astype(dtype)
    model = gg.models.IterNCGP(data, problem.kernel(), likelihood, solver=solver)

    def look(progress: gg.optimizers.FitProgress) -> bool:
        assert progress.posterior is not None
        clock.score(progress.posterior(), False)
        return False

    gg.optimizers.fit(model, hyperparameters=False, callback=look, max_seconds=limit)
    clock.score(model.posterior(), True)
    gpflow.config.set_default_float(np.float64)
    return clock.rows


def sparse(problem: Problem, num_inducing: int, limit: float | None) -> list[dict[str, Any]]:
    likelihood = gg.likelihoods.Bernoulli()
    clock = Clock(problem, f"AdditiveSVGP, M = {num_inducing}", "AdditiveSVGP")
    kernel = problem.kernel()
    model = gg.models.AdditiveSVGP(
        kernel,
        likelihood,
        gg.inducing_variables.select(problem.X, kernel, num_inducing=num_inducing),
        variational=gg.variational.OptimalPrecision(),
    )
    for held in (kernel, model.inducing_variable):
        gpflow.set_trainable(held, False)

    def look(progress: gg.optimizers.FitProgress) -> bool:
        if limit is not None:
            clock.score(model.posterior(), False)
        return False

    gg.optimizers.fit(model, (problem.X, problem.Y), callback=look, max_seconds=limit)
    clock.score(model.posterior(), True)
    return clock.rows


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """NLL against seconds of CPU."""
    figure, ax = plt.subplots(figsize=(6.5, 3.8), layout="constrained")
    curves = list(dict.fromkeys(row["fit"] for row in rows))
    many = {name: sum(row["fit"] == name for row in rows) > 1 for name in curves}
    for name in filter(many.get, curves):
        curve = [(row["CPU s"], row["NLL"]) for row in rows if row["fit"] == name]
        style = "-" if name.startswith("IterNCGP") else "--"
        ax.semilogx(*zip(*curve), style, marker=".", label=name)
    alone = [row for row in rows if not many[row["fit"]]]
    if alone:
        curve = [(row["CPU s"], row["NLL"]) for row in alone]
        ax.semilogx(*zip(*curve), "ks--", label="AdditiveSVGP, by M")
    for row in alone:
        if row["method"] != "ours":
            at = row["CPU s"], row["NLL"]
            shown = row["fit"].rsplit(" ", 1)[1]
            ax.annotate(shown, at, (4, 5), textcoords="offset points", fontsize=8)
    ax.set_xlabel("seconds of CPU")
    ax.set_ylabel("NLL of held-out rows")
    ax.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--n", type=int, default=10_000)
    parser.add_argument("--dimensions", type=int, default=5)
    parser.add_argument("--components", type=int, default=1)
    parser.add_argument("--kernel", choices=list(KERNELS), default="matern12")
    parser.add_argument("--lengthscale", type=float, default=0.5)
    parser.add_argument("--variance", type=float, default=25.0)
    parser.add_argument("--inducing", type=int, nargs="*", default=[500, 1000, 2000])
    parser.add_argument("--solvers", nargs="+", default=["variational", "newton"])
    parser.add_argument("--single", action="store_true", help="precision of our kernel's entries")
    parser.add_argument("--seconds", type=float, help="of one fit; to its end without")
    parser.add_argument("--figure", action="store_true", help="draw the docs' picture anew")
    add_option(parser)
    arguments = parser.parse_args()
    problem = Problem(arguments)
    limit, rows = arguments.seconds, []
    for number in arguments.inducing:
        rows += sparse(problem, number, limit)
    for solver in arguments.solvers:
        rows += ours(problem, solver, arguments.single, limit)
    print(tabulate(rows, headers="keys", floatfmt=".4g"))
    suffix, what = "", "a rough function of five inputs"
    if arguments.components > 1:
        what = f"a sum of {arguments.components} functions of {arguments.dimensions} inputs each"
        suffix = "_sum"
    if arguments.n == 100_000:
        suffix += "_1e5"
    record(
        "iterncgp_rough" + suffix,
        f"Yes and no of {what}: IterNCGP beside AdditiveSVGP, kernel held, {arguments.n} rows",
        [row for row in rows if row["end"] or limit is not None],
        arguments,
        within=[],
        method="method",
        ours=["ours"],
        better=BETTER,
    )
    if arguments.figure:
        draw(rows, FIGURE.with_name(f"rough{suffix}.png"))


if __name__ == "__main__":
    main()
