"""
How well do main effects and pairwise interactions predict? Beside published additive GPs.

autoMPG and breast as "Additive Gaussian Processes Revisited" (OAK; Lu, Boukouvalas & Hensman, 2022)
has them: rows permuted with seed 4, five folds, test inputs clipped to the training range, RMSE in
original units (or error in %), NLL per row of the response standardised on the training rows.
Concrete as "Additive Gaussian Processes" (Duvenaud, Nickisch & Rasmussen, 2011) has it: all columns
standardised, ten folds in the file's order, MSE and NLL. NLLs of ours are averaged over uncertain
hyperparameters. AutoMPG is also fitted with a noise that varies with the inputs. The data are that
paper's .mat files (repository duvenaud/additive-gps).

Interactions are all pairs (``--orders 2``), or those that ``gpflow_gam.anova`` chooses by looking
at the training rows of each fold (``--orders screened``): all that the evidence is for
(``--min-gain 0``), in two ``--rounds``, the second beside those of the first; the table says how
many a fold has on average. Run it with ``python benchmarks/uci.py --data FOLDER``.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from recording import parser_of, record
from scipy.io import loadmat
from sklearn.model_selection import KFold

import gpflow_gam as gg
from gpflow_gam.gam.terms import Terms

ORDERS = {"1": "order 1", "2": "order 2", "screened": "order 2, screened"}
"""What ``--orders`` takes, and the rows' names."""


class Published(NamedTuple):
    """Means over folds, and standard deviations where they are stated."""

    error: float
    error_sd: float | None
    nll: float
    nll_sd: float | None


class Source(NamedTuple):
    """A data set: its name and unit, file, families of ours, and what papers state."""

    title: str
    file: str
    families: list[str]
    published: dict[str, Published]


SOURCES = {
    "autompg": Source(
        "autoMPG, RMSE",
        "autompg.mat",
        ["gaussian", "heteroskedastic"],
        {"OAK": Published(2.685, 0.365, 0.349, 0.216)},
    ),
    "breast": Source(
        "breast, error, %",
        "breast.mat",
        ["bernoulli"],
        {"OAK": Published(5.56, 1.39, 0.143, 0.036)},
    ),
    "concrete": Source(
        "concrete, MSE",
        "r_concrete_1030.mat",
        ["gaussian"],
        {
            "Duvenaud's GP-GAM": Published(0.149, None, 0.467, None),
            "Duvenaud's SE-ARD": Published(0.157, None, 0.398, None),
            "Duvenaud's additive": Published(0.089, None, 0.114, None),
        },
    ),
}


def terms_of(data: pd.DataFrame, family: str, order: str, options: argparse.Namespace) -> Terms:
    """
    A main effect of every column, and interactions of every pair or of those that stand out.

    Text columns are factors.
    """
    if order == "screened":
        terms = gg.anova(
            data=data,
            y="y",
            family=family,
            k=24,
            max_interactions=options.max_interactions,
            min_gain=options.min_gain,
            rounds=options.rounds,
        )
    else:
        terms = gg.anova([c for c in data if c != "y"], int(order), k=24)
    text = set(data.select_dtypes(exclude="number"))
    pairs = [dataclasses.replace(t, k=options.num_inducing) for t in terms if len(t.columns) > 1]
    main = [t for t in terms if len(t.columns) == 1]
    return Terms([gg.factor(*t.columns) if text & {*t.columns} else t for t in main] + pairs)


def load(folder: Path, name: str) -> pd.DataFrame:
    """Inputs, with a column of at most three values as text, and the response ``y``."""
    content = loadmat(folder / SOURCES[name].file)
    X = np.asarray(content["X"], dtype=float)
    if name == "autompg":
        X, y = X[:, 1:], X[:, 0]
    else:
        y = np.asarray(content["y"], dtype=float)[:, 0]
    data = pd.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])])
    for column in data:
        if data[column].nunique() <= 3:
            data[column] = "level " + data[column].astype(int).astype(str)
    if name == "concrete":
        numeric = data.select_dtypes("number")
        data = data.assign(**(numeric - numeric.mean()) / numeric.std())
        y = (y - y.mean()) / y.std(ddof=1)
    return data.assign(y=(y > 0).astype(int) if name == "breast" else y)


def folds(data: pd.DataFrame, name: str) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """Rows to train and to test on, whose numbers are within the range of those to train on."""
    splits = KFold(10) if name == "concrete" else KFold(5)
    if name != "concrete":
        order = np.random.RandomState(4).permutation(len(data))
        data = data.iloc[order].reset_index(drop=True)
    for train, test in splits.split(data):
        known, new = data.iloc[train], data.iloc[test]
        numeric = known.drop(columns="y").select_dtypes("number")
        limits = numeric.min(), numeric.max()
        yield known, new.assign(**new[numeric.columns].clip(*limits, axis=1))


def scores(
    name: str, family: str, order: str, options: argparse.Namespace
) -> Iterator[tuple[float, float, int, float]]:
    """Error, NLL of the standardised response, interactions and seconds of each fold."""
    for number, (train, test) in enumerate(folds(load(options.data, name), name)):
        scale = 1.0
        if name != "breast":
            mean, scale = train["y"].mean(), float(train["y"].std(ddof=0))
            train, test = (d.assign(y=(d["y"] - mean) / scale) for d in (train, test))
        start = time.perf_counter()
        gam = gg.GAM(terms_of(train, family, order, options), family=family).fit(train, y="y")
        result, y = np.asarray(gam.predict(test, type="response")), test["y"].to_numpy()
        nll = -float(np.mean(gam.log_density(test, unconditional=True)))
        seconds = time.perf_counter() - start
        if name == "breast":
            error = 100.0 * float(np.mean((result > 0.5) != y))
        else:
            error = scale * float(np.sqrt(np.mean((result - y) ** 2)))
        if name == "concrete":  # its response is standardised once, over all rows
            error, nll = error**2, nll + float(np.log(scale))
        interactions = sum(len(t.columns) > 1 for t in gam.terms)
        told = f"{error:.3f}, {nll:.3f}, {interactions} interactions, {seconds:.0f} s"
        print(f"{name}, fold {number}: {told}", file=sys.stderr, flush=True)
        yield error, nll, interactions, seconds


def row_of(title: str, method: str, numbers: Published) -> dict[str, Any]:
    heads = ("error", "error, sd", "NLL", "NLL, sd")
    return {"data": title, "method": method, **dict(zip(heads, numbers))}


def rows_of(name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """What is published, and ours."""
    source = SOURCES[name]
    rows = [row_of(source.title, f"{m}, published", p) for m, p in source.published.items()]
    families = [f for f in source.families if f in (options.families or [f])]
    for family, order in itertools.product(families, options.orders):
        each = np.array(list(scores(name, family, order, options)))
        mean, sd = each.mean(axis=0).tolist(), each.std(axis=0).tolist()
        numbers = Published(mean[0], sd[0], mean[1], sd[1])
        row = row_of(source.title, f"ours, {family}, {ORDERS[order]}", numbers)
        rows.append({**row, "interactions": mean[2], "s a fold": mean[3]})
    return rows


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the .mat files")
    parser.add_argument("--datasets", nargs="+", choices=list(SOURCES), default=list(SOURCES))
    parser.add_argument("--orders", nargs="+", choices=list(ORDERS), default=list(ORDERS))
    parser.add_argument("--families", nargs="+", help="only these; all of a data set by default")
    parser.add_argument("--num-inducing", type=int, default=16, help="of an interaction")
    parser.add_argument("--max-interactions", type=int, help="that a screen chooses")
    parser.add_argument("--min-gain", type=float, default=0.0, help="of an interaction, in nats")
    parser.add_argument("--rounds", type=int, default=2, help="screens, each beside those before")
    options = parser.parse_args()
    rows = [row for name in options.datasets for row in rows_of(name, options)]
    record(
        "uci",
        "Additive GPs on UCI data, with published results of OAK and Duvenaud",
        rows,
        options,
        within=("data",),
        method="method",
        ours=sorted({r["method"] for r in rows if r["method"].startswith("ours")}),
        better={"error": "lower", "NLL": "lower"},
    )


if __name__ == "__main__":
    main()
