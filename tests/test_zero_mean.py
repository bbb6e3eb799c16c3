"""Zero-mean kernels: closed forms, quadrature, long and short lengthscales."""

from collections.abc import Callable

import gpflow
import mpmath as mp
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import (
    Kernel,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    Product,
    RationalQuadratic,
    SquaredExponential,
    Sum,
)
from problems import slope

from gpflow_gam.kernels import AdditiveKernel, Factor, ZeroMean
from gpflow_gam.measures import Discrete, Empirical, Gaussian, Measure, Nodes, Uniform

A, B = -1.0, 2.0
CORRELATIONS: dict[type[Kernel], Callable[[mp.mpf], mp.mpf]] = {
    SquaredExponential: lambda r: mp.exp(-r * r / 2),
    Matern12: lambda r: mp.exp(-r),
    Matern32: lambda r: (1 + mp.sqrt(3) * r) * mp.exp(-mp.sqrt(3) * r),
    Matern52: lambda r: (1 + mp.sqrt(5) * r + 5 * r * r / 3) * mp.exp(-mp.sqrt(5) * r),
}


def reference(correlation: Callable, length: float, x: np.ndarray, law: str) -> np.ndarray:
    """The zero-mean kernel of unit variance at x, by adaptive quadrature in 30 digits."""
    with mp.workdps(30):
        scale = mp.mpf(length)

        def mean(at: mp.mpf) -> mp.mpf:
            if law == "uniform":
                ends, density = (mp.mpf(A), mp.mpf(B)), lambda t: 1 / mp.mpf(B - A)
            else:
                ends, density = (mp.mpf(-9.5), mp.mpf(10.5)), lambda t: mp.npdf(t, 0.5, 1)
            cuts = [at + k * scale for k in (-12, -4, -1, 0, 1, 4, 12)]
            cuts = sorted({min(max(c, ends[0]), ends[1]) for c in [*cuts, mp.mpf(0.5), *ends]})
            return mp.quad(lambda t: correlation(abs(at - t) / scale) * density(t), cuts)

        # the distance of two independent inputs has a density too
        if law == "uniform":
            width = mp.mpf(B - A)
            reach, density = width, lambda r: 2 * (width - r) / width**2
        else:
            reach, density = mp.mpf(14), lambda r: 2 * mp.npdf(r, 0, mp.sqrt(2))
        cuts = sorted({min(k * scale, reach) for k in (0, 1, 4, 12)} | {min(reach, 1), reach})
        total = mp.quad(lambda r: correlation(r / scale) * density(r), cuts)
        at = [mp.mpf(float(v)) for v in x]
        means = [mean(v) for v in at]
        rows = [
            [correlation(abs(p - q) / scale) - m * n / total for q, n in zip(at, means)]
            for p, m in zip(at, means)
        ]
        return np.array(rows, dtype=float)


@pytest.mark.parametrize("ratio", [1e-3, 0.3, 2.0, 1e3])
@pytest.mark.parametrize("kind", CORRELATIONS, ids=lambda k: k.__name__)
def test_closed_forms_over_six_decades_of_lengthscales(kind, ratio):
    """To twelve digits of what is left of the kernel, which is 1e-7 for the longest."""
    x = np.array([-1.0, -0.7, 0.3, 0.5, 2.0])
    length = ratio * (B - A)
    kernel = ZeroMean(kind(1.3, length, active_dims=[0]), Uniform(A, B))
    exact = 1.3 * reference(CORRELATIONS[kind], length, x, "uniform")
    size = np.abs(exact).max()
    np.testing.assert_allclose(kernel(x[:, None]), exact, atol=3e-12 * size, rtol=0)
    diagonal = kernel(x[:, None], full_cov=False)
    np.testing.assert_allclose(diagonal, np.diag(exact), atol=3e-12 * size, rtol=0)
    assert np.all(diagonal.numpy() > 0.0)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("length", [1e-3, 0.3, 1.0, 1e3])
def test_closed_form_under_a_gaussian(length):
    x = np.array([-2.0, 0.3, 0.5, 3.0])
    kernel = ZeroMean(SquaredExponential(1.3, length, active_dims=[0]), Gaussian(0.5, 1.0))
    exact = 1.3 * reference(CORRELATIONS[SquaredExponential], length, x, "gaussian")
    size = np.abs(exact).max()
    np.testing.assert_allclose(kernel(x[:, None]), exact, atol=3e-12 * size, rtol=0)


PAIRS: dict[str, tuple[Kernel, Measure, float]] = {
    # kernel, measure, how far from zero integrals over an own dense rule may be
    "se, uniform": (SquaredExponential(1.3, 0.2), Uniform(0.0, 1.0), 1e-12),
    "se, uniform, short": (SquaredExponential(1.3, 1e-3), Uniform(0.0, 1.0), 1e-8),
    "matern32, uniform": (Matern32(1.3, 0.2), Uniform(0.0, 1.0), 1e-8),
    "se, gaussian": (SquaredExponential(1.3, 0.2), Gaussian(0.2, 0.7), 1e-12),
    "matern52, gaussian": (Matern52(1.3, 0.5), Gaussian(0.2, 0.7, num_nodes=150), 1e-5),
    "rational quadratic": (RationalQuadratic(1.3, 0.2), Uniform(0.0, 1.0), 1e-9),
    "cyclic": (Periodic(SquaredExponential(1.3, 0.6), period=1.0), Uniform(0.0, 1.0), 1e-12),
    "factor": (Factor(0.7), Discrete([0, 1, 2], [0.5, 0.3, 0.2]), 1e-14),
    "hours": (
        Periodic(SquaredExponential(0.7, 0.6), period=24.0), Discrete(np.arange(24)), 1e-14
    ),
}  # fmt: skip


def dense(measure: Measure) -> tuple[np.ndarray, np.ndarray]:
    """A rule that is not the measure's own: 10 Gauss-Legendre nodes in each of 2000 panels."""
    if isinstance(measure, Discrete):
        return measure.nodes()
    uniform = isinstance(measure, Uniform)
    ends = (
        (measure.lower, measure.upper)
        if uniform
        else (measure.mean - 9 * measure.sd, measure.mean + 9 * measure.sd)
    )
    x, w = np.polynomial.legendre.leggauss(10)
    edges = np.linspace(*ends, 2001)
    half = 0.5 * np.diff(edges)[:, None]
    nodes = (edges[:-1, None] + half * (x + 1)).ravel()
    weights = np.tile(0.5 * w / 2000, 2000)
    if not uniform:
        weights *= np.exp(-0.5 * ((nodes - measure.mean) / measure.sd) ** 2)
    return nodes[:, None], weights / weights.sum()


@pytest.mark.parametrize("name", PAIRS)
def test_sections_integrate_to_zero_and_kernels_are_positive(name):
    base, measure, tolerance = PAIRS[name]
    base.active_dims = [0]
    kernel = ZeroMean(base, measure)
    nodes, weights = dense(measure)
    some = nodes[:: max(len(nodes) // 25, 1)]
    K = kernel(some).numpy()
    np.testing.assert_allclose(kernel(some, nodes).numpy() @ weights, 0.0, atol=tolerance)
    variance = float(np.max(base(some, full_cov=False)))
    assert np.linalg.eigvalsh(K)[0] > -1e-14 * variance * len(some)
    np.testing.assert_allclose(kernel(some, full_cov=False), np.diag(K), atol=1e-14)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("name", ["se, uniform", "matern32, uniform", "se, gaussian", "cyclic"])
def test_gradients_are_finite_differences(name):
    base, measure, _ = PAIRS[name]
    base = gpflow.utilities.deepcopy(base)
    base.active_dims = [0]
    kernel = ZeroMean(base, measure)
    holder = base.base_kernel if isinstance(base, Periodic) else base
    weights = np.random.default_rng(1).standard_normal((5, 4))

    def value(x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(weights * kernel(x[:5], x[5:])) + tf.reduce_sum(
            kernel(x, full_cov=False)
        )

    at = np.random.default_rng(2).uniform(0.05, 0.95, size=(9, 1))
    for length in (0.01, 0.2, 0.8, 40.0):  # both branches of the series, and both sides of it
        holder.lengthscales.assign(length)
        x = tf.constant(at)
        with tf.GradientTape() as tape:
            tape.watch(x)
            result = value(x)
        variables = [holder.lengthscales, holder.variance]
        sources = [x, *(v.unconstrained_variable for v in variables)]
        gradients = tape.gradient(result, sources)
        for variable, gradient in zip(variables, gradients[1:]):
            expected = slope(lambda x=x: value(x), variable.unconstrained_variable)
            size = abs(float(result))
            assert float(gradient) == pytest.approx(expected, rel=1e-5, abs=1e-8 * size)
        step = 1e-6
        shifted = [float(value(tf.constant(at + s * step * np.eye(9)[:, :1]))) for s in (1, -1)]
        assert float(gradients[0][0, 0]) == pytest.approx(
            (shifted[0] - shifted[1]) / (2 * step), rel=1e-5, abs=1e-7 * abs(float(result))
        )


def test_long_lengthscales_survive_single_precision():
    """Half of the range's own variance is left at 1e-5 of the kernel's: rounding is 1e-7 of it."""
    x = np.linspace(0.0, 1.0, 7)[:, None]
    measure = Empirical(np.linspace(0.0, 1.0, 20))
    for base in (SquaredExponential, Matern52):
        kernel = ZeroMean(base(1.0, 100.0, active_dims=[0]), measure)
        exact = kernel(x).numpy()
        gpflow.config.set_default_float(np.float32)
        single = ZeroMean(base(1.0, 100.0, active_dims=[0]), measure)(x.astype(np.float32))
        gpflow.config.set_default_float(np.float64)
        np.testing.assert_allclose(single, exact, atol=1e-4 * exact.max())


@pytest.mark.parametrize("base", [SquaredExponential, Matern32, RationalQuadratic])
def test_a_kernel_without_variance_is_zero(base):
    """Where the optimiser switches a component off, its variance may underflow."""
    kernel = ZeroMean(base(active_dims=[0]), Uniform(0.0, 1.0))
    kernel.base.variance.unconstrained_variable.assign(-1000.0)
    x = tf.constant(np.linspace(0.0, 1.0, 3)[:, None])
    with tf.GradientTape() as tape:
        K = kernel(x)
        result = tf.reduce_sum(K) + tf.reduce_sum(kernel(x, full_cov=False))
    np.testing.assert_array_equal(K, 0.0)
    gradient = tape.gradient(result, kernel.base.lengthscales.unconstrained_variable)
    assert float(gradient) == 0.0


def test_a_base_of_several_columns_is_centred_as_a_whole(rng):
    """Combinations read columns of their own; a measure of all their columns goes with them."""
    line, share = Uniform(0.0, 1.0).nodes()
    nodes = np.vstack([np.insert(line, 1, level, axis=1) for level in (0.0, 1.0)])
    weights = np.concatenate([0.3 * share, 0.7 * share])
    measure = Discrete(nodes, weights)
    X = np.zeros((len(nodes), 5))
    X[:, [2, 4]] = nodes
    some = X[rng.choice(len(X), 12, replace=False)]
    product = Product(
        [SquaredExponential(1.0, 0.3, active_dims=[2]), Matern32(1.0, 0.9, active_dims=[4])]
    )
    alone = Sum(  # no class evaluates sums in batches
        [RationalQuadratic(1.0, 0.3, active_dims=[2]), Linear(active_dims=[4])]
    )
    for base in (product, alone, SquaredExponential(1.0, [0.3, 0.9], active_dims=[2, 4])):
        kernel = ZeroMean(base, measure)
        np.testing.assert_allclose(kernel(some, X).numpy() @ weights, 0.0, atol=1e-12)
        G = base(X).numpy()
        exact = G - np.outer(G @ weights, G @ weights) / (weights @ G @ weights)
        np.testing.assert_allclose(kernel(X), exact, atol=1e-12)
        additive = AdditiveKernel({"f": kernel})
        np.testing.assert_allclose(additive.K_components(X)[0], exact, atol=1e-12)
        np.testing.assert_allclose(kernel(X, full_cov=False), np.diag(exact), atol=1e-12)


class Wiener(Kernel):
    """A user's, of matrices alone."""

    def K(self, X, X2=None):
        return tf.minimum(X, tf.transpose(X if X2 is None else X2))

    def K_diag(self, X):
        return X[:, 0]


@pytest.mark.parametrize("compiled", [False, True])
def test_a_base_may_be_of_matrices_alone(compiled, rng):
    base, measure, X = Wiener(active_dims=[1]), Uniform(0.0, 1.0), rng.uniform(size=(6, 2))
    kernel = ZeroMean(base, measure)
    nodes, weights = measure.nodes()
    both = np.concatenate([X, np.insert(nodes, 0, 0.0, axis=1)])
    G = np.minimum.outer(both[:, 1], both[:, 1])
    mean = G[:, 6:] @ weights
    exact = (G - np.outer(mean, mean) / (weights @ mean[6:]))[:6, :6]

    additive = AdditiveKernel([kernel, Linear(active_dims=[0])])

    def matrices(X):
        return kernel(X), kernel(X, X), additive.K_components(X)[0]

    if compiled:
        matrices = tf.function(matrices, [tf.TensorSpec([None, 2], tf.float64)])
    for K in matrices(tf.constant(X)):
        np.testing.assert_allclose(K, exact, atol=1e-12)
    np.testing.assert_allclose(kernel(X, full_cov=False), np.diag(exact), atol=1e-12)


def test_inputs_outside_bounds_are_refused_unless_asked_for():
    X = np.array([[0.2], [1.3]])
    base = SquaredExponential(1.0, 0.3, active_dims=[0])
    kernel = ZeroMean(base, Uniform(0.0, 1.0))
    with pytest.raises(ValueError, match=r"outside the bounds of Uniform\(0.0, 1.0\).*1.3"):
        kernel(X)
    with pytest.raises(ValueError, match="extrapolate=True"):
        AdditiveKernel([kernel]).K_components(X)
    with pytest.raises(tf.errors.InvalidArgumentError, match="outside the bounds"):
        tf.function(lambda x: kernel(x, full_cov=False))(X)
    with pytest.raises(ValueError, match="outside the bounds"):
        kernel(np.array([[np.nan]]))
    wide = ZeroMean(base, Uniform(0.0, 1.0), extrapolate=True)
    np.testing.assert_allclose(wide(X)[0, 0], kernel(X[:1])[0, 0], rtol=1e-12)
    # a projection: the same formula by the measure's nodes
    nodes, weights = Uniform(0.0, 1.0).nodes()
    mean = base(X, nodes).numpy() @ weights
    total = weights @ base(nodes).numpy() @ weights
    exact = base(X).numpy() - np.outer(mean, mean) / total
    np.testing.assert_allclose(wide(X), exact, atol=1e-12)
    rounded = np.array([[np.nextafter(np.float32(1.0), np.float32(2.0))]], dtype=float)
    assert np.isfinite(kernel(rounded).numpy()).all()  # what single precision does to an end


def test_zero_mean_needs_a_measure_on_its_columns():
    with pytest.raises(ValueError, match="reads every column"):
        ZeroMean(SquaredExponential(), Uniform(0, 1))
    with pytest.raises(ValueError, match="reads 2"):
        ZeroMean(SquaredExponential(active_dims=[0, 1]), Uniform(0, 1))


# --- measures: their nodes, their samples, and what they refuse ----------------------------------

MEASURES: dict[str, tuple[Measure, list[float]]] = {
    # first to third moments, from tables
    "uniform": (Uniform(-1.0, 2.0), [0.5, 1.0, 1.25]),
    "gaussian": (Gaussian(0.5, 2.0), [0.5, 4.25, 6.125]),
    "discrete": (Discrete([0.0, 1.0, 4.0], [0.5, 0.3, 0.2]), [1.1, 3.5, 13.1]),
    "empirical": (Empirical([1.0, 0.0, 1.0], [1.0, 2.0, 1.0]), [0.5, 0.5, 0.5]),
}


@pytest.mark.parametrize("name", MEASURES)
def test_nodes_and_transport_have_the_measures_moments(name):
    measure, moments = MEASURES[name]
    x, w = measure.nodes()
    assert x.shape == (len(w), 1)
    for power, moment in enumerate(moments, start=1):
        assert w @ x[:, 0] ** power == pytest.approx(moment, rel=1e-12)
    u = (np.arange(200_000) + 0.5)[:, None] / 200_000
    drawn = measure.transport(u)
    for power, moment in enumerate(moments, start=1):
        assert np.mean(drawn**power) == pytest.approx(moment, rel=1e-3)


def test_samples_of_one_column_are_thinned_to_means(rng):
    x, w = rng.gamma(2.0, size=3000), rng.integers(0, 3, size=3000)
    repeated = np.repeat(x, w)
    thin = Empirical(x, w).thinned(30)
    nodes, weights = thin.nodes()
    assert len(nodes) == 30
    assert weights @ nodes[:, 0] == pytest.approx(repeated.mean(), rel=1e-12)
    # to second order in the bins' width: the far tail's bin is the widest
    assert weights @ np.sin(nodes[:, 0]) == pytest.approx(np.sin(repeated).mean(), abs=5e-3)
    again = Empirical(repeated).thinned(30)  # a row of weight two is the row twice
    np.testing.assert_allclose(again.nodes()[0], nodes)


def test_levels_from_data_are_never_thinned():
    levels = Discrete.from_data(np.repeat(np.arange(100), 2), [1.0, 0.5] * 100)
    assert type(levels) is Discrete
    assert len(levels.nodes()[0]) == 100
    np.testing.assert_array_equal(levels.nodes()[1], np.full(100, 0.01))
    few = Discrete.from_data([3, 1, 3, 7], [1.0, 2.0, 1.0, 0.0])
    np.testing.assert_array_equal(few.nodes()[0], [[1.0], [3.0]])
    np.testing.assert_array_equal(few.nodes()[1], [0.5, 0.5])


def test_samples_of_several_columns_are_thinned_to_clusters(rng):
    x = rng.standard_normal((2000, 2)) * [1.0, 1000.0]
    x[:, 1] += 900.0 * x[:, 0]
    thin = Empirical.from_data(x)
    nodes, weights = thin.nodes()
    assert nodes.shape == (100, 2)
    mean = weights @ nodes
    np.testing.assert_allclose(mean, x.mean(axis=0), atol=0.02 * x.std(axis=0).max())
    correlation = (weights * (nodes - mean)[:, 0]) @ (nodes - mean)[:, 1]
    assert correlation == pytest.approx(np.cov(x.T)[0, 1], rel=0.05)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Uniform(1.0, 1.0), "lower < upper"),
        (lambda: Uniform(0.0, 1.0, num_nodes=0), "num_nodes must be a whole number of at least 1"),
        (lambda: Gaussian(0.0, 0.0), "sd must be positive"),
        (lambda: Discrete([0, 1], [0.5, 0.6]), "sum of 1.1"),
        (lambda: Discrete([0, 1], [1.0]), r"one a point, \[2\]"),
        (lambda: Discrete([]), "N >= 1"),
        (lambda: Discrete([np.nan]), "must be finite"),
        (lambda: Empirical([1.0, 2.0], [0.0, 0.0]), "not all zero"),
    ],
)
def test_bad_measures_are_refused(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_nodes_take_another_measures_points():
    held = Nodes(Discrete([0.0, 1.0, 2.0]))
    held.assign(Discrete([3.0, 4.0], [0.2, 0.8]))
    x, w = (a.numpy() for a in held.nodes())
    assert w @ x[:, 0] == pytest.approx(3.8)
    with pytest.raises(ValueError, match="room for"):
        held.assign(Discrete([0.0, 1.0, 2.0, 3.0]))


def test_transport_takes_the_ends_of_the_unit_interval():
    u = np.array([[0.0], [np.nextafter(1.0, 0.0)]])
    for measure, _ in MEASURES.values():
        (first,), (last,) = measure.transport(u)
        least, most = (-np.inf, np.inf) if measure.bounds is None else np.ravel(measure.bounds)
        assert np.isfinite(first)
        assert np.isfinite(last)
        assert least <= first < last <= most
