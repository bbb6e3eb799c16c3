"""Links from a predictor to a probability."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.stats

import gpflow_gam as gg
from gpflow_gam import likelihoods, s
from gpflow_gam.gam import families

INVERSE = {
    "logit": scipy.stats.logistic.cdf,
    "probit": scipy.stats.norm.cdf,
    "cloglog": scipy.stats.gumbel_l.cdf,
    "cauchit": scipy.stats.cauchy.cdf,
}
FAILURE = {
    "logit": scipy.stats.logistic.sf,
    "probit": scipy.stats.norm.sf,
    "cloglog": scipy.stats.gumbel_l.sf,
    "cauchit": scipy.stats.cauchy.sf,
}


@pytest.mark.parametrize("link", INVERSE)
def test_probabilities_are_those_of_distributions(link: str) -> None:
    """Of a latent variable below its threshold (McCullagh & Nelder 1989, section 4.3)."""
    f = np.array([-30.0, -3.0, -0.2, 0.0, 0.7, 2.5])[:, None]
    X, ones = np.zeros_like(f), np.ones_like(f)
    p, q = INVERSE[link](f[:, 0]), FAILURE[link](f[:, 0])
    base = likelihoods.Bernoulli(link)
    np.testing.assert_allclose(base.log_prob(X, f, ones), np.log(p), rtol=1e-10)
    np.testing.assert_allclose(base.log_prob(X, f, 0.0 * ones), np.log(q), rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(base.conditional_mean(X, f)[:, 0], p, rtol=1e-10)
    family = families.Bernoulli(link)
    np.testing.assert_allclose(family.mean(base, f), p, rtol=1e-10)
    np.testing.assert_allclose(family.deviance(base, ones, f), -2.0 * np.log(p), rtol=1e-10)
    np.testing.assert_allclose(family.cdf(base, 0.0 * ones, f)[1], q, rtol=1e-9)
    several = likelihoods.Binomial(link)
    Y = np.tile([3.0, 7.0], (len(f), 1))
    expected = scipy.stats.binom.logpmf(3.0, 7.0, p[1:])
    np.testing.assert_allclose(several.log_prob(X, f, Y)[1:], expected, rtol=1e-8)


@pytest.mark.parametrize("link", ["cloglog", "cauchit"])
def test_expectations_are_integrals(link: str) -> None:
    base = likelihoods.Bernoulli(link)
    mean, var = np.array([[0.3]]), np.array([[0.2]])
    grid = np.linspace(-4.0, 4.6, 20001)[:, None]
    mass = scipy.stats.norm.pdf(grid[:, 0], 0.3, np.sqrt(0.2)) * (grid[1, 0] - grid[0, 0])
    X = np.zeros_like(grid)
    for y in (0.0, 1.0):
        Y = np.full_like(grid, y)
        logs = np.asarray(base.log_prob(X, grid, Y))
        found = base.variational_expectations(X[:1], mean, var, Y[:1])
        np.testing.assert_allclose(found[0], mass @ logs, rtol=1e-4)
        found = base.predict_log_density(X[:1], mean, var, Y[:1])
        np.testing.assert_allclose(found[0], np.log(mass @ np.exp(logs)), rtol=1e-4)
    p = base.predict_mean_and_var(X[:1], mean, var)[0]
    np.testing.assert_allclose(p[0, 0], mass @ INVERSE[link](grid[:, 0]), rtol=1e-4)


@pytest.mark.parametrize("link", ["probit", "cloglog", "cauchit"])
def test_fits_find_the_curve(link: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, 1500)
    f = 1.5 * np.sin(3.0 * x) - 0.3
    y = (rng.uniform(size=1500) < INVERSE[link](f)).astype(int)
    frame = pd.DataFrame({"x": x, "y": y})
    gam = gg.GAM(s("x", k=8), family=link).fit(frame, y="y")
    assert gam.family == families.Bernoulli(link)
    p = np.asarray(gam.predict(frame))
    assert np.sqrt(np.mean(np.square(p - INVERSE[link](f)))) < 0.05
    if link == "cloglog":  # log-concave, by the other engine, too
        other = gg.GAM(s("x", k=8), family=link, engine="iterncgp").fit(frame[:200], y="y")
        same = gg.GAM(s("x", k=8), family=link).fit(frame[:200], y="y")
        gap = np.asarray(other.predict(frame[:20])) - np.asarray(same.predict(frame[:20]))
        assert np.max(np.abs(gap)) < 0.05


def test_links_that_are_none() -> None:
    with pytest.raises(ValueError, match="'probit', 'cloglog', 'cauchit' or 'log'; got 'loglog'"):
        families.Bernoulli("loglog")


def test_probabilities_under_the_logarithm_stay_below_one() -> None:
    """Ratios of probabilities up to .99, and from there a curve without a bend."""
    f = np.array([-700.0, -5.0, -0.3, -0.011])[:, None]
    X, ones = np.zeros_like(f), np.ones_like(f)
    base, family = likelihoods.Bernoulli("log"), families.Bernoulli("log")
    np.testing.assert_allclose(base.log_prob(X, f, ones), f[:, 0], rtol=1e-12)
    np.testing.assert_allclose(base.log_prob(X, f, 0.0 * ones), np.log(-np.expm1(f[:, 0])))
    several = likelihoods.Binomial("log").log_prob(X, f, np.tile([3.0, 7.0], (4, 1)))
    expected = scipy.stats.binom.logpmf(3.0, 7.0, np.exp(f[:, 0]))
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
