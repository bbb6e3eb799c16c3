"""Pearson's dispersion: its moments in closed form, and who is told of it."""

from __future__ import annotations

import warnings

import gpflow
import numpy as np
import pandas as pd
import pytest
import scipy.stats as st

import gpflow_gam as gg
from gpflow_gam import linear, s
from gpflow_gam.gam import families as fam
from gpflow_gam.gam.summaries.checks import dispersion, sample_dispersion
from gpflow_gam.optimizers.binned import bins
from gpflow_gam.optimizers.binned import passes as rows_module


def frozen(family, likelihood, f):
    if isinstance(family, fam.Binomial):
        return st.binom(7, 1.0 / (1.0 + np.exp(-f)))
    if isinstance(family, fam.NegativeBinomial):
        return st.nbinom(1.0 / 0.3, 1.0 / (1.0 + 0.3 * np.exp(f)))
    return st.poisson(np.exp(f))


@pytest.mark.parametrize(
    ("family", "likelihood"),
    [
        (fam.Poisson(), gpflow.likelihoods.Poisson()),
        (fam.Custom(gpflow.likelihoods.Poisson()), gpflow.likelihoods.Poisson()),
        (fam.NegativeBinomial(), gg.likelihoods.NegativeBinomial(0.3)),
        (fam.Binomial(), gg.likelihoods.Binomial()),
    ],
    ids=["poisson", "gpflow's poisson", "negative binomial", "binomial"],
)
@pytest.mark.parametrize("f", [-1.2, 0.9])
def test_squared_residuals_have_mean_one_and_the_variance_that_is_stated(family, likelihood, f):
    """Summed over all that may be observed."""
    reference = frozen(family, likelihood, f)
    y = np.arange(reference.ppf(1e-13), reference.isf(1e-13) + 1)
    Y = y[:, None] if family.name != "binomial" else np.stack([y, np.full(len(y), 7.0)], axis=1)
    square, variance = family.pearson(likelihood, Y, np.full((len(y), 1), f))
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


@pytest.mark.parametrize("seed", range(3))
def test_poisson_counts_are_not_accused(seed):
    data = counts(np.random.default_rng(seed), 60, 0.0)
    data.loc[0, "count"] += 2
    assert not said(gg.GAM(s("x", k=8), "poisson"), data, "count")


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
    with pytest.raises(ValueError, match=r"1 numeric column\(s\) of the model \(x, t\)"):
        gam.residual_tests(time="day")
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
