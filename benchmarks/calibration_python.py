"""
pyGAM, or interpret's EBM, on the rows of ``calibration.py``; with any interpreter that has it.

Called with METHOD FAMILY DATA FOUND: reads rows with their ``replicate``, writes by row the
predictor and what the package says of its error, both on the link's scale. pyGAM: its confidence
intervals, at its default smoothness (``gridsearch`` as its pages have it). EBM: mean and standard
deviation of its bags (``predict_with_uncertainty``), without interactions, which there are none of.
"""

from __future__ import annotations

import sys
import time
import warnings
from typing import Any

import numpy as np
import pandas as pd

warnings.simplefilter("ignore")

COLUMNS = ["curve", "line", "absent", "g"]
LINKS: dict[str, Any] = {
    "gaussian": lambda mu: mu,
    "poisson": np.log,
    "gamma": np.log,
    "bernoulli": lambda mu: np.log(mu / (1.0 - mu)),
}
HALF = 1.959964


def pygam(rows: pd.DataFrame, family: str) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error of the predictor."""
    import pygam as module

    X = rows[COLUMNS].assign(g=rows["g"].map({"a": 0, "b": 1, "c": 2})).to_numpy(float)
    terms = module.s(0) + module.s(1) + module.s(2) + module.f(3)
    kind = {
        "gaussian": "LinearGAM", "poisson": "PoissonGAM", "gamma": "GammaGAM",
        "bernoulli": "LogisticGAM",
    }[family]  # fmt: skip
    gam = getattr(module, kind)(terms).gridsearch(X, rows["y"].to_numpy(), progress=False)
    link = LINKS[family]
    limits = link(gam.confidence_intervals(X, width=0.95))
    return limits.mean(axis=1), (limits[:, 1] - limits[:, 0]) / (2.0 * HALF)


def ebm(rows: pd.DataFrame, family: str) -> tuple[np.ndarray, np.ndarray]:
    """Mean of the bags' predictors, and their standard deviation."""
    from interpret.glassbox import ExplainableBoostingClassifier, ExplainableBoostingRegressor

    X, y = rows[COLUMNS], rows["y"]
    if family == "bernoulli":
        model = ExplainableBoostingClassifier(interactions=0, n_jobs=1).fit(X, y.astype(int))
    else:
        objective = {"gaussian": "rmse", "poisson": "poisson_deviance", "gamma": "gamma_deviance"}
        model = ExplainableBoostingRegressor(
            objective=objective[family], interactions=0, n_jobs=1
        ).fit(X, y)
    found = model.predict_with_uncertainty(X)
    return found[:, 0], found[:, 1]


def main(method: str, family: str, data: str, found: str) -> None:
    every, parts = pd.read_csv(data), []
    for replicate, rows in every.groupby("replicate"):
        rows = rows.reset_index(drop=True)
        start = time.process_time()
        mean, se = {"pyGAM": pygam, "EBM": ebm}[method](rows, family)
        seconds = time.process_time() - start
        own = {"replicate": replicate, "row": rows.index, "estimate": mean, "se": se}
        parts.append(pd.DataFrame({**own, "seconds": seconds}))
    pd.concat(parts).to_csv(found, index=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
