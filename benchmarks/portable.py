"""
What a served GAM costs in each of its formats: size, cold start, memory, and latency of one row.

Each runtime is alone in a process of its own: ONNX Runtime, LiteRT, TensorFlow with a SavedModel,
and pyGAM where it is installed (its own model of the same data, pickled; estimate and limits). Cold
start is from the interpreter's start to the first answer, imports included; memory is the largest
resident set then (Linux). Run it with ``python benchmarks/portable.py``; takes a minute.
"""

from __future__ import annotations

import argparse
import json
import pickle
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from recording import add_option, record
from tabulate import tabulate

CALLS = 2000
ONE = {"x": 0.3, "z": 0.6}

LOAD = {
    "ONNX": """
import onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
row = {k: np.array([v]) for k, v in one.items()}
call = lambda: session.run(["response", "lower", "upper"], row)
""",
    "LiteRT": """
from ai_edge_litert.interpreter import Interpreter
run = Interpreter(model_path=path, num_threads=1).get_signature_runner("serving_default")
row = {k: np.array([v], np.float32) for k, v in one.items()}
call = lambda: run(**row)
""",
    "SavedModel": """
import tensorflow as tf
module = tf.saved_model.load(path)
run = module.signatures["predict"]
row = {k: tf.constant([v], tf.float64) for k, v in one.items()}
call = lambda: run(**row)["response"].numpy()
""",
    "pyGAM": """
import pickle
model = pickle.load(open(path, "rb"))
row = np.array([list(one.values())])
call = lambda: (model.predict(row), model.confidence_intervals(row))
""",
}

CHILD = """
import json, sys, time
import numpy as np
path, one, calls = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
{load}
call()
cold = time.time() - float(sys.argv[4])
status = open("/proc/self/status").read()  # not getrusage, which counts the parent before exec
memory = int(status.split("VmHWM:")[1].split()[0]) / 1024.0
taken = []
for _ in range(calls):
    start = time.perf_counter()
    call()
    taken.append(1e3 * (time.perf_counter() - start))
p50, p99 = np.percentile(taken, [50, 99])
found = {{"cold start, s": cold, "memory, MiB": memory, "p50, ms": p50, "p99, ms": p99}}
print(json.dumps(found))
"""


def written(folder: Path) -> dict[str, Path]:
    """The files, by the names of runtimes."""
    import numpy as np

    import gpflow_gam as gg

    rng = np.random.default_rng(0)
    data = {"x": rng.uniform(size=1000), "z": rng.uniform(size=1000)}
    y = rng.poisson(np.exp(np.sin(6.0 * data["x"]) + data["z"]))
    gam = gg.GAM(gg.s("x") + gg.s("z"), family="poisson").fit(data, y)
    files = {"ONNX": folder / "m.onnx", "LiteRT": folder / "m.tflite", "SavedModel": folder / "m"}
    for path in files.values():
        gg.serving.export(gam, path)
    try:
        from pygam import PoissonGAM, s  # not the folder beside this file, which holds neither
    except ImportError:
        print("pyGAM is not installed: left out")
        return files
    other = PoissonGAM(s(0) + s(1)).fit(np.stack(list(data.values()), 1), y)
    files["pyGAM"] = folder / "m.pickle"
    files["pyGAM"].write_bytes(pickle.dumps(other))
    return files


def size(path: Path) -> float:
    """Kilobytes of a file, or of all in a folder."""
    parts = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    return sum(p.stat().st_size for p in parts) / 1024.0


def measured(name: str, path: Path, calls: int) -> dict[str, Any]:
    code = CHILD.format(load=LOAD[name])
    arguments = [str(path), json.dumps(ONE), str(calls), str(time.time())]
    out = subprocess.run(
        [sys.executable, "-c", code, *arguments], check=True, capture_output=True, text=True
    ).stdout
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return {"format": name, "file, KiB": size(path), **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=CALLS)
    add_option(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = written(Path(folder))
        rows = [measured(name, path, options.calls) for name, path in files.items()]
    print(tabulate(rows, headers="keys", floatfmt=".3g"))
    record(
        "portable",
        "What a served GAM costs in each of its formats",
        rows,
        options,
        method="format",
        ours=list(LOAD)[:3],
        better=dict.fromkeys(list(rows[0])[1:], "lower"),
        skipped=[name for name in LOAD if name not in files],
        peers=["onnxruntime", "ai-edge-litert", "pygam"],
    )


if __name__ == "__main__":
    main()
