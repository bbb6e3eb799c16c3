"""
Are credible intervals honest where covariates are correlated? Beside mgcv.

    y ~ s(x1) + ... + s(xC),   x1 and u2, ..., uC uniform,   xj = a x1 + (1 - a) uj

where a gives x1 and every other column the correlation r, and two others r^2. The effects are a
step, a sine, none, a parabola, an exponential and a line, the first C of them. Responses are
gaussian (noise of standard deviation 2), binary, Poisson and gamma. Curves are judged on an even
grid of 50 points, centred over it; differences are those between a tenth, three, five, seven and
nine tenths of the grid; the predictor is judged at the data. Recorded are means over data sets and
effects. mgcv is fitted by REML, with and without ``select=TRUE``, to the same data, with
``vcov(unconditional=TRUE)``, where ``Rscript`` is there. Run it with
``python benchmarks/concurvity.py``.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from harness import study
from recording import parser_of
from scipy.special import expit

NUM_GRID = 50
QUARTERS = np.round((NUM_GRID - 1) * np.array([0.1, 0.3, 0.5, 0.7, 0.9])).astype(int)
EFFECTS: list[Callable[[np.ndarray], np.ndarray]] = [
    lambda x: 3.0 / (1.0 + np.exp(-14.0 * (x - 0.5))),
    lambda x: np.sin(5.0 * x),
    lambda x: 0.0 * x,
    lambda x: 6.0 * (x - 0.5) ** 2,
    lambda x: 0.3 * np.exp(2.0 * x),
    lambda x: 1.5 * x,
]
UNITS = {"gaussian": 1.0, "binomial": 1.0, "poisson": 0.3, "gamma": 0.4}
"""What effects are multiplied by, on the scale of the link."""


class Setting(NamedTuple):
    """Of data."""

    family: str
    terms: int
    correlation: float
    rows: int


def settings(families: list[str]) -> list[Setting]:
    """Every correlation and number of rows with two terms, and every number of terms."""
    correlations, rows = (0.0, 0.5, 0.8, 0.9, 0.95), (200, 600, 2000)
    two = itertools.product(families, [2], correlations, rows)
    more = itertools.product(families, (3, 4, 5, 6), [0.9], [600])
    return list(itertools.starmap(Setting, itertools.chain(two, more)))


def true_effects(setting: Setting, x: np.ndarray) -> np.ndarray:
    """The effects of columns x [n, C]."""
    return UNITS[setting.family] * np.stack([f(c) for f, c in zip(EFFECTS, x.T)], axis=1)


def grid_of(x: np.ndarray) -> np.ndarray:
    """An even grid over each column, [G, C]."""
    return np.linspace(x.min(axis=0), x.max(axis=0), NUM_GRID)


CENTRE = np.eye(NUM_GRID) - 1.0 / NUM_GRID
EVERY = np.concatenate([CENTRE, np.diff(np.eye(NUM_GRID)[QUARTERS], axis=0)])
"""Of a curve on the grid: the curve, centred over it, and its differences."""


def frame(column: str, **values: np.ndarray) -> pd.DataFrame:
    """Values of a curve and its differences; of the predictor where the column is empty."""
    steps = len(QUARTERS) - 1
    what = np.repeat(["curve", "difference"], [NUM_GRID, steps]) if column else "predictor"
    place = np.concatenate([np.arange(NUM_GRID), np.arange(steps)])
    rows = pd.DataFrame({"what": what, **values})
    effect = (rows["what"] + " " + column).str.strip()
    return rows.assign(effect=effect, place=place if column else np.arange(len(rows)))


def simulate(setting: Setting, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Data, and the truth."""
    family, number, odds = setting.family, setting.rows, setting.correlation
    rng = np.random.default_rng([seed, setting.terms, int(100 * odds), number])
    u = rng.uniform(size=(number, setting.terms))
    share = odds / (odds + np.sqrt(1.0 - odds**2))
    x = share * u[:, :1] + (1.0 - share) * u
    x[:, 0] = u[:, 0]
    eta = true_effects(setting, x).sum(axis=1) - (1.5 if family == "binomial" else 0.0)
    y = {
        "gaussian": lambda: eta + 2.0 * rng.normal(size=number),
        "binomial": lambda: rng.uniform(size=number) < expit(eta),
        "poisson": lambda: rng.poisson(np.exp(eta)),
        "gamma": lambda: rng.gamma(2.0, np.exp(eta) / 2.0),
    }[family]()
    columns = [f"x{j + 1}" for j in range(setting.terms)]
    curves = EVERY @ true_effects(setting, grid_of(x))
    truth = [frame(c, true=curve) for c, curve in zip(columns, curves.T)]
    whole = frame("", true=eta)
    data = pd.DataFrame(x, columns=columns).assign(y=np.asarray(y, dtype=float))
    return data, pd.concat([*truth, whole]).drop(columns="what")


def ours(setting: Setting, data: pd.DataFrame) -> pd.DataFrame:
    """Our estimates and standard errors."""
    import gpflow_gam as gg

    columns = [c for c in data if c != "y"]
    start = time.perf_counter()
    gam = gg.GAM([gg.s(c) for c in columns], family=setting.family).fit(data, "y", progress=False)
    seconds = time.perf_counter() - start
    result = []
    for column, x in zip(columns, grid_of(data[columns].to_numpy()).T):
        estimate = gam.effects(f"s({column})", x)["estimate"].to_numpy()
        covariance = np.cov(gam.sample_effects(f"s({column})", x, 2000, seed=0).T)
        variance = np.einsum("ij,jk,ik->i", EVERY, covariance, EVERY)
        se = np.sqrt(np.maximum(variance, 0.0))
        result.append(frame(column, estimate=EVERY @ estimate, se=se))
    mean, se = gam.predict(data, "link", se=True)
    result.append(frame("", estimate=mean, se=se))
    return pd.concat(result).assign(method="ours", seconds=seconds)


def rows_of(each: pd.DataFrame) -> list[dict[str, Any]]:
    """Means over data sets and effects of a setting and method."""
    keys = [*Setting._fields, "method"]
    names = {"coverage": "coverage", "rmse": "RMSE"}
    groups = each.groupby([*keys, "what"], sort=False)[list(names)].mean().unstack()
    groups.columns = [f"{names[score]}, {what}" for score, what in groups.columns]
    groups["seconds"] = each.groupby(keys)["seconds"].median()
    return groups.drop(columns="RMSE, difference").reset_index().to_dict("records")


def main() -> None:
    parser = parser_of(__doc__, replicates=100)
    parser.add_argument("--families", nargs="+", choices=list(UNITS), default=list(UNITS))
    options = parser.parse_args()
    study(
        "concurvity",
        "Correlated covariates: coverage of 95 % credible intervals",
        options,
        settings(options.families),
        simulate,
        ours,
        rows_of,
        lambda setting: ("concurvity", setting.family, NUM_GRID),
        within=list(Setting._fields),
        better={"RMSE, curve": "lower", "RMSE, predictor": "lower"},
    )


if __name__ == "__main__":
    main()
