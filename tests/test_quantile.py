"""Quantiles: the loss beside scipy, calibration by theory, and truths that are known."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.integrate
import scipy.stats as st

import gpflow_gam as gg
from gpflow_gam import families as fam
from gpflow_gam import likelihoods as lk
from gpflow_gam import linear, s
from gpflow_gam.likelihoods.continuous import Loss


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """Noise that grows threefold along x."""
    rng = np.random.default_rng(0)
    x = rng.uniform(size=400)
    return pd.DataFrame({"x": x, "y": np.sin(6.0 * x) + noise(x) * rng.standard_normal(400)})


def noise(x):
    return 0.2 * np.exp(1.1 * x)


@pytest.fixture(scope="module")
def varying(table) -> gg.GAM:
    gam = gg.GAM({"quantile": s("x", k=10), "scale": linear("x")}, family=fam.Quantile(tau=0.8))
    return gam.fit(table, "y")


@pytest.mark.parametrize("tau", [0.1, 0.5, 0.97])
def test_the_loss_is_a_density_whose_quantile_is_the_predictor(tau):
    loss = Loss(tau, 1e-3)
    z = np.linspace(-60.0, 60.0, 400_001) / min(tau, 1.0 - tau)
    p = np.exp(loss.log_density(z, np.ones(1)))
    assert scipy.integrate.trapezoid(p, z) == pytest.approx(1.0, abs=1e-4)
    below = scipy.integrate.trapezoid(np.where(z < 0.0, p, 0.0), z)
    assert below == pytest.approx(tau, abs=2e-3)
    far = np.array([-50.0, 50.0])  # that of Koenker and Bassett, but for its level
    slope = np.diff(loss.log_density(np.stack([far, 1.1 * far]), np.ones(1)), axis=0)[0]
    np.testing.assert_allclose(slope, [-5.0 * (1.0 - tau), -5.0 * tau], rtol=1e-9)
    assert Loss(tau).best == pytest.approx(np.max(Loss(tau).log_density(z, np.ones(1))), abs=1e-6)


def test_expectations_are_dense_quadratures():
    likelihood = lk.Quantile(0.7, 0.5)
    grid = np.linspace(-9.0, 9.0, 4001)[:, None]
    w = st.norm.pdf(grid) / st.norm.pdf(grid).sum()
    mean, var = np.array([[0.3], [2.0]]), np.array([[0.05], [0.02]])
    Y, X = np.array([[0.5], [0.0]]), np.zeros((2, 1))
    F = (mean[:, 0] + np.sqrt(var[:, 0]) * grid)[..., None]
    logs = np.asarray(likelihood.log_prob(np.zeros(F.shape), F, Y + 0.0 * F))
    got = likelihood.variational_expectations(X, mean, var, Y)
    np.testing.assert_allclose(got, (w * logs).sum(axis=0), rtol=1e-4)
    both = lk.Quantile(0.7, unit=2.0, varying=True)
    own = both.log_prob(X, np.stack([mean[:, 0] / 2.0, np.full(2, np.log(0.25))], axis=1), Y)
    np.testing.assert_allclose(own, likelihood.log_prob(X, mean, Y), rtol=1e-10)


def test_errors_are_those_of_theory():
    """``tau (1 - tau) / (n f^2)`` is the variance of a quantile (Koenker 2005, section 4.2)."""
    n, sd, tau = 4000, 3.0, 0.9
    rng = np.random.default_rng(1)
    table = pd.DataFrame({"x": rng.uniform(-1.0, 1.0, n)})
    table["y"] = 20.0 + table["x"] + sd * rng.standard_normal(n)
    gam = gg.GAM(linear("x"), family=fam.Quantile(tau=tau)).fit(table, "y")
    estimate, se = gam.predict(pd.DataFrame({"x": [0.0]}), se=True)
    error = np.sqrt(tau * (1.0 - tau) / n) * sd / st.norm.pdf(st.norm.ppf(tau))
    assert se[0] == pytest.approx(error, rel=0.12)
    assert abs(estimate[0] - 20.0 - sd * st.norm.ppf(tau)) < 2.5 * error
    slope = gam.coefficients().iloc[1]
    assert slope["se"] == pytest.approx(error * np.sqrt(3.0), rel=0.12)
    below = (table["y"] < gam.predict(table)).mean()
    assert below == pytest.approx(tau, abs=0.01)


@pytest.mark.slow
def test_where_noise_varies_the_limits_do(table, varying):
    grid = pd.DataFrame({"x": np.linspace(0.04, 0.96, 40)})
    truth = np.sin(6.0 * grid["x"]) + noise(grid["x"]) * st.norm.ppf(0.8)
    band = varying.predict(grid, interval=0.95)
    assert np.mean((band["lower"] < truth) & (truth < band["upper"])) > 0.9
    width = (band["upper"] - band["lower"]).to_numpy()
    assert width[30:36].mean() > 1.2 * width[4:10].mean()
    assert (table["y"] < varying.predict(table)).mean() == pytest.approx(0.8, abs=0.03)
    scale = varying.predict(pd.DataFrame({"x": [0.1, 0.9]}), "link")[:, 1]
    assert scale[1] - scale[0] == pytest.approx(0.88, abs=0.3)
    assert varying.fitted.spec.predictor_names == ("quantile", "log scale")


def test_what_no_quantile_is_for_is_said(table, varying):
    with pytest.raises(ValueError, match="tau must be a probability between 0 and 1; got 1"):
        fam.Quantile(tau=1.0)
    with pytest.raises(ValueError, match="smoothing must be positive"):
        fam.Quantile(smoothing=0.0)
    with pytest.raises(ValueError, match="is no distribution.*no loo"):
        varying.loo()
    with pytest.raises(ValueError, match="'quantile' is no distribution.*several tau"):
        varying.predict(table, "observation")
    with pytest.raises(ValueError, match="no parameter 'shape'.*'quantile', 'scale'"):
        gg.GAM({"shape": s("x")}, family="quantile")
    with pytest.raises(ValueError, match="'quantile' takes no censored"):
        gg.GAM(s("x"), family="quantile").fit(table.assign(e=1), gg.Surv("y", "e"))


@pytest.mark.slow
def test_outliers_bend_the_loss_and_a_warning_has_the_remedy():
    """Of Cauchy noise, whose average loss a few rows make; the truth is known."""
    tau = 0.9
    rng = np.random.default_rng(3)
    x = rng.uniform(size=800)
    data = {"x": x, "y": np.sin(6.0 * x) + 0.2 * rng.standard_cauchy(800)}
    with pytest.warns(gg.SmoothingWarning) as said:
        bent = gg.GAM(s("x"), fam.Quantile(tau)).fit(data, "y")
    (text,) = [str(w.message) for w in said]
    advice = re.search(rf"Take families.Quantile\({tau}, smoothing=([0-9.]+)\)", text)
    assert advice is not None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        narrow = gg.GAM(s("x"), fam.Quantile(tau, smoothing=float(advice[1]))).fit(data, "y")
    truth = np.sin(6.0 * x) + 0.2 * st.cauchy.ppf(tau)
    off, less = (abs(float(np.mean(g.predict(data) - truth))) for g in (bent, narrow))
    assert less < 0.2 < off
    share = np.mean(data["y"] < narrow.predict(data))
    assert share == pytest.approx(tau, abs=3.0 * np.sqrt(tau * (1.0 - tau) / 800))


@pytest.mark.slow
def test_in_other_units_fits_are_the_same():
    rng = np.random.default_rng(3)
    x = rng.uniform(size=120)
    result = []
    for unit, shift in ((1.0, 0.0), (1e-4, 1.0)):
        y = unit * (x + np.random.default_rng(5).standard_normal(120)) + shift
        table = pd.DataFrame({"x": x, "y": y})
        gam = gg.GAM(linear("x"), family=fam.Quantile(tau=0.3)).fit(table, "y")
        estimate, se = gam.predict(table.iloc[:3], se=True)
        result.append(np.array([(estimate - shift) / unit, se / unit]))
    np.testing.assert_allclose(result[1], result[0], rtol=2e-3, atol=1e-3)
