"""Second derivatives in hyperparameters, written out, against differences of gradients."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import gpflow_gam as gg
from gpflow_gam import factor, s, te

STEP = 1e-5


@pytest.fixture(scope="module")
def data():
    rng, n = np.random.default_rng(2), 90
    data = pd.DataFrame({"x": rng.uniform(size=n), "z": rng.normal(size=n)})
    data["g"] = rng.choice(list("abc"), n)
    f = np.sin(6.0 * data["x"]) + 0.4 * data["z"] * data["x"]
    data["y"] = f + 0.5 * rng.normal(size=n)
    data["count"] = rng.poisson(np.exp(0.7 * f))
    data["kind"] = np.array(list("abc"))[np.digitize(f + rng.logistic(size=n), [-0.5, 0.8])]
    return data


CASES = {
    "gaussian": (s("x", k=8) + te("x", "z", k=9) + factor("g"), "gaussian", "y"),
    "counts": (s("x", k=8) + te("x", "z", k=9) + factor("g"), "poisson", "count"),
    # one wiggliness of several components
    "shared": (s("x", "g", bs="sz", k=6) + s("z", k=6), "poisson", "count"),
    # outputs of their own
    "classes": ({"b": s("x", k=6) + s("z", k=6), "c": s("z", k=6)}, "categorical", "kind"),
}


@pytest.mark.parametrize("case", CASES)
def test_second_derivatives_are_the_differences_of_first_ones(case, data):
    terms, family, response = CASES[case]
    gam = gg.GAM(terms, family).fit(data, response, progress=False, max_iterations=2)
    solution = gam.fitted.solution
    # away from the optimum, where no first derivative vanishes
    if solution.bound is not None:
        at = solution.optimum + 0.1
        gradient, result = lambda u: solution.bound.loss(u)[1], solution.bound.hessian(at)
    else:
        rounds = solution.rounds
        at = solution.optimum[: len(rounds.hyperparameters)] + 0.1
        loss = rounds.loss(solution.data)
        gradient, result = lambda u: loss(u)[1], rounds.hessian(solution.data, at)
    wanted = np.stack(
        [(gradient(at + e) - gradient(at - e)) / (2 * STEP) for e in STEP * np.eye(len(at))]
    )
    size = np.max(np.abs(wanted))
    np.testing.assert_allclose(result, wanted, rtol=2e-3, atol=2e-4 * size)
