"""
What a training step of a GP head costs beside one of a Dense head.

The same network before both: two Dense layers, the second of which makes as many features as there
are smooths. Rows of the table are classes and smooths; each cell is the median of several calls of
``train_on_batch`` on a batch of 128 rows, heads taking turns, and the time of the first call, which
traces. Run it with ``python benchmarks/head_steps.py``; takes a few minutes.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from recording import add_option, record
from tabulate import tabulate

import gpflow_gam as gg

SIZES = [(2, 3), (10, 3), (100, 3), (10, 10), (10, 30), (100, 10)]
BATCH, WIDTH, NUM_DATA = 128, 16, 10_000


def network(head: keras.Layer, smooths: int) -> keras.Model:
    """:param head: on so many features."""
    inputs = keras.Input((WIDTH,))
    features = keras.layers.Dense(64, activation="relu")(inputs)
    return keras.Model(inputs, head(keras.layers.Dense(smooths)(features)))


def models(classes: int, smooths: int) -> dict[str, keras.Model]:
    """Compiled networks by the name of their heads."""
    found = {}
    for dtype in ("float64", "float32"):
        terms = [gg.s(i) for i in range(smooths)]
        head = gg.layers.AdditiveGP(
            terms, "softmax", num_classes=classes, num_data=NUM_DATA, num_inducing=16, dtype=dtype
        )
        found[f"GP {dtype}"] = network(head, smooths)
        found[f"GP {dtype}"].compile("adam", loss=head.loss)
    found["Dense"] = network(keras.layers.Dense(classes), smooths)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    found["Dense"].compile("adam", loss=loss)
    return found


def measured(classes: int, smooths: int, repeats: int) -> dict[str, Any]:
    """Milliseconds a step, and seconds of the first."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(BATCH, WIDTH)).astype("float32")
    y = rng.integers(0, classes, BATCH)
    every = models(classes, smooths)
    first, steps = {}, {name: [] for name in every}
    for name, model in every.items():
        start = time.perf_counter()
        model.train_on_batch(X, y)
        first[name] = time.perf_counter() - start
    for _ in range(repeats):
        for name, model in every.items():
            start = time.perf_counter()
            model.train_on_batch(X, y)
            steps[name].append(1e3 * (time.perf_counter() - start))
    milliseconds = {name: float(np.median(taken)) for name, taken in steps.items()}
    return {"classes": classes, "smooths": smooths, "step_ms": milliseconds, "first_s": first}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--threads", type=int, help="of TensorFlow; as it comes by default")
    add_option(parser)
    options = parser.parse_args()
    if options.threads is not None:
        tf.config.threading.set_intra_op_parallelism_threads(options.threads)
        tf.config.threading.set_inter_op_parallelism_threads(options.threads)
    machine = f"{platform.machine()}, {os.cpu_count()} cores; TensorFlow {tf.__version__}"
    found = [measured(*size, options.repeats) for size in SIZES]
    names = list(found[0]["step_ms"])
    rows = [
        [r["classes"], r["smooths"], *(r["step_ms"][n] for n in names)]
        + [r["first_s"][n] for n in names]
        for r in found
    ]
    headers = [
        "classes",
        "smooths",
        *(f"{n}, ms" for n in names),
        *(f"{n}, first s" for n in names),
    ]
    print(machine)
    print(tabulate(rows, headers=headers, floatfmt=".1f"))
    recorded = [
        {
            "classes": r["classes"],
            "smooths": r["smooths"],
            "head": n,
            "a step, ms": r["step_ms"][n],
            "the first, s": r["first_s"][n],
        }
        for r in found
        for n in names
    ]
    record(
        "head_steps",
        "A training step of a GP head beside one of a Dense head",
        recorded,
        options,
        within=["classes", "smooths"],
        method="head",
        ours=names[:2],
        better={"a step, ms": "lower", "the first, s": "lower"},
    )


if __name__ == "__main__":
    main()
