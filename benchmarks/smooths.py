"""
Kinds of smooths beside mgcv's: the same truths, the same data.

    fs, sz   curves of levels that differ from a common one (fs: random; sz: deviations)
    scales   a function of two columns of which one spans a thousand times the other
    mrf      effects of 81 areas on a map, smooth but for a little noise of each
    sos      a function on the globe
    ad       a Doppler curve: quick on the left, slow on the right
    ou       autoregressive noise beside a trend (mgcv's gam has no such smooth)

mgcv is fitted to the same replicates when ``Rscript`` is there, by REML. Reported are effective
degrees of freedom, the root mean square error at the data, and how much of the truth the pointwise
95 % bands cover, as means over replicates. Run it with ``python benchmarks/smooths.py``;
``--figure`` draws one replicate of some of them.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from bands import recorded, scores
from recording import add_option, record
from tabulate import tabulate

import gpflow_gam as gg
from gpflow_gam import random_effect, s, te
from gpflow_gam.gam.terms import Terms

SCRIPT = Path(__file__).parent / "mgcv" / "smooths.R"
SIDE = 9
AREAS = [f"{i}{j}" for i, j in itertools.product(range(SIDE), range(SIDE))]
SQUARE = np.array([[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]], dtype=float)
NEAR = {
    a: [b for b in AREAS if abs(int(a[0]) - int(b[0])) + abs(int(a[1]) - int(b[1])) == 1]
    for a in AREAS
}


def curves(rng: np.random.Generator, levels: int = 10, each: int = 40) -> pd.DataFrame:
    """Levels that differ in height, slope and wave from a common curve."""
    g = np.repeat(np.arange(levels), each)
    x = rng.uniform(size=len(g))
    a, b, c = rng.normal(size=(3, levels))
    own = 0.5 * a[g] + 0.6 * b[g] * np.sin(2.0 * np.pi * x) + 0.6 * c[g] * np.cos(2.0 * np.pi * x)
    return pd.DataFrame({"x": x, "g": [f"{i:02d}" for i in g], "f": 2.0 * x**2 + own, "sd": 0.4})


def deviations(rng: np.random.Generator) -> pd.DataFrame:
    """The same."""
    return curves(rng)


def scales(rng: np.random.Generator, rows: int = 400) -> pd.DataFrame:
    """Two units."""
    x, z = rng.uniform(size=(2, rows))
    return pd.DataFrame(
        {"x": x, "z": 1000.0 * z, "f": np.sin(7.0 * x) * np.cos(3.0 * z), "sd": 0.3}
    )


def areas(rng: np.random.Generator, rows: int = 400) -> pd.DataFrame:
    """Neighbours on a square."""
    effect = {
        a: np.sin(int(a[0]) / 2.0) + np.cos(int(a[1]) / 3.0) + 0.2 * rng.normal() for a in AREAS
    }
    g = rng.choice(AREAS, rows)
    return pd.DataFrame({"g": g, "f": [effect[a] for a in g], "sd": 0.6})


def globe(rng: np.random.Generator, rows: int = 400) -> pd.DataFrame:
    """Even over the globe; x is latitude, z longitude."""
    u = rng.normal(size=(rows, 3))
    u /= np.linalg.norm(u, axis=1)[:, None]
    f = np.sin(3.0 * u[:, 0]) * np.cos(2.0 * u[:, 1]) + u[:, 2] ** 2 - u[:, 2]
    lat, lon = np.rad2deg([np.arcsin(u[:, 2]), np.arctan2(u[:, 1], u[:, 0])])
    return pd.DataFrame({"x": lat, "z": lon, "f": f, "sd": 0.3})


def doppler(rng: np.random.Generator, rows: int = 300) -> pd.DataFrame:
    """Donoho & Johnstone (1994), a little slower."""
    x = rng.uniform(size=rows)
    f = 3.0 * np.sqrt(x * (1.0 - x)) * np.sin(2.1 * np.pi / (x + 0.15))
    return pd.DataFrame({"x": x, "f": f, "sd": 0.3})


def memory(rng: np.random.Generator, rows: int = 250, rho: float = 0.8) -> pd.DataFrame:
    """A trend and what is left of yesterday; the truth is both."""
    t, e = np.arange(float(rows)), rng.normal(size=rows)
    for i in range(1, rows):
        e[i] = rho * e[i - 1] + np.sqrt(1.0 - rho**2) * e[i]
    return pd.DataFrame({"x": t, "f": 2.0 * np.sin(t / 40.0) + e, "sd": 0.5})


CASES: dict[str, tuple[Callable[[np.random.Generator], pd.DataFrame], dict[str, Terms]]] = {
    "fs": (
        curves,
        {
            "s + fs": s("x") + s("x", "g", bs="fs"),
            "s + random effect": s("x") + random_effect("g"),
        },
    ),
    "sz": (deviations, {"s + sz": s("x") + s("x", "g", bs="sz")}),
    "scales": (
        scales,
        {
            "isotropic=False": Terms([s("x", "z", isotropic=False)]),
            "isotropic": Terms([s("x", "z")]),
            "te": Terms([te("x", "z")]),
        },
    ),
    "mrf": (
        areas,
        {
            "mrf": Terms([s("g", bs="mrf", neighbours=NEAR)]),
            "random effect": Terms([random_effect("g")]),
        },
    ),
    "sos": (
        globe,
        {
            "sos": Terms([s("x", "z", bs="sos")]),
            "s(lat, lon, k=60)": Terms([s("x", "z", k=60)]),
        },
    ),
    "ad": (doppler, {"ad": Terms([s("x", bs="ad")]), "s (k=60)": Terms([s("x", k=60)])}),
    "ou": (
        memory,
        {
            "s + ou": s("x") + s("x", bs="ou"),
            "rw": Terms([s("x", bs="rw")]),
            "s (k=60)": Terms([s("x", k=60)]),
        },
    ),
}


def our_bands(data: pd.DataFrame, models: dict[str, Terms]) -> pd.DataFrame:
    """Of every model."""
    found = []
    for name, terms in models.items():
        start = time.perf_counter()
        gam = gg.GAM(terms).fit(data, "y", progress=False)
        seconds = time.perf_counter() - start
        estimate, se = gam.predict(data, "link", se=True)
        band = pd.DataFrame({"row": np.arange(len(data)), "estimate": estimate, "se": se})
        found.append(band.assign(method=name, edf=gam.summary().edf, seconds=seconds))
    return pd.concat(found)


def mgcv_bands(case: str, replicates: list[pd.DataFrame]) -> pd.DataFrame:
    """Of every replicate; one R run."""
    with tempfile.TemporaryDirectory() as folder:
        data, pairs, bands = (Path(folder) / f for f in ("data.csv", "pairs.csv", "bands.csv"))
        numbered = [d.assign(replicate=i) for i, d in enumerate(replicates)]
        every = pd.concat(numbered)
        every.assign(g=every.get("g", "none")).to_csv(data, index=False)
        edges = [(a, b) for a, near in NEAR.items() for b in near]
        pd.DataFrame(edges, columns=["one", "other"]).to_csv(pairs, index=False)
        command = ["Rscript", SCRIPT, case, data, pairs, bands]
        subprocess.run([str(c) for c in command], check=True)
        return pd.read_csv(bands)


def draw(path: str) -> None:
    """One replicate of each of six kinds."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 3, figsize=(13, 7), layout="constrained")
    squares = {a: SQUARE + np.array([int(a[0]), int(a[1])]) for a in AREAS}
    panels: dict[str, tuple[str, Terms, str]] = {
        "s(x, g, bs='fs')": ("fs", s("x") + s("x", "g", bs="fs"), "s(x,g)"),
        "s(g, bs='mrf', polygons=...)": (
            "mrf",
            Terms([s("g", bs="mrf", polygons=squares)]),
            "s(g)",
        ),
        "s(lat, lon, bs='sos')": ("sos", Terms([s("lat", "lon", bs="sos")]), "s(lat,lon)"),
        "s(x, bs='ad')": ("ad", Terms([s("x", bs="ad")]), "s(x)"),
        "s(x) beside bs='ou'": ("ou", s("x") + s("x", bs="ou"), "s(x)"),
        "s(x, bs='ou') beside it": ("ou", s("x") + s("x", bs="ou"), "s(x,ou)"),
    }
    for ax, (title, (case, terms, name)) in zip(axes.flat, panels.items()):
        rng = np.random.default_rng([0, *case.encode()])
        data = CASES[case][0](rng)
        data["y"] = data["f"] + data["sd"] * rng.normal(size=len(data))
        if case == "sos":
            data = data.rename(columns={"x": "lat", "z": "lon"})
        if case == "mrf":  # some areas have no data
            data = data[~data["g"].isin(["22", "23", "32", "80", "66"])]
        gam = gg.GAM(terms).fit(data, "y", progress=False)
        gam.draw(name, ax=ax, num_points=300 if case in ("ad", "ou") else None)
        if case == "ad":
            grid = np.linspace(data["x"].min(), data["x"].max(), 500)
            f = 3.0 * np.sqrt(grid * (1.0 - grid)) * np.sin(2.1 * np.pi / (grid + 0.15))
            ax.plot(grid, f - data["f"].mean(), "k--", linewidth=0.8)
        if (legend := ax.get_legend()) is not None:
            legend.remove()
        ax.set_title(title)
    figure.savefig(path, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--replicates", type=int, default=10)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--figure", help="a file to draw one replicate of each into, and stop")
    add_option(parser)
    options = parser.parse_args()
    if options.figure:
        draw(options.figure)
        return
    has_r = shutil.which("Rscript") is not None
    if not has_r:
        print("mgcv is left out: there is no Rscript.")
    rows, results = [], []
    for case in options.cases:
        make, models = CASES[case]
        replicates = []
        for i in range(options.replicates):
            rng = np.random.default_rng([i, *case.encode()])
            data = make(rng)
            replicates.append(data.assign(y=data["f"] + data["sd"] * rng.normal(size=len(data))))
        bands = [our_bands(d, models).assign(replicate=i) for i, d in enumerate(replicates)]
        if has_r and case != "ou":
            bands.append(mgcv_bands(case, replicates))
        every = pd.concat(bands)
        for method in dict.fromkeys(every["method"]):
            own = every[every["method"] == method]
            each = [
                scores(b, replicates[int(str(i))]["f"].to_numpy())
                for i, b in own.groupby("replicate")
            ]
            frame = pd.DataFrame(each)
            mean = frame.mean()
            results.append({"truth": case, "model": method, **recorded(frame)})
            parts = {"edf": 1, "rmse": 3, "coverage": 2, "seconds": 1}
            rows.append(
                [case, method, *(f"{mean[name]:.{digits}f}" for name, digits in parts.items())]
            )
    header = ["truth", "model", "edf", "RMSE", "coverage", "s"]
    print(tabulate(rows, header, disable_numparse=True))
    record(
        "smooths",
        "Kinds of smooths, each on a truth that it is for",
        results,
        options,
        within=["truth"],
        method="model",
        ours=[name for _, models in CASES.values() for name in models],
        better={"RMSE": "lower", "seconds": "lower"},
        skipped=[] if has_r else ["mgcv"],
        peers=["R:mgcv"],
    )


if __name__ == "__main__":
    main()
