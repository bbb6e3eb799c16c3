"""
Are standard deviations of random effects those of REML, and do their intervals cover? Beside mgcv.

    y ~ s(x) + random_effect(g),   6, 12, 30 or 100 groups of 10 rows, or of 2 to 30

and beside it 48 plots nested in 12 sites, each observed in 10 years. The effect of x is a sine.
Effects of groups have a standard deviation of .5 (gaussian, as the noise) or 1 (binary); sites,
plots and years 1, .7 and .5, with noise of 1. mgcv is fitted to the same data, by REML, where
``Rscript`` is there. Run it with ``python benchmarks/variance_components.py``.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from harness import study
from recording import parser_of
from scipy.special import expit

SIZES = 2, 3, 5, 8, 12, 30
"""Rows of groups, one after the other, where they are not all of 10."""
NESTED = "nested and crossed"


class Setting(NamedTuple):
    """Of data."""

    family: str
    design: str
    groups: int


FAMILIES = ("gaussian", "binomial")
SETTINGS = [
    *itertools.starmap(Setting, itertools.product(FAMILIES, ("even", "uneven"), (6, 12, 30, 100))),
    *(Setting(family, NESTED, 12) for family in FAMILIES),
]


def simulate(setting: Setting, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Data, and standard deviations by column."""
    family, design, groups = setting
    rng = np.random.default_rng([seed, groups])
    if design == NESTED:
        plot, year = (a.ravel() for a in np.indices((48, 10)))
        codes, noise = {"site": plot // 4, "plot": plot, "year": year}, 1.0
        sds = {"site": 1.0, "plot": 0.7, "year": 0.5}
    else:
        sizes = 10 if design == "even" else np.resize(SIZES, groups)
        codes, noise = {"g": np.repeat(np.arange(groups), sizes)}, 0.5
        sds = {"g": 0.5 if family == "gaussian" else 1.0}
    number = len(next(iter(codes.values())))
    x = rng.uniform(size=number)
    eta = np.sin(2.0 * np.pi * x)
    for name, sd in sds.items():
        eta = eta + sd * rng.normal(size=codes[name].max() + 1)[codes[name]]
    if family == "gaussian":
        y = eta + noise * rng.normal(size=number)
    else:
        y = (rng.uniform(size=number) < expit(eta)).astype(float)
    levels = {name: [f"{name}{c:03d}" for c in code] for name, code in codes.items()}
    truth = pd.DataFrame({"effect": list(sds), "place": 0, "true": list(sds.values())})
    return pd.DataFrame({"x": x, "y": y, **levels}), truth


def ours(setting: Setting, data: pd.DataFrame) -> pd.DataFrame:
    """Our standard deviations and their intervals."""
    import gpflow_gam as gg

    columns = [c for c in data if c not in ("x", "y")]
    terms = [gg.s("x"), *map(gg.random_effect, columns)]
    gam = gg.GAM(terms, family=setting.family).fit(data, "y", progress=False)
    table = gam.variance_components().set_index("term")
    table = table.loc[[f"random_effect({c})" for c in columns], ["sd", "lower", "upper"]]
    return table.rename(columns={"sd": "estimate"}).assign(effect=columns, place=0, method="ours")


def rows_of(each: pd.DataFrame) -> list[dict[str, Any]]:
    """Means over replicates of each setting, column and method."""
    rows, keys = [], [*Setting._fields, "of", "method"]
    for key, group in each.rename(columns={"effect": "of"}).groupby(keys, sort=False):
        row = {
            **dict(zip(keys, key)),
            "true sd": group["true"].iloc[0],
            "mean sd": group["estimate"].mean(),
            "its se": group["estimate"].sem(),
            "RMSE": np.sqrt(np.mean(group["rmse"] ** 2)),
            "coverage": group["coverage"].mean(),
        }
        rows.append(row)
    return rows


def main() -> None:
    study(
        "variance_components",
        "Standard deviations of random effects, with REML",
        parser_of(__doc__, replicates=40).parse_args(),
        SETTINGS,
        simulate,
        ours,
        rows_of,
        lambda setting: ("variance_components", setting.family),
        within=[*Setting._fields, "of"],
    )


if __name__ == "__main__":
    main()
