"""Limits of one predictor where others may stand in for it: those of all of them together."""

from __future__ import annotations

import importlib

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax

import gpflow_gam as gg
from gpflow_gam import linear
from gpflow_gam.gam.effects.posterior import between_moments
from gpflow_gam.optimizers.binned import cavities
from gpflow_gam.optimizers.binned.cavities import between_predictors

NAMES = {"b": "b:linear(x)", "c": "c:linear(x)"}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(2)
    x = rng.uniform(-1.0, 1.0, 240)
    logits = np.stack([0.0 * x, 0.8 * x, -0.5 * x], axis=1)
    chosen = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    return pd.DataFrame({"x": x, "z": rng.uniform(size=240), "y": np.array(list("abc"))[chosen]})


@pytest.fixture(scope="module")
def gam(data):
    line = linear("x", shrink=True)
    return gg.GAM({"b": line, "c": line}, "categorical").fit(data, "y")


@pytest.fixture(scope="module")
def fixed(data):
    """Of which no hyperparameter is learnt."""
    return gg.GAM({"b": linear("x"), "c": linear("x")}, "categorical").fit(data, "y")


def without_draws(monkeypatch):
    """Hyperparameters are taken as known, predictors not."""
    module = importlib.import_module("gpflow_gam.gam.effects.posterior")
    monkeypatch.setattr(module, "hyperparameter_draws", lambda fit: [])


def exact(fit, data, points):
    """Standard deviations of the predictors' slopes at points by importance sampling, [L, n]."""
    moments, X = fit.free_moments, fit.encode(data)
    phi = np.concatenate([moments.features(name, X) for name in fit.spec.names])
    there = np.repeat(moments.entering(), moments.inducing_variable.sizes, axis=0) > 0.0
    Y, mean = fit.solution.rows.Y[:].astype(int), fit.solution.rows.mean[:]

    def loss(v):
        V = np.zeros((*np.shape(v)[:-1], *there.shape))
        V[..., there] = v
        F = np.einsum("pn,...pl->...nl", phi, V) + mean
        logs = log_softmax(F, axis=-1)
        chosen = sum(np.sum(logs[..., Y[:, 0] == k, k], axis=-1) for k in range(3))
        return 0.5 * np.sum(np.square(v), axis=-1) - chosen

    result = minimize(loss, np.zeros(there.sum()), tol=1e-10)
    steps = 1e-3 * np.eye(len(result.x))
    pairs = result.x + steps[:, None] + steps  # second differences, by the mode's zero gradient
    ahead = np.array([loss(own) for own in result.x + steps])
    hessian = (loss(pairs) - ahead[:, None] - ahead + result.fun) / 1e-6
    root = np.linalg.cholesky(1.2 * np.linalg.inv(hessian))
    z = np.random.default_rng(0).standard_normal((8_000, len(result.x)))
    v = result.x + z @ root.T
    weight = np.concatenate([-loss(part) for part in np.array_split(v, 20)])
    weight += 0.5 * np.sum(np.square(z), axis=1)
    weight = np.exp(weight - np.max(weight))
    V = np.zeros((len(v), *there.shape))
    V[:, there] = v
    sds = []
    for predictor, name in enumerate(NAMES.values(), start=1):
        own = moments.features(name, points)
        f = V[:, moments.block(name), predictor] @ own
        centre = np.average(f, axis=0, weights=weight)
        sds.append(np.sqrt(np.average(np.square(f - centre), axis=0, weights=weight)))
    return np.array(sds)


def test_credible_intervals_of_logits_account_for_each_other(gam, data, monkeypatch):
    without_draws(monkeypatch)
    grid = pd.DataFrame({"x": [-0.9, 0.7]})
    points = gam.fitted.encode(pd.concat([grid.assign(z=0.5, y="a")]))
    want = exact(gam.fitted, data, points)
    for name, sd in zip(NAMES.values(), want):
        apart = gam.effects(name, grid, unconditional=False)["se"]
        assert np.all(apart < 0.95 * sd)  # each as if the others were known
        np.testing.assert_allclose(gam.effects(name, grid)["se"], sd, rtol=0.03)


@pytest.mark.parametrize("which", ["gam", "fixed"])
def test_effects_terms_and_predictors_agree(which, request, data):
    gam = request.getfixturevalue(which)
    some = data.head(20)
    _, terms = gam.predict(some, "terms", se=True)
    for name in NAMES.values():
        effect = gam.effects(name, some[["x"]])
        np.testing.assert_allclose(np.ravel(terms[name]), effect["se"], rtol=0.01)
    alone = [name for name in gam.names if name not in NAMES.values()]
    _, link = gam.predict(some, "link", se=True, exclude=alone, intercept=False)
    np.testing.assert_allclose(link[:, 1], np.ravel(terms[NAMES["b"]]), rtol=1e-6)


def test_probabilities_are_of_predictors_that_add_nothing(gam, data, monkeypatch):
    """What several predictors make together would be too uncertain: nothing says they make up."""
    _, wide = gam.predict(data, "link", se=True)
    _, result = gam.predict(data, "response", se=True)
    module = importlib.import_module("gpflow_gam.gam.effects.posterior")
    monkeypatch.setattr(module, "between_moments", lambda fit: None)
    monkeypatch.delitem(vars(gam.fitted), "once averaged")
    _, narrow = gam.predict(data, "link", se=True)
    assert np.all(wide >= narrow)
    assert np.mean(wide[:, 1:] / narrow[:, 1:]) > 1.02
    np.testing.assert_array_equal(gam.predict(data, "response", se=True)[1], result)


def test_files_keep_covariances_between_predictors(gam, data, tmp_path):
    want = gam.effects(NAMES["b"], data[["x"]].head(5))["se"]
    assert np.any(between_moments(gam.fitted).covariance > 0.0)
    for with_data in (True, False):
        gam.save(tmp_path / "gam.gam", data=with_data, overwrite=True)
        result = gg.GAM.load(tmp_path / "gam.gam").effects(NAMES["b"], data[["x"]].head(5))["se"]
        np.testing.assert_array_equal(result, want)


def test_a_sample_of_rows_stands_for_all(gam, monkeypatch):
    fit = gam.fitted
    solution, likelihood = fit.solution, fit.model.likelihood
    given = solution.rows, likelihood, solution.values, solution.q
    whole = between_predictors(*given)
    monkeypatch.setattr(cavities, "_ROWS", 120)
    part = between_predictors(*given)
    assert not np.array_equal(part, whole)
    assert np.trace(part[1]) == pytest.approx(np.trace(whole[1]), rel=0.1)
    monkeypatch.setattr(cavities, "_MAX_BETWEEN", 1)
    assert between_predictors(*given) is None


def test_effects_of_classes_leave_out_what_classes_have_in_common(data):
    """The same terms in all of them: effects are told against the other classes'."""
    gam = gg.GAM(linear("x"), "categorical").fit(data, "y")
    assert between_moments(gam.fitted) is None
