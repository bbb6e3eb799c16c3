"""mgcv on the rows of ``calibration.py``: the same quantities, where it has them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from bands import in_r
from scipy.stats import norm

SCRIPT = Path(__file__).parent / "mgcv" / "calibration.R"
R_FAMILIES = {
    "gaussian": "gaussian()",
    "student_t": "scat()",
    "gamma": "Gamma('log')",
    "beta": "betar()",
    "poisson": "poisson()",
    "negative_binomial": "nb()",
    "bernoulli": "binomial()",
}


def mgcv_is_there() -> bool:
    """Whether R and its package are."""
    if shutil.which("Rscript") is None:
        return False
    return subprocess.run(["Rscript", "-e", "library(mgcv)"], capture_output=True).returncode == 0


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
