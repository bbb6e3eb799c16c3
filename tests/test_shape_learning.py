"""Hyperparameters under shapes: what inequalities add to the evidence, and known truths."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.linalg import null_space
from scipy.stats import multivariate_normal

import gpflow_gam as gg
from gpflow_gam.optimizers.binned.solution import ShapeCriterion
from gpflow_gam.posteriors.inducing import Projection, constraint_evidence

GRID = np.linspace(0.02, 0.98, 97)


@pytest.mark.parametrize("seed", range(6))
def test_it_is_the_evidence_of_the_model_in_which_walls_are_held(seed):
    """Beside the density of the data in what is left free by the rows that hold the mean."""
    rng = np.random.default_rng(seed)
    P, N, sd = 7, 9, 0.6
    Phi, A, y = rng.normal(size=(N, P)), rng.normal(size=(4, P)), rng.normal(size=N)
    S = np.linalg.inv(np.eye(P) + Phi.T @ Phi / sd**2)
    mean = S @ Phi.T @ y / sd**2
    at = A @ Projection(mean, S, A).mean
    free = null_space(A[np.abs(at) < 1e-9]) if np.any(np.abs(at) < 1e-9) else np.eye(P)

    def density(basis):
        features = Phi @ basis
        cov = features @ features.T + sd**2 * np.eye(N)
        return multivariate_normal.logpdf(y, np.zeros(N), cov)

    expected = density(free) - density(np.eye(P))
    assert constraint_evidence(mean, S, A) == pytest.approx(expected, rel=1e-8, abs=1e-10)
    assert free.shape[1] < P or expected == 0.0


def binary(seed, truth, number=300):
    """One column, beside a confounded wave."""
    rng = np.random.default_rng([seed, 4, 2])
    x = rng.uniform(size=number)
    z = x + rng.normal(size=number)
    eta = truth(x) + 0.7 * np.sin(2.0 * z)
    y = (rng.uniform(size=number) < 1.0 / (1.0 + np.exp(1.0 - eta))) + 0.0
    return pd.DataFrame({"x": x, "z": z, "y": y}), truth(GRID) - truth(x).mean()


def parabola(x):
    return 6.0 * np.square(x - 0.4)


@pytest.fixture(scope="module")
def parabolas():
    """Data sets as they come, and GAMs that know what bends up."""
    result = []
    for seed in range(6):
        data, truth = binary(seed, parabola)
        gam = gg.GAM(gg.s("x", shape="convex") + gg.s("z"), family="bernoulli")
        result.append((gam.fit(data, "y"), data, truth))
    return result


@pytest.mark.slow
def test_a_shape_is_no_longer_taken_for_a_line(parabolas):
    """Without what inequalities add, errors are .28 and 95 % bands hold .70 on these data sets."""
    errors, inside = [], []
    for gam, _, truth in parabolas:
        band = gam.effects("s(x)", {"x": GRID})
        errors.append(np.sqrt(np.mean(np.square(band.estimate - truth))))
        inside.append(np.mean((band.lower <= truth) & (truth <= band.upper)))
    assert np.mean(errors) < 0.26
    assert np.mean(inside) > 0.75


def test_what_is_learnt_is_better_under_the_shape_and_worse_without(parabolas):
    for gam, _, _ in parabolas[:2]:
        fit = gam.fitted
        solution, criterion = fit.solution, ShapeCriterion(fit.model, fit.solution)
        learnt, free = solution.optimum, solution.unshaped
        assert criterion.value(learnt) > criterion.value(free) + 0.01
        rounds, number = solution.rounds, len(solution.rounds.hyperparameters)
        losses = [rounds.value(solution.data, x[:number]) for x in (learnt, free)]
        assert losses[0] > losses[1]
        # of other components nothing has moved
        (own,) = criterion.places
        rest = np.setdiff1d(np.arange(len(learnt)), own)
        np.testing.assert_array_equal(learnt[rest], free[rest])
        # to rounding: exp is numpy's here and TensorFlow's there
        np.testing.assert_allclose(
            gam.model.kernel["s(x)"].kernels[0].variance, np.exp(learnt[0]), rtol=1e-14
        )


def test_whether_the_shape_is_right_is_asked_without_it(parabolas):
    gam = parabolas[1][0]
    p = gam.summary().to_frame().loc["s(x)", "shape_p"]
    free = gam.fitted.solution.unshaped
    assert np.abs(free - gam.fitted.solution.optimum).max() > 0.1
    q, _ = gam.fitted.solution.at(free)
    moved = gam.fitted._without_shapes
    np.testing.assert_array_equal(moved.mean, q.mean)
    assert p == gam.fitted.shape_tail("s(x)", 0)
    assert 0.05 < p <= 1.0


def test_where_no_inequality_holds_anything_nothing_moves():
    rng = np.random.default_rng(0)
    x = rng.uniform(size=100)
    table = pd.DataFrame({"x": x, "y": 9.0 * x + x**2 + 0.1 * rng.normal(size=100)})
    fits = [gg.GAM(gg.s("x", shape=shape)).fit(table, "y").fitted for shape in ("increasing", None)]
    shaped, free = (fit.solution for fit in fits)
    np.testing.assert_array_equal(shaped.optimum, shaped.unshaped)
    assert free.unshaped is None
    assert fits[0].result.converged


@pytest.mark.slow
def test_a_wrong_shape_is_still_found_out():
    """Under the wrong shape variances vanish, at which an estimate would be near to any shape."""
    data, _ = binary(0, lambda x: 8.0 * (x - 0.5), 400)
    with pytest.warns(gg.ShapeWarning, match="speak against"):
        gam = gg.GAM(gg.s("x", shape="decreasing"), family="bernoulli").fit(data, "y")
    assert gam.summary().to_frame().loc["s(x)", "shape_p"] < 0.002
