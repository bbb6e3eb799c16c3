"""
Are credible intervals honest where covariates are correlated? Beside mgcv.

    y ~ s(x1) + ... + s(xC),   x1 and u2, ..., uC uniform,   xj = a x1 + (1 - a) uj

where a gives x1 and every other column the correlation r, and two others r^2. The effects are a
step, a sine, none, a parabola, an exponential and a line, the first C of them. Responses are
gaussian (noise of standard deviation 2), binary, Poisson and gamma. Curves are judged on an even
grid of 50 points, centred over it; differences are those between a tenth, three, five, seven and
nine tenths of the grid; the predictor is judged at the data. Recorded are means over data sets and
effects. mgcv is fitted by REML, with and without ``select=TRUE``, to the same data, with
``vcov(unconditional=TRUE)``, where ``Rscript`` is there. Run it with
``python benchmarks/concurvity.py``.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from harness import HALF, in_r
from recording import add_option, record
from scipy.special import expit
from tabulate import tabulate

SCRIPT = Path(__file__).parent / "mgcv" / "concurvity.R"
NUM_GRID = 50
QUARTERS = np.round((NUM_GRID - 1) * np.array([0.1, 0.3, 0.5, 0.7, 0.9])).astype(int)
EFFECTS: list[Callable[[np.ndarray], np.ndarray]] = [
    lambda x: 3.0 / (1.0 + np.exp(-14.0 * (x - 0.5))),
    lambda x: np.sin(5.0 * x),
    lambda x: 0.0 * x,
    lambda x: 6.0 * (x - 0.5) ** 2,
    lambda x: 0.3 * np.exp(2.0 * x),
    lambda x: 1.5 * x,
]
UNITS = {"gaussian": 1.0, "binomial": 1.0, "poisson": 0.3, "gamma": 0.4}
"""What effects are multiplied by, on the scale of the link."""


class Cell(NamedTuple):
    """One setting."""

    family: str
    terms: int
    correlation: float
    rows: int


def cells(families: list[str]) -> list[Cell]:
    """Every correlation and number of rows with two terms, and every number of terms."""
    two = [
        Cell(f, 2, r, n)
        for f, r, n in itertools.product(families, (0.0, 0.5, 0.8, 0.9, 0.95), (200, 600, 2000))
    ]
    more = [Cell(f, c, 0.9, 600) for f, c in itertools.product(families, (3, 4, 5, 6))]
    return two + more


def replicate(cell: Cell, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Data, and the true effects [N, C] of their columns."""
    rng = np.random.default_rng([seed, *map(int, (cell.terms, 100 * cell.correlation, cell.rows))])
    u, odds = rng.uniform(size=(cell.rows, cell.terms)), cell.correlation
    share = odds / (odds + np.sqrt(1.0 - odds**2))
    x = share * u[:, :1] + (1.0 - share) * u
    x[:, 0] = u[:, 0]
    f = true_effects(cell, x)
    eta = f.sum(axis=1)
    if cell.family == "gaussian":
        y = eta + 2.0 * rng.normal(size=cell.rows)
    elif cell.family == "binomial":
        y = rng.uniform(size=cell.rows) < expit(eta - 1.5)
    elif cell.family == "poisson":
        y = rng.poisson(np.exp(eta))
    else:
        y = rng.gamma(2.0, np.exp(eta) / 2.0)
    data = pd.DataFrame(x, columns=[f"x{j + 1}" for j in range(cell.terms)])
    return data.assign(y=y.astype(float)), f


def true_effects(cell: Cell, x: np.ndarray) -> np.ndarray:
    """The effects of columns x [n, C]."""
    return UNITS[cell.family] * np.stack([f(c) for f, c in zip(EFFECTS, x.T)], axis=1)


def grid_of(data: pd.DataFrame) -> np.ndarray:
    """An even grid over each column, [G, C]."""
    x = data.drop(columns="y").to_numpy()
    return np.linspace(x.min(axis=0), x.max(axis=0), NUM_GRID)


def summarised(effect: str, mean: np.ndarray, covariance: np.ndarray) -> pd.DataFrame:
    """A curve on the grid, centred over it, and its differences."""
    centre = np.eye(NUM_GRID) - 1.0 / NUM_GRID
    every = np.concatenate([centre, np.diff(np.eye(NUM_GRID)[QUARTERS], axis=0)])
    se = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", every, covariance, every), 0.0))
    steps = len(QUARTERS) - 1
    return pd.DataFrame(
        {
            "effect": effect,
            "what": ["curve"] * NUM_GRID + ["difference"] * steps,
            "place": [*range(NUM_GRID), *range(steps)],
            "estimate": every @ mean,
            "se": se,
        }
    )


def ours(cell: Cell, data: pd.DataFrame) -> pd.DataFrame:
    """Our estimates and standard errors."""
    import gpflow_gam as gg

    columns = [c for c in data if c != "y"]
    start = time.perf_counter()
    gam = gg.GAM([gg.s(c) for c in columns], family=cell.family).fit(data, "y", progress=False)
    seconds = time.perf_counter() - start
    result = []
    for column, x in zip(columns, grid_of(data).T):
        estimate = gam.effects(f"s({column})", x)["estimate"].to_numpy()
        draws = gam.sample_effects(f"s({column})", x, 2000, seed=0)
        result.append(summarised(column, estimate, np.cov(draws.T)))
    mean, se = gam.predict(data, "link", se=True)
    place = np.arange(len(data))
    whole = {"effect": "predictor", "what": "predictor", "place": place, "estimate": mean, "se": se}
    result.append(pd.DataFrame(whole))
    return pd.concat(result).assign(seconds=seconds, method="ours")


def truth(cell: Cell, data: pd.DataFrame, f: np.ndarray) -> pd.DataFrame:
    """What estimates are to be."""
    of_grid = true_effects(cell, grid_of(data))
    curves = [
        summarised(c, of_grid[:, j], np.zeros((NUM_GRID, NUM_GRID)))
        for j, c in enumerate(c for c in data if c != "y")
    ]
    eta = f.sum(axis=1) - (1.5 if cell.family == "binomial" else 0.0)
    whole = {"effect": "predictor", "what": "predictor", "place": np.arange(len(data))}
    every = pd.concat([*curves, pd.DataFrame({**whole, "estimate": eta})])
    return every.rename(columns={"estimate": "true"}).drop(columns="se")


def scores(cell: Cell, number: int, methods: list[str], first: int = 0) -> pd.DataFrame:
    """Coverage and root mean square error of each method, replicate and effect."""
    made = [replicate(cell, first + i) for i in range(number)]
    result = []
    if "ours" in methods:
        result += [ours(cell, data).assign(replicate=i) for i, (data, _) in enumerate(made)]
    if "mgcv" in methods:
        result.append(in_r(SCRIPT, [data for data, _ in made], cell.family, NUM_GRID))
    true = pd.concat([truth(cell, *m).assign(replicate=i) for i, m in enumerate(made)])
    every = pd.concat(result).merge(true, on=["replicate", "effect", "what", "place"])
    away = (every["estimate"] - every["true"]).abs()
    every = every.assign(square=away**2, inside=away <= HALF * every["se"])
    keys = ["method", "what", "effect", "replicate"]
    each = every.groupby(keys).agg(
        coverage=("inside", "mean"), square=("square", "mean"), seconds=("seconds", "first")
    )
    return each.assign(rmse=np.sqrt(each["square"])).reset_index()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--replicates", type=int, default=100)
    parser.add_argument("--families", nargs="+", choices=list(UNITS), default=list(UNITS))
    add_option(parser)
    options = parser.parse_args()
    methods = ["ours", "mgcv"] if shutil.which("Rscript") else ["ours"]
    rows: list[dict[str, Any]] = []
    every = cells(options.families)
    for i, cell in enumerate(every):
        each = scores(cell, options.replicates, methods)
        means = each.groupby(["method", "what"])[["coverage", "rmse"]].mean()
        seconds = each.groupby("method")["seconds"].median()
        for method in seconds.index:
            row: dict[str, Any] = {**cell._asdict(), "method": method}
            for what in ("curve", "difference", "predictor"):
                row[f"coverage, {what}"] = means.loc[(method, what), "coverage"]
            for what in ("curve", "predictor"):
                row[f"RMSE, {what}"] = means.loc[(method, what), "rmse"]
            rows.append({**row, "seconds": seconds[method]})
        print(f"\r{i + 1}/{len(every)}", end="", file=sys.stderr, flush=True)
    print(tabulate(rows, "keys", floatfmt=".3f"))
    record(
        "concurvity",
        "Correlated covariates: coverage of 95 % credible intervals",
        rows,
        options,
        within=["family", "terms", "correlation", "rows"],
        method="method",
        ours=["ours"],
        better={"RMSE, curve": "lower", "RMSE, predictor": "lower"},
        skipped=[] if "mgcv" in methods else ["mgcv"],
        peers=["R:mgcv"],
    )


if __name__ == "__main__":
    main()
