"""
pyGAM, interpret's EBM, or gamfit on all folds of a table; with any interpreter that has it.

Called with a task as JSON: ``method``, ``family`` and ``folder``, where ``table.csv`` has the rows,
their ``fold`` and the response ``y``. Writes ``METHOD.csv`` there: by row the mean, and what else a
density takes.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

warnings.simplefilter("ignore")


def pygam(train: pd.DataFrame, test: pd.DataFrame, family: str) -> dict[str, Any]:
    """Defaults, and its grid search of one smoothness for all terms."""
    import pygam as module

    names = [c for c in train if c not in ("y", "fold")]
    text = [c for c in names if not pd.api.types.is_numeric_dtype(train[c])]
    places = {c: {v: i for i, v in enumerate(sorted(train[c].unique()))} for c in text}
    X, new = (
        np.column_stack([t[c].map(places[c]).fillna(0) if c in text else t[c] for c in names])
        for t in (train, test)
    )
    terms = None
    for i, name in enumerate(names):
        term = module.f(i) if name in text else module.s(i)
        terms = term if terms is None else terms + term
    kind = {"gaussian": "LinearGAM", "count": "PoissonGAM", "bernoulli": "LogisticGAM"}[family]
    gam = getattr(module, kind)(terms).gridsearch(X, train["y"].to_numpy(), progress=False)
    if family == "bernoulli":
        return {"mean": gam.predict_proba(new)}
    mean = gam.predict(new)
    if family == "count":
        return {"mean": mean}
    limits = gam.prediction_intervals(new, width=0.9)
    return {"mean": mean, "sd": (limits[:, 1] - limits[:, 0]) / (2.0 * 1.6448536)}


def ebm(train: pd.DataFrame, test: pd.DataFrame, family: str) -> dict[str, Any]:
    """
    Defaults, which take interactions that FAST finds.

    It has no density: of normal responses the sd is that of a fifth of the training rows, predicted
    from the others.
    """
    from interpret.glassbox import ExplainableBoostingClassifier, ExplainableBoostingRegressor

    names = [c for c in train if c not in ("y", "fold")]
    if family == "bernoulli":
        model = ExplainableBoostingClassifier().fit(train[names], train["y"].astype(int))
        return {"mean": model.predict_proba(test[names])[:, 1]}
    options = {"objective": "poisson_deviance"} if family == "count" else {}
    model = ExplainableBoostingRegressor(**options).fit(train[names], train["y"])
    result = {"mean": model.predict(test[names])}
    if family == "gaussian":
        fifth = np.random.default_rng(0).permutation(len(train)) < len(train) // 5
        again = ExplainableBoostingRegressor(outer_bags=4).fit(
            train.loc[~fifth, names], train.loc[~fifth, "y"]
        )
        rest = train.loc[fifth, "y"] - again.predict(train.loc[fifth, names])
        result["sd"] = np.full(len(test), float(np.sqrt(np.mean(rest**2))))
    return result


def gamfit(train: pd.DataFrame, test: pd.DataFrame, family: str) -> dict[str, Any]:
    """Defaults: a smooth of each number, and levels as it takes text."""
    import gamfit as module

    names = [c for c in train if c not in ("y", "fold")]
    terms = [f"s({c})" if pd.api.types.is_numeric_dtype(train[c]) else c for c in names]
    kind = {"gaussian": "gaussian", "count": "negative-binomial", "bernoulli": "binomial"}[family]
    model = module.fit(train.drop(columns="fold"), "y ~ " + " + ".join(terms), family=kind)
    table = model.predict(test[names], interval=0.9)
    mean = np.asarray(model.predict(test[names]), float)
    result: dict[str, Any] = {"mean": mean}
    if family == "gaussian":
        columns = {c: np.asarray(table[c], float) for c in table}
        lower = next(v for c, v in columns.items() if c.endswith("_lower"))
        upper = next(v for c, v in columns.items() if c.endswith("_upper"))
        se = (upper - lower) / (2.0 * 1.6448536)
        result["sd"] = np.sqrt(float(model.scale) + se**2)
    if family == "count":
        size = negative_binomial_size(model)
        if size is not None:
            result["size"] = np.full(len(mean), size)
    return result


def negative_binomial_size(model: Any) -> float | None:
    """As its summary prints it."""
    import re

    match = re.search(
        r"[Tt]heta[^0-9\n]*([0-9][0-9.e+-]*)", f"{model.family_name} {model.summary()}"
    )
    return float(match.group(1)) if match else None


def main(task: dict[str, Any]) -> None:
    folder = Path(task["folder"])
    table = pd.read_csv(folder / "table.csv", keep_default_na=False)
    fit, parts = {"pyGAM": pygam, "EBM": ebm, "gamfit": gamfit}[task["method"]], []
    for fold in sorted(table["fold"].unique()):
        train, test = (table[which] for which in (table["fold"] != fold, table["fold"] == fold))
        start = time.perf_counter()
        result = fit(train.reset_index(drop=True), test.reset_index(drop=True), task["family"])
        seconds = time.perf_counter() - start
        parts.append(pd.DataFrame({**result, "row": test.index, "fold": fold, "seconds": seconds}))
    pd.concat(parts).to_csv(folder / f"{task['method']}.csv", index=False)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
