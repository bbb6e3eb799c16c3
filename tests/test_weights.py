"""Weights count rows: fits with weights beside fits to rows that are there as often."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import gpflow_gam as gg
from gpflow_gam import s

ROWS = 160


def responses() -> dict[str, np.ndarray]:
    """A response for each family, by its name."""
    rng = np.random.default_rng(0)
    x, noise = np.linspace(0.0, 1.0, ROWS), rng.normal(size=ROWS)
    f = np.sin(6.0 * x)
    mean, share = np.exp(0.5 + f), 1.0 / (1.0 + np.exp(-f))
    counts, scattered = rng.poisson(mean), rng.poisson(mean * rng.gamma(2.0, 0.5, ROWS))
    positive, there = mean * rng.gamma(3.0, 1.0 / 3.0, ROWS), rng.binomial(1, 0.7, ROWS)
    classes = np.digitize(f + rng.logistic(size=ROWS), [-1.0, 1.0])
    beta = np.clip(rng.beta(6.0 * share, 6.0 * (1.0 - share)), 1e-4, 1.0 - 1e-4)
    return {
        "gaussian": f + 0.3 * noise,
        "student_t": f + 0.3 * rng.standard_t(4.0, ROWS),
        "heteroskedastic": f + np.exp(x - 1.5) * noise,
        "quantile": f + 0.3 * noise,
        "gamma": positive,
        "weibull": mean * rng.weibull(1.5, ROWS),
        "lognormal": np.exp(f + 0.3 * noise),
        "tweedie": positive * there,
        "poisson": counts,
        "quasipoisson": scattered,
        "negative_binomial": scattered,
        "zero_inflated_poisson": counts * there,
        "hurdle_poisson": counts * there,
        "bernoulli": rng.binomial(1, share),
        "beta": beta,
        "ordinal": classes,
        "categorical": np.array(["a", "b", "c"])[classes],
    }


@pytest.mark.parametrize("family", list(responses()))
def test_a_weight_is_as_many_rows(family: str) -> None:
    """In what is learnt and predicted, in what is left out, and in what a summary says."""
    weights = np.random.default_rng(1).integers(0, 4, ROWS).astype(float)
    table = pd.DataFrame({"x": np.linspace(0.0, 1.0, ROWS), "y": responses()[family], "w": weights})
    repeated = table.loc[table.index.repeat(weights.astype(int))].reset_index(drop=True)
    fine = {"y": "y", "tolerance": 1e-6, "progress": False}
    weighted = gg.GAM(s("x", k=8), family, weights="w").fit(table, **fine)
    plain = gg.GAM(s("x", k=8), family).fit(repeated, **fine)
    asked = table.iloc[::20]
    known = {"se": True, "unconditional": False}
    (mean, se), (expected, error) = (g.predict(asked, "link", **known) for g in (weighted, plain))
    np.testing.assert_allclose(mean, expected, atol=1e-2 * np.min(error))
    np.testing.assert_allclose(se, error, rtol=1e-2)
    one, two = weighted.summary(), plain.summary()
    assert one.edf == pytest.approx(two.edf, rel=1e-2)
    assert one.deviance_explained == pytest.approx(two.deviance_explained, abs=1e-3)
