"""
Noise that remembers: which smoothness do the ELBO and neighbourhood cross-validation choose?

    y_t = sin(2 pi t) + t + .5 e_t,   e_t = rho e_(t-1) + sqrt(1 - rho^2) z_t,   t in [0, 1]

An estimate that takes the noise for independent follows it; no row can be followed without its
neighbours (Wood 2024). mgcv is fitted to the same replicates when ``Rscript`` is there, by REML and
by its own NCV (and with its option ``jackknife``). Reported are effective degrees of freedom, the
root mean square error of the curve, and how much of it the pointwise 95 % bands cover, as means
over replicates. Run it with ``python benchmarks/ncv.py``; ``--figure`` draws one of them.
"""

from __future__ import annotations

import argparse
import shutil
import time
from pathlib import Path

import numpy as np
import pandas as pd
from harness import HALF, in_r, recorded, scores
from recording import add_option, record
from tabulate import tabulate

import gpflow_gam as gg
from gpflow_gam import s

SCRIPT = Path(__file__).parent / "mgcv" / "ncv.R"


def truth(t: np.ndarray) -> np.ndarray:
    """The curve."""
    return np.sin(2.0 * np.pi * t) + t


def replicate(number: int, rho: float, seed: int) -> pd.DataFrame:
    """Evenly spaced times, and responses."""
    rng = np.random.default_rng([seed, round(100 * rho)])
    t, e = np.linspace(0.0, 1.0, number), rng.normal(size=number)
    for i in range(1, number):
        e[i] = rho * e[i - 1] + np.sqrt(1.0 - rho**2) * e[i]
    return pd.DataFrame({"t": t, "y": truth(t) + 0.5 * e})


def neighbours(number: int, reach: int) -> list[range]:
    """Rows at most so far from each."""
    return [range(max(0, i - reach), min(number, i + reach + 1)) for i in range(number)]


def our_bands(data: pd.DataFrame, k: int, reach: int) -> pd.DataFrame:
    """By the ELBO and by NCV."""
    result = []
    near = neighbours(len(data), reach)
    for method, options in (("ELBO", {}), ("NCV", {"criterion": "ncv", "groups": near})):
        start = time.perf_counter()
        gam = gg.GAM(s("t", k=k)).fit(data, "y", progress=False, **options)
        seconds = time.perf_counter() - start
        estimate, se = gam.predict(data, "link", se=True)
        band = pd.DataFrame({"row": np.arange(len(data)), "estimate": estimate, "se": se})
        result.append(band.assign(method=method, edf=gam.summary().edf, seconds=seconds))
    return pd.concat(result)


def draw(data: pd.DataFrame, bands: pd.DataFrame, path: str) -> None:
    """The curve, the data and both of our bands."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True, layout="constrained")
    for ax, (method, title) in zip(
        axes, {"ELBO": 'criterion="elbo"', "NCV": 'criterion="ncv"'}.items()
    ):
        own = bands[bands["method"] == method]
        m, se = own["estimate"].to_numpy(), own["se"].to_numpy()
        ax.plot(data["t"], data["y"], ".", color="0.6", markersize=3, label="data")
        ax.plot(data["t"], truth(data["t"].to_numpy()), "k--", linewidth=1, label="truth")
        ax.plot(data["t"], m, color="C0", label="estimate")
        ax.fill_between(data["t"], m - HALF * se, m + HALF * se, color="C0", alpha=0.25)
        ax.set_title(f"{title}: edf {own['edf'].iloc[0]:.1f}")
        ax.set_xlabel("t")
    axes[0].set_ylabel("y")
    axes[0].legend(loc="upper right", frameon=False)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--replicates", type=int, default=20)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--k", type=int, default=30)
    parser.add_argument("--reach", type=int, default=12)
    parser.add_argument("--rho", type=float, nargs="+", default=[0.0, 0.5, 0.8])
    parser.add_argument("--figure", help="a file to draw the first replicate of the last rho into")
    add_option(parser)
    options = parser.parse_args()
    rows, results = [], []
    for rho in options.rho:
        data = [replicate(options.rows, rho, i) for i in range(options.replicates)]
        bands = [
            our_bands(d, options.k, options.reach).assign(replicate=i) for i, d in enumerate(data)
        ]
        if options.figure and rho == options.rho[-1]:
            draw(data[0], bands[0], options.figure)
        if shutil.which("Rscript"):
            bands.append(in_r(SCRIPT, data, options.k, options.reach))
        f = truth(data[0]["t"].to_numpy())
        every = pd.concat(bands)
        for method in dict.fromkeys(every["method"]):
            own = every[every["method"] == method]
            each = pd.DataFrame([scores(b, f) for _, b in own.groupby("replicate")])
            mean = each.mean()
            parts = {"edf": 1, "rmse": 3, "coverage": 2, "seconds": 1}
            numbers = [f"{mean[name]:.{digits}f}" for name, digits in parts.items()]
            rows.append([rho, method, *numbers[:1], f"{each['edf'].std():.1f}", *numbers[1:]])
            results.append({"memory": rho, "smoothness by": method, **recorded(each)})
    header = ["rho", "smoothness by", "edf", "its sd", "RMSE", "coverage", "s"]
    print(tabulate(rows, header, disable_numparse=True))
    record(
        "ncv",
        "Autocorrelated noise: smoothness chosen by the ELBO and by NCV",
        results,
        options,
        within=["memory"],
        method="smoothness by",
        ours=["ELBO", "NCV"],
        better={"RMSE": "lower", "seconds": "lower"},
        skipped=[] if shutil.which("Rscript") else ["mgcv"],
        peers=["R:mgcv"],
    )


if __name__ == "__main__":
    main()
