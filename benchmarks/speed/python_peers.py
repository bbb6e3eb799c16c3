"""pyGAM, or interpret's EBM, measured as ours are; with any interpreter that has them."""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from columns import Columns, Levels, read


def matrix(columns: Columns) -> np.ndarray:
    """The covariates side by side; levels by their places."""
    covariates = [c for name, c in columns.items() if name != "y"]
    return np.column_stack([c.codes if isinstance(c, Levels) else c for c in covariates])


def pygam(columns: Columns, task: dict[str, Any]) -> Any:
    """Smoothness by its grid search, one for all terms, which is what it offers."""
    import pygam as module

    terms = None
    covariates = [c for name, c in columns.items() if name != "y"]
    for i, column in enumerate(covariates):
        two = not isinstance(column, Levels) and len(np.unique(column[:1000])) == 2
        if isinstance(column, Levels):
            term = module.f(i)
        else:
            term = module.l(i) if two else module.s(i, n_splines=task["k"])
        terms = term if terms is None else terms + term
    kind = {"gaussian": "LinearGAM", "poisson": "PoissonGAM", "bernoulli": "LogisticGAM"}
    gam = getattr(module, kind[task["family"]])(terms)
    return gam.gridsearch(matrix(columns), columns["y"], progress=False)


def ebm(columns: Columns, task: dict[str, Any]) -> Any:
    """Main effects alone, but for a screen of interactions, which it chooses by FAST."""
    from interpret.glassbox import ExplainableBoostingClassifier, ExplainableBoostingRegressor

    covariates = [c for name, c in columns.items() if name != "y"]
    options = {
        "interactions": task.get("interactions", 0),
        "feature_types": ["nominal" if isinstance(c, Levels) else "continuous" for c in covariates],
    }
    if task["family"] == "bernoulli":
        model = ExplainableBoostingClassifier(**options)
        return model.fit(matrix(columns), columns["y"].astype(int))
    if task["family"] == "poisson":
        options["objective"] = "poisson_deviance"
    return ExplainableBoostingRegressor(**options).fit(matrix(columns), columns["y"])


def response(model: Any, X: np.ndarray) -> np.ndarray:
    if hasattr(model, "predict_proba"):
        p = np.asarray(model.predict_proba(X))
        return p[:, 1] if p.ndim == 2 else p
    return np.asarray(model.predict(X), float)


def predictor(mean: np.ndarray, family: str) -> np.ndarray:
    """Through the link."""
    if family == "poisson":
        return np.log(np.maximum(mean, 1e-12))
    if family == "bernoulli":
        p = np.clip(mean, 1e-12, 1.0 - 1e-12)
        return np.log(p / (1.0 - p))
    return mean


def main(task: dict[str, Any]) -> dict[str, Any]:
    folder, stages = Path(task["folder"]), task["stages"]
    columns = read(folder / "train")
    fitting = {"pygam": pygam, "ebm": ebm}[task["method"]]
    if task["method"] == "ebm":
        import interpret.glassbox as package
    else:
        import pygam as package
    numbers: dict[str, Any] = {"module": package.__name__}
    start = time.perf_counter()
    model = fitting(columns, task)
    numbers["first"] = time.perf_counter() - start
    numbers["memory_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    statistics = getattr(model, "statistics_", None)
    if statistics:
        numbers["edf"] = float(statistics["edof"])
    if "again" in stages:
        start = time.perf_counter()
        fitting(columns, task)
        numbers["again"] = time.perf_counter() - start
    if "predictor" in stages:
        eta = predictor(response(model, matrix(columns)), task["family"])
        eta.astype("<f8").tofile(folder / "predictor.bin")
    if "expected" in stages:
        mean = response(model, matrix(read(folder / "test")))
        mean.astype("<f8").tofile(folder / "expected.bin")
    return numbers


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
