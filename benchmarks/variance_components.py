"""
Are standard deviations of random effects those of REML, and do their intervals cover? Beside mgcv.

    y ~ s(x) + random_effect(g),   6, 12, 30 or 100 groups of 10 rows, or of 2 to 30

and beside it 48 plots nested in 12 sites, each observed in 10 years. The effect of x is a sine.
Effects of groups have a standard deviation of .5 (gaussian, as the noise) or 1 (binary); sites,
plots and years 1, .7 and .5, with noise of 1. mgcv is fitted to the same data, by REML, where
``Rscript`` is there. Run it with ``python benchmarks/variance_components.py``.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from harness import in_r
from recording import add_option, record
from scipy.special import expit
from tabulate import tabulate

SCRIPT = Path(__file__).parent / "mgcv" / "variance_components.R"
SIZES = 2, 3, 5, 8, 12, 30
"""Rows of groups, one after the other, where they are not all of 10."""


class Cell(NamedTuple):
    """One setting."""

    family: str
    design: str
    groups: int


CELLS = [
    *itertools.starmap(
        Cell, itertools.product(("gaussian", "binomial"), ("even", "uneven"), (6, 12, 30, 100))
    ),
    Cell("gaussian", "nested and crossed", 12),
    Cell("binomial", "nested and crossed", 12),
]


def true_sds(cell: Cell) -> dict[str, float]:
    """Standard deviations by column."""
    if cell.design == "nested and crossed":
        return {"site": 1.0, "plot": 0.7, "year": 0.5}
    return {"g": 0.5 if cell.family == "gaussian" else 1.0}


def replicate(cell: Cell, seed: int) -> pd.DataFrame:
    """Data of one setting."""
    rng = np.random.default_rng([seed, cell.groups])
    if cell.design == "nested and crossed":
        plot, year = (a.ravel() for a in np.indices((48, 10)))
        codes, noise = {"site": plot // 4, "plot": plot, "year": year}, 1.0
    else:
        sizes = 10 if cell.design == "even" else np.resize(SIZES, cell.groups)
        codes, noise = {"g": np.repeat(np.arange(cell.groups), sizes)}, 0.5
    number = len(next(iter(codes.values())))
    x = rng.uniform(size=number)
    eta = np.sin(2.0 * np.pi * x)
    for name, sd in true_sds(cell).items():
        eta = eta + sd * rng.normal(size=codes[name].max() + 1)[codes[name]]
    if cell.family == "gaussian":
        y = eta + noise * rng.normal(size=number)
    else:
        y = (rng.uniform(size=number) < expit(eta)).astype(float)
    levels = {name: [f"{name}{c:03d}" for c in own] for name, own in codes.items()}
    return pd.DataFrame({"x": x, "y": y, **levels})


def ours(cell: Cell, data: pd.DataFrame) -> pd.DataFrame:
    """Our standard deviations and their intervals."""
    import gpflow_gam as gg

    columns = list(true_sds(cell))
    terms = [gg.s("x"), *map(gg.random_effect, columns)]
    gam = gg.GAM(terms, family=cell.family).fit(data, "y", progress=False)
    table = gam.variance_components().set_index("term")
    own = table.loc[[f"random_effect({c})" for c in columns], ["sd", "lower", "upper"]]
    return own.assign(term=columns, method="ours")


def rows_of(cell: Cell, number: int, methods: list[str]) -> list[dict[str, Any]]:
    """Means over replicates of each method and variance."""
    made = [replicate(cell, seed) for seed in range(number)]
    result = []
    if "ours" in methods:
        result += [ours(cell, data).assign(replicate=i) for i, data in enumerate(made)]
    if "mgcv" in methods:
        result.append(in_r(SCRIPT, made, cell.family))
    every, rows = pd.concat(result), []
    for term, true in true_sds(cell).items():
        for method, own in every[every["term"] == term].groupby("method"):
            rows.append(
                {
                    **cell._asdict(),
                    "of": term,
                    "method": method,
                    "true sd": true,
                    "mean sd": own["sd"].mean(),
                    "its se": own["sd"].sem(),
                    "RMSE": np.sqrt(np.mean((own["sd"] - true) ** 2)),
                    "coverage": np.mean((own["lower"] <= true) & (true <= own["upper"])),
                }
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--replicates", type=int, default=40)
    add_option(parser)
    options = parser.parse_args()
    methods = ["ours", "mgcv"] if shutil.which("Rscript") else ["ours"]
    rows: list[dict[str, Any]] = []
    for i, cell in enumerate(CELLS):
        rows += rows_of(cell, options.replicates, methods)
        print(f"\r{i + 1}/{len(CELLS)}", end="", file=sys.stderr, flush=True)
    print(tabulate(rows, "keys", floatfmt=".3f"))
    record(
        "variance_components",
        "Standard deviations of random effects, beside REML",
        rows,
        options,
        within=["family", "design", "groups", "of"],
        method="method",
        ours=["ours"],
        better={"RMSE": "lower"},
        skipped=[] if "mgcv" in methods else ["mgcv"],
        peers=["R:mgcv"],
    )


if __name__ == "__main__":
    main()
