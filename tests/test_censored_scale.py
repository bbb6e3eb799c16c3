"""Censored responses whose scale varies: scipy, models without censoring, known truths, survreg."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import rscript
import scipy.stats as st
from censored_cases import expected, mixed, same_expectations

import gpflow_gam as gg
from gpflow_gam import Surv, factor, linear, s
from gpflow_gam import families as fam
from gpflow_gam import likelihoods as lk

RIGHT, EXACT, LEFT, INTERVAL = range(4)
UNIT = 0.7
CASES = {
    "gaussian": (
        fam.CensoredGaussian(varying=True),
        lk.CensoredGaussian,
        lambda f, g: st.norm(UNIT * f, UNIT * np.exp(g)),
    ),
    "lognormal": (
        fam.LogNormal(varying=True),
        lk.LogNormal,
        lambda f, g: st.lognorm(UNIT * np.exp(g), scale=np.exp(UNIT * f)),
    ),
    "weibull": (
        fam.Weibull(varying=True),
        lk.Weibull,
        lambda f, g: st.weibull_min(np.exp(-g) / UNIT, scale=np.exp(UNIT * f)),
    ),
}
each = pytest.mark.parametrize(("family", "kind", "reference"), CASES.values(), ids=CASES.keys())


@each
def test_log_probabilities_are_scipys(family, kind, reference):
    Y = mixed()
    F = 0.7 * np.random.default_rng(0).standard_normal((len(Y), 2))
    got = kind(unit=UNIT, varying=True).log_prob(np.zeros((len(Y), 1)), F, Y)
    np.testing.assert_allclose(got, expected(reference(*F.T), Y), rtol=1e-9)


@each
def test_expectations_are_dense_quadratures(family, kind, reference):
    Y = mixed()
    rng = np.random.default_rng(1)
    # of a scale that may be near to zero Weibull's has no mean
    mean = 0.7 * rng.standard_normal((len(Y), 2))
    var = rng.uniform(0.02, 0.15, (len(Y), 2)) * [1.0, 0.2]
    z = np.linspace(-7.0, 7.0, 121)
    w = np.outer(*2 * [st.norm.pdf(z) / st.norm.pdf(z).sum()]).ravel()[:, None]
    f, g = (mean[:, i] + np.sqrt(var[:, i]) * a.ravel()[:, None]
            for i, a in enumerate(np.meshgrid(z, z, indexing="ij")))  # fmt: skip
    logp = expected(reference(f, g), Y)
    near = {"expectation": {"rtol": 2e-5}, "density": {"atol": 2e-4}}
    same_expectations(kind(unit=UNIT, varying=True), Y, (mean, var), logp, w, **near)


@each
def test_what_families_say_is_scipys(family, kind, reference):
    rng, likelihood = np.random.default_rng(3), kind(unit=UNIT, varying=True)
    F = 0.5 * rng.standard_normal((6, 2))
    known = reference(*F.T)
    y = known.rvs(random_state=rng)[:, None]
    np.testing.assert_allclose(family.mean(likelihood, F), known.mean(), rtol=1e-9)
    variance = likelihood.conditional_variance(np.zeros((6, 1)), F)
    np.testing.assert_allclose(variance[:, 0], known.var(), rtol=1e-9)
    np.testing.assert_allclose(family.cdf(likelihood, y, F)[1], known.cdf(y[:, 0]), rtol=1e-9)
    np.testing.assert_allclose(family.survival(likelihood, y[:, 0], F), known.sf(y[:, 0]), 1e-9)
    draws = family.sample(likelihood, np.tile(F, (20_000, 1, 1)), rng)
    below = [st.kstest(draws[:, n], reference(*F[n]).cdf).pvalue for n in range(6)]
    assert np.min(below) > 1e-3


def test_where_all_is_known_it_is_the_normal_model_of_both():
    """Another class, with other formulas."""
    rng = np.random.default_rng(2)
    y, mean, var = rng.normal(size=(8, 1)), rng.normal(size=(8, 2)), rng.uniform(size=(8, 2)) / 4
    Y, X = np.concatenate([y, y, np.full_like(y, EXACT)], axis=1), np.zeros((8, 1))
    censored, plain = lk.CensoredGaussian(unit=UNIT, varying=True), lk.Heteroskedastic(UNIT)
    for ask in ("variational_expectations", "predict_log_density"):
        known = getattr(plain, ask)(X, mean, var, y)
        for given in (Y, y):
            np.testing.assert_allclose(getattr(censored, ask)(X, mean, var, given), known, 1e-8)


# --- fits ----------------------------------------------------------------------------------------

N = 1200


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """Times, three in ten of them censored, whose scale goes from .25 to .9 with z."""
    rng = np.random.default_rng(0)
    x, z = rng.uniform(size=(2, N))
    f, log_scale = np.sin(6.0 * x), np.log(0.25) + 1.3 * z
    e = np.log(rng.standard_exponential(N))
    time, end = np.exp(f + np.exp(log_scale) * e), rng.exponential(3.0, size=N)
    result = {"x": x, "z": z, "f": f, "g": log_scale, "full": time}
    result |= {"time": np.minimum(time, end), "event": time <= end}
    return pd.DataFrame(result)


TERMS = {"location": s("x"), "scale": s("z", k=6)}


@pytest.fixture(scope="module")
def weibull(table) -> gg.GAM:
    return gg.GAM(TERMS, "weibull").fit(table, Surv("time", "event"), progress=False)


def test_location_and_scale_are_found(table, weibull):
    assert 0.2 < 1.0 - table["event"].mean() < 0.4
    assert weibull.names == ("location:s(x)", "scale:s(z)")
    link, se = weibull.predict(table, "link", se=True)
    away = np.asarray(link) - table[["f", "g"]].to_numpy()
    assert np.all(np.sqrt(np.mean(away**2, axis=0)) < [0.06, 0.12])
    assert np.all(np.mean(np.abs(away) < 3.0 * se, axis=0) > 0.8)
    one = gg.GAM(s("x"), "weibull").fit(table, Surv("time", "event"), progress=False)
    comparison = gg.compare({"varies": weibull, "one": one}).to_frame()
    assert comparison.loc["one", "difference"] < -5.0 * comparison.loc["one", "difference_se"]


def test_survival_curves_are_those_of_both_predictors(table, weibull):
    few, times = table.iloc[:4], np.array([0.3, 1.0, 2.0])
    curve = st.weibull_min(1.0 / np.exp(few[["g"]]), scale=np.exp(few[["f"]])).sf(times)
    result = weibull.survival(few, times)
    np.testing.assert_allclose(result["estimate"], curve.ravel(), atol=0.06)
    assert np.mean((result["lower"] < curve.ravel()) & (curve.ravel() < result["upper"])) > 0.8
    # of predictors that are drawn
    known = weibull.survival(few, times, unconditional=False)
    link, se = weibull.predict(few, "link", se=True, unconditional=False)
    normals = np.random.default_rng(1).standard_normal((40_000, 1, 2))
    f, g = np.moveaxis(np.asarray(link) + np.asarray(se) * normals, -1, 0)[..., None]
    draws = np.exp(-((times / np.exp(f)) ** np.exp(-g)))
    np.testing.assert_allclose(known["estimate"], draws.mean(axis=0).ravel(), atol=0.001)
    for name, level in (("lower", 0.025), ("upper", 0.975)):
        np.testing.assert_allclose(
            known[name], np.quantile(draws, level, axis=0).ravel(), atol=0.006
        )


def test_all_that_a_gam_does_it_does(table, weibull, tmp_path: Path):
    few = table.iloc[:6]
    mean, density = weibull.predict(few), weibull.log_density(few)
    draws = weibull.sample(few, 4000, "observation", seed=1)
    np.testing.assert_allclose(draws.mean(axis=0), mean, rtol=0.08)
    labels = [ax.get_ylabel().split(" [")[0] for ax in weibull.draw().axes]
    assert labels == ["location of log time", "log scale of log time"]
    weibull.appraise()
    assert weibull.summary().parameters == {}
    weibull.save(tmp_path / "gam")
    loaded = gg.GAM.load(tmp_path / "gam")
    np.testing.assert_array_equal(loaded.log_density(few), density)
    np.testing.assert_array_equal(loaded.predict(few), mean)
    np.testing.assert_array_equal(loaded.survival(few, [1.0]), weibull.survival(few, [1.0]))


def test_a_response_that_nothing_censors_is_that_of_the_plain_family(table):
    few = table.iloc[:300].assign(y=table["full"])
    terms = {"mean": s("x", k=8), "scale": s("z", k=5)}
    plain = gg.GAM(terms).fit(few, "y", progress=False)
    stated = gg.GAM(terms).fit(few.assign(all=1), Surv("y", "all"), progress=False)
    assert stated.fitted.spec.family == fam.CensoredGaussian(varying=True)
    np.testing.assert_allclose(stated.predict(few, "link"), plain.predict(few, "link"), atol=2e-3)


def test_intervals_of_a_varying_scale(table):
    low = np.floor(2.0 * np.log(table["full"])) / 2.0
    data = table.assign(low=low, high=low + 0.5)
    gam = gg.GAM({"mean": s("x"), "scale": s("z", k=6)})
    gam.fit(data, Surv("low", "high", type="interval"), progress=False)
    log_scale = np.asarray(gam.predict(table, "link"))[:, 1]
    truth = table["g"] + np.log(np.sqrt(np.pi**2 / 6.0))  # the sd of e
    assert np.sqrt(np.mean((log_scale - truth) ** 2)) < 0.15


def test_few_rows_of_many_orders_of_magnitude_are_fitted(table):
    few = table.iloc[:60].assign(time=1e3 * table["time"] ** 6)
    gam = gg.GAM({"location": s("x"), "scale": s("z")}, "weibull")
    gam.fit(few, Surv("time", "event"), progress=False)
    link, se = gam.predict(few, "link", se=True)
    truth = np.stack([np.log(1e3) + 6.0 * few["f"], few["g"] + np.log(6.0)], axis=1)
    away = np.abs(np.asarray(link) - truth) < 3.0 * np.asarray(se)
    assert np.all(away.mean(axis=0) > 0.7)
    assert np.all(np.isfinite(gam.loo().pointwise))


@pytest.mark.parametrize(
    ("terms", "options", "message"),
    [
        ({"location": s("x"), "shape": s("z")}, {}, "no parameter 'shape'.*'location', 'scale'"),
        (TERMS, {"offset": "f"}, "offset"),
        (TERMS, {"engine": "iterncgp"}, "engine='iterncgp' has the same terms"),
    ],
)
def test_errors(table, terms, options, message):
    with pytest.raises(ValueError, match=message):
        gg.GAM(terms, "weibull", **options).fit(table, Surv("time", "event"), progress=False)


STRATA = """
suppressMessages(library(survival)); d <- read.csv("d.csv")
for (dist in c("weibull", "lognormal")) {
  m <- survreg(Surv(time, event) ~ x + strata(k), data = d, dist = dist)
  cat(coef(m)[2], sqrt(diag(vcov(m)))[2], m$scale, "\\n")
}
"""


@pytest.mark.slow
@rscript.needed
def test_scales_of_groups_are_those_of_survregs_strata(table, tmp_path):
    data = table.assign(k=np.where(table["z"] < 0.5, "a", "b"), event=table["event"] * 1)
    data.to_csv(tmp_path / "d.csv", index=False)
    answers = rscript.printed(STRATA, tmp_path).reshape(2, 4)
    rows = pd.DataFrame({"x": [0.0, 1.0], "k": ["a", "b"]})
    for family, known in zip(("weibull", "lognormal"), answers):
        gam = gg.GAM({"location": linear("x"), "scale": factor("k")}, family)
        gam.fit(data, Surv("time", "event"), progress=False)
        link = np.asarray(gam.predict(rows, "link"))
        assert abs(link[1, 0] - link[0, 0] - known[0]) < 0.2 * known[1]
        np.testing.assert_allclose(np.exp(link[:, 1]), known[2:], rtol=0.03)
