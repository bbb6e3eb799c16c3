"""ONNX files: the same numbers as the model's, by a runtime that has neither TensorFlow nor us."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import gpflow_gam as gg

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
            gg.s("x", k=6)
            + gg.te("x", "z", k=3)
            + gg.s("hour", bs="cyclic", period=24, k=5)
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
        family = gg.families.Bernoulli(link="probit") if case == "probit" else case
        gam = gg.GAM(gg.s("x", k=5) + gg.s("z", k=4, by="Group of"), family=family)
        y = rng.uniform(size=N) < 1.0 / (1.0 + np.exp(-rho))
    return gam.fit(data, y, max_iterations=8)


CASES = ("gaussian", "poisson", "bernoulli", "probit")


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
        for single in (False, True):
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
        found[case] = (
            gam,
            files[0],
            dict(zip(("double", "single", "none", "odd"), [*results, none, odd])),
        )
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


@pytest.mark.parametrize("case", CASES)
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
