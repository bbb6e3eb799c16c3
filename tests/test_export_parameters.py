"""Exported GAMs with terms for each parameter: every predictor as ``predict`` has it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import gpflow_gam as gg
from gpflow_gam import s

UNIT = 1000.0


def made(family: str) -> tuple[pd.DataFrame, dict[str, object]]:
    rng = np.random.default_rng(0)
    x = rng.uniform(size=200)
    f, g = np.sin(6.0 * x), np.exp(-1.5 + x)
    first = "mean"
    if family == "gamma":
        y = rng.gamma(1.0 / g, np.exp(f) * g)
    elif family in ("lognormal", "weibull"):
        y, first = np.exp(f + g * rng.normal(size=200)), "location"
    else:
        y, first = f + g * rng.normal(size=200), "mean" if family == "gaussian" else "location"
    return pd.DataFrame({"x": x, "y": UNIT * y}), {first: s("x", k=6), "scale": s("x", k=5)}


@pytest.mark.parametrize("family", ["gaussian", "student_t", "gamma", "lognormal", "weibull"])
def test_predictors_are_those_of_predict(family: str, tmp_path: Path) -> None:
    data, terms = made(family)
    gam = gg.GAM(terms, family).fit(data, "y", progress=False)
    gg.serving.export(gam, tmp_path / "1")
    served, rows = gg.serving.load(tmp_path / "1"), data[["x"]].head(7)
    found = served.predict(rows)
    mean, se = gam.predict(rows, "link", se=True, unconditional=False)
    np.testing.assert_allclose(found["mean"], mean, rtol=1e-9)
    np.testing.assert_allclose(np.sqrt(found["variance"]), se, rtol=1e-6)
    np.testing.assert_allclose(found["response"], gam.predict(rows), rtol=1e-6)
    parts = served.predict_components(rows)
    own, errors = gam.predict(rows, "terms", se=True, unconditional=False)
    names = list(gam.fitted.spec.names)
    for i, name in enumerate(gam.names):
        part = np.asarray(parts["mean"])[:, names.index(name), i]
        np.testing.assert_allclose(part, np.ravel(own[name]), rtol=1e-6, atol=1e-9 * UNIT)
        spread = np.sqrt(np.asarray(parts["variance"])[:, names.index(name), i])
        np.testing.assert_allclose(spread, np.ravel(errors[name]), rtol=1e-5)
    draws = np.asarray(served.sample(rows, num_samples=4000, seed=1)["predictor"])
    assert np.max(np.abs(draws.mean(axis=0) - mean) / se) < 5.0 / np.sqrt(4000.0)
