"""
Effects under every kind of response, beside the package of R that has it: are they near the truth?

500 rows of x, uniform; the first predictor goes as sin(6 x), the second, of families with terms for
it, as .8 cos(3 x). Everybody is fitted to the same replicates. mgcv has smooths, by REML; where R's
packages have none (pscl, MASS, survival, quantreg) it is given natural splines of six columns. What
is not installed is skipped by name. Reported are root mean square errors of the effect at the rows,
and how much of it pointwise 95 % bands hold. Run it with ``python benchmarks/responses.py``.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.stats
from harness import in_r, recorded, scores
from recording import add_option, record
from scipy.special import expit
from tabulate import tabulate

import gpflow_gam as gg
from gpflow_gam import families, s

SCRIPT = Path(__file__).parent / "mgcv" / "responses.R"
ROWS = 500
QUANTILE = 0.9

Draw = Callable[[np.ndarray, np.ndarray, np.ndarray, np.random.Generator], dict[str, np.ndarray]]


@dataclass(frozen=True)
class Case:
    """
    A response.

    :param peer: the package of R; None where none that we know of is packaged.
    :param draw: columns, of x, of both predictors and of a generator.
    :param family: ours.
    :param second: the parameter with the second predictor, where it has terms.
    :param first: what the first one is then.
    :param y: of ``GAM.fit``.
    :param trials: of ``GAM``.
    """

    peer: str | None
    draw: Draw
    family: Any
    second: str | None = None
    first: str = "mean"
    y: Any = "y"
    trials: str | None = None

    def fit(self, data: pd.DataFrame) -> gg.GAM:
        terms: Any = s("x")
        if self.second is not None:
            terms = {self.first: s("x"), self.second: s("x")}
        gam = gg.GAM(terms, self.family, trials=self.trials)
        return gam.fit(data, self.y, progress=False)

    def names(self) -> dict[str, str]:
        """Of effects: what we call them, and what results do."""
        if self.second is None:
            return {"s(x)": self.first}
        return {f"{p}:s(x)": p for p in (self.first, self.second)}


def counts(mean: np.ndarray, alpha: float, rng: np.random.Generator) -> np.ndarray:
    """Negative binomial, of variance ``mean + alpha mean^2``."""
    return rng.negative_binomial(1.0 / alpha, 1.0 / (1.0 + alpha * mean))


def inflated(mean: np.ndarray, alpha: float | None, zero: np.ndarray, rng: Any) -> np.ndarray:
    y = rng.poisson(mean) if alpha is None else counts(mean, alpha, rng)
    return np.where(rng.uniform(size=len(y)) < zero, 0, y)


def hurdled(mean: np.ndarray, alpha: float | None, zero: np.ndarray, rng: Any) -> np.ndarray:
    """A count above zero, by its quantiles, or zero."""
    of = scipy.stats.poisson(mean)
    if alpha is not None:
        of = scipy.stats.nbinom(1.0 / alpha, 1.0 / (1.0 + alpha * mean))
    none = of.cdf(0)
    y = of.ppf(none + (1.0 - none) * rng.uniform(size=len(mean)))
    return np.where(rng.uniform(size=len(y)) < zero, 0, y).astype(int)


def tweedie(mean: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Of variance ``mean^1.5``: a Poisson number of gamma amounts."""
    number = rng.poisson(2.0 * np.sqrt(mean))
    shape = np.maximum(number, 1).astype(float)
    return np.where(number > 0, rng.gamma(shape, 0.5 * np.sqrt(mean)), 0.0)


def censored(lifetime: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    end = rng.exponential(2.0 * np.median(lifetime), size=len(lifetime))
    return {"time": np.minimum(lifetime, end), "event": (lifetime <= end).astype(int)}


def cells(y: np.ndarray) -> dict[str, np.ndarray]:
    """Of which only the half unit is known that it is in."""
    return {"low": np.floor(2.0 * y) / 2.0, "high": np.floor(2.0 * y) / 2.0 + 0.5}


def classes(logits: list[np.ndarray], rng: np.random.Generator) -> np.ndarray:
    noise = rng.gumbel(size=(len(logits), len(logits[0])))
    return np.array(list("abc"))[np.argmax(np.stack(logits) + noise, axis=0)]


def overdispersed(p: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Successes out of twenty whose probability scatters."""
    return {"y": rng.binomial(20, rng.beta(5.0 * p, 5.0 * (1.0 - p))), "n": np.full(len(p), 20)}


def yes(p: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"y": (rng.uniform(size=len(p)) < p).astype(int)}


CASES: dict[str, Case] = {
    "gaussian": Case(
        "mgcv",
        lambda x, f, g, rng: {"y": f + np.exp(g - 1.0) * rng.normal(size=len(x))},
        "gaussian",
        "scale",
    ),
    "gamma": Case(
        "mgcv",
        lambda x, f, g, rng: {"y": rng.gamma(np.exp(1.0 - g), np.exp(f + g - 1.0))},
        "gamma",
        "scale",
    ),
    "negative binomial": Case(
        "mgcv", lambda x, f, g, rng: {"y": counts(np.exp(1.5 + f), 0.5, rng)}, "negative_binomial"
    ),
    "beta": Case(
        "mgcv", lambda x, f, g, rng: {"y": rng.beta(5.0 * expit(f), 5.0 * expit(-f))}, "beta"
    ),
    "student t": Case(
        "mgcv", lambda x, f, g, rng: {"y": f + 0.5 * rng.standard_t(4.0, len(x))}, "student_t"
    ),
    "tweedie": Case("mgcv", lambda x, f, g, rng: {"y": tweedie(np.exp(f), rng)}, "tweedie"),
    "zero inflated Poisson": Case(
        "pscl",
        lambda x, f, g, rng: {"y": inflated(np.exp(1.0 + f), None, expit(g - 0.5), rng)},
        "zero_inflated_poisson",
        "zero",
    ),
    "zero inflated negative binomial": Case(
        "pscl",
        lambda x, f, g, rng: {"y": inflated(np.exp(1.5 + f), 0.3, expit(g - 0.5), rng)},
        "zero_inflated_negative_binomial",
        "zero",
    ),
    "hurdle Poisson": Case(
        "pscl",
        lambda x, f, g, rng: {"y": hurdled(np.exp(1.0 + f), None, expit(g - 0.5), rng)},
        "hurdle_poisson",
        "zero",
    ),
    "hurdle negative binomial": Case(
        "pscl",
        lambda x, f, g, rng: {"y": hurdled(np.exp(1.5 + f), 0.3, expit(g - 0.5), rng)},
        "hurdle_negative_binomial",
        "zero",
    ),
    "ordinal": Case(
        "MASS",
        lambda x, f, g, rng: {"y": np.digitize(f + rng.normal(size=len(x)), [-1.0, 0.0, 1.0])},
        "ordinal",
    ),
    "categorical": Case(
        "mgcv",
        lambda x, f, g, rng: {"y": classes([0.0 * f, f, 2.0 * g], rng)},
        "categorical",
        "c",
        "b",
    ),
    "Weibull, censored": Case(
        "survival",
        lambda x, f, g, rng: censored(np.exp(1.0 + f) * rng.weibull(2.0, len(x)), rng),
        "weibull",
        y=gg.Surv("time", "event"),
    ),
    "Weibull, censored, its scale too": Case(
        None,
        lambda x, f, g, rng: censored(
            np.exp(1.0 + f + np.exp(g - 1.0) * np.log(rng.exponential(size=len(x)))), rng
        ),
        "weibull",
        "scale",
        "location",
        y=gg.Surv("time", "event"),
    ),
    "lognormal, its scale too": Case(
        "mgcv",
        lambda x, f, g, rng: {"y": np.exp(f + np.exp(g - 1.0) * rng.normal(size=len(x)))},
        "lognormal",
        "scale",
        "location",
    ),
    "lognormal, censored": Case(
        "survival",
        lambda x, f, g, rng: censored(np.exp(1.0 + f + 0.5 * rng.normal(size=len(x))), rng),
        "lognormal",
        y=gg.Surv("time", "event"),
    ),
    "gaussian, in intervals": Case(
        "survival",
        lambda x, f, g, rng: cells(f + 0.5 * rng.normal(size=len(x))),
        "gaussian",
        y=gg.Surv("low", "high", type="interval"),
    ),
    "Cox": Case(
        "mgcv",
        lambda x, f, g, rng: censored(rng.exponential(2.0 * np.exp(-f)), rng),
        "cox",
        y=gg.Surv("time", "event"),
    ),
    "quasi-Poisson": Case(
        "mgcv",
        lambda x, f, g, rng: {"y": rng.negative_binomial(np.exp(1.5 + f) / 3.0, 0.25)},
        "quasipoisson",
    ),
    "quasi-binomial": Case(
        "mgcv",
        lambda x, f, g, rng: overdispersed(expit(f), rng),
        "quasibinomial",
        trials="n",
    ),
    "quantile": Case(
        "quantreg",
        lambda x, f, g, rng: {
            "y": f + (0.3 + 0.5 * x) * (rng.normal(size=len(x)) - scipy.stats.norm.ppf(QUANTILE))
        },
        families.Quantile(tau=QUANTILE),
    ),
    "binary, probit": Case(
        "mgcv",
        lambda x, f, g, rng: yes(scipy.stats.norm.cdf(f), rng),
        families.Bernoulli("probit"),
    ),
    "binary, cloglog": Case(
        "mgcv",
        lambda x, f, g, rng: yes(-np.expm1(-np.exp(f - 0.5)), rng),
        families.Bernoulli("cloglog"),
    ),
    "binary, cauchit": Case(
        "mgcv",
        lambda x, f, g, rng: yes(0.5 + np.arctan(f) / np.pi, rng),
        families.Bernoulli("cauchit"),
    ),
    "Poisson, sqrt": Case(
        "mgcv", lambda x, f, g, rng: {"y": rng.poisson((2.5 + f) ** 2)}, families.Poisson("sqrt")
    ),
    "gamma, inverse": Case(
        "mgcv",
        lambda x, f, g, rng: {"y": rng.gamma(4.0, 0.25 / (1.5 + f))},
        families.Gamma("inverse"),
    ),
    "gaussian, log": Case(
        "mgcv",
        lambda x, f, g, rng: {"y": np.exp(f) + 0.3 * rng.normal(size=len(x))},
        families.Gaussian("log"),
    ),
}
"""By what results call them."""


def made(name: str, seed: int) -> tuple[pd.DataFrame, dict[str, np.ndarray]]:
    """Data, and the effects in their rows."""
    case, rng = CASES[name], np.random.default_rng([seed, zlib.crc32(name.encode())])
    x = rng.uniform(size=ROWS)
    f, g = np.sin(6.0 * x), 0.8 * np.cos(3.0 * x)
    data = pd.DataFrame({"x": x, **case.draw(x, f, g, rng)})
    effects = {case.first: f}
    if case.second is not None:
        effects[case.second] = 2.0 * g if case.second == "c" else g
    return data, {name: e - e.mean() for name, e in effects.items()}


def ours(case: Case, data: pd.DataFrame) -> pd.DataFrame:
    start = time.perf_counter()
    gam = case.fit(data)
    seconds = time.perf_counter() - start
    estimates, errors = gam.predict(data, "terms", se=True)
    table = gam.summary().table
    result = [
        pd.DataFrame(
            {
                "estimate": np.ravel(estimates[name]),
                "se": np.ravel(errors[name]),
                "effect": effect,
                "edf": np.ravel(table.loc[name, "edf"])[0],
                "seconds": seconds,
            }
        )
        for name, effect in case.names().items()
    ]
    return pd.concat(result)


def installed() -> list[str]:
    """R's packages of which the cases need one or other."""
    if not shutil.which("Rscript"):
        return []
    names = sorted({case.peer for case in CASES.values() if case.peer})
    quoted = ", ".join(f"'{name}'" for name in names)
    code = f"for (p in c({quoted})) if (requireNamespace(p, quietly = TRUE)) cat(p, '')"
    done = subprocess.run(["Rscript", "-e", code], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.split()


def study(name: str, number: int, there: list[str]) -> list[dict[str, Any]]:
    """Rows of results: an effect and a method each."""
    case = CASES[name]
    data, truths = zip(*(made(name, seed) for seed in range(number)))
    bands = {"ours": [ours(case, d) for d in data]}
    if case.peer in there:
        theirs = in_r(SCRIPT, data, name)
        bands[case.peer] = [theirs[theirs["replicate"] == i] for i in range(number)]
    rows: list[dict[str, Any]] = []
    for effect in truths[0]:
        for method, every in bands.items():
            result = [
                scores(own[own["effect"] == effect], truth[effect])
                for own, truth in zip(every, truths)
            ]
            scored = recorded(pd.DataFrame(result))
            rows.append({"response": name, "effect": effect, "method": method, **scored})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=20)
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    add_option(parser)
    options = parser.parse_args()
    there, rows = installed(), []
    for name in options.only:
        rows += study(name, options.replicates, there)
        own = [row for row in rows if row["response"] == name]
        print(tabulate(own, "keys", floatfmt=".3f"), flush=True)
    needed = sorted({str(CASES[name].peer) for name in options.only if CASES[name].peer})
    record(
        "responses",
        "Effects under every kind of response, beside R's packages",
        rows,
        options,
        within=["response", "effect"],
        method="method",
        ours=["ours"],
        better={"RMSE": "lower"},
        skipped=[name for name in needed if name not in there],
        peers=[f"R:{name}" for name in needed if name in there],
    )


if __name__ == "__main__":
    main()
