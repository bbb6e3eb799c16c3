"""
Figure 6 of Tatzel et al. (2025): ten classes in three dimensions, against time.

Ours, subsets of the data, and GPflow's SVGP with a softmax at a grid of learning rates and inducing
inputs, all with the same fixed kernel, each in a process of its own. Test NLL and ECE take the same
probit approximation for all; evaluating them does not count towards time. Prints each method's end,
and how long ours took to the best end of the SVGPs. Run it with
``python benchmarks/iterncgp/mixture.py --out FOLDER``.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import gpflow
import matplotlib.pyplot as plt
import numpy as np
import svgp as peer
from problems import NUM_CLASSES, mixture, probit
from tabulate import tabulate

from gpflow_gam import metrics
from gpflow_gam.models import IterNCGP

_MAX_STEPS = 12

Point = tuple[float, float, float, float]
"""Seconds, NLL, ECE, accuracy."""


class Problem:
    """Data and kernel of one run, in the float type asked for."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.dtype = np.float32 if arguments.float32 else np.float64
        gpflow.config.set_default_float(self.dtype)
        if arguments.float32:
            gpflow.config.set_default_jitter(1e-4)
        if arguments.digits:
            X, y, Xt, yt = _digits()
        else:
            X, y, Xt, yt = mixture(arguments.per_class, 1000)
        self.X, self.Xt = X.astype(self.dtype), Xt.astype(self.dtype)
        self.y, self.truth = y, yt
        self.variance, self.lengthscale = arguments.variance, arguments.lengthscale

    @property
    def labels(self) -> np.ndarray:
        return self.y[:, None].astype(self.dtype)

    def kernel(self) -> gpflow.kernels.Kernel:
        return gpflow.kernels.Matern32(self.variance, self.lengthscale)

    def score(self, model: gpflow.models.GPModel, seconds: float) -> Point:
        p = []
        for rows in np.array_split(self.Xt, 10):
            mean, var = model.predict_f(rows)
            p.append(probit(mean.numpy().astype(float), var.numpy().astype(float)))
        whole = np.concatenate(p)
        scores = (f(self.truth, whole) for f in (metrics.nlpd, metrics.ece, metrics.accuracy))
        return (seconds, *scores)


def _digits() -> tuple[np.ndarray, ...]:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    X, y = load_digits(return_X_y=True)
    X, Xt, y, yt = train_test_split(X / 16.0, y, test_size=500, random_state=0, stratify=y)
    return X, y, Xt, yt


def ours(
    problem: Problem, rows: int | None = None, actions: int | None = None, last: bool = False
) -> Iterator[Point]:
    """After every sweep of the search, with the posterior that a stop there would give."""
    X, Y = problem.X[:rows], problem.labels[:rows]
    likelihood = gpflow.likelihoods.Softmax(NUM_CLASSES)
    model = IterNCGP(
        (X, Y), problem.kernel(), likelihood, max_solver_steps=actions, solver="newton"
    )
    spent, begun = 0.0, time.perf_counter()
    run = model.run()
    for report in run.steps():
        spent += time.perf_counter() - begun
        print(f"  sweep {report.sweeps:.1f}, {spent:.1f} s: {report.log_posterior:.2f}", flush=True)
        begun = time.perf_counter()
        if last and not report.converged and report.step < _MAX_STEPS:
            continue
        model.accept(run.finish())
        finishing = time.perf_counter() - begun
        yield problem.score(model, spent + finishing)
        begun = time.perf_counter()
        if report.step == _MAX_STEPS:
            return


def svgp(problem: Problem, num_inducing: int, rate: float, budget: float) -> Iterator[Point]:
    model, step = peer.svgp(problem.X, problem.labels, problem.kernel(), num_inducing, rate)
    step()  # tracing does not count
    spent, mark = 0.0, budget / 12
    while spent < budget:
        begun = time.perf_counter()
        step()
        spent += time.perf_counter() - begun
        if spent > mark:
            yield problem.score(model, spent)
            mark += budget / 12


def measure(
    curve: Callable[[Problem], Iterator[Point]], arguments: argparse.Namespace
) -> tuple[list[Point], float]:
    """The whole curve, and this process's peak memory [MB] above what it had at the start."""
    problem = Problem(arguments)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    points = list(curve(problem))
    return points, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the figure")
    parser.add_argument("--per-class", type=int, default=2000)
    parser.add_argument("--lengthscale", type=float, default=0.05)
    parser.add_argument("--variance", type=float, default=0.05)
    parser.add_argument("--float32", action="store_true")
    parser.add_argument("--digits", action="store_true", help="scikit-learn's digits instead")
    parser.add_argument("--subsets", type=int, nargs="*", default=[250, 500, 1000, 2000])
    parser.add_argument("--inducing", type=int, nargs="*", default=[250, 500, 1000])
    parser.add_argument("--rates", type=float, nargs="*", default=[0.01, 0.05])
    parser.add_argument("--budget", type=float, default=120.0, help="seconds of an SVGP")
    parser.add_argument("--actions", type=int, help="of our covariance")
    parser.add_argument("--last", action="store_true", help="a posterior at our end only")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    curves = {"ours": partial(ours, actions=arguments.actions, last=arguments.last)}
    curves.update({f"subset of {n}": partial(ours, rows=n) for n in arguments.subsets})
    for number in arguments.inducing:
        for rate in arguments.rates:
            name = f"SVGP, M = {number}, rate {rate}"
            curves[name] = partial(svgp, num_inducing=number, rate=rate, budget=arguments.budget)
    found: dict[str, list[Point]] = {}
    rows = []
    # A fresh process for each: nothing traced or held by one is charged to the next.
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as processes:
        for name, curve in curves.items():
            found[name], memory = processes.apply(measure, (curve, arguments))
            rows.append([name, *found[name][-1], f"{memory:.0f}"])
            print(rows[-1], flush=True)
    heads = ["method", "s", "NLL", "ECE", "accuracy", "peak MB added"]
    print(tabulate(rows, heads, floatfmt=".3f"))
    variational = [p[-1] for n, p in found.items() if n.startswith("SVGP")]
    if variational:
        best = min(variational, key=lambda p: p[1])
        there = [p for p in found["ours"] if p[1] <= best[1]]
        if there:
            print(
                f"best SVGP: NLL {best[1]:.4f} after {best[0]:.1f} s; ours got there in "
                f"{there[0][0]:.1f} s, {there[0][0] / best[0]:.2f} of its time"
            )
        else:
            print(f"best SVGP: NLL {best[1]:.4f}; ours ended at {found['ours'][-1][1]:.4f}")

    figure, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    for name, points in found.items():
        values = np.array(points)
        style = {"color": "k", "linewidth": 2} if name == "ours" else {"linewidth": 1}
        if name.startswith("subset"):
            style["linestyle"] = "--"
        for ax, column in zip(axes, (1, 2, 3)):
            ax.semilogx(values[:, 0], values[:, column], marker=".", label=name, **style)
    for ax, label in zip(axes, ("NLL", "ECE", "accuracy")):
        ax.set_xlabel("seconds")
        ax.set_ylabel(label)
    axes[0].legend(fontsize=7)
    figure.savefig(arguments.out / ("digits.png" if arguments.digits else "mixture.png"), dpi=110)


if __name__ == "__main__":
    main()
