"""
Forecasts from rolling origins: do fits that forget beat one fit, where the world changes?

Simulated: four rows a day, ``y = sin(5 x) + .3 z``, whose level is higher by one from day 60 on, in
means over replicates; forecasts of two days at each second day from 21 on, scored from 61 on. Real:
hires of bikes an hour in 2011 (UCI; the package's own data), by hour, weather and kind of day, in
forecasts of a week at each second week, given the week's weather. ``one fit`` is that at the first
origin, ``every row`` is fitted anew to all rows so far, ``window`` to the last 10 days or 8 weeks,
and ``forget`` updates with that factor at each origin. A random walk of time is the model's own
answer. Run it with ``python benchmarks/forecast.py``.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
from recording import parser_of, record

import gpflow_gam as gg

SCORES = {
    "log_density": "log score",
    "crps": "CRPS",
    "pinball_0.5": "pinball loss, median",
    "pinball_0.95": "pinball loss, .95",
    "covered": "coverage of 90 % intervals",
}


def broken(seed: int) -> pd.DataFrame:
    """120 days, a higher level from the sixtieth on."""
    rng = np.random.default_rng(seed)
    day, x = np.arange(480) // 4, rng.uniform(size=480)
    y = np.sin(5.0 * x) + (day >= 60) + 0.3 * rng.normal(size=480)
    return pd.DataFrame({"day": day, "x": x, "y": y})


def bikes() -> pd.DataFrame:
    """Hires of every hour of 2011."""
    data = gg.datasets.bikeshare()
    weather = data["weathersit"].astype(str).replace("heavy rain/snow", "light rain/snow")
    kind = np.where(data["workingday"] == 1, "work", "free")
    return data.assign(weather=weather, kind=kind, week=data["day"] // 7)


def methods(window: float, factors: tuple[float, float], time: str) -> dict[str, tuple[str, Any]]:
    """A further term and options, by name."""
    return {
        "one fit": ("", None),
        "every row": ("", {}),
        f"every row, {time}": (f" + {time}", {}),
        "window": ("", {"window": window}),
        **{f"forget={f:g}": ("", {"forget": f}) for f in factors},
    }


def scored(
    gam: gg.GAM, data: pd.DataFrame, origins: list[int], horizon: int, options: Any
) -> pd.DataFrame:
    """Forecasts from the origins; without options by one fit, of the same rows."""
    every = {"time": "day", "progress": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        if options is not None:
            return gg.backtest(gam, data, horizon=horizon, origins=origins, **every, **options)
        last = origins[-1] + horizon - origins[0]
        result = gg.backtest(gam, data, horizon=last, origins=origins[:1], **every)
    away = result["time"].to_numpy()[:, None] - np.array(origins)
    return result[np.any((away > 0) & (away <= horizon), axis=1)]


def main() -> None:
    options = parser_of(__doc__, replicates=10).parse_args()
    rows = []

    def add(problem: str, method: str, tables: list[pd.DataFrame]) -> None:
        table = pd.concat(tables)
        means = {name: float(table[column].mean()) for column, name in SCORES.items()}
        rows.append({"forecasts of": problem, "fit": method, **means})
        print(rows[-1], flush=True)

    for method, (more, how) in methods(10, (0.8, 0.6), "s(day, bs='rw')").items():
        gam, origins = gg.GAM("y ~ s(x)" + more), list(range(21, 119, 2))
        simulated = map(broken, range(options.replicates))
        tables = [scored(gam, data, origins, 2, how).query("time > 61") for data in simulated]
        add("simulated break", method, tables)
    hired = (
        "bikers ~ s(hr, by=factor(kind), k=24) + factor(kind) + factor(weather) + s(temp) + s(hum)"
    )
    for method, (more, how) in methods(56, (0.9, 0.8), "s(week, bs='rw')").items():
        gam, origins = gg.GAM(hired + more, "negative_binomial"), list(range(60, 359, 14))
        add("bike hires", method, [scored(gam, bikes(), origins, 7, how)])
    better = dict.fromkeys(list(SCORES.values())[1:4], "lower") | {"log score": "higher"}
    title = "Forecasts from rolling origins: one fit, windows, forgetting"
    compared = {"within": ["forecasts of"], "method": "fit", "ours": [], "better": better}
    record("forecast", title, rows, options, **compared)


if __name__ == "__main__":
    main()
