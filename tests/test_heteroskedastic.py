"""Responses whose spread varies: units, axes, and what is explained of them."""

from __future__ import annotations

import gpflow
import numpy as np
import pandas as pd
import pytest

import gpflow_gam as gg
from gpflow_gam import linear, s
from gpflow_gam.gam.families import Custom
from gpflow_gam.optimizers.binned import bins
from gpflow_gam.optimizers.binned import passes as rows_module

SIZE = 250.0


def make(unit=1.0, n=400):
    rng = np.random.default_rng(3)
    x, z = rng.uniform(size=(2, n))
    mean, log_sd = SIZE * (2.0 + np.sin(6.0 * x) + z), np.log(60.0) + 1.5 * (z - 0.5)
    return pd.DataFrame(
        {"x": x, "z": z, "y": unit * (mean + np.exp(log_sd) * rng.standard_normal(n))}
    )


def fitted(unit=1.0):
    return gg.GAM(s("x", k=8) + linear("z"), family="heteroskedastic").fit(make(unit), y="y")


@pytest.fixture(scope="module")
def gam():
    return fitted()


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
    blocks = fitted()
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
