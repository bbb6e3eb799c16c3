"""
How well do defaults predict on public tables? Beside mgcv, pyGAM, EBM, gamfit and exact GPs.

Twenty tables that registries carry (``tables/datasets.py``): ten with normal responses, six binary,
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

import argparse
import json
import multiprocessing
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import KFold
from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).with_suffix("")))

from datasets import DATASETS, Table
from methods import exact, ours, quiet
from recording import add_option, record
from scores import Prediction, scored

FOLDS = 5
MGCV = Path(__file__).parent / "mgcv" / "tables.R"
PEERS = Path(__file__).with_suffix("") / "python_peers.py"
MODULES = {"pyGAM": "pygam", "EBM": "interpret.glassbox", "gamfit": "gamfit"}
PACKAGES = {"pyGAM": "pygam", "EBM": "interpret-core", "gamfit": "gamfit"}
HERE: dict[str, Callable[[Table, np.ndarray, np.ndarray], Prediction | None]] = {
    "ours": ours("1"),
    "ours, screened": ours("screened"),
    "exact GP": exact,
}
METHODS = (*HERE, "mgcv", *MODULES)
SCORES = ("error", "log score", "coverage of 90 %", "seconds")


def there(python: str) -> dict[str, str]:
    """Peers that are there, and their versions."""
    result = {}
    for method, module in MODULES.items():
        code = f"import {module}, importlib.metadata as m; print(m.version({PACKAGES[method]!r}))"
        done = subprocess.run([python, "-c", code], capture_output=True, text=True)
        if done.returncode == 0:
            result[method] = done.stdout.split()[-1]
    if shutil.which("Rscript"):
        done = subprocess.run(["Rscript", "-e", "library(mgcv)"], capture_output=True)
        result |= {"mgcv": ""} if done.returncode == 0 else {}
    return result


def elsewhere(
    method: str, table: Table, fold: np.ndarray, python: str, limit: float
) -> dict[int, Prediction]:
    """
    A peer's predictions by fold, in a process of its own.

    :raises RuntimeError: it failed, or took longer than ``limit`` seconds.
    """
    with tempfile.TemporaryDirectory() as folder:
        table.frame.assign(fold=fold).to_csv(Path(folder) / "table.csv", index=False)
        task = {"method": method, "family": table.family, "folder": folder}
        command = [python, str(PEERS), json.dumps(task)]
        if method == "mgcv":
            command = ["Rscript", str(MGCV), table.family, folder]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"longer than {limit:g} s") from None
        if done.returncode:
            raise RuntimeError((done.stderr.strip().splitlines() or ["failed"])[-1])
        result = pd.read_csv(Path(folder) / f"{method}.csv")
    predictions = {}
    for number, own in result.groupby("fold"):
        own = own.set_index("row").loc[np.flatnonzero(fold == number)]
        predictions[int(number)] = Prediction(
            own["mean"].to_numpy(),
            float(own["seconds"].iloc[0]),
            sd=own["sd"].to_numpy() if "sd" in own else None,
            size=float(own["size"].iloc[0]) if "size" in own else None,
        )
    return predictions


def predictions_of(
    method: str, table: Table, fold: np.ndarray, python: str, limit: float
) -> dict[int, Prediction]:
    """By fold; none where a method is not for a table of its size."""
    if method not in HERE:
        return elsewhere(method, table, fold, python, limit)
    result = {}
    for number in range(FOLDS):
        made = HERE[method](table, np.flatnonzero(fold != number), np.flatnonzero(fold == number))
        if made is not None:
            result[number] = made
    return result


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
    quiet()
    table = DATASETS[name]()
    fold = np.empty(len(table.frame), int)
    for number, (_, test) in enumerate(KFold(FOLDS, shuffle=True, random_state=0).split(fold)):
        fold[test] = number
    rows = []
    for method in methods:
        kept = None if results is None else results / f"{name}, {method}.json"
        if kept is not None and kept.exists():
            row = json.loads(kept.read_text())
        else:
            row = row_of(name, table, method, fold, python, limit)
            if kept is not None:
                kept.write_text(json.dumps(row))
        if row is not None:
            rows.append(row)
    own = next((row.get("logs") for row in rows if row["method"] == "ours"), None)
    for row in rows:
        logs = row.pop("logs", None)
        if own is not None and logs is not None and row["method"] != "ours":
            row["se"] = float(np.std(np.subtract(logs, own), ddof=1) / np.sqrt(len(logs)))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--datasets", nargs="+", choices=list(DATASETS), default=list(DATASETS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--peers-python", default=sys.executable, metavar="PATH")
    parser.add_argument("--jobs", type=int, default=1, help="tables at once; above 1 for no times")
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds of a peer and a table")
    parser.add_argument(
        "--results", type=Path, help="keeps what is done, so that a run that was ended goes on"
    )
    parser.add_argument("--name", default="tables", help="of the JSON file")
    add_option(parser)
    arguments = parser.parse_args()
    known = there(arguments.peers_python)
    methods = [m for m in arguments.methods if m in HERE or m in known]
    if arguments.results is not None:
        arguments.results.mkdir(parents=True, exist_ok=True)
    run = partial(
        rows_of,
        methods=methods,
        python=arguments.peers_python,
        limit=arguments.limit,
        results=arguments.results,
    )
    with multiprocessing.get_context("spawn").Pool(arguments.jobs) as workers:
        rows = [row for result in workers.map(run, arguments.datasets, 1) for row in result]
    heads = list(dict.fromkeys(key for row in rows for key in row))
    print(tabulate([[row.get(h) for h in heads] for row in rows], headers=heads, floatfmt=".4g"))
    record(
        arguments.name,
        "Prediction on public tables, five folds: defaults of everybody",
        rows,
        argparse.Namespace(
            record=arguments.record, folds=FOLDS, limit=arguments.limit, jobs=arguments.jobs
        ),
        within=["data"],
        method="method",
        ours=["ours", "ours, screened"],
        better={"error": "lower", "log score": "lower", "seconds": "lower"},
        drawn={"error": "ratio", "log score": "difference"},
        skipped=[m for m in METHODS if m not in methods],
        peers=["R:mgcv"] if "mgcv" in methods else [],
        peer_versions={PACKAGES[m]: v for m, v in known.items() if v and m in methods},
    )


if __name__ == "__main__":
    main()
