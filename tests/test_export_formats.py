"""ONNX files: the same numbers as the model's, by a runtime that has neither TensorFlow nor us."""

from __future__ import annotations

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
import pytest
import tensorflow as tf

import gpflow_gam as gg

pytestmark = pytest.mark.filterwarnings("ignore::gpflow_gam.ExtrapolationWarning")
onnx = pytest.importorskip("onnx", reason="the package onnx writes what is tested here")

# ONNX Runtime may live in another environment than TensorFlow
RUNTIME = os.environ.get("GPFLOW_GAM_ONNX_PYTHON", sys.executable)
N = 120

RUN = """
import sys
for name in ("tensorflow", "gpflow", "gpflow_gam", "keras", "onnx"):
    sys.modules[name] = None
import json
import numpy as np
import onnxruntime
for model, data, result in json.loads(sys.argv[1]):
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    columns = {k: v.astype(object) if v.dtype.kind == "U" else v for k, v in np.load(data).items()}
    found = session.run(None, columns)
    np.savez(result, **{o.name: value for o, value in zip(session.get_outputs(), found)})
"""


@pytest.fixture(scope="module")
def runtime() -> None:
    found = subprocess.run([RUNTIME, "-c", "import onnxruntime"], capture_output=True)
    if found.returncode:
        pytest.skip("onnxruntime is not installed; it runs what is exported")


def columns(number: int = N, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "x": rng.uniform(size=number),
            "z": rng.uniform(size=number),
            "hour": rng.uniform(0.0, 24.0, number),
            "Group of": rng.choice(["a", "b", "c"], number),
            "site": rng.integers(3, 9, number),
            "flag": rng.integers(0, 2, number) > 0,
            "time": rng.uniform(0.5, 2.0, number),
        }
    )


def predictor(data: pd.DataFrame) -> np.ndarray:
    day = np.cos(2.0 * np.pi * data["hour"] / 24.0)
    return np.asarray(np.sin(6.0 * data["x"]) + 0.5 * day + (data["Group of"] == "a") + data["z"])


def fitted(case: str) -> gg.GAM:
    data, rng = columns(), np.random.default_rng(1)
    rho = predictor(data)
    if case == "gaussian":
        terms = (
            gg.s("x", k=4)
            + gg.te("x", "z", k=3)
            + gg.s("hour", bs="cyclic", period=24, k=4)
            + gg.factor("Group of")
        )
        gam, y = gg.GAM(terms), rho + 0.2 * rng.standard_normal(N)
    elif case == "poisson":
        terms = (
            gg.s("x", k=5)
            + gg.s("z", k=4, by="flag")
            + gg.factor("Group of")
            + gg.random_effect("site")
        )
        data["log time"] = np.log(data["time"])
        gam = gg.GAM(terms, family="poisson", offset="log time")
        y = rng.poisson(np.exp(rho) * data["time"])
    else:
        gam = gg.GAM(gg.s("x", k=5) + gg.factor("Group of"), family="bernoulli")
        y = rng.uniform(size=N) < 1.0 / (1.0 + np.exp(-rho))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gg.ConvergenceWarning)
        warnings.simplefilter("ignore", gg.MissingTermWarning)
        return gam.fit(data, y, max_iterations=8)


CASES = ("gaussian", "poisson", "bernoulli")
SINGLE = ("bernoulli",)


def request(case: str) -> pd.DataFrame:
    """Rows beside the data, some beyond them, and for a random effect with new levels."""
    data = columns(9, 7)
    data["log time"] = np.log(data["time"])
    data.loc[0, "x"], data.loc[1, "z"], data.loc[2, "hour"] = 1.4, -0.3, -5.0
    if case == "poisson":
        data.loc[3:5, "site"] = [99, 98, -1]
    return data


@pytest.fixture(scope="module")
def answers(runtime, tmp_path_factory) -> dict[str, tuple[gg.GAM, Any, dict[str, Any]]]:
    """By case the GAM, the file and what it answers in double and in single precision."""
    folder = tmp_path_factory.mktemp("onnx")
    found, jobs = {}, []
    for case in CASES:
        gam = fitted(case)
        files = []
        for single in (False, True) if case in SINGLE else (False,):
            path = folder / f"{case}{single}.onnx"
            gg.serving.export(gam, path, level=0.9, single=single)
            jobs.append((path, arguments(path, request(case)), path.with_suffix(".answer.npz")))
            files.append(path)
        none = files[0].with_suffix(".none.npz")
        jobs.append((files[0], arguments(files[0], request(case)[:0], ".0"), none))
        strange = request(case).iloc[:4].copy()
        strange.loc[1, "Group of"], strange.loc[2, "x"], strange.loc[3, "x"] = "zz", np.nan, np.inf
        odd = files[0].with_suffix(".odd.npz")
        jobs.append((files[0], arguments(files[0], strange, ".1"), odd))
        results = [f.with_suffix(".answer.npz") for f in files]
        results = dict(zip(("double", "single"), (f.with_suffix(".answer.npz") for f in files)))
        found[case] = (gam, files[0], {**results, "none": none, "odd": odd})
    run(jobs)
    return {
        case: (gam, path, {name: dict(np.load(file)) for name, file in files.items()})
        for case, (gam, path, files) in found.items()
    }


def description(path: Path) -> dict[str, Any]:
    props = {p.key: p.value for p in onnx.load(path).metadata_props}
    return json.loads(props["gpflow_gam"])


def arguments(path: Path, data: pd.DataFrame, name: str = "") -> Path:
    """The columns that a file's description asks for, as it asks for them."""
    about = description(path)
    types = {k: v["dtype"] for k, v in about["signatures"]["serving_default"]["inputs"].items()}
    target = path.with_suffix(f"{name}.in.npz")
    np.savez(
        target,
        **{
            i["name"]: np.asarray(
                data[i["column"]], str if types[i["name"]] == "string" else types[i["name"]]
            )
            for i in about["inputs"]
        },
    )
    return target


def run(jobs: list[Any]) -> None:
    """Run files by ONNX Runtime, alone in its process."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    argument = json.dumps([[str(p) for p in job] for job in jobs])
    subprocess.run([RUNTIME, "-c", RUN, argument], check=True, env=environment)


def same(gam: gg.GAM, found: dict[str, Any], data: pd.DataFrame, rtol: float) -> None:
    """As ``gam.predict``; variances to rounding of the prior's, from which they are differences."""
    known = {"unconditional": False}
    frame = gam.predict(data, interval=0.9, **known)
    mean, se = gam.predict(data, "link", se=True, **known)
    parts, part_se = gam.predict(data, "terms", se=True, **known)
    for name, column in {"response": "estimate", "lower": "lower", "upper": "upper"}.items():
        np.testing.assert_allclose(found[name], frame[column], rtol=10.0 * rtol)
    np.testing.assert_allclose(found["mean"], mean, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(found["component_mean"], parts, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(found["variance"], np.square(se), rtol=rtol, atol=rtol)
    np.testing.assert_allclose(
        found["component_variance"], np.square(part_se), rtol=rtol, atol=rtol
    )


@pytest.mark.parametrize("case", CASES)
def test_numbers(answers, case):
    gam, _, found = answers[case]
    assert {v.dtype for v in found["double"].values()} == {np.dtype("float64")}
    same(gam, found["double"], request(case), 1e-12)


@pytest.mark.parametrize("case", SINGLE)
def test_single(answers, case):
    gam, _, found = answers[case]
    assert {v.dtype for v in found["single"].values()} == {np.dtype("float32")}
    same(gam, found["single"], request(case), 1e-5)


@pytest.mark.parametrize("case", CASES)
def test_rows_that_cannot_be_taken_are_nan_alone(answers, case):
    _, _, found = answers[case]
    for name, values in found["odd"].items():
        assert np.all(np.isnan(values[1:])), name
        np.testing.assert_allclose(values[0], found["double"][name][0], rtol=1e-13, atol=1e-14)
    assert {len(v) for v in found["none"].values()} == {0}


def test_description(answers):
    gam, path, _ = answers["poisson"]
    about = description(path)
    assert about["components"] == ["intercept", *gam.names]
    columns = {i["column"] for i in about["inputs"]}
    assert columns == {"x", "flag", "z", "Group of", "site", "log time"}
    outputs = about["signatures"]["serving_default"]["outputs"]
    assert {o.name for o in onnx.load(path).graph.output} == set(outputs)
    assert {domain.domain for domain in onnx.load(path).opset_import} == {""}


# --- models without a GAM ----------------------------------------------------------------------


def kernel(smooth: Any = gpflow.kernels.SquaredExponential) -> gg.kernels.AdditiveKernel:
    measure = gg.measures.Uniform(0.0, 1.0)
    centred = gg.kernels.ZeroMean(smooth(active_dims=[1]), measure, extrapolate=True)
    return gg.kernels.AdditiveKernel(
        {"a": gpflow.kernels.Matern32(1.0, 0.4, active_dims=[0]), "b": centred}
    )


def sgpr() -> Any:
    rng = np.random.default_rng(4)
    X = rng.uniform(size=(60, 2))
    y = np.sin(6.0 * X[:, :1]) + X[:, 1:]
    Z = np.linspace(0.0, 1.0, 6)[:, None]
    inducing = gg.inducing_variables.AdditiveInducingVariables({"a": Z, "b": Z})
    return gg.models.AdditiveSGPR((X, y), kernel(), inducing)


def test_models(runtime, tmp_path):
    X = np.random.default_rng(5).uniform(size=(7, 2))
    np.savez(tmp_path / "X.npz", inputs=X)
    models = {"sgpr": sgpr()}
    jobs = []
    for name, model in models.items():
        gg.serving.export(model, tmp_path / name, format="onnx")
        jobs.append((tmp_path / name, tmp_path / "X.npz", tmp_path / f"{name}.npz"))
    run(jobs)
    for name, model in models.items():
        found = dict(np.load(tmp_path / f"{name}.npz"))
        mean, var = (a.numpy() for a in model.posterior().predict_f(X))
        np.testing.assert_allclose(found["mean"][:, None], mean, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(found["variance"][:, None], var, rtol=1e-12, atol=1e-12)
        response = gg.likelihoods.expected_response(model.likelihood, X, mean, var)
        response = np.reshape(response, found["response"].shape)
        np.testing.assert_allclose(found["response"], response, rtol=1e-11)
        parts = (a.numpy() for a in model.predict_components(X))
        for kind, part in zip(("mean", "variance"), parts):
            part = part.reshape(found[f"component_{kind}"].shape)
            np.testing.assert_allclose(found[f"component_{kind}"], part, atol=1e-10)


# --- what cannot be written --------------------------------------------------------------------


def test_bad_options(tmp_path):
    model, path = sgpr(), tmp_path / "m.onnx"
    for options, match in (
        ({"format": "coreml"}, "format must be 'saved_model' or 'onnx'; got 'coreml'"),
        ({"invalid": "error"}, "invalid='error'.*cannot fail a request"),
        ({"level": 1.0}, "level must be a probability"),
        ({"format": "saved_model", "single": True}, "single is for ONNX"),
    ):
        with pytest.raises(ValueError, match=match):
            gg.serving.export(model, path, **options)
    assert not path.exists()
    path.mkdir()
    with pytest.raises(FileExistsError, match="is a folder"):
        gg.serving.export(model, path, overwrite=True)
    path.rmdir()
    path.write_bytes(b"mine")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        gg.serving.export(model, path)
    assert path.read_bytes() == b"mine"


def test_without_the_package(tmp_path, monkeypatch):
    for name in [n for n in sys.modules if n.startswith("gpflow_gam.serving.onnx_")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"pip install 'gpflow_gam\[onnx\]'"):
        gg.serving.export(sgpr(), tmp_path / "m.onnx")


class Strange(gpflow.kernels.SquaredExponential):
    """Computed by what ONNX does not have."""

    def K_r2(self, r2):
        return tf.math.bessel_i0e(r2)


def test_operations_and_checks_that_onnx_lacks(tmp_path):
    Z = np.linspace(0.0, 1.0, 4)[:, None]
    inducing = gg.inducing_variables.AdditiveInducingVariables({"f": Z})
    X = np.linspace(0.0, 1.0, 20)[:, None]
    strict = gg.kernels.ZeroMean(
        gpflow.kernels.Matern32(active_dims=[0]), gg.measures.Uniform(0.0, 1.0)
    )
    for own, match in (
        (Strange(active_dims=[0]), "BesselI0e.*cannot be written as ONNX"),
        (strict, "checks its inputs while it predicts.*extrapolate=True"),
    ):
        additive = gg.kernels.AdditiveKernel({"f": own})
        model = gg.models.AdditiveSGPR((X, np.sin(X)), additive, inducing)
        with pytest.raises(ValueError, match=match):
            gg.serving.export(model, tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []
