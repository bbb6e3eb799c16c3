"""Second derivatives in hyperparameters, written out, against differences of gradients."""

from __future__ import annotations

import numpy as np
import problems
import pytest

import gpflow_gam as gg
from gpflow_gam import factor, s, te

STEP = 1e-5


@pytest.fixture(scope="module")
def data():
    return problems.table(90)


CASES = {
    "gaussian": (s("x", k=8) + te("x", "z", k=9) + factor("g"), "gaussian", "y"),
    "counts": (s("x", k=8) + te("x", "z", k=9) + factor("g"), "poisson", "count"),
    # one wiggliness of several components
    "shared": (s("x", "g", bs="sz", k=6) + s("z", k=6), "poisson", "count"),
    # outputs of their own
    "classes": ({"v": s("x", k=6) + s("z", k=6), "w": s("z", k=6)}, "categorical", "kind"),
}


@pytest.mark.parametrize("case", CASES)
def test_second_derivatives_are_the_differences_of_first_ones(case, data):
    terms, family, response = CASES[case]
    gam = gg.GAM(terms, family).fit(data, response, max_iterations=2)
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
