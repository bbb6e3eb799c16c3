"""Links: of means and of probabilities. Truths that are known, and files."""

import warnings
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
from gpflow_gam.gam.summaries.checks import dispersion, sample_dispersion
from gpflow_gam.likelihoods.linked import predictor_of
from gpflow_gam.optimizers.binned import bins
from gpflow_gam.optimizers.binned import passes as rows_module
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
        fam.Tweedie("identity"),
        fam.Tweedie("sqrt"),
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
        fam.Gaussian("inverse"),
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


# --- Pearson's dispersion ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["poisson", "gpflow's", "negative_binomial", "binomial_logit"])
@pytest.mark.parametrize("f", [-1.2, 0.9])
def test_squared_residuals_have_mean_one_and_the_variance_that_is_stated(name, f):
    """Summed over all that may be observed."""
    case = EVERY.get(name, EVERY["poisson"])
    likelihood, reference = case.likelihood(), case.reference(np.array([f]))
    family = case.family if name in EVERY else fam.Custom(likelihood)
    y = np.arange(reference.ppf(1e-13), reference.isf(1e-13) + 1)
    square, variance = family.pearson(likelihood, case.Y(y), np.full((len(y), 1), f))
    p = reference.pmf(y)
    assert p @ square == pytest.approx(1.0, rel=1e-8)
    assert p @ square**2 - 1.0 == pytest.approx(variance[0], rel=1e-6)


def test_exponential_times_have_an_excess_kurtosis_of_six():
    base = gpflow.likelihoods.Exponential()
    y = st.expon(scale=np.exp(0.7)).ppf((np.arange(200_000) + 0.5) / 200_000)
    square, variance = fam.Custom(base).pearson(base, y[:, None], np.full((len(y), 1), 0.7))
    assert square.mean() == pytest.approx(1.0, rel=1e-3)
    np.testing.assert_array_equal(variance, 8.0)
    assert square.var() == pytest.approx(8.0, rel=0.02)


def test_single_trials_say_nothing():
    square, _ = fam.Binomial().pearson(
        gg.likelihoods.Binomial(), np.array([[1.0, 1.0], [3.0, 4.0]]), np.zeros((2, 1))
    )
    np.testing.assert_allclose(square, [np.nan, 1.0])


def counts(rng, n, alpha):
    x = rng.uniform(size=n)
    mean = np.exp(1.0 + np.sin(6.0 * x))
    rate = rng.gamma(1.0 / alpha, alpha * mean) if alpha else mean
    return pd.DataFrame({"x": x, "count": rng.poisson(rate), "w": rng.integers(1, 4, n)})


def said(gam, data, y):
    with warnings.catch_warnings(record=True) as result:
        warnings.simplefilter("always")
        gam.fit(data, y)
    return [w for w in result if issubclass(w.category, gg.DispersionWarning)]


def test_overdispersed_counts_are_told_once_with_the_family_to_take():
    data = counts(np.random.default_rng(1), 400, 0.6)
    gam = gg.GAM(s("x"), "poisson")
    (warning,) = said(gam, data, "count")
    assert "family='negative_binomial'" in str(warning.message)
    assert warning.filename == __file__
    mean = gam.posterior.predict_f(gam.fitted.X)[0].numpy()[:, 0]
    summary = gam.summary()
    y = data["count"].to_numpy()
    value = np.sum((y - np.exp(mean)) ** 2 / np.exp(mean)) / (400 - summary.edf)
    assert summary.dispersion.value == pytest.approx(value, rel=1e-6)
    assert f"Pearson dispersion:           {value:.2f}: standard errors" in str(summary)
    right = gg.GAM(s("x"), "negative_binomial")
    assert not said(right, data, "count")
    assert right.summary().dispersion.value == pytest.approx(1.0, abs=0.25)


def test_chance_is_told_from_dispersion():
    """Few rows of the right family, and the most scattered of twenty draws of them."""
    rng = np.random.default_rng(18)
    data = pd.DataFrame({"x": rng.uniform(size=25)})
    data["count"] = rng.poisson(2.0, 25)
    gam = gg.GAM(linear("x"), "poisson")
    assert not said(gam, data, "count")
    assert gam.summary().dispersion.value > 1.4


def test_binomial_responses(rng):
    n = 200
    x, trials = rng.uniform(size=n), rng.integers(1, 30, n)
    p = 1.0 / (1.0 + np.exp(-np.sin(5.0 * x)))
    data = pd.DataFrame({"x": x, "trials": trials, "one": 1})
    data["even"] = rng.binomial(trials, p)
    data["spread"] = rng.binomial(trials, rng.beta(3.0 * p, 3.0 * (1.0 - p)))
    data["single"] = rng.binomial(1, p)
    gam = gg.GAM(s("x", k=6), "binomial", trials="trials")
    assert not said(gam, data, "even")
    (warning,) = said(gam, data, "spread")
    assert "random_effect()" in str(warning.message)
    assert not said(gg.GAM(s("x", k=6), "binomial", trials="one"), data, "single")
    gaussian = gg.GAM(s("x", k=6)).fit(data, "even")
    assert gaussian.summary().dispersion is None
    assert "dispersion" not in str(gaussian.summary())


def test_rows_in_blocks_and_weights(monkeypatch):
    """Blocks give what the table gives, and a weight of two is the row twice."""
    data = counts(np.random.default_rng(2), 2500, 0.5)
    twice = data.loc[data.index.repeat(data["w"])]
    table = gg.GAM(s("x", k=6), "poisson", weights="w").fit(data, "count")
    monkeypatch.setattr(bins, "KEPT_ROWS", 1500)
    monkeypatch.setattr(rows_module, "BLOCK", 1700)
    blocks = gg.GAM(s("x", k=6), "poisson", weights="w").fit(data, "count")
    assert not blocks.fitted.data.complete
    one, other = (dispersion(g.fitted).value for g in (table, blocks))
    assert one == pytest.approx(other, rel=1e-3)
    assert sample_dispersion(blocks.fitted).value == pytest.approx(one, rel=0.15)
    monkeypatch.undo()
    replicated = gg.GAM(s("x", k=6), "poisson").fit(twice, "count")
    assert dispersion(replicated.fitted).value == pytest.approx(one, rel=1e-3)


# --- tests of residuals ---------------------------------------------------------------------------


def rows_in_space(seed: int, number: int = 200) -> pd.DataFrame:
    rng = np.random.default_rng([seed, 5])
    data = pd.DataFrame(rng.uniform(size=(number, 3)), columns=["x", "u", "v"])
    return data.assign(t=np.arange(number), mean=np.exp(0.5 + np.sin(5.0 * data["x"])))


def test_zeros_are_tested_by_their_score() -> None:
    """Of an intercept alone, van den Broek's statistic in closed form."""
    rng = np.random.default_rng(0)
    n = 3000
    data = pd.DataFrame({"y": rng.poisson(1.3, n) * (rng.uniform(size=n) > 0.02)})
    gam = gg.GAM("y ~ 1", "poisson").fit(data)
    zeros = gam.residual_tests().loc["zeros"]
    p0, mean = np.exp(-data["y"].mean()), data["y"].mean()
    excess = np.sum(data["y"] == 0) - n * p0
    z = excess / np.sqrt(n * p0 * (1.0 - p0) - n * mean * p0**2)
    # the predictor's posterior mean is less than log(mean) by about 1 / (2 n mean)
    assert st.norm.isf(0.5 * zeros["p"]) == pytest.approx(abs(z), abs=0.02)
    assert zeros["statistic"] == pytest.approx(np.sum(data["y"] == 0) / (n * p0), rel=1e-3)


def test_residual_tests_count_a_row_as_often_as_its_weight() -> None:
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": rng.uniform(size=200), "w": rng.integers(1, 6, 200)})
    data["y"] = rng.poisson(np.exp(0.5 + data["x"])) * (rng.uniform(size=200) < 0.95)
    data["z"] = data["x"] + rng.normal(size=200)
    repeated = data.loc[data.index.repeat(data["w"])]
    for formula, family in (("y ~ s(x, k=6)", "poisson"), ("z ~ s(x, k=6)", "gaussian")):
        a = gg.GAM(formula, family, weights="w").fit(data).residual_tests()
        b = gg.GAM(formula, family).fit(repeated).residual_tests()
        if family == "poisson":  # whose residuals are partly random
            a, b = a.loc[["zeros"]], b.loc[["zeros"]]
        np.testing.assert_allclose(a, b, rtol=0.02)


def test_moran_and_its_p_are_those_of_permutations() -> None:
    data = rows_in_space(0)
    gam = gg.GAM("y ~ s(x, k=8)", "poisson").fit(
        data.assign(y=np.random.default_rng(1).poisson(data["mean"] * np.exp(0.5 * data["u"])))
    )
    e = gg.plotting.quantile_residuals(gam.fitted)
    e = e - e.mean()
    near = []
    for i in range(len(data)):  # by hand
        distance = np.hypot(data["u"] - data["u"][i], data["v"] - data["v"][i])
        near.append(np.argsort(distance)[1:9])

    def moran(z: np.ndarray) -> float:
        return float(np.mean(z[:, None] * z[np.array(near)]) / np.mean(z**2))

    space = gam.residual_tests(space=data[["u", "v"]]).loc["space"]
    assert space["statistic"] == pytest.approx(moran(e))
    rng = np.random.default_rng(2)
    drawn = np.array([moran(rng.permutation(e)) for _ in range(2000)])
    centre = drawn.mean()
    share = np.mean(np.abs(drawn - centre) >= abs(moran(e) - centre))
    assert space["p"] == pytest.approx(share, abs=0.03)


@pytest.mark.parametrize("rows", [2, 10, 20, None])
def test_rows_of_one_place_are_no_neighbours_and_those_of_one_time_have_no_order(rows) -> None:
    """A row is none of its own neighbours; sorted by outcome rows of a day follow none."""
    data, p = rows_in_space(0), []
    data["y"] = np.random.default_rng(0).poisson(data["mean"])
    gam = gg.GAM("y ~ s(x, k=8)", "poisson").fit(data if rows else data.sort_values("y"))
    for seed in range(60):
        rng = np.random.default_rng(seed)
        if rows:
            given = {"space": rng.uniform(size=(200 // rows, 2)).repeat(rows, axis=0)}
        else:
            given = {"time": rng.integers(0, 5, size=200)}
        p.append(gam.residual_tests(**given).loc[next(iter(given)), "p"])
    assert np.mean(np.array(p) < 0.05) < 0.13  # of 60, .05 with three standard errors


def test_residual_tests_take_columns_and_say_what_they_need() -> None:
    data = rows_in_space(3)
    data["y"] = np.random.default_rng(3).poisson(data["mean"])
    gam = gg.GAM("y ~ s(x, k=8) + s(t, k=8)", "poisson").fit(data)
    by_name = gam.residual_tests(time="t", space=("x", "t"))
    by_value = gam.residual_tests(time=data["t"], space=data[["x", "t"]])
    pd.testing.assert_frame_equal(by_name, by_value)
    e = gg.plotting.quantile_residuals(gam.fitted)  # in the order of t
    e = e - e.mean()
    r = e[1:] @ e[:-1] / (e @ e)
    p = 2.0 * st.norm.sf(abs(r + 1.0 / 200) * np.sqrt(200))
    np.testing.assert_allclose(by_name.loc["time"], [r, p])
    days = pd.date_range("2024-01-01", periods=200)
    zoned = pd.Series(days.tz_localize("Europe/Vienna"))[data["t"].rank().astype(int) - 1]
    pd.testing.assert_frame_equal(gam.residual_tests(time=zoned, space=("x", "t")), by_name)
    plain = gg.GAM(gg.s(0, k=8) + gg.s(1, k=8), "poisson").fit(
        data[["x", "t"]].to_numpy(), data["y"]
    )
    by_place = plain.residual_tests(time=1, space=(0, 1))
    np.testing.assert_allclose(by_place, by_name, rtol=0.02)
    with pytest.raises(ValueError, match=r"1 numeric column\(s\) of the model \(0, 1\)"):
        plain.residual_tests(time=2)
    with pytest.raises(ValueError, match=r"1 numeric column\(s\) of the model \(x, t\)"):
        gam.residual_tests(time="day")
    with pytest.raises(ValueError, match=r"time must be 1 numeric .* or values \[200, 1\]"):
        gam.residual_tests(time=["noon"] * 200)
    with pytest.raises(ValueError, match=r"or values \[200, 2\]"):
        gam.residual_tests(space=np.zeros((5, 2)))
    few = data.head(6)
    tests = gg.GAM("y ~ s(x, k=4)", "poisson").fit(few).residual_tests(space=few[["u", "v"]])
    assert np.all(np.isfinite(tests))


@pytest.mark.slow
def test_tests_of_residuals_have_their_size_and_power() -> None:
    p: dict[str, list[pd.Series]] = {"right": [], "zeros": [], "time": [], "space": []}
    for seed in range(60):
        rng, data = np.random.default_rng(seed), rows_in_space(seed)
        wave = 0.5 * np.sin(np.arange(200) / 3.0)
        hill = 0.8 * np.sin(4.0 * data["u"]) * np.sin(4.0 * data["v"])
        for kind in p:
            f = {"time": wave, "space": hill}.get(kind, 0.0)
            y = rng.poisson(data["mean"] * np.exp(f))
            y = y * (rng.uniform(size=200) > 0.2) if kind == "zeros" else y
            gam = gg.GAM("y ~ s(x, k=8)", "poisson").fit(data.assign(y=y))
            p[kind].append(gam.residual_tests(time=data["t"], space=data[["u", "v"]])["p"])
    shares = {kind: (pd.DataFrame(rows) < 0.05).mean() for kind, rows in p.items()}
    assert shares["right"].max() < 0.13  # of 60, .05 with three standard errors
    for kind in ("zeros", "time", "space"):
        assert shares[kind][kind] > 0.7
