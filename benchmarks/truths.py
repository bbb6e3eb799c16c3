"""Simulated responses of every family, and the functions of ``calibration.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit
from scipy.stats import poisson

NUM_WAVES = 30
SLOPE, AMPLITUDE = 1.0, 0.7


def tweedie(rng: np.random.Generator, mean: np.ndarray) -> np.ndarray:
    """Of variance ``mean^1.5``: a Poisson number of gamma amounts."""
    number = rng.poisson(2.0 * np.sqrt(mean))
    amounts = rng.gamma(np.maximum(number, 1), 0.5 * np.sqrt(mean))
    return np.where(number > 0, amounts, 0.0)


def zeros(rng: np.random.Generator, share: float, f: np.ndarray) -> np.ndarray:
    """Zero for a share of rows, else one."""
    return (rng.uniform(size=f.shape) >= share) + 0.0


def positive(rng: np.random.Generator, counts: Any, number: int) -> np.ndarray:
    """Counts above zero, of scipy's distribution ``counts``, by their quantiles."""
    none = counts.cdf(0)
    return counts.ppf(none + (1.0 - none) * rng.uniform(size=number))


FAMILIES: dict[str, Callable[[np.random.Generator, np.ndarray], np.ndarray]] = {
    "gaussian": lambda rng, f: f + 0.5 * rng.standard_normal(f.shape),
    "student_t": lambda rng, f: f + 0.4 * rng.standard_t(4.0, f.shape),
    "gamma": lambda rng, f: rng.gamma(3.0, np.exp(f) / 3.0),
    "beta": lambda rng, f: np.clip(rng.beta(5 * expit(f), 5 * (1 - expit(f))), 1e-9, 1 - 1e-9),
    "poisson": lambda rng, f: rng.poisson(np.exp(f)).astype(float),
    "negative_binomial": lambda rng, f: rng.negative_binomial(2.0, 1 / (1 + np.exp(f) / 2)) + 0.0,
    "bernoulli": lambda rng, f: (rng.uniform(size=f.shape) < expit(f)).astype(float),
    "ordinal": lambda rng, f: np.digitize(f + rng.standard_normal(f.shape), [-0.5, 0.5]) + 0.0,
    "lognormal": lambda rng, f: np.exp(f + 0.5 * rng.standard_normal(f.shape)),
    "weibull": lambda rng, f: np.exp(f) * rng.weibull(2.0, f.shape),
    "tweedie": lambda rng, f: tweedie(rng, np.exp(f)),
    "zero_inflated_poisson": lambda rng, f: zeros(rng, 0.3, f) * rng.poisson(np.exp(1.0 + f)),
    "zero_inflated_negative_binomial": lambda rng, f: (
        zeros(rng, 0.3, f) * rng.negative_binomial(3.0, 1 / (1 + np.exp(1.0 + f) / 3))
    ),
    "hurdle_poisson": lambda rng, f: (
        zeros(rng, 0.3, f) * positive(rng, poisson(np.exp(1.0 + f)), len(f))
    ),
}
"""Responses of a predictor, by the families' default links."""
INFLATED = ("zero_inflated_poisson", "zero_inflated_negative_binomial", "hurdle_poisson")
"""Their predictors are higher by one: zeros take from what counts say."""


class Truth:
    """
    One replicate's functions.

    :param rng: draws them.
    :param hidden: whether the curve is thirty waves.
    """

    def __init__(self, rng: np.random.Generator, hidden: bool) -> None:
        features = 200
        lengthscale = np.exp(rng.uniform(np.log(0.12), np.log(0.6)))
        self._w = rng.standard_normal(features) / lengthscale
        self._b = rng.uniform(0.0, 2.0 * np.pi, features)
        self._a = AMPLITUDE * np.sqrt(2.0 / features) * rng.standard_normal(features)
        if hidden:
            self._w, self._a = np.array([2.0 * np.pi * NUM_WAVES]), np.array([AMPLITUDE])
            self._b = self._b[:1]
        self.slope = SLOPE * rng.standard_normal()
        self.levels = 0.5 * rng.standard_normal(3)

    def curve(self, x: np.ndarray) -> np.ndarray:
        """[n]."""
        return np.cos(x[:, None] * self._w + self._b) @ self._a

    def derivative(self, x: np.ndarray) -> np.ndarray:
        """Of the curve, [n]."""
        return -np.sin(x[:, None] * self._w + self._b) @ (self._a * self._w)

    def on(self, x: np.ndarray) -> dict[str, np.ndarray]:
        """The functions at x, by name, not centred."""
        return {"curve": self.curve(x), "line": self.slope * x, "absent": 0.0 * x}

    def parts(self, table: pd.DataFrame) -> dict[str, np.ndarray]:
        """Effects at the rows, not centred."""
        names = "curve", "line", "absent"
        smooths = {f"s({name})": self.on(table[name].to_numpy())[name] for name in names}
        codes = table["g"].map({"a": 0, "b": 1, "c": 2}).to_numpy()
        return smooths | {"factor(g)": self.levels[codes]}

    def predictor(self, table: pd.DataFrame) -> np.ndarray:
        """[n]."""
        return 0.3 + np.sum(list(self.parts(table).values()), axis=0)


def replicate(
    family: str, number: int, seed: int, hidden: bool
) -> tuple[Truth, pd.DataFrame, pd.DataFrame]:
    """The truth, rows, and as many new ones."""
    rng = np.random.default_rng([seed, list(FAMILIES).index(family)])
    truth, tables = Truth(rng, hidden), []
    for _ in range(2):
        table = pd.DataFrame(rng.uniform(size=(number, 3)), columns=["curve", "line", "absent"])
        table["g"] = rng.choice(list("abc"), number)
        table["y"] = FAMILIES[family](rng, truth.predictor(table))
        tables.append(table)
    return truth, *tables
