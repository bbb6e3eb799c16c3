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
from problems import NUM_CLASSES, Point, Race, mixture

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from recording import parser_of, record

import gpflow_gam as gg

FIGURE = Path(__file__).resolve().parents[2] / "docs" / "figures" / "anytime"
BETTER = {"NLL": "lower", "ECE": "lower", "accuracy": "higher"}


class Ended(Exception):
    """The last posterior that was asked for on the way is the last one of all."""


def ours(race: Race, ended: bool) -> None:
    model = race.model("newton")

    def look(progress: gg.optimizers.FitProgress) -> bool:
        assert progress.posterior is not None
        race.score(progress.posterior().predict_f)
        if ended and race.over:
            raise Ended
        return race.over

    with contextlib.suppress(Ended):
        gg.optimizers.fit(model, hyperparameters=False, callback=look)
        race.score(model.posterior().predict_f)


def curve(
    method: Callable[[Race], None], options: argparse.Namespace, per_class: int
) -> list[Point]:
    """In a process of its own: nothing traced or held by one method is charged to the next."""
    dtype = np.float64 if options.double else np.float32
    gpflow.config.set_default_float(dtype)
    gpflow.config.set_default_jitter(1e-6 if options.double else 1e-4)
    X, y, Xt, truth = mixture(per_class, options.per_class_test)
    kernel = gpflow.kernels.Matern32(options.variance, options.lengthscale)
    now = time.process_time if options.cpu else time.perf_counter
    judged = [(Xt.astype(dtype), truth)]
    race = Race((X.astype(dtype), y), kernel, options.seconds, judged, True, now)
    method(race)
    return race.points


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
            rows.append({**row, **dict(zip(BETTER, result[name][1:]))})
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
    parser = parser_of(__doc__)
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
    arguments = parser.parse_args()
    methods: dict[str, Callable[[Race], None]] = {"ours": partial(ours, ended=arguments.ended)}
    for number, rate in itertools.product(arguments.inducing, arguments.rates):
        name = f"SVGP, M = {number}, rate {rate}"
        methods[name] = partial(Race.svgp, num_inducing=number, rate=rate, first=1.0, spacing=1.3)
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
    most = NUM_CLASSES * max(arguments.per_class)
    suffix = "_1e5" if most == 100_000 else ""
    record(
        "iterncgp_anytime" + suffix,
        f"Ten classes, given kernel: IterNCGP and SVGP over time, {most // 1000} 000 rows",
        rows,
        arguments,
        within=["N", "seconds"],
        method="method",
        ours=["ours"],
        better=BETTER,
    )
    if arguments.figure:
        label = "seconds of CPU" if arguments.cpu else "seconds"
        draw(result, FIGURE.with_name(FIGURE.name + suffix + ".png"), label)


if __name__ == "__main__":
    main()
