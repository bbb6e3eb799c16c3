"""
Figures 6 and 7 of Tatzel et al. (2025), at sizes for two cores: ten classes against time.

As in the paper kernels are held, all methods predict by the same probit approximation, seconds are
without scoring, solid lines are training rows and dashed ones test rows. IterNCGP-CG is the
published loop (:class:`IterGP` with residual actions), ours the default solver of many rows beside
it. Of Figure 6 there are 10 000 rows in the place of 100 000, and no GPU; Figure 7 is of
scikit-learn's digits in the place of MNIST, with the kernel that the paper has for that. (Under the
variance of 5.7 and the lengthscale of 3.3 that SVGP's bound chooses for the digits the published
loop swings between good and useless.) Compilation is part of the seconds, except SVGP's first step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import gpflow
import matplotlib.pyplot as plt
import numpy as np
import svgp as peer
from predictive import digits
from problems import NUM_CLASSES, mixture, probit
from small import save
from tabulate import tabulate

from gpflow_gam import metrics
from gpflow_gam.models import IterNCGP
from gpflow_gam.newton.solvers import Diverged, IterGP, ReducedNewton, Solver

SCORES = ("accuracy", "NLL", "ECE")
SCORED = 1000
"""Training rows that are scored, at most."""
Scores = tuple[float, float, float]
Point = tuple[float, Scores, Scores]
"""Seconds, then the scores of training and of test rows."""


@dataclass
class Task:
    """One figure's data and kernel, and how many seconds an SVGP has."""

    X: np.ndarray
    y: np.ndarray
    Xt: np.ndarray
    truth: np.ndarray
    variance: float
    lengthscale: float
    seconds: float
    inducing: tuple[int, ...]
    rates: tuple[float, ...]
    spent: float = field(default=0.0, init=False)

    def kernel(self) -> gpflow.kernels.Kernel:
        return gpflow.kernels.Matern32(self.variance, self.lengthscale)

    def model(self, solver: Solver, rows: int | None = None) -> IterNCGP:
        data = self.X[:rows], self.y[:rows, None].astype(self.X.dtype)
        likelihood = gpflow.likelihoods.Softmax(NUM_CLASSES)
        return IterNCGP(data, self.kernel(), likelihood, solver=solver)

    def scores(self, model: gpflow.models.GPModel) -> tuple[Scores, Scores]:
        """Of training and of test rows."""
        result = []
        for X, y in ((self.X[:SCORED], self.y[:SCORED]), (self.Xt, self.truth)):
            parts = []
            for rows in np.array_split(X, 5):
                mean, var = (t.numpy().astype(float) for t in model.predict_f(rows))
                parts.append(probit(mean, var))
            p = np.concatenate(parts)
            result.append((metrics.accuracy(y, p), metrics.nlpd(y, p), metrics.ece(y, p)))
        return result[0], result[1]


def newton(task: Task, solver: Solver, rows: int | None = None) -> Iterator[Point]:
    """After every Newton step, with the posterior that a stop there would give."""
    begun = time.perf_counter()
    model = task.model(solver, rows)
    run, spent = model.run(), 0.0
    steps = run.steps()
    try:
        while (report := next(steps, None)) is not None:
            model.accept(run.finish(cheap=not report.converged))
            spent += time.perf_counter() - begun
            yield spent, *task.scores(model)
            begun = time.perf_counter()
            if report.converged or spent > task.seconds:
                return
    except Diverged as diverged:  # the published loop has no safeguard
        print("diverged:", diverged)


def svgp(task: Task, num_inducing: int, rate: float) -> Iterator[Point]:
    model, step = peer.svgp(
        task.X, task.y[:, None].astype(task.X.dtype), task.kernel(), num_inducing, rate
    )
    step()  # tracing does not count
    spent, mark = 0.0, task.seconds / 50
    while spent < task.seconds:
        begun = time.perf_counter()
        step()
        spent += time.perf_counter() - begun
        if spent > mark:
            yield spent, *task.scores(model)
            mark = spent * 1.5


def draw(task: Task, ours: dict[str, Callable[[], Iterator[Point]]], path: Path) -> None:
    """Run all, print where each ends, and draw scores against seconds."""
    curves = dict(ours)
    for number in task.inducing:
        for rate in task.rates:
            curves[f"SVGP, M = {number}, rate {rate}"] = lambda m=number, r=rate: svgp(task, m, r)
    result: dict[str, list[Point]] = {}
    for name, curve in curves.items():
        result[name] = list(curve())
        print(name, result[name][-1] if result[name] else "nothing", flush=True)
    result = {name: points for name, points in result.items() if points}
    rows = [[name, p[-1][0], *p[-1][1], *p[-1][2]] for name, p in result.items()]
    heads = [f"{score}, {which}" for which in ("training", "test") for score in SCORES]
    print(tabulate(rows, ["method", "s", *heads], floatfmt=".3f"))
    figure, axes = plt.subplots(1, 3, figsize=(13, 4.6), layout="constrained")
    for name, points in result.items():
        seconds = [p[0] for p in points]
        width = 2.0 if name.startswith(("IterNCGP", "ours")) else 1.0
        for column, (ax, score) in enumerate(zip(axes, SCORES)):
            (line,) = ax.semilogx(
                seconds, [p[1][column] for p in points], marker=".", linewidth=width, label=name
            )
            test = [p[2][column] for p in points]
            ax.semilogx(seconds, test, "--", marker=".", linewidth=width, color=line.get_color())
            ax.set_xlabel("seconds")
            ax.set_ylabel(score)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    save(figure, path)


def gaussian_mixture(path: Path) -> None:
    """Figure 6: single precision; SoD are subsets of the data."""
    gpflow.config.set_default_float(np.float32)
    gpflow.config.set_default_jitter(1e-4)
    X, y, Xt, truth = mixture(1000, 100)
    X, Xt = X.astype(np.float32), Xt.astype(np.float32)
    task = Task(X, y, Xt, truth, 0.05, 0.05, 30.0, (250, 1000), (0.01, 0.05))
    draw(
        task,
        {
            "IterNCGP-CG": lambda: newton(task, IterGP(max_iterations=5)),
            "IterNCGP-CG, R = 10": lambda: newton(task, IterGP(max_iterations=5, compression=10)),
            "ours": lambda: newton(task, ReducedNewton()),
            "SoD, 500": lambda: newton(task, ReducedNewton(), 500),
            "SoD, 2000": lambda: newton(task, ReducedNewton(), 2000),
        },
        path,
    )


def images(path: Path) -> None:
    """Figure 7."""
    gpflow.config.set_default_float(np.float64)
    gpflow.config.set_default_jitter(1e-6)
    X, y, Xt, truth = digits()
    task = Task(X, y, Xt, truth, 0.451591, 1.550934, 20.0, (100, 300), (0.05,))
    draw(
        task,
        {
            "IterNCGP-CG, 1 a step": lambda: newton(task, IterGP(max_iterations=1)),
            "IterNCGP-CG, 5 a step": lambda: newton(task, IterGP(max_iterations=5)),
            "ours": lambda: newton(task, ReducedNewton()),
        },
        path,
    )
