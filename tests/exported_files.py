"""What is exported, what its files have to say, and who runs them without TensorFlow and us."""

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import gpflow
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
                coded(data[i["column"]], i), str if i["dtype"] == "string" else i["dtype"]
            )
            for i in about["inputs"]
        },
    )
    return target


def coded(values: Any, about: dict[str, Any]) -> Any:
    """Text as the places of levels where a file takes these, -1 for others, -2 for none."""
    levels = about["levels"]
    if about["dtype"] != "int64" or not levels or not isinstance(levels[0], str):
        return values
    return [levels.index(v) if v in levels else -1 if v else -2 for v in values]


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


# --- what is exported --------------------------------------------------------------------------


def columns(number: int = 120, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "x": rng.uniform(size=number),
            "z": rng.uniform(size=number),
            "Group of": rng.choice(["a", "b", "c"], number),
            "site": rng.integers(3, 9, number),
            "who": rng.choice(["p", "q"], number),
            "flag": rng.integers(0, 2, number) > 0,
            "log time": rng.uniform(-0.7, 0.7, number),
        }
    )


def counts() -> gg.GAM:
    """Offset, text, whole-number and truth-value levels, by=, new levels of numbers and of text."""
    data, rng = columns(), np.random.default_rng(1)
    rho = np.sin(6.0 * data["x"]) + (data["Group of"] == "a") + data["z"]
    rho += 0.5 * np.cos(3.0 * data["site"])
    terms = (
        gg.s("x", k=20)  # of which single precision keeps few digits
        + gg.s("z", k=4, by="flag")
        + gg.factor("Group of")
        + gg.random_effect("site")
        + gg.random_effect("who")
    )
    y = rng.poisson(np.exp(rho) * np.exp(data["log time"]))
    gam = gg.GAM(terms, family="poisson", offset="log time")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gg.ConvergenceWarning)
        warnings.simplefilter("ignore", gg.MissingTermWarning)
        return gam.fit(data, y, max_iterations=8)


def additive_model(name: str) -> Any:
    """Two components, one of them around zero, in a model without a GAM."""
    rng = np.random.default_rng(4)
    X = rng.uniform(size=(60, 2))
    y = np.sin(6.0 * X[:, :1]) + X[:, 1:]
    Z = np.linspace(0.0, 1.0, 6)[:, None]
    smooth = gpflow.kernels.SquaredExponential(active_dims=[1])
    centred = gg.kernels.ZeroMean(smooth, gg.measures.Uniform(0.0, 1.0), extrapolate=True)
    kernel = gg.kernels.AdditiveKernel(
        {"a": gpflow.kernels.Matern32(1.0, 0.4, active_dims=[0]), "b": centred}
    )
    inducing = gg.inducing_variables.AdditiveInducingVariables({"a": Z, "b": Z})
    if name == "svgp":
        return gg.models.AdditiveSVGP(kernel, gg.likelihoods.Ordered(3), inducing)
    if name == "sgpr":
        return gg.models.AdditiveSGPR((X, y), kernel, inducing)
    labels = np.digitize(y, [0.5, 1.0])
    newton = gg.models.IterNCGP((X, labels), kernel, gpflow.likelihoods.Softmax(3), solver="newton")
    gg.optimizers.fit(newton, hyperparameters=False)
    return newton


# --- what its files have to say ------------------------------------------------------------------


def values_of(gam: gg.GAM, data: Any, about: dict[str, Any]) -> dict[str, np.ndarray]:
    """What ``gam.predict`` says, by a file's outputs."""
    known: dict[str, Any] = {"interval": about["level"], "unconditional": False}
    response, link = (gam.predict(data, kind, **known) for kind in ("response", "link"))
    parts = gam.predict(data, "terms", **known)
    names, predictors = about["components"], about["predictors"]

    def column(frame: pd.DataFrame, what: str) -> np.ndarray:
        several = isinstance(frame.columns, pd.MultiIndex)
        return np.asarray(frame.xs(what, axis=1, level=-1) if several else frame[what])

    what = ("estimate", "lower", "upper")
    result = {k: column(response, c) for k, c in zip(("response", "lower", "upper"), what)}
    result |= {"mean": column(link, "estimate"), "variance": np.square(column(link, "se"))}
    if len(predictors) > 1:
        result |= {"mean_lower": column(link, "lower"), "mean_upper": column(link, "upper")}
        shape = len(parts), len(names), len(predictors)
        mean, variance = np.zeros(shape), np.zeros(shape)  # where a component does not enter
        for name, predictor in {c[:-1] for c in parts.columns}:
            at = names.index(name), predictors.index(predictor)
            mean[:, *at] = parts[name, predictor, "estimate"]
            variance[:, *at] = np.square(parts[name, predictor, "se"])
    else:
        mean = np.stack([parts[name, "estimate"] for name in names], axis=1)
        variance = np.square(np.stack([parts[name, "se"] for name in names], axis=1))
    return result | {"component_mean": mean, "component_variance": variance}


def close(result: dict[str, Any], values: dict[str, Any], rtol: float, prior: float = 0.0) -> None:
    """Beside the largest of each output, variances beside a prior's; components add up."""
    assert set(result) == set(values)
    for name, want in values.items():
        size = max(prior if "variance" in name else 0.0, np.max(np.abs(want)))
        np.testing.assert_allclose(result[name], want, rtol=0, atol=rtol * size, err_msg=name)
    atol = rtol * np.max(np.abs(values["component_mean"]))
    total = result["component_mean"].sum(axis=1)
    np.testing.assert_allclose(total, result["mean"], rtol=0, atol=atol)


def answered(served: gg.serving.Served, data: Any) -> dict[str, np.ndarray]:
    """A SavedModel's, by the names that ONNX and LiteRT files have for them."""
    parts = served.predict_components(data)
    assert parts["names"].tolist() == served.description["components"]
    return served.predict(data) | {f"component_{k}": parts[k] for k in ("mean", "variance")}
