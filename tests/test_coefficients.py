"""Coefficients, what summaries print of them, and effects through a function."""

import importlib
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import norm

import gpflow_gam as gg
from gpflow_gam import factor, linear, random_effect, s, te
from gpflow_gam.gam.terms import parse_formula


@pytest.fixture(scope="module")
def data():
    rng, n = np.random.default_rng(4), 150
    data = pd.DataFrame({"x": rng.uniform(2.0, 3.0, n), "z": 1e-6 * rng.normal(size=n)})
    data["g"] = rng.choice(["low", "mid", "top"], n)
    data["r"] = [f"r{i}" for i in rng.integers(0, 30, n)]
    eta = 2e5 * data["z"] + data["g"].map({"low": -0.5, "mid": 0.0, "top": 0.6})
    data["y"] = 40.0 + eta + 0.3 * rng.normal(size=n)
    data["count"] = rng.poisson(np.exp(1.0 + eta))
    data["grade"] = np.array(["bad", "fair", "good", "best"])[
        np.digitize(eta + rng.normal(size=n), [-0.8, 0.3, 1.2])
    ]
    data["wave"] = np.sin(20.0 * data["x"]) + 0.1 * rng.normal(size=n)
    return data


@pytest.fixture(scope="module")
def gam(data):
    terms = linear("z") + factor("g") + random_effect("r")
    return gg.GAM(terms).fit(data, "y")


def of(table, term):
    return table[table["term"] == term].set_index("level")


def test_a_slope_is_the_ridges_in_the_columns_unit(data):
    """Closed form of Bayesian linear regression at the fitted variances."""
    gam = gg.GAM(linear("z")).fit(data, "y")
    kernel = gam.model.kernel
    noise = float(gam.model.likelihood.variance.numpy())
    prior = np.diag([float(kernel[n].variance.numpy()) for n in ("intercept", "linear(z)")])
    A = np.column_stack([np.ones(len(data)), data["z"] - data["z"].mean()])
    constant = gam.fitted.spec.constant[0]
    S = np.linalg.inv(A.T @ A / noise + np.linalg.inv(prior))
    b = S @ A.T @ (data["y"] - constant) / noise
    table = gam.coefficients(unconditional=False, level=0.9)
    np.testing.assert_allclose(table["estimate"], b + np.array([constant, 0.0]), rtol=1e-4)
    np.testing.assert_allclose(table["se"], np.sqrt(np.diag(S)), rtol=2e-5)
    half = norm.ppf(0.95) * table["se"]
    np.testing.assert_allclose(table["upper"], table["estimate"] + half)
    assert list(table["column"]) == [None, "z"]
    assert (gam.coefficients()["se"] >= table["se"] * (1 - 1e-9)).all()


def test_parametric_terms_are_least_squares(data):
    gam = gg.GAM("y ~ z + g").fit(data)
    levels = [data["g"] == level for level in ("mid", "top")]
    A = np.column_stack([np.ones(len(data)), data["z"], *levels]).astype(float)
    b, (rest,), *_ = np.linalg.lstsq(A, data["y"], rcond=None)
    se = np.sqrt(np.diag(np.linalg.inv(A.T @ A)) * rest / len(data))
    table = gam.coefficients(reference="low", unconditional=False)
    result = table[(table["term"] != "intercept") & (table["level"] != "low")]
    np.testing.assert_allclose(result["estimate"], b[1:], rtol=0.01)
    np.testing.assert_allclose(result["se"], se[1:], rtol=0.02)
    assert "not penalised: linear(z), factor(g)." in str(gam.summary())
    ridge = gg.GAM(linear("z", shrink=True) + factor("g", shrink=True)).fit(data, "y")
    effects = [g.coefficients().set_index("level")["estimate"] for g in (gam, ridge)]
    assert abs(effects[1]["top"]) < abs(effects[0]["top"])
    assert "not penalised" not in str(ridge.summary())
    assert parse_formula(f"y ~ {ridge.terms!r}").terms == ridge.terms


@pytest.mark.parametrize(("family", "rare"), [("bernoulli", 12), ("poisson", 30)])
def test_parametric_terms_are_those_of_a_table(family, rare):
    """Log odds of 2 x 2 tables, and log means, with their classic errors."""
    rng = np.random.default_rng(1)
    code = np.r_[np.zeros(200, int), np.ones(rare, int)]
    p = np.array([0.3, 0.6])
    y = rng.binomial(1, p[code]) if family == "bernoulli" else rng.poisson(4.0 * p[code])
    gam = gg.GAM(factor("code"), family=family).fit({"code": code, "y": y}, y="y")
    result = gam.coefficients(reference=0).set_index("level").loc[1]
    hits, rows = np.bincount(code, y), np.bincount(code)
    if family == "bernoulli":
        logs, variances = np.log(hits / (rows - hits)), 1.0 / hits + 1.0 / (rows - hits)
    else:
        logs, variances = np.log(hits / rows), 1.0 / hits
    se = np.sqrt(variances.sum())
    assert result["estimate"] == pytest.approx(logs[1] - logs[0], abs=0.15 * se)
    assert result["se"] == pytest.approx(se, rel=0.08)


@pytest.mark.parametrize("family", ["bernoulli", "poisson", "zero_inflated_poisson"])
def test_what_the_data_do_not_determine_is_finite_and_said(family):
    rng = np.random.default_rng(2)
    data = pd.DataFrame({"g": rng.choice(list("abc"), 300), "x": rng.normal(size=300)})
    y = rng.binomial(1, 0.5, 300) if family == "bernoulli" else rng.poisson(3.0, 300)
    data["y"] = np.where(data["g"] == "b", 0, y)
    with pytest.warns(gg.IdentifiabilityWarning, match=r"factor\(g\) of level 'b'.*shrink=True"):
        gam = gg.GAM("y ~ g + x", family=family).fit(data)
    table = gam.coefficients().set_index("level")
    assert -12.0 < table.loc["b", "estimate"].min() < -4.0
    assert np.isfinite(table["se"]).all()
    data["v"] = rng.normal(size=300)
    with pytest.warns(gg.IdentifiabilityWarning, match=r"not determine linear\(x\)"):
        gg.GAM("y ~ x + v + w", family=family).fit(data.assign(w=data["x"] - data["v"]))
    with warnings.catch_warnings(action="error", category=gg.IdentifiabilityWarning):
        if family == "bernoulli":  # few rows, and a level of two rows that differ
            few = pd.DataFrame({"x": np.linspace(-1.0, 1.0, 20), "g": list("ab" + "c" * 18)})
            few["g"] = few["g"].replace({"a": "b"})
            few["y"] = np.tile([0, 1, 1, 0], 5)
            gg.GAM("y ~ x + g", family=family).fit(few)
        gg.GAM("y ~ g + x", family=family).fit(data[data["g"] != "b"])
        one = data[data["g"] != "b"].assign(y=rng.normal(size=(data["g"] != "b").sum()))
        one.iloc[0, 0] = "alone"  # the noise of its row is known
        gg.GAM("y ~ g + x").fit(one)


def test_steep_slopes_are_not_shrunk():
    """Beside Newton's method for the likelihood: fifteen standard deviations of the link apart."""
    x = np.random.default_rng(3).normal(size=400)
    y = np.random.default_rng(4).binomial(1, 1.0 / (1.0 + np.exp(-8.0 * x)))
    A, b = np.column_stack([np.ones(400), x]), np.zeros(2)
    for _ in range(50):
        p = 1.0 / (1.0 + np.exp(-A @ b))
        information = A.T @ (A * (p * (1.0 - p))[:, None])
        b = b + np.linalg.solve(information, A.T @ (y - p))
    se = np.sqrt(np.linalg.inv(information)[1, 1])
    result = gg.GAM(linear("x"), family="bernoulli").fit({"x": x, "y": y}, y="y")
    slope = result.coefficients().set_index("term").loc["linear(x)"]
    assert abs(slope["estimate"] - b[1]) < 0.6 * se  # a mean, beside a mode
    assert slope["se"] == pytest.approx(se, rel=0.2)


@pytest.mark.parametrize("family", ["gaussian", "poisson"])
def test_a_rare_level_is_known_by_its_rows_wherever_it_stands(family):
    """Effects average to zero, so that one follows from the others: not a rare one."""
    rng = np.random.default_rng(0)
    code = np.r_[rng.choice([1, 2, 3], 100_000), 0, 0, 4, 4]
    y = rng.normal(size=len(code)) if family == "gaussian" else rng.poisson(3.0, len(code))
    y[-4:] = [3, 5, 3, 5]
    table = gg.GAM(factor("c"), family=family).fit({"c": code, "y": y}, y="y")
    first, last = table.coefficients().set_index("level").loc[[0, 4], ["estimate", "se"]].to_numpy()
    np.testing.assert_allclose(first, last, rtol=1e-3)
    noise, mean = (1.0, 4.0) if family == "gaussian" else (0.5, np.log(4.0 / 3.0))
    assert last[0] == pytest.approx(mean, abs=0.1)
    assert last[1] == pytest.approx(noise / np.sqrt(2.0), rel=0.3)


@pytest.mark.parametrize("formula", ["y ~ 1", "y ~ x", "y ~ x + factor(g)", "y ~ factor(g) - 1"])
def test_a_million_rows_leave_the_least_squares_errors(formula):
    """Of the predictor: nothing that priors or jitter add is left beside 1 / N."""
    rng = np.random.default_rng(0)
    n = 1_000_000
    data = pd.DataFrame({"x": rng.integers(0, 50, n), "g": rng.choice(list("abc"), n)})
    data["y"] = rng.normal(3.0, 1.0, n)
    gam = gg.GAM(formula).fit(data)
    mean, se = gam.predict(data[:4], "link", se=True, unconditional=False)
    dummies = pd.get_dummies(data["g"]).to_numpy(float)
    constant, x = np.ones((n, 1)), data[["x"]].to_numpy(float)
    A = {"y ~ 1": constant, "y ~ x": np.hstack([constant, x]), "y ~ factor(g) - 1": dummies}.get(
        formula, np.hstack([dummies, x])
    )
    b = np.linalg.solve(A.T @ A, A.T @ data["y"])
    variance = np.sum(np.square(data["y"] - A @ b)) / n
    want = np.sqrt(np.diag(A[:4] @ np.linalg.solve(A.T @ A, A[:4].T)) * variance)
    np.testing.assert_allclose(se, want, rtol=1e-3)
    np.testing.assert_allclose(mean, A[:4] @ b, atol=1e-2 * want.min())


def test_they_make_the_predictor(gam, data):
    table = gam.coefficients()
    slope = float(table.loc[table["term"] == "linear(z)", "estimate"].iloc[0])
    total = float(table["estimate"].iloc[0]) + slope * (data["z"] - data["z"].mean())
    for term, column in (("factor(g)", "g"), ("random_effect(r)", "r")):
        total = total + data[column].map(of(table, term)["estimate"])
    np.testing.assert_allclose(total, gam.predict(data), rtol=1e-6)
    counts = data["g"].value_counts()
    mean = (of(table, "factor(g)")["estimate"] * counts).sum() / len(data)
    assert abs(mean) < 1e-6


def test_differences_from_a_level(gam):
    table = of(gam.coefficients({"g": "mid"}), "factor(g)")
    pairs = gam.differences("factor(g)").set_index(["level_1", "level_2"])
    assert table.loc["mid", ["estimate", "se"]].tolist() == [0.0, 0.0]
    for what, sign in (("estimate", -1.0), ("se", 1.0)):
        assert table.loc["top", what] == pytest.approx(
            sign * pairs.loc[("mid", "top"), what], rel=1e-3
        )
        assert table.loc["low", what] == pytest.approx(pairs.loc[("low", "mid"), what], rel=1e-3)
    by_name = of(gam.coefficients({"factor(g)": "mid"}), "factor(g)")
    pd.testing.assert_frame_equal(by_name, table)


@pytest.fixture(scope="module")
def many():
    rng = np.random.default_rng(8)
    n = 4000
    data = pd.DataFrame({"z": rng.normal(5.0, 1.0, n), "g": rng.choice(list("abc"), n)})
    data["h"] = rng.choice(["u", "v"], n)
    group = data["g"].map({"a": 0.0, "b": 2.0, "c": -0.5})
    data["y"] = 3.0 + 0.4 * data["z"] + group + 0.7 * (data["h"] == "v") + rng.normal(size=n)
    data["each"] = data["y"] + 0.3 * group * data["z"]
    return data


@pytest.mark.parametrize("unconditional", [False, True])
def test_the_intercept_of_references_is_a_prediction(many, unconditional):
    data = many.head(400)
    gam = gg.GAM(linear("z") + factor("g") + random_effect("h")).fit(data, "y")
    row = pd.DataFrame({"z": [0.0], "g": "c", "h": "u"})
    options = {"unconditional": unconditional}

    def intercept(reference):
        return gam.coefficients(reference, **options).iloc[0][["estimate", "se"]].to_numpy(float)

    def predicted(**part):
        return np.ravel(gam.predict(row, "link", se=True, **part, **options))

    rtol = 1e-3 if unconditional else 1e-5
    np.testing.assert_allclose(intercept({"g": "c", "h": "u"}), predicted(), rtol=rtol)
    # levels that are not named stay at their average
    part = predicted(exclude="random_effect(h)")
    np.testing.assert_allclose(intercept({"factor(g)": "c"}), part, rtol=rtol)
    np.testing.assert_allclose(intercept({}), predicted(terms="linear(z)"), rtol=rtol)
    none = predicted(terms=[])
    np.testing.assert_allclose(intercept(None), none, rtol=rtol)


def test_lines_of_levels_are_at_zero_of_the_reference(many):
    """Two ways to write ``lm(each ~ z * g + h)``, which are one model."""
    data = many
    by = gg.GAM(s("z", bs="linear", by="g") + factor("g") + factor("h")).fit(data, "each")
    row = pd.DataFrame({"z": 0.0, "g": list("abc"), "h": "v"})
    at_zero, se = by.predict(row, "link", se=True, unconditional=False)
    for place, level in enumerate("abc"):
        result = by.coefficients({"g": level, "h": "v"}, unconditional=False).iloc[0]
        np.testing.assert_allclose(result["estimate"], at_zero[place], rtol=1e-6)
        np.testing.assert_allclose(result["se"], se[place], rtol=1e-4)
    shares = data["g"].value_counts(normalize=True)[list("abc")].to_numpy()
    result = by.coefficients({"h": "v"})["estimate"].iloc[0]
    np.testing.assert_allclose(result, shares @ at_zero, rtol=1e-6)
    made = gg.GAM("each ~ z*g + factor(h)").fit(data)
    result = made.coefficients({"h": "v"}).iloc[0]
    assert result["estimate"] == pytest.approx(at_zero[0], abs=0.1 * se[0])
    assert result["se"] == pytest.approx(se[0], rel=0.02)


def test_each_predictor_has_an_intercept_of_references(many):
    data = many.head(600)
    terms = {"mean": linear("z") + factor("g"), "scale": factor("h")}
    gam = gg.GAM(terms).fit(data, "y")
    result = gam.coefficients({"g": "b", "h": "v"}, unconditional=False).iloc[:2]
    row = pd.DataFrame({"z": [0.0], "g": "b", "h": "v"})
    mean, se = gam.predict(row, "link", se=True, unconditional=False)
    np.testing.assert_allclose(result["estimate"], mean[0], rtol=1e-6)
    np.testing.assert_allclose(result["se"], se[0], rtol=1e-4)
    # a factor whose levels have their own means has no intercept to move
    own = gg.GAM(factor("g") - 1).fit(data, "y")
    assert list(own.coefficients({"g": "a"})["term"]) == ["factor(g)"] * 3


def test_many_levels_are_the_same_in_parts(gam, monkeypatch):
    whole = gam.coefficients({"r": "r7"})
    monkeypatch.setattr(importlib.import_module("gpflow_gam.gam.effects.effect"), "_LEVELS", 7)
    pd.testing.assert_frame_equal(gam.coefficients({"r": "r7"}), whole, rtol=1e-9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"reference": "mid"}, r"reference='mid' could be of 2 terms; name the column"),
        ({"reference": {"h": "mid"}}, r"no factor 'h'; there are factor\(g\), random_effect\(r\)"),
        ({"reference": {"g": "high"}}, r"no level 'high'; its levels are 'low', 'mid', 'top'"),
        ({"level": 95}, "level must be a probability"),
    ],
)
def test_bad_arguments_are_named(gam, arguments, message):
    with pytest.raises(ValueError, match=message):
        gam.coefficients(**arguments)


def test_a_bare_level_is_of_the_only_factor(data):
    gam = gg.GAM(factor("g"), "poisson").fit(data, "count")
    plain = gam.coefficients("low")
    assert of(plain, "factor(g)").loc["low", "estimate"] == 0.0
    rates = gam.coefficients("low", fun=np.exp)
    for what in ("estimate", "lower", "upper"):
        np.testing.assert_allclose(rates[what], np.exp(plain[what]))
    assert "se" not in rates  # that of the logarithm is none of a rate
    # a ratio of rates: what two predictions are apart
    two = pd.DataFrame({"z": 0.0, "g": ["top", "low"]})
    link = gam.predict(two, "link")
    ratio = of(rates, "factor(g)").loc["top", "estimate"]
    assert ratio == pytest.approx(np.exp(link[0] - link[1]), rel=1e-6)
    pairs = gam.differences("factor(g)", fun=np.exp)
    assert pairs["estimate"].iloc[1] == pytest.approx(1.0 / ratio)
    falling = gam.effects("factor(g)", fun=np.negative)
    assert (falling["lower"] < falling["estimate"]).all()
    assert (falling["lower_simultaneous"] <= falling["lower"]).all()
    np.testing.assert_allclose(-falling["upper"], gam.effects("factor(g)")["lower"])


def test_functions_that_are_none(gam):
    with pytest.raises(TypeError, match="fun must be a function"):
        gam.effects("factor(g)", fun="exp")
    with pytest.raises(ValueError, match="fun must give a number for each"):
        gam.effects("factor(g)", fun=np.sum)
    with pytest.raises(ValueError, match="fun is not a number at -"), np.errstate(all="ignore"):
        gam.effects("factor(g)", fun=np.sqrt)


# --- summaries -----------------------------------------------------------------------------------


def test_summaries_print_them(gam):
    text = str(gam.summary())
    table = gam.summary().coefficients
    assert f"factor(g) | mid  {of(table, 'factor(g)').loc['mid', 'estimate']:.4g}" in text
    assert "intercept" in text
    assert "of the levels of random_effect(r) see coefficients()." in text
    pd.testing.assert_frame_equal(table, gam.coefficients().iloc[: len(table)])
    assert "factor(g) | mid" in gam.summary()._repr_html_()


@pytest.mark.slow
def test_cutpoints_are_named_by_what_they_part(data):
    order = ("bad", "fair", "good", "best")
    gam = gg.GAM(linear("z") + factor("g"), gg.families.Ordinal(order)).fit(data, "grade")
    cuts = gam.model.likelihood.cutpoints.numpy()
    summary = gam.summary()
    assert list(summary.parameters) == ["bad | fair", "fair | good", "good | best"]
    np.testing.assert_allclose(list(summary.parameters.values()), cuts)
    assert f"good | best {cuts[2]:.4g}" in str(summary)


def test_too_few_inducing_values_are_flagged(data):
    few, enough = (gg.GAM(s("x", k=k) + factor("g")).fit(data, "wave").summary() for k in (8, 40))
    assert few.table.loc["s(x)", "k_low"]
    assert "8 *" in str(few)
    assert "k may be too small" in str(few)
    assert not enough.table["k_low"].any()
    assert "too small" not in str(enough)
    hours = data.assign(h=np.round(10.0 * data["x"]))
    every = gg.GAM(s("h")).fit(hours.assign(wave=np.cos(4.0 * hours["h"])), "wave")
    assert not every.summary().table["k_low"].any()  # one for each value


# --- variance components -------------------------------------------------------------------------


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


def reml(plots, between, noise):
    """Minus the restricted log-likelihood by definition, and the prior's part of it."""
    g, y = plots["g"].to_numpy(), plots["y"].to_numpy()
    V = between * (g[:, None] == g) + noise * np.eye(len(y))
    one = np.ones((len(y), 1))
    A = one.T @ np.linalg.solve(V, one)
    e = y - (one @ np.linalg.solve(A, one.T @ np.linalg.solve(V, y)))
    determinants = np.linalg.slogdet(V)[1] + np.linalg.slogdet(A)[1]
    wide = 2.0 * np.log1p(between / (20.0 * y.var()))
    return 0.5 * (determinants + e @ np.linalg.solve(V, e)) + wide


@pytest.fixture(scope="module")
def plots():
    return one_way([10] * 12)


@pytest.mark.parametrize("unit", [1.0, 1000.0])
def test_balanced_groups_have_the_estimates_of_the_analysis_of_variance(plots, unit):
    scaled = plots.assign(y=unit * plots["y"])
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
def test_parts_of_terms_make_what_the_summary_prints(plots):
    terms = s("x", k=8) + te("x", "z", k=9) + s("x", by="z", k=8)
    terms = terms + linear("y", shrink=True) + factor("h") + random_effect("g")
    gam = gg.GAM(terms, "poisson").fit(plots, "count")
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
def test_each_predictor_has_its_rows(plots):
    terms = {"mean": [s("x", k=8), random_effect("g")], "scale": [random_effect("h")]}
    gam = gg.GAM(terms, "heteroskedastic").fit(plots, "y")
    table = gam.variance_components()
    far = gg.GAM(terms, "heteroskedastic").fit(plots.assign(y=1e3 * plots["y"]), "y")
    names = ["mean", "mean", "mean", "scale"]
    assert [n.split("(")[0] for n in table["predictor"].str.replace("log ", "")] == names
    upper = far.variance_components()["upper"]
    np.testing.assert_allclose(upper, [1e3, 1e3, 1e3, 1.0] * table["upper"], rtol=0.02)
    classes = gg.GAM([random_effect("g")], "categorical").fit(plots, "kind")
    shared = classes.variance_components()
    assert len(shared) == shared["predictor"].nunique() == 3
    assert shared["sd"].nunique() == 1


@pytest.mark.slow
def test_no_limits_without_a_marginal_likelihood(plots):
    terms = s("x", shape="increasing", k=8) + random_effect("g")
    shaped = gg.GAM(terms).fit(plots, "y").variance_components().set_index("term")
    assert shaped.loc["s(x)", "upper"].isna().all()
    alone = gg.GAM([random_effect("g")]).fit(plots, "y").variance_components()
    own = shaped.loc["random_effect(g)", ["lower", "upper"]].astype(float)
    np.testing.assert_allclose(own, alone.loc[0, ["lower", "upper"]].astype(float), rtol=0.1)
    for option, fit in (({}, {"criterion": "ncv"}), ({"engine": "iterncgp"}, {})):
        result = gg.GAM([random_effect("g")], "poisson", **option)
        table = result.fit(plots, "count", **fit).variance_components()
        assert table[["lower", "upper"]].isna().all(axis=None)
        assert np.all(table["sd"] > 0.0)


def test_what_is_not_penalised_has_none(plots):
    table = gg.GAM("count ~ x + h", "poisson").fit(plots).variance_components()
    assert table.empty
    assert table["upper"].dtype == float
    ridge = gg.GAM([factor("h", shrink=True)], intercept=False).fit(plots, "y")
    assert list(ridge.variance_components()["part"]) == ["", ""]


# --- concurvity by pairs -------------------------------------------------------------------------

QUICK = {"max_iterations": 15}


@pytest.fixture(scope="module")
def bent():
    rng, number = np.random.default_rng(1), 200
    df = pd.DataFrame({"x": rng.uniform(size=number), "free": rng.uniform(size=number)})
    df["bent"] = (df["x"] - 0.4) ** 2  # a function of x, of which x is none
    df["g"] = np.where(df["x"] > 0.5, "high", "low")
    df["y"] = np.sin(6 * df["x"]) + df["bent"] + df["free"] + 0.2 * rng.standard_normal(number)
    return df


@pytest.fixture(scope="module")
def alike(bent):
    terms = s("x") + s("bent", k=8) + s("free", k=8) + linear("x") + factor("g")
    return gg.GAM(terms).fit(bent, y="y", **QUICK)


def test_pairs_are_what_regression_on_one_effect_explains(alike):
    table = alike.concurvity(full=False)
    moments, X = alike.fitted.moments, alike.fitted.X
    for measure in ("observed", "estimate"):
        result = table.loc[measure]
        for one in alike.names:
            A = moments.features(one, X).T
            A = A - A.mean(axis=0)
            # of one size with the constant, beside which directions of next to no size are
            A = np.column_stack([np.ones(len(X)), A * np.sqrt(len(X)) / np.linalg.norm(A)])
            for other in alike.names:
                B = moments.features(other, X).T
                if measure == "observed":
                    B = B @ moments.mean[moments.block(other)]
                B = B - B.mean(axis=0)
                # directions of next to no size are left out, there as here
                left = B - A @ np.linalg.lstsq(A, B, rcond=1e-3)[0]
                expected = 1.0 if one == other else 1.0 - np.sum(left**2) / np.sum(B**2)
                assert result.loc[one, other] == pytest.approx(expected, abs=2e-4), (one, other)


def test_rows_explain_columns(alike):
    result = alike.concurvity(full=False).loc["estimate"]
    assert result.loc["s(x)", "s(bent)"] > 0.99  # bent is a function of x
    assert result.loc["s(bent)", "s(x)"] < 0.9  # and x none of it
    assert result.loc["s(x)", "linear(x)"] > 0.99
    assert result.loc["s(free)", "s(x)"] < 0.1
    assert result.loc["s(x)", "s(free)"] < 0.15
    np.testing.assert_array_equal(np.diag(result), 1.0)
    # with one other effect there is no difference between it and all others
    assert (alike.concurvity()["estimate"] >= result.where(result < 1.0).max() - 1e-6).all()


@pytest.mark.parametrize("full", [True, False])
def test_weights_count_rows(full):
    """Rows that count nothing are those that make x and z alike."""
    rng = np.random.default_rng(2)
    x, w = rng.uniform(size=200), rng.integers(0, 3, 200)
    z = np.where(w == 0, x, rng.uniform(size=200))
    table = pd.DataFrame({"x": x, "z": z, "w": w, "y": np.sin(6 * x) + z + rng.normal(size=200)})
    repeated = table.loc[table.index.repeat(w)].reset_index(drop=True)
    terms, fine = s("x", k=8) + s("z", k=8), {"tolerance": 1e-6}
    counted = gg.GAM(terms, weights="w").fit(table, y="y", **fine).concurvity(full)
    expected = gg.GAM(terms).fit(repeated, y="y", **fine).concurvity(full)
    np.testing.assert_allclose(counted, expected, atol=2e-3)
