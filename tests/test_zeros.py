"""Responses with zeros of their own: Tweedie, zero-inflated and hurdle counts."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import rscript
from response_cases import LATENT, Amounts, D, zeros

import gpflow_gam as gg
from gpflow_gam import families, likelihoods, linear, s, ti

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
def test_counts_and_zeros_are_found(kind, link, tmp_path: Path) -> None:
    frame, F = _frame(kind, link)
    gam = gg.GAM({"mean": s("x", k=8), "zero": s("z", k=5)}, kind(link)).fit(frame, "y")
    result, se = gam.predict(frame, "link", se=True)
    away = np.asarray(result) - F
    assert np.all(np.sqrt(np.mean(np.square(away), axis=0)) < 0.2)
    assert np.mean(np.abs(away[:, 1]) < 3.0 * np.asarray(se)[:, 1]) > 0.95
    known = gam.fitted.spec.family.parameters(gam.fitted.likelihood, None)
    assert known.get("alpha", D) == pytest.approx(D, abs=0.2)
    gam.save(tmp_path / "gam", data=False)
    loaded = gg.GAM.load(tmp_path / "gam")
    assert loaded.family == kind(link).of_all()
    np.testing.assert_array_equal(loaded.predict(frame), gam.predict(frame))


def test_they_are_compared_with_other_counts() -> None:
    """All of them have probabilities."""
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": rng.normal(size=300)})
    data["n"] = rng.poisson(3.0, 300) * rng.binomial(1, 0.6, 300)
    names = ("poisson", "zero_inflated_poisson")
    fits = {name: gg.GAM("n ~ x", name).fit(data) for name in names}
    assert gg.compare(fits).table.index[0] == "zero_inflated_poisson"


@pytest.mark.slow
def test_terms_without_a_parameter_are_of_the_count() -> None:
    frame, _ = _frame(families.ZeroInflatedPoisson)
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
    for link, (known, se) in zip((*LATENT, "log"), answers):
        family = families.ZeroInflatedPoisson(link)
        gam = gg.GAM({"mean": linear("x"), "zero": linear("x")}, family).fit(frame, "y")
        result, own = gam.predict(pd.DataFrame({"x": [0.1, 0.9]}), "link", se=True)
        assert np.max(np.abs(result[:, 1] - known) / se) < 0.25, link
        np.testing.assert_allclose(own[:, 1], se, rtol=0.05, err_msg=link)


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
        ("hurdle", 0.5, "whole counts"),
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
