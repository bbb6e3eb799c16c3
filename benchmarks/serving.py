"""
What a served GAM costs beside ``gam.predict``: throughput of large batches, latency of one row.

The same GAM and rows; ``served`` is the ``predict`` signature of the exported SavedModel with
tensors as arguments, which also computes variances and limits; so does ``gam.predict(interval=)``.
Medians of several runs, taken in turns. Run it with ``python benchmarks/serving.py``; takes a
minute or two.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from recording import add_option, processor, record
from tabulate import tabulate

import gpflow_gam as gg

FAMILIES = ("gaussian", "poisson", "bernoulli")


def rows(number: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "x": rng.uniform(size=number),
        "z": rng.uniform(size=number),
        "g": rng.choice(["a", "b", "c", "d"], number),
    }


def fitted(family: str, number: int) -> gg.GAM:
    data = rows(number, 0)
    rho = np.sin(6.0 * data["x"]) + data["z"] + (data["g"] == "b")
    rng = np.random.default_rng(1)
    draw: dict[str, Callable[[], Any]] = {
        "gaussian": lambda: rho + 0.3 * rng.standard_normal(number),
        "poisson": lambda: rng.poisson(np.exp(rho)),
        "bernoulli": lambda: rng.uniform(size=number) < 1.0 / (1.0 + np.exp(-rho)),
    }
    terms = gg.s("x") + gg.s("z") + gg.factor("g")
    return gg.GAM(terms, family=family).fit(data, draw[family]())


def seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def medians(calls: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Seconds of each, the calls taking turns so that the machine's moods meet all of them."""
    for call in calls.values():
        call()
    taken = [{name: seconds(call) for name, call in calls.items()} for _ in range(repeats)]
    return {name: float(np.median([t[name] for t in taken])) for name in calls}


def compared(gam: gg.GAM, served: gg.serving.Served, data: dict[str, Any], repeats: int) -> Any:
    signature, arguments = served.signatures["predict"], served.arguments(data)
    return medians(
        {
            "served": lambda: signature(**arguments)["response"].numpy(),
            "loaded": lambda: served.predict(data),
            "predict": lambda: gam.predict(data),
            "interval": lambda: gam.predict(data, interval=0.95),
        },
        repeats,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=int, default=1000, help="rows of the fit")
    parser.add_argument("--batch", type=int, default=10_000)
    parser.add_argument("--batches", type=int, default=9, help="repeats of a batch")
    parser.add_argument("--calls", type=int, default=200, help="repeats of one row")
    add_option(parser)
    options = parser.parse_args()

    print(f"{processor()}, {os.cpu_count()} cores; TensorFlow {tf.__version__}")
    table, recorded = [], []
    for family in FAMILIES:
        gam = fitted(family, options.data)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model"
            writing = seconds(lambda gam=gam, path=path: gg.serving.export(gam, path))
            served = gg.serving.load(path)
            batch = compared(gam, served, rows(options.batch, 2), options.batches)
            one = compared(gam, served, rows(1, 3), options.calls)
        kinds = ("served", "SavedModel"), ("predict", "gam.predict")
        kinds += (("interval", "gam.predict(interval=)"),)
        for kind, name in kinds:
            numbers = {"rows a second": options.batch / batch[kind], "one row, ms": 1e3 * one[kind]}
            recorded.append({"family": family, "by": name, **numbers})
        table.append(
            [family, f"{writing:.1f} s", f"{options.batch / batch['served']:,.0f}"]
            + [batch[name] / batch["served"] for name in ("predict", "interval")]
            + [f"{1e3 * one['served']:.2f} ms", f"{1e3 * one['loaded']:.2f} ms"]
            + [one[name] / one["served"] for name in ("predict", "interval")]
        )
    headers = ["family", "export", "rows/s served", "predict / served", "interval / served"]
    headers += ["one row", "by load()", "predict / served", "interval / served"]
    print(tabulate(table, headers=headers, floatfmt=".1f"))
    record(
        "serving",
        "A served GAM beside gam.predict",
        recorded,
        options,
        within=["family"],
        method="by",
        better={"rows a second": "higher", "one row, ms": "lower"},
    )


if __name__ == "__main__":
    main()
