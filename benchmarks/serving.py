"""
What a served GAM costs beside ``gam.predict``: throughput of large batches, latency of one row.

The same GAM and rows; the SavedModel's is its ``predict`` signature of the exported SavedModel with
tensors as arguments, which also computes variances and limits; so does ``gam.predict(interval=)``.
Medians of several runs, taken in turns. Run it with ``python benchmarks/serving.py``; takes a
minute or two.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from harness import medians
from recording import parser_of, record

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


def compared(gam: gg.GAM, served: gg.serving.Served, data: dict[str, Any], repeats: int) -> Any:
    """Median seconds of each way."""
    signature, arguments = served.signatures["predict"], served.arguments(data)
    calls = {
        "SavedModel": lambda: signature(**arguments)["response"].numpy(),
        "serving.load": lambda: served.predict(data),
        "gam.predict": lambda: gam.predict(data),
        "gam.predict(interval=)": lambda: gam.predict(data, interval=0.95),
    }
    return medians(calls, repeats=repeats)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--data", type=int, default=1000, help="rows of the fit")
    parser.add_argument("--batch", type=int, default=10_000)
    parser.add_argument("--batches", type=int, default=9, help="repeats of a batch")
    parser.add_argument("--calls", type=int, default=200, help="repeats of one row")
    options = parser.parse_args()
    table = []
    for family in FAMILIES:
        gam = fitted(family, options.data)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model"
            gg.serving.export(gam, path)
            served = gg.serving.load(path)
            batch = compared(gam, served, rows(options.batch, 2), options.batches)
            one = compared(gam, served, rows(1, 3), options.calls)
        for by in batch:
            numbers = {"rows a second": options.batch / batch[by], "one row, ms": 1e3 * one[by]}
            table.append({"family": family, "by": by, **numbers})
    record(
        "serving",
        "Speed of a SavedModel and of gam.predict",
        table,
        options,
        within=["family"],
        method="by",
        better={"rows a second": "higher", "one row, ms": "lower"},
    )


if __name__ == "__main__":
    main()
