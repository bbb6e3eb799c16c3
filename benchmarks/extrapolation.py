"""
What lies beyond the data, and whether limits say so. Beside mgcv.

``curves``: known on 200 rows between 0 and 1 with noise of .2, asked for between 1 and 1.25.
``co2``: R's monthly carbon dioxide of Mauna Loa up to 1990, and the eight years after, whose
residuals are no white noise: once more with a term for that. Both once more with ``bs="iou"``. Run
it with ``python benchmarks/extrapolation.py``; mgcv by REML runs when ``Rscript`` is there.
"""

from __future__ import annotations

import argparse
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from bands import HALF, in_r
from of_r import data_and_answers
from recording import add_option, record
from tabulate import tabulate

import gpflow_gam as gg
from gpflow_gam import s

SCRIPT = Path(__file__).parent / "mgcv" / "extrapolation.R"
LAST_YEAR = 1990
OURS_IN_TIME = "ours, and ou"
"""With a term for what is left in time."""
OURS_ON = "ours, iou"
"""With curves that go on."""
BESIDE: dict[str, Any] = {
    "method": "method",
    "ours": ["ours", OURS_ON, OURS_IN_TIME],
    "skipped": [] if shutil.which("Rscript") else ["mgcv"],
    "peers": ["R:mgcv"],
}


def random_curve(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """An integrated random walk along x, whose slope has a standard deviation of one in the end."""
    grid = np.linspace(0.0, 1.25, 1251)
    slope = np.cumsum(rng.normal(size=len(grid))) * np.sqrt(1e-3)
    return np.interp(x, grid, np.cumsum(slope) * 1e-3)


CURVES: dict[str, Callable[[np.ndarray, np.random.Generator], np.ndarray]] = {
    "straight": lambda x, _: x,
    "parabola": lambda x, _: 4.0 * (x - 0.5) ** 2,
    "saturating": lambda x, _: 2.0 * (1.0 - np.exp(-5.0 * x)),
    "wave": lambda x, _: np.sin(3.0 * np.pi * x),
    "integrated random walk": random_curve,
}
"""Curves, and what goes on behind where data end."""


def curve(name: str, seed: int) -> pd.DataFrame:
    """Rows of a curve, and some behind them, which are not for fits."""
    rng = np.random.default_rng([seed, 2])
    x = np.concatenate([rng.uniform(size=200), np.linspace(1.0, 1.25, 26)[1:]])
    f = CURVES[name](x, rng)
    y = f + 0.2 * rng.normal(size=len(x))
    return pd.DataFrame({"x": x, "f": f - f[:200].mean(), "y": y, "later": x > 1.0})


def show_curves(options: argparse.Namespace) -> None:
    number = options.replicates
    found = []
    for truth in CURVES:
        made = [curve(truth, i) for i in range(number)]
        for method, bs in (("ours", "se"), (OURS_ON, "iou")):
            for i, data in enumerate(made):
                known = data[~data["later"]]
                gam = gg.GAM(s("x", k=24, bs=bs)).fit(known, "y", progress=False)
                estimate, se = (t["s(x)"] for t in gam.predict(data, "terms", se=True))
                own = data.assign(method=method, estimate=np.array(estimate), se=np.array(se))
                found.append(own.assign(replicate=i, truth=truth))
        if shutil.which("Rscript"):
            theirs = in_r(SCRIPT, [d.drop(columns="f").astype(float) for d in made], "curves")
            f = np.concatenate([d["f"] for d in made])
            for _, own in theirs.groupby("method"):
                found.append(own.assign(f=f, truth=truth))
    every = pd.concat(found)
    away = (every["estimate"] - every["f"]).abs()
    every = every.assign(square=away**2, inside=away <= HALF * every["se"])
    keys = ["truth", "method"]
    among = every[every["later"] == 0].groupby([*keys, "replicate"])["square"].mean() ** 0.5
    every = every[every["later"] > 0]
    scored = every.groupby([*keys, "replicate"])["square"].mean() ** 0.5
    recorded = [
        {
            "truth": truth,
            "method": method,
            "RMSE": scored[truth, method].mean(),
            "its se": scored[truth, method].sem(),
            "coverage to 1.1": own[own["x"] <= 1.1]["inside"].mean(),
            "coverage to 1.25": own[own["x"] > 1.1]["inside"].mean(),
            "standard error": own["se"].mean(),
            "RMSE among the data": among[truth, method].mean(),
        }
        for (truth, method), own in every.groupby(keys)
    ]
    record(
        "extrapolation_curves",
        "Curves behind where data end, at a quarter of their span",
        recorded,
        options,
        within=["truth"],
        better={"RMSE": "lower", "RMSE among the data": "lower"},
        **BESIDE,
    )
    print(f"\ncurves: means over {number} data sets")
    print(tabulate(recorded, "keys", floatfmt=".3f"))


def show_co2(options: argparse.Namespace) -> None:
    """Only with R, whose data they are."""
    read = data_and_answers(SCRIPT, "co2")
    if read is None:
        return
    data, theirs = read
    data["month"] = data["year"] % 1.0
    known, later = data[data["year"] < LAST_YEAR], data[data["year"] >= LAST_YEAR]
    seasons = s("month", bs="cyclic", period=1.0)
    models = {
        "ours": s("year") + seasons,
        OURS_ON: s("year", bs="iou") + seasons,
        OURS_IN_TIME: s("year") + s("year", bs="ou") + seasons,
    }
    limits = {}
    for method, terms in models.items():
        gam = gg.GAM(terms).fit(known, "y", progress=False)
        found = gam.predict(later, "observation", interval=0.95)
        limits[method] = gam.predict(later), found["lower"], found["upper"]
    limits["mgcv REML"] = theirs["estimate"], theirs["lower"], theirs["upper"]
    rows, recorded, bands = [], [], {}
    for method, of in limits.items():
        mean, lower, upper = (np.asarray(each) for each in of)
        y = later["y"].to_numpy()
        bands[method] = lower, upper
        inside = (lower <= y) & (y <= upper)
        error = np.sqrt(np.mean((mean - y) ** 2))
        rows.append([method, f"{error:.2f}", f"{inside.mean():.2f}"])
        numbers = {"RMSE, ppm": error, "inside 95 % limits": inside.mean()}
        recorded.append({"method": method, **numbers})
    record(
        "extrapolation_co2",
        "Carbon dioxide, eight years beyond the data",
        recorded,
        options,
        better={"RMSE, ppm": "lower"},
        **BESIDE,
    )
    if options.figure:
        draw_co2(data, later["year"].to_numpy(), bands, options.figure)
    print("\nco2: eight years beyond the data, in parts per million")
    print(tabulate(rows, ["method", "RMSE", "inside 95 % limits"], disable_numparse=True))


def draw_co2(
    data: pd.DataFrame, year: np.ndarray, bands: dict[str, tuple[Any, Any]], path: str
) -> None:
    """What was measured after the data of the fit ended, and both predictions' limits."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(bands), figsize=(14, 3.2), sharey=True, layout="constrained")
    recent = data[data["year"] > LAST_YEAR - 10]
    for ax, (method, (lower, upper)) in zip(axes, bands.items()):
        ax.fill_between(year, lower, upper, color="C0", alpha=0.3, linewidth=0, label="95 % limits")
        ax.plot(recent["year"], recent["y"], "k", linewidth=0.8, label="measured")
        ax.axvline(LAST_YEAR, color="0.5", linestyle=":", linewidth=1)
        ax.set_title(method)
        ax.set_xlabel("year")
        ax.set_xticks(range(1980, 1999, 4))
    axes[0].set_ylabel("carbon dioxide, ppm")
    axes[0].legend(loc="upper left", frameon=False)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--replicates", type=int, default=100)
    parser.add_argument("--studies", nargs="+", choices=list(STUDIES), default=list(STUDIES))
    parser.add_argument("--figure", help="a file to draw the carbon dioxide into")
    add_option(parser)
    options = parser.parse_args()
    warnings.simplefilter("ignore", gg.ExtrapolationWarning)  # it is what this is about
    for study in options.studies:
        STUDIES[study](options)


STUDIES: dict[str, Callable[[argparse.Namespace], None]] = {"curves": show_curves, "co2": show_co2}


if __name__ == "__main__":
    main()
