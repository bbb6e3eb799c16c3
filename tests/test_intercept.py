"""GAMs without an intercept."""

from __future__ import annotations

import pickle

import matplotlib
import numpy as np
import pandas as pd
import pytest

import gpflow_gam as gg
from gpflow_gam import factor, linear, s
from gpflow_gam.gam.terms import parse_formula
from gpflow_gam.gam.terms.formula import terms_from_json

matplotlib.use("Agg")

LEVELS = {"a": -3.0, "b": 0.0, "c": 2.0}
WITH = s("x", k=8) + factor("g")


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.uniform(2.0, 4.0, 200), "g": rng.choice(list("abc"), 200)})
    table["z"] = rng.uniform(5.0, 10.0, 200)
    table["y"] = 50.0 + np.sin(3.0 * table["x"]) + table["g"].map(LEVELS)
    table["y"] += 0.3 * rng.normal(size=200)
    table["line"] = 2.0 * table["x"] - 0.5 * table["z"] + 0.1 * rng.normal(size=200)
    return table


@pytest.fixture(scope="module")
def pair(data):
    """The same model with an intercept and with levels' own means."""
    return gg.GAM(WITH).fit(data, "y"), gg.GAM(WITH - 1).fit(data, "y")


@pytest.mark.parametrize(
    ("formula", "gone"),
    [
        ("y ~ s(x) - 1", True),
        ("y ~ -1 + s(x)", True),
        ("y ~ 0 + s(x)", True),
        ("0 + x", True),
        ("y ~ 0 + log(x)", True),
        ("y ~ s(x) - 1 + 1", False),  # the last one counts, as in R
        ("y ~ s(x) + 1", False),
        ("0 + 1", False),  # of a matrix without names
    ],
)
def test_what_formulas_say(formula, gone):
    assert parse_formula(formula).terms.without == (("",) if gone else ())


def test_terms_as_values():
    terms = WITH - 1
    assert terms == gg.GAM(WITH, intercept=False).terms
    assert terms == gg.GAM([s("x", k=8) - 1, factor("g")]).terms
    assert terms != WITH
    assert len({terms, WITH, WITH - 1}) == 2
    assert parse_formula(repr(terms)).terms == terms == terms_from_json(terms.to_json())
    apart = gg.GAM({"mean": "y ~ s(x) - 1", "scale": "~ s(z)"}).terms
    assert apart.without == ("mean",)
    assert repr(apart) == "{'mean': s('x') - 1, 'scale': s('z')}"
    assert terms_from_json(apart.to_json()) == apart
    for wrong in (2, True, s("x")):
        with pytest.raises(TypeError, match="- 1 takes the intercept away, and nothing else"):
            WITH - wrong
    with pytest.raises(TypeError, match="intercept must be True or False; got 0"):
        gg.GAM(WITH, intercept=0)


@pytest.mark.slow
def test_levels_have_their_own_means(data, pair):
    """As ``gam(y ~ s(x) + g - 1)`` of mgcv: another way to write the model with an intercept."""
    whole, own = pair
    assert own.fitted.spec.names == ("s(x)", "factor(g)")
    np.testing.assert_allclose(own.predict(data), whole.predict(data), atol=1e-3)
    numbers = whole.coefficients().set_index("term")["estimate"]
    expected = numbers["intercept"] + numbers["factor(g)"].to_numpy()
    result = own.coefficients()
    assert list(result["level"]) == list("abc")
    np.testing.assert_allclose(result["estimate"], expected, atol=1e-3)
    # their errors are those of means: beside a smooth that takes little, sigma over root n
    sd = np.sqrt(own.fitted.likelihood.variance.numpy() / data["g"].value_counts()[list("abc")])
    np.testing.assert_allclose(result["se"], sd, rtol=0.05)
    assert abs(own.summary().edf - whole.summary().edf) < 0.05
    assert own.summary().deviance_explained == pytest.approx(whole.summary().deviance_explained)
    np.testing.assert_allclose(own.sobol()["estimate"], whole.sobol()["estimate"], atol=2e-3)
    both = [gam.differences("factor(g)")["estimate"] for gam in pair]
    np.testing.assert_allclose(*both, atol=1e-3)


def test_terms_sum_to_the_predictor(data, pair):
    _, own = pair
    parts = own.predict(data, type="terms")
    np.testing.assert_allclose(parts.sum(axis=1), own.predict(data, type="link"), rtol=1e-9)
    effect = own.effects("factor(g)")
    result = own.coefficients()
    np.testing.assert_allclose(effect["estimate"], result["estimate"], rtol=1e-9)
    np.testing.assert_allclose(effect["se"], result["se"], rtol=1e-6)
    np.testing.assert_allclose(own.predict(data, terms="s(x)"), parts["s(x)"], rtol=1e-6, atol=1e-9)
    smooth = own.predict(data, exclude="factor(g)", interval=0.9)["estimate"]
    np.testing.assert_allclose(smooth, parts["s(x)"], rtol=1e-6, atol=1e-9)
    means = own.predict(data, terms="factor(g)")
    np.testing.assert_allclose(means, parts["factor(g)"], rtol=1e-9)
    draws = own.sample(data[:3], 4, terms="factor(g)", type="link")
    assert np.all(np.abs(draws - means[:3]) < 0.5)
    np.testing.assert_array_equal(own.predict(data, intercept=False), own.predict(data))


def test_files_pickles_and_more_rows(data, pair, tmp_path):
    _, own = pair
    own.save(tmp_path / "gam")
    for again in (gg.GAM.load(tmp_path / "gam"), pickle.loads(pickle.dumps(own))):
        assert again.terms == own.terms
        np.testing.assert_array_equal(again.predict(data), own.predict(data))
    more = gg.GAM(WITH - 1).fit(data[:150], "y").update(data[150:])
    assert more.fitted.spec.names == own.fitted.spec.names
    np.testing.assert_allclose(more.predict(data), own.predict(data), atol=1e-2)


def test_lines_are_zero_at_zero(data, tmp_path):
    """As ``lm(line ~ x + z - 1)`` of R."""
    gam = gg.GAM("line ~ x + z - 1").fit(data)
    slopes, *_ = np.linalg.lstsq(data[["x", "z"]], data["line"], rcond=None)
    result = gam.coefficients()
    np.testing.assert_allclose(result["estimate"], slopes, rtol=2e-3)
    C = np.linalg.inv(data[["x", "z"]].T @ data[["x", "z"]])
    residuals = data["line"] - data[["x", "z"]] @ slopes
    errors = np.sqrt(np.diag(C) * np.sum(residuals**2) / 198)
    np.testing.assert_allclose(result["se"], errors, rtol=0.05)
    gam.save(tmp_path / "gam")
    loaded = gg.GAM.load(tmp_path / "gam")
    assert loaded.fitted.spec.null_offset == gam.fitted.spec.null_offset > 0.0
    np.testing.assert_array_equal(loaded.predict(data), gam.predict(data))
    with pytest.warns(gg.ExtrapolationWarning):
        assert gam.predict({"x": [0.0], "z": [0.0]})[0] == pytest.approx(0.0, abs=1e-12)


def test_smooths_alone_are_zero_on_average(data):
    gam = gg.GAM(s("x", k=8), intercept=False).fit(data.assign(y=data["y"] - 49.0), "y")
    assert gam.predict(data, type="link").mean() == pytest.approx(0.0, abs=0.02)
    assert gam.coefficients().empty
    assert "coefficient" not in str(gam.summary())


def test_one_of_several_parameters(data, pair):
    own = gg.GAM({"mean": WITH - 1, "scale": linear("z")}).fit(data, "y", max_iterations=30)
    assert own.fitted.spec.names == ("intercept", "mean:s(x)", "mean:factor(g)", "scale:linear(z)")
    result = own.coefficients().query("predictor == 'mean'")
    assert list(result["term"]) == ["mean:factor(g)"] * 3
    np.testing.assert_allclose(result["estimate"], pair[1].coefficients()["estimate"], atol=0.05)
    with_scale, without = (own.predict(data[:2], type="link", intercept=i) for i in (True, False))
    np.testing.assert_allclose(with_scale[:, 0], without[:, 0])  # the means are the factor's
    assert np.all(np.abs(with_scale[:, 1] - without[:, 1]) > 0.5)
    parts = own.predict(data[:2], type="terms")
    assert ("intercept", "mean") not in parts


def test_counts_through_zero(data):
    """Against Newton's method for a rate without a constant, ``glm(n ~ x - 1, poisson)`` of R."""
    rng = np.random.default_rng(1)
    n, x = rng.poisson(np.exp(0.8 * data["x"])), data["x"].to_numpy()
    slope = 0.5
    for _ in range(50):
        mean = np.exp(slope * x)
        slope += np.sum(x * (n - mean)) / np.sum(x**2 * mean)
    gam = gg.GAM("n ~ x - 1", family="poisson").fit(data.assign(n=n))
    assert gam.coefficients()["estimate"].item() == pytest.approx(slope, rel=1e-3)


def test_what_cannot_be_without(data):
    for terms, family, message in (
        ("g ~ s(x) - 1", "ordinal", "'ordinal' has a constant in its cutpoints"),
        ("Surv(x, z) ~ s(y) - 1", "cox", "'cox' has a constant in its baseline hazard"),
    ):
        with pytest.raises(ValueError, match=message):
            gg.GAM(terms, family=family)
    for terms, message in (
        ("y ~ 0", "neither terms nor an intercept"),
        ({"mean": "y ~ s(x)", "scale": "~ s(z) - 1"}, "'scale' is a logarithm .* leave its inter"),
    ):
        with pytest.raises(ValueError, match=message):
            gg.GAM(terms).fit(data)
    with pytest.raises(ValueError, match="a layer has an intercept always"):
        gg.layers.AdditiveGP(s(0) - 1, num_data=10)
