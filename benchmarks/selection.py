"""
Which of twenty columns matter: false alarms and misses of p-values at .05. Beside mgcv.

500 rows, ten curves of sizes .15 to .5 of standard deviation beside noise of 1, and ten columns
that do not matter. Run it with ``python benchmarks/selection.py``; takes ten minutes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from harness import study
from recording import parser_of

import gpflow_gam as gg

SHAPES: list[Callable[[np.ndarray], np.ndarray]] = [
    lambda u: u,
    lambda u: np.sin(2 * np.pi * u),
    lambda u: (u - 0.5) ** 2,
    lambda u: np.exp(2 * u),
    lambda u: np.sin(4 * np.pi * u),
    lambda u: 1 / (1 + np.exp(-12 * (u - 0.5))),
    lambda u: np.abs(u - 0.4),
    lambda u: u**3,
    lambda u: np.cos(3 * np.pi * u),
    lambda u: np.exp(-50 * (u - 0.5) ** 2),
]
SIZES = np.array([0.15, 0.15, 0.2, 0.2, 0.25, 0.25, 0.3, 0.35, 0.4, 0.5])
COLUMNS = [f"x{j}" for j in range(20)]


SCORES = {
    "absent effects called there": "lower",
    "effects called absent": "lower",
    "RMSE of the predictor": "lower",
    "RMSE of true effects": "lower",
    "RMSE of absent effects": "lower",
    "edf of absent effects": "lower",
}


class Setting(NamedTuple):
    """There is one."""

    rows: int = 500


def long(f: Any, name: str) -> pd.DataFrame:
    """Centred effects of columns [N, 20], and the predictor, one below the other."""
    frame = pd.DataFrame(f - np.mean(f, axis=0), columns=COLUMNS)
    frame["predictor"] = frame.sum(axis=1)
    frame["place"] = range(len(frame))
    return frame.melt("place", var_name="effect", value_name=name)


def simulate(setting: Setting, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Data, and the truth."""
    rng = np.random.default_rng([seed, 1])
    x, even = rng.uniform(size=(setting.rows, 20)), np.linspace(0.0, 1.0, 1001)
    f = np.zeros_like(x)
    for j, which in enumerate(rng.permutation(10)):
        shape = SHAPES[which]
        f[:, j] = SIZES[j] * shape(x[:, j]) / shape(even).std()
    data = pd.DataFrame(x, columns=COLUMNS).assign(y=f.sum(axis=1) + rng.normal(size=len(x)))
    return data, long(f, "true")


def ours(setting: Setting, data: pd.DataFrame) -> pd.DataFrame:
    """Effects at the rows, with p-values and degrees of freedom."""
    parts, terms = [], [gg.s(c, k=10) for c in COLUMNS]
    for method, select in (("ours", False), ("ours, select", True)):
        gam = gg.GAM(terms, select=select).fit(data, "y", progress=False)
        part = long(gam.predict(data, "terms")[list(gam.names)].to_numpy(), "estimate")
        about = gam.anova()[["p", "edf"]].set_axis(COLUMNS)
        parts.append(part.join(about, on="effect").assign(method=method))
    return pd.concat(parts).assign(se=np.nan)


def rows_of(each: pd.DataFrame) -> list[dict[str, Any]]:
    """A row a method."""
    rows = []
    for method, own in each.groupby("method"):
        there, absent = (own[own["effect"].isin(c)] for c in (COLUMNS[:10], COLUMNS[10:]))
        scores = [(absent["p"] < 0.05).mean(), (there["p"] >= 0.05).mean()]
        scores += [own.loc[own["effect"] == "predictor", "rmse"].mean()]
        scores += [float(np.sqrt((part["rmse"] ** 2).mean())) for part in (there, absent)]
        rows.append({"method": method, **dict(zip(SCORES, [*scores, absent["edf"].mean()]))})
    return rows


def main() -> None:
    study(
        "lines_selection",
        "Selection of effects: ten of twenty",
        parser_of(__doc__, replicates=100).parse_args(),
        [Setting()],
        simulate,
        ours,
        rows_of,
        lambda setting: ("selection",),
        within=[],
        ours=["ours", "ours, select"],
        better=SCORES,
    )


if __name__ == "__main__":
    main()
