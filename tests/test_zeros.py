"""Responses with zeros of their own: Tweedie, zero-inflated and hurdle counts."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import rscript
import scipy.stats
from scipy.integrate import trapezoid

import gpflow_gam as gg
from gpflow_gam import families, likelihoods, linear, s, ti
from gpflow_gam.gam.families import family as family_of

N = 1200
ALPHA = 0.5
COUNTS = [
    "zero_inflated_poisson",
    "zero_inflated_negative_binomial",
    "hurdle_poisson",
    "hurdle_negative_binomial",
]


def _counts(name: str, f: np.ndarray, alpha: float = ALPHA) -> scipy.stats.rv_discrete:
    if name.endswith("poisson"):
        return scipy.stats.poisson(np.exp(f))
    return scipy.stats.nbinom(1.0 / alpha, 1.0 / (1.0 + alpha * np.exp(f)))


def _pmf(name: str, f: np.ndarray, g: np.ndarray, y: np.ndarray, alpha: float) -> np.ndarray:
    """Written out."""
    counts, zero = _counts(name, f, alpha), 1.0 / (1.0 + np.exp(-g))
    if name.startswith("zero"):
        return zero * (y == 0.0) + (1.0 - zero) * counts.pmf(y)
    return np.where(y == 0.0, zero, (1.0 - zero) * counts.pmf(y) / (1.0 - counts.pmf(0.0)))


def _frame(name: str) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(0)
    x, z = rng.uniform(-1.0, 1.0, N), rng.uniform(size=N)
    F = np.stack([np.sin(3.0 * x) + 1.0, -1.5 + 2.0 * z], axis=1)
    counts = _counts(name, F[:, 0])
    drawn = counts.rvs(random_state=rng)
    if name.startswith("hurdle"):
        drawn = counts.isf(rng.uniform(size=N) * counts.sf(0.0))
    y = np.where(rng.uniform(size=N) < 1.0 / (1.0 + np.exp(-F[:, 1])), 0.0, drawn)
    return pd.DataFrame({"x": x, "z": z, "y": y}), F


@pytest.mark.parametrize("name", ["zero_inflated_negative_binomial", "hurdle_negative_binomial"])
def test_counts_are_found_and_known(name: str, tmp_path: Path) -> None:
    frame, F = _frame(name)
    gam = gg.GAM({"mean": s("x", k=8), "zero": s("z", k=5)}, family=name).fit(frame, y="y")
    link = np.asarray(gam.predict(frame, type="link"))
    error = np.sqrt(np.mean(np.square(link - F), axis=0))
    assert np.all(error < 0.2)
    family, likelihood = gam.fitted.spec.family, gam.fitted.likelihood
    alpha = family.parameters(likelihood, None).get("alpha", 0.0)
    assert alpha == pytest.approx(ALPHA, abs=0.2)
    at = np.stack([np.linspace(-2.0, 2.0, 7), np.linspace(1.0, -2.0, 7)], axis=1)
    every = np.arange(4000.0)
    for f, g in at:
        Y, G = every[:, None], np.tile([f, g], (len(every), 1))
        pmf = _pmf(name, f, g, every, alpha)
        result = family.log_density(likelihood, Y, G)
        seen = pmf > 1e-200
        np.testing.assert_allclose(result[seen], np.log(pmf[seen]), rtol=1e-6, atol=1e-9)
        below, upto = family.cdf(likelihood, Y, G)
        np.testing.assert_allclose(upto, np.cumsum(pmf), atol=1e-9)
        np.testing.assert_allclose(below[1:], upto[:-1], atol=1e-12)
        assert below[0] == 0.0
        np.testing.assert_allclose(family.mean(likelihood, G[:1]), pmf @ every, rtol=1e-6)
        mean = likelihood.conditional_mean(np.zeros((1, 1)), G[:1])
        np.testing.assert_allclose(mean[0], pmf @ every, rtol=1e-6)
        variance = likelihood.conditional_variance(np.zeros((1, 1)), G[:1])
        second = pmf @ every**2 - (pmf @ every) ** 2
        np.testing.assert_allclose(variance[0], second, rtol=1e-5)
        # against the best mean for each row
        few = np.array([0.0, 1.0, 2.0, 9.0])
        grid = np.linspace(-14.0, 6.0, 20001)  # lower ones are rounding errors
        best = [np.log(_pmf(name, grid, np.full_like(grid, g), y, alpha)).max() for y in few]
        own = family.deviance(likelihood, few[:, None], G[: len(few)])
        expected = 2.0 * (np.array(best) - np.log(_pmf(name, f, g, few, alpha)))
        np.testing.assert_allclose(own, expected, atol=2e-4)
    many = np.tile(at, (20_000, 1, 1))
    draws = family.sample(likelihood, many, np.random.default_rng(1))
    means = [_pmf(name, f, g, every, alpha) @ every for f, g in at]
    np.testing.assert_allclose(draws.mean(axis=0), means, rtol=0.05, atol=0.02)
    gam.save(tmp_path / "gam")
    again = gg.GAM.load(tmp_path / "gam").predict(frame[:5], interval=0.9)
    pd.testing.assert_frame_equal(again, gam.predict(frame[:5], interval=0.9))


def test_they_are_compared_with_other_counts() -> None:
    """All of them have probabilities."""
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": rng.normal(size=300)})
    data["n"] = rng.poisson(3.0, 300) * rng.binomial(1, 0.6, 300)
    names = ("poisson", "zero_inflated_poisson")
    fits = {name: gg.GAM("n ~ x", name).fit(data, progress=False) for name in names}
    assert gg.compare(fits).table.index[0] == "zero_inflated_poisson"


def test_terms_without_a_parameter_are_of_the_count() -> None:
    frame, _ = _frame("zero_inflated_poisson")
    gam = gg.GAM(s("x", k=8), family="zip").fit(frame, y="y")
    assert gam.names == ("s(x)",)
    rows = pd.DataFrame({"x": [-0.5, 0.5]})
    link = np.asarray(gam.predict(rows, type="link"))
    assert link[0, 1] == link[1, 1]
    assert "predictor" not in gam.effects("s(x)")
    every = gg.GAM({"mean": s("x", k=8), "zero": s("z", k=5)}, family="zip").fit(frame, y="y")
    plain = gg.GAM(s("x", k=8) + s("z", k=5), family="negative_binomial").fit(frame, y="y")
    score = [g.loo().elpd for g in (every, gam, plain)]
    assert score[0] > score[1] + 10.0 > score[2]


ZERO = {
    "logit": scipy.stats.logistic.cdf,
    "probit": scipy.stats.norm.cdf,
    "cloglog": scipy.stats.gumbel_l.cdf,
    "cauchit": scipy.stats.cauchy.cdf,
    "log": np.exp,
}
KINDS = {
    "zero_inflated_poisson": families.ZeroInflatedPoisson,
    "zero_inflated_negative_binomial": families.ZeroInflatedNegativeBinomial,
    "hurdle_poisson": families.HurdlePoisson,
    "hurdle_negative_binomial": families.HurdleNegativeBinomial,
}


@pytest.mark.parametrize("link", ZERO)
@pytest.mark.parametrize("name", COUNTS)
def test_zeros_have_the_probability_of_their_link(name: str, link: str) -> None:
    family = KINDS[name](link)
    likelihood = family.likelihood(np.array([[0.0], [3.0]]))
    if name.endswith("binomial"):
        likelihood.alpha.assign(ALPHA)
    every, x = np.arange(400.0), np.zeros((400, 1))
    for f, g in ((-0.5, -1.2), (1.0, -0.2), (1.5, -3.0)):
        counts, zero = _counts(name, f), ZERO[link](g)
        above = (1.0 - zero) * counts.pmf(every)
        if name.startswith("hurdle"):
            above = np.where(every > 0.0, above / counts.sf(0.0), 0.0)
        pmf = above + zero * (every == 0.0)
        G = np.tile([f, g], (400, 1))
        seen = pmf > 1e-100
        logs = np.asarray(likelihood.log_prob(x, G, every[:, None]))
        np.testing.assert_allclose(logs[seen], np.log(pmf[seen]), rtol=1e-7)
        np.testing.assert_allclose(likelihood.conditional_mean(x[:1], G[:1])[0], pmf @ every)
        second = pmf @ every**2 - (pmf @ every) ** 2
        np.testing.assert_allclose(likelihood.conditional_variance(x[:1], G[:1])[0], second)
        np.testing.assert_allclose(family.mean(likelihood, G[:1]), pmf @ every)
        np.testing.assert_allclose(
            family.cdf(likelihood, every[:, None], G)[1], np.cumsum(pmf), atol=1e-9
        )
        draws = family.sample(likelihood, np.tile([f, g], (40_000, 1)), np.random.default_rng(0))
        assert abs(draws.mean() - pmf @ every) < 4.0 * np.sqrt(second / 40_000)
    assert family.predictor_names()[1] == f"{link} zero"
    assert families.from_json(family.to_json()) == family


@pytest.mark.parametrize("link", ["cloglog", "log"])
def test_fits_find_the_zeros_of_their_link(link: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    x = rng.uniform(size=N)
    g = -1.0 + 0.7 * np.sin(6.0 * x)
    zero = ZERO[link](g)
    y = np.where(rng.uniform(size=N) < zero, 0, rng.poisson(np.exp(1.5 + x)))
    frame = pd.DataFrame({"x": x, "y": y})
    terms = {"mean": linear("x"), "zero": s("x", k=8)}
    gam = gg.GAM(terms, families.ZeroInflatedPoisson(link)).fit(frame, "y", progress=False)
    result, own = gam.predict(frame, "link", se=True)
    assert np.sqrt(np.mean(np.square(ZERO[link](result[:, 1]) - zero))) < 0.05
    assert np.mean(np.abs(result[:, 1] - g) < 3.0 * own[:, 1]) > 0.95
    gam.save(tmp_path / "gam", data=False)
    loaded = gg.GAM.load(tmp_path / "gam")
    assert loaded.family == families.ZeroInflatedPoisson(link)
    np.testing.assert_array_equal(loaded.predict(frame), gam.predict(frame))


R = """
suppressMessages(library(pscl)); d <- read.csv("d.csv")
for (link in c("logit", "probit", "cloglog", "cauchit", "log")) {
  m <- zeroinfl(y ~ x | x, d, link = link, start = list(count = c(1.5, 1), zero = c(-1, 0)))
  A <- cbind(1, c(0.1, 0.9)); b <- coef(m, "zero"); V <- vcov(m)[3:4, 3:4]
  cat(A %*% b, sqrt(diag(A %*% V %*% t(A))), "\\n")
}
"""


@pytest.mark.slow
@rscript.needed
def test_lines_of_zeros_are_those_of_zeroinfl(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    x = rng.uniform(size=N)
    y = np.where(rng.uniform(size=N) < 0.15 + 0.5 * x, 0, rng.poisson(np.exp(1.5 + x)))
    frame = pd.DataFrame({"x": x, "y": y})
    frame.to_csv(tmp_path / "d.csv", index=False)
    answers = rscript.printed(R, tmp_path).reshape(5, 2, 2)
    for link, (known, se) in zip(ZERO, answers):
        family = families.ZeroInflatedPoisson(link)
        gam = gg.GAM({"mean": linear("x"), "zero": linear("x")}, family)
        gam.fit(frame, "y", progress=False)
        result, own = gam.predict(pd.DataFrame({"x": [0.1, 0.9]}), "link", se=True)
        assert np.max(np.abs(result[:, 1] - known) / se) < 0.25, link
        np.testing.assert_allclose(own[:, 1], se, rtol=0.05, err_msg=link)


@pytest.mark.parametrize(("power", "phi"), [(1.05, 2.0), (1.3, 0.7), (1.6, 1.5), (1.9, 0.3)])
def test_tweedie_density_is_that_of_its_sum(power: float, phi: float) -> None:
    """Poisson numbers of gamma amounts, term by term; and all of it is one."""
    likelihood = likelihoods.Tweedie(phi, power)
    f = np.array([-1.0, 0.5, 3.0])
    mu = np.exp(f)
    rate = mu ** (2.0 - power) / (phi * (2.0 - power))
    shape, scale = (2.0 - power) / (power - 1.0), phi * (power - 1.0) * mu ** (power - 1.0)
    for y in (1e-3, 0.3, 2.0, 40.0):
        j = np.arange(1.0, 3000.0)[:, None]
        logs = scipy.stats.poisson.logpmf(j, rate) + scipy.stats.gamma.logpdf(
            y, j * shape, scale=scale
        )
        top = logs.max(axis=0)
        expected = top + np.log(np.exp(logs - top).sum(axis=0))
        result = likelihood.log_prob(np.zeros((3, 1)), f[:, None], np.full((3, 1), y))
        np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-6)
    none = likelihood.log_prob(np.zeros((3, 1)), f[:, None], np.zeros((3, 1)))
    np.testing.assert_allclose(none, -rate, rtol=1e-10)


def test_tweedie_expectations_and_distribution() -> None:
    likelihood, family = likelihoods.Tweedie(0.8, 1.4), family_of("tweedie")
    mean, var = np.array([[0.3]]), np.array([[0.4]])
    X, y = np.zeros((1, 1)), np.array([[1.7]])
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    F = mean + np.sqrt(var) * nodes[:, None]
    own = np.asarray(likelihood.log_prob(np.zeros((60, 1)), F, np.tile(y, (60, 1))))
    expected = own @ weights / weights.sum()
    np.testing.assert_allclose(likelihood.variational_expectations(X, mean, var, y), [expected])
    moments = likelihood.predict_mean_and_var(X, mean, var)
    np.testing.assert_allclose(moments[0], np.exp(0.5), rtol=1e-12)
    # the distribution function has the density's integral between two points
    grid = np.linspace(0.5, 3.0, 4001)[:, None]
    at = np.full((4001, 1), 0.3)
    density = np.exp(family.log_density(likelihood, grid, at))
    ends = family.cdf(likelihood, grid[[0, -1]], at[:2])[1]
    np.testing.assert_allclose(trapezoid(density, grid[:, 0]), np.diff(ends)[0], rtol=1e-5)
    below, upto = family.cdf(likelihood, np.zeros((1, 1)), at[:1])
    assert below[0] == 0.0
    assert upto[0] == pytest.approx(np.exp(family.log_density(likelihood, [[0.0]], at[:1]))[0])
    draws = family.sample(likelihood, np.full((200_000, 1), 0.3), np.random.default_rng(0))
    assert draws.mean() == pytest.approx(np.exp(0.3), rel=0.01)
    assert draws.var() == pytest.approx(0.8 * np.exp(0.3 * 1.4), rel=0.03)
    assert np.mean(draws == 0.0) == pytest.approx(upto[0], abs=0.005)
    shifts = np.linspace(-6.0, 6.0, 4001)[:, None]
    best = family.log_density(likelihood, np.full((4001, 1), 1.7), shifts).max()
    own_log = family.log_density(likelihood, y, mean)[0]
    np.testing.assert_allclose(
        family.deviance(likelihood, y, mean), 2.0 * (best - own_log), atol=1e-4
    )


def test_tweedie_fits_are_the_same_in_any_unit() -> None:
    rng = np.random.default_rng(1)
    x = rng.uniform(size=150)
    y = rng.poisson(2.0 + x) * rng.gamma(2.0, 0.5 + x)
    result = []
    for unit in (1e-6, 1e6):
        frame = pd.DataFrame({"x": x, "y": unit * y})
        gam = gg.GAM(s("x", k=6), family="tweedie").fit(frame, y="y", progress=False)
        result.append(np.asarray(gam.predict(frame, "link")) - np.log(unit))
        own = gam.fitted.spec.family.parameters(gam.fitted.likelihood, None)
        result.append(np.log(own["dispersion"]) - (2.0 - own["power"]) * np.log(unit))
    np.testing.assert_allclose(result[2], result[0], atol=1e-8)
    np.testing.assert_allclose(result[3], result[1], atol=1e-6)


def test_tweedie_learns_its_power() -> None:
    unit = 1000.0
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, N)
    f, power, phi = np.sin(3.0 * x) + 1.0, 1.6, 1.5
    mu = np.exp(f)
    number = rng.poisson(mu ** (2.0 - power) / (phi * (2.0 - power)))
    shape, scale = (2.0 - power) / (power - 1.0), phi * (power - 1.0) * mu ** (power - 1.0)
    y = np.where(number > 0, rng.gamma(np.maximum(number, 1) * shape, scale), 0.0)
    frame = pd.DataFrame({"x": x, "y": unit * y})
    gam = gg.GAM(s("x", k=8), family="tweedie").fit(frame, y="y")
    result = gam.fitted.spec.family.parameters(gam.fitted.likelihood, None)
    assert result["power"] == pytest.approx(power, abs=0.06)
    assert result["dispersion"] == pytest.approx(phi * unit ** (2.0 - power), rel=0.15)
    link = np.asarray(gam.predict(frame, type="link")) - np.log(unit)
    assert np.sqrt(np.mean(np.square(link - f))) < 0.15


@pytest.mark.parametrize(
    ("name", "bad", "message"),
    [
        ("tweedie", -1.0, "not negative"),
        ("hurdle", 0.5, "whole counts"),
    ],
)
def test_impossible_responses(name: str, bad: float, message: str) -> None:
    frame = pd.DataFrame({"x": np.arange(5.0), "y": [0.0, 1.0, 2.0, bad, 0.0]})
    with pytest.raises(ValueError, match=message):
        gg.GAM(s("x"), family=name).fit(frame, y="y")


@pytest.mark.parametrize(("seed", "column"), [(21, "o"), (16, "y")])
def test_fits_that_find_no_optimum_have_numbers_or_say_which_do_not_do(
    seed: int, column: str
) -> None:
    rng, rows = np.random.default_rng(seed), 90
    frame = pd.DataFrame({"u": rng.uniform(size=rows), "sk": np.exp(3.0 * rng.normal(size=rows))})
    frame["o"] = np.where(np.arange(rows) == 30, 1e6, rng.normal(size=rows))
    frame["n"] = rng.normal(size=rows)
    mean = np.exp(np.sin(6.0 * frame["u"]) + 0.3 * rng.normal(size=rows))
    frame["y"] = rng.poisson(mean) * (rng.uniform(size=rows) < 0.7)
    terms = s("n", bs="cyclic", k=6) + ti("n", "o", k=8) + s("o", k=6)
    if column == "y":
        frame.loc[45, "y"] = 10_000_000
        terms = s("sk", bs="cyclic", k=6) + ti("n", "sk", k=8)
    gam, refused, finite = gg.GAM(terms, "zero_inflated_poisson"), "", False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            mean = gam.fit(frame, "y", progress=False).predict(frame)
            finite = bool(np.all(np.isfinite(mean)))
        except ValueError as error:
            refused = str(error)
    assert finite or f"{column!r} has 1e+0" in refused


def test_counts_of_which_nothing_is_known_are_said_so() -> None:
    """As of other exponentials."""
    family = family_of("zero_inflated_poisson")
    assert family.log_link
    assert family.heavy_tailed
