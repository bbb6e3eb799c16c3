"""
Lags: how near are cumulative effects to the truth, and how often within their intervals?

A distributed lag non-linear model, beside mgcv's smooth of matrix arguments and natural splines of
a cross-basis, as R's dlnm has them. Series of a season and noise, a truth of value and lag, counts
or a Gaussian response: over replicates, the root mean square error of the sum over lags where the
value is the same at all of them, against its reference, and the coverage of 95 % intervals at 21
values. ``--chicago FILE`` reads ``chicago.csv`` of R's gamair, deaths and temperature, and draws
``docs/figures/lags.png`` of it: run it with ``python benchmarks/lags.py --chicago chicago.csv``.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from harness import in_r, means, study
from recording import parser_of

import gpflow_gam as gg

FIGURE = Path(__file__).parent.parent / "docs" / "figures" / "lags.png"
LAST, REFERENCE = 14, 0.0
VALUES = np.linspace(-2.0, 2.0, 21)
LAGS = np.arange(LAST + 1)
CELSIUS = 5.0 / 9.0


class Setting(NamedTuple):
    """Of data."""

    family: str
    truth: str


def hot_and_cold(x: Any, lags: Any) -> Any:
    """Heat that acts at once, and cold that lasts."""
    hot = np.where(x > 0.0, 0.12 * x**2, 0.0) * np.exp(-lags / 1.5)
    return hot + np.where(x < 0.0, 0.03 * x**2, 0.0) * np.exp(-np.square((lags - 5.0) / 4.0))


def displaced(x: Any, lags: Any) -> Any:
    """Effects at once, some of which are of events that would have come soon."""
    return 0.15 * np.maximum(x, 0.0) * (np.exp(-lags / 1.0) - 0.25 * np.exp(-lags / 5.0))


TRUTHS = {
    "hot and cold": hot_and_cold,
    "displaced": displaced,
    "linear": lambda x, lags: 0.04 * x * np.exp(-lags / 4.0),
    "none": lambda x, lags: 0.0 * x * lags,
}


def simulate(setting: Setting, number: int, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A series, and the cumulative effect at values."""
    rng = np.random.default_rng([seed, list(TRUTHS).index(setting.truth)])
    f, t = TRUTHS[setting.truth], np.arange(number)
    x = np.sin(2.0 * np.pi * t / 365.0) + 0.6 * rng.normal(size=number)
    before = np.concatenate([x[:1] * np.ones(LAST), x])
    eta = sum(f(before[LAST - i : number + LAST - i], i) for i in LAGS)
    eta = eta - eta.mean() + 0.1 * np.cos(2.0 * np.pi * t / 500.0)
    if setting.family == "poisson":
        y = rng.poisson(np.exp(3.0 + eta)).astype(float)
    else:
        y = eta + 0.5 * rng.normal(size=number)
    total = sum(f(VALUES, i) - f(REFERENCE, i) for i in LAGS)
    true = pd.DataFrame({"effect": "cumulative", "place": np.arange(len(VALUES)), "true": total})
    return pd.DataFrame({"x": x, "y": y, "time": t}), true


def cumulative(
    data: pd.DataFrame, last: int, values: Any, reference: float, family: str, k: int
) -> tuple[gg.GAM, pd.DataFrame]:
    """Our cumulative effect."""
    terms = gg.lag("x", 0, last) + gg.s("time", k=k) if k else gg.lag("x", 0, last)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gam = gg.GAM(terms, family=family, missing="drop").fit(data, "y", progress=False)
    seconds = time.perf_counter() - start
    band = gam.effects("lag(x)", {"x": values}, reference={"x": reference})
    places = {"effect": "cumulative", "place": np.arange(len(band))}
    return gam, band[["estimate", "lower", "upper"]].assign(
        method="ours", seconds=seconds, **places
    )


def rows_of(each: pd.DataFrame) -> list[dict[str, Any]]:
    """Means over replicates."""
    names = {"rmse": "RMSE", "error": "its se", "coverage": "coverage of 95 % intervals"}
    return means(each, ["family", "truth", "method"], **names, width="width", seconds="seconds")


def chicago(path: Path) -> None:
    """Deaths and temperature in Chicago: ours, mgcv's and a cross-basis; and a figure."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    data = pd.read_csv(path)
    data = pd.DataFrame({"x": (data["tmpd"] - 32.0) * CELSIUS, "y": data["death"] * 1.0})
    data = data.assign(time=np.arange(len(data)) * 1.0)
    values, reference, last, k = np.linspace(-20.0, 33.0, 54), 21.0, 21, 150
    asked = last, ",".join(map(str, values)), reference, "poisson", k
    others = in_r("lags", [data], *asked)
    gam, own = cumulative(data, last, values, reference, "quasipoisson", k)
    print(gam.summary())
    figure, axes = plt.subplots(1, 3, figsize=(11.0, 3.5), layout="constrained")
    bands = {"gpflow_gam": own}
    bands |= dict(list(others.groupby("method", sort=False)))
    for colour, (name, band) in zip(("C0", "C1", "0.5"), bands.items()):
        print(name, band["seconds"].iloc[0], "s")
        print(np.exp(band.iloc[[0, 10, 20, 50, 53]][["estimate", "lower", "upper"]]).round(3))
        axes[0].plot(values, np.exp(band["estimate"]), color=colour, label=name)
        ends = np.exp(band["lower"]), np.exp(band["upper"])
        axes[0].fill_between(values, *ends, color=colour, alpha=0.2, lw=0)
    axes[0].set(xlabel="temperature (°C) on 22 days", ylabel="relative risk", ylim=(0.9, 1.6))
    axes[0].legend(frameon=False, fontsize=9)
    axes[0].axhline(1.0, color="0.7", lw=0.7, zorder=0)
    for ax, value in zip(axes[1:], (31.0, -15.0)):
        grid = {"x": np.full(last + 1, value), "lag": np.arange(last + 1)}
        band = gam.effects("lag(x)", grid, reference={"x": reference}, fun=np.exp)
        ax.vlines(band["lag"], band["lower"], band["upper"], color="C0", alpha=0.6)
        ax.plot(band["lag"], band["estimate"], "o", color="C0", ms=4)
        ax.axhline(1.0, color="0.7", lw=0.7, zorder=0)
        ax.set(xlabel=f"days after {value:.0f} °C", ylabel="relative risk")
    figure.savefig(FIGURE, dpi=120)


def main() -> None:
    parser = parser_of(__doc__, replicates=50, rows=1500, seed=0)
    parser.add_argument("--chicago", type=Path, help="chicago.csv of gamair")
    parser.add_argument("--families", nargs="+", default=["gaussian", "poisson"])
    options = parser.parse_args()
    if options.chicago is not None:
        chicago(options.chicago)
        return
    study(
        "lags",
        "Distributed lags: error and coverage of cumulative effects",
        options,
        [Setting(family, truth) for family in options.families for truth in TRUTHS],
        lambda setting, seed: simulate(setting, options.rows, options.seed + seed),
        lambda setting, data: cumulative(data, LAST, VALUES, REFERENCE, setting.family, 20)[1],
        rows_of,
        lambda setting: ("lags", LAST, ",".join(map(str, VALUES)), REFERENCE, setting.family, 20),
        within=["family", "truth"],
    )


if __name__ == "__main__":
    main()
