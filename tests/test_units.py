"""The units of a response and of inputs do not matter: a fit in others is the same fit."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gpflow
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from gpflow.kernels import (
    ChangePoints,
    Constant,
    Linear,
    Matern12,
    Matern32,
    Periodic,
    RationalQuadratic,
    SquaredExponential,
)
from gpflow.utilities import positive
from problems import assert_close
from response_cases import responses

import gpflow_gam as gg
from gpflow_gam import linear, s
from gpflow_gam.kernels import CentredLinear, ZeroMean
from gpflow_gam.kernels.correlation import with_precise_distances
from gpflow_gam.measures import Uniform

TARGET = 1e-6
"""How much predictions and standard errors may differ, relative to the largest."""


@dataclass(frozen=True)
class Units:
    """What one of the response, and one of the inputs, is called; and where inputs begin."""

    y: float = 1.0
    x: float = 1.0
    origin: float = 0.0

    def inputs(self, x: np.ndarray) -> np.ndarray:
        return self.origin + self.x * x


OTHERS = [
    pytest.param(Units(y=1e-6), id="small-y"),
    pytest.param(Units(y=3e4), id="dollars", marks=pytest.mark.slow),
    pytest.param(Units(y=1e6), id="large-y", marks=pytest.mark.slow),
    pytest.param(Units(x=1e-6), id="small-x", marks=pytest.mark.slow),
    pytest.param(Units(x=1e6), id="large-x", marks=pytest.mark.slow),
    pytest.param(Units(x=1e6, origin=1e9), id="timestamps"),
    pytest.param(Units(y=1e-6, x=1e6, origin=1e9), id="all"),
]
NUMBER = 40


def same(got: object, want: object, unit: float = 1.0, tolerance: float = TARGET) -> None:
    """``got`` is ``want`` in another unit, up to a share of the largest value."""
    got, want = np.asarray(got) / unit, np.asarray(want)
    np.testing.assert_allclose(got, want, rtol=0.0, atol=tolerance * np.abs(want).max())


def numbers() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    X = rng.uniform(size=(NUMBER, 2))
    f = np.sin(6 * X[:, :1]) + 0.5 * X[:, 1:]
    return X, f + 0.2 * rng.standard_normal((NUMBER, 1))


def new_points() -> np.ndarray:
    return np.random.default_rng(6).uniform(size=(15, 2))


def kernel(units: Units) -> gg.kernels.AdditiveKernel:
    u, length = units.y, units.x
    low, high = (float(units.inputs(np.array(e))) for e in (-0.1, 1.1))
    return gg.kernels.AdditiveKernel(
        {
            "level": Constant(4.0 * u**2),
            "wave": ZeroMean(
                SquaredExponential(1.2 * u**2, 0.3 * length, active_dims=[0]), Uniform(low, high)
            ),
            "rough": Matern32(0.1 * u**2, 0.4 * length, active_dims=[1]),
            # a centre that single precision does not hold
            "line": CentredLinear(
                float(units.inputs(np.array(0.3))), (u / length) ** 2, active_dims=[1]
            ),
        }
    )


def inducing(units: Units) -> gg.inducing_variables.AdditiveInducingVariables:
    Z = np.linspace(0.0, 1.0, 12)[:, None]
    return gg.inducing_variables.AdditiveInducingVariables(
        {
            "level": np.zeros((1, 0)),
            "wave": units.inputs(Z),
            "rough": units.inputs(Z[::2]),
            "line": units.inputs(Z[[0, -1]]),
        }
    )


def data(units: Units) -> tuple[np.ndarray, np.ndarray]:
    X, Y = numbers()
    return units.inputs(X), units.y * Y


# --- models by hand ------------------------------------------------------------------------------


def collapsed(units: Units) -> gg.models.AdditiveSGPR:
    return gg.models.AdditiveSGPR(data(units), kernel(units), inducing(units), 0.04 * units.y**2)


def sparse(units: Units) -> gg.models.AdditiveSVGP:
    scale = 0.2 * units.y
    model = gg.models.AdditiveSVGP(
        kernel(units),
        gpflow.likelihoods.StudentT(scale, df=4.0, scale_lower_bound=1e-3 * scale),
        inducing(units),
        variational=gg.variational.OptimalPrecision(),
    )
    step = gg.optimizers.NaturalGradient(0.5)
    for _ in range(60):
        step.step(model, data(units))
    return model


def newton(units: Units) -> gg.models.IterNCGP:
    variance = 0.04 * units.y**2
    normal = gpflow.likelihoods.Gaussian(variance, variance_lower_bound=1e-6 * variance)
    return newton_of(data(units), kernel(units), normal)


Model = gg.models.AdditiveSGPR | gg.models.AdditiveSVGP | gg.models.IterNCGP
MODELS: dict[str, Callable[[Units], Model]] = {
    "SGPR": collapsed,
    "SVGP": sparse,
    "IterNCGP": newton,
}


@functools.cache
def reference(name: str) -> Model:
    return MODELS[name](Units())


@pytest.mark.slow_but_first
@pytest.mark.parametrize("units", OTHERS)
@pytest.mark.parametrize("name", MODELS)
def test_models_by_hand(name, units):
    model, other = reference(name), MODELS[name](units)
    X, u = new_points(), units.y
    X2 = units.inputs(X)
    mean, var = model.predict_f(X)
    assert float(np.sqrt(var).min()) < 0.2  # there is something to compare
    mean2, var2 = other.predict_f(X2)
    same(mean2, mean, u)
    same(np.sqrt(var2), np.sqrt(var), u)
    posterior, posterior2 = model.posterior(), other.posterior()
    for got, want, unit in zip(
        posterior2.predict_components(X2), posterior.predict_components(X), (u, u**2)
    ):
        same(got, want, unit)
    draws = (p.sample_components(x, 3, seed=1) for p, x in ((posterior2, X2), (posterior, X)))
    same(*draws, u, tolerance=1e-5)
    arguments = (data(Units()),), (data(units),)
    if name == "SVGP":
        bounds = model.elbo(*arguments[0]), other.elbo(*arguments[1])
    else:
        bounds = model.elbo(), other.elbo()
    assert float(bounds[1]) + NUMBER * np.log(u) == pytest.approx(float(bounds[0]), abs=1e-6)


# --- jitter --------------------------------------------------------------------------------------


@pytest.mark.parametrize("variance", [0.0, 1e-320])
def test_a_component_without_variance(variance):
    """It factorises, explains nothing, and its draws are zero."""
    wave = SquaredExponential(1.0, 0.3, active_dims=[0])
    flat = SquaredExponential(1.0, 0.3, active_dims=[1])
    flat.variance = gpflow.Parameter(variance, transform=None)
    own = gg.kernels.AdditiveKernel({"wave": wave, "flat": flat})
    Z = np.linspace(0.0, 1.0, 10)[:, None]
    variables = gg.inducing_variables.AdditiveInducingVariables([Z, Z])
    X, Y = numbers()
    models = [
        gg.models.AdditiveSGPR((X, Y), own, variables, 0.04),
        newton_of((X, Y), own, gpflow.likelihoods.Gaussian(0.04)),
    ]
    alone = gg.models.AdditiveSGPR(
        (X, Y),
        gg.kernels.AdditiveKernel({"wave": wave}),
        gg.inducing_variables.AdditiveInducingVariables([Z]),
        0.04,
    )
    for model in models:
        draws = model.posterior().sample_components(new_points(), 4, seed=3).numpy()
        assert np.all(np.abs(draws[..., 1, :] if draws.ndim == 4 else draws[..., 1]) < 1e-150)
        assert np.all(np.isfinite(draws))
    assert_close(models[0].predict_f(new_points()), alone.predict_f(new_points()), atol=1e-12)
    with tf.GradientTape() as tape:
        loss = models[0].training_loss()
    for gradient in tape.gradient(loss, models[0].trainable_variables):
        assert np.all(np.isfinite(gradient))


def newton_of(rows: Any, own: Any, likelihood: Any) -> gg.models.IterNCGP:
    model = gg.models.IterNCGP(rows, own, likelihood, solver="newton")
    gg.optimizers.fit(model, hyperparameters=False)
    return model


def test_gradients_see_the_jitter():
    """The factor is that of the same matrix at every variance: doubling scales it, exactly."""
    k = SquaredExponential(1.0, 0.5, active_dims=[0])
    own = gg.kernels.AdditiveKernel({"f": k})
    Z = np.linspace(0.0, 1.0, 15)[:, None]
    variables = gg.inducing_variables.AdditiveInducingVariables([Z])
    with tf.GradientTape() as tape:
        (L,) = gg.covariances.InducingBlocks(variables, own).cholesky()
        value = tf.reduce_sum(tf.math.log(tf.linalg.diag_part(L)))
    slope = tape.gradient(value, k.variance.unconstrained_variable)
    softplus = 1.0 - np.exp(-1.0)  # d variance / d unconstrained, at variance 1
    assert float(slope) == pytest.approx(15 * 0.5 * softplus, rel=1e-9)


# --- single precision ----------------------------------------------------------------------------


def many(dtype: type, variance: float = 1.0, M: int = 20) -> gg.models.AdditiveSGPR:
    gpflow.config.set_default_float(dtype)
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(20_000, 3))
    Y = np.sin(6 * X[:, :1]) + X[:, 1:2] ** 2 + 0.1 * rng.standard_normal((20_000, 1))
    own = [SquaredExponential(variance, 0.3, active_dims=[c]) for c in range(3)]
    Z = np.linspace(0.0, 1.0, M)[:, None].astype(dtype)
    return gg.models.AdditiveSGPR(
        (X.astype(dtype), Y.astype(dtype)),
        gg.kernels.AdditiveKernel(own),
        gg.inducing_variables.AdditiveInducingVariables([Z] * 3),
        0.01,
    )


@pytest.mark.parametrize("variance", [1e-3, 1.0, 30.0])
def test_many_rows_in_single_precision(variance):
    """As in double precision, up to the rounding of data and results."""
    X = np.linspace(0.02, 0.98, 60)[:, None] * np.ones((1, 3))
    eps = float(np.finfo(np.float32).eps)
    single = many(np.float32, variance)
    mean, var = (np.asarray(t) for t in single.predict_f(X.astype(np.float32)))
    bound = float(single.elbo())
    draws = single.posterior().sample_f(X.astype(np.float32), 400, seed=1).numpy()[..., 0]
    double = many(np.float64, variance)
    mean2, var2 = (np.asarray(t) for t in double.predict_f(X))
    assert bound == pytest.approx(float(double.elbo()), rel=20 * eps, abs=0.5)
    same(mean, mean2, tolerance=1e-4)
    np.testing.assert_allclose(var, var2, rtol=1e-2)
    # draws have each component's jitter on top; 400 of them tell a variance to 7 percent
    expected = var2[:, 0] + 3 * 1e-6 * variance
    assert np.all(np.abs(draws.var(axis=0) / expected - 1.0) < 0.35)
    assert np.all(np.abs(draws.mean(axis=0) - mean2[:, 0]) < 5 * np.sqrt(expected / 400) + 1e-3)


@pytest.mark.parametrize(("variance", "unit"), [(1e-3, 1e4), (30.0, 1.0), (30.0, 1e-3)])
def test_sites_in_single_precision(variance, unit):
    """Their precision is up to 1e8 times the prior's; q and the bound are differences of it."""

    def model(dtype: type) -> tuple[gg.models.AdditiveSVGP, tuple[np.ndarray, ...]]:
        own = many(dtype, variance * unit**2, M=12)
        X, Y = (t.numpy()[:3000] for t in own.data)
        likelihood = gpflow.likelihoods.Gaussian()
        likelihood.variance = gpflow.Parameter(1e-3 * unit**2, transform=positive(0.0, "exp"))
        result = gg.models.AdditiveSVGP(
            own.kernel, likelihood, own.inducing_variable,
            variational=gg.variational.OptimalPrecision(),
        )  # fmt: skip
        data = X, (unit * Y).astype(dtype)
        gg.optimizers.NaturalGradient().step(result, tuple(map(tf.constant, data)))
        return result, data

    x = np.linspace(0.02, 0.98, 20)[:, None] * np.ones((1, 3))
    single, data = model(np.float32)
    moments = [np.asarray(t) for t in single.predict_f(x.astype(np.float32))]
    bound = single.elbo(data)
    assert bound.dtype == np.float32
    assert all(m.dtype == np.float32 for m in moments)
    double, data = model(np.float64)
    mean, var = (np.asarray(t) for t in double.predict_f(x))
    assert float(bound) == pytest.approx(float(double.elbo(data)), rel=1e-4, abs=0.5)
    np.testing.assert_allclose(moments[0], mean, atol=1e-3 * unit)
    np.testing.assert_allclose(moments[1], var, rtol=1e-2)


def test_centres_and_levels_keep_their_digits():
    x = np.array([[0.3], [1e9 + 0.3]])
    for row in x:
        assert float(CentredLinear(float(row[0])).K_diag(row[None])[0]) == 0.0
        level = gg.kernels.Indicator(float(row[0]), active_dims=[0])
        assert float(level(row[None])[0, 0]) == 1.0


# --- GAMs ----------------------------------------------------------------------------------------

FAMILIES = ("gaussian", "student_t", "gamma", "tweedie", "heteroskedastic", "quantile")


def table(family: str, units: Units) -> pd.DataFrame:
    rng = np.random.default_rng(8)
    x, z = rng.uniform(size=(2, 150))
    y = responses(np.sin(6 * x) + 0.5 * z, 8)[family]
    return pd.DataFrame({"x": units.inputs(x), "z": units.inputs(z), "y": units.y * y})


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_numeric_by(unit):
    """A function times a column is the same function of the other unit over that unit."""
    data = table("gaussian", Units())
    gams = [
        gg.GAM(s("x", by="w", k=8)).fit(data.assign(w=u * (1.0 + data["z"])), y="y")
        for u in (1.0, unit)
    ]
    rows = [data.assign(w=u * (1.0 + data["z"])).head(20) for u in (1.0, unit)]
    one, other = (g.predict(r, se=True) for g, r in zip(gams, rows, strict=True))
    for got, want in zip(other, one, strict=True):
        same(got, want, 1.0)


@functools.cache
def fitted(family: str, units: Units) -> gg.GAM:
    return gg.GAM(s("x", k=10) + linear("z"), family=family).fit(table(family, units), y="y")


@pytest.mark.slow_but_first
@pytest.mark.parametrize("units", OTHERS)
@pytest.mark.parametrize("family", FAMILIES)
def test_gams(family, units):
    gam, other = fitted(family, Units()), fitted(family, units)
    rows, rows2 = (table(family, u).iloc[:20] for u in (Units(), units))
    for got, want in zip(
        other.predict(rows2, type="response", se=True), gam.predict(rows, type="response", se=True)
    ):
        same(got, want, units.y)
    draws = (g.sample(r, 3, type="response", seed=2) for g, r in ((other, rows2), (gam, rows)))
    same(*draws, units.y, tolerance=1e-5)


# --- inputs far from the origin: years, map coordinates, in single precision ---------------------

FAR = 2000.0


class Warm(SquaredExponential):
    """Of distances, and of where the inputs are."""

    def K(self, X, X2=None):
        there = X if X2 is None else X2
        level = 1.0 + 1e-3 * X[..., :1] @ tf.transpose(1e-3 * there[..., :1])
        return level * super().K(X, X2)


class Held(gpflow.kernels.Kernel):
    """Any kernel that is made of others."""

    def __init__(self, parts):
        super().__init__()
        self.parts = parts

    def K(self, X, X2=None):
        return sum(k(X, X2) for k in self.parts.values())

    def K_diag(self, X):
        return sum(k(X, full_cov=False) for k in self.parts.values())


KERNELS = {
    "se": lambda: SquaredExponential(1.3, 0.6),
    "ard": lambda: Matern32(1.3, [0.6, 0.9], active_dims=slice(0, 2)),
    "rational quadratic": lambda: RationalQuadratic(1.3, 0.6, active_dims=[1]),
    "sum and product": lambda: (
        Linear(1e-6) + Matern12(active_dims=[1]) * (SquaredExponential() + Linear(1e-6))
    ),
    "periodic": lambda: Periodic(SquaredExponential(1.3, 0.6)),
    "change points": lambda: ChangePoints(
        [SquaredExponential(1.3, 0.6, active_dims=[0]), Matern32(0.5, 0.6, active_dims=[0])],
        [FAR + 0.5],
    ),
    "columns": lambda: gg.kernels.OnColumns(Matern32(1.0, 0.6) * SquaredExponential(), [1, 0]),
    "subclass": lambda: Warm(1.3, 0.6),
    "custom": lambda: Held({"a": Matern32(0.7, 0.6), "b": Linear(1e-6)}),
}


def _inputs(rng, n=30, columns=2):
    """Inputs that single precision holds exactly, here and far away."""
    return rng.integers(0, 700, (n, columns)) / 256.0


def _in(dtype):
    return gpflow.config.as_context(gpflow.config.Config(float=dtype))


@pytest.mark.parametrize("name", KERNELS)
def test_single_precision_far_from_the_origin_is_that_of_double(name, rng):
    columns = 1 if name == "change points" else 2
    X, X2 = FAR + _inputs(rng, 30, columns), FAR + _inputs(rng, 9, columns)
    result = {}
    for dtype in (np.float32, np.float64):
        with _in(dtype):
            kernel = KERNELS[name]()
            if dtype == np.float32:
                kernel = with_precise_distances(kernel)
            near, there = tf.constant(X.astype(dtype)), tf.constant(X2.astype(dtype))
            with tf.GradientTape() as tape:
                tape.watch((near, there))
                matrices = kernel(near), kernel(near, there)
                value = tf.reduce_sum(matrices[0]) + tf.reduce_sum(tf.sin(3.0 * matrices[1]))
            sources = [near, there, *kernel.trainable_variables]
            slopes = tape.gradient(value, sources, unconnected_gradients="zero")
            result[dtype] = [*matrices, *(s / (1.0 + np.abs(s).max()) for s in slopes)]
    assert_close(result[np.float32], result[np.float64], atol=1e-4)


def test_the_kernel_stays_as_it_is_and_so_do_distances_of_its_own(rng):
    class Own(SquaredExponential):
        def scale(self, X):
            return X if X is None else tf.square(X)

    kernel, X = Held({"a": Own(), "b": Matern32()}), FAR + _inputs(rng)
    shell, before = with_precise_distances(kernel), dict(vars(kernel.parts["b"]))
    assert shell is not kernel
    assert shell.parts["a"] is kernel.parts["a"]
    assert vars(kernel.parts["b"]) == before
    assert shell.trainable_variables == kernel.trainable_variables
    np.testing.assert_allclose(shell(X), kernel(X), atol=1e-6)
    others = Linear() + Linear()
    assert with_precise_distances(others) is others


def test_models_far_from_the_origin_are_those_at_it(rng):
    X, result = _inputs(rng, 40), []
    kernel = lambda: gg.kernels.AdditiveKernel({"f": RationalQuadratic(1.3, 0.6)})
    with _in(np.float32):
        for shift in (0.0, FAR):
            here = (X + shift).astype(np.float32)
            Y = np.sin(X[:, :1]).astype(np.float32)
            inducing = gg.inducing_variables.AdditiveInducingVariables([here[:12]])
            sparse = gg.models.AdditiveSGPR((here, Y), kernel(), inducing, 0.2)
            newton = newton_of((here, Y), kernel(), gpflow.likelihoods.Gaussian(0.1))
            # mean and covariance of a component at points of its own
            mean, prior, h = newton.posterior().joint_parts({"f": here[:5]})
            result.append(
                [
                    newton.elbo(),
                    *newton.predict_f(here[:5]),
                    *newton.predict_components(here[:5]),
                    mean,
                    prior - tf.matmul(h, h, transpose_b=True),
                    sparse.elbo(),
                    *sparse.predict_f(here[:5]),
                    gpflow.covariances.Kuf(inducing, kernel(), here),
                ]
            )
    assert_close(*result, rtol=1e-4, atol=1e-4)
