"""Responses with zeros of their own: Tweedie, zero-inflated and hurdle counts."""

from __future__ import annotations

import warnings

import gpflow
import numpy as np
import pandas as pd
import pytest
from response_cases import Amounts, D, zeros

import gpflow_gam as gg
from gpflow_gam import families, likelihoods, linear, s, ti
from gpflow_gam import families as fam
from gpflow_gam import likelihoods as lk

N = 1200


def _frame(kind: type[families.Family], link: str = "logit") -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(0)
    x, z = rng.uniform(-1.0, 1.0, N), rng.uniform(size=N)
    F = np.stack(
        [np.sin(3.0 * x) + 1.0, -1.5 + (0.7 * np.sin(6.0 * z) if link == "log" else 2.0 * z)],
        axis=1,
    )
    y = zeros(kind, link).reference(F).rvs(rng)
    return pd.DataFrame({"x": x, "z": z, "y": y}), F


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "link"),
    [
        (families.ZeroInflatedNegativeBinomial, "logit"),
        (families.HurdleNegativeBinomial, "logit"),
        (families.ZeroInflatedPoisson, "cloglog"),
        (families.ZeroInflatedPoisson, "log"),
    ],
)
def test_counts_and_zeros_are_found(kind, link) -> None:
    frame, F = _frame(kind, link)
    gam = gg.GAM({"mean": s("x", k=8), "zero": s("z", k=5)}, kind(link)).fit(frame, "y")
    result, se = gam.predict(frame, "link", se=True)
    away = np.asarray(result) - F
    assert np.all(np.sqrt(np.mean(np.square(away), axis=0)) < 0.2)
    assert np.mean(np.abs(away[:, 1]) < 3.0 * np.asarray(se)[:, 1]) > 0.95
    known = gam.fitted.spec.family.parameters(gam.fitted.likelihood, None)
    assert known.get("alpha", D) == pytest.approx(D, abs=0.2)


@pytest.mark.slow
def test_terms_without_a_parameter_are_of_the_count() -> None:
    frame, _ = _frame(families.ZeroInflatedPoisson)
    gam = gg.GAM(s("x", k=8), family="zero_inflated_poisson").fit(frame, y="y")
    assert gam.names == ("s(x)",)
    rows = pd.DataFrame({"x": [-0.5, 0.5]})
    link = np.asarray(gam.predict(rows, type="link"))
    assert link[0, 1] == link[1, 1]
    assert "predictor" not in gam.effects("s(x)")
    every = gg.GAM({"mean": s("x", k=8), "zero": s("z", k=5)}, family="zero_inflated_poisson").fit(
        frame, y="y"
    )
    plain = gg.GAM(s("x", k=8) + s("z", k=5), family="negative_binomial").fit(frame, y="y")
    score = [g.loo().elpd for g in (every, gam, plain)]
    assert score[0] > score[1] + 10.0 > score[2]


@pytest.mark.parametrize(("power", "phi"), [(1.05, 2.0), (1.3, 0.7), (1.6, 1.5), (1.9, 0.3)])
def test_tweedie_density_is_that_of_its_sum(power: float, phi: float) -> None:
    """Poisson numbers of gamma amounts, term by term; and all of it is one."""
    likelihood = likelihoods.Tweedie(phi, power)
    f = np.array([-1.0, 0.5, 3.0])
    amounts = Amounts(np.exp(f), phi, power)
    amounts.j = np.arange(1.0, 3000.0)[:, None]
    for y in (1e-3, 0.3, 2.0, 40.0):
        result = likelihood.log_prob(np.zeros((3, 1)), f[:, None], np.full((3, 1), y))
        np.testing.assert_allclose(result, amounts.logpdf(y), rtol=1e-6, atol=1e-6)
    none = likelihood.log_prob(np.zeros((3, 1)), f[:, None], np.zeros((3, 1)))
    np.testing.assert_allclose(none, amounts.logpdf(0.0), rtol=1e-10)


def test_tweedie_learns_its_power() -> None:
    unit = 1000.0
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, N)
    f, power, phi = np.sin(3.0 * x) + 1.0, 1.6, 1.5
    y = Amounts(np.exp(f), phi, power).rvs(rng)
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
        ("hurdle_poisson", 0.5, "whole counts"),
    ],
)
def test_impossible_responses(name: str, bad: float, message: str) -> None:
    frame = pd.DataFrame({"x": np.arange(5.0), "y": [0.0, 1.0, 2.0, bad, 0.0]})
    with pytest.raises(ValueError, match=message):
        gg.GAM(s("x"), family=name).fit(frame, y="y")


@pytest.mark.parametrize(("seed", "column"), [(21, "o"), (16, "y")])
def test_fits_that_find_no_optimum_have_numbers_or_say_which_do_not_do(seed, column):
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
            mean = gam.fit(frame, "y").predict(frame)
            finite = bool(np.all(np.isfinite(mean)))
        except ValueError as error:
            refused = str(error)
    assert finite or f"{column!r} has 1e+0" in refused


# --- quasi-likelihoods ---------------------------------------------------------------------------

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
