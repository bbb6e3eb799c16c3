"""Links to positive means: beside scipy, dense quadratures, R's glm and truths that are known."""

from __future__ import annotations

import zlib

import gpflow
import numpy as np
import pandas as pd
import pytest
import rscript
import scipy.stats as st
import tensorflow as tf

import gpflow_gam as gg
from gpflow_gam import families as fam
from gpflow_gam import likelihoods as lk
from gpflow_gam import linear, s
from gpflow_gam.likelihoods.linked import predictor_of
from gpflow_gam.likelihoods.predictive import summarised_response
from gpflow_gam.optimizers.binned.rounds import Evaluation, Rounds

MEAN = {
    "log": np.exp,
    "identity": lambda f: f,
    "inverse": lambda f: 1.0 / f,
    "sqrt": np.square,
}
SHAPE, ALPHA, SD = 3.0, 0.4, 0.6
POWER, PHI = 1.6, 0.8


class Amounts:
    """Poisson numbers of gamma amounts (Tweedie's), term by term, with scipy's method names."""

    def __init__(self, mu: np.ndarray) -> None:
        self.mu = mu
        self.numbers = st.poisson(mu ** (2.0 - POWER) / (PHI * (2.0 - POWER)))
        self.shape = (2.0 - POWER) / (POWER - 1.0)
        self.scale = PHI * (POWER - 1.0) * mu ** (POWER - 1.0)
        self.j = np.arange(1.0, 200.0)[:, None]

    def logpdf(self, y: np.ndarray) -> np.ndarray:
        each = st.gamma.logpdf(y, self.j * self.shape, scale=self.scale)
        return np.log(np.sum(np.exp(self.numbers.logpmf(self.j) + each), axis=0))

    def cdf(self, y: np.ndarray) -> np.ndarray:
        each = st.gamma.cdf(y, self.j * self.shape, scale=self.scale)
        return self.numbers.pmf(0) + np.sum(self.numbers.pmf(self.j) * each, axis=0)

    def var(self) -> np.ndarray:
        return PHI * self.mu**POWER


CASES = [
    (fam.Poisson("identity"), st.poisson),
    (fam.Poisson("sqrt"), st.poisson),
    (
        fam.NegativeBinomial(link="identity"),
        lambda mu: st.nbinom(1 / ALPHA, 1 / (1 + ALPHA * mu)),
    ),
    (fam.NegativeBinomial(link="sqrt"), lambda mu: st.nbinom(1 / ALPHA, 1 / (1 + ALPHA * mu))),
    (fam.Gamma("inverse"), lambda mu: st.gamma(SHAPE, scale=mu / SHAPE)),
    (fam.Gamma("identity"), lambda mu: st.gamma(SHAPE, scale=mu / SHAPE)),
    (fam.Gaussian("log"), lambda mu: st.norm(mu, SD)),
    (fam.Gaussian("inverse"), lambda mu: st.norm(mu, SD)),
    (fam.StudentT(link="log"), lambda mu: st.t(4.0, mu, SD)),
    (fam.StudentT(link="inverse"), lambda mu: st.t(4.0, mu, SD)),
    (fam.Tweedie("identity"), Amounts),
    (fam.Tweedie("sqrt"), Amounts),
    (fam.Tweedie("inverse"), Amounts),
]
each = pytest.mark.parametrize(
    ("family", "reference"), CASES, ids=[f"{f.name}-{f.link}" for f, _ in CASES]
)


def built(family) -> lk.MeanLink:
    """Of responses of mean 2."""
    likelihood = family.likelihood(np.array([[1.0], [3.0]]))
    base = likelihood.base
    if isinstance(base, lk.MeanGamma):
        base.shape.assign(SHAPE)
    elif isinstance(base, gpflow.likelihoods.Gaussian):
        base.variance.assign(SD**2)
    elif isinstance(base, lk.NegativeBinomial):
        base.alpha.assign(ALPHA)
    elif isinstance(base, lk.StudentT):
        base.scale.assign(SD)
    elif isinstance(base, lk.Tweedie):
        base.power.assign(POWER)
        base.dispersion.assign(PHI * base.unit ** (POWER - 2.0))
    return likelihood


@each
def test_what_families_say_is_scipys(family, reference):
    likelihood, y = built(family), np.array([1.0, 2.0, 4.0, 0.5, 3.0])
    y = np.round(y) if family.discrete else y
    f = np.array([0.7, 1.5, 0.9, 0.4, 1.1])[:, None]
    mu = MEAN[family.link](f[:, 0])
    own, X, Y = reference(mu), np.zeros((5, 1)), y[:, None]
    logs = own.logpmf(y) if family.discrete else own.logpdf(y)
    np.testing.assert_allclose(likelihood.log_prob(X, f, Y), logs, rtol=1e-10)
    np.testing.assert_allclose(family.mean(likelihood, f), mu, rtol=1e-12)
    np.testing.assert_allclose(likelihood.conditional_variance(X, f)[:, 0], own.var(), rtol=1e-10)
    np.testing.assert_allclose(family.cdf(likelihood, Y, f)[1], own.cdf(y), rtol=1e-10)
    saturated = reference(y)
    best = saturated.logpmf(y) if family.discrete else saturated.logpdf(y)
    result = family.deviance(likelihood, Y, f)
    np.testing.assert_allclose(result, 2.0 * (best - logs), rtol=1e-7, atol=1e-9)
    draws = family.sample(likelihood, np.full((20_000, 1), f[1, 0]), np.random.default_rng(0))
    assert abs(draws.mean() - mu[1]) < 4.0 * np.sqrt(own.var()[1] / 20_000)


@each
def test_expectations_are_dense_quadratures(family, reference):
    likelihood, z = built(family), np.linspace(-8.0, 8.0, 8001)[:, None]
    w = st.norm.pdf(z) / st.norm.pdf(z).sum()
    mean, var = np.array([[1.2], [0.9]]), np.array([[0.01], [0.01]])
    Y, X = np.array([[2.0], [1.0]]), np.zeros((2, 1))
    F = (mean[:, 0] + np.sqrt(var[:, 0]) * z)[..., None]
    logs = np.asarray(likelihood.log_prob(np.zeros((*F.shape[:2], 1)), F, Y + 0.0 * F))
    got = likelihood.variational_expectations(X, mean, var, Y)
    np.testing.assert_allclose(got, (w * logs).sum(axis=0), rtol=1e-5)
    got = likelihood.predict_log_density(X, mean, var, Y)
    np.testing.assert_allclose(got, np.log((w * np.exp(logs)).sum(axis=0)), rtol=1e-5)
    mu = family.mean(likelihood, F)
    result = summarised_response(likelihood, X, mean, var, 0.95)
    np.testing.assert_allclose(result.mean, (w * mu).sum(axis=0), rtol=1e-5)
    z = st.norm.ppf(0.975) * np.array([-1.0, 1.0])[:, None, None]
    ends = np.sort(family.mean(likelihood, mean + np.sqrt(var) * z), axis=0)
    np.testing.assert_allclose(np.stack([result.lower, result.upper]), ends, rtol=1e-8)


@each
def test_every_predictor_has_a_positive_mean(family, reference):
    """Which moves one way, without a jump or a bend, and is the link's where data are."""
    likelihood = built(family)
    F = tf.constant(np.linspace(-30.0, 30.0, 6001)[:, None])
    with tf.GradientTape() as tape:
        tape.watch(F)
        log = likelihood.log_mean(F)
    slope = tape.gradient(log, F).numpy()[:, 0]
    assert np.all(np.isfinite(log))
    assert np.all(slope < 0.0 if family.link == "inverse" else slope > 0.0)
    edge = float(likelihood.unit.numpy())
    if family.link != "log":
        at = tf.constant([[edge * (1 - 1e-7)], [edge * (1 + 1e-7)]], tf.float64)
        with tf.GradientTape() as tape:
            tape.watch(at)
            log = likelihood.log_mean(at)
        slopes = tape.gradient(log, at)
        np.testing.assert_allclose(slopes[0], slopes[1], rtol=1e-5)
        np.testing.assert_allclose(log[0], log[1], atol=1e-6)
    for mean in (0.03, 2.0, 190.0):
        f = np.array([[predictor_of(family.link, mean)]])
        assert family.mean(likelihood, f)[0] == pytest.approx(mean, rel=1e-10)


def test_in_other_units_fits_are_the_same():
    rng = np.random.default_rng(1)
    x = rng.uniform(size=120)
    y = rng.gamma(4.0, (1.0 + 2.0 * x) / 4.0)
    result = []
    for unit in (1.0, 1000.0):
        table = pd.DataFrame({"x": x, "y": y * unit})
        gam = gg.GAM(linear("x"), family=fam.Gamma("identity")).fit(table, "y", progress=False)
        result.append(np.array(gam.predict(table.iloc[:5], "link", se=True)) / unit)
    np.testing.assert_allclose(result[1], result[0], rtol=1e-3)


GLM = """
d <- read.csv("d.csv")
models <- list(
  glm(p ~ x, poisson("identity"), d, start=c(4, 0)), glm(p ~ x, poisson("sqrt"), d),
  glm(g ~ x, Gamma("inverse"), d), glm(g ~ x, Gamma("identity"), d),
  glm(g ~ x, gaussian("log"), d, start=c(0, 0)), glm(g ~ x, gaussian("inverse"), d, start=c(.5, 0)),
  glm(b ~ x, binomial("log"), d, start=c(-1, 0)))
for (m in models) {
  new <- data.frame(x=c(0.1, 0.9))
  f <- m$family
  X <- model.matrix(m)
  half <- function(b) sum(f$dev.resids(m$y, f$linkinv(drop(X %*% b)), m$prior.weights)) / 2
  V <- solve(optimHess(coef(m), half, control=list(ndeps=c(1e-4, 1e-4)))) * summary(m)$dispersion
  A <- cbind(1, new$x)
  cat(predict(m, new), sqrt(diag(A %*% V %*% t(A))), predict(m, new, type="response"), "\n")
}
"""
"""Standard errors by what the data say of the coefficients, as a posterior has it. R's own are by
what data would say on average: of Gamma("identity") 4 percent wider here."""


@rscript.needed
def test_straight_lines_are_those_of_glm(tmp_path):
    rng = np.random.default_rng(0)
    n = 600
    x = rng.uniform(size=n)
    table = pd.DataFrame({"x": x, "p": rng.poisson(3.0 + 4.0 * x)})
    table["g"] = rng.gamma(4.0, 1.0 / (0.4 + 0.8 * x) / 4.0)
    table["b"] = (rng.uniform(size=n) < np.exp(-1.5 + 0.9 * x)).astype(int)
    table.to_csv(tmp_path / "d.csv", index=False)
    answers = rscript.printed(GLM, tmp_path).reshape(7, 3, 2)
    cases = [
        ("p", fam.Poisson("identity")),
        ("p", fam.Poisson("sqrt")),
        ("g", fam.Gamma("inverse")),
        ("g", fam.Gamma("identity")),
        ("g", fam.Gaussian("log")),
        ("g", fam.Gaussian("inverse")),
        ("b", fam.Bernoulli("log")),
    ]
    for (y, family), (link, se, response) in zip(cases, answers):
        gam = gg.GAM(linear("x"), family=family).fit(table, y, progress=False)
        new = pd.DataFrame({"x": [0.1, 0.9]})
        result, own = gam.predict(new, "link", se=True)
        assert np.max(np.abs(result - link) / se) < 0.25, family
        np.testing.assert_allclose(own, se, rtol=0.02, err_msg=str(family))
        np.testing.assert_allclose(gam.predict(new), response, rtol=0.04, err_msg=str(family))


def test_a_fit_that_took_all_for_noise_is_told_by_a_constant(monkeypatch):
    """Means near infinity where it starts may lead there; here the fit is put there."""
    rng = np.random.default_rng(1)
    table = pd.DataFrame({"x": rng.uniform(size=300)})
    table["y"] = 1.0 / (0.5 + table["x"]) + 0.1 * rng.normal(size=300)
    gam = gg.GAM(s("x"), family=fam.Gaussian("inverse"))
    assert gam.fit(table, "y", progress=False).fitted.result.converged

    def away(self, *_: object) -> tuple[Evaluation, bool, str]:
        point = self.start_at(np.zeros(1), np.full(1, 1e-3))
        point.phi += np.log(1e8)
        return self.evaluate(point), True, "the last round gained 0 nats"

    monkeypatch.setattr(Rounds, "run", away)
    with pytest.warns(gg.ConvergenceWarning, match="stuck: a constant predictor is better"):
        gam.fit(table, "y", progress=False)
    assert not gam.fitted.result.converged


@pytest.mark.slow
@pytest.mark.parametrize("seed", [17, 20])
def test_sites_without_a_posterior_are_gone_towards_in_part(seed):
    """Noise around exp(f) is not log-concave in f: sums of negative weights may have none."""
    rng = np.random.default_rng([seed, zlib.crc32(b"gaussian, log")])
    x = rng.uniform(size=500)
    f = np.sin(6.0 * x)
    table = pd.DataFrame({"x": x, "y": np.exp(f) + 0.3 * rng.normal(size=500)})
    gam = gg.GAM(s("x"), fam.Gaussian("log")).fit(table, "y", progress=False)
    assert gam.fitted.result.converged
    assert np.sqrt(np.mean((gam.predict(table, "link") - f) ** 2)) < 0.08
    assert gam.summary().parameters["variance"] == pytest.approx(0.09, rel=0.15)


@pytest.fixture(scope="module")
def rates() -> gg.GAM:
    rng = np.random.default_rng(2)
    x = rng.uniform(size=400)
    table = pd.DataFrame({"x": x, "y": rng.gamma(5.0, 1.0 / (1.5 + np.sin(6.0 * x)) / 5.0)})
    return gg.GAM(s("x"), family=fam.Gamma("inverse")).fit(table, "y", progress=False)


def test_all_that_a_gam_does_it_does(rates, tmp_path):
    grid = pd.DataFrame({"x": np.linspace(0.02, 0.98, 40)})
    truth = 1.5 + np.sin(6.0 * grid["x"])
    link = rates.predict(grid, "link", interval=0.95)
    assert np.mean((link["lower"] < truth) & (truth < link["upper"])) > 0.9
    response = rates.predict(grid, interval=0.95)
    np.testing.assert_allclose(response["lower"], 1.0 / link["upper"], rtol=1e-6)
    np.testing.assert_allclose(response["upper"], 1.0 / link["lower"], rtol=1e-6)
    draws = rates.sample(grid, 4000, "response", seed=3)
    np.testing.assert_allclose(draws.mean(axis=0), response["estimate"], rtol=0.02)
    effect = rates.effects("s(x)", grid["x"], scale="response")
    np.testing.assert_allclose(effect["estimate"], response["estimate"], rtol=1e-6)
    assert "shape" in str(rates.summary())
    assert "base" not in str(rates.summary())
    assert 0.0 < rates.fitted.deviance()[0] < rates.fitted.deviance()[1]
    assert np.isfinite(rates.loo().elpd)
    rates.appraise()
    rates.draw("s(x)", residuals=True)
    for data in (True, False):
        rates.save(tmp_path / str(data), data=data)
        loaded = gg.GAM.load(tmp_path / str(data))
        assert loaded.family == fam.Gamma("inverse")
        np.testing.assert_array_equal(loaded.predict(grid), rates.predict(grid))


def test_offsets_are_added_to_the_predictor():
    rng = np.random.default_rng(6)
    x, known = rng.uniform(size=200), rng.uniform(1.0, 6.0, 200)
    table = pd.DataFrame({"x": x, "o": known, "y": rng.poisson(2.0 + 3.0 * x + known)})
    gam = gg.GAM(linear("x"), family=fam.Poisson("identity"), offset="o")
    gam.fit(table, "y", progress=False)
    result = gam.coefficients().set_index("term")
    slope = result.loc["linear(x)"]
    assert abs(slope["estimate"] - 3.0) < 2.5 * slope["se"]
    np.testing.assert_allclose(gam.predict(table), 2.0 + 3.0 * x + known, atol=1.5)
    assert abs(gam.predict(table).mean() - table["y"].mean()) < 0.1
    least = gam.fitted.deviance()[1]  # with the offset and a constant
    constants = np.linspace(2.0, 5.0, 3001)[:, None]
    mean = constants + known
    logs = 2.0 * (st.poisson.logpmf(table["y"], table["y"]) - st.poisson.logpmf(table["y"], mean))
    assert least == pytest.approx(logs.sum(axis=1).min(), rel=1e-5)


def test_what_no_link_is_for_is_said():
    with pytest.raises(
        ValueError, match="link of family 'gamma' must be .* or 'identity'; got 'probit'"
    ):
        fam.Gamma("probit")
    with pytest.raises(ValueError, match="link must be 'log', .*; got 'x'"):
        lk.MeanLink(gpflow.likelihoods.Gaussian(), "x")
    for family in (fam.Gamma("inverse"), fam.Gaussian("log"), "quasipoisson", "quantile", "cox"):
        with pytest.raises(ValueError, match="settled by all responses.*a layer sees batches"):
            gg.layers.AdditiveGP(s(0), likelihood=family, num_data=10)
    table = pd.DataFrame({"x": np.arange(9.0), "y": -np.arange(9.0), "e": [1, 0, 1] * 3})
    with pytest.raises(ValueError, match="'log' is of positive means, and the mean response is -4"):
        gg.GAM(s("x"), family=fam.Gaussian("log")).fit(table, "y")
    with pytest.raises(ValueError, match="identity link with a censored response.*'lognormal'"):
        gg.GAM("s(x)", family=fam.Gaussian("log")).fit(table, gg.Surv("y", "e"))
    with pytest.raises(ValueError, match="variational='exact' is for family='gaussian'"):
        gg.GAM("s(x)", family=fam.Gaussian("log"), variational="exact").fit(
            table.assign(y=table["x"]), "y"
        )


def test_normal_noise_under_inverse_finds_the_optimum_in_any_unit():
    """From a constant, units decided which optimum was found: one was 160 nats below."""
    rng = np.random.default_rng(3)
    x = rng.uniform(size=150)
    mean = 1.0 / (0.1 + x)
    y = mean + 0.3 * rng.normal(size=150)
    result = []
    for unit, factor in ((1e-6, 1.0), (1.0, 1.0), (1e6, 1e3)):
        data = pd.DataFrame({"x": unit * x, "y": factor * y})
        gam = gg.GAM(s("x", k=10), family=fam.Gaussian("inverse")).fit(data, "y", progress=False)
        assert gam.fitted.result.converged
        result.append(gam.predict(data) / factor)
    np.testing.assert_allclose(result[1:], np.stack([result[0]] * 2), rtol=2e-3)
    assert np.sqrt(np.mean(np.square(result[0] - mean))) < 0.1


def test_sites_that_go_too_far_are_no_convergence():
    """A target that lost a tenth of a nat had ended the fit, where half of the way gains."""
    rng = np.random.default_rng(1)
    x = rng.uniform(size=150)
    mean = 0.2 + 5.0 * np.exp(-np.square((x - 0.5) / 0.1))
    table = pd.DataFrame({"x": x, "y": mean + 0.05 * mean.std() * rng.normal(size=150)})
    gam = gg.GAM(s("x"), family=fam.Gaussian("inverse")).fit(table, "y", progress=False)
    result = gam.fitted.result
    assert result.converged
    assert gam.refit(progress=False).fitted.result.elbo == pytest.approx(result.elbo, abs=0.1)


@pytest.mark.parametrize(
    "family",
    [
        fam.Gaussian("log"),
        fam.StudentT(df=1.5, link="log"),  # without a variance
        fam.Gamma("identity"),
        fam.Poisson("identity"),
    ],
    ids=lambda f: f"{f.name}-{f.link}-{getattr(f, 'df', '')}",
)
def test_fits_start_where_each_response_has_its_predictor(family):
    """
    From a constant the large responses of a curve sent the mean off, to 10^20 nats below or to some
    dozens of rounds of coming back.
    """
    rng = np.random.default_rng(0)
    x = rng.uniform(size=300)
    mean = np.exp(1.0 + np.sin(6.0 * x))
    y = {
        "gaussian": lambda: mean + 0.3 * rng.normal(size=300),
        "student_t": lambda: mean + 0.3 * rng.standard_t(4.0, size=300),
        "gamma": lambda: rng.gamma(3.0, mean / 3.0),
        "poisson": lambda: rng.poisson(mean),
    }[family.name]()
    result = []
    for unit in (1.0,) if family.discrete else (1.0, 1e5):
        data = pd.DataFrame({"x": x, "y": unit * np.asarray(y, float)})
        gam = gg.GAM(s("x"), family=family).fit(data, "y", progress=False)
        assert gam.fitted.result.converged
        assert len(gam.fitted.result.history) < 15
        result.append(np.asarray(gam.predict(data)) / unit)
        assert np.sqrt(np.mean(np.square(result[-1] / mean - 1.0))) < 0.2
    np.testing.assert_allclose(result[-1], result[0], rtol=1e-3)
