"""
Autocorrelated noise: which smoothness do the ELBO, NCV, ``ar1=`` and ``bs="ou"`` choose?

    y_t = sin(2 pi t) + t + .5 e_t,   e_t = rho e_(t-1) + sqrt(1 - rho^2) z_t,   t in [0, 1]

An estimate that takes the noise for independent follows it; no row can be followed without its
neighbours (Wood 2024), and noise whose correlation is learnt is told from the curve. mgcv is fitted
to the same replicates when ``Rscript`` is there, by REML and by its NCV (and with its option
``jackknife``), and as ``bam`` with the best of ``rho`` = 0, .05, ..., .95. Reported are effective
degrees of freedom, the root mean square error of the curve, and how much of it the pointwise 95 %
bands cover, as means over replicates.

    g(E y_t) = c sin(2 pi x_t) + .75 c sin(6 t) + .6 c e_t,   e and x autoregressive

of counts and of truth values, 400 times: the curve of x, by ``s(x) + s(t)``, with ``s(t, bs="ou")``
beside it, which has an inducing input for each time, and by ``bam`` with the correlation of
neighbouring Pearson residuals for ``rho``. Run it with ``python benchmarks/ncv.py``.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
import pandas as pd
from harness import SCORES, means, study
from recording import parser_of
from scipy.special import expit
from scipy.stats import norm

import gpflow_gam as gg
from gpflow_gam import s


class Setting(NamedTuple):
    """Of data: the autocorrelation of the noise."""

    memory: float


def curve(t: np.ndarray) -> np.ndarray:
    return np.sin(2.0 * np.pi * t) + t


def simulate(number: int, rho: float, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Evenly spaced times and responses, and the curve there."""
    e = autoregressive(np.random.default_rng([seed, round(100 * rho)]), number, rho)
    t = np.linspace(0.0, 1.0, number)
    truth = pd.DataFrame({"effect": "f", "place": np.arange(number), "true": curve(t)})
    return pd.DataFrame({"t": t, "y": curve(t) + 0.5 * e}), truth


def bands(data: pd.DataFrame, k: int, reach: int) -> pd.DataFrame:
    """By the ELBO, by NCV, which leaves out rows up to ``reach`` away, and with ``ar1``."""
    number = len(data)
    near = [range(max(0, i - reach), min(number, i + reach + 1)) for i in range(number)]
    result = []
    for method, ar1, how in (
        ("ELBO", None, {}),
        ("NCV", None, {"criterion": "ncv", "groups": near}),
        ("ar1", "t", {}),
    ):
        start = time.perf_counter()
        gam = gg.GAM(s("t", k=k), ar1=ar1).fit(data, "y", progress=False, **how)
        seconds = time.perf_counter() - start
        estimate, se = gam.predict(data, "link", se=True)
        band = pd.DataFrame({"place": np.arange(number), "estimate": estimate, "se": se})
        edf = gam.summary().edf
        result.append(band.assign(method=method, effect="f", edf=edf, seconds=seconds))
    return pd.concat(result)


class Response(NamedTuple):
    """Of data whose predictor has autocorrelated noise."""

    family: str
    memory: float


def autoregressive(rng: np.random.Generator, number: int, rho: float) -> np.ndarray:
    e = rng.normal(size=number)
    for i in range(1, number):
        e[i] = rho * e[i - 1] + np.sqrt(1.0 - rho**2) * e[i]
    return e


GRID = np.linspace(0.05, 0.95, 40)


def responses(setting: Response, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Counts or truth values, and the curve of x on a grid, centred there."""
    rng, number = np.random.default_rng([seed, round(100 * setting.memory)]), 400
    size = 0.8 if setting.family == "poisson" else 1.6
    x = norm.cdf(autoregressive(rng, number, 0.9))
    t = np.arange(float(number))
    noise = autoregressive(rng, number, setting.memory)
    f = size * (np.sin(2 * np.pi * x) + 0.75 * np.sin(6 * t / number) + 0.6 * noise)
    y = rng.poisson(np.exp(1 + f)) if setting.family == "poisson" else rng.binomial(1, expit(f))
    true = size * np.sin(2 * np.pi * GRID)
    places = np.arange(len(GRID))
    truth = pd.DataFrame({"effect": "f", "place": places, "true": true - true.mean()})
    return pd.DataFrame({"t": t, "x": x, "y": y, "family": setting.family}), truth


def bands_of_x(data: pd.DataFrame) -> pd.DataFrame:
    """By a smooth of time alone, and with an Ornstein-Uhlenbeck process beside it."""
    family = {"poisson": "poisson", "binomial": "bernoulli"}[data["family"].iloc[0]]
    new, result = pd.DataFrame({"x": GRID, "t": data["t"].median()}), []
    for method, more in (("s(t)", ""), ("s(t), ou", " + s(t, bs='ou', k=400)")):
        start = time.perf_counter()
        gam = gg.GAM(f"y ~ s(x) + s(t){more}", family=family).fit(data, progress=False)
        seconds = time.perf_counter() - start
        estimate, se = (one["s(x)"].to_numpy() for one in gam.predict(new, "terms", se=True))
        band = pd.DataFrame({"place": np.arange(len(GRID)), "estimate": estimate, "se": se})
        band["estimate"] -= estimate.mean()
        edf = gam.summary().edf
        result.append(band.assign(method=method, effect="f", edf=edf, seconds=seconds))
    return pd.concat(result)


def main() -> None:
    parser = parser_of(__doc__, replicates=20, rows=200, k=30, reach=12)
    parser.add_argument("--rho", type=float, nargs="+", default=[0.0, 0.5, 0.8])
    options = parser.parse_args()
    study(
        "autocorrelation",
        "Autocorrelated noise of counts and truth values: s(t, bs='ou') beside bam(rho=)",
        options,
        [Response(family, rho) for family in ("poisson", "binomial") for rho in (0.7, 0.9)],
        responses,
        lambda setting, data: bands_of_x(data),
        lambda each: means(each, [*Response._fields, "method"], **SCORES, seconds="seconds"),
        lambda setting: ("autocorrelation",),
        within=list(Response._fields),
        ours=["s(t)", "s(t), ou"],
        better={"RMSE": "lower", "seconds": "lower"},
    )
    by = ["memory", "smoothness by"]
    study(
        "ncv",
        "Autocorrelated noise: smoothness chosen by the ELBO, by NCV and with ar1",
        options,
        [Setting(rho) for rho in options.rho],
        lambda setting, seed: simulate(options.rows, setting.memory, seed),
        lambda setting, data: bands(data, options.k, options.reach),
        lambda each: means(each.rename(columns={"method": by[1]}), by, **SCORES, seconds="seconds"),
        lambda setting: ("ncv", options.k, options.reach),
        within=by[:1],
        method=by[1],
        ours=["ELBO", "NCV", "ar1"],
        better={"RMSE": "lower", "seconds": "lower"},
    )


if __name__ == "__main__":
    main()
