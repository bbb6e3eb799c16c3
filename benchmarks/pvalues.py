"""
P-values of effects: under the hypothesis that they are zero, and where they are not. Beside mgcv.

``y ~ s(x) + s(z) + u + h + (1 | g)`` with an effect of x alone, or of all of them; z and x have a
correlation of .7, h has four levels and g has 40. mgcv is fitted by REML to some of the replicates
of 200 rows when ``Rscript`` is there. Also R's ``birthwt`` and lme4's ``grouseticks``. Run it with
``python benchmarks/pvalues.py``.
"""

from __future__ import annotations

import argparse
import itertools
import pickle
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from harness import in_r, of_r, pool, r_packages, resumed
from recording import parser_of, record
from scipy.stats import norm, spearmanr
from truths import FAMILIES

import gpflow_gam as gg

SIZES = {
    "gaussian": 0.5,
    "bernoulli": 2.2,
    "poisson": 0.8,
    "gamma": 0.6,
    "negative_binomial": 1.0,
    "beta": 0.9,
}
"""Of effects, beside the noise of one row."""
TERMS = ("s(z)", "linear(u)", "factor(h)", "random_effect(g)")
GROUPS = 40
"""Levels of g."""


class Setting(NamedTuple):
    """Of data: ``there`` says whether the four last effects are."""

    family: str
    N: int
    there: bool


SETTINGS = list(itertools.starmap(Setting, itertools.product(SIZES, (200, 2000), (False, True))))


def every(setting: Setting) -> int:
    """Which replicates there are: every, every second with effects, every fourth of many rows."""
    return (2 if setting.there else 1) * (4 if setting.N > 200 else 1)


def simulate(setting: Setting, seed: int) -> pd.DataFrame:
    """A replicate's data."""
    family, number, there = setting
    rng = np.random.default_rng([SETTINGS.index(setting), seed])
    both = rng.multivariate_normal([0.0, 0.0], [[1.0, 0.7], [0.7, 1.0]], number)
    x, z = norm.cdf(both).T
    u = rng.normal(size=number)
    h, g = rng.integers(4, size=number), rng.integers(GROUPS, size=number)
    size = SIZES[family]
    f = size * np.sin(2.0 * np.pi * x)
    if there:
        small = size * 3.0 / np.sqrt(number)
        f = f + small * (np.cos(2.0 * np.pi * z) + u + rng.normal(size=4)[h])
        f = f + 1.5 * small * rng.normal(size=GROUPS)[g]
    data = pd.DataFrame({"x": x, "z": z, "u": u, "y": FAMILIES[family](rng, f)})
    return data.assign(h=[f"h{i}" for i in h], g=[f"g{i}" for i in g])


def ours(task: tuple[Setting, int]) -> tuple[Setting, int, list[float]]:
    """A p-value for each term."""
    data = simulate(*task)
    terms = "y ~ s(x, k=10) + s(z, k=10) + u + h + (1 | g)"
    gam = gg.GAM(terms, task[0].family).fit(data, progress=False)
    return *task, gam.anova()["p"].drop("s(x)").tolist()


def shares(results: pd.DataFrame) -> list[dict[str, Any]]:
    """Of small p-values."""
    table = results.groupby(["there", "effect", "family", "N", "method"])["p"]
    levels = (0.01, 0.05, 0.1)
    columns = {f"p < {a}": table.apply(lambda p, a=a: (p < a).mean()) for a in levels}
    return pd.DataFrame(columns).assign(replicates=table.size()).reset_index().to_dict("records")


def long(results: list[tuple[Setting, int, list[float]]], method: str) -> pd.DataFrame:
    """A row a p-value."""
    rows = [
        {**setting._asdict(), "seed": seed, "method": method, "effect": effect, "p": p}
        for setting, seed, ps in results
        for effect, p in zip(TERMS, ps, strict=True)
    ]
    return pd.DataFrame(rows)


def simulated(options: argparse.Namespace) -> None:
    kept = options.kept is not None and options.kept.exists()
    tasks = [task[:2] for task in pickle.loads(options.kept.read_bytes())] if kept else []
    tasks += [
        (setting, seed)
        for seed, setting in itertools.product(range(options.replicates), SETTINGS)
        if seed % every(setting) == 0 and (setting, seed) not in tasks
    ]
    with pool(options.jobs) as workers:
        done = resumed(workers, ours, tasks, options.kept, options.seconds)
    frames, there = [long(done, "ours")], r_packages("mgcv")
    for setting in [s for s in SETTINGS if there and s.N == 200]:
        seeds = [seed for s, seed, _ in done if s == setting][: options.replicates_of_r]
        if seeds:
            answers = in_r("pvalues", [simulate(setting, s) for s in seeds], setting.family)
            frames.append(answers.assign(**setting._asdict()))
    record(
        "pvalues",
        "P-values: size and power",
        shares(pd.concat(frames)),
        options,
        within=["there", "effect", "family", "N"],
        method="method",
        ours=["ours"],
        peers=[f"R:{p}" for p in there],
        skipped=[] if there else ["mgcv"],
    )


REAL = {
    "birthwt": (
        "bernoulli",
        "low ~ s(age) + s(lwt) + factor(race) + smoke + ht + ui + s(ptl, k=3)",
        "MASS",
    ),
    "grouseticks": (
        "negative_binomial",
        "TICKS ~ factor(YEAR) + s(HEIGHT) + (1 | BROOD) + (1 | LOCATION)",
        "lme4",
    ),
}
"""Data of R: family, formula, package."""


def real(options: argparse.Namespace) -> None:
    rows = []
    missing = {p for *_, p in REAL.values()} - set(r_packages(*(p for *_, p in REAL.values())))
    for name, (family, formula, package) in REAL.items():
        if package in missing:
            print(f"\n{name}: skipped, R has no {package}")
            continue
        data, theirs = of_r("pvalues", name)
        p = gg.GAM(formula, family).fit(data, progress=False).anova()["p"]
        for effect, *both in zip(p.index, p, theirs["p"], strict=True):
            for method, value in zip(("ours", "mgcv"), both):
                rows.append({"data": name, "effect": effect, "method": method, "p": value})
        print(f"\n{name}: rank correlation with mgcv {spearmanr(p, theirs['p']).statistic:.2f}")
    if missing:
        return
    record(
        "pvalues_real",
        "P-values of real data: birth weights and grouse ticks",
        rows,
        options,
        within=["data", "effect"],
        method="method",
        ours=["ours"],
        peers=["R:mgcv", "R:lme4"],
    )


STUDIES = {"simulated": simulated, "real": real}


def main() -> None:
    parser = parser_of(__doc__, replicates=400, replicates_of_r=100, jobs=2)
    parser.add_argument("--seconds", type=float, default=1e6, help="of our fits, at most")
    parser.add_argument("--kept", type=Path, help="keeps what is done, to go on")
    parser.add_argument("--studies", nargs="+", choices=list(STUDIES), default=list(STUDIES))
    options = parser.parse_args()
    for name in options.studies:
        STUDIES[name](options)


if __name__ == "__main__":
    main()
