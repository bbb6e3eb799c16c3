"""Effects on the response's scale, against predictions, closed forms and known truths."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

import gpflow_gam as gg
from gpflow_gam import factor, linear, s
from gpflow_gam.gam.effects import critical_values, simultaneous_bands
from gpflow_gam.gam.effects.posterior import joint_moments

QUICK = {"max_iterations": 12}
GRID = np.linspace(0.05, 0.95, 12)
SUMMARY = ["estimate", "se", "lower", "upper"]


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(7)
    df = pd.DataFrame({"x": rng.uniform(size=150), "z": rng.normal(size=150)})
    df["g"] = rng.choice(["a", "b", "c"], 150)
    f = np.sin(6 * df["x"]) + 0.5 * df["z"] + df["g"].map({"a": 0.0, "b": 0.5, "c": -0.5})
    df["y"] = 20.0 + 8.0 * (f + 0.3 * rng.standard_normal(150))
    df["log_e"] = rng.uniform(-1, 1, 150)
    df["count"] = rng.poisson(np.exp(f + df["log_e"]))
    codes = np.digitize(f + rng.logistic(size=150), [-0.3, 1.0])
    df["kind"] = pd.Categorical.from_codes(codes, ["u", "v", "w"], ordered=True)
    return df


FAMILIES = {
    "gaussian": ("y", None),
    "poisson": ("count", "log_e"),
    "categorical": ("kind", None),
    "ordinal": ("kind", None),
    "heteroskedastic": ("y", None),
}


def fitted(data, family):
    y, offset = FAMILIES[family]
    terms = s("x") + linear("z") + factor("g")
    return gg.GAM(terms, family=family, offset=offset).fit(data, y=y, **QUICK)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("family", list(FAMILIES))
def test_it_is_the_prediction_from_that_term_alone(data, family):
    """Two routes: with offsets at their mean, in any unit, with several predictors or classes."""
    gam = fitted(data, family)
    rows = pd.DataFrame({"x": GRID, "log_e": data["log_e"].mean()})
    result = gam.effects("s(x)", GRID, scale="response", level=0.9, unconditional=False)
    expected = gam.predict(rows, terms="s(x)", interval=0.9, unconditional=False)
    if family in ("categorical", "ordinal"):
        assert list(result["class"].unique()) == ["u", "v", "w"]
        for label, own in result.groupby("class"):
            np.testing.assert_allclose(own[SUMMARY], expected[label][SUMMARY], rtol=1e-4)
    else:
        np.testing.assert_allclose(result[SUMMARY], expected[SUMMARY], rtol=1e-4)
    np.testing.assert_array_equal(result["x"], np.tile(GRID, len(result) // len(GRID)))
    assert (result["lower_simultaneous"] <= result["lower"]).all()
    assert (result["upper_simultaneous"] >= result["upper"]).all()


def test_limits_behind_a_log_link_are_images_and_hold_the_intercept(data):
    gam = fitted(data, "poisson")
    result = gam.effects("s(x)", GRID, scale="response")
    X = np.zeros((len(GRID), gam.fitted.X.shape[1]))
    X[:, 0] = GRID
    _, cov = joint_moments(gam.fitted, [("s(x)", X), ("intercept", X[:1])])
    A = np.hstack([np.eye(len(GRID)), np.ones((len(GRID), 1))])
    sd = np.sqrt(np.diag(A @ cov[0] @ A.T))
    pointwise, simultaneous = critical_values(A @ cov[0] @ A.T, 0.95, gam.seed)
    ratio = np.log(result["upper"] / result["lower"])
    np.testing.assert_allclose(ratio, 2 * pointwise * sd, rtol=1e-6)
    ratio = np.log(result["upper_simultaneous"] / result["lower_simultaneous"])
    np.testing.assert_allclose(ratio, 2 * simultaneous * sd, rtol=1e-6)


def test_the_truth_along_a_probability():
    rng = np.random.default_rng(2)
    x, z = rng.uniform(-2, 2, size=(2, 3000))
    z -= z.mean()
    y = rng.uniform(size=3000) < 1 / (1 + np.exp(-(0.5 + 1.5 * x + z)))
    gam = gg.GAM(linear("x") + linear("z"), family="bernoulli").fit({"x": x, "z": z, "y": y}, y="y")
    grid = np.linspace(-2, 2, 9)
    result = gam.effects("linear(x)", grid, scale="response", level=0.99)
    truth = 1 / (1 + np.exp(-(0.5 + 1.5 * grid)))
    assert np.all((result["lower_simultaneous"] < truth) & (truth < result["upper_simultaneous"]))
    assert np.max(np.abs(result["estimate"] - truth)) < 0.04


def test_simultaneous_limits_by_ranks():
    """Of independent normals the level is known, and functions of draws have those of limits."""
    rng = np.random.default_rng(0)
    draws = rng.standard_normal((20_000, 5)) * np.array([1.0, 2.0, 0.1, 1.0, 3.0])
    lower, upper = simultaneous_bands(draws, 0.9)
    z = norm.ppf(0.5 + 0.5 * 0.9 ** (1 / 5))
    np.testing.assert_allclose(upper, z * np.array([1.0, 2.0, 0.1, 1.0, 3.0]), rtol=0.03)
    inside = np.all((draws >= lower) & (draws <= upper), axis=1).mean()
    assert inside == pytest.approx(0.9, abs=2e-3)
    for end, other in zip(simultaneous_bands(np.exp(draws), 0.9), (lower, upper)):
        np.testing.assert_allclose(end, np.exp(other))
    # what does not vary does not widen what does
    still = np.concatenate([draws[:, :1], np.zeros((20_000, 30))], axis=1)
    assert simultaneous_bands(still, 0.9)[1][0] == pytest.approx(norm.ppf(0.95), rel=0.03)
    both = simultaneous_bands(np.stack([draws, -draws], axis=-1), 0.9)
    np.testing.assert_allclose(both[1][:, 1], -both[0][:, 0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scale": "log"}, "scale must be 'link' or 'response'; got 'log'"),
        ({"scale": "response", "fun": np.exp}, "fun takes effects through a function"),
        ({"scale": "response", "level": 95}, "level must be a probability"),
    ],
)
def test_bad_arguments_are_named(data, arguments, message):
    gam = gg.GAM(s("x", k=5)).fit(data, y="y", **QUICK)
    with pytest.raises(ValueError, match=message):
        gam.effects("s(x)", **arguments)
    with pytest.raises(ValueError, match="no effect 'nope'"):
        gam.effects("nope", scale="response")
