"""mgcv, pyGAM and EBM on the rows of ``calibration.py``: quantities that they have an error of."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from bands import in_r
from of_r import mgcv_is_there as mgcv_is_there  # which calibration.py takes from here
from scipy.stats import norm

SCRIPT = Path(__file__).parent / "mgcv" / "calibration.R"
PYTHON = Path(__file__).parent / "calibration_python.py"
MODULES = {"pyGAM": ("pygam", "pygam"), "EBM": ("interpret.glassbox", "interpret-core")}
"""Modules and packages of peers with an interpreter of their own."""
PYTHON_FAMILIES = ("gaussian", "gamma", "poisson", "bernoulli")
R_FAMILIES = {
    "gaussian": "gaussian()",
    "student_t": "scat()",
    "gamma": "Gamma('log')",
    "beta": "betar()",
    "poisson": "poisson()",
    "negative_binomial": "nb()",
    "bernoulli": "binomial()",
}


def python_peers(python: str) -> dict[str, str]:
    """Which are there, and their versions."""
    found = {}
    for method, (module, package) in MODULES.items():
        code = f"import {module}, importlib.metadata as m; print(m.version({package!r}))"
        done = subprocess.run([python, "-c", code], capture_output=True, text=True)
        if done.returncode == 0:
            found[method] = done.stdout.split()[-1]
    return found


def python_places(
    method: str, python: str, family: str, data: list[tuple[Any, pd.DataFrame]]
) -> list[dict[str, np.ndarray]]:
    """
    By replicate, places of the predictor at the rows: what these packages have an error of.

    :param method: one of :func:`python_peers`.
    :param python: the interpreter.
    :param data: the truth and the rows of every replicate.
    """
    if family not in PYTHON_FAMILIES:
        return []
    with tempfile.TemporaryDirectory() as folder:
        rows, bands = Path(folder) / "rows.csv", Path(folder) / "bands.csv"
        pd.concat([t.assign(replicate=i) for i, (_, t) in enumerate(data)]).to_csv(rows)
        command = [python, str(PYTHON), method, family, str(rows), str(bands)]
        subprocess.run(command, check=True)
        every = pd.read_csv(bands)
    nothing, found = np.zeros(0), []
    for i, (truth, table) in enumerate(data):
        own = every[every["replicate"] == i].sort_values("row")
        away = (truth.predictor(table) - own["estimate"]) / np.maximum(own["se"], 1e-12)
        one = dict.fromkeys(
            ("curve", "line", "absent", "derivative", "levels", "response"), nothing
        )
        one |= {"predictor": norm.cdf(away), "seconds": own["seconds"].to_numpy()[:1]}
        found.append(one)
    return found


def mgcv_places(
    family: str, data: list[tuple[Any, pd.DataFrame]], grid: int
) -> list[dict[str, np.ndarray]]:
    """
    By replicate and quantity, places of true values; errors allow for smoothing parameters.

    :param data: the truth and the rows of every replicate.
    :param grid: how many points.
    """
    if family not in R_FAMILIES:
        return []
    bands = in_r(SCRIPT, [table for _, table in data], R_FAMILIES[family], grid)
    at, found = np.linspace(0.03, 0.97, grid), []
    for i, (truth, table) in enumerate(data):
        own, parts = bands[bands["replicate"] == i], truth.parts(table)
        true = {
            "curve": truth.curve(at) - parts["s(curve)"].mean(),
            "line": truth.slope * (at - table["line"].mean()),
            "absent": 0.0 * at,
            "predictor": truth.predictor(table),
            "levels": np.array(
                [truth.levels[1] - truth.levels[0], truth.levels[2] - truth.levels[0]]
            ),
        }
        one: dict[str, np.ndarray] = {"seconds": own["seconds"].to_numpy()[:1]}
        for quantity, value in true.items():
            band = own[own["quantity"] == quantity]
            one[quantity] = norm.cdf((value - band["estimate"]) / band["se"])
        found.append({**one, "derivative": np.zeros(0), "response": np.zeros(0)})
    return found
