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
import tensorflow as tf
from scipy.special import softmax

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from recording import parser_of, record

import gpflow_gam as gg
from gpflow_gam import metrics

FIGURE = Path(__file__).resolve().parents[2] / "docs" / "figures" / "anytime"
NUM_CLASSES, BATCH = 10, 1024
SCORES = {"NLL": metrics.nlpd, "ECE": metrics.ece, "accuracy": metrics.accuracy}
BETTER = {"NLL": "lower", "ECE": "lower", "accuracy": "higher"}
Point = tuple[float, ...]
"""Seconds, then the scores."""


class Ended(Exception):
    """The last posterior that was asked for on the way is the last one of all."""


def mixture(per_class: int, per_class_test: int, seed: int = 0) -> tuple[np.ndarray, ...]:
    """
    Ten Gaussian classes in three dimensions: means U[-1, 1]^3, covariances U diag(U[.001, .1]) U'.

    :return: X, labels, X and labels to test on; rows shuffled.
    """
    rng = np.random.default_rng(seed)
    means = rng.uniform(-1, 1, (NUM_CLASSES, 3))
    roots = []
    for _ in range(NUM_CLASSES):
        turn, _ = np.linalg.qr(rng.normal(size=(3, 3)))
        roots.append(turn * np.sqrt(rng.uniform(0.001, 0.1, 3)))

    def draw(number: int) -> tuple[np.ndarray, np.ndarray]:
        labels = rng.permutation(np.repeat(np.arange(NUM_CLASSES), number))
        noise = rng.normal(size=(len(labels), 3))
        return means[labels] + np.einsum("nij,nj->ni", np.stack(roots)[labels], noise), labels

    return (*draw(per_class), *draw(per_class_test))


class Race:
    """One curve: its rows, kernel and clock, which stands still while posteriors are scored."""

    def __init__(self, options: argparse.Namespace, per_class: int) -> None:
        dtype = np.float64 if options.double else np.float32
        self.X, labels, self.Xt, self.truth = mixture(per_class, options.per_class_test)
        self.X, self.Xt = self.X.astype(dtype), self.Xt.astype(dtype)
        self.Y = labels[:, None].astype(dtype)
        self.kernel = gpflow.kernels.Matern32(options.variance, options.lengthscale)
        self.budget, self.points = options.seconds, list[Point]()
        self._now = time.process_time if options.cpu else time.perf_counter
        self._begun, self._scoring = self._now(), 0.0

    @property
    def seconds(self) -> float:
        return self._now() - self._begun - self._scoring

    @property
    def over(self) -> bool:
        return self.seconds > self.budget

    def score(self, predict: Callable[..., tuple[tf.Tensor, tf.Tensor]]) -> None:
        """Note how well a posterior predicts, by MacKay's approximation without a common shift."""
        seconds, begun, parts = self.seconds, self._now(), []
        P = np.eye(NUM_CLASSES) - 1.0 / NUM_CLASSES
        for rows in np.array_split(self.Xt, 10):
            mean, cov = (t.numpy().astype(float) for t in predict(rows, full_output_cov=True))
            var = np.einsum("ncc->nc", P @ cov @ P)
            parts.append(softmax(mean / np.sqrt(1.0 + np.pi / 8.0 * var), axis=1))
        scores = [float(f(self.truth, np.concatenate(parts))) for f in SCORES.values()]
        self.points.append((seconds, *scores))
        print(f"  {seconds:.1f} s: NLL {scores[0]:.4f}", flush=True)
        self._scoring += self._now() - begun


def ours(race: Race, ended: bool) -> None:
    likelihood = gpflow.likelihoods.Softmax(NUM_CLASSES)
    model = gg.models.IterNCGP((race.X, race.Y), race.kernel, likelihood, solver="newton")

    def look(progress: gg.optimizers.FitProgress) -> bool:
        assert progress.posterior is not None
        race.score(progress.posterior().predict_f)
        if ended and race.over:
            raise Ended
        return race.over

    with contextlib.suppress(Ended):
        gg.optimizers.fit(model, hyperparameters=False, callback=look)
        race.score(model.posterior().predict_f)


def theirs(race: Race, num_inducing: int, rate: float) -> None:
    """
    GPflow's SVGP by Adam, at times that are spaced like powers.

    :param num_inducing: rows that are the inducing inputs, held as the kernel is.
    :param rate: of learning.
    """
    chosen = np.random.default_rng(0).choice(len(race.X), num_inducing, replace=False)
    model = gpflow.models.SVGP(
        race.kernel,
        gpflow.likelihoods.Softmax(NUM_CLASSES),
        race.X[chosen],
        num_latent_gps=NUM_CLASSES,
        num_data=len(race.X),
    )
    gpflow.set_trainable(model.kernel, False)
    gpflow.set_trainable(model.inducing_variable, False)
    data = tf.data.Dataset.from_tensor_slices((race.X, race.Y.astype(np.int32)))
    batches = iter(data.repeat().shuffle(len(race.X), seed=0).batch(BATCH))
    loss = model.training_loss_closure(batches, compile=False)
    optimiser = tf.keras.optimizers.Adam(rate)
    variables = list(model.trainable_variables)

    @tf.function
    def step() -> None:
        with tf.GradientTape() as tape:
            value = loss()
        optimiser.apply_gradients(zip(tape.gradient(value, variables), variables))

    optimiser.build(variables)
    mark = 1.0
    while not race.over:
        step()
        if race.seconds > mark:
            race.score(model.predict_f)
            mark = 1.3 * race.seconds


def curve(
    method: Callable[[Race], None], options: argparse.Namespace, per_class: int
) -> list[Point]:
    """In a process of its own: nothing traced or held by one method is charged to the next."""
    gpflow.config.set_default_float(np.float64 if options.double else np.float32)
    gpflow.config.set_default_jitter(1e-6 if options.double else 1e-4)
    race = Race(options, per_class)
    method(race)
    return race.points


def at_times(
    number: int, curves: dict[str, list[Point]], times: list[float]
) -> list[dict[str, Any]]:
    """Rows of the table: the posteriors that one has at every time, ours and the best of SVGP."""
    rows = []
    for seconds in times:
        known = {name: [p for p in points if p[0] <= seconds] for name, points in curves.items()}
        there = {name: max(points) for name, points in known.items() if points}
        best = min(there.keys() - {"ours"}, key=lambda name: there[name][1], default=None)
        for name in [n for n in ("ours", best) if n in there]:
            row = {"N": number, "seconds": seconds, "method": "ours" if name == "ours" else "SVGP"}
            row["best of them"] = "" if name == "ours" else name.removeprefix("SVGP, ")
            rows.append({**row, **dict(zip(BETTER, there[name][1:]))})
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
        methods[name] = partial(theirs, num_inducing=number, rate=rate)
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
