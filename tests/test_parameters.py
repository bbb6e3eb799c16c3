"""Terms for each parameter of the response's distribution."""

from __future__ import annotations

import pickle
import re

import gpflow
import numpy as np
import pandas as pd
import pytest
from response_cases import DENSITY
from scipy.special import expit

import gpflow_gam as gg
from gpflow_gam import linear, s
from gpflow_gam.gam.families import Custom
from gpflow_gam.gam.families import family as family_of
from gpflow_gam.gam.terms.formula import parse_parameters
from gpflow_gam.optimizers.binned import bins
from gpflow_gam.optimizers.binned import passes as rows_module

N = 600


def _frame(name: str) -> pd.DataFrame:
    """Data whose two predictors are functions of a column each."""
    rng = np.random.default_rng(0)
    x, z = rng.uniform(-1.0, 1.0, N), rng.uniform(size=N)
    f = np.sin(3.0 * x) + (1.5 if name == "negative_binomial" else 0.0)
    mean = {"beta": expit, "gamma": np.exp, "negative_binomial": np.exp}.get(name, np.positive)
    y = DENSITY[name](mean(f), np.exp(1.2 * z - 2.0)).rvs(random_state=rng)
    return pd.DataFrame({"x": x, "z": z, "y": y.astype(float)})


FIRST = {"student_t": "location"}
FAMILIES = ["gaussian", "student_t", "gamma", "negative_binomial", "beta"]


@pytest.fixture(scope="module", params=FAMILIES)
def fitted(request: pytest.FixtureRequest) -> tuple[str, gg.GAM]:
    name = request.param
    terms = {FIRST.get(name, "mean"): s("x", k=10), "scale": s("z", k=6)}
    return name, gg.GAM(terms, family=name).fit(_frame(name), y="y")


@pytest.mark.slow_but_first
def test_answers_are_of_the_own_predictor(fitted, tmp_path):
    name, gam = fitted
    first = FIRST.get(name, "mean")
    names = gam.fitted.spec.predictor_names
    table = gam.effects("scale:s(z)", [0.2, 0.8])
    assert "predictor" not in table
    rows = pd.DataFrame({"x": [0.0, 0.0], "z": [0.2, 0.8]})
    link = np.asarray(gam.predict(rows, type="link"))
    assert link[0, 0] == link[1, 0]
    np.testing.assert_allclose(np.diff(table["estimate"]), np.diff(link[:, 1]), rtol=1e-6)
    terms = gam.predict(rows, type="terms")
    assert list(terms.columns) == [
        ("intercept", names[0]),
        ("intercept", names[1]),
        (f"{first}:s(x)", names[0]),
        ("scale:s(z)", names[1]),
    ]
    assert list(gam.summary().to_frame().index) == [
        (f"{first}:s(x)", names[0]),
        ("scale:s(z)", names[1]),
    ]
    assert list(gam.coefficients()["predictor"]) == list(names)
    indices = gam.sobol(num_samples=50, bootstrap=False, unconditional=False)
    assert set(map(tuple, indices[["predictor", "effect"]].to_numpy())) == {
        (names[0], "x"),
        (names[1], "z"),
    }
    np.testing.assert_allclose(indices["estimate"], 1.0, atol=1e-4)
    assert (gam.concurvity() < 0.1).all(axis=None)
    path = tmp_path / "gam"
    gam.save(path)
    for copy in (gg.GAM.load(path), pickle.loads(pickle.dumps(gam))):
        assert copy.terms == gam.terms
        np.testing.assert_array_equal(copy.predict(rows, type="link"), link)


def test_same_terms_for_both_have_hyperparameters_of_their_own() -> None:
    """One smooth for both predictors has one lengthscale; terms by parameter have two."""
    rng = np.random.default_rng(2)
    x = rng.uniform(size=800)
    y = np.sin(12.0 * x) + np.exp(-1.0 + 0.8 * x) * rng.normal(size=800)
    frame = pd.DataFrame({"x": x, "y": y})
    both = gg.GAM({"mean": s("x"), "scale": s("x")}).fit(frame, y="y")
    one = gg.GAM(s("x"), family="heteroskedastic").fit(frame, y="y")
    lengths = both.summary().to_frame()["lengthscale"].map(lambda v: v[0]).to_numpy()
    assert lengths[1] > 2.0 * lengths[0]
    assert both.fitted.result.elbo > one.fitted.result.elbo + 1.0


def test_one_pass_route_is_that_of_any_model() -> None:
    """The bound from sums over rows is that of the GPflow model at all rows."""
    frame = _frame("gamma")[:300]
    gam = gg.GAM({"mean": s("x", k=8), "scale": s("z", k=5)}, family="gamma").fit(frame, y="y")
    model, data = gam.model, (gam.fitted.X, gam.fitted.Y)
    before = float(model.elbo(data))
    prior = float(model.log_prior_density())
    assert before + prior == pytest.approx(gam.fitted.result.elbo, abs=1e-3)


def test_formulas() -> None:
    gam = gg.GAM({"mean": "y ~ s(x) + z", "scale": "~ s(z)"})
    assert repr(gam.terms) == "{'mean': s('x') + z, 'scale': s('z')}"
    assert gam.family.name == "heteroskedastic"
    assert gg.GAM({"mean": "y ~ s(x)"}).family.name == "gaussian"
    assert gg.GAM({"mean": s("x"), "scale": None}).family.name == "heteroskedastic"
    with pytest.raises(ValueError, match="offset\\(\\) is of the first parameter"):
        parse_parameters({"mean": "~ s(x)", "scale": "~ s(z) + offset(e)"}, ("mean", "scale"))
    shown = gg.GAM({"mu": s("x"), "sigma": s("z")}, family="gamma").terms
    assert shown.parameters == ("mean", "scale")


@pytest.mark.parametrize(
    ("terms", "name", "message"),
    [
        ({"mean": s("x"), "shape": s("z")}, "gamma", "no parameter 'shape'.* has 'mean', 'scale'"),
        ({"mean": s("x"), "scale": s("z")}, "poisson", "'poisson' has no parameter 'scale'"),
        ({"mean": s("x"), "mu": s("z")}, "gamma", "name one parameter twice"),
        ({"mean": "y ~ s(x)", "scale": "q ~ s(z)"}, "gaussian", "two responses, 'y' and 'q'"),
        ({}, "gaussian", "the mapping is empty"),
    ],
)
def test_errors(terms: dict[str, object], name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gg.GAM(terms, family=name)


def test_other_errors() -> None:
    kinds = pd.DataFrame({"x": [0.0, 1.0, 2.0], "y": ["a", "b", "c"]})
    with pytest.raises(ValueError, match="no 'd' that could have d:s\\(x\\); there are a, b, c"):
        gg.GAM({"d": s("x")}, family="categorical").fit(kinds, y="y")
    with pytest.raises(TypeError, match=re.escape("terms['mean'] must be terms")):
        gg.GAM({"mean": 3})
    assert family_of("gamma").to_json() == {"name": "gamma", "link": "log", "varying": False}


# --- a noise of its own --------------------------------------------------------------------------

SIZE = 250.0


def make(unit=1.0, n=400):
    rng = np.random.default_rng(3)
    x, z = rng.uniform(size=(2, n))
    mean, log_sd = SIZE * (2.0 + np.sin(6.0 * x) + z), np.log(60.0) + 1.5 * (z - 0.5)
    return pd.DataFrame(
        {"x": x, "z": z, "y": unit * (mean + np.exp(log_sd) * rng.standard_normal(n))}
    )


def noisy_fit(unit=1.0):
    return gg.GAM(s("x", k=8) + linear("z"), family="heteroskedastic").fit(make(unit), y="y")


@pytest.fixture(scope="module")
def gam():
    return noisy_fit()


def by_predictor(frame):
    return [part.reset_index(drop=True) for _, part in frame.groupby("predictor", sort=False)]


def test_the_mean_is_in_the_responses_unit_and_the_scale_its_logarithm(gam):
    data = make()
    link = gam.predict(data, "link", interval=0.95)
    response = gam.predict(data, interval=0.95)
    np.testing.assert_allclose(link["mean"], response, rtol=0.02, atol=2.0)  # drawn
    truth = np.log(60.0) + 1.5 * (data["z"] - 0.5)
    assert np.max(np.abs(link["log scale"]["estimate"] - truth)) < 0.4
    mean, log_sd = by_predictor(gam.effects("linear(z)", [0.0, 1.0]))
    assert np.diff(mean["estimate"])[0] == pytest.approx(SIZE, rel=0.1)
    assert np.diff(log_sd["estimate"])[0] == pytest.approx(1.5, abs=0.4)
    slopes, _ = by_predictor(gam.derivatives("linear(z)", [0.5]))
    assert slopes["estimate"][0] == pytest.approx(np.diff(mean["estimate"])[0])
    draws = gam.sample(data.head(3), 2000, "link", seed=1)
    np.testing.assert_allclose(draws.mean(axis=0), gam.predict(data.head(3), "link"), rtol=0.01)
    terms, errors = gam.predict(data, "terms", se=True, unconditional=False)
    effect = gam.effects("s(x)", data["x"][:5], unconditional=False)
    np.testing.assert_allclose(terms["s(x)", "mean"][:5], by_predictor(effect)[0]["estimate"])
    np.testing.assert_allclose(errors["s(x)", "mean"][:5], by_predictor(effect)[0]["se"], rtol=1e-5)


@pytest.mark.slow
def test_what_is_explained_is_of_residuals_over_the_fitted_variance(gam, monkeypatch):
    data = make()
    link = gam.predict(data, "link")
    precision = np.exp(-2.0 * link[:, 1])
    own = np.sum(precision * (data["y"] - link[:, 0]) ** 2)
    null = np.sum(precision * (data["y"] - data["y"].mean()) ** 2)
    explained = gam.summary().deviance_explained
    assert explained == pytest.approx(1.0 - own / null, rel=1e-4)
    assert explained > 0.8
    monkeypatch.setattr(bins, "KEPT_ROWS", 300)
    monkeypatch.setattr(rows_module, "BLOCK", 150)
    blocks = noisy_fit()
    assert not blocks.fitted.data.complete
    assert blocks.summary().deviance_explained == pytest.approx(explained, abs=1e-3)


def test_each_parameter_has_a_panel_and_an_axis_of_its_own(gam):
    figure = gam.draw()
    labels = [ax.get_ylabel() for ax in figure.axes]
    assert labels == ["mean of y", "log sd of y"] * 2
    titles = [ax.get_title().split(" [edf ")[0] for ax in figure.axes]
    assert titles[:2] == ["s(x), mean", "s(x), log scale"]


def test_offsets_are_refused_where_they_would_be_in_another_unit():
    with pytest.raises(ValueError, match=r"offset: .*subtract the offset from the response"):
        gg.GAM("y ~ s(x) + offset(z)", family="heteroskedastic")


def test_predictors_of_a_users_likelihood_are_no_two_of_a_kind():
    two = gpflow.likelihoods.HeteroskedasticTFPConditional()
    assert Custom(two).axes("y") == ("predictor 0", "predictor 1")
    assert Custom(gpflow.likelihoods.Softmax(3)).axes("y") == ()
    assert Custom(gpflow.likelihoods.Poisson()).axes("y") == ()
