"""The additive kernel, and the components that GPflow lacks."""

import re

import gpflow
import numpy as np
import problems
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.kernels import (
    Constant,
    Exponential,
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
from gpflow.utilities import positive
from problems import assert_close
from scipy.integrate import quad

from gpflow_gam import bijectors
from gpflow_gam.kernels import (
    AdditiveKernel,
    CentredLinear,
    Factor,
    Indicator,
    IntegratedOU,
    MarkovField,
    OnColumns,
    OnSphere,
    RandomWalk,
    Warped,
    ZeroMean,
    kernel_columns,
)
from gpflow_gam.kernels.additive import stack_parameters
from gpflow_gam.kernels.correlation import parameters_of, with_values
from gpflow_gam.kernels.fixed_inputs import _Automatic, _Known, fixed_input_kernel
from gpflow_gam.kernels.terms import integrated_hats, unit_vectors
from gpflow_gam.measures import Discrete, Gaussian, Uniform

STACKABLE = {
    "se": lambda d: SquaredExponential(0.7, 0.4, active_dims=[d]),
    "se ard": lambda d: SquaredExponential(0.7, [0.4, 0.9], active_dims=[d, 3]),
    "exponential": lambda d: Exponential(0.7, 0.4, active_dims=[d]),
    "matern12": lambda d: Matern12(0.7, 0.4, active_dims=[d]),
    "matern32": lambda d: Matern32(0.7, 0.4, active_dims=[d, 3]),
    "matern52": lambda d: Matern52(0.7, 0.4, active_dims=[d]),
    "periodic": lambda d: Periodic(SquaredExponential(0.7, 0.4, active_dims=[d]), period=0.8),
    "periodic 2d": lambda d: Periodic(
        SquaredExponential(0.7, [0.4, 0.6], active_dims=[d, 3]), period=[0.8, 1.3]
    ),
    "constant": lambda d: Constant(0.7 + d),
    "product": lambda d: Product(
        [SquaredExponential(0.7, 0.4, active_dims=[d]), Matern32(1.2, 0.8, active_dims=[3])]
    ),
    "lines and a smooth": lambda d: Sum(
        [
            CentredLinear(0.3, 0.5, active_dims=[3]),
            Matern32(0.7, [0.4, 0.9], active_dims=[d, 3]),
            CentredLinear(0.1 * d, 1.5, active_dims=[d]),
        ]
    ),
    "factor": lambda d: Factor(0.7, active_dims=[4]),
    "by": lambda d: Product(
        [Indicator(d, active_dims=[4]), SquaredExponential(0.7, 0.4, active_dims=[d])]
    ),
    "zero mean": lambda d: ZeroMean(
        SquaredExponential(0.7, 0.4, active_dims=[d]), Uniform(-0.1, 1.0 + d)
    ),
    "zero mean quadrature": lambda d: ZeroMean(
        Matern52(0.7, 0.4, active_dims=[d]), Gaussian(0.1 * d, 1.0)
    ),
    "globe": lambda d: OnSphere(Matern52(1.3, 0.7, active_dims=[0, 1, 2]), [d, 3]),
    "warped": lambda d: Warped(
        SquaredExponential(1.3, 0.7, active_dims=[0]), [0.0, 0.2, 1.0], [0.5, 2.0, 1.0 + d], [d]
    ),
    "zero mean factor": lambda d: ZeroMean(
        Factor(0.7, active_dims=[4]), Discrete(np.arange(3), [0.5, 0.3, 0.2])
    ),
}


@pytest.fixture
def X(rng: np.random.Generator) -> np.ndarray:
    return np.column_stack([rng.uniform(size=(9, 4)), rng.integers(0, 3, size=9)])


@pytest.mark.parametrize("make", STACKABLE.values(), ids=STACKABLE)
def test_batched_components_equal_one_by_one(make, X, rng):
    kernels = [make(d) for d in range(3)]
    additive = AdditiveKernel(kernels)
    assert len(additive.groups()) == 1, "these are to be evaluated in one batch"
    X2 = np.column_stack([rng.uniform(size=(6, 4)), rng.integers(0, 3, size=6)])
    loop = np.stack([k(X, X2) for k in kernels])
    np.testing.assert_allclose(additive.K_components(X, X2), loop, rtol=1e-11, atol=1e-12)
    weights = tf.constant(rng.standard_normal((3, 9, 9)))
    with tf.GradientTape(persistent=True) as tape:
        batched, loop = additive.K_components(X), tf.stack([k(X) for k in kernels])
        diagonals = additive.K_diag_components(X), [k(X, full_cov=False) for k in kernels]
        sums = [tf.reduce_sum(weights * K) for K in (batched, loop)]
    np.testing.assert_allclose(batched, loop, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(*diagonals, rtol=1e-11, atol=1e-12)
    variables = additive.trainable_variables
    assert_close(*(tape.gradient(total, variables) for total in sums), rtol=1e-9, atol=1e-10)


def test_additive_kernel_equals_gpflow_sum(problem):
    """For inputs in GPflow's batch shapes, too."""
    ours, theirs = problem.kernel(), gpflow.kernels.Sum(list(problem.kernel().kernels))
    inputs = problem.X
    batches = inputs[:24].reshape(2, 4, 3, 3), inputs[24:34].reshape(2, 5, 3)
    for X, X2 in ((inputs, inputs[:7] + 0.1), batches):
        np.testing.assert_allclose(ours(X), theirs(X), rtol=1e-12)
        np.testing.assert_allclose(ours(X, full_cov=False), theirs(X, full_cov=False), rtol=1e-12)
        np.testing.assert_allclose(ours(X, X2), theirs(X, X2), rtol=1e-11, atol=1e-12)
    total = tf.reduce_sum(ours.K_components(inputs), axis=0)
    np.testing.assert_allclose(total, theirs(inputs), rtol=1e-11)


def test_gpflow_traces_it_without_a_warning(problem, caplog, monkeypatch):
    """Its models have AutoGraph look at all that they call."""
    monkeypatch.setattr(tf.get_logger(), "propagate", True)
    X = problem.X[:20]
    model = gpflow.models.GPR((X, X[:, :1]), problem.kernel())
    gpflow.optimizers.Scipy().minimize(
        model.training_loss, model.trainable_variables, options={"maxiter": 1}
    )
    assert not caplog.records


def test_kernel_matrix_of_gpr_is_accumulated_where_it_is_large():
    X, _, kernel, _ = problems.like(num_components=3, num_data=2400)
    ours = kernel()
    assert not ours._stacks(X, None)
    np.testing.assert_allclose(
        ours(X)[:5, :5], tf.reduce_sum(ours.K_components(X[:5]), axis=0), rtol=1e-10
    )


def test_components_are_named_and_found():
    kernel = AdditiveKernel(
        [
            Constant(),
            SquaredExponential(active_dims=[2]),
            SquaredExponential(active_dims=[2]),
            Product([Linear(active_dims=[1]), Linear(active_dims=[0])]),
        ]
    )
    assert kernel.names == ("constant", "f2", "f2#2", "f0_1")
    assert kernel["f2#2"] is kernel.kernels[2]
    assert kernel.columns == ((), (2,), (2,), (0, 1))
    with pytest.raises(KeyError, match="no component 'temp'; there are constant, f2"):
        kernel["temp"]


@pytest.mark.parametrize(
    ("kernel", "columns"),
    [
        (Constant(), ()),
        (SquaredExponential(), None),
        (SquaredExponential(active_dims=slice(1, 3)), (1, 2)),
        (SquaredExponential(active_dims=[3, 1]), (3, 1)),
        (SquaredExponential(active_dims=[3]) + Linear(active_dims=[0]), (0, 3)),
    ],
)
def test_columns_that_a_kernel_reads(kernel, columns):
    assert kernel_columns(kernel) == columns


def test_bad_components_are_refused():
    se = SquaredExponential(active_dims=[0])
    with pytest.raises(ValueError, match="same kernel object twice"):
        AdditiveKernel({"a": se, "b": se})
    with pytest.raises(TypeError, match=r"components\['a'\] must be a single-output gpflow kernel"):
        AdditiveKernel({"a": "se"})
    for members in ([True, False], [[True], [False]]):
        with pytest.raises(ValueError, match=r"members must be \[L, 2\]"):
            AdditiveKernel([se, Constant()], members)
    kernel = AdditiveKernel([se, Constant()], [[True, False], [True, True]])
    assert [part.names for part in kernel.latent_kernels] == [("f0",), ("f0", "constant")]
    with pytest.raises(ValueError, match="repeat a column"):
        AdditiveKernel([SquaredExponential(active_dims=[1, 1])])


def test_missing_column_is_named():
    kernel = AdditiveKernel({"temp": SquaredExponential(active_dims=[5])})
    with pytest.raises(ValueError, match="component 'temp' reads column 5, but X has only 3 col"):
        kernel(np.zeros((2, 3)))


@pytest.mark.parametrize("transform", [None, positive(), positive(lower=1e-3)])
@pytest.mark.parametrize("mixed", [False, True])
def test_parameters_read_together_are_those_read_one_by_one(transform, mixed):
    values = [1e-30, 1e-9, 0.3, 700.0] if transform is None else [0.6, 1.0, 2.0, 700.0]
    made = [gpflow.Parameter(v, transform=transform) for v in values]
    if transform is not None:
        made[0].unconstrained_variable.assign(-300.0)
    if mixed:
        made.append(gpflow.Parameter(0.7, transform=positive(lower=0.1)))
    with tf.GradientTape(persistent=True) as tape:
        together = stack_parameters(made, rank=2)
        alone = tf.stack([tf.convert_to_tensor(p) for p in made])[:, None]
    assert together.shape == (len(made), 1)
    np.testing.assert_allclose(together, alone, rtol=1e-14)
    for p in made:
        slopes = (tape.gradient(v, p.unconstrained_variable) for v in (together, alone))
        np.testing.assert_allclose(*slopes, rtol=1e-14)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (bijectors.exponential(), tfp.bijectors.Exp()),
        (bijectors.softplus(), tfp.bijectors.Softplus()),
        (bijectors.identity(), tfp.bijectors.Identity()),
        (bijectors.exponential(0.25), gpflow.utilities.positive(lower=0.25, base="exp")),
        (bijectors.softplus(0.25), gpflow.utilities.positive(lower=0.25)),
    ],
    ids=lambda b: type(b).__name__,
)
def test_values_are_theirs(ours, theirs):
    y = getattr(ours, "lower", 0.0) + np.array([1e-12, 1e-3, 0.7, 10.0, 24.0, 50.0, 400.0])
    np.testing.assert_allclose(ours.inverse(y), theirs.inverse(y), rtol=1e-13)
    np.testing.assert_allclose(ours.forward(ours.inverse(y)), y, rtol=1e-13)
    x = np.array([-50.0, -1.0, 0.0, 3.0, 50.0])
    np.testing.assert_allclose(ours.forward(x), theirs.forward(x), rtol=1e-13)
    for det, at in ("forward_log_det_jacobian", x), ("inverse_log_det_jacobian", y[1:-1]):
        got, want = (getattr(b, det)(tf.constant(at), 0) for b in (ours, theirs))
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-14)


def test_parameters_of_two_bounds_are_not_read_together():
    made = [gpflow.Parameter(2.0, transform=bijectors.softplus(lower)) for lower in (0.0, 0.5)]
    np.testing.assert_allclose(bijectors.flat_values(made), [2.0, 2.0], rtol=1e-14)


# --- matrices and derivatives in numpy -----------------------------------------------------------


def measure(dimension: int = 1, number: int = 20) -> Discrete:
    rng = np.random.default_rng(number)
    return Discrete(rng.uniform(size=(number, dimension)), rng.dirichlet(np.ones(number)))


def cyclic() -> Periodic:
    kernel = Periodic(SquaredExponential(1.5, 0.7, active_dims=[0]), period=0.8)
    gpflow.set_trainable(kernel.period, False)
    return kernel


LEVELS = Discrete(np.array([0.0, 1.0, 2.0]), [0.2, 0.3, 0.5])
KNOWN = {
    "se": lambda: SquaredExponential(2.0, 0.3, active_dims=[1]),
    "matern12": lambda: Matern12(2.0, 0.3, active_dims=[1]),
    "matern32 centred": lambda: ZeroMean(Matern32(2.0, 3.0, active_dims=[1]), measure()),
    "matern52 centred": lambda: ZeroMean(Matern52(2.0, 0.3, active_dims=[1]), measure()),
    "two lengthscales": lambda: ZeroMean(Matern52(2.0, [0.3, 0.9], active_dims=[0, 1]), measure(2)),
    "surface": lambda: ZeroMean(
        SquaredExponential(2.0, [0.3, 0.9], active_dims=[1, 0]), measure(2)
    ),
    "isotropic": lambda: ZeroMean(SquaredExponential(0.5, 0.6, active_dims=[0, 1]), measure(2)),
    "cyclic on a level": lambda: Product(
        [ZeroMean(cyclic(), measure()), Indicator(1.0, active_dims=[2])]
    ),
    "levels": lambda: ZeroMean(Factor(2.0, active_dims=[2]), LEVELS),
    "line": lambda: CentredLinear(0.3, 2.0, active_dims=[0]),
    "constant": lambda: Constant(3.0),
    "interaction": lambda: Product(
        [
            ZeroMean(Matern52(1.3, 0.3, active_dims=[0]), measure()),
            ZeroMean(SquaredExponential(1.0, 0.8, active_dims=[1]), measure(1, 15)),
        ]
    ),
    "smooth by level": lambda: ZeroMean(
        OnColumns(
            Product([Matern52(1.0, 0.4, active_dims=[0]), Factor(1.7, active_dims=[1])]), [1, 2]
        ),
        Discrete(np.array([[0.1, 0.0], [0.5, 1.0], [0.9, 2.0], [0.3, 2.0]])),
    ),
}


class Own(SquaredExponential):
    """A user's, with a name of ours."""

    correlation = 0.5


OTHERS = {
    "a user's own": lambda: Own(1.2, 0.4, active_dims=[1]),
    "not a kernel of terms": lambda: RationalQuadratic(1.2, 0.4, alpha=0.7, active_dims=[1]),
    "a measure that is no list of points": lambda: ZeroMean(
        SquaredExponential(1.2, 0.4, active_dims=[1]), Uniform(-2.0, 3.0)
    ),
    "a period that is learnt": lambda: Periodic(
        SquaredExponential(1.5, 0.7, active_dims=[0]), period=0.8
    ),
}


@pytest.fixture
def inputs(rng):
    Z = np.c_[rng.uniform(size=(7, 2)), rng.integers(0, 3, 7)]
    X = np.c_[rng.uniform(size=(11, 2)), rng.integers(0, 3, 11)]
    return Z, X


def compare(tangents, kernel, inputs, rng) -> None:
    """Matrices with GPflow's, gradients with TensorFlow's."""
    Z, X = inputs
    result, pullback = tangents.evaluate(lambda p: p.numpy())
    upstream = tuple(rng.standard_normal(m.shape) for m in result)
    with tf.GradientTape() as tape:
        expected = kernel(Z), kernel(Z, X), kernel(X, full_cov=False)
        total = tf.add_n([tf.reduce_sum(u * e) for u, e in zip(upstream, expected)])
    assert_close(result, expected, atol=1e-13)
    parameters = [p for p in kernel.parameters if p.trainable]
    slopes = tape.gradient(total, [p.unconstrained_variable for p in parameters])
    gradients: dict[int, np.ndarray] = {}
    for p, gradient in pullback(upstream):
        gradients[id(p)] = gradients.get(id(p), 0.0) + gradient
    for p, slope in zip(parameters, slopes):
        u = tf.constant(p.unconstrained_variable.numpy())
        with tf.GradientTape() as inner:
            inner.watch(u)
            value = p.transform.forward(u)
        chained = inner.gradient(value, u, output_gradients=tf.constant(gradients[id(p)]))
        np.testing.assert_allclose(chained, slope, rtol=1e-9, atol=1e-12)


def test_long_lengthscales_keep_their_digits(inputs):
    Z, X = inputs
    kernel = ZeroMean(Matern52(1.0, 1e4, active_dims=[0]), measure())
    (K, Kzx, _), _ = fixed_input_kernel(kernel, Z, X).evaluate(lambda p: p.numpy())
    assert 0.0 < np.abs(Kzx).max() < 1e-7
    np.testing.assert_allclose(Kzx, kernel(Z, X), rtol=1e-6)
    np.testing.assert_allclose(K, kernel(Z), rtol=1e-6)


def test_values_of_others_are_used_and_the_kernel_stays(inputs):
    Z, X = inputs
    for make in KNOWN.values():
        kernel, other = make(), make()
        for p in other.trainable_parameters:
            p.assign(1.7 * p)
        before = kernel(Z, X).numpy()
        values = {id(p): o.numpy() for p, o in zip(parameters_of(kernel), parameters_of(other))}
        (K, _, _), _ = fixed_input_kernel(kernel, Z, X).evaluate(lambda p, v=values: v[id(p)])
        np.testing.assert_allclose(K, other(Z), atol=1e-13)
        shell = with_values(kernel, [values[id(p)] for p in parameters_of(kernel)])
        np.testing.assert_allclose(shell(Z, X), other(Z, X), atol=1e-13)
        np.testing.assert_array_equal(kernel(Z, X), before)
        assert len(kernel.parameters) == len(other.parameters)


@pytest.mark.parametrize("extreme", [0.0, 1e-200, 1e200])
@pytest.mark.parametrize("name", ["se", "two lengthscales", "cyclic on a level", "interaction"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_values_out_of_range_are_no_errors_of_pythons(name, extreme, inputs):
    """A search tries them, and looks at what comes of it."""
    kernel = KNOWN[name]()
    values = {id(p): np.full(p.shape.as_list(), extreme) for p in parameters_of(kernel)}
    Z, X = inputs
    matrices, pullback = fixed_input_kernel(kernel, Z, X).evaluate(lambda p: values[id(p)])
    assert [m.shape for m in matrices] == [(len(Z), len(Z)), (len(Z), len(X)), (len(X),)]
    result = pullback([np.ones_like(m) for m in matrices])
    assert {id(p) for p, _ in result} <= set(values)


# --- Our kernels in batches and in numpy, and what those on the globe and along a line are -------

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
    "areas": lambda: MarkovField(4, [(0, 1), (1, 2), (2, 3)], 2.0, 0.5, active_dims=[2]),
}


def points_of(number, seed=0):
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.uniform(-2.0, 3.0, (number, 2)), rng.integers(0, 4, number)])


@pytest.mark.parametrize(
    "name", [*KERNELS, "line", "levels", "cyclic on a level", "a measure that is no list of points"]
)
def test_shapes_and_batches(name):
    kernel = {**KERNELS, **KNOWN, **OTHERS}[name]()
    X, X2 = points_of(6), points_of(4, 1)
    K = np.asarray(kernel(X, X2))
    pairs = [[np.asarray(kernel(x[None], y[None]))[0, 0] for y in X2] for x in X]
    np.testing.assert_allclose(K, pairs, atol=1e-12)
    np.testing.assert_allclose(kernel(X), kernel(X, X), atol=1e-12)
    np.testing.assert_allclose(np.diag(kernel(X)), kernel(X, full_cov=False), atol=1e-12)
    batch = np.stack([X, X[::-1]])
    np.testing.assert_allclose(kernel(batch)[1], kernel(X[::-1]), atol=1e-12)
    np.testing.assert_allclose(kernel(batch, X2)[1], kernel(X[::-1], X2), atol=1e-12)
    assert np.linalg.eigvalsh(kernel(points_of(40))).min() > -1e-9


@pytest.mark.parametrize("name", [*KERNELS, *KNOWN, *OTHERS])
def test_numpy_has_the_same_matrices_and_gradients(name, rng):
    kernel, inputs = {**KERNELS, **KNOWN, **OTHERS}[name](), (points_of(4, 1), points_of(6))
    known = fixed_input_kernel(kernel, *inputs)
    assert isinstance(known, _Automatic if name in OTHERS else _Known)
    compare(known, kernel, inputs, rng)


@pytest.mark.parametrize("code", [-1.0, 4.0])
def test_what_is_no_area_is_zero(code):
    kernel, X = KERNELS["areas"](), points_of(5)
    outside = np.array([[0.0, 0.0, code]])
    both = np.concatenate([outside, X])
    _, across, diagonal = fixed_input_kernel(kernel, X, both).matrices(lambda p: p.numpy())
    assert_close([across, diagonal], [kernel(X, both), kernel(both, full_cov=False)], atol=1e-13)
    assert not across[:, 0].any()
    assert diagonal[0] == 0.0


# --- the globe -----------------------------------------------------------------------------------


def test_distances_through_the_globe():
    kernel = sphere()
    degrees = np.array([[0.0, 0.0], [0.0, 90.0], [90.0, 17.0], [0.0, 180.0]])
    np.testing.assert_allclose(unit_vectors(degrees)[:3], np.eye(3), atol=1e-15)
    chord = np.array([0.0, np.sqrt(2.0), np.sqrt(2.0), 2.0])
    base = gpflow.kernels.Matern52(1.3, 0.7)
    expected = base(np.zeros((1, 1)), chord[:, None])
    np.testing.assert_allclose(kernel(degrees[:1], degrees), expected, atol=1e-12)


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


@pytest.mark.parametrize(("kind", "least"), [(RandomWalk, 2), (IntegratedOU, 3)])
def test_measures_of_too_few_points_are_refused(kind, least):
    few = least - 1
    for measure in (
        Discrete(np.arange(few)),
        Discrete(np.arange(few + 2) % few),
        Discrete(np.arange(least), [1.0 / few] * few + [0.0]),
        Discrete(np.random.default_rng(0).uniform(size=(5, 2))),
        Uniform(0.0, 1.0),
    ):
        message = f"{least} distinct points or more of one column; got {measure!r}"
        with pytest.raises(ValueError, match=re.escape(message)):
            kind(measure)


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


def test_warp_is_the_integral_of_its_slope():
    speeds = np.array([0.5, 2.0, 3.0, 0.7])
    x = np.array([-2.5, -1.0, -0.4, 0.3, 0.5, 1.9, 3.0])

    def integral(end):
        return quad(lambda u: np.interp(u, KNOTS, speeds), KNOTS[0], end, points=KNOTS)[0]

    expected = [integral(end) for end in x]
    np.testing.assert_allclose(integrated_hats(x, KNOTS) @ speeds, expected, atol=1e-7)
    base = gpflow.kernels.SquaredExponential(1.3, 0.7)
    np.testing.assert_allclose(warped()(x[:, None]), base(np.array(expected)[:, None]), atol=1e-6)
