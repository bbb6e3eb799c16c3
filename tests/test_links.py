"""Links of probabilities: scipy, dense integrals, known curves, R."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import rscript
import scipy.stats as st
import tensorflow as tf

import gpflow_gam as gg
from gpflow_gam import likelihoods as lk
from gpflow_gam import linear, s
from gpflow_gam.gam import families as fam

CDF = {
    "logit": st.logistic,
    "probit": st.norm,
    "cloglog": st.gumbel_l,
    "cauchit": st.cauchy,
}
CUTS = np.array([0.0, 0.8, 1.5])
each = pytest.mark.parametrize("link", CDF)


def mass(link: str, f: np.ndarray) -> np.ndarray:
    """Of four ordered classes, [N, 4], from the tail in which digits are."""
    cut = np.concatenate([[-np.inf], CUTS, [np.inf]]) - f[:, None]
    below, above = CDF[link].cdf(cut), CDF[link].sf(cut)
    return np.where(cut[:, :-1] > 0.0, -np.diff(above), np.diff(below))


@each
def test_binary_probabilities_are_scipys(link):
    """Of a latent variable below its threshold (McCullagh & Nelder 1989, section 4.3)."""
    f = np.array([-30.0, -3.0, -0.2, 0.0, 0.7, 2.5])[:, None]
    X, ones = np.zeros_like(f), np.ones_like(f)
    p, q = CDF[link].cdf(f[:, 0]), CDF[link].sf(f[:, 0])
    base = lk.Bernoulli(link)
    np.testing.assert_allclose(base.log_prob(X, f, ones), np.log(p), rtol=1e-10)
    np.testing.assert_allclose(base.log_prob(X, f, 0.0 * ones), np.log(q), rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(base.conditional_mean(X, f)[:, 0], p, rtol=1e-10)
    family = fam.Bernoulli(link)
    np.testing.assert_allclose(family.mean(base, f), p, rtol=1e-10)
    np.testing.assert_allclose(family.deviance(base, ones, f), -2.0 * np.log(p), rtol=1e-10)
    np.testing.assert_allclose(family.cdf(base, 0.0 * ones, f)[1], q, rtol=1e-9)
    several = lk.Binomial(link)
    Y = np.tile([3.0, 7.0], (len(f), 1))
    expected = st.binom.logpmf(3.0, 7.0, p[1:])
    np.testing.assert_allclose(several.log_prob(X, f, Y)[1:], expected, rtol=1e-8)


@pytest.mark.parametrize("link", ["cloglog", "cauchit"])
def test_binary_expectations_are_integrals(link):
    base = lk.Bernoulli(link)
    mean, var = np.array([[0.3]]), np.array([[0.2]])
    grid = np.linspace(-4.0, 4.6, 20001)[:, None]
    mass = st.norm.pdf(grid[:, 0], 0.3, np.sqrt(0.2)) * (grid[1, 0] - grid[0, 0])
    X = np.zeros_like(grid)
    for y in (0.0, 1.0):
        Y = np.full_like(grid, y)
        logs = np.asarray(base.log_prob(X, grid, Y))
        result = base.variational_expectations(X[:1], mean, var, Y[:1])
        np.testing.assert_allclose(result[0], mass @ logs, rtol=1e-4)
        result = base.predict_log_density(X[:1], mean, var, Y[:1])
        np.testing.assert_allclose(result[0], np.log(mass @ np.exp(logs)), rtol=1e-4)
    p = base.predict_mean_and_var(X[:1], mean, var)[0]
    np.testing.assert_allclose(p[0, 0], mass @ CDF[link].cdf(grid[:, 0]), rtol=1e-4)


def test_fits_find_the_curve_by_both_engines():
    link = "cloglog"
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, 1500)
    f = 1.5 * np.sin(3.0 * x) - 0.3
    y = (rng.uniform(size=1500) < CDF[link].cdf(f)).astype(int)
    frame = pd.DataFrame({"x": x, "y": y})
    gam = gg.GAM(s("x", k=8), family=link).fit(frame, y="y")
    assert gam.family == fam.Bernoulli(link)
    p = np.asarray(gam.predict(frame))
    assert np.sqrt(np.mean(np.square(p - CDF[link].cdf(f)))) < 0.05
    other = gg.GAM(s("x", k=8), family=link, engine="iterncgp").fit(frame[:200], y="y")
    same = gg.GAM(s("x", k=8), family=link).fit(frame[:200], y="y")
    gap = np.asarray(other.predict(frame[:20])) - np.asarray(same.predict(frame[:20]))
    assert np.max(np.abs(gap)) < 0.05


def test_probabilities_under_the_logarithm_stay_below_one():
    """Ratios of probabilities up to .99, and from there a curve without a bend."""
    f = np.array([-700.0, -5.0, -0.3, -0.011])[:, None]
    X, ones = np.zeros_like(f), np.ones_like(f)
    base, family = lk.Bernoulli("log"), fam.Bernoulli("log")
    np.testing.assert_allclose(base.log_prob(X, f, ones), f[:, 0], rtol=1e-12)
    np.testing.assert_allclose(base.log_prob(X, f, 0.0 * ones), np.log(-np.expm1(f[:, 0])))
    several = lk.Binomial("log").log_prob(X, f, np.tile([3.0, 7.0], (4, 1)))
    expected = st.binom.logpmf(3.0, 7.0, np.exp(f[:, 0]))
    np.testing.assert_allclose(several[1:], expected[1:], rtol=1e-9)
    edge, h = np.log(0.99), 1e-6
    p = family.mean(base, np.array([[edge - h], [edge], [edge + h]]))
    assert (p[2] - p[1]) / h == pytest.approx((p[1] - p[0]) / h, rel=1e-3)
    above = family.mean(base, np.linspace(-0.1, 0.2, 500)[:, None])
    assert np.all(np.diff(above) > 0.0)
    assert above[-1] < 1.0
    far = np.array([[30.0], [700.0]])
    for y in (0.0, 1.0):
        assert np.all(np.isfinite(base.log_prob(X[:2], far, np.full((2, 1), y))))
    cdf = family.cdf(base, 0.0 * ones, f)[1]
    np.testing.assert_allclose(cdf, -np.expm1(f[:, 0]), rtol=1e-9)


@each
def test_ordered_classes_are_differences_of_scipys(link):
    f = np.array([-5.0, -1.0, 0.0, 0.4, 2.0, 6.0])
    p, likelihood = mass(link, f), lk.Ordered(4, np.diff(CUTS), link)
    family, F, X = fam.Ordinal((0, 1, 2, 3), link), f[:, None], np.zeros((6, 1))
    for label in range(4):
        got = likelihood.log_prob(X, F, np.full((6, 1), float(label)))
        np.testing.assert_allclose(got, np.log(p[:, label]), rtol=1e-7)
    np.testing.assert_allclose(family.mean(likelihood, F), p, rtol=1e-7, atol=1e-14)
    np.testing.assert_allclose(likelihood.conditional_response(X, F), p, rtol=1e-7, atol=1e-14)
    np.testing.assert_allclose(
        likelihood.conditional_mean(X, F)[:, 0], p @ np.arange(4.0), rtol=1e-9
    )


@each
def test_proportions_are_scipys(link):
    f = np.array([-2.0, -0.3, 0.0, 0.6, 1.1])
    m, scale = CDF[link].cdf(f), 5.0
    known = st.beta(scale * m, scale * CDF[link].sf(f))
    family, likelihood = fam.Beta(link), lk.LogitBeta(scale, link)
    y, F, X = known.rvs(random_state=0)[:, None], f[:, None], np.zeros((5, 1))
    np.testing.assert_allclose(likelihood.log_prob(X, F, y), known.logpdf(y[:, 0]), rtol=1e-9)
    np.testing.assert_allclose(likelihood.conditional_variance(X, F)[:, 0], known.var(), rtol=1e-9)
    np.testing.assert_allclose(family.mean(likelihood, F), m, rtol=1e-12)
    np.testing.assert_allclose(family.cdf(likelihood, y, F)[1], known.cdf(y[:, 0]), rtol=1e-9)
    draws = family.sample(likelihood, np.tile(F, (20_000, 1, 1)), np.random.default_rng(0))
    np.testing.assert_allclose(draws.mean(axis=0), m, atol=0.006)
    # against the best of many means
    every = np.linspace(1e-4, 1.0 - 1e-4, 40_001)[:, None]
    best = st.beta.logpdf(y[:, 0], scale * every, scale * (1.0 - every)).max(axis=0)
    deviance = family.deviance(likelihood, y, F)
    np.testing.assert_allclose(deviance, 2.0 * (best - known.logpdf(y[:, 0])), atol=1e-4)


@each
@pytest.mark.parametrize("kind", ["ordered", "beta"])
def test_expectations_are_dense_quadratures(link, kind):
    grid = np.linspace(-7.0, 7.0, 4001)
    w = st.norm.pdf(grid) / st.norm.pdf(grid).sum()
    mean, var, X = np.array([[0.3]]), np.array([[0.15]]), np.zeros((1, 1))
    f = (0.3 + np.sqrt(0.15) * grid)[:, None]
    if kind == "ordered":
        likelihood, responses = lk.Ordered(4, np.diff(CUTS), link), [0.0, 1.0, 3.0]
        logs = {y: np.log(mass(link, f[:, 0])[:, int(y)]) for y in responses}
    else:
        likelihood, responses = lk.LogitBeta(5.0, link), [0.2, 0.9]
        a, b = 5.0 * CDF[link].cdf(f[:, 0]), 5.0 * CDF[link].sf(f[:, 0])
        logs = {y: st.beta.logpdf(y, a, b) for y in responses}
    for y in responses:
        Y = np.array([[y]])
        got = likelihood.variational_expectations(X, mean, var, Y)
        np.testing.assert_allclose(got[0], w @ logs[y], rtol=2e-4)
        got = likelihood.predict_log_density(X, mean, var, Y)
        np.testing.assert_allclose(got[0], np.log(w @ np.exp(logs[y])), rtol=2e-4)


@each
@pytest.mark.parametrize("far", [-60.0, 60.0])
def test_far_predictors_have_finite_gradients(link, far):
    F = tf.constant([[far], [far]], dtype=tf.float64)
    for likelihood, Y in ((lk.Ordered(2, None, link), [[0.0], [1.0]]),
                          (lk.LogitBeta(5.0, link), [[0.2], [0.9]])):  # fmt: skip
        with tf.GradientTape() as tape:
            tape.watch(F)
            got = likelihood.log_prob(np.zeros((2, 1)), F, np.array(Y))
        assert np.all(np.isfinite(tape.gradient(got, F)))
        assert np.all(np.isfinite(got))


def test_ordinal_fits_find_the_curve(tmp_path):
    link = "cloglog"
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, 1200)
    f = 1.5 * np.sin(3.0 * x)
    grade = np.digitize(f + CDF[link].rvs(size=1200, random_state=1), [-1.0, 0.0, 1.0])
    frame = pd.DataFrame({"x": x, "grade": grade})
    gam = gg.GAM(s("x", k=8), fam.Ordinal(link=link)).fit(frame, "grade", progress=False)
    p = np.asarray(gam.predict(frame))
    cut = np.array([-np.inf, -1.0, 0.0, 1.0, np.inf]) - f[:, None]
    known = np.diff(CDF[link].cdf(cut), axis=1)
    assert np.sqrt(np.mean(np.square(p - known))) < 0.03
    gam.save(tmp_path / "gam")
    loaded = gg.GAM.load(tmp_path / "gam")
    np.testing.assert_array_equal(loaded.predict(frame[:5]), gam.predict(frame[:5]))


def test_beta_fits_find_the_curve(tmp_path):
    link = "cloglog"
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, 500)
    m = CDF[link].cdf(np.sin(3.0 * x) - 0.2)
    frame = pd.DataFrame({"x": x, "y": rng.beta(8.0 * m, 8.0 * (1.0 - m))})
    gam = gg.GAM(s("x", k=8), fam.Beta(link)).fit(frame, "y", progress=False)
    p = np.asarray(gam.predict(frame))
    assert np.sqrt(np.mean(np.square(p - m))) < 0.025
    gam.save(tmp_path / "gam")
    loaded = gg.GAM.load(tmp_path / "gam")
    np.testing.assert_array_equal(loaded.predict(frame[:5]), gam.predict(frame[:5]))


def test_unknown_links():
    for call in (lambda: fam.Ordinal(link="log"), lambda: lk.LogitBeta(1.0, "log")):
        with pytest.raises(ValueError, match="link must be .*probit"):
            call()


R = """
suppressMessages({library(MASS); library(mgcv)}); d <- read.csv("d.csv")
for (method in c("logistic", "probit", "cloglog", "cauchit")) {
  m <- polr(factor(g, ordered = TRUE) ~ x, d, method = method, Hess = TRUE)
  cat(coef(m), sqrt(diag(vcov(m)))[1], m$zeta, "\\n")
}
for (link in c("logit", "probit", "cloglog", "cauchit")) {
  m <- gam(y ~ x, betar(link = link), d, method = "REML")
  cat(coef(m)[2], sqrt(diag(vcov(m)))[2], 0, 0, 0, "\\n")
}
"""


@pytest.mark.slow
@rscript.needed
def test_straight_lines_are_those_of_polr_and_betar(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, 800)
    m = st.norm.cdf(0.8 * x)
    data = pd.DataFrame({"x": x, "y": rng.beta(6.0 * m, 6.0 * (1.0 - m))})
    data["g"] = np.digitize(1.2 * x + rng.logistic(size=800), [-1.0, 0.0, 1.0])
    data.to_csv(tmp_path / "d.csv", index=False)
    answers = rscript.printed(R, tmp_path).reshape(2, 4, 5)
    ends = pd.DataFrame({"x": [0.0, 1.0]})
    for link, known in zip(CDF, answers[0]):
        gam = gg.GAM(linear("x"), fam.Ordinal(link=link)).fit(data, "g", progress=False)
        low, high = gam.predict(ends, "link")
        assert abs(high - low - known[0]) < 0.2 * known[1]
        steps = np.diff(list(gam.summary().parameters.values()))
        np.testing.assert_allclose(steps, np.diff(known[2:]), rtol=0.02)
    for link, known in zip(CDF, answers[1]):
        gam = gg.GAM(linear("x"), fam.Beta(link)).fit(data, "y", progress=False)
        low, high = gam.predict(ends, "link")
        assert abs(high - low - known[0]) < 0.2 * known[1]
