"""The additive kernel, and the components that GPflow lacks."""

from __future__ import annotations

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
    SquaredExponential,
    Sum,
)
from gpflow.utilities import positive

from gpflow_gam import bijectors
from gpflow_gam.kernels import (
    AdditiveKernel,
    Factor,
    Indicator,
    OnSphere,
    Warped,
    ZeroMean,
    kernel_columns,
)
from gpflow_gam.kernels.additive import stack_parameters
from gpflow_gam.kernels.terms import CentredLinear
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
    for a, b in zip(*(tape.gradient(total, variables) for total in sums)):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)


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


def test_kernel_matrix_of_gpr_is_accumulated_where_it_is_large(rng):
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


# --- transforms ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (bijectors.exponential(), tfp.bijectors.Exp()),
        (bijectors.softplus(), tfp.bijectors.Softplus()),
        (bijectors.identity(), tfp.bijectors.Identity()),
    ],
    ids=lambda b: type(b).__name__,
)
def test_values_are_theirs(ours, theirs):
    y = np.array([1e-12, 1e-3, 0.7, 10.0, 24.0, 50.0, 400.0])
    np.testing.assert_allclose(ours.inverse(y), theirs.inverse(y), rtol=1e-13)
    np.testing.assert_allclose(ours.forward(ours.inverse(y)), y, rtol=1e-13)
    x = np.array([-50.0, -1.0, 0.0, 3.0, 50.0])
    np.testing.assert_allclose(ours.forward(x), theirs.forward(x), rtol=1e-13)
