"""
Do the 95 % bands cover? gamSim's first example, with Gaussian, Poisson and binary responses.

    y ~ s(x0) + s(x1) + s(x2) + s(x3),   f = 2 sin(pi x0) + exp(2 x1) + f2(x2) + 0,   x in [0, 1]^4

Pointwise coverage is averaged across the function, over the data; a simultaneous band covers when
the whole curve is inside it, on a grid of 100 points. True effects are centred over the data, as
estimates are. mgcv is fitted to the same replicates when ``Rscript`` is there, and its "unc." bands
allow for smoothing parameters being estimated. Run it with ``python benchmarks/coverage.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from harness import study
from recording import parser_of
from scipy.special import expit

COLUMNS = ["x0", "x1", "x2", "x3"]
NUM_GRID = 100
ORDER = [*(f"s({c})" for c in COLUMNS), "all effects", "predictor"]

SCALES = {"gaussian": 2.0, "poisson": 0.25, "bernoulli": 0.33}
"""Of the noise, or of the predictor: those of mgcv's examples."""

FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "x0": lambda x: 2.0 * np.sin(np.pi * x),
    "x1": lambda x: np.exp(2.0 * x),
    "x2": lambda x: 0.2 * x**11 * (10 * (1 - x)) ** 6 + 10 * (10 * x) ** 3 * (1 - x) ** 10,
    "x3": lambda x: 0.0 * x,
}


class Setting(NamedTuple):
    """Of data."""

    family: str


def places(data: pd.DataFrame, column: str) -> dict[str, np.ndarray]:
    """Where an effect is judged: pointwise at the data, as a whole on a grid."""
    x = data[column].to_numpy()
    return {"data": x, "grid": np.linspace(x.min(), x.max(), NUM_GRID)}


def table(effect: str, kind: str, **columns: np.ndarray) -> pd.DataFrame:
    """Values of an effect at places."""
    rows = pd.DataFrame(columns).reset_index(drop=True)
    return rows.assign(effect=f"{effect}, {kind}", place=np.arange(len(rows)))


def simulate(setting: Setting, number: int, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Uniform inputs and a response, and the true effects."""
    family = setting.family
    rng = np.random.default_rng([seed, list(SCALES).index(family)])
    data = pd.DataFrame(rng.uniform(size=(number, 4)), columns=COLUMNS)
    f = sum(FUNCTIONS[c](data[c].to_numpy()) for c in COLUMNS)
    unit = 1.0 if family == "gaussian" else SCALES[family]
    eta = unit * (f - 5.0 if family == "bernoulli" else f)
    if family == "gaussian":
        data["y"] = eta + SCALES[family] * rng.standard_normal(number)
    elif family == "poisson":
        data["y"] = rng.poisson(np.exp(eta))
    else:
        data["y"] = rng.binomial(1, expit(eta))
    truth = [table("predictor", "data", true=eta)]
    for column, function in FUNCTIONS.items():
        centre = function(data[column].to_numpy()).mean()
        for kind, x in places(data, column).items():
            truth.append(table(f"s({column})", kind, true=unit * (function(x) - centre)))
    return data, pd.concat(truth)


def bands(setting: Setting, data: pd.DataFrame) -> pd.DataFrame:
    """Pointwise ones at the data, simultaneous ones on a grid."""
    import gpflow_gam as gg
    from gpflow_gam import s

    start = time.perf_counter()
    gam = gg.GAM(s("x0") + s("x1") + s("x2") + s("x3"), family=setting.family)
    gam.fit(data, y="y")
    seconds = time.perf_counter() - start
    result = []
    for column in COLUMNS:
        for kind, x in places(data, column).items():
            band = pd.DataFrame(gam.effects(f"s({column})", x, level=0.95))
            which = "" if kind == "data" else "_simultaneous"
            limits = {end: band[end + which] for end in ("lower", "upper")}
            result.append(table(f"s({column})", kind, estimate=band["estimate"], **limits))
    interval = gam.predict(data, type="link", interval=0.95)
    result.append(table("predictor", "data", **interval))
    return pd.concat(result).assign(method="ours", seconds=seconds)


def rows_of(each: pd.DataFrame) -> list[dict[str, Any]]:
    """Over replicates, with the standard error of pointwise coverage."""
    each[["effect", "kind"]] = each["effect"].str.split(", ", expand=True)
    effects = each[each["effect"] != "predictor"].assign(effect="all effects")
    keys, rows = ["family", "effect", "method"], []
    for key, group in pd.concat([each, effects]).groupby(keys, sort=False):
        data, grid = (group[group["kind"] == kind] for kind in ("data", "grid"))
        row = {
            **dict(zip(keys, key)),
            "coverage, pointwise": data["coverage"].mean(),
            "its se": data.groupby("replicate")["coverage"].mean().sem(),
            "coverage, simultaneous": grid["inside"].mean() if len(grid) else None,
            "width": data["width"].mean(),
            "RMSE": data["rmse"].mean(),
            "seconds": data["seconds"].mean(),
        }
        rows.append(row)
    return sorted(rows, key=lambda r: (list(SCALES).index(r["family"]), ORDER.index(r["effect"])))


def main() -> None:
    parser = parser_of(__doc__, replicates=100, n=400)
    parser.add_argument("--families", nargs="+", choices=list(SCALES), default=list(SCALES))
    parser.add_argument("--mgcv-k", type=int, default=10, help="basis size; 10 is mgcv's default")
    options = parser.parse_args()
    names = {"bernoulli": "binomial"}
    study(
        "coverage",
        "Coverage of 95 % bands, pointwise and simultaneous",
        options,
        [Setting(family) for family in options.families],
        lambda setting, seed: simulate(setting, options.n, seed),
        bands,
        rows_of,
        lambda s: ("coverage", names.get(s.family, s.family), options.mgcv_k, NUM_GRID),
        within=["family", "effect"],
    )


if __name__ == "__main__":
    main()
