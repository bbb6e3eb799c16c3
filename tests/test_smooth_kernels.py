"""Our kernels in batches and in numpy, and what those on the globe and along a line are."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
from scipy.integrate import quad
from test_tangents import compare

from gpflow_gam.kernels import (
    CentredLinear,
    Factor,
    Indicator,
    IntegratedOU,
    MarkovField,
    OnSphere,
    RandomWalk,
    Warped,
    ZeroMean,
)
from gpflow_gam.kernels.fixed_inputs import _Known, fixed_input_kernel
from gpflow_gam.kernels.terms import integrated_hats, unit_vectors
from gpflow_gam.measures import Discrete, Uniform

KNOTS = (-1.0, 0.0, 0.5, 2.0)
NODES = Discrete(np.array([0.5, -1.0, 2.0]), np.array([0.5, 0.25, 0.25]))
MORE_NODES = Discrete(np.array([0.5, -1.0, 2.0, 1.2, -0.4]), np.array([0.3, 0.2, 0.2, 0.2, 0.1]))


def sphere(column=0):
    base = gpflow.kernels.Matern52(1.3, 0.7, active_dims=[0, 1, 2])
    return OnSphere(base, [column, column + 1])


def walk(column=0):
    return RandomWalk(NODES, 1.7, active_dims=[column])


def curve(column=0, lengthscale=0.8):
    return IntegratedOU(MORE_NODES, 1.7, lengthscale, active_dims=[column])


def warped(column=0, speeds=(0.5, 2.0, 3.0, 0.7)):
    base = gpflow.kernels.SquaredExponential(1.3, 0.7, active_dims=[0])
    return Warped(base, KNOTS, np.array(speeds), active_dims=[column])


def centred(kernel):
    rng = np.random.default_rng(4)
    points = rng.uniform(-2, 3, size=(5, len(kernel.active_dims)))
    return ZeroMean(kernel, Discrete(points))


KERNELS = {
    "sphere": sphere,
    "walk": walk,
    "curve": curve,
    "warped": warped,
    "centred sphere": lambda: centred(sphere()),
    "centred warped": lambda: centred(warped()),
    "line": lambda: CentredLinear(0.3, 0.5, active_dims=[1]),
    "factor": lambda: Factor(0.7, active_dims=[2]),
    "indicator": lambda: Indicator(1.0, active_dims=[2]),
    "areas": lambda: MarkovField(4, [(0, 1), (1, 2), (2, 3)], 2.0, 0.5, active_dims=[2]),
    "centred on an interval": lambda: ZeroMean(
        gpflow.kernels.SquaredExponential(0.7, 0.4, active_dims=[0]), Uniform(-2.0, 3.0)
    ),
    "unbatched base": lambda: ZeroMean(
        gpflow.kernels.RationalQuadratic(0.7, 0.4, active_dims=[0]), Uniform(-2.0, 3.0)
    ),
}


@pytest.fixture(params=list(KERNELS))
def kernel(request):
    return KERNELS[request.param]()


def inputs(number, seed=0):
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.uniform(-2.0, 3.0, (number, 2)), rng.integers(0, 4, number)])


def test_shapes_and_batches(kernel):
    X, X2 = inputs(6), inputs(4, 1)
    K = np.asarray(kernel(X, X2))
    pairs = [[np.asarray(kernel(x[None], y[None]))[0, 0] for y in X2] for x in X]
    np.testing.assert_allclose(K, pairs, atol=1e-12)
    np.testing.assert_allclose(kernel(X), kernel(X, X), atol=1e-12)
    np.testing.assert_allclose(np.diag(kernel(X)), kernel(X, full_cov=False), atol=1e-12)
    batch = np.stack([X, X[::-1]])
    np.testing.assert_allclose(kernel(batch)[1], kernel(X[::-1]), atol=1e-12)
    np.testing.assert_allclose(kernel(batch, X2)[1], kernel(X[::-1], X2), atol=1e-12)
    assert np.linalg.eigvalsh(kernel(inputs(40))).min() > -1e-9


def test_numpy_has_the_same_matrices_and_gradients(kernel, rng):
    Z, X = inputs(4, 1), inputs(6)
    known = fixed_input_kernel(kernel, Z, X)
    assert isinstance(known, _Known) != isinstance(getattr(kernel, "measure", None), Uniform)
    compare(known, kernel, (Z, X), rng)


# --- the globe -----------------------------------------------------------------------------------


def test_distances_through_the_globe():
    kernel = sphere()
    degrees = np.array([[0.0, 0.0], [0.0, 90.0], [90.0, 17.0], [0.0, 180.0]])
    np.testing.assert_allclose(unit_vectors(degrees)[:3], np.eye(3), atol=1e-15)
    chord = np.array([0.0, np.sqrt(2.0), np.sqrt(2.0), 2.0])
    base = gpflow.kernels.Matern52(1.3, 0.7)
    expected = base(np.zeros((1, 1)), chord[:, None])
    np.testing.assert_allclose(kernel(degrees[:1], degrees), expected, atol=1e-12)


def test_no_seam_and_nothing_special_about_the_poles():
    kernel = sphere()
    around = np.array([[10.0, -180.0], [10.0, 180.0], [90.0, 0.0], [90.0, 77.0], [-90.0, 5.0]])
    K = np.asarray(kernel(around, inputs(3)[:, :2]))
    np.testing.assert_allclose(K[0], K[1], atol=1e-12)
    np.testing.assert_allclose(K[2], K[3], atol=1e-12)


# --- random walks --------------------------------------------------------------------------------


def test_walks_are_brownian_motion_about_its_mean():
    # of any start, far before all inputs, which the mean takes away
    x = np.array([-3.0, -1.0, 0.2, 0.5, 2.0, 4.0])
    points, p = NODES.points[:, 0], NODES.probabilities
    every = np.concatenate([x, points])
    brownian = np.minimum(every[:, None], every) + 100.0
    A = np.concatenate([np.eye(len(x)), -np.tile(p, (len(x), 1))], axis=1)
    expected = A @ brownian @ A.T
    result = np.asarray(walk()(x[:, None]))
    np.testing.assert_allclose(result / result[0, 0], expected / expected[0, 0], atol=1e-12)
    average = p @ np.diag(np.asarray(walk()(points[:, None])))
    np.testing.assert_allclose(average, 1.7)
    np.testing.assert_allclose(p @ np.asarray(walk()(points[:, None], x[:, None])), 0.0, atol=1e-12)


def test_walks_with_a_level():
    x = np.linspace(-2.0, 2.0, 5)[:, None]
    both = RandomWalk(NODES, 1.7, level=2.0)
    np.testing.assert_allclose(both(x), np.asarray(walk()(x)) + 3.4)


# --- curves that go on ---------------------------------------------------------------------------


def without_lines(K, x, nodes, p):
    """A covariance at x, then at nodes, of functions less the lines that fit them there."""
    Phi = np.stack([np.ones(len(x) + len(nodes)), np.concatenate([x, nodes])], axis=1)
    own = Phi[len(x) :]
    P = np.zeros((len(K), len(K)))
    P[:, len(x) :] = Phi @ np.linalg.solve(own.T @ (p[:, None] * own), own.T * p)
    R = np.eye(len(K)) - P
    return R @ K @ R.T


@pytest.mark.parametrize("lengthscale", [0.05, 0.8, 20.0])
def test_second_derivatives_are_an_ornstein_uhlenbeck_process(lengthscale):
    x, nodes, p = np.linspace(-2.0, 3.0, 6), MORE_NODES.points[:, 0], MORE_NODES.probabilities
    # its covariance on a fine grid, integrated twice from the left
    grid, step = np.linspace(-2.0, 3.0, 3001, retstep=True)
    g = np.exp(-np.abs(grid[:, None] - grid) / lengthscale)
    weights = np.full(len(grid), step)
    weights[[0, -1]] /= 2.0
    A = np.maximum(np.concatenate([x, nodes])[:, None] - grid, 0.0) * weights
    expected = without_lines(A @ g @ A.T, x, nodes, p)
    expected *= 1.7 / (p @ np.diag(expected)[len(x) :])
    result = np.asarray(curve(lengthscale=lengthscale)(x[:, None]))
    np.testing.assert_allclose(result, expected[:6, :6], atol=2e-4 * expected.max())


@pytest.mark.parametrize("lengthscale", [1e-3, 0.3, 1e3])
def test_curves_have_no_line_and_their_variance_on_average(lengthscale):
    points, p = MORE_NODES.points, MORE_NODES.probabilities
    kernel, x = curve(lengthscale=lengthscale), np.linspace(-3.0, 4.0, 9)[:, None]
    K = np.asarray(kernel(points, x))
    size = np.abs(K).max()
    np.testing.assert_allclose(p @ K, 0.0, atol=1e-9 * size)
    np.testing.assert_allclose((p * points[:, 0]) @ K, 0.0, atol=1e-9 * size)
    np.testing.assert_allclose(p @ np.asarray(kernel(points, full_cov=False)), 1.7, rtol=1e-9)


def test_between_splines_and_a_parabola():
    x, nodes, p = np.linspace(-2.0, 3.0, 6), MORE_NODES.points[:, 0], MORE_NODES.probabilities
    every = np.concatenate([x, nodes])
    # the generalised covariance of cubic splines, and that of a square with a normal coefficient
    cases = {1e-5: np.abs(every[:, None] - every) ** 3, 1e6: np.outer(every**2, every**2)}
    for lengthscale, K in cases.items():
        expected = without_lines(K, x, nodes, p)
        expected *= 1.7 / (p @ np.diag(expected)[len(x) :])
        result = np.asarray(curve(lengthscale=lengthscale)(x[:, None]))
        np.testing.assert_allclose(result, expected[:6, :6], atol=1e-4 * np.abs(expected).max())


# --- warped lines --------------------------------------------------------------------------------


def test_warp_is_the_integral_of_its_slope():
    speeds = np.array([0.5, 2.0, 3.0, 0.7])
    x = np.array([-2.5, -1.0, -0.4, 0.3, 0.5, 1.9, 3.0])

    def integral(end):
        return quad(lambda u: np.interp(u, KNOTS, speeds), KNOTS[0], end, points=KNOTS)[0]

    expected = [integral(end) for end in x]
    np.testing.assert_allclose(integrated_hats(x, KNOTS) @ speeds, expected, atol=1e-7)
    base = gpflow.kernels.SquaredExponential(1.3, 0.7)
    np.testing.assert_allclose(warped()(x[:, None]), base(np.array(expected)[:, None]), atol=1e-6)
