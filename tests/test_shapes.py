"""Terms with a shape: splines, posteriors projected on cones, and GAMs of known truths."""

import warnings

import gpflow
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from problems import violation
from scipy.linalg import null_space
from scipy.optimize import minimize
from scipy.stats import multivariate_normal, norm
from test_kernels import compare

import gpflow_gam as gg
from gpflow_gam.kernels import Shaped, ZeroMean
from gpflow_gam.kernels.fixed_inputs import _Known, fixed_input_kernel
from gpflow_gam.kernels.shaped import SHAPES, SplineBasis, differences
from gpflow_gam.likelihoods.expectations import expectations
from gpflow_gam.measures import Discrete
from gpflow_gam.optimizers.binned.solution import ShapeCriterion
from gpflow_gam.posteriors.inducing import Projection, constraint_evidence

DENSE = np.linspace(-0.2, 1.2, 701)
"""Beyond the data, too."""
# --- splines --------------------------------------------------------------------------------------


@pytest.fixture
def basis():
    return SplineBasis(np.sort(np.r_[0.0, 1.0, np.random.default_rng(1).uniform(size=8)]))


def test_splines_add_up_to_one_and_are_the_same_in_tensorflow(basis):
    B = basis(DENSE)
    np.testing.assert_allclose(B.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_allclose(basis.tensor(tf.constant(DENSE)), B, atol=1e-12)
    # a line is its values at the places
    np.testing.assert_allclose(B @ (2.0 - 3.0 * basis.places), 2.0 - 3.0 * DENSE, atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_splines_have_a_shape_if_and_only_if_their_coefficients_do(basis, shape):
    rng = np.random.default_rng(0)
    D = differences(basis.places, shape)
    for _ in range(20):
        wanted = rng.exponential(size=len(D)) ** 3
        c = np.linalg.lstsq(D, wanted, rcond=None)[0]
        assert violation(basis(DENSE) @ c, shape) < 1e-12
        wanted[rng.integers(len(D))] = -0.5 * wanted.mean()
        c = np.linalg.lstsq(D, wanted, rcond=None)[0]
        assert violation(basis(np.linspace(0.0, 1.0, 5001)) @ c, shape) > 1e-9


@pytest.mark.parametrize("centred", [False, True])
def test_kernel_matrices_in_closed_form_are_those_of_automatic_differentiation(basis, centred):
    rng = np.random.default_rng(0)
    base = gpflow.kernels.Matern52(lengthscales=0.4, active_dims=[0])
    kernel = Shaped(base, [basis], [1], ["increasing"])
    if centred:
        kernel = ZeroMean(kernel, Discrete(rng.uniform(size=(9, 1)), np.full(9, 1 / 9)))
    X = np.stack([rng.normal(size=30), rng.uniform(-0.2, 1.2, 30)], axis=1)
    known = fixed_input_kernel(kernel, X[:5], X)
    assert isinstance(known, _Known)
    compare(known, kernel, (X[:5], X), rng)
    # it is the covariance of splines
    if not centred:
        B = basis(X[:, 1])
        np.testing.assert_allclose(kernel(X[:5], X), B[:5] @ base(basis.places[:, None]) @ B.T)
        batch = X.reshape(5, 6, 2)  # as GPflow's kernels have it
        own = np.reshape(kernel(X[:5], X), (5, 5, 6))
        np.testing.assert_allclose(kernel(X[:5], batch), own)
        np.testing.assert_allclose(kernel(batch, batch), np.reshape(kernel(X, X), (5, 6, 5, 6)))


# --- projections ----------------------------------------------------------------------------------


def gaussian(seed, P=6, n=3):
    rng = np.random.default_rng(seed)
    C = rng.normal(size=(P, P))
    return rng.normal(size=P), C @ C.T / P + 0.1 * np.eye(P), rng.normal(size=(n, P))


@pytest.mark.parametrize("seed", range(2))
def test_mean_and_draws_are_the_nearest_points_of_the_cone(seed):
    mean, S, A = gaussian(seed)
    inverse = np.linalg.inv(S)

    def nearest(x):
        result = minimize(
            lambda y: (y - x) @ inverse @ (y - x),
            np.zeros(len(x)),
            jac=lambda y: 2.0 * inverse @ (y - x),
            constraints={"type": "ineq", "fun": lambda y: A @ y, "jac": lambda y: A},
            options={"ftol": 1e-14, "maxiter": 500},
        )
        return result.x

    projection = Projection(mean, S, A)
    np.testing.assert_allclose(projection.mean, nearest(mean), atol=1e-5)
    assert (A @ projection.mean).min() > -1e-12
    free, own = Projection(mean, S, A[:0]), np.random.default_rng(seed)
    before = free.sample(5, np.random.default_rng(seed))
    after = projection.sample(5, own)
    for x, y in zip(before, after):
        np.testing.assert_allclose(y, nearest(x), atol=1e-5)
    # how the mean moves, by differences
    h = 1e-5
    moved = [
        (Projection(mean + h * e, S, A).mean - Projection(mean - h * e, S, A).mean) / (2 * h)
        for e in np.eye(len(mean))
    ]
    np.testing.assert_allclose(projection.derivative, np.stack(moved, axis=1), atol=1e-6)


@pytest.mark.parametrize("m", [-1.5, 0.0, 0.7])
def test_moments_and_tail_of_one_inequality_are_those_in_closed_form(m):
    projection = Projection(np.array([m]), np.eye(1), np.eye(1))
    at = max(m, 0.0)
    # of max(m + z, 0) around max(m, 0)
    first, second = m * norm.cdf(m) + norm.pdf(m), (m**2 + 1) * norm.cdf(m) + m * norm.pdf(m)
    expected = second - 2.0 * at * first + at**2
    assert projection.mean[0] == pytest.approx(at, abs=1e-12)
    assert projection.covariance(40_000)[0, 0] == pytest.approx(expected, rel=0.03)
    tail = norm.cdf(m) if m < 0.0 else 1.0
    assert projection.p_value() == pytest.approx(tail, abs=0.02)


def test_rounding_changes_no_draw():
    """Not where directions are alike, whose eigenvectors are any."""
    mean, _, A = gaussian(1)
    tiny = 1e-13 * np.ones((len(mean), len(mean)))
    one, other = (Projection(mean, np.eye(len(mean)) + e, A) for e in (0.0, tiny))
    np.testing.assert_allclose(one.covariance(50), other.covariance(50), atol=1e-9)
    draws = [p.sample(5, np.random.default_rng(0)) for p in (one, other)]
    np.testing.assert_allclose(*draws, atol=1e-9)


# --- GAMs -----------------------------------------------------------------------------------------


def hockey(x):
    return np.maximum(x - 0.5, 0.0) * 3.0


@pytest.fixture(scope="module")
def data():
    """What is flat at first, beside a confounded wave."""
    rng = np.random.default_rng(3)
    x = rng.uniform(size=200)
    z = 2.0 * x + rng.normal(size=200)
    eta = hockey(x) + np.sin(z)
    return pd.DataFrame(
        {
            "x": x,
            "z": z,
            "g": rng.choice(["a", "b"], 200),
            "w": 1.0 + rng.normal(size=200),
            "y": eta + 0.5 * rng.normal(size=200),
            "count": rng.poisson(np.exp(eta)),
            "event": (rng.uniform(size=200) < 1.0 / (1.0 + np.exp(-2.0 * eta))).astype(int),
        }
    )


@pytest.fixture(scope="module")
def fitted(data):
    terms = gg.s("x", bs="se", shape="increasing") + gg.s("z", bs="se")
    return gg.GAM(terms).fit(data, "y")


def test_sums_have_the_shape_where_other_columns_stay(fitted):
    rows = pd.DataFrame({"x": DENSE[::7], "z": 0.3})
    with warnings.catch_warnings(action="ignore", category=gg.ExtrapolationWarning):
        assert violation(fitted.sample(rows, num_samples=200, type="link"), "increasing") < 1e-9
        mean = fitted.predict(rows, type="link")
        terms = fitted.predict(rows, type="terms")
    assert violation(mean, "increasing") < 1e-12
    np.testing.assert_allclose(np.diff(terms.to_numpy().sum(axis=1)), np.diff(mean), atol=1e-9)
    # errors are those of draws around the estimate
    posterior, X = fitted.fitted.posterior, fitted.fitted.encode(rows)
    draws = posterior.sample_f(X, 4000, seed=1).numpy()[..., 0]
    mean, var = (t.numpy()[:, 0] for t in posterior.predict_f(X))
    measured = np.sqrt(np.mean(np.square(draws - mean), axis=0))
    np.testing.assert_allclose(measured, np.sqrt(var), rtol=0.1)


def test_what_is_correlated_goes_along(fitted):
    free, shaped = fitted.fitted.free_moments, fitted.fitted.shaped
    own = free.block("s(z)")
    assert np.abs(shaped.mean[own] - free.mean[own]).max() > 1e-4
    # as nothing else would have it: in the posterior's metric no way inside leads nearer
    away = np.linalg.solve(free.covariance[0], (shaped.mean - free.mean)[:, 0])
    rows = np.setdiff1d(np.arange(len(away)), np.r_[free.block("s(x)")])
    np.testing.assert_allclose(away[rows], 0.0, atol=1e-6 * np.abs(away).max())


@pytest.mark.slow_but_first
@pytest.mark.parametrize(("response", "family"), [("count", "poisson"), ("event", "bernoulli")])
def test_shapes_hold_for_any_likelihood(data, response, family):
    terms = gg.s("x", shape="convex") + gg.s("z", k=10)
    gam = gg.GAM(terms, family=family).fit(data, response)
    draws = gam.sample_effects("s(x)", {"x": DENSE}, 100)
    assert violation(draws, "convex") < 1e-9
    assert np.all(np.isfinite(gam.predict(data)))


@pytest.mark.slow
def test_each_curve_of_a_factor_and_what_a_number_multiplies(data):
    data = data.assign(x2=data.x, y2=data.y + data.w * np.exp(data.x))
    formula = (
        "y2 ~ factor(g) + s(x, by=g, k=9, shape='increasing') + s(x2, by=w, k=9, shape='concave')"
    )
    gam = gg.GAM(formula).fit(data)
    for name, column, shape in (
        ("s(x):g=a", "x", "increasing"),
        ("s(x):g=b", "x", "increasing"),
        ("s(x2):w", "x2", "concave"),
    ):
        assert violation(gam.sample_effects(name, {column: DENSE}, 64), shape) < 1e-9
        assert violation(gam.effects(name, {column: DENSE}).estimate, shape) < 1e-12


@pytest.mark.parametrize("other", ["z", "g"])
def test_one_margin_of_several_columns_has_a_shape(data, other):
    gam = gg.GAM(gg.te("x", other, shape=("increasing", None), k=36)).fit(data, "y")
    rows = pd.DataFrame({"x": DENSE[::10]})
    values = (-4.0, 0.0, 1.234) if other == "z" else ("a", "b")
    for value in values:
        with warnings.catch_warnings(action="ignore", category=gg.ExtrapolationWarning):
            draws = gam.sample(rows.assign(**{other: value}), num_samples=50, type="link")
        assert violation(draws, "increasing") < 1e-9


def test_a_rough_function_of_known_shape_is_met_better_with_it():
    def truth(x):
        return 2.0 / (1.0 + np.exp(15.0 * (0.5 - x)))

    errors, inside = {"increasing": [], None: []}, []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        x = rng.uniform(size=150)
        data = pd.DataFrame({"x": x, "y": truth(x) + 0.7 * rng.normal(size=150)})
        for shape, own in errors.items():
            gam = gg.GAM(gg.s("x", bs="matern12", shape=shape)).fit(data, "y")
            result = gam.effects("s(x)", unconditional=False)
            expected = truth(result.x) - truth(x).mean()
            own.append(np.sqrt(np.mean((result.estimate - expected) ** 2)))
            if shape:
                inside.append(np.mean((result.lower <= expected) & (expected <= result.upper)))
    assert np.mean(errors["increasing"]) < 0.95 * np.mean(errors[None])
    assert np.mean(inside) > 0.85


def test_a_wrong_shape_is_said_to_be_wrong(data):
    with pytest.warns(gg.ShapeWarning, match=r"speak against shape='decreasing' of s\(x\)"):
        gam = gg.GAM(gg.s("x", shape="decreasing")).fit(data, "y")
    result = gam.effects("s(x)")
    assert np.abs(result.estimate).max() < 1e-9
    assert np.all(np.isfinite(result.select_dtypes(float)))
    summary = gam.summary()
    assert "AGAINST" in str(summary)
    assert summary.deviance_explained < 1e-3
    assert summary.to_frame()["edf"].iloc[0] == pytest.approx(0.0, abs=1e-6)


def test_a_right_shape_is_not_spoken_against(data, fitted):
    with warnings.catch_warnings(action="error", category=gg.ShapeWarning):
        fitted.refit()
    frame = fitted.summary().to_frame()
    assert frame.loc["s(x)", "shape"] == "increasing"
    assert frame.loc["s(x)", "shape_p"] > 0.05
    assert "shape" not in gg.GAM(gg.s("z", k=5)).fit(data, "y").summary().to_frame()


def test_beyond_the_data_it_is_said_to_be_a_line(fitted):
    with pytest.warns(gg.ExtrapolationWarning, match="goes on as a straight line"):
        ends = fitted.predict(pd.DataFrame({"x": [2.0, 3.0, 4.0], "z": 0.0}), type="link")
    assert np.diff(ends, 2)[0] == pytest.approx(0.0, abs=1e-9)
    assert ends[1] > ends[0]


# --- what makes no sense --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("term", "model", "options", "message"),
    [
        ("s(x, shape='convex')", {"engine": "iterncgp"}, {}, "leave engine out"),
        ("s(x, shape='convex')", {"variational": "block"}, {}, "leave variational out"),
        ("s(x, shape='convex')", {}, {"batch_size": 50}, "leave batch_size out"),
        ("te(g, x, shape=('convex', None))", {}, {}, "along 'g', which has levels"),
    ],
)
def test_fits_that_hold_to_no_shape_say_so(data, term, model, options, message):
    with pytest.raises(ValueError, match=message):
        gg.GAM(f"y ~ {term}", **model).fit(data, **options)


def test_a_fit_with_a_shape_does_not_go_on_in_minibatches(data):
    gam = gg.GAM("y ~ s(x, k=6, shape='convex')", "student_t").fit(data, max_iterations=1)
    with pytest.raises(ValueError, match="leave batch_size out"):
        gam.refit(batch_size=50)


# --- rows left out --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def flat():
    """An increasing function that is flat in the middle, where noise goes against the shape."""
    rng = np.random.default_rng(4)
    x, z = rng.uniform(size=(2, 60))
    f = 2.0 * hockey(x) + np.sin(5.0 * z)
    table = pd.DataFrame({"x": x, "z": z, "y": f + 0.3 * rng.normal(size=60)})
    return table.assign(count=rng.poisson(np.exp(f)), g=np.arange(60) % 6)


def held_out(gam, keep):
    """Log densities of left-out rows by the others' posterior, projected anew, and edf."""
    fit = gam.fitted
    moments, out = fit.free_moments, np.setdiff1d(np.arange(fit.number), keep)
    phi, left = moments.all_features(fit.X)
    left, known = np.maximum(left, 0.0).sum(axis=0), np.asarray(fit.model.mean_function(fit.X))
    mean, S = moments.mean[:, 0], moments.covariance[0]
    for _ in range(20):
        var = np.sum(phi * (S @ phi), axis=0) + left
        given = fit.X, (phi.T @ mean)[:, None] + known, var[:, None], fit.Y
        result = expectations(fit.likelihood, *given, ())
        w = result.precision[keep, 0]
        shift = result.slope[keep, 0] + w * (phi.T @ mean)[keep]
        S = np.linalg.inv(np.eye(len(phi)) + (phi[:, keep] * w) @ phi[:, keep].T)
        mean = S @ phi[:, keep] @ shift
    projection = Projection(mean, S, fit.shaped.projected.inequalities(0))
    at = phi[:, out]
    var = np.sum(at * (projection.covariance(4000) @ at), axis=0) + left[out]
    F = (at.T @ projection.mean)[:, None] + known[out]
    result = fit.likelihood.predict_log_density(fit.X[out], F, var[:, None], fit.Y[out])
    return np.asarray(result)


@pytest.mark.slow_but_first
@pytest.mark.parametrize(("y", "family"), [("y", "gaussian"), ("count", "poisson")])
def test_rows_are_left_out_under_their_shape(flat, y, family):
    """Beside fits without the row, at the same hyperparameters."""
    gam = gg.GAM(gg.s("x", shape="increasing", k=10) + gg.s("z", k=6), family).fit(flat, y)
    result, rows = gam.loo(), np.arange(0, 60, 3)
    assert result.untrusted == 0
    expected = [held_out(gam, np.setdiff1d(np.arange(60), [n]))[0] for n in rows]
    off = result.pointwise[rows] - expected
    assert np.abs(off).max() < 0.05
    assert abs(off.sum()) < 0.1
    groups = gam.loo(flat["g"]).pointwise
    expected = held_out(gam, np.flatnonzero(flat["g"] != 2))
    np.testing.assert_allclose(groups[flat["g"] == 2], expected, atol=0.1)


# --- what shapes say of hyperparameters ----------------------------------------------------------


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


@pytest.fixture(scope="module")
def parabolas():
    """Of binary responses, beside a confounded wave, by GAMs that know what bends up."""
    result = []
    for seed in range(2):
        rng = np.random.default_rng([seed, 4, 2])
        x = rng.uniform(size=300)
        z = x + rng.normal(size=300)
        eta = 6.0 * np.square(x - 0.4) + 0.7 * np.sin(2.0 * z)
        y = rng.uniform(size=300) < 1.0 / (1.0 + np.exp(1.0 - eta))
        gam = gg.GAM(gg.s("x", shape="convex") + gg.s("z"), family="bernoulli")
        result.append(gam.fit(pd.DataFrame({"x": x, "z": z, "y": y + 0.0}), "y"))
    return result


def test_what_is_learnt_is_better_under_the_shape_and_worse_without(parabolas):
    for gam in parabolas:
        fit = gam.fitted
        solution, criterion = fit.solution, ShapeCriterion(fit.model, fit.solution)
        learnt, free = solution.optimum, solution.unshaped
        assert criterion.value(learnt) > criterion.value(free) + 0.01
        rounds, number = solution.rounds, len(solution.rounds.hyperparameters)
        losses = [rounds.loss(solution.data)(x[:number])[0] for x in (learnt, free)]
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
    gam = parabolas[1]
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
