"""Inputs far from the origin: years, map coordinates, in single precision."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import (
    ChangePoints,
    Linear,
    Matern12,
    Matern32,
    Periodic,
    RationalQuadratic,
    SquaredExponential,
)

import gpflow_gam as gg
from gpflow_gam.kernels.correlation import with_precise_distances
from gpflow_gam.models import IterNCGP

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
    for single, double in zip(result[np.float32], result[np.float64]):
        np.testing.assert_allclose(single, double, atol=1e-4)


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


def joint(posterior, points):
    """Mean and covariance of components at points of their own."""
    mean, prior, h = posterior.joint_parts(points)
    return [mean, prior - tf.matmul(h, h, transpose_b=True)]


def test_models_far_from_the_origin_are_those_at_it(rng):
    X, result = _inputs(rng, 40), []
    kernel = lambda: gg.kernels.AdditiveKernel({"f": RationalQuadratic(1.3, 0.6)})
    with _in(np.float32):
        for shift in (0.0, FAR):
            here = (X + shift).astype(np.float32)
            Y = np.sin(X[:, :1]).astype(np.float32)
            inducing = gg.inducing_variables.AdditiveInducingVariables([here[:12]])
            sparse = gg.models.AdditiveSGPR((here, Y), kernel(), inducing, 0.2)
            newton = IterNCGP(
                (here, Y), kernel(), gpflow.likelihoods.Gaussian(0.1), solver="newton"
            )
            gg.optimizers.fit(newton, hyperparameters=False)
            result.append(
                [
                    newton.elbo(),
                    *newton.predict_f(here[:5]),
                    *newton.predict_components(here[:5]),
                    *joint(newton.posterior(), {"f": here[:5]}),
                    sparse.elbo(),
                    *sparse.predict_f(here[:5]),
                    gpflow.covariances.Kuf(inducing, kernel(), here),
                ]
            )
    for near, far in zip(*result):
        np.testing.assert_allclose(near, far, rtol=1e-4, atol=1e-4)
