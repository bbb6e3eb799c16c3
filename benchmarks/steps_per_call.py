"""
What ``steps_per_call`` of ``distribute.fit`` is worth: milliseconds a step, by steps a call.

Minibatches of 64 rows on one device: a Dense network, the same with an additive head in place of
its last layer, and an AdditiveSVGP of three components. A step's time is that of a call over its
steps, the median over the calls after the first, which traces; beside it what processors worked for
a step, all threads together. Both are the least of some rounds, in each of which every row has its
turn. The first losses of all rows of a model have to be equal. Run it with
``python benchmarks/steps_per_call.py``; takes some minutes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import gpflow
import keras
import numpy as np
from recording import add_option, record
from tabulate import tabulate

import gpflow_gam as gg

N, BATCH = 12_800, 64
CALLS = (1, 2, 5, 10, 50)
STEPS, SAME = 400, 20


def rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(N, 3))
    y = np.sin(6.0 * X[:, :1]) + X[:, 1:2] + 0.1 * rng.standard_normal((N, 1))
    return X, y


def network(with_head: bool) -> Callable[[], keras.Model]:
    def build() -> keras.Model:
        keras.utils.set_random_seed(0)
        inputs = keras.Input((3,))
        hidden = keras.layers.Dense(32, activation="relu")(inputs)
        if not with_head:
            model = keras.Model(inputs, keras.layers.Dense(1)(hidden))
            model.compile(keras.optimizers.Adam(0.01), loss="mse")
            return model
        features = keras.layers.Dense(3)(hidden)
        head = gg.layers.AdditiveGP(gg.s(0) + gg.s(1) + gg.s(2), num_data=N, num_inducing=10)
        model = keras.Model(inputs, head(features))
        model.compile(keras.optimizers.Adam(0.01), loss=head.loss)
        return model

    return build


def svgp() -> gg.models.AdditiveSVGP:
    kernel = gg.kernels.AdditiveKernel(
        {name: gpflow.kernels.Matern52(active_dims=[i]) for i, name in enumerate("abc")}
    )
    inducing = gg.inducing_variables.select(rows()[0], kernel, num_inducing=10)
    return gg.models.AdditiveSVGP(kernel, gpflow.likelihoods.Gaussian(0.1), inducing, num_data=N)


MODELS = {"Dense": network(False), "additive head": network(True), "AdditiveSVGP": svgp}


def measured(build: Callable[[], Any], each: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Milliseconds a step, by the clock and of processors, and the losses."""
    ends: list[tuple[int, float, float]] = []
    found = gg.distribute.fit(
        build,
        rows(),
        batch_size=BATCH,
        num_steps=steps,
        steps_per_call=each,
        callback=lambda p: ends.append((p.step, p.seconds, time.process_time())),
    )
    taken = np.diff(np.array(ends), axis=0)
    return 1e3 * np.median(taken[:, 1:] / taken[:, :1], axis=0), found.history


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--rounds", type=int, default=3)
    add_option(parser)
    options = parser.parse_args()
    times: dict[tuple[str, int], list[np.ndarray]] = {(m, c): [] for m in MODELS for c in CALLS}
    losses: dict[str, list[np.ndarray]] = {name: [] for name in MODELS}
    for _ in range(options.rounds):
        for name, each in times:
            taken, history = measured(MODELS[name], each, options.steps)
            times[name, each].append(taken)
            losses[name].append(history)
    for name, every in losses.items():
        # later steps lose it to the rounding of single precision, which training makes larger
        first = every[0][:SAME]
        away = max(np.max(np.abs(own[:SAME] - first)) for own in every) / np.max(np.abs(first))
        if not away < 1e-4:
            raise SystemExit(f"{name}: losses differ by {away:.1g}")
    found = []
    for (name, each), own in times.items():
        step, work = np.min(own, axis=0)
        row = {"model": name, "steps a call": each, "a step, ms": step, "processors, ms": work}
        found.append(row)
    print(tabulate(found, headers="keys", floatfmt=".3g"))
    record(
        "steps_per_call",
        "A step of minibatch training, by how many TensorFlow takes at once",
        found,
        options,
    )


if __name__ == "__main__":
    main()
