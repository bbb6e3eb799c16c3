"""Variance components: estimates, their intervals, units, and where they cannot be said."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq, minimize_scalar

import gpflow_gam as gg
from gpflow_gam import factor, linear, random_effect, s, te


def one_way(sizes, sd=0.7, seed=3):
    rng = np.random.default_rng(seed)
    g = np.repeat(np.arange(len(sizes)), sizes)
    y = 5.0 + sd * rng.normal(size=len(sizes))[g] + rng.normal(size=len(g))
    data = pd.DataFrame({"g": [f"level {i}" for i in g], "y": y, "x": rng.uniform(size=len(g))})
    data["z"] = rng.normal(size=len(g))
    data["h"] = rng.choice(list("abcdef"), len(g))
    data["count"] = rng.poisson(np.exp(0.3 * (y - 5.0)))
    data["kind"] = np.array(list("abc"))[np.digitize(y + rng.logistic(size=len(g)), [4.5, 5.5])]
    return data


def reml(data, between, noise):
    """Minus the restricted log-likelihood by definition, and the prior's part of it."""
    g, y = data["g"].to_numpy(), data["y"].to_numpy()
    V = between * (g[:, None] == g) + noise * np.eye(len(y))
    one = np.ones((len(y), 1))
    A = one.T @ np.linalg.solve(V, one)
    e = y - (one @ np.linalg.solve(A, one.T @ np.linalg.solve(V, y)))
    determinants = np.linalg.slogdet(V)[1] + np.linalg.slogdet(A)[1]
    wide = 2.0 * np.log1p(between / (20.0 * y.var()))
    return 0.5 * (determinants + e @ np.linalg.solve(V, e)) + wide


@pytest.fixture(scope="module")
def data():
    return one_way([10] * 12)


@pytest.fixture(scope="module")
def gam(data):
    return gg.GAM([random_effect("g")]).fit(data, "y")


@pytest.mark.parametrize("unit", [1.0, 1000.0])
def test_balanced_groups_have_the_estimates_of_the_analysis_of_variance(data, unit):
    scaled = data.assign(y=unit * data["y"])
    table = gg.GAM([random_effect("g")]).fit(scaled, "y").variance_components()
    assert list(table["term"]) == ["random_effect(g)", "residual"]
    groups = scaled.groupby("g")["y"]
    within = groups.var().mean()
    between = groups.mean().var() - within / 10.0
    # flat up to twenty times the response's variance, the prior takes a half per cent
    np.testing.assert_allclose(table["sd"], np.sqrt([between, within]), rtol=8e-3)
    np.testing.assert_allclose(table["sd"], np.sqrt(table["variance"]), rtol=1e-12)


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_intervals_are_those_of_the_profile_of_reml(level):
    data = one_way([3, 4, 5, 8, 12, 20, 3, 6])
    table = gg.GAM([random_effect("g")]).fit(data, "y").variance_components(level)

    def profile(log_between):
        return minimize_scalar(
            lambda u: reml(data, np.exp(log_between), np.exp(u)), bounds=(-3, 3), method="bounded"
        ).fun

    best = minimize_scalar(profile, bounds=(-6, 4), method="bounded")
    z = {0.8: 1.2815515655, 0.95: 1.9599639845}[level]
    ends = [
        brentq(lambda u: profile(u) - best.fun - 0.5 * z**2, *sorted((best.x, end)))
        for end in (best.x - 8.0, best.x + 4.0)
    ]
    result = table.iloc[0][["sd", "lower", "upper"]].astype(float)
    np.testing.assert_allclose(result, np.exp(0.5 * np.array([best.x, *ends])), rtol=0.005)


def test_an_effect_that_is_not_there_may_be_none():
    data = one_way([10] * 12, sd=0.0, seed=1)
    result = gg.GAM([s("x"), random_effect("g")]).fit(data, "y").variance_components()
    own = result.set_index("term").loc["random_effect(g)"]
    assert own["lower"] == 0.0
    assert own["sd"] < 0.05
    assert own["sd"] < own["upper"] < 0.5


@pytest.mark.slow
def test_parts_of_terms_make_what_the_summary_prints(data):
    terms = s("x", k=8) + te("x", "z", k=9) + s("x", by="z", k=8)
    terms = terms + linear("y", shrink=True) + factor("h") + random_effect("g")
    gam = gg.GAM(terms, "poisson").fit(data, "count")
    table, summary = gam.variance_components(), gam.summary().to_frame()
    parts = table.groupby("term")["part"].agg(list)
    assert parts["s(x)"] == ["straight", "deviation"]
    assert parts["te(x,z)"] == ["straight in x", "straight in z", "deviation"]
    assert parts["s(x):z"] == ["level", "straight", "deviation"]
    assert parts["random_effect(g)"] == parts["linear(y)"] == [""]
    assert not {"factor(h)", "residual"} & set(table["term"])
    whole = np.sqrt(table[table["part"] != "level"].groupby("term")["variance"].sum())
    np.testing.assert_allclose(summary.loc[whole.index, "prior_sd"], whole, rtol=1e-12)
    assert np.all(table["lower"] <= table["sd"])
    assert np.all(table["sd"] <= table["upper"])


@pytest.mark.slow
def test_each_predictor_has_its_rows(data):
    terms = {"mean": [s("x", k=8), random_effect("g")], "scale": [random_effect("h")]}
    gam = gg.GAM(terms, "heteroskedastic").fit(data, "y")
    table = gam.variance_components()
    far = gg.GAM(terms, "heteroskedastic").fit(data.assign(y=1e3 * data["y"]), "y")
    names = ["mean", "mean", "mean", "scale"]
    assert [n.split("(")[0] for n in table["predictor"].str.replace("log ", "")] == names
    upper = far.variance_components()["upper"]
    np.testing.assert_allclose(upper, [1e3, 1e3, 1e3, 1.0] * table["upper"], rtol=0.02)
    classes = gg.GAM([random_effect("g")], "categorical").fit(data, "kind")
    shared = classes.variance_components()
    assert len(shared) == shared["predictor"].nunique() == 3
    assert shared["sd"].nunique() == 1


@pytest.mark.slow
def test_no_limits_without_a_marginal_likelihood(data):
    terms = s("x", shape="increasing", k=8) + random_effect("g")
    shaped = gg.GAM(terms).fit(data, "y").variance_components().set_index("term")
    assert shaped.loc["s(x)", "upper"].isna().all()
    alone = gg.GAM([random_effect("g")]).fit(data, "y").variance_components()
    own = shaped.loc["random_effect(g)", ["lower", "upper"]].astype(float)
    np.testing.assert_allclose(own, alone.loc[0, ["lower", "upper"]].astype(float), rtol=0.1)
    for option, fit in (({}, {"criterion": "ncv"}), ({"engine": "iterncgp"}, {})):
        result = gg.GAM([random_effect("g")], "poisson", **option)
        table = result.fit(data, "count", **fit).variance_components()
        assert table[["lower", "upper"]].isna().all(axis=None)
        assert np.all(table["sd"] > 0.0)


def test_what_is_not_penalised_has_none(data):
    table = gg.GAM("count ~ x + h", "poisson").fit(data).variance_components()
    assert table.empty
    assert table["upper"].dtype == float
    ridge = gg.GAM([factor("h", shrink=True)], intercept=False).fit(data, "y")
    assert list(ridge.variance_components()["part"]) == ["", ""]
