"""
What does integration over hyperparameters cost and save: by optimum, Laplace and chains?

Ten problems: ``f_1(x) + f_2(z)`` with x and z independent or correlated (.9), of 60 and 200 rows,
and random effects of 6 groups of 10 rows. Bands are those at the fitted hyperparameters, averaged
over their Laplace approximation (the default), and over chains (``posterior="mcmc"``). Numbers are
means over effects, places and replicates. Run it with ``python benchmarks/mcmc.py``.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
import pandas as pd
from harness import SCORES, means, study
from recording import parser_of
from scipy.special import expit

import gpflow_gam as gg
from gpflow_gam.gam.effects.effect import effect as effect_table


class Setting(NamedTuple):
    """Of data."""

    family: str
    terms: str
    rows: int


PROBLEMS = [
    *(Setting(family, "groups", 60) for family in ("gaussian", "bernoulli")),
    *(
        Setting(family, terms, rows)
        for family in ("gaussian", "bernoulli")
        for terms in ("independent", "correlated")
        for rows in (60, 200)
    ),
]
GRID = np.linspace(0.05, 0.95, 19)
CURVES = {"x": lambda v: 2.0 * expit(14.0 * (v - 0.5)), "z": lambda v: np.sin(5.0 * v)}


def simulate(setting: Setting, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Data, and effects that are zero on average, at levels or on a grid."""
    rng = np.random.default_rng([seed, PROBLEMS.index(setting)])
    if setting.terms == "groups":
        effects = 0.7 * rng.standard_normal(6)
        data = pd.DataFrame({"g": np.repeat(list("abcdef"), setting.rows // 6)})
        f = np.repeat(effects, setting.rows // 6)
        truth = pd.DataFrame({"effect": "g", "place": range(6), "true": effects - effects.mean()})
    else:
        share = 0.9 if setting.terms == "correlated" else 0.0
        x, u = rng.uniform(size=(2, setting.rows))
        data = pd.DataFrame({"x": x, "z": share * x + (1.0 - share) * u})
        f = sum(curve(data[name]) for name, curve in CURVES.items())
        parts = []
        for name, curve in CURVES.items():
            true = curve(GRID * (data[name].max() - data[name].min()) + data[name].min())
            part = {"effect": name, "place": range(len(GRID)), "true": true - true.mean()}
            parts.append(pd.DataFrame(part))
        truth = pd.concat(parts)
    f, gaussian = np.asarray(f), setting.family == "gaussian"
    noise = rng.standard_normal(len(f)) if gaussian else rng.logistic(size=len(f))
    return data.assign(y=f + noise if gaussian else (f + noise > 0.0).astype(float)), truth


def bands(setting: Setting, data: pd.DataFrame) -> pd.DataFrame:
    """Effects on the grid, centred there, from each treatment of hyperparameters."""
    of = ["g"] if setting.terms == "groups" else ["x", "z"]
    terms = " + ".join("random_effect(g)" if name == "g" else f"s({name}, k=12)" for name in of)
    result = []
    for method in ("optimum", "Laplace", "chains"):
        start = time.perf_counter()
        how = {"posterior": "mcmc"} if method == "chains" else {}
        gam = gg.GAM(f"y ~ {terms}", setting.family).fit(data, **how)
        for effect in of:
            name = "random_effect(g)" if effect == "g" else f"s({effect})"
            if effect == "g":
                grid, number = pd.DataFrame({"g": list("abcdef")}), 6
            else:
                low, high = data[effect].min(), data[effect].max()
                grid, number = pd.DataFrame({effect: GRID * (high - low) + low}), len(GRID)
            A = np.eye(number) - 1.0 / number
            at = effect_table(gam.fitted, name, grid, unconditional=method != "optimum")
            se = np.sqrt(np.diag(A @ at.covariance[0] @ A.T))
            estimate = A @ at.estimate[:, 0]
            table = pd.DataFrame({"place": range(number), "estimate": estimate, "se": se})
            result.append(table.assign(method=method, effect=effect))
        seconds = time.perf_counter() - start
        for part in result[-len(of) :]:
            part["seconds"] = seconds
    return pd.concat(result)


def main() -> None:
    options = parser_of(__doc__, replicates=20).parse_args()
    by = ["family", "terms", "rows", "hyperparameters"]
    names = {k: v for k, v in SCORES.items() if k != "edf"}
    study(
        "mcmc",
        "Hyperparameters: their optimum, a Laplace approximation, and chains",
        options,
        PROBLEMS,
        simulate,
        bands,
        lambda each: means(
            each.rename(columns={"method": by[3]}), by, **names, width="width", seconds="seconds"
        ),
        lambda setting: (),
        package=lambda setting: None,
        within=by[:3],
        method=by[3],
        ours=["optimum", "Laplace", "chains"],
        better={"RMSE": "lower", "seconds": "lower"},
    )


if __name__ == "__main__":
    main()
