"""Likelihoods of the user's: what a family does with their log-density alone, and with more."""

import gpflow
import numpy as np
import pandas as pd
import pytest
import scipy.stats as st
import tensorflow as tf
import tensorflow_probability as tfp

import gpflow_gam as gg
from gpflow_gam import families as fam
from gpflow_gam import s
from gpflow_gam.gam.families.base import greatest
from gpflow_gam.gam.plotting import quantile_residuals


class Laplace(gpflow.likelihoods.ScalarLikelihood):
    """A density, and no more."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = gpflow.Parameter(scale, transform=gpflow.utilities.positive())

    def _scalar_log_prob(self, X, F, Y):
        return -tf.abs(Y - F) / self.scale - tf.math.log(2.0 * self.scale)

    def _conditional_mean(self, X, F):
        return tf.identity(F)

    def _conditional_variance(self, X, F):
        return 2.0 * tf.square(self.scale) + tf.zeros_like(F)


class Sampled(Laplace):
    """The same with a distribution."""

    def conditional_distribution(self, F):
        return tfp.distributions.Laplace(F, tf.convert_to_tensor(self.scale))


class Unknown(tfp.distributions.Laplace):
    """A distribution without a distribution function."""

    def _cdf(self, value):
        raise NotImplementedError


class Drawn(Laplace):
    def conditional_distribution(self, F):
        return Unknown(F, tf.convert_to_tensor(self.scale))


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    x = rng.uniform(size=200)
    return pd.DataFrame({"x": x, "y": np.sin(6.0 * x) + rng.laplace(0.0, 0.2, 200)})


def fitted(table, likelihood) -> gg.GAM:
    return gg.GAM(s("x", k=8), family=likelihood).fit(table, "y")


def test_saturated_models_are_maxima():
    y = np.array([0.3, 40.0, 2e4])
    result = greatest(lambda f: st.poisson.logpmf(np.round(y), np.exp(f)), np.array([3.0, -2, 1.0]))
    known = np.round(y)
    np.testing.assert_allclose(result, st.poisson.logpmf(known, known), atol=1e-8)
    # a limit that is never reached, and one that there is not
    result = greatest(lambda f: -np.logaddexp(0.0, -f), np.zeros(1))
    np.testing.assert_allclose(result, 0.0, atol=1e-9)
    assert greatest(lambda f: f, np.zeros(1)) is None


def test_deviances_of_gpflows_are_those_of_families():
    rng = np.random.default_rng(1)
    F, Y = rng.standard_normal((9, 1)), rng.poisson(3.0, (9, 1)).astype(float)
    base = gpflow.likelihoods.Poisson()
    own, named = fam.Custom(base), fam.Poisson()
    np.testing.assert_allclose(own.deviance(base, Y, F), named.deviance(base, Y, F), atol=1e-7)
    for a, b in zip(own.cdf(base, Y, F), named.cdf(base, Y, F)):
        np.testing.assert_allclose(a, b, atol=1e-9)
    draws = own.sample(base, np.full((20_000, 1), 1.0), np.random.default_rng(0))
    assert draws.mean() == pytest.approx(np.e, abs=0.05)
    again = own.sample(base, np.full((20_000, 1), 1.0), np.random.default_rng(0))
    np.testing.assert_array_equal(draws, again)
    assert fam.Custom(gpflow.likelihoods.Softmax(3)).deviance(None, Y, np.zeros((9, 3))) is None


@pytest.mark.slow
def test_a_density_alone_has_deviances_and_files(table, tmp_path):
    gam = fitted(table, Laplace(0.5))
    F = gam.predict(table, "link")
    scale = float(gam.fitted.likelihood.scale.numpy())
    assert scale == pytest.approx(0.2, abs=0.05)
    expected = np.sum(2.0 * np.abs(table["y"] - F) / scale)
    assert gam.fitted.deviance()[0] == pytest.approx(expected, rel=1e-6)
    assert "deviance explained" in str(gam.summary())
    gam.appraise()
    with pytest.raises(ValueError, match="no sampler.*conditional_distribution"):
        gam.predict(table, "observation")
    for data in (True, False):
        gam.save(tmp_path / str(data), data=data)
        loaded = gg.GAM.load(tmp_path / str(data), likelihood=Laplace())
        np.testing.assert_array_equal(loaded.predict(table), gam.predict(table))
        assert float(loaded.fitted.likelihood.scale.numpy()) == scale
    with pytest.raises(ValueError, match="fitted with .*Laplace, and no file holds code; pass"):
        gg.GAM.load(tmp_path / "True")
    with pytest.raises(ValueError, match="must be the .*Laplace that .* got .*Sampled"):
        gg.GAM.load(tmp_path / "True", likelihood=Sampled())
    named = gg.GAM("y ~ x").fit(table)
    named.save(tmp_path / "named")
    with pytest.raises(ValueError, match="of family 'gaussian', which needs none"):
        gg.GAM.load(tmp_path / "named", likelihood=Laplace())


@pytest.mark.slow
def test_a_distribution_has_draws_and_residuals(table):
    gam = fitted(table, Sampled(0.5))
    draws = gam.sample(table.iloc[:3], 3000, "observation", seed=1)
    np.testing.assert_allclose(draws.mean(axis=0), gam.predict(table.iloc[:3]), atol=0.05)
    residuals = quantile_residuals(gam.fitted)
    u = st.laplace.cdf(
        table["y"], gam.predict(table, "link"), float(gam.fitted.likelihood.scale.numpy())
    )
    np.testing.assert_allclose(st.norm.cdf(residuals), u, atol=1e-9)
    family, likelihood = fam.Custom(Drawn(0.2)), Drawn(0.2)
    F, Y = np.zeros((200, 1)), table[["y"]].to_numpy()
    below, at_most = family.cdf(likelihood, Y, F)
    exact = st.laplace.cdf(Y[:, 0], 0.0, 0.2)
    np.testing.assert_allclose(0.5 * (below + at_most), exact, atol=0.06)
    assert np.all(at_most > below)
