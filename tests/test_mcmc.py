"""Chains of hyperparameters: fit(posterior="mcmc")."""

import arviz
import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal

import gpflow_gam as gg

RNG = np.random.default_rng(0)
N, G = 60, 6
DATA = pd.DataFrame({"g": np.repeat(list("abcdef"), N // G), "x": RNG.uniform(size=N)})
DATA["y"] = np.repeat(0.7 * RNG.normal(size=G), N // G) + RNG.normal(size=N)
DATA["n"] = RNG.poisson(np.exp(np.sin(4.0 * DATA.x)))


@pytest.fixture(scope="module")
def gaussian():
    return gg.GAM("y ~ random_effect(g)").fit(DATA, posterior="mcmc")


def by_grid(gam):
    """Log variances of effects and noise on a grid, with their posterior by dense algebra."""
    prior = gam.fitted.model.kernel["random_effect(g)"].variance.prior
    intercept = float(gam.fitted.model.kernel["intercept"].variance.numpy())
    same = DATA.g.to_numpy()[:, None] == DATA.g.to_numpy()
    e = DATA.y.to_numpy() - gam.fitted.spec.constant[0]
    u, w = np.meshgrid(np.linspace(-9.0, 5.0, 57), np.linspace(-1.0, 1.2, 31), indexing="ij")
    density = np.zeros(u.shape)
    for at in np.ndindex(u.shape):
        cov = intercept + np.exp(u[at]) * same + np.exp(w[at]) * np.eye(N)
        # the prior of the variance, flat in the standard deviation where it is near zero
        density[at] = multivariate_normal.logpdf(e, cov=cov) + prior.log_prob(np.exp(u[at]))
        density[at] += 0.5 * u[at]
    weight = np.exp(density - density.max())
    return u, w, weight / weight.sum()


def test_chains_have_the_posterior(gaussian):
    u, w, weight = by_grid(gaussian)
    chains = gaussian.fitted.solution.chains.coordinates
    assert chains.shape[0] * chains.shape[1] == 1000
    for k, grid in enumerate((u, w)):
        mean = np.sum(weight * grid)
        sd = np.sqrt(np.sum(weight * (grid - mean) ** 2))
        assert np.mean(chains[..., k]) == pytest.approx(mean, abs=0.2 * sd)
        assert np.std(chains[..., k]) == pytest.approx(sd, rel=0.15)


def test_standard_errors_average_over_chains(gaussian):
    """The law of total variance over the grid, for the effect of a level."""
    u, w, weight = by_grid(gaussian)
    e = DATA.y.to_numpy() - gaussian.fitted.spec.constant[0]
    same = (DATA.g.to_numpy()[:, None] == DATA.g.to_numpy()).astype(float)
    intercept = float(gaussian.fitted.model.kernel["intercept"].variance.numpy())
    estimate = gaussian.effects("random_effect(g)").estimate.iloc[0]
    moments = np.zeros((2, *u.shape))
    for at in np.ndindex(u.shape):
        v = np.exp(u[at])
        cov = intercept + v * same + np.exp(w[at]) * np.eye(N)
        cross = v * same[0]
        gain = np.linalg.solve(cov, cross)
        moments[:, *at] = gain @ e, v - gain @ cross
    variance = np.sum(weight * (moments[1] + (moments[0] - estimate) ** 2))
    se = gaussian.effects("random_effect(g)").se.iloc[0]
    assert se == pytest.approx(np.sqrt(variance), rel=0.05)


def test_chains_travel_in_files_and_as_inference_data(gaussian, tmp_path):
    gaussian.save(tmp_path / "a.gam", data=False)
    loaded = gg.GAM.load(tmp_path / "a.gam")
    new = DATA.head()
    np.testing.assert_allclose(
        loaded.predict(new, interval=0.9), gaussian.predict(new, interval=0.9)
    )
    data = loaded.inference_data()
    assert dict(data.posterior.sizes) == {"chain": 4, "draw": 250}
    assert set(data.posterior) == {"random_effect(g) variance", "residual variance"}
    drawn = np.exp(gaussian.fitted.solution.chains.coordinates)
    np.testing.assert_allclose(data.posterior["residual variance"], drawn[..., 1])
    table = arviz.summary(data, round_to="none")
    assert table.r_hat.max() < 1.05
    assert table.r_hat.max() == pytest.approx(gaussian.fitted.solution.chains.rhat(), abs=0.02)


@pytest.mark.slow
def test_counts_and_smooths(tmp_path):
    gam = gg.GAM("n ~ s(x, k=8) + random_effect(g)", "poisson").fit(DATA, posterior="mcmc")
    chains = gam.fitted.solution.chains
    assert chains.rhat() < 1.05
    frame = gam.predict(DATA.head(), interval=0.95)
    assert np.all(np.isfinite(frame))
    assert gam.refit().fitted.solution.chains is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"posterior": "nuts"}, "posterior must be 'laplace' or 'mcmc'; got 'nuts'"),
        ({"posterior": "mcmc", "criterion": "ncv"}, "criterion='ncv' does not have"),
        ({"posterior": "mcmc", "batch_size": 10}, "batch_size=10 does not have"),
    ],
)
def test_errors_name_what_is_wrong(options, message):
    with pytest.raises(ValueError, match=message):
        gg.GAM("y ~ s(x)").fit(DATA, **options)


def test_there_are_no_chains_without_being_asked_for():
    gam = gg.GAM("y ~ s(x, k=8)").fit(DATA)
    with pytest.raises(ValueError, match="fit with posterior='mcmc'"):
        gam.inference_data()
    with pytest.raises(ValueError, match=r"a shape of s\(x\) does not have"):
        gg.GAM("y ~ s(x, shape='increasing')").fit(DATA, posterior="mcmc")
