"""
pyGAM, interpret's EBM or gamfit, for any interpreter that has them.

Called with a folder of data and a task as JSON, which says for which benchmark: ``speed``,
``tables`` or ``shapes``.
"""

from __future__ import annotations

import json
import operator
import re
import resource
import sys
import time
import warnings
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from columns import is_levels, read

Task = dict[str, Any]


# --- fits ------------------------------------------------------------------------------------


def pygam(X: Any, y: Any, family: str, terms: Any) -> Any:
    """Smoothness by its grid search, one for all terms, which is what it offers."""
    import pygam as module

    kind = {"gaussian": "LinearGAM", "bernoulli": "LogisticGAM"}.get(family, "PoissonGAM")
    return getattr(module, kind)(terms).gridsearch(X, np.asarray(y), progress=False)


def pygam_terms(kinds: list[str], k: int = 20) -> Any:
    """A term a column: of ``levels``, a ``line``, or a smooth."""
    import pygam as module

    of = {"levels": module.f, "line": module.l, "": partial(module.s, n_splines=k)}
    return reduce(operator.add, (of[kind](i) for i, kind in enumerate(kinds)))


def ebm(X: Any, y: Any, family: str, **options: Any) -> Any:
    from interpret.glassbox import ExplainableBoostingClassifier, ExplainableBoostingRegressor

    if family == "bernoulli":
        return ExplainableBoostingClassifier(**options).fit(X, y.astype(int))
    if family != "gaussian":
        options["objective"] = "poisson_deviance"
    return ExplainableBoostingRegressor(**options).fit(X, y)


def response(model: Any, X: Any) -> np.ndarray:
    """Expected responses, or probabilities of a one."""
    if hasattr(model, "predict_proba"):
        p = np.asarray(model.predict_proba(X))
        return p[:, 1] if p.ndim == 2 else p
    return np.asarray(model.predict(X), float)


# --- speed -----------------------------------------------------------------------------------


def matrix(table: pd.DataFrame) -> np.ndarray:
    """The covariates side by side; levels by their places."""
    covariates = table.drop(columns="y", errors="ignore")
    return np.column_stack([c.cat.codes if is_levels(c) else c for _, c in covariates.items()])


def predictor(mean: np.ndarray, family: str) -> np.ndarray:
    """Through the link."""
    if family == "poisson":
        return np.log(np.maximum(mean, 1e-12))
    if family == "bernoulli":
        p = np.clip(mean, 1e-12, 1.0 - 1e-12)
        return np.log(p / (1.0 - p))
    return mean


def timed_fit(table: pd.DataFrame, task: Task) -> Any:
    """EBM has main effects alone, but for a screen of interactions, which it chooses by FAST."""
    covariates = [c for name, c in table.items() if name != "y"]
    levels = [is_levels(c) for c in covariates]
    X, y, family = matrix(table), table["y"].to_numpy(), task["family"]
    if task["method"] == "ebm":
        types = ["nominal" if level else "continuous" for level in levels]
        return ebm(X, y, family, interactions=task.get("interactions", 0), feature_types=types)
    two = [not level and len(np.unique(c[:1000])) == 2 for c, level in zip(covariates, levels)]
    kinds = ["levels" if level else "line" if line else "" for level, line in zip(levels, two)]
    return pygam(X, y, family, pygam_terms(kinds, task["k"]))


def speed(folder: Path, task: Task) -> Task:
    """A fit, and what is asked of it, measured as ours are."""
    stages, columns = task["stages"], read(folder / "train")
    if task["method"] == "ebm":
        import interpret.glassbox as package
    else:
        import pygam as package
    numbers: Task = {"module": package.__name__}
    start = time.perf_counter()
    model = timed_fit(columns, task)
    numbers["first"] = time.perf_counter() - start
    numbers["memory_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    statistics = getattr(model, "statistics_", None)
    if statistics:
        numbers["edf"] = float(statistics["edof"])
    if "again" in stages:
        start = time.perf_counter()
        timed_fit(columns, task)
        numbers["again"] = time.perf_counter() - start
    if "predictor" in stages:
        eta = predictor(response(model, matrix(columns)), task["family"])
        eta.astype("<f8").tofile(folder / "predictor.bin")
    if "expected" in stages:
        mean = response(model, matrix(read(folder / "test")))
        mean.astype("<f8").tofile(folder / "expected.bin")
    return numbers


# --- tables ----------------------------------------------------------------------------------


def of_pygam(train: pd.DataFrame, test: pd.DataFrame, family: str, text: list[str]) -> Task:
    """Defaults, and its grid search."""
    names = [c for c in train if c != "y"]
    places = {c: {v: i for i, v in enumerate(sorted(train[c].unique()))} for c in text}
    X, new = (
        np.column_stack([t[c].map(places[c]).fillna(0) if c in text else t[c] for c in names])
        for t in (train, test)
    )
    terms = pygam_terms(["levels" if c in text else "" for c in names])
    gam = pygam(X, train["y"], family, terms)
    if family != "gaussian":
        return {"mean": response(gam, new)}
    limits = gam.prediction_intervals(new, width=0.9)
    sd = (limits[:, 1] - limits[:, 0]) / (2.0 * 1.6448536)
    return {"mean": response(gam, new), "sd": sd}


def of_ebm(train: Any, test: Any, family: str, text: list[str]) -> Task:
    """
    Defaults, which take interactions that FAST finds.

    It has no density: of normal responses the sd is that of a fifth of the training rows, predicted
    from the others.
    """
    names = [c for c in train if c != "y"]
    result = {"mean": response(ebm(train[names], train["y"], family), test[names])}
    if family == "gaussian":
        fifth = np.random.default_rng(0).permutation(len(train)) < len(train) // 5
        known, other = train.loc[~fifth], train.loc[fifth]
        again = ebm(known[names], known["y"], family, outer_bags=4)
        rest = other["y"] - again.predict(other[names])
        result["sd"] = np.full(len(test), float(np.sqrt(np.mean(rest**2))))
    return result


def of_gamfit(train: Any, test: Any, family: str, text: list[str]) -> Task:
    """Defaults: a smooth of each number, and levels as it takes text."""
    import gamfit as module

    names = [c for c in train if c != "y"]
    terms = [c if c in text else f"s({c})" for c in names]
    kind = {"gaussian": "gaussian", "count": "negative-binomial", "bernoulli": "binomial"}[family]
    model = module.fit(train, "y ~ " + " + ".join(terms), family=kind)
    mean = np.asarray(model.predict(test[names]), float)
    result: Task = {"mean": mean}
    if family == "gaussian":
        table = model.predict(test[names], interval=0.9)
        columns = {c: np.asarray(table[c], float) for c in table}
        lower = next(v for c, v in columns.items() if c.endswith("_lower"))
        upper = next(v for c, v in columns.items() if c.endswith("_upper"))
        se = (upper - lower) / (2.0 * 1.6448536)
        result["sd"] = np.sqrt(float(model.scale) + se**2)
    if family == "count":  # the size is in what its summary prints alone
        printed = f"{model.family_name} {model.summary()}"
        match = re.search(r"[Tt]heta[^0-9\n]*([0-9][0-9.e+-]*)", printed)
        if match:
            result["size"] = np.full(len(mean), float(match.group(1)))
    return result


def tables(folder: Path, task: Task) -> Task:
    """All folds of a table: by row the mean, and what else a density takes."""
    table = pd.read_csv(folder / "data.csv", keep_default_na=False)
    text = [c for c in table if not pd.api.types.is_numeric_dtype(table[c])]
    fit, parts = {"pyGAM": of_pygam, "EBM": of_ebm, "gamfit": of_gamfit}[task["method"]], []
    fold = table.pop("fold")
    for number in sorted(fold.unique()):
        train, test = table[fold != number].reset_index(drop=True), table[fold == number]
        start = time.perf_counter()
        result = fit(train, test.reset_index(drop=True), task["family"], text)
        seconds = time.perf_counter() - start
        part = {**result, "row": test.index, "fold": number, "seconds": seconds}
        parts.append(pd.DataFrame(part))
    pd.concat(parts).to_csv(folder / "answers.csv", index=False)
    return {}


# --- shapes ----------------------------------------------------------------------------------


def shapes(folder: Path, task: Task) -> Task:
    """The effect of x on a grid, with a shape, of each replicate."""
    from pygam import s

    data, parts = pd.read_csv(folder / "data.csv"), []
    grid = np.linspace(*task["grid"])
    constraint = {"increasing": "monotonic_inc", "convex": "convex"}[task["shape"]]
    for replicate, rows in data.groupby("replicate"):
        X = rows[["x", "z"]].to_numpy()
        start = time.perf_counter()
        gam = pygam(X, rows["y"], task["family"], s(0, constraints=constraint) + s(1))
        seconds = time.perf_counter() - start
        at = np.stack([grid, np.zeros(len(grid))], axis=1)
        estimate, limits = gam.partial_dependence(term=0, X=at, width=0.95)
        # terms are not centred: about the mean over the data
        level = float(np.mean(gam.partial_dependence(term=0, X=X)))
        part = {
            "method": "pyGAM",
            "replicate": replicate,
            "effect": "s(x)",
            "place": np.arange(len(grid)),
            "estimate": estimate - level,
            "lower": limits[:, 0] - level,
            "upper": limits[:, 1] - level,
            "seconds": seconds,
        }
        parts.append(pd.DataFrame(part))
    pd.concat(parts).to_csv(folder / "answers.csv", index=False)
    return {}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    asked = json.loads(sys.argv[2])
    answer = {f.__name__: f for f in (speed, tables, shapes)}[asked["task"]]
    print(json.dumps(answer(Path(sys.argv[1]), asked)))
