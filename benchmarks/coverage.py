"""
Do the 95 % bands cover? gamSim's first example, with Gaussian, Poisson and binary responses.

    y ~ s(x0) + s(x1) + s(x2) + s(x3),   f = 2 sin(pi x0) + exp(2 x1) + f2(x2) + 0,   x in [0, 1]^4

Pointwise coverage is averaged across the function, over the data; a simultaneous band covers when
the whole curve is inside it, on a grid of 100 points. True effects are centred over the data, as
estimates are. mgcv is fitted to the same replicates when ``Rscript`` is there, and its "unc." bands
allow for smoothing parameters being estimated. Run it with ``python benchmarks/coverage.py``.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from harness import HALF, in_r, mgcv_is_there
from recording import add_option, record
from scipy.special import expit
from tabulate import tabulate

COLUMNS = ["x0", "x1", "x2", "x3"]
EFFECTS = [f"s({c})" for c in COLUMNS]
PREDICTOR = "predictor"
NUM_GRID = 100
LEVEL = 0.95
SCRIPT = Path(__file__).parent / "mgcv" / "coverage.R"
HEADER = (
    "family",
    "effect",
    "method",
    "coverage, pointwise",
    "its se",
    "coverage, simultaneous",
    "width",
    "RMSE",
    "seconds",
)

SCALES = {"gaussian": 2.0, "poisson": 0.25, "bernoulli": 0.33}
"""Of the noise, or of the predictor: those of mgcv's own examples."""
R_FAMILIES = {"gaussian": "gaussian", "poisson": "poisson", "bernoulli": "binomial"}

FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "x0": lambda x: 2.0 * np.sin(np.pi * x),
    "x1": lambda x: np.exp(2.0 * x),
    "x2": lambda x: 0.2 * x**11 * (10 * (1 - x)) ** 6 + 10 * (10 * x) ** 3 * (1 - x) ** 10,
    "x3": lambda x: 0.0 * x,
}


def unit(family: str) -> float:
    """What the functions are multiplied by on the scale of the link."""
    return 1.0 if family == "gaussian" else SCALES[family]


def predictor(family: str, data: pd.DataFrame) -> np.ndarray:
    """The true linear predictor [N]."""
    f = sum(FUNCTIONS[c](data[c].to_numpy()) for c in COLUMNS)
    return unit(family) * (f - 5.0 if family == "bernoulli" else f)


def replicate(family: str, num_data: int, seed: int) -> pd.DataFrame:
    """Uniform inputs and a response."""
    rng = np.random.default_rng([seed, list(SCALES).index(family)])
    data = pd.DataFrame(rng.uniform(size=(num_data, 4)), columns=COLUMNS)
    eta = predictor(family, data)
    if family == "gaussian":
        data["y"] = eta + SCALES[family] * rng.standard_normal(num_data)
    elif family == "poisson":
        data["y"] = rng.poisson(np.exp(eta))
    else:
        data["y"] = rng.binomial(1, expit(eta))
    return data


def truth(family: str, data: pd.DataFrame, effect: str, x: np.ndarray) -> np.ndarray:
    """An effect at x, centred over the data; or the predictor at the data."""
    if effect == PREDICTOR:
        return predictor(family, data)
    column = effect[2:-1]
    f = FUNCTIONS[column]
    return unit(family) * (f(x) - f(data[column].to_numpy()).mean())


# --- bands, as frames with the columns that SCORES reads --------------------------------------


def our_bands(family: str, data: pd.DataFrame) -> pd.DataFrame:
    """Of every effect, at the data and on a grid."""
    import gpflow_gam as gg
    from gpflow_gam import s

    start = time.perf_counter()
    gam = gg.GAM(s("x0") + s("x1") + s("x2") + s("x3"), family=family)
    gam.fit(data, y="y")
    seconds = time.perf_counter() - start
    result = []
    for column, effect in zip(COLUMNS, EFFECTS):
        x = data[column].to_numpy()
        for kind, at in (("data", x), ("grid", np.linspace(x.min(), x.max(), NUM_GRID))):
            band = pd.DataFrame(gam.effects(effect, at, level=LEVEL))
            result.append(band.rename(columns={column: "x"}).assign(effect=effect, kind=kind))
    mean, se = gam.predict(data, type="link", se=True)
    total = pd.DataFrame({"x": np.arange(len(data)), "estimate": mean, "se": se})
    total["lower"], total["upper"] = mean - HALF * se, mean + HALF * se
    result.append(total.assign(effect=PREDICTOR, kind="data"))
    return pd.concat(result).assign(seconds=seconds)


def mgcv_bands(
    family: str, replicates: list[pd.DataFrame], k: int
) -> dict[str, list[pd.DataFrame]]:
    """Of every replicate, without and with allowance for the smoothing parameters; one R run."""
    frame = in_r(SCRIPT, replicates, R_FAMILIES[family], k, NUM_GRID)
    result = {}
    for method, end in (("mgcv", ""), ("mgcv unc.", "_u")):
        estimate, se, critical = (frame[c] for c in ("estimate", f"se{end}", f"critical{end}"))
        own = frame.assign(
            lower=estimate - HALF * se,
            upper=estimate + HALF * se,
            lower_simultaneous=estimate - critical * se,
            upper_simultaneous=estimate + critical * se,
        )
        result[method] = [rows for _, rows in own.groupby("replicate")]
    return result


# --- scores --------------------------------------------------------------------------------------


def score(family: str, data: pd.DataFrame, bands: pd.DataFrame) -> list[dict[str, object]]:
    """Of every effect in one replicate."""
    rows = []
    for effect in (*EFFECTS, PREDICTOR):
        own = bands[bands.effect == effect]
        row: dict[str, object] = {"effect": effect, "seconds": own.seconds.iloc[0]}
        for kind, part in own.groupby("kind"):
            true = truth(family, data, effect, part.x.to_numpy())
            if kind == "data":
                row["pointwise"] = np.mean((part.lower <= true) & (true <= part.upper))
                row["width"] = np.mean(part.upper - part.lower)
                row["rmse"] = np.sqrt(np.mean((part.estimate - true) ** 2))
            else:
                inside = (part.lower_simultaneous <= true) & (true <= part.upper_simultaneous)
                row["simultaneous"] = float(inside.all())
        rows.append(row)
    return rows


def means_of(scores: pd.DataFrame) -> list[dict[str, object]]:
    """Over replicates, with the standard error of pointwise coverage."""
    rows = []
    effects = scores[scores.effect != PREDICTOR].assign(effect="all effects")
    both = pd.concat([scores, effects])
    order = {e: i for i, e in enumerate((*EFFECTS, "all effects", PREDICTOR))}
    keys = ["family", "method", "effect"]
    for (family, method, effect), own in sorted(
        both.groupby(keys, sort=False), key=lambda g: (list(SCALES).index(g[0][0]), order[g[0][2]])
    ):
        per_replicate = own.groupby("replicate")["pointwise"].mean()
        error = per_replicate.std() / np.sqrt(len(per_replicate))
        means = own[["simultaneous", "width", "rmse", "seconds"]].mean()
        shown = [None if np.isnan(m) else m for m in means]  # the predictor has no grid
        values = [family, effect, method, own.pointwise.mean(), error, *shown]
        rows.append(dict(zip(HEADER, values)))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--replicates", type=int, default=100)
    parser.add_argument("--n", type=int, default=400, help="rows of a replicate")
    parser.add_argument("--families", nargs="+", choices=list(SCALES), default=list(SCALES))
    parser.add_argument("--mgcv-k", type=int, default=10, help="basis size; 10 is mgcv's default")
    parser.add_argument("--methods", nargs="+", choices=["ours", "mgcv"], default=["ours", "mgcv"])
    add_option(parser)
    arguments = parser.parse_args()

    start = time.perf_counter()
    methods = list(arguments.methods)
    if "mgcv" in methods and not mgcv_is_there():
        print("mgcv is absent (no Rscript on the PATH, or no such package): ours alone")
        methods.remove("mgcv")
    scores: list[dict[str, object]] = []
    for family in arguments.families:
        replicates = [replicate(family, arguments.n, seed) for seed in range(arguments.replicates)]
        bands: dict[str, list[pd.DataFrame]] = {}
        if "ours" in methods:
            bands["ours"] = []
            for i, data in enumerate(replicates):
                bands["ours"].append(our_bands(family, data))
                print(f"\r{family}: {i + 1}/{len(replicates)}", end="", file=sys.stderr, flush=True)
            print(file=sys.stderr)
        if "mgcv" in methods:
            bands |= mgcv_bands(family, replicates, arguments.mgcv_k)
        for method, all_bands in bands.items():
            for i, (data, own) in enumerate(zip(replicates, all_bands)):
                common = {"family": family, "method": method, "replicate": i}
                scores += [common | row for row in score(family, data, own)]
    print(f"{arguments.replicates} replicates of {arguments.n} rows; nominal {LEVEL:g}")
    means = means_of(pd.DataFrame(scores))
    digits = ("", "", "", ".3f", ".3f", ".3f", ".3f", ".3f", ".2f")
    print(tabulate([list(row.values()) for row in means], HEADER, floatfmt=digits))
    record(
        "coverage",
        "Coverage of 95 % bands",
        means,
        arguments,
        within=["family", "effect"],
        method="method",
        ours=["ours"],
        better={"RMSE": "lower"},
        skipped=[] if "mgcv" in methods else ["mgcv"],
        peers=["R:mgcv"],
    )
    print(f"\ntime taken: {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
