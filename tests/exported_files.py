"""Runs ONNX and LiteRT files in a process without TensorFlow and us."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import gpflow_gam as gg

# ONNX Runtime and LiteRT may live in another environment than TensorFlow
RUNTIME = os.environ.get("GPFLOW_GAM_ONNX_PYTHON", sys.executable)

RUN = """
import sys
for name in ("tensorflow", "gpflow", "gpflow_gam", "keras", "onnx"):
    sys.modules[name] = None
import json
import numpy as np
for model, data, result in json.loads(sys.argv[1]):
    columns = {k: v.astype(object) if v.dtype.kind == "U" else v for k, v in np.load(data).items()}
    if model.endswith(".tflite"):
        from ai_edge_litert.interpreter import Interpreter
        found = Interpreter(model_path=model).get_signature_runner("serving_default")(**columns)
    else:
        import onnxruntime
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        values = session.run(None, columns)
        found = {o.name: value for o, value in zip(session.get_outputs(), values)}
    np.savez(result, **found)
"""


def is_there() -> bool:
    """Whether both runtimes are."""
    result = subprocess.run(
        [RUNTIME, "-c", "import ai_edge_litert, onnxruntime"], capture_output=True
    )
    return not result.returncode


def description(path: Path) -> dict[str, Any]:
    if path.suffix == ".tflite":
        from tensorflow.lite.python import schema_py_generated as schema

        model = schema.Model.GetRootAs(path.read_bytes(), 0)
        metadata = [model.Metadata(i) for i in range(model.MetadataLength())]
        places = {m.Name(): m.Buffer() for m in metadata}
        return json.loads(model.Buffers(places[b"gpflow_gam"]).DataAsNumpy().tobytes())
    import onnx

    props = {p.key: p.value for p in onnx.load(path).metadata_props}
    return json.loads(props["gpflow_gam"])


def exported(
    model: Any, folder: Path, inputs: np.ndarray, name: str = "m"
) -> list[dict[str, np.ndarray]]:
    """Answers of ONNX in double and LiteRT in single precision, of files written into a folder."""
    jobs = []
    for end, dtype in (("onnx", float), ("tflite", np.float32)):
        path = folder / f"{name}.{end}"
        gg.serving.export(model, path)
        np.savez(folder / f"{path.name}.in.npz", inputs=inputs.astype(dtype))
        jobs.append([folder / f"{path.name}{end}" for end in ("", ".in.npz", ".out.npz")])
    run(jobs)
    return [dict(np.load(job[-1])) for job in jobs]


def arguments(path: Path, data: pd.DataFrame, name: str = "") -> Path:
    """The columns that a file's description asks for, as it asks for them."""
    about = description(path)
    target = path.with_suffix(f"{name}.in.npz")
    np.savez(
        target,
        **{
            i["name"]: np.asarray(
                coded(data[i["column"]], i),
                str if i["dtype"] == "string" else i["dtype"],
            )
            for i in about["inputs"]
        },
    )
    return target


def coded(values: Any, about: dict[str, Any]) -> Any:
    """Text as the places of levels where a file takes these, -1 for others."""
    levels = about["levels"]
    if about["dtype"] != "int64" or not levels or not isinstance(levels[0], str):
        return values
    return [levels.index(v) if v in levels else -1 for v in values]


def run(jobs: list[Any]) -> None:
    """Run files by ONNX Runtime, alone in its process."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    argument = json.dumps([[str(p) for p in job] for job in jobs])
    subprocess.run([RUNTIME, "-c", RUN, argument], check=True, env=environment)


def prior_variance(gam: gg.GAM) -> float:
    """The largest of a predictor, in its unit."""
    fit = gam.fitted
    kernel = fit.model.kernel
    kernels = getattr(kernel, "latent_kernels", None) or [kernel]
    variances = np.array([np.max(np.asarray(k(fit.X, full_cov=False))) for k in kernels])
    return float(np.max(variances * np.square(fit.units[0])))
