"""
P-values of effects: under the hypothesis that they are zero, and where they are not. Beside mgcv.

``y ~ s(x) + s(z) + linear(u) + factor(h) + random_effect(g)`` with an effect of x alone, or of all
of them; z and x have a correlation of .7, h has four levels, g has 10 or 30. mgcv is fitted by REML
to the same replicates when ``Rscript`` is there. Also R's ``birthwt`` and lme4's ``grouseticks``.
Run it with ``python benchmarks/pvalues.py``.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from harness import data_and_answers, in_r
from recording import add_option, record
from scipy.special import expit
from scipy.stats import norm, spearmanr
from tabulate import tabulate

import gpflow_gam as gg

SCRIPT = Path(__file__).parent / "mgcv" / "pvalues.R"
FAMILIES = {"gaussian": 1.0, "bernoulli": 2.2, "poisson": 0.8}
"""And the size of effects beside the noise of one row."""
TERMS = ("s(z)", "linear(u)", "factor(h)", "random_effect(g)")
BESIDE: dict[str, Any] = {
    "method": "method",
    "ours": ["ours"],
    "skipped": [] if shutil.which("Rscript") else ["mgcv"],
    "peers": ["R:mgcv", "R:lme4"],
}


def replicate(
    family: str, number: int, groups: int, there: bool, rng: np.random.Generator
) -> pd.DataFrame:
    """Data in which the four last effects are there or not."""
    both = rng.multivariate_normal([0.0, 0.0], [[1.0, 0.7], [0.7, 1.0]], number)
    x, z = norm.cdf(both).T
    u, h, g = (
        rng.normal(size=number),
        rng.integers(4, size=number),
        rng.integers(groups, size=number),
    )
    size = FAMILIES[family]
    f = size * np.sin(2.0 * np.pi * x)
    if there:
        small = size * 3.0 / np.sqrt(number)
        f = f + small * (np.cos(2.0 * np.pi * z) + u + rng.normal(size=4)[h])
        f = f + 1.5 * small * rng.normal(size=groups)[g]
    if family == "gaussian":
        y = f + rng.normal(size=number)
    else:
        y = rng.binomial(1, expit(f)) if family == "bernoulli" else rng.poisson(np.exp(f))
    columns = {"x": x, "z": z, "u": u, "y": y}
    return pd.DataFrame(columns).assign(h=[f"h{i}" for i in h], g=[f"g{i}" for i in g])


def ours(data: pd.DataFrame, family: str) -> pd.DataFrame:
    """A p-value for each term."""
    terms = "y ~ s(x, k=10) + s(z, k=10) + u + h + (1 | g)"
    gam = gg.GAM(terms, family).fit(data, progress=False)
    p = gam.summary().table["p"]
    names = dict(zip([name for name in p.index if name != "s(x)"], TERMS))
    return p.drop("s(x)").rename(names).rename_axis("effect").reset_index(name="p")


def cell(
    family: str, number: int, groups: int, there: bool, replicates: int, seed: int
) -> pd.DataFrame:
    """P-values of ours and mgcv's of one kind of data."""
    made = [
        replicate(family, number, groups, there, np.random.default_rng([seed, i]))
        for i in range(replicates)
    ]
    result = [ours(data, family).assign(replicate=i, method="ours") for i, data in enumerate(made)]
    if shutil.which("Rscript"):
        result.append(in_r(SCRIPT, made, family))
    return pd.concat(result).assign(family=family, N=number, groups=groups, there=there)


def tell(every: pd.DataFrame, options: argparse.Namespace) -> None:
    """Record shares of small p-values."""
    # only of random effects does it matter how many groups there are
    of_groups = TERMS[-1] + " of " + every["groups"].astype(str)
    effect = every["effect"].where(every["effect"] != TERMS[-1], of_groups)
    keys = ["there", "effect", "family", "N", "method"]
    table = every.assign(effect=effect).groupby(keys)["p"]
    shares = {f"p < {a}": table.apply(lambda p, a=a: (p < a).mean()) for a in (0.01, 0.05, 0.2)}
    recorded = pd.DataFrame(shares).assign(replicates=table.size()).reset_index().to_dict("records")
    record(
        "pvalues",
        "P-values where effects are absent and where they are there",
        recorded,
        options,
        within=["there", "effect", "family", "N"],
        better={},
        **BESIDE,
    )
    print(tabulate(recorded, "keys", floatfmt=".3f"))


def simulated(options: argparse.Namespace) -> None:
    kinds = itertools.product(FAMILIES, (100, 400), (10, 30), (False, True))
    every = []
    for seed, kind in enumerate(kinds):
        there = kind[-1]
        every.append(cell(*kind, options.replicates // (2 if there else 1), seed))
    tell(pd.concat(every), options)


REAL = {
    "birthwt": (
        "bernoulli",
        "low ~ s(age) + s(lwt) + factor(race) + smoke + ht + ui + s(ptl, k=3)",
    ),
    "grouseticks": (
        "negative_binomial",
        "TICKS ~ factor(YEAR) + s(HEIGHT) + (1 | BROOD) + (1 | LOCATION)",
    ),
}


def real(options: argparse.Namespace) -> None:
    """Only with R, whose data they are."""
    recorded = []
    for name, (family, formula) in REAL.items():
        read = data_and_answers(SCRIPT, name)
        if read is None:
            return
        data, theirs = read
        p = gg.GAM(formula, family).fit(data, progress=False).summary().table["p"]
        agree = float(spearmanr(p, theirs["p"]).statistic)
        for effect, own, their in zip(p.index, p, theirs["p"], strict=True):
            for method, value in (("ours", own), ("mgcv", their)):
                recorded.append({"data": name, "effect": effect, "method": method, "p": value})
        print(f"\n{name}: rank correlation with mgcv {agree:.2f}")
    record(
        "pvalues_real",
        "P-values of birth weights and grouse ticks",
        recorded,
        options,
        within=["data", "effect"],
        better={},
        **BESIDE,
    )
    print(tabulate(recorded, "keys", floatfmt=".4f"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--replicates", type=int, default=100, help="half as many with effects")
    parser.add_argument("--studies", nargs="+", choices=list(STUDIES), default=list(STUDIES))
    add_option(parser)
    options = parser.parse_args()
    for study in options.studies:
        STUDIES[study](options)


STUDIES = {"simulated": simulated, "real": real}

if __name__ == "__main__":
    main()
