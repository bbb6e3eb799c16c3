"""A GAM fitted by the second engine, beside the first."""

import numpy as np
import pandas as pd
import problems
import pytest
from scipy.special import softmax

import gpflow_gam as gg
from gpflow_gam import factor, s

TERMS = s("x", k=12) + s("z", k=8) + factor("g")


@pytest.fixture(scope="module")
def pair() -> tuple[gg.GAM, gg.GAM]:
    data = problems.table(300)
    return tuple(  # type: ignore[return-value]
        gg.GAM(TERMS, family="poisson", engine=engine).fit(data, y="count")
        for engine in ("variational", "iterncgp")
    )


@pytest.mark.slow
def test_predictions_and_effects_of_both_engines_agree(pair):
    """Different approximations and priors at their own optima: apart by less than their errors."""
    first, second = pair
    data = problems.table(300)
    a, b = (gam.predict(data, type="link", interval=0.95) for gam in pair)
    assert np.abs(a["estimate"] - b["estimate"]).max() < 0.5 * a["se"].max()
    np.testing.assert_allclose(a["se"].mean(), b["se"].mean(), rtol=0.15)
    for term in ("s(x)", "s(z)", "factor(g)"):
        one, two = (gam.effects(term, unconditional=False) for gam in pair)
        assert np.abs(one["estimate"] - two["estimate"]).max() < one["se"].max()
        np.testing.assert_allclose(one["se"].mean(), two["se"].mean(), rtol=0.25)
    assert second.summary().deviance_explained == pytest.approx(
        first.summary().deviance_explained, abs=0.01
    )


def test_effects_are_those_of_the_models_posterior(pair):
    """What is read off through inducing inputs, against the components at the points themselves."""
    _, gam = pair
    effect = gam.effects("s(x)", unconditional=False)
    X = gam._fit.encode(pd.DataFrame({"x": effect["x"], "z": 0.5, "g": "a"}))
    mean, var = gam.posterior.predict_components(X)
    column = gam.posterior.names.index("s(x)")
    np.testing.assert_allclose(effect["estimate"], mean[:, column], atol=5e-3)
    np.testing.assert_allclose(effect["se"], np.sqrt(var[:, column]), atol=5e-3)


def test_what_the_prior_leaves_out_is_no_degree_of_freedom(classes):
    """Where effects are nearly lines, most of their inducing values have next to no variance."""
    rng = np.random.default_rng(1)
    data = pd.DataFrame(rng.uniform(size=(200, 2)), columns=["x", "z"])
    data["c"] = rng.poisson(np.exp(0.5 + 2.0 * data["x"]))
    first, second = (
        gg.GAM(s("x") + s("z"), "poisson", engine=engine).fit(data, "c")
        for engine in ("variational", "iterncgp")
    )
    one, two = first.anova(), second.anova()
    np.testing.assert_allclose(two["edf"], one["edf"], atol=0.01)
    np.testing.assert_allclose(two["p"], one["p"], atol=0.01)
    assert second.loo().aic == pytest.approx(first.loo().aic, abs=0.1)
    gam, _ = classes  # as for several predictors together: s(z) is a line
    assert gam.anova().loc["s(z)", "edf"].max() < 1.0


@pytest.fixture(scope="module")
def classes() -> tuple[gg.GAM, pd.DataFrame]:
    rng = np.random.default_rng(0)
    x, z = rng.uniform(-1.0, 1.0, (2, 150))
    F = np.stack([2.0 * np.sin(3.0 * x), 2.0 * z, 0.0 * x], axis=1) + rng.gumbel(size=(150, 3))
    data = pd.DataFrame({"x": x, "z": z, "y": np.array(["a", "b", "c"])[F.argmax(axis=1)]})
    gam = gg.GAM(s("x", k=10) + s("z", k=10), family="categorical", engine="iterncgp")
    return gam.fit(data, "y"), data


def drawn(gam: gg.GAM, data: pd.DataFrame, names: tuple[str, ...]) -> np.ndarray:
    """Class probabilities at draws of some components of all classes together, [S, N, 3]."""
    X = gam.fitted.encode(data)
    every = gam.posterior.sample_components(X, 8000, seed=1).numpy()
    chosen = [gam.posterior.names.index(name) for name in names]
    F = every[:, :, chosen].sum(axis=2) + np.asarray(gam.fitted.model.mean_function(X))
    return softmax(F, axis=-1)


EVERY = ("intercept", "s(x)", "s(z)")


@pytest.mark.slow
def test_classes_are_predicted_by_all_predictors_together(classes):
    """By the covariance between classes, as the model and a file of it do, and as draws say."""
    gam, data = classes
    new = data.head(20)
    p, draws = gam.predict(new), drawn(gam, new, EVERY)
    np.testing.assert_array_equal(p, gam.model.predict_y(gam.fitted.encode(new))[0])
    np.testing.assert_allclose(p, draws.mean(axis=0), atol=0.03)
    np.testing.assert_allclose(gam.predict(new, terms=["s(x)", "s(z)"]), p, atol=1e-9)
    alone = gam.predict(new, terms="s(x)")
    expected = drawn(gam, new, ("intercept", "s(x)")).mean(axis=0)
    np.testing.assert_allclose(alone, expected, atol=0.03)
    nothing = gam.predict(new, terms=[], intercept=False)
    np.testing.assert_allclose(nothing, 1.0 / 3.0)
    table = gam.predict(new, interval=0.9)
    ends = np.quantile(draws, [0.05, 0.95], axis=0)
    for k, label in enumerate("abc"):
        np.testing.assert_allclose(table[label]["se"], draws[..., k].std(axis=0), atol=0.01)
        for end, name in zip(ends, ("lower", "upper")):
            np.testing.assert_allclose(table[label][name], end[:, k], atol=0.04)
    codes = [list("abc").index(label) for label in new["y"]]
    for unconditional in (False, True):
        density = gam.log_density(new, unconditional=unconditional)
        np.testing.assert_allclose(density, np.log(p[np.arange(20), codes]), atol=1e-12)


@pytest.mark.slow
def test_effects_and_averages_of_classes_are_of_all_predictors_together(classes):
    gam, data = classes
    effect = gam.effects("s(x)", scale="response", num_points=9)
    grid = pd.DataFrame({"x": np.unique(effect["x"]), "z": 0.0})
    draws = drawn(gam, grid, ("intercept", "s(x)"))
    for k, label in enumerate("abc"):
        own = effect[effect["class"] == label]
        np.testing.assert_allclose(own["estimate"], draws[..., k].mean(axis=0), atol=0.03)
        np.testing.assert_allclose(own["se"], draws[..., k].std(axis=0), atol=0.01)
        assert np.all(own["lower_simultaneous"] <= own["lower"])
    averages = gam.avg_predictions(data)
    means = drawn(gam, data, EVERY).mean(axis=1)
    np.testing.assert_allclose(averages["estimate"], gam.predict(data).mean(axis=0), atol=1e-4)
    np.testing.assert_allclose(averages["se"], means.std(axis=0), atol=0.003)
