"""
What a smooth's priors trade: lines and absent effects against a table of correlated columns.

The three truths of ``lines.py`` (root mean square errors; columns have nothing to do with each
other) and autoMPG as ``uci.py`` has it, main effects only (NLL of left-out rows; of seven columns
most go together), under other priors of how large a smooth's straight part and its deviation are,
and with the kernels that smooths had before: squared exponentials without a line. mgcv, by REML, is
fitted to the truths where ``Rscript`` is there. Run it with ``python benchmarks/line_priors.py
--data FOLDER``; without the folder there is no autoMPG.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
from bands import in_r
from lines import SCRIPT, truths
from recording import add_option, record
from sklearn.model_selection import KFold
from tabulate import tabulate
from uci import RESPONSE, clipped, load

import gpflow_gam as gg
from gpflow_gam import factor, s
from gpflow_gam.gam.components import kernels
from gpflow_gam.gam.components.priors import TREND, VARIANCE, SmoothPriors, VariancePrior
from gpflow_gam.gam.fits import specification

NARROW = VariancePrior(1.0, 1.0, 2.0)
"""Of a straight part that is not free."""
PRIORS: dict[str, SmoothPriors | None] = {
    "as they are": None,
    "deviations that hardly vanish": SmoothPriors(TREND, VariancePrior(0.1, 2.0, 2.0)),
    "deviations that do not vanish": SmoothPriors(TREND, VariancePrior(0.5, 1.5, 2.0)),
    "nor do, and lines not free": SmoothPriors(NARROW, VariancePrior(0.5, 1.5, 2.0)),
    "no line": SmoothPriors(TREND, VARIANCE),
}
"""By name; None of the library's own, which depend on what data say."""
KINDS = ("se", "matern52")
EFFECTS = ["s(wiggly)", "s(straight)", "s(absent)"]
SIZE = 24
"""Inducing inputs of a smooth of the truths, as in ``lines.py``."""


@contextlib.contextmanager
def under(name: str) -> Iterator[None]:
    """Fits in which smooths have other priors."""
    priors = PRIORS[name]
    with contextlib.ExitStack() as stack:
        if priors is not None:
            take = stack.enter_context
            take(mock.patch.object(specification, "smooth_priors", return_value=priors))
            if name == "no line":
                take(mock.patch.object(kernels, "_trends", return_value=[]))
        yield


def errors(estimate: Callable[[pd.DataFrame], pd.DataFrame], seed: int) -> list[float]:
    """Of the three effects of a data set, centred as estimates are."""
    data, f = truths(seed)
    found = estimate(data).to_numpy()
    return list(np.sqrt(np.mean(np.square(found - found.mean(0) - f + f.mean(0)), axis=0)))


def ours(kind: str) -> Callable[[pd.DataFrame], pd.DataFrame]:
    def estimate(data: pd.DataFrame) -> pd.DataFrame:
        terms = [s(c, k=SIZE, bs=kind) for c in data if c != "y"]
        return gg.GAM(terms).fit(data, "y", progress=False).predict(data, "terms")[EFFECTS]

    return estimate


def mgcv(number: int) -> list[list[float]]:
    every = in_r(SCRIPT, [truths(i)[0] for i in range(number)], SIZE)
    every = every[every["method"] == "mgcv REML"]
    found = []
    for i, own in every.groupby("replicate"):
        wide = own.pivot(index="row", columns="effect", values="estimate")
        found.append(errors(lambda data, w=wide: w[[c for c in data if c != "y"]], int(i)))
    return found


def densities(folder: Path, kind: str, permutations: Sequence[int]) -> list[float]:
    """NLL of autoMPG's left-out rows by permutation: means of five folds."""
    X, y = load(folder, "autompg")
    numeric = pd.api.types.is_numeric_dtype
    terms = [s(c, bs=kind) if numeric(X[c]) else factor(c) for c in X]
    found = []
    for seed in permutations:
        order = np.random.RandomState(seed).permutation(len(X))
        rows, response = X.iloc[order].reset_index(drop=True), y[order]
        folds = []
        for train, test in KFold(5).split(rows):
            mean, sd = response[train].mean(), response[train].std()
            data = rows.iloc[train].assign(**{RESPONSE: (response[train] - mean) / sd})
            new = clipped(rows.iloc[test], rows.iloc[train])
            new = new.assign(**{RESPONSE: (response[test] - mean) / sd})
            gam = gg.GAM(terms).fit(data, RESPONSE, progress=False)
            folds.append(-float(np.mean(gam.log_density(new, unconditional=True))))
        found.append(float(np.mean(folds)))
    return found


def row(name: str, kind: str, found: Sequence[Sequence[float]], nll: Sequence[float]) -> Any:
    means, error = np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / np.sqrt(len(found))
    own: dict[str, Any] = {"method": f"{name}, {kind}" if kind else name}
    for effect, mean, se in zip(("wiggly", "straight", "absent"), means, error):
        own[f"RMSE, {effect}"], own[f"its se, {effect}"] = float(mean), float(se)
    own["NLL, autoMPG"] = float(np.mean(nll)) if len(nll) else None
    return own


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of autompg.mat")
    parser.add_argument("--replicates", type=int, default=100)
    parser.add_argument("--permutations", type=int, default=7, help="of autoMPG's rows")
    parser.add_argument("--priors", nargs="+", choices=list(PRIORS), default=list(PRIORS))
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    add_option(parser)
    arguments = parser.parse_args()
    seeds = range(arguments.permutations) if arguments.data else ()
    rows = []
    for name in arguments.priors:
        for kind in arguments.kinds:
            with under(name):
                found = [errors(ours(kind), i) for i in range(arguments.replicates)]
                nll = densities(arguments.data, kind, seeds) if arguments.data else []
            rows.append(row(name, kind, found, nll))
            print(rows[-1], flush=True)
    with_mgcv = shutil.which("Rscript") is not None
    if with_mgcv:
        rows.append(row("mgcv, REML", "", mgcv(arguments.replicates), []))
    print(tabulate(rows, headers="keys", floatfmt=".4f"))
    record(
        "lines_priors",
        "Smooths under other priors: three truths, and autoMPG",
        rows,
        arguments,
        method="method",
        ours=["as they are, se"],
        better={c: "lower" for c in rows[0] if "its se" not in c and c != "method"},
        skipped=[] if with_mgcv else ["mgcv"],
        peers=["R:mgcv"],
    )


if __name__ == "__main__":
    main()
