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
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from harness import of_r, r_packages, study
from recording import parser_of, record
from scipy.special import expit
from scipy.stats import norm, spearmanr

import gpflow_gam as gg

FAMILIES = {"gaussian": 1.0, "bernoulli": 2.2, "poisson": 0.8}
"""And the size of effects beside the noise of one row."""
TERMS = ("s(z)", "linear(u)", "factor(h)", "random_effect(g)")


class Setting(NamedTuple):
    """Of data: ``there`` says whether the four last effects are."""

    family: str
    N: int
    groups: int
    there: bool


SETTINGS = list(
    itertools.starmap(Setting, itertools.product(FAMILIES, (100, 400), (10, 30), (False, True)))
)


def simulate(setting: Setting, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Data, and no truth."""
    family, number, groups, there = setting
    rng = np.random.default_rng([SETTINGS.index(setting), seed])
    both = rng.multivariate_normal([0.0, 0.0], [[1.0, 0.7], [0.7, 1.0]], number)
    x, z = norm.cdf(both).T
    u = rng.normal(size=number)
    h, g = rng.integers(4, size=number), rng.integers(groups, size=number)
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
    data = pd.DataFrame({"x": x, "z": z, "u": u, "y": y})
    return data.assign(h=[f"h{i}" for i in h], g=[f"g{i}" for i in g]), pd.DataFrame()


def ours(setting: Setting, data: pd.DataFrame) -> pd.DataFrame:
    """A p-value for each term."""
    terms = "y ~ s(x, k=10) + s(z, k=10) + u + h + (1 | g)"
    gam = gg.GAM(terms, setting.family).fit(data, progress=False)
    p = gam.summary().table["p"].drop("s(x)")
    return pd.DataFrame({"method": "ours", "effect": TERMS, "p": p.to_numpy()})


def shares(every: pd.DataFrame) -> list[dict[str, Any]]:
    """Of small p-values; only of random effects does it matter how many groups there are."""
    of_groups = TERMS[-1] + " of " + every["groups"].astype(str)
    effect = every["effect"].where(every["effect"] != TERMS[-1], of_groups)
    keys = ["there", "effect", "family", "N", "method"]
    table = every.assign(effect=effect).groupby(keys)["p"]
    columns = {f"p < {a}": table.apply(lambda p, a=a: (p < a).mean()) for a in (0.01, 0.05, 0.2)}
    return pd.DataFrame(columns).assign(replicates=table.size()).reset_index().to_dict("records")


def simulated(options: argparse.Namespace) -> None:
    study(
        "pvalues",
        "P-values: size and power",
        options,
        SETTINGS,
        simulate,
        ours,
        shares,
        lambda setting: ("pvalues", setting.family),
        score=lambda estimates, truth: estimates,
        within=["there", "effect", "family", "N"],
        better={},
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
        p = gg.GAM(formula, family).fit(data, progress=False).summary().table["p"]
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
    parser = parser_of(__doc__, replicates=100)
    parser.add_argument("--studies", nargs="+", choices=list(STUDIES), default=list(STUDIES))
    options = parser.parse_args()
    for name in options.studies:
        STUDIES[name](options)


if __name__ == "__main__":
    main()
