"""Do limits hold the truth where data say little? And how far hyperparameters are taken to go."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import gpflow_gam as gg
from gpflow_gam import s
from gpflow_gam.optimizers.laplace import Steps


def test_steps_in_a_parabola_are_those_of_its_hessian():
    hessian = np.array([[4.0, 1.0], [1.0, 2.5]])
    steps = Steps(lambda u: 0.5 * u @ hessian @ u, np.zeros(2), hessian)
    rng = np.random.default_rng(0)
    z = rng.standard_normal((40_000, 2))
    result = np.cov([steps(point) for point in z], rowvar=False)
    np.testing.assert_allclose(result, np.linalg.inv(hessian), rtol=0.03, atol=0.005)


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


@pytest.mark.slow
def test_what_data_hardly_tell_from_a_line_is_not_taken_for_one():
    """Half a sine wave in binary responses: .81 of it was held where more of it vanished."""
    shares = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        x = rng.uniform(size=300)
        f = 0.7 * np.sin(np.pi * x)
        data = pd.DataFrame({"x": x, "y": rng.uniform(size=300) < expit(f - 0.4)})
        gam = gg.GAM(s("x", k=8), "bernoulli").fit(data, "y")
        own = gam.effects("s(x)", x)
        shares.append(np.mean(np.abs(own["estimate"] - (f - f.mean())) <= 1.96 * own["se"]))
    assert np.mean(shares) > 0.87


@pytest.mark.slow
def test_curves_of_correlated_covariates_are_covered():
    """A step and a sine, correlation .92, binary: .76 where deviations vanished too readily."""
    shares = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        x, u = rng.uniform(size=(2, 600))
        data = pd.DataFrame({"x": x, "z": 0.7 * x + 0.3 * u})
        curves = {
            "x": lambda x: 3.0 / (1.0 + np.exp(-14.0 * (x - 0.5))),
            "z": lambda z: np.sin(5.0 * z),
        }
        f = sum(curve(data[c]) for c, curve in curves.items())
        data["y"] = rng.uniform(size=600) < expit(f - 1.5)
        gam = gg.GAM([s("x"), s("z")], "bernoulli").fit(data, "y")
        for c, curve in curves.items():
            own = gam.effects(f"s({c})", data[c].to_numpy())
            true = curve(data[c]) - curve(data[c]).mean()
            shares.append(np.mean(np.abs(own["estimate"] - true) <= 1.96 * own["se"]))
    assert np.mean(shares) > 0.85
