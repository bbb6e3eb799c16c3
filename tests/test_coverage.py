"""Do limits hold the truth where data say little? And how far hyperparameters are taken to go."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import gpflow_gam as gg
from gpflow_gam import s
from gpflow_gam.gam.components.priors import smooth_priors
from gpflow_gam.optimizers.laplace_steps import Steps
from gpflow_gam.statistics import NotPositiveDefinite


def test_steps_in_a_parabola_are_those_of_its_hessian():
    hessian = np.array([[4.0, 1.0], [1.0, 2.5]])
    steps = Steps(lambda u: 0.5 * u @ hessian @ u, np.zeros(2), hessian)
    rng = np.random.default_rng(0)
    z = rng.standard_normal((40_000, 2))
    found = np.cov([steps(point) for point in z], rowvar=False)
    np.testing.assert_allclose(found, np.linalg.inv(hessian), rtol=0.03, atol=0.005)


@pytest.mark.parametrize("side", [1.0, -1.0])
@pytest.mark.parametrize("rise", [0.02, 0.5, 8.0])
def test_steps_go_as_far_as_the_objective_lets_them(rise, side):
    """Flat at the optimum and on one side; further on the other a parabola of its own curvature."""

    def value(u):
        return 0.5 * rise * max(side * u[0], 0.0) ** 2

    steps = Steps(value, np.zeros(1), np.array([[1e-9]]))
    rising, flat = steps(np.array([side])), steps(np.array([-side]))
    assert side * rising[0] == pytest.approx(min(1.0 / np.sqrt(rise), 4.0), rel=1e-6)
    assert side * flat[0] == pytest.approx(-4.0, rel=1e-6)


def test_steps_stay_where_the_objective_cannot_be_looked_at():
    def value(u):
        if np.any(u != 0.0):
            raise NotPositiveDefinite
        return 0.0

    steps = Steps(value, np.zeros(1), np.array([[1e-9]]))
    assert steps(np.array([1.0]))[0] == pytest.approx(1.0, rel=1e-6)


def test_what_is_not_there_may_vanish_further_where_data_say_more():
    enough, many = smooth_priors(600.0).deviation, smooth_priors(6e5).deviation
    assert enough.mode == pytest.approx(1e3 * many.mode)
    assert enough.spread == many.spread == smooth_priors(512.0).deviation.spread
    priors = [smooth_priors(number).deviation for number in (128.0, 256.0, 512.0)]
    assert priors[0].mode == pytest.approx(4.0 * priors[1].mode)
    assert priors[1].mode == pytest.approx(4.0 * priors[2].mode)
    assert priors[0].spread < priors[1].spread < priors[2].spread
    assert smooth_priors(0.0).deviation == smooth_priors(50.0).deviation
    assert smooth_priors(511.999).deviation == pytest.approx(smooth_priors(512.0).deviation, 1e-4)


def test_what_data_hardly_tell_from_a_line_is_not_taken_for_one():
    """Half a sine wave in binary responses: .81 of it was held where more of it vanished."""
    shares = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        x = rng.uniform(size=300)
        f = 0.7 * np.sin(np.pi * x)
        data = pd.DataFrame({"x": x, "y": rng.uniform(size=300) < expit(f - 0.4)})
        gam = gg.GAM(s("x", k=8), "bernoulli").fit(data, "y", progress=False)
        own = gam.effects("s(x)", x)
        shares.append(np.mean(np.abs(own["estimate"] - (f - f.mean())) <= 1.96 * own["se"]))
    assert np.mean(shares) > 0.87


def test_the_information_of_a_fit_is_that_of_its_rows_and_weights(rng):
    n = 256
    data = pd.DataFrame({"x": rng.uniform(size=n), "w": 2.0})
    data["flag"] = np.arange(n) % 2
    data["n"] = 4.0
    data["count"] = np.where(data["flag"], 3.0, 5.0)
    plain = gg.GAM(s("x", k=5), "bernoulli").fit(data, "flag", progress=False)
    twice = gg.GAM(s("x", k=5), "bernoulli", weights="w").fit(data, "flag", progress=False)
    counts = gg.GAM(s("x", k=5), "poisson").fit(data, "count", progress=False)
    assert plain.fitted.spec.information == n / 4  # p (1 - p)
    assert twice.fitted.spec.information == n / 2
    assert counts.fitted.spec.information == 4 * n  # the mean
