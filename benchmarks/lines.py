"""
What is straight and what is not there. Beside mgcv.

``truths``: 400 rows, y = (1 + a) sin(4 pi a) + 2 b + 0 c + .75 z. ``selection``: 500 rows, twenty
columns of which ten matter, with effects of a standard deviation of .15 to .5 of the noise's.
``quakes``: R's earthquakes near Fiji, of which a surface over longitude and latitude explains
little, or much. mgcv is fitted by REML as it is, and with ``select=TRUE``, to the same replicates
when ``Rscript`` is there.

Ours, too, are fitted as they are and with ``select=True``.

Reported are root mean square errors of effects and of the predictor, how much of an effect the
pointwise 95 % bands cover, effective degrees of freedom, and effects that are called absent or
present: where the p-value of the summary is below .05 or not. Run it with ``python
benchmarks/lines.py``.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from harness import HALF, data_and_answers, in_r
from recording import add_option, record
from tabulate import tabulate

import gpflow_gam as gg
from gpflow_gam import s

SCRIPT = Path(__file__).parent / "mgcv" / "lines.R"
SHAPES: list[Callable[[np.ndarray], np.ndarray]] = [
    lambda u: u,
    lambda u: np.sin(2 * np.pi * u),
    lambda u: (u - 0.5) ** 2,
    lambda u: np.exp(2 * u),
    lambda u: np.sin(4 * np.pi * u),
    lambda u: 1 / (1 + np.exp(-12 * (u - 0.5))),
    lambda u: np.abs(u - 0.4),
    lambda u: u**3,
    lambda u: np.cos(3 * np.pi * u),
    lambda u: np.exp(-50 * (u - 0.5) ** 2),
]
SIZES = np.array([0.15, 0.15, 0.2, 0.2, 0.25, 0.25, 0.3, 0.35, 0.4, 0.5])
NUM_COLUMNS = 20
BESIDE: dict[str, Any] = {
    "method": "method",
    "ours": ["ours", "ours, select"],
    "skipped": [] if shutil.which("Rscript") else ["mgcv"],
    "peers": ["R:mgcv"],
}


def truths(seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Data, and the effects of their columns, [N, 3]."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=(400, 3))
    f = np.stack([(1 + x[:, 0]) * np.sin(4 * np.pi * x[:, 0]), 2 * x[:, 1], 0 * x[:, 2]], axis=1)
    data = pd.DataFrame(x, columns=["wiggly", "straight", "absent"])
    return data.assign(y=f.sum(axis=1) + 0.75 * rng.normal(size=len(x))), f


def selection(seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Data, and the effects of their columns, [N, 20]; the last ten are zero."""
    rng = np.random.default_rng([seed, 1])
    x, even = rng.uniform(size=(500, NUM_COLUMNS)), np.linspace(0.0, 1.0, 1001)
    f = np.zeros_like(x)
    for j, (size, which) in enumerate(zip(SIZES, rng.permutation(len(SHAPES)))):
        shape = SHAPES[which]
        f[:, j] = size * shape(x[:, j]) / shape(even).std()
    data = pd.DataFrame(x, columns=[f"x{j}" for j in range(NUM_COLUMNS)])
    return data.assign(y=f.sum(axis=1) + rng.normal(size=len(x))), f


def ours(data: pd.DataFrame, k: int, select: bool = False) -> pd.DataFrame:
    """Estimates of effects in rows, with what the summary says of each."""
    columns = [c for c in data if c != "y"]
    start = time.perf_counter()
    gam = gg.GAM([s(c, k=k) for c in columns], select=select).fit(data, "y", progress=False)
    seconds = time.perf_counter() - start
    estimates, errors = gam.predict(data, "terms", se=True)
    table = gam.summary().table
    result = []
    for c in columns:
        name = f"s({c})"
        result.append(
            pd.DataFrame(
                {
                    "method": "ours, select" if select else "ours",
                    "effect": c,
                    "row": np.arange(len(data)),
                    "estimate": estimates[name],
                    "se": errors[name],
                    "edf": table.loc[name, "edf"],
                    "p": table.loc[name, "p"],
                    "seconds": seconds,
                }
            )
        )
    return pd.concat(result)


def every_fit(
    study: Callable[[int], tuple[pd.DataFrame, np.ndarray]], number: int, k: int
) -> pd.DataFrame:
    """Estimates by all methods beside the truth, both centred over the rows."""
    made = [study(i) for i in range(number)]
    result = [
        ours(data, k, select).assign(replicate=i)
        for i, (data, _) in enumerate(made)
        for select in (False, True)
    ]
    if shutil.which("Rscript"):
        result.append(in_r(SCRIPT, [data for data, _ in made], k))
    every = pd.concat(result, ignore_index=True)
    truth = []
    for i, (data, f) in enumerate(made):
        columns = [c for c in data if c != "y"]
        for j, c in enumerate(columns):
            rows = np.arange(len(data))
            truth.append(
                pd.DataFrame(
                    {"replicate": i, "effect": c, "row": rows, "f": f[:, j] - f[:, j].mean()}
                )
            )
    every = every.merge(pd.concat(truth), on=["replicate", "effect", "row"])
    groups = every.groupby(["method", "replicate", "effect"])["estimate"]
    return every.assign(estimate=every["estimate"] - groups.transform("mean"))


def per_effect(every: pd.DataFrame) -> pd.DataFrame:
    """Scores of each method, replicate and effect."""
    away = (every["estimate"] - every["f"]).abs()
    scored = every.assign(square=away**2, inside=away <= HALF * every["se"])
    keys = ["method", "replicate", "effect"]
    result = scored.groupby(keys).agg(
        mse=("square", "mean"), coverage=("inside", "mean"), edf=("edf", "first"), p=("p", "first")
    )
    return result.assign(rmse=np.sqrt(result["mse"])).reset_index()


def show_truths(options: argparse.Namespace) -> None:
    number = options.replicates
    result = per_effect(every_fit(truths, number, 24))
    means = result.groupby(["method", "effect"])[["rmse", "coverage", "edf"]].mean()
    errors = result.groupby(["method", "effect"])["rmse"].sem()
    recorded = [
        {
            "effect": e,
            "method": m,
            "RMSE": r.rmse,
            "its se": errors[m, e],
            "coverage of 95 % bands": r.coverage,
            "edf": r.edf,
        }
        for (m, e), r in means.iterrows()
    ]
    record(
        "lines_truths",
        "A wiggly, a straight and an absent effect",
        recorded,
        options,
        within=["effect"],
        better={"RMSE": "lower"},
        **BESIDE,
    )
    rows = [
        [m, e, f"{r.rmse:.4f} ({errors[m, e]:.4f})", f"{r.coverage:.3f}", f"{r.edf:.2f}"]
        for (m, e), r in means.iterrows()
    ]
    print(f"\ntruths: means over {number} data sets (standard error)")
    print(tabulate(rows, ["method", "effect", "RMSE", "coverage", "edf"], disable_numparse=True))


def show_selection(options: argparse.Namespace) -> None:
    number = options.replicates
    every = every_fit(selection, number, 10)
    absent = {f"x{j}" for j in range(len(SIZES), NUM_COLUMNS)}
    result = per_effect(every)
    result["absent"] = result["effect"].isin(absent)
    total = every.groupby(["method", "replicate", "row"])[["estimate", "f"]].sum()
    square = np.square(total["estimate"] - total["f"])
    predictor = np.sqrt(square.groupby(["method", "replicate"]).mean()).groupby("method").mean()
    rows, recorded = [], []
    for method, own in result.groupby("method"):
        no, yes = own[own["absent"]], own[~own["absent"]]
        recorded.append(
            {
                "method": method,
                "absent effects called there": np.mean(no["p"] < 0.05),
                "effects called absent": np.mean(yes["p"] >= 0.05),
                "RMSE of the predictor": predictor[method],
                "RMSE of true effects": np.sqrt(yes["mse"].mean()),
                "RMSE of absent effects": np.sqrt(no["mse"].mean()),
                "edf of absent effects": no["edf"].mean(),
            }
        )
        rows.append(
            [
                method,
                f"{np.mean(no['p'] < 0.05):.3f}",
                f"{np.mean(yes['p'] >= 0.05):.3f}",
                f"{predictor[method]:.4f}",
                f"{np.sqrt(yes['mse'].mean()):.4f}",
                f"{np.sqrt(no['mse'].mean()):.4f}",
                f"{no['edf'].mean():.2f}",
            ]
        )
    record(
        "lines_selection",
        "Selection of ten effects among twenty",
        recorded,
        options,
        better=dict.fromkeys(list(recorded[0])[1:], "lower"),
        **BESIDE,
    )
    header = [
        "method",
        "false positives",
        "misses",
        "RMSE",
        "of true",
        "of absent",
        "edf of absent",
    ]
    print(f"\nselection: ten true and ten absent effects, {number} data sets")
    print(tabulate(rows, header, disable_numparse=True))


def show_quakes(options: argparse.Namespace) -> None:
    """Only with R, whose data they are."""
    read = data_and_answers(SCRIPT, "quakes")
    if read is None:
        return
    data, theirs = read
    recorded = []
    for response, their in theirs.groupby("response", sort=False):
        terms = s("long", "lat")
        summary = gg.GAM(terms).fit(data, response, progress=False).summary()
        errors = np.zeros(len(data))
        for out in range(10):
            held = data["fold"] == out
            part = gg.GAM(terms).fit(data[~held], response, progress=False)
            errors[held] = data[response][held] - part.predict(data[held])
        rmse = float(np.sqrt(np.mean(errors**2)))
        own = ("ours", summary.edf, summary.deviance_explained, rmse)
        for method, edf, explained, error in (own, tuple(their.iloc[0, 1:])):
            recorded.append(
                {
                    "response": response,
                    "method": method,
                    "edf": edf,
                    "explained": explained,
                    "RMSE of ten folds": error,
                }
            )
    record(
        "lines_quakes",
        "Earthquakes near Fiji by longitude and latitude",
        recorded,
        options,
        within=["response"],
        better={"RMSE of ten folds": "lower"},
        **BESIDE,
    )
    print("\nquakes")
    print(tabulate(recorded, "keys", floatfmt=".4g"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--replicates", type=int, default=100)
    parser.add_argument("--studies", nargs="+", choices=list(STUDIES), default=list(STUDIES))
    add_option(parser)
    options = parser.parse_args()
    for study in options.studies:
        STUDIES[study](options)


STUDIES: dict[str, Callable[[argparse.Namespace], None]] = {
    "truths": show_truths,
    "selection": show_selection,
    "quakes": show_quakes,
}

if __name__ == "__main__":
    main()
