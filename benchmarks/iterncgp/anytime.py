"""
What can be had at any time: NLL, ECE and accuracy against seconds, beside SVGP.

The mixture of Tatzel et al. (2025), kernel held. Ours: every posterior that a callback of one fit
asks for on the way (``progress.posterior()``), and the one at its end. GPflow's SVGP: its
posterior at times that are spaced like powers, for each number of inducing inputs and learning
rate; at every time the best of them, by NLL, stands for SVGP, which no user knows beforehand. All
run one after the other, each in a process of its own. Seconds are all there are, tracing and
compilation among them, but for scoring; class probabilities are MacKay's without the common shift
for all. Run it with ``python benchmarks/iterncgp/anytime.py`` (ten minutes).
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import multiprocessing
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gpflow
import matplotlib.pyplot as plt
import numpy as np
import problems
import tensorflow as tf
from problems import NUM_CLASSES, mixture, probit, without_shift
from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from recording import add_option, record

import gpflow_gam as gg
from gpflow_gam import metrics

FIGURE = Path(__file__).resolve().parents[2] / "docs" / "figures" / "anytime"
SCORES = {"NLL": "lower", "ECE": "lower", "accuracy": "higher"}
Point = tuple[float, float, float, float]
"""Seconds, NLL, ECE, accuracy."""


class Ended(Exception):
    """The last posterior that was asked for on the way is the last one of all."""


class Run:
    """Data, kernel and clock of one curve; the clock stands still while posteriors are scored."""

    def __init__(self, options: argparse.Namespace, per_class: int) -> None:
        dtype = np.float64 if options.double else np.float32
        gpflow.config.set_default_float(dtype)
        gpflow.config.set_default_jitter(1e-6 if options.double else 1e-4)
        X, y, Xt, self.truth = mixture(per_class, options.per_class_test)
        self.X, self.Xt, self.Y = X.astype(dtype), Xt.astype(dtype), y[:, None].astype(dtype)
        self.kernel = gpflow.kernels.Matern32(options.variance, options.lengthscale)
        self.budget, self.ended = options.seconds, options.ended
        self.points: list[Point] = []
        self._now = time.process_time if options.cpu else time.perf_counter
        self._begun, self._scoring = self._now(), 0.0

    @property
    def seconds(self) -> float:
        return self._now() - self._begun - self._scoring

    def score(self, predict: Callable[..., tuple[tf.Tensor, tf.Tensor]]) -> None:
        """Note how well a posterior predicts."""
        seconds, begun = self.seconds, self._now()
        parts = []
        for rows in np.array_split(self.Xt, 10):
            mean, cov = (t.numpy().astype(float) for t in predict(rows, full_output_cov=True))
            parts.append(probit(mean, without_shift(cov)))
        p = np.concatenate(parts)
        scores = (f(self.truth, p) for f in (metrics.nlpd, metrics.ece, metrics.accuracy))
        self.points.append((seconds, *scores))
        print(f"  {seconds:.1f} s: NLL {self.points[-1][1]:.4f}", flush=True)
        self._scoring += self._now() - begun


def ours(run: Run) -> None:
    likelihood = gpflow.likelihoods.Softmax(NUM_CLASSES)
    model = gg.models.IterNCGP((run.X, run.Y), run.kernel, likelihood, solver="newton")

    def look(progress: gg.optimizers.FitProgress) -> bool:
        assert progress.posterior is not None
        run.score(progress.posterior().predict_f)
        if run.ended and run.seconds > run.budget:
            raise Ended
        return run.seconds > run.budget

    with contextlib.suppress(Ended):
        gg.optimizers.fit(model, hyperparameters=False, callback=look)
        run.score(model.posterior().predict_f)


def svgp(run: Run, num_inducing: int, rate: float) -> None:
    model, step = problems.svgp(run.X, run.Y, run.kernel, num_inducing, rate)
    mark = 1.0
    while run.seconds < run.budget:
        step()
        if run.seconds > mark:
            run.score(model.predict_f)
            mark = run.seconds * 1.3


def curve(
    method: Callable[[Run], None], options: argparse.Namespace, per_class: int
) -> list[Point]:
    """In a process of its own: nothing traced or held by one method is charged to the next."""
    run = Run(options, per_class)
    method(run)
    return run.points


def latest(points: list[Point], seconds: float) -> Point | None:
    """The posterior that one has at a time."""
    return max((p for p in points if p[0] <= seconds), default=None)


def at_times(
    number: int, curves: dict[str, list[Point]], times: list[float]
) -> list[dict[str, Any]]:
    """Rows of the table: ours, and the best of the others, at every time."""
    rows = []
    for seconds in times:
        there = {name: latest(points, seconds) for name, points in curves.items()}
        result = {name: point for name, point in there.items() if point is not None}
        others = {name: point for name, point in result.items() if name != "ours"}
        shown = ["ours"] if "ours" in result else []
        if others:
            shown.append(min(others, key=lambda name: others[name][1]))
        for name in shown:
            row = {"N": number, "seconds": seconds, "method": "ours" if name == "ours" else "SVGP"}
            row["best of them"] = "" if name == "ours" else name.removeprefix("SVGP, ")
            rows.append({**row, **dict(zip(SCORES, result[name][1:]))})
    return rows


def draw(result: dict[int, dict[str, list[Point]]], path: Path, label: str) -> None:
    """NLL against seconds."""
    figure, axes = plt.subplots(
        1, len(result), figsize=(3.0 + 4.5 * len(result), 3.6), layout="constrained", squeeze=False
    )
    for ax, (number, curves) in zip(axes[0], result.items()):
        for name, points in curves.items():
            style: dict[str, Any] = {"color": "k", "linewidth": 2, "zorder": 3}
            if name != "ours":
                style = {"linewidth": 1}
            seconds, nll = zip(*(point[:2] for point in points))
            ax.semilogx(seconds, nll, marker=".", label=name, **style)
        first, last = ax.get_xlim()
        ticks = [t for t in (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if first <= t <= last]
        ax.set_xticks(ticks, [f"{t:g}" for t in ticks])
        ax.minorticks_off()
        ax.set_xlabel(label)
        ax.set_ylabel("NLL")
        ax.set_title(f"{number} rows")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", fontsize=8, frameon=False)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--per-class", type=int, nargs="+", default=[2000])
    parser.add_argument("--per-class-test", type=int, default=200)
    parser.add_argument("--lengthscale", type=float, default=0.05)
    parser.add_argument("--variance", type=float, default=0.05)
    parser.add_argument("--double", action="store_true", help="double precision; single without")
    parser.add_argument("--inducing", type=int, nargs="*", default=[250, 1000, 2000])
    parser.add_argument("--rates", type=float, nargs="*", default=[0.01, 0.05, 0.2])
    parser.add_argument("--seconds", type=float, default=60.0, help="of one curve")
    parser.add_argument(
        "--ended",
        action="store_true",
        help="ours ends by its seconds, too, without the sweep for the covariance",
    )
    parser.add_argument(
        "--cpu", action="store_true", help="seconds of CPU in all threads, where cores are busy"
    )
    parser.add_argument("--figure", action="store_true", help="draw the docs' picture anew")
    add_option(parser)
    arguments = parser.parse_args()
    methods: dict[str, Callable[[Run], None]] = {"ours": ours}
    for number, rate in itertools.product(arguments.inducing, arguments.rates):
        name = f"SVGP, M = {number}, rate {rate}"
        methods[name] = partial(svgp, num_inducing=number, rate=rate)
    result: dict[int, dict[str, list[Point]]] = {}
    rows: list[dict[str, Any]] = []
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as processes:
        for per_class in arguments.per_class:
            number = NUM_CLASSES * per_class
            curves = result.setdefault(number, {})
            for name, method in methods.items():
                print(f"{number} rows, {name}", flush=True)
                curves[name] = processes.apply(curve, (method, arguments, per_class))
            first, last = curves["ours"][0][0], arguments.seconds
            start = float(np.ceil(10.0 * first) / 10.0)
            times = [float(t) for t in 2.0 ** np.arange(-1, 12) if start < t <= last]
            rows += at_times(number, curves, [start, *times])
    print(tabulate(rows, headers="keys", floatfmt=".4g"))
    most = NUM_CLASSES * max(arguments.per_class)
    suffix = "_1e5" if most == 100_000 else ""
    record(
        "iterncgp_anytime" + suffix,
        "IterNCGP and SVGP at every time of a fit: ten classes, kernel held"
        + (", 100 000 rows" if suffix else ""),
        rows,
        arguments,
        within=["N", "seconds"],
        method="method",
        ours=["ours"],
        better=SCORES,
    )
    if arguments.figure:
        label = "seconds of CPU" if arguments.cpu else "seconds"
        draw(result, FIGURE.with_name(FIGURE.name + suffix + ".png"), label)


if __name__ == "__main__":
    main()
