"""Smooths that vanish where they are not there (``select=True``)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal

import gpflow_gam as gg
from gpflow_gam import s, te
from gpflow_gam.gam.terms.formula import terms_from_json
from gpflow_gam.layers import AdditiveGP

NAMES = ["wave", "line", "a", "b", "c", "d"]


def made(seed: int = 0, n: int = 400) -> tuple[pd.DataFrame, np.ndarray]:
    """A wave, a line, and four columns that do not matter."""
    rng = np.random.default_rng(seed)
    data = pd.DataFrame(rng.uniform(size=(n, 6)), columns=NAMES)
    f = np.sin(6.0 * data["wave"]) + 1.5 * data["line"]
    return data.assign(y=f + 0.6 * rng.normal(size=n)), np.asarray(f)


@pytest.fixture(scope="module")
def fits() -> dict[bool, gg.GAM]:
    data, _ = made()
    terms = [s(name) for name in NAMES]
    return {which: gg.GAM(terms, select=which).fit(data, "y") for which in (False, True)}


@pytest.mark.slow
def test_what_is_not_there_vanishes_and_what_is_there_stays(fits: dict[bool, gg.GAM]) -> None:
    data, f = made()
    edf = {which: gam.summary().table["edf"] for which, gam in fits.items()}
    absent = [f"s({name})" for name in NAMES[2:]]
    assert edf[True][absent].sum() < 0.5 * edf[False][absent].sum()
    assert edf[True][absent].median() < 0.1 < edf[False][absent].median()
    error = {
        which: np.sqrt(np.mean(np.square(gam.predict(data) - f))) for which, gam in fits.items()
    }
    assert error[True] < error[False]
    for name in ("s(wave)", "s(line)"):
        assert edf[True][name] == pytest.approx(edf[False][name], rel=0.25)
        own = {which: gam.effects(name)["estimate"] for which, gam in fits.items()}
        np.testing.assert_allclose(own[True], own[False], atol=0.1)


def test_bands_of_what_has_vanished_say_how_large_it_may_be(fits: dict[bool, gg.GAM]) -> None:
    band, known = (fits[True].effects("s(a)", unconditional=u) for u in (True, False))
    assert np.all(band["lower"] < 0.0)
    assert np.all(band["upper"] > 0.0)
    assert np.median(band["se"]) > 2.0 * np.median(known["se"])


@pytest.mark.slow
def test_a_term_may_be_selected_by_itself(tmp_path: Path) -> None:
    """``bs="ts"`` has the priors of ``select=True`` for one term, in files as well."""
    data, _ = made()
    terms = [s(name, bs="cs" if name == "a" else "se", k=8) for name in NAMES]
    gam = gg.GAM(terms).fit(data, "y")
    every = gg.GAM([s(n, k=8) for n in NAMES], select=True).fit(data, "y")
    none = gg.GAM([s(n, k=8) for n in NAMES]).fit(data, "y")

    def modes(fitted: gg.GAM, name: str) -> list[float]:
        priors = [p.prior for p in fitted.model.kernel[f"s({name})"].parameters]
        return [float(prior.log_prob(1.0)) for prior in priors if prior is not None]

    gam.save(tmp_path / "gam")
    for one in (gam, gg.GAM.load(tmp_path / "gam")):
        for name in NAMES:
            assert modes(one, name) == modes(every if name == "a" else none, name)
        np.testing.assert_array_equal(one.predict(data), gam.predict(data))


def test_terms_know_whether_they_are_selected() -> None:
    terms = s("x") + te("x", "z")
    chosen = gg.GAM(terms, select=True).terms
    assert chosen.select
    assert not terms.select
    assert chosen != terms
    assert hash(chosen) != hash(terms)
    assert list(chosen) == list(terms)
    for kept in (chosen + s("w"), s("w") + chosen, chosen - 1, gg.GAM([chosen, s("w")]).terms):
        assert kept.select
    assert terms_from_json(chosen.to_json()) == chosen
    assert gg.GAM("y ~ s(x) + s(z)", select=True).terms.select
    with pytest.raises(TypeError, match="select must be True or False; got 'yes'"):
        gg.GAM(terms, select="yes")


def test_heads_hold_to_it() -> None:
    terms = s(0) + te(0, 1)
    heads = {
        which: AdditiveGP(terms.selected() if which else terms, num_data=500, num_inducing=4)
        for which in (False, True)
    }
    assert heads[True].specification.terms.select
    again = AdditiveGP.from_config(heads[True].get_config())
    modes = {}
    for which, head in {**heads, "again": again}.items():
        kernel = head.kernel["s(0)"]
        modes[which] = [
            float(p.prior.log_prob(1.0)) for p in kernel.parameters if p.prior is not None
        ]
    assert modes["again"] == modes[True] != modes[False]


def test_probabilities_of_absent_straight_and_curved_are_the_evidence() -> None:
    """By dense Gaussian densities, at the fitted noise, over the same standard deviations."""
    rng = np.random.default_rng(0)
    x = np.repeat(np.linspace(0.0, 1.0, 10), 4)
    y = 0.4 * np.sin(6.0 * x) + 0.3 * rng.normal(size=40)
    gam = gg.GAM(s("x", k=10)).fit(pd.DataFrame({"x": x, "y": y}), "y")
    line, bend = (part for part in gam.fitted.model.kernel["s(x)"].kernels)
    intercept = float(gam.fitted.model.kernel["intercept"].variance.numpy())
    noise = float(gam.fitted.likelihood.variance.numpy())
    prior, X = bend.base.lengthscales.prior, x[:, None]
    line.variance.assign(1.0 / np.var(x))
    bend.base.variance.assign(1.0)
    sizes = np.linspace(-3.6, 1.2, 7)
    weights = np.exp(sizes) / (1.0 + np.exp(2.0 * sizes))
    weights /= weights.sum()
    evidence = np.zeros(3)
    scale = np.var(y)

    def density(a: float, b: float) -> float:
        cov = a * scale * np.asarray(line(X)) + b * scale * np.asarray(bend(X))
        cov = cov + intercept + noise * np.eye(40)
        return float(np.exp(multivariate_normal.logpdf(y - y.mean(), cov=cov)))

    evidence[0] = density(0.0, 0.0)
    evidence[1] = sum(w * density(np.exp(2.0 * a), 0.0) for w, a in zip(weights, sizes))
    for third in (1.0 / 6.0, 0.5, 5.0 / 6.0):
        bend.base.lengthscales.assign(prior.quantile(third))
        for v, a in zip(weights, sizes):
            for w, b in zip(weights, sizes):
                evidence[2] += v * w * density(np.exp(2.0 * a), np.exp(2.0 * b)) / 3.0
    table = gam.term_probabilities()
    np.testing.assert_allclose(table.loc["s(x)"], evidence / evidence.sum(), atol=0.01)


@pytest.mark.slow
def test_probabilities_of_absent_straight_and_curved_are_calibrated() -> None:
    """Truths drawn from the prior: of effects with probability p, a share p is there."""
    said, truth = [], []
    for seed in range(25):
        rng = np.random.default_rng(seed)
        data, f = pd.DataFrame(rng.uniform(size=(150, 3)), columns=list("abc")), np.zeros(150)
        for name in data:
            x, kind = data[name].to_numpy(), rng.integers(3)
            truth.append(kind)
            sizes = np.abs(rng.standard_cauchy(100))
            line, bend = sizes[(sizes > 0.03) & (sizes < 3.3)][:2]
            if kind > 0:
                f += line * rng.normal() * (x - x.mean()) / x.std()
            if kind > 1:
                length = np.exp(np.log(0.45) + 0.9**2 + 0.9 * rng.normal())
                K = np.exp(-0.5 * ((x[:, None] - x) / length) ** 2)
                K = K - np.outer(K.mean(0), K.mean(0)) / K.mean()
                f += bend * np.linalg.cholesky(K + 1e-8 * np.eye(150)) @ rng.normal(size=150)
        gam = gg.GAM([s(name, k=12) for name in data])
        gam.fit(data.assign(y=f + 0.8 * rng.normal(size=150)), "y")
        said += gam.term_probabilities().to_numpy().tolist()
    p, was = np.array(said), np.eye(3)[truth]
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    for k in range(3):  # on average, and where it is said to be likely
        assert abs(np.mean(p[:, k] - was[:, k])) < 3.0 * np.sqrt(
            np.mean(p[:, k] * (1 - p[:, k])) / 75
        )
    of_truth = np.sum(p * was, axis=1)
    expected = np.sum(np.square(p), axis=1)
    assert abs(np.mean(of_truth - expected)) < 3.0 * np.std(of_truth - expected) / np.sqrt(75)
