"""Quasi-likelihoods: dispersions by hand, R's glm, and truths that are known."""

from __future__ import annotations

import warnings

import gpflow
import numpy as np
import pandas as pd
import pytest
import rscript

import gpflow_gam as gg
from gpflow_gam import families as fam
from gpflow_gam import likelihoods as lk
from gpflow_gam import linear, s

PHI = 4.0


def counts(seed: int, n: int = 200) -> pd.DataFrame:
    """Of variance ``PHI mu``."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=n)
    f = 1.5 + np.sin(6.0 * x)
    y = rng.negative_binomial(np.exp(f) / (PHI - 1.0), 1.0 / PHI)
    return pd.DataFrame({"x": x, "f": f, "y": y})


def learnt(gam: gg.GAM) -> float:
    return float(gam.fitted.likelihood.dispersion.numpy())


@pytest.fixture(scope="module")
def gam() -> gg.GAM:
    return gg.GAM(s("x", k=10), family="quasipoisson").fit(counts(0), "y")


def test_the_likelihood_is_divided():
    base = gpflow.likelihoods.Poisson()
    quasi = lk.Quasi(base, 2.5)
    mean, var = np.array([[0.3], [1.0]]), np.array([[0.1], [0.4]])
    X, Y = np.zeros((2, 1)), np.array([[1.0], [4.0]])
    got = quasi.variational_expectations(X, mean, var, Y)
    np.testing.assert_allclose(got, base.variational_expectations(X, mean, var, Y) / 2.5)
    np.testing.assert_allclose(quasi.log_prob(X, mean, Y), base.log_prob(X, mean, Y) / 2.5)
    rate = np.exp(mean + 0.5 * var)
    result = quasi.predict_mean_and_var(X, mean, var)
    np.testing.assert_allclose(result[0], rate, rtol=1e-7)
    variance = 2.5 * rate + np.square(rate) * np.expm1(var)
    np.testing.assert_allclose(result[1], variance, rtol=1e-5)
    assert not quasi.trainable_parameters


def test_the_dispersion_is_fletchers(gam):
    """``X^2 / (1 + mean(s))`` on residual degrees of freedom, s = (y - mu) / mu."""
    table = counts(0)
    mu = np.exp(gam.predict(table, "link"))
    away = (table["y"] - mu) / mu
    edf = gam.summary().edf
    expected = np.sum(away * (table["y"] - mu)) / (1.0 + away.mean()) / (len(table) - edf)
    assert learnt(gam) == pytest.approx(expected, rel=0.012)
    assert "dispersion" in str(gam.summary())
    assert "Pearson" not in str(gam.summary())
    deviance = gam.fitted.deviance()[0]
    raw = (
        fam.Poisson()
        .deviance(gpflow.likelihoods.Poisson(), gam.fitted.Y, np.log(mu)[:, None])
        .sum()
    )
    assert deviance == pytest.approx(raw / learnt(gam), rel=1e-6)


@pytest.mark.slow
def test_bands_cover_where_poissons_do_not():
    grid = pd.DataFrame({"x": np.linspace(0.05, 0.95, 30)})
    truth, result = 1.5 + np.sin(6.0 * grid["x"]), {"quasipoisson": [], "poisson": []}
    for seed in range(1, 8):
        for family, inside in result.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", gg.DispersionWarning)  # of poisson
                fit = gg.GAM(s("x", k=10), family=family).fit(counts(seed), "y")
            band = fit.predict(grid, "link", interval=0.95)
            inside.append(np.mean((band["lower"] < truth) & (truth < band["upper"])))
    assert np.mean(result["quasipoisson"]) > 0.88
    assert np.mean(result["poisson"]) < 0.8


GLM = """
d <- read.csv("d.csv")
models <- list(glm(y ~ x, quasipoisson, d), glm(y ~ x, quasipoisson("identity"), d, start=c(4, 0)),
  glm(cbind(k, m - k) ~ x, quasibinomial, d), glm(share ~ x, quasibinomial("cloglog"), d))
for (m in models) {
  link <- predict(m, data.frame(x=c(0.1, 0.9)), se.fit=TRUE)
  mu <- fitted(m); w <- m$prior.weights
  s <- mean(m$family$variance(mu)^-1 * (if (m$family$family == "quasipoisson") 1 else 1 - 2 * mu) *
    (m$y - mu))
  cat(link$fit, link$se.fit, summary(m)$dispersion / (1 + s), summary(m)$dispersion, "\n")
}
"""


@pytest.mark.slow
@rscript.needed
def test_straight_lines_are_those_of_glm(tmp_path):
    rng = np.random.default_rng(5)
    table = counts(3, 500)
    table["y"] = rng.negative_binomial((3.0 + 4.0 * table["x"]) / 2.0, 1.0 / 3.0)
    table["m"] = rng.integers(5, 30, len(table))
    p = 1.0 / (1.0 + np.exp(0.5 - 1.5 * table["x"]))
    table["k"] = rng.binomial(table["m"], rng.beta(4.0 * p, 4.0 - 4.0 * p))
    table["share"] = table["k"] / table["m"]
    table.to_csv(tmp_path / "d.csv", index=False)
    answers = rscript.printed(GLM, tmp_path).reshape(4, 6)
    cases = [
        ("y", fam.QuasiPoisson(), None),
        ("y", fam.QuasiPoisson("identity"), None),
        ("k", fam.QuasiBinomial(), "m"),
        ("share", fam.QuasiBinomial("cloglog"), None),
    ]
    for (y, family, trials), known in zip(cases, answers):
        own = gg.GAM(linear("x"), family=family, trials=trials).fit(table, y)
        link, se = own.predict(pd.DataFrame({"x": [0.1, 0.9]}), "link", se=True)
        assert np.max(np.abs(link - known[:2]) / known[2:4]) < 0.25, family
        scale = np.sqrt(known[4] / known[5])  # R's summary has Pearson's
        np.testing.assert_allclose(se, scale * known[2:4], rtol=0.06, err_msg=str(family))
        assert learnt(own) == pytest.approx(known[4], rel=0.02), family


def test_shares_of_trials_are_successes():
    rng = np.random.default_rng(7)
    x, m = rng.uniform(size=150), np.full(150, 12)
    k = rng.binomial(m, 1.0 / (1.0 + np.exp(1.0 - 2.0 * x)))
    table = pd.DataFrame({"x": x, "k": k, "m": m, "share": k / m})
    of_trials = gg.GAM(linear("x"), family="quasibinomial", trials="m").fit(table, "k")
    of_shares = gg.GAM(linear("x"), family="quasibinomial").fit(table, "share")
    a, b = (g.predict(table.iloc[:5], "link", se=True) for g in (of_trials, of_shares))
    np.testing.assert_allclose(a, b, atol=1e-3)
    assert learnt(of_trials) == pytest.approx(12.0 * learnt(of_shares), rel=0.01)
    assert learnt(of_shares) < 0.2


def test_it_is_drawn_and_loaded_ones_go_on(gam, tmp_path):
    table = counts(0).iloc[:5]
    gam.save(tmp_path / "gam")
    loaded = gg.GAM.load(tmp_path / "gam").refit()
    before, after = (g.predict(table, "link", se=True) for g in (gam, loaded))
    np.testing.assert_allclose(after, before, rtol=0.02)
    gam.appraise()
    gam.draw("s(x)", residuals=True)


def test_what_no_quasi_likelihood_has_is_said(gam):
    table = counts(0)
    for ask in (gam.loo, lambda: gam.log_density(table), lambda: gg.compare(gam, gam)):
        with pytest.raises(ValueError, match="is no distribution.*no loo.*'negative_binomial'"):
            ask()
    with pytest.raises(ValueError, match="'quasipoisson' is no distribution, and no responses"):
        gam.sample(table, 2, "observation")
    with pytest.raises(ValueError, match="y must be not negative, for family 'quasipoisson'"):
        gg.GAM("y ~ s(x)", family="quasipoisson").fit(table.assign(y=-table["y"]))
    with pytest.raises(ValueError, match="y must be a share from 0 to 1.*give trials="):
        gg.GAM("y ~ s(x)", family="quasibinomial").fit(table)
    with pytest.raises(ValueError, match="y must be from 0 to the row's trials"):
        gg.GAM("y ~ s(x)", family="quasibinomial", trials="x").fit(table)
    with pytest.raises(ValueError, match="is no distribution"):
        gg.GAM("y ~ s(x)", family="quasipoisson").fit(table, criterion="ncv")
