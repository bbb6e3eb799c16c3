"""
What it is worth to buy the covariance when it pays, and not last.

Four responses of functions drawn at random, kernel held, single precision. After every step of a
fit the posterior of what has been computed is asked for (``progress.posterior()``) and scored on
held-out rows: once as a fit goes by itself, which buys the sweep of the covariance's actions when
the fall of NLL that it expects is larger, for the time it takes, than that of the search's next
sweep; once with that sweep at the end. Seconds are of CPU in all threads without scoring, tracing
and compilation among them; each fit has a process of its own. Run it with
``python benchmarks/iterncgp/early.py`` (minutes); ``--figure`` draws the docs' picture.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
from gpflow.kernels import Matern12, Matern32
from scipy.special import expit, roots_hermitenorm
from scipy.stats import norm, poisson
from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from recording import add_option, record

import gpflow_gam as gg

FIGURE = Path(__file__).resolve().parents[2] / "docs" / "figures" / "early.png"
NUM_WAVES, NUM_TEST, NOISE = 3000, 2000, 0.3
PROBLEMS: dict[str, tuple[str, type, int, float, float]] = {
    "normal": ("normal", Matern32, 3, 0.2, 1.0),
    "counts": ("counts", Matern32, 3, 0.15, 1.0),
    "binary": ("binary", Matern32, 3, 0.2, 4.0),
    "binary, rough": ("binary", Matern12, 5, 0.5, 9.0),
}
"""Response, kernel, number of columns, lengthscale and variance."""
METHODS = {"when it pays": True, "at the end": False}
Curve = list[tuple[float, float]]
"""Seconds, NLL."""


def drawn(name: str, number: int) -> tuple[np.ndarray, np.ndarray]:
    """X and y, of which the last are to test on: a function by random waves of the kernel's."""
    response, kernel, columns, lengthscale, variance = PROBLEMS[name]
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(number + NUM_TEST, columns))
    freedom = 1.0 if kernel is Matern12 else 3.0  # frequencies of Matern kernels are Student's t
    waves = rng.normal(size=(NUM_WAVES, columns)) / lengthscale
    waves /= np.sqrt(rng.chisquare(freedom, size=(NUM_WAVES, 1)) / freedom)
    heights = np.sqrt(2.0 * variance / NUM_WAVES) * rng.normal(size=NUM_WAVES)
    f = np.cos(X @ waves.T + rng.uniform(0.0, 2.0 * np.pi, NUM_WAVES)) @ heights
    if response == "normal":
        return X, f + NOISE * rng.normal(size=f.shape)
    if response == "counts":
        return X, rng.poisson(np.exp(f)).astype(float)
    return X, rng.binomial(1, expit(f)).astype(float)


def nll(response: str, y: np.ndarray, mean: np.ndarray, var: np.ndarray) -> float:
    """By quadrature in double precision; all [n]."""
    if response == "normal":
        return -float(np.mean(norm.logpdf(y, mean, np.sqrt(var + NOISE**2))))
    nodes, weights = roots_hermitenorm(50)
    F = mean + np.sqrt(var) * nodes[:, None]
    density = (
        poisson.pmf(y, np.exp(F)) if response == "counts" else np.where(y, expit(F), expit(-F))
    )
    return -float(np.mean(np.log(weights @ density / weights.sum())))


def likelihood(response: str) -> gpflow.likelihoods.Likelihood:
    if response == "normal":
        return gpflow.likelihoods.Gaussian(NOISE**2)
    return gpflow.likelihoods.Poisson() if response == "counts" else gg.likelihoods.Bernoulli()


def curve(name: str, number: int, early: bool) -> Curve:
    """Every posterior of one fit, the last at its end."""
    gpflow.config.set_default_float(np.float32)
    X, y = drawn(name, number)
    X = X.astype(np.float32)
    response, kernel, _, lengthscale, variance = PROBLEMS[name]
    points: Curve = []
    begun, scoring = time.process_time(), 0.0

    def score(predict: Callable[..., Any]) -> None:
        nonlocal scoring
        now = time.process_time()
        mean, var = (np.asarray(t, dtype=float)[:, 0] for t in predict(X[number:]))
        points.append((now - begun - scoring, nll(response, y[number:], mean, var)))
        scoring += time.process_time() - now

    model = gg.models.IterNCGP(
        (X[:number], y[:number, None].astype(np.float32)),
        kernel(variance, lengthscale),
        likelihood(response),
        solver=gg.solvers.ReducedNewton(early_covariance=early),
    )

    def look(progress: gg.optimizers.FitProgress) -> None:
        assert progress.posterior is not None
        score(progress.posterior().predict_f)

    gg.optimizers.fit(model, hyperparameters=False, callback=look)
    score(model.predict_f)
    return points


def rows_of(found: dict[tuple[str, int], dict[str, Curve]]) -> list[dict[str, Any]]:
    """What one has at times that are spaced like powers, and at each end."""
    rows = []
    for (name, number), curves in found.items():
        first = max(points[0][0] for points in curves.values())
        last = max(points[-1][0] for points in curves.values())
        times = [t for t in 2.0 ** np.arange(-1, 14) if first <= t < last]
        for seconds in [*times, np.inf]:
            for method, points in curves.items():
                value = [score for at, score in points if at <= seconds][-1]
                at = points[-1][0] if np.isinf(seconds) else seconds
                when = "its end" if np.isinf(seconds) else f"{seconds:g} s"
                row = {"data": name, "rows": number, "when": when, "covariance": method}
                rows.append({**row, "NLL": value, "CPU seconds": float(at)})
    return rows


def draw(found: dict[tuple[str, int], dict[str, Curve]], path: Path) -> None:
    """NLL against seconds: a step is what one has until the next."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    numbers = list(dict.fromkeys(number for _, number in found))
    names = list(dict.fromkeys(name for name, _ in found))
    figure, axes = plt.subplots(
        len(numbers), len(names), figsize=(3.1 * len(names), 2.7 * len(numbers)), squeeze=False,
        layout="constrained",
    )  # fmt: skip
    for (name, number), curves in found.items():
        axis = axes[numbers.index(number), names.index(name)]
        for method, points in curves.items():
            style = "k-" if METHODS[method] else "C1--"
            axis.step(*zip(*points), style, where="post", lw=1.3, label=method)
            axis.plot(*points[-1], style[:-1] + "o", ms=4)
        axis.set_xscale("log")
        first, last = axis.get_xlim()
        ticks = [t for t in (1, 2, 5, 10, 20, 50, 100, 200) if first <= t <= last]
        axis.set_xticks(ticks, [f"{t}" for t in ticks])
        axis.minorticks_off()
        axis.set_title(f"{name}, {number} rows", fontsize=9)
        axis.tick_params(labelsize=7)
    for axis in axes[:, 0]:
        axis.set_ylabel("NLL", fontsize=9)
    axes[0, 0].legend(title="covariance", fontsize=7, title_fontsize=7)
    figure.supxlabel("seconds of CPU", fontsize=9)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--n", type=int, nargs="+", default=[10_000, 20_000], help="rows")
    parser.add_argument("--problems", nargs="+", choices=list(PROBLEMS), default=list(PROBLEMS))
    parser.add_argument("--figure", action="store_true", help="draw the docs' picture anew")
    add_option(parser)
    arguments = parser.parse_args()
    found: dict[tuple[str, int], dict[str, Curve]] = {}
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as processes:
        for number in arguments.n:
            for name in arguments.problems:
                for method, early in METHODS.items():
                    points = processes.apply(curve, (name, number, early))
                    found.setdefault((name, number), {})[method] = points
                    print(f"{name}, {number} rows, {method}: {points[-1]}", flush=True)
    rows = rows_of(found)
    print(tabulate(rows, "keys", floatfmt=".4f"))
    record(
        "iterncgp_early",
        "IterNCGP's covariance when it pays, and at the end: NLL on the way",
        rows,
        arguments,
        within=["data", "rows", "when"],
        method="covariance",
        ours=list(METHODS),
        better={"NLL": "lower", "CPU seconds": "lower"},
    )
    if arguments.figure:
        draw(found, FIGURE)


if __name__ == "__main__":
    main()
