"""Other links of the mean beside terms for the scale: scipy, dense quadrature, truths, mgcv."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import rscript
import scipy.stats as st

import gpflow_gam as gg
from gpflow_gam import families as fam
from gpflow_gam import s

QUIET = {"progress": False}
MEAN = {
    "log": np.exp,
    "identity": lambda f: f,
    "inverse": lambda f: 1.0 / f,
    "sqrt": np.square,
    "cloglog": lambda f: -np.expm1(-np.exp(f)),
    "cauchit": st.cauchy.cdf,
    "probit": st.norm.cdf,
}
# by family: scipy's of a mean and the number that the second predictor is the logarithm of
DENSITY = {
    "gamma": lambda mu, d: st.gamma(1.0 / d, scale=mu * d),
    "negative_binomial": lambda mu, d: st.nbinom(1.0 / d, 1.0 / (1.0 + d * mu)),
    "heteroskedastic": st.norm,
    "student_t": lambda mu, d: st.t(4.0, mu, d),
    "beta": lambda mu, d: st.beta(mu / d, (1.0 - mu) / d),
}
LINKS = [
    *(fam.Gamma(link) for link in ("identity", "inverse")),
    *(fam.NegativeBinomial(link) for link in ("identity", "sqrt")),
    *(fam.Gaussian(link) for link in ("log", "inverse")),
    *(fam.StudentT(link=link) for link in ("log", "inverse")),
    *(fam.Beta(link) for link in ("probit", "cloglog", "cauchit")),
]
each = pytest.mark.parametrize("family", LINKS, ids=lambda f: f"{f.name}-{f.link}")


def drawn(family: fam.Family, number: int = 400) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Rows, the mean of each, and the logarithm of what scatters."""
    rng = np.random.default_rng(2)
    x, z = rng.uniform(size=(2, number))
    both = family.of_all()
    if family.name == "beta":
        mu, d = 0.5 + 0.3 * np.sin(6.0 * x), np.exp(-3.0 + 1.5 * z)
    else:
        mu, d = np.exp(1.0 + np.sin(6.0 * x)), np.exp(-2.0 + 1.5 * z)
    y = DENSITY[both.name](mu, d).rvs(random_state=rng)
    return pd.DataFrame({"x": x, "z": z, "y": y}), mu, np.log(d)


def terms(family: fam.Family) -> dict[str, gg.terms.Term]:
    return {family.of_all().modelled[0]: s("x", k=8), "scale": s("z", k=4)}


@each
def test_what_families_say_is_scipys(family: fam.Family) -> None:
    family = family.of_all()
    low, high = (0.2, 0.6) if family.name == "beta" else (1.0, 7.0)
    likelihood = family.likelihood(np.array([[low], [high]]))
    F = np.array([[0.7, -0.3], [0.3, -1.0], [0.45, 0.2]])
    factor, shift = family.units(likelihood)
    f, g = (shift + factor * F).T
    y = {"beta": [0.2, 0.5, 0.9], "negative_binomial": [0.0, 3.0, 1.0]}.get(family.name)
    y = np.array([1.5, 0.5, 3.0] if y is None else y)
    own, X, Y = DENSITY[family.name](MEAN[family.link](f), np.exp(g)), np.zeros((3, 1)), y[:, None]
    logs = own.logpmf(y) if family.discrete else own.logpdf(y)
    np.testing.assert_allclose(likelihood.log_prob(X, F, Y), logs, rtol=1e-9)
    np.testing.assert_allclose(family.mean(likelihood, F), own.mean(), rtol=1e-9)
    np.testing.assert_allclose(likelihood.conditional_mean(X, F)[:, 0], own.mean(), rtol=1e-9)
    np.testing.assert_allclose(likelihood.conditional_variance(X, F)[:, 0], own.var(), rtol=1e-9)
    np.testing.assert_allclose(family.cdf(likelihood, Y, F)[1], own.cdf(y), rtol=1e-9)
    draws = family.sample(likelihood, np.tile(F[:1], (20_000, 1)), np.random.default_rng(0))
    se = own.std()[0] / np.sqrt(20_000)
    assert abs(draws.mean() - own.mean()[0]) < 4.0 * se
    # expectations over both predictors, beside a sum over a fine lattice
    var = np.array([[0.01, 0.05]])
    nodes = np.linspace(-6.0, 6.0, 241)
    weights = st.norm.pdf(nodes) / st.norm.pdf(nodes).sum()
    a, b = np.meshgrid(F[0, 0] + 0.1 * nodes, F[0, 1] + np.sqrt(0.05) * nodes, indexing="ij")
    lattice = np.stack([a.ravel(), b.ravel()], axis=1)
    at = likelihood.log_prob(np.zeros((len(lattice), 1)), lattice, np.full((len(lattice), 1), y[0]))
    expected = np.outer(weights, weights).ravel() @ at.numpy()
    result = likelihood.variational_expectations(X[:1], F[:1], var, Y[:1])
    np.testing.assert_allclose(result, [expected], rtol=1e-6)


@pytest.mark.parametrize(
    "family",
    [
        fam.Gamma("inverse"),
        fam.NegativeBinomial("sqrt"),
        fam.Gaussian("log"),
        pytest.param(fam.Gaussian("inverse"), marks=pytest.mark.slow),
        fam.StudentT(link="log"),
        fam.Beta("cloglog"),
    ],
    ids=lambda f: f"{f.name}-{f.link}",
)
def test_fits_find_both_curves_in_any_unit(family: fam.Family, tmp_path: Path) -> None:
    data, mu, log_d = drawn(family)
    gam = gg.GAM(terms(family), family=family).fit(data, "y", **QUIET)
    assert gam.fitted.result.converged
    assert gam.fitted.result.num_iterations < 40
    predicted = np.asarray(gam.predict(data))
    assert np.sqrt(np.mean(np.square(predicted / mu - 1.0))) < 0.13
    link = gam.predict(data, "link")
    away = link[:, 1] - log_d
    assert np.sqrt(np.mean(np.square(away))) < 0.35
    np.testing.assert_allclose(MEAN[family.link](link[:, 0]), predicted, rtol=0.05)
    gam.save(tmp_path / "gam")
    again = gg.GAM.load(tmp_path / "gam")
    np.testing.assert_array_equal(again.predict(data), predicted)
    if family.name in ("gamma", "gaussian", "student_t"):
        other = gg.GAM(terms(family), family=family)
        other.fit(data.assign(y=1e6 * data["y"], x=1e-4 * data["x"]), "y", **QUIET)
        result = other.predict(data.assign(x=1e-4 * data["x"]))
        np.testing.assert_allclose(result, 1e6 * predicted, rtol=1e-3)


@rscript.needed
def test_normal_means_behind_a_logarithm_are_mgcvs(tmp_path: Path) -> None:
    family = fam.Gaussian("log")
    data, mu, log_d = drawn(family)
    data.to_csv(tmp_path / "d.csv")
    gam = gg.GAM(terms(family), family=family).fit(data, "y", **QUIET)
    script = """
        library(mgcv); d <- read.csv("d.csv")
        m <- gam(list(y ~ s(x), ~ s(z)), family = gaulss(link = list("log", "logb")), data = d)
        p <- predict(m)
        cat(format(c(p[, 1], log(exp(p[, 2]) + 0.01)), digits = 15))
    """
    peer = rscript.printed(script, tmp_path).reshape(2, -1)
    result, truth = gam.predict(data, "link").T, np.stack([np.log(mu), log_d])
    ours, theirs = (np.sqrt(np.mean(np.square(a - truth), axis=1)) for a in (result, peer))
    assert np.all(ours < 1.1 * theirs)
    assert np.all(np.sqrt(np.mean(np.square(result - peer), axis=1)) < ours + theirs)


def test_what_goes_with_it_is_in_the_predictors_units() -> None:
    """Effects add up to the predictor; draws have its moments; offsets have no unit."""
    family = fam.Gamma("inverse")
    data, _, _ = drawn(family)
    gam = gg.GAM(terms(family), family=family).fit(data, "y", **QUIET)
    parts, link = gam.predict(data, "terms"), gam.predict(data, "link")
    for predictor, name in enumerate(("mean", "log dispersion")):
        own = [c for c in parts.columns if c[1] == name]
        np.testing.assert_allclose(parts[own].sum(axis=1), link[:, predictor], rtol=1e-10)
    assert family.of_all().axes("y") == ("1 / mean of y", "log dispersion of y")
    with pytest.raises(ValueError, match="offset"):
        gg.GAM(terms(family), family=family, offset="z").fit(data, "y", **QUIET)
    both, negative = gg.GAM(terms(fam.Gaussian()), family=fam.Gaussian("log")), -data["y"]
    with pytest.raises(ValueError, match="'log' is of positive means, and the mean response is -"):
        both.fit(data, negative, **QUIET)
