"""
What a served GAM costs: each format's file, start and row, and throughput beside ``gam.predict``.

Each format answers in a process of its own, which starts five times; pyGAM and EBM, pickled, are
models of their own of the same data, where ``--peers`` names an interpreter that has them.

The same GAM and rows; the SavedModel's is its ``predict`` signature of the exported SavedModel with
tensors as arguments, which also computes variances and limits; so does ``gam.predict(interval=)``.
Medians of several runs, taken in turns. Run it with ``python benchmarks/serving.py``; takes a
minute or two.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
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


CLIENT = """
import json, os, pickle, sys, time
import numpy as np
path, calls = sys.argv[1], int(sys.argv[2])
sys.path.insert(0, os.path.dirname(path))
{setup}
one()
cold, times = time.time() - float(os.environ["STARTED"]), []
for _ in range(calls):
    start = time.perf_counter()
    one()
    times.append(1e3 * (time.perf_counter() - start))
memory = int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) / 1024
print(json.dumps([cold, memory, *np.quantile(times, [0.5, 0.99])]))
"""
SETUPS = {
    "SavedModel": ("m", """
import tensorflow as tf
served = tf.saved_model.load(path)
call = served.signatures["predict"]
x, z, g = tf.constant([0.3], tf.float64), tf.constant([0.5], tf.float64), tf.constant(["b"])
one = lambda: call(x=x, z=z, g=g)["response"].numpy()"""),
    "ONNX": ("m.onnx", """
import onnxruntime
row = {"x": np.array([0.3]), "z": np.array([0.5]), "g": np.array(["b"], object)}
run = onnxruntime.InferenceSession(path).run
one = lambda: run(["response", "lower", "upper"], row)"""),
    "LiteRT": ("m.tflite", """
from ai_edge_litert.interpreter import Interpreter
run = Interpreter(path).get_signature_runner("serving_default")
row = {"x": np.array([0.3], np.float32), "z": np.array([0.5], np.float32), "g": np.array([1])}
one = lambda: run(**row)["response"]"""),
    "JSON": ("m.json", """
import gpflow_gam_scorer as scorer
model = scorer.load(path)
one = lambda: scorer.predict(model, {"x": [0.3], "z": [0.5], "g": ["b"]})"""),
    "pyGAM": ("pygam", """
model, row = pickle.load(open(path, "rb")), np.array([[0.3, 0.5, 1.0]])
one = lambda: (model.predict(row), model.confidence_intervals(row))"""),
    "EBM": ("ebm", """
model, row = pickle.load(open(path, "rb")), np.array([[0.3, 0.5, "b"]], object)
one = lambda: model.predict(row)"""),
}  # fmt: skip
PEERS = """
import pickle, sys
import numpy as np
data = np.load("data.npz")
X = np.column_stack([data["x"], data["z"], np.searchsorted(list("abcd"), data["g"])])
import pygam
model = pygam.PoissonGAM(pygam.s(0) + pygam.s(1) + pygam.f(2))
model.gridsearch(X, data["y"], progress=False)
pickle.dump(model, open("pygam", "wb"))
from interpret.glassbox import ExplainableBoostingRegressor
model = ExplainableBoostingRegressor(objective="poisson_deviance", interactions=0)
X = np.array([*zip(data["x"], data["z"], data["g"])], object)
pickle.dump(model.fit(X, data["y"].astype(float)), open("ebm", "wb"))
"""


def formats(number: int, calls: int, peers: str | None) -> list[dict[str, Any]]:
    """A row for each format: its file, its first answer, its memory and a row."""
    gam, table = fitted("poisson", number), []
    with tempfile.TemporaryDirectory() as folder:
        for name in ("m", "m.onnx", "m.tflite", "m.json"):
            gg.serving.export(gam, Path(folder) / name)
        if peers is not None:
            np.savez(Path(folder) / "data.npz", **rows(number, 0), y=gam.fitted.Y[:, 0])
            subprocess.run([peers, "-c", PEERS], cwd=folder, check=True)
        for name, (file, setup) in SETUPS.items():
            path = Path(folder) / file
            if not path.exists():
                continue
            of_peer = name in ("pyGAM", "EBM")
            command = [peers if of_peer and peers else sys.executable, "-c"]
            command += [CLIENT.replace("{setup}", setup), str(path), str(calls)]
            runs = []
            for _ in range(5):
                env = {**os.environ, "STARTED": str(time.time()), "TF_CPP_MIN_LOG_LEVEL": "3"}
                done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
                runs.append(json.loads(done.stdout))
            files = [f for f in (path.rglob("*") if path.is_dir() else [path]) if f.is_file()]
            size = sum(f.stat().st_size for f in files) / 1024
            cold, memory, p50, p99 = map(statistics.median, zip(*runs))
            numbers = {"cold start, s": cold, "memory, MiB": memory, "p50, ms": p50, "p99, ms": p99}
            table.append({"format": name, "file, KiB": size, **numbers})
    return table


def compared(gam: gg.GAM, served: gg.serving.Served, data: dict[str, Any], repeats: int) -> Any:
    """Median seconds of each way."""
    signature, arguments = served.signatures["predict"], served._arguments(data)
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
    parser.add_argument("--peers", help="an interpreter that has pyGAM and interpret-core")
    options = parser.parse_args()
    cost = formats(options.data, 10 * options.calls, options.peers)
    record(
        "portable",
        "Cost of a served GAM by format",
        cost,
        options,
        method="format",
        ours=["SavedModel", "ONNX", "LiteRT", "JSON"],
        better=dict.fromkeys(list(cost[0])[1:], "lower"),
    )
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
