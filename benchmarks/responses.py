"""
Effects under every kind of response, beside the package of R that has it: are they near the truth?

500 rows of x, uniform; the first predictor goes as sin(6 x), the second, of families with terms for
it, as .8 cos(3 x). Everybody is fitted to the same replicates. mgcv has smooths, by REML; where R's
packages have none (pscl, MASS, survival, quantreg) it is given natural splines of six columns. What
is not installed is skipped by name. Reported are root mean square errors of the effect at the rows,
and how much of it pointwise 95 % bands hold. Run it with ``python benchmarks/responses.py``.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.stats
from harness import SCORES, means, study
from recording import parser_of
from scipy.special import expit
from truths import positive, tweedie

import gpflow_gam as gg
from gpflow_gam import families, s

ROWS = 500
QUANTILE = 0.9

Draw = Callable[[np.ndarray, np.ndarray, np.ndarray, np.random.Generator], Any]


class Setting(NamedTuple):
    """The name of a case."""

    response: str


@dataclass(frozen=True)
class Case:
    """A response."""

    peer: str | None  # the package of R; None where none that we know of is packaged
    draw: Draw  # the response, or columns by name, of x, of both predictors and of a generator
    family: Any  # ours
    second: str | None = None  # the parameter with the second predictor, where it has terms
    first: str = "mean"  # what the first one is then
    y: Any = "y"  # of GAM.fit
    trials: str | None = None  # of GAM

    @property
    def parameters(self) -> list[str]:
        """With terms."""
        return [self.first] if self.second is None else [self.first, self.second]


def with_zeros(y: np.ndarray, zero: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.where(rng.uniform(size=len(y)) < zero, 0, y).astype(int)


def negative_binomial(mean: np.ndarray, alpha: float) -> Any:
    """Of variance ``mean + alpha mean^2``."""
    return scipy.stats.nbinom(1.0 / alpha, 1.0 / (1.0 + alpha * mean))


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


def binary(p: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return (rng.uniform(size=len(p)) < p).astype(int)


LIFETIME = gg.Surv("time", "event")
CASES: dict[str, Case] = {
    "gaussian": Case(
        "mgcv",
        lambda x, f, g, rng: f + np.exp(g - 1.0) * rng.normal(size=len(x)),
        "gaussian",
        "scale",
    ),
    "gamma": Case(
        "mgcv",
        lambda x, f, g, rng: rng.gamma(np.exp(1.0 - g), np.exp(f + g - 1.0)),
        "gamma",
        "scale",
    ),
    "negative binomial": Case(
        "mgcv",
        lambda x, f, g, rng: negative_binomial(np.exp(1.5 + f), 0.5).rvs(random_state=rng),
        "negative_binomial",
    ),
    "beta": Case("mgcv", lambda x, f, g, rng: rng.beta(5.0 * expit(f), 5.0 * expit(-f)), "beta"),
    "student t": Case(
        "mgcv", lambda x, f, g, rng: f + 0.5 * rng.standard_t(4.0, len(x)), "student_t"
    ),
    "tweedie": Case("mgcv", lambda x, f, g, rng: tweedie(rng, np.exp(f)), "tweedie"),
    "zero inflated Poisson": Case(
        "pscl",
        lambda x, f, g, rng: with_zeros(rng.poisson(np.exp(1.0 + f)), expit(g - 0.5), rng),
        "zero_inflated_poisson",
        "zero",
    ),
    "zero inflated negative binomial": Case(
        "pscl",
        lambda x, f, g, rng: with_zeros(
            negative_binomial(np.exp(1.5 + f), 0.3).rvs(random_state=rng), expit(g - 0.5), rng
        ),
        "zero_inflated_negative_binomial",
        "zero",
    ),
    "hurdle Poisson": Case(
        "pscl",
        lambda x, f, g, rng: with_zeros(
            positive(rng, scipy.stats.poisson(np.exp(1.0 + f)), len(x)), expit(g - 0.5), rng
        ),
        "hurdle_poisson",
        "zero",
    ),
    "hurdle negative binomial": Case(
        "pscl",
        lambda x, f, g, rng: with_zeros(
            positive(rng, negative_binomial(np.exp(1.5 + f), 0.3), len(x)), expit(g - 0.5), rng
        ),
        "hurdle_negative_binomial",
        "zero",
    ),
    "ordinal": Case(
        "MASS",
        lambda x, f, g, rng: np.digitize(f + rng.normal(size=len(x)), [-1.0, 0.0, 1.0]),
        "ordinal",
    ),
    "categorical": Case(
        "mgcv", lambda x, f, g, rng: classes([0.0 * f, f, 2.0 * g], rng), "categorical", "c", "b"
    ),
    "Weibull, censored": Case(
        "survival",
        lambda x, f, g, rng: censored(np.exp(1.0 + f) * rng.weibull(2.0, len(x)), rng),
        "weibull",
        y=LIFETIME,
    ),
    "Weibull, censored, its scale too": Case(
        None,
        lambda x, f, g, rng: censored(
            np.exp(1.0 + f + np.exp(g - 1.0) * np.log(rng.exponential(size=len(x)))), rng
        ),
        "weibull",
        "scale",
        "location",
        y=LIFETIME,
    ),
    "lognormal, its scale too": Case(
        "mgcv",
        lambda x, f, g, rng: np.exp(f + np.exp(g - 1.0) * rng.normal(size=len(x))),
        "lognormal",
        "scale",
        "location",
    ),
    "lognormal, censored": Case(
        "survival",
        lambda x, f, g, rng: censored(np.exp(1.0 + f + 0.5 * rng.normal(size=len(x))), rng),
        "lognormal",
        y=LIFETIME,
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
        y=LIFETIME,
    ),
    "quasi-Poisson": Case(
        "mgcv",
        lambda x, f, g, rng: rng.negative_binomial(np.exp(1.5 + f) / 3.0, 0.25),
        "quasipoisson",
    ),
    "quasi-binomial": Case(
        "mgcv", lambda x, f, g, rng: overdispersed(expit(f), rng), "quasibinomial", trials="n"
    ),
    "quantile": Case(
        "quantreg",
        lambda x, f, g, rng: (
            f + (0.3 + 0.5 * x) * (rng.normal(size=len(x)) - scipy.stats.norm.ppf(QUANTILE))
        ),
        families.Quantile(tau=QUANTILE),
    ),
    "binary, probit": Case(
        "mgcv",
        lambda x, f, g, rng: binary(scipy.stats.norm.cdf(f), rng),
        families.Bernoulli("probit"),
    ),
    "binary, cloglog": Case(
        "mgcv",
        lambda x, f, g, rng: binary(-np.expm1(-np.exp(f - 0.5)), rng),
        families.Bernoulli("cloglog"),
    ),
    "binary, cauchit": Case(
        "mgcv",
        lambda x, f, g, rng: binary(0.5 + np.arctan(f) / np.pi, rng),
        families.Bernoulli("cauchit"),
    ),
    "Poisson, sqrt": Case(
        "mgcv", lambda x, f, g, rng: rng.poisson((2.5 + f) ** 2), families.Poisson("sqrt")
    ),
    "gamma, inverse": Case(
        "mgcv", lambda x, f, g, rng: rng.gamma(4.0, 0.25 / (1.5 + f)), families.Gamma("inverse")
    ),
    "gaussian, log": Case(
        "mgcv",
        lambda x, f, g, rng: np.exp(f) + 0.3 * rng.normal(size=len(x)),
        families.Gaussian("log"),
    ),
}
"""By the names that results have."""


def simulate(setting: Setting, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Data, and the effects in their rows."""
    name = setting.response
    case, rng = CASES[name], np.random.default_rng([seed, zlib.crc32(name.encode())])
    x = rng.uniform(size=ROWS)
    f, g = np.sin(6.0 * x), 0.8 * np.cos(3.0 * x)
    drawn = case.draw(x, f, g, rng)
    data = pd.DataFrame({"x": x, **(drawn if isinstance(drawn, dict) else {"y": drawn})})
    truth = [
        pd.DataFrame({"effect": name, "place": np.arange(ROWS), "true": e - e.mean()})
        for name, e in zip(case.parameters, (f, 2.0 * g if case.second == "c" else g))
    ]
    return data, pd.concat(truth)


def ours(setting: Setting, data: pd.DataFrame) -> pd.DataFrame:
    case = CASES[setting.response]
    terms: Any = s("x") if case.second is None else {p: s("x") for p in case.parameters}
    start = time.perf_counter()
    gam = gg.GAM(terms, case.family, trials=case.trials).fit(data, case.y, progress=False)
    seconds = time.perf_counter() - start
    estimates, errors = gam.predict(data, "terms", se=True)
    table, result = gam.summary().table, []
    for effect in case.parameters:
        name = "s(x)" if case.second is None else f"{effect}:s(x)"
        band = pd.DataFrame({"estimate": np.ravel(estimates[name]), "se": np.ravel(errors[name])})
        edf = np.ravel(table.loc[name, "edf"])[0]
        result.append(band.assign(effect=effect, place=np.arange(ROWS), edf=edf))
    return pd.concat(result).assign(method="ours", seconds=seconds)


def main() -> None:
    parser = parser_of(__doc__, replicates=20)
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    options = parser.parse_args()
    study(
        "responses",
        "Error and coverage of effects by kind of response, with R packages",
        options,
        [Setting(name) for name in options.only],
        simulate,
        ours,
        lambda each: means(each, ["response", "effect", "method"], **SCORES, seconds="seconds"),
        lambda setting: ("responses", setting.response, CASES[setting.response].peer),
        package=lambda setting: CASES[setting.response].peer,
        within=["response", "effect"],
    )


if __name__ == "__main__":
    main()
