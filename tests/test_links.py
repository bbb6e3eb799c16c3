"""Links: of means and of probabilities. Truths that are known, and files."""

from __future__ import annotations

import zlib

import gpflow
import numpy as np
import pandas as pd
import pytest
import scipy.stats as st
import tensorflow as tf
from response_cases import CUTPOINTS, DENSITY, EVERY, LATENT, MEAN

import gpflow_gam as gg
from gpflow_gam import families as fam
from gpflow_gam import likelihoods as lk
from gpflow_gam import linear, s
from gpflow_gam.likelihoods.linked import predictor_of
from gpflow_gam.optimizers.binned.rounds import Evaluation, Rounds


def named(family: fam.Family) -> str:
    return f"{family.name}-{family.link}"


# --- far from the data ---------------------------------------------------------------------------

MEANS = [
    name
    for name, case in EVERY.items()
    if isinstance(case.likelihood(), lk.MeanLink) and case.L == 1
]


@pytest.mark.parametrize("name", MEANS)
def test_every_predictor_has_a_positive_mean(name):
    """Which moves one way, without a jump or a bend, and is the link's where data are."""
    family, likelihood = EVERY[name].family, EVERY[name].likelihood()
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


# --- fits ----------------------------------------------------------------------------------------


def drawn(family: fam.Family, x: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Responses around a curve of means, large ones among them, and these means."""
    if family.name in ("bernoulli", "ordinal", "beta"):
        f = 1.5 * np.sin(6.0 * x)
        p = MEAN[family.link](f)
        if family.name == "ordinal":
            latent = LATENT[family.link]
            y = np.digitize(f + latent.rvs(size=len(x), random_state=rng), CUTPOINTS)
            edges = np.concatenate([[-np.inf], CUTPOINTS, [np.inf]]) - f[:, None]
            return y, np.diff(latent.cdf(edges), axis=1)
        known = st.bernoulli(p) if family.name == "bernoulli" else DENSITY["beta"](p, 0.1)
        return known.rvs(random_state=rng), p
    mean = np.exp(1.0 + np.sin(6.0 * x))
    return DENSITY[family.name](mean, 0.3).rvs(random_state=rng), mean


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    "family",
    [
        fam.Gaussian("log"),
        fam.StudentT(df=1.5, link="log"),  # without a variance
        fam.StudentT(link="inverse"),
        fam.Gamma("identity"),
        fam.Poisson("identity"),
        pytest.param(fam.Tweedie("identity"), marks=pytest.mark.slow),
        pytest.param(fam.Tweedie("sqrt"), marks=pytest.mark.slow),
        fam.Bernoulli("cloglog"),
        fam.Ordinal(link="cloglog"),
        fam.Beta("cloglog"),
    ],
    ids=lambda f: f"{named(f)}-{getattr(f, 'df', '')}",
)
def test_fits_find_the_curve_in_any_unit(family):
    """From a constant start the large responses sent the mean off, to 10^20 nats below."""
    rng = np.random.default_rng(0)
    classes = family.name in ("bernoulli", "ordinal")
    x = rng.uniform(size=1200 if classes else 400)
    y, mean = drawn(family, x, rng)
    result = []
    for unit in (1.0,) if family.discrete or family.name == "beta" else (1.0, 1e5):
        data = pd.DataFrame({"x": x, "y": unit * np.asarray(y) if unit != 1.0 else y})
        gam = gg.GAM(s("x", k=10), family=family).fit(data, "y")
        assert gam.fitted.result.converged
        assert len(gam.fitted.result.history) < 15
        result.append(np.asarray(gam.predict(data)) / unit)
    away = result[0] - mean if np.max(mean) <= 1.0 else result[0] / mean - 1.0
    assert np.sqrt(np.mean(np.square(away))) < (0.05 if np.max(mean) <= 1.0 else 0.2)
    np.testing.assert_allclose(result[-1], result[0], rtol=1e-3)


@pytest.fixture(scope="module")
def rates() -> gg.GAM:
    rng = np.random.default_rng(2)
    x = rng.uniform(size=400)
    table = pd.DataFrame({"x": x, "y": rng.gamma(5.0, 1.0 / (1.5 + np.sin(6.0 * x)) / 5.0)})
    return gg.GAM(s("x"), family=fam.Gamma("inverse")).fit(table, "y")


def test_bands_are_those_of_the_predictor(rates):
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
    assert np.isfinite(rates.loo().elpd)
    rates.draw("s(x)", residuals=True)


def test_offsets_are_added_to_the_predictor():
    rng = np.random.default_rng(6)
    x, known = rng.uniform(size=200), rng.uniform(1.0, 6.0, 200)
    table = pd.DataFrame({"x": x, "o": known, "y": rng.poisson(2.0 + 3.0 * x + known)})
    gam = gg.GAM(linear("x"), family=fam.Poisson("identity"), offset="o").fit(table, "y")
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


def test_a_fit_that_took_all_for_noise_is_told_by_a_constant(monkeypatch):
    """Means near infinity where it starts may lead there; here the fit is put there."""
    rng = np.random.default_rng(1)
    table = pd.DataFrame({"x": rng.uniform(size=300)})
    table["y"] = 1.0 / (0.5 + table["x"]) + 0.1 * rng.normal(size=300)
    gam = gg.GAM(s("x"), family=fam.Gaussian("inverse"))
    assert gam.fit(table, "y").fitted.result.converged

    def away(self, *_: object) -> tuple[Evaluation, bool, str]:
        point = self.start_at(np.zeros(1), np.full(1, 1e-3))
        point.phi += np.log(1e8)
        return self.evaluate(point), True, "the last round gained 0 nats"

    monkeypatch.setattr(Rounds, "run", away)
    with pytest.warns(gg.ConvergenceWarning, match="stuck: a constant predictor is better"):
        gam.fit(table, "y")
    assert not gam.fitted.result.converged


@pytest.mark.slow
@pytest.mark.parametrize("seed", [17, 20])
def test_sites_without_a_posterior_are_gone_towards_in_part(seed):
    """Noise around exp(f) is not log-concave in f: sums of negative weights may have none."""
    rng = np.random.default_rng([seed, zlib.crc32(b"gaussian, log")])
    x = rng.uniform(size=500)
    f = np.sin(6.0 * x)
    table = pd.DataFrame({"x": x, "y": np.exp(f) + 0.3 * rng.normal(size=500)})
    gam = gg.GAM(s("x"), fam.Gaussian("log")).fit(table, "y")
    assert gam.fitted.result.converged
    assert np.sqrt(np.mean((gam.predict(table, "link") - f) ** 2)) < 0.08
    assert gam.summary().parameters["variance"] == pytest.approx(0.09, rel=0.15)


def test_normal_noise_under_inverse_finds_the_optimum_in_any_unit():
    """From a constant, units decided which optimum was found: one was 160 nats below."""
    rng = np.random.default_rng(3)
    x = rng.uniform(size=150)
    mean = 1.0 / (0.1 + x)
    y = mean + 0.3 * rng.normal(size=150)
    result = []
    for unit, factor in ((1e-6, 1.0), (1.0, 1.0), (1e6, 1e3)):
        data = pd.DataFrame({"x": unit * x, "y": factor * y})
        gam = gg.GAM(s("x", k=10), family=fam.Gaussian("inverse")).fit(data, "y")
        assert gam.fitted.result.converged
        result.append(gam.predict(data) / factor)
    np.testing.assert_allclose(result[1:], np.stack([result[0]] * 2), rtol=2e-3)
    assert np.sqrt(np.mean(np.square(result[0] - mean))) < 0.1


@pytest.mark.slow  # two fits of some twenty rounds
def test_sites_that_go_too_far_are_no_convergence():
    """A target that lost a tenth of a nat had ended the fit, where half of the way gains."""
    rng = np.random.default_rng(1)
    x = rng.uniform(size=150)
    mean = 0.2 + 5.0 * np.exp(-np.square((x - 0.5) / 0.1))
    table = pd.DataFrame({"x": x, "y": mean + 0.05 * mean.std() * rng.normal(size=150)})
    gam = gg.GAM(s("x"), family=fam.Gaussian("inverse")).fit(table, "y")
    result = gam.fitted.result
    assert result.converged
    assert gam.refit().fitted.result.elbo == pytest.approx(result.elbo, abs=0.1)


@pytest.mark.parametrize(("link", "out"), [("log", 1e3), ("inverse", -1e5)])
def test_rows_far_away_are_nothing_to_a_link_of_student_t(link, out):
    """Nor to where the link gives way, which is about the place of most rows."""
    family = fam.StudentT(link=link)
    x = np.linspace(0.02, 0.98, 200)
    f = 1.5 + np.sin(6.0 * x)
    noise = 0.1 * np.random.default_rng(0).standard_t(4.0, 200)
    data = pd.DataFrame({"x": x, "y": MEAN[link](f) + noise})
    data.loc[60:66, "y"] += out
    gam = gg.GAM(s("x"), family).fit(data, "y")
    assert np.sqrt(np.mean(np.square(gam.predict(data, "link") - f))) < 0.2 * np.std(f)


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
    for call in (lambda: fam.Ordinal(link="log"), lambda: lk.LogitBeta(1.0, "log")):
        with pytest.raises(ValueError, match="link.* must be .*probit"):
            call()


# --- terms for the scale -------------------------------------------------------------------------


def scattered(family: fam.Family, number: int = 400) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
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


def terms(family: fam.Family) -> dict[str, gg.gam.terms.base.Term]:
    return {family.of_all().modelled[0]: s("x", k=8), "scale": s("z", k=4)}


@pytest.mark.slow_but_first
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
    ids=named,
)
def test_fits_find_both_curves_in_any_unit(family: fam.Family) -> None:
    data, mu, log_d = scattered(family)
    gam = gg.GAM(terms(family), family=family).fit(data, "y")
    assert gam.fitted.result.converged
    assert gam.fitted.result.num_iterations < 40
    predicted = np.asarray(gam.predict(data))
    assert np.sqrt(np.mean(np.square(predicted / mu - 1.0))) < 0.13
    link = gam.predict(data, "link")
    away = link[:, 1] - log_d
    assert np.sqrt(np.mean(np.square(away))) < 0.35
    np.testing.assert_allclose(MEAN[family.link](link[:, 0]), predicted, rtol=0.05)
    if family.name in ("gamma", "gaussian", "student_t"):
        other = gg.GAM(terms(family), family=family)
        other.fit(data.assign(y=1e6 * data["y"], x=1e-4 * data["x"]), "y")
        result = other.predict(data.assign(x=1e-4 * data["x"]))
        np.testing.assert_allclose(result, 1e6 * predicted, rtol=1e-3)
