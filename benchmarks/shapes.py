"""
Terms with a shape: how near to the truth, how often within the bands, and do draws ever break it?

Two effects, of which the one of x has a shape, and the one of z, correlated with x, has none. Over
replicates: the root mean square error of the effect of x, how much of it pointwise 95 % bands
cover, the worst violation of the shape by 10 000 joint posterior draws (``worst draw``) and by the
estimate, on a dense grid and against the effect's range; beside it the same term without a shape,
and pyGAM's and R scam's where they are: ``--pygam`` names a Python that has pygam. Run it with
``python benchmarks/shapes.py``.
"""

from __future__ import annotations

import json
import time
import warnings
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from harness import PEERS, asked, means, numbered, python_version, scored, study
from recording import parser_of

import gpflow_gam as gg

TRUTHS = {
    "sigmoid": ("increasing", lambda x: 2.0 / (1.0 + np.exp(-15.0 * (x - 0.5)))),
    "flat, then up": ("increasing", lambda x: 3.0 * np.maximum(x - 0.5, 0.0)),
    "exponential": ("increasing", lambda x: np.exp(3.0 * x) / 10.0),
    "constant": ("increasing", lambda x: 0.0 * x),
    "parabola": ("convex", lambda x: 6.0 * np.square(x - 0.4)),
}
FAMILIES = ("gaussian", "poisson", "bernoulli")
NOISE = 0.7
ENDS = 0.02, 0.98, 97
GRID = np.linspace(*ENDS)
DENSE = np.linspace(0.0, 1.0, 501)


class Setting(NamedTuple):
    """Of data."""

    family: str
    truth: str

    @property
    def shape(self) -> str:
        return TRUTHS[self.truth][0]


def simulate(setting: Setting, number: int, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Data, and the effect of x on the grid."""
    family, truth = setting
    rng = np.random.default_rng([seed, list(TRUTHS).index(truth), FAMILIES.index(family)])
    shape, f = TRUTHS[truth]
    x = rng.uniform(size=number)
    z = x + rng.normal(size=number)
    eta = f(x) + 0.7 * np.sin(2.0 * z)
    y = {
        "gaussian": lambda: eta + NOISE * rng.normal(size=number),
        "poisson": lambda: rng.poisson(np.exp(eta - 0.5)),
        "bernoulli": lambda: rng.uniform(size=number) < 1.0 / (1.0 + np.exp(1.0 - eta)),
    }[family]()
    effect = {"effect": "s(x)", "place": np.arange(len(GRID)), "shape": shape}
    true = pd.DataFrame({**effect, "true": f(GRID) - f(x).mean()})
    return pd.DataFrame({"x": x, "z": z, "y": np.asarray(y, dtype=float)}), true


def violation(curves: np.ndarray, shape: str) -> float:
    """The worst step against a shape, against the range of all curves [..., n]."""
    down = -np.diff(curves, 1 if shape == "increasing" else 2, axis=-1)
    # of a convex curve: of its slope, per grid step
    size = np.ptp(curves)
    return float(max(down.max(), 0.0) / size) if size > 1e-9 else 0.0


def ours(setting: Setting, data: pd.DataFrame) -> pd.DataFrame:
    """Our bands with the shape and without, and the worst of as many draws as the data say."""
    result = []
    for method, shape in (("shape", setting.shape), ("none", None)):
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gam = gg.GAM(gg.s("x", shape=shape) + gg.s("z"), family=setting.family)
            gam.fit(data, "y", progress=False)
        seconds = time.perf_counter() - start
        band = gam.effects("s(x)", {"x": GRID})[["estimate", "lower", "upper"]]
        worst = None
        if shape is not None and data.attrs["draws"]:
            draws = gam.sample_effects("s(x)", {"x": DENSE}, data.attrs["draws"])
            worst = violation(draws, shape)
        band = band.assign(method=method, seconds=seconds, effect="s(x)")
        result.append(band.assign(place=np.arange(len(GRID)), worst=worst))
    return pd.concat(result)


def score(estimates: pd.DataFrame, truth: pd.DataFrame) -> pd.DataFrame:
    """Of each method and replicate, with the violation of the shape by the estimate."""
    shape, keys = truth["shape"].iloc[0], ["method", "replicate"]
    worst = estimates.groupby(keys)["estimate"].apply(lambda f: violation(f.to_numpy(), shape))
    return scored(estimates, truth).merge(worst.rename("violation"), on=keys)


def rows_of(each: pd.DataFrame) -> list[dict[str, Any]]:
    """Means over replicates, and the worst violations."""
    names = {"rmse": "RMSE", "coverage": "coverage of 95 % bands"}
    keys = ["family", "truth", "method"]
    rows = means(each, keys, **names, width="width", seconds="seconds")
    worst = each.astype({"worst": float}).groupby(keys)[["worst", "violation"]].max()
    for row in rows:
        draw, estimate = worst.loc[tuple(row[k] for k in keys)]
        row |= {"worst draw": None if np.isnan(draw) else draw, "violation": estimate}
    return rows


def main() -> None:
    parser = parser_of(__doc__, replicates=20, rows=300, draws=10_000, drawn=3, seed=0)
    parser.add_argument("--pygam", help="a Python that has pygam")
    parser.add_argument("--families", nargs="+", default=list(FAMILIES), choices=FAMILIES)
    options = parser.parse_args()
    pygam = options.pygam and python_version(options.pygam, "pygam", "pygam")

    def made(setting: Setting, replicate: int) -> tuple[pd.DataFrame, pd.DataFrame]:
        data, truth = simulate(setting, options.rows, options.seed + replicate)
        data.attrs["draws"] = options.draws if replicate < options.drawn else 0
        return data, truth

    def also(setting: Setting, data: list[pd.DataFrame]) -> list[pd.DataFrame]:
        task = {"task": "shapes", "family": setting.family, "shape": setting.shape, "grid": ENDS}
        command = options.pygam, PEERS
        return [asked(command, numbered(data), [json.dumps(task)])[1]] if pygam else []

    study(
        "shapes",
        "Monotone and convex smooths: error and coverage",
        options,
        [Setting(family, truth) for family in options.families for truth in TRUTHS],
        made,
        ours,
        rows_of,
        lambda setting: ("shapes", setting.family, setting.shape, *ENDS),
        package=lambda setting: "scam",
        score=score,
        also=also,
        within=["family", "truth"],
        ours=["shape", "none"],
        better={"RMSE": "lower", "seconds": "lower"},
        skipped=[] if pygam else ["pyGAM"],
        peer_versions={"pygam": pygam} if pygam else {},
    )


if __name__ == "__main__":
    main()
