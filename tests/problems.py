"""Small seeded problems that many tests share, and numpy references written as loops."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pandas as pd
import tensorflow as tf
from gpflow.kernels import (
    Constant,
    Kernel,
    Linear,
    Matern32,
    Periodic,
    Product,
    RationalQuadratic,
    SquaredExponential,
)
from scipy.signal import lfilter

import gpflow_gam as gg

AdditiveKernel = gg.kernels.AdditiveKernel
AdditiveInducingVariables = gg.inducing_variables.AdditiveInducingVariables


@dataclass
class Problem:
    """Data, and fresh kernels and inducing variables on each call."""

    X: np.ndarray
    Y: np.ndarray
    Z: dict[str, np.ndarray]

    def kernel(self) -> AdditiveKernel:
        components = mixed_components()
        return AdditiveKernel({name: components[name] for name in self.Z})

    def inducing(self, **options: bool) -> AdditiveInducingVariables:
        return AdditiveInducingVariables(self.Z, **options)

    def svgp(
        self, likelihood: gpflow.likelihoods.Likelihood | None = None, **options: Any
    ) -> gg.models.AdditiveSVGP:
        likelihood = likelihood or gpflow.likelihoods.Gaussian()
        return gg.models.AdditiveSVGP(self.kernel(), likelihood, self.inducing(), **options)

    def sgpr(self) -> gg.models.AdditiveSGPR:
        return gg.models.AdditiveSGPR(self.data, self.kernel(), self.inducing(), 0.2)

    @property
    def data(self) -> tuple[np.ndarray, np.ndarray]:
        return self.X, self.Y

    @property
    def total(self) -> int:
        return sum(len(Z) for Z in self.Z.values())


def table(n: int = 120, seed: int = 3) -> pd.DataFrame:
    """A wave along x, a line along z, which goes with x, levels, and responses of their sum."""
    rng = np.random.default_rng(seed)
    df = pd.DataFrame({"x": rng.uniform(size=n)})
    df["z"] = df["x"] + 0.3 * rng.normal(size=n)
    df["g"] = rng.choice(["a", "b", "c"], n)
    f = np.sin(5 * df["x"]) + 0.4 * df["z"] + df["g"].map({"a": 0.0, "b": 0.5, "c": -0.5})
    df["y"] = 3.0 + f + 0.3 * rng.standard_normal(n)
    df["log_e"] = rng.uniform(0, 1, n)
    df["w"] = rng.integers(1, 4, n)
    df["count"] = rng.poisson(np.exp(0.5 * f + df["log_e"]))
    df["kind"] = np.array(["u", "v", "w"])[np.digitize(f + rng.logistic(size=n), [-0.3, 1.0])]
    return df


def mixed_components() -> dict[str, Kernel]:
    """Groups that interleave, kernels without a batched form, different M_c, D_c, a constant."""
    return {
        "a": SquaredExponential(1.3, 0.3, active_dims=[0]),
        "line": Linear(0.5, active_dims=[1]),
        "b": SquaredExponential(0.7, 0.5, active_dims=[2]),
        "level": Constant(0.4),
        "rq": RationalQuadratic(0.8, 0.6, active_dims=[1]),
        "c": SquaredExponential(0.5, 0.4, active_dims=[1]),
        "ab": Product(
            [SquaredExponential(0.6, 0.5, active_dims=[0]), Matern32(0.9, 0.8, active_dims=[2])]
        ),
        "cycle": Periodic(SquaredExponential(0.5, 0.7, active_dims=[2]), period=1.0),
    }


def few(num_data: int = 60) -> Problem:
    """Four of the components, for tests that evaluate many times: a batched pair, split in two."""
    whole = mixed(num_data)
    return Problem(whole.X, whole.Y, {n: whole.Z[n] for n in ("a", "level", "c", "rq")})


def mixed(num_data: int = 60, seed: int = 1) -> Problem:
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(num_data, 3))
    Y = np.sin(6 * X[:, :1]) + X[:, 1:2] ** 2 - X[:, 2:] + 0.3 * rng.standard_normal((num_data, 1))
    line = np.linspace(0.05, 0.95, 7)[:, None]
    Z = {
        "a": line,
        "line": np.array([[1.0]]),
        "b": line[:5],
        "level": np.zeros((1, 0)),
        "rq": line[::2],
        "c": line,
        "ab": rng.uniform(size=(6, 2)),
        "cycle": line[:4],
    }
    return Problem(X, Y, Z)


def like(num_components: int = 4, num_data: int = 80, num_inducing: int = 6, seed: int = 2):
    """C one-dimensional SE components: one batched group. Returns X, Y, kernels, Zs."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(num_data, num_components))
    Y = np.sin(4 * X).sum(axis=1, keepdims=True) + 0.3 * rng.standard_normal((num_data, 1))
    line = np.linspace(0.0, 1.0, num_inducing)[:, None]

    def kernel() -> AdditiveKernel:
        return AdditiveKernel(
            [
                SquaredExponential(0.5 + 0.3 * c, 0.3 + 0.1 * c, active_dims=[c])
                for c in range(num_components)
            ]
        )

    def inducing() -> AdditiveInducingVariables:
        return AdditiveInducingVariables([line] * num_components)

    return X, Y, kernel, inducing


SHAPES = {"increasing": (1, 1), "decreasing": (1, -1), "convex": (2, 1), "concave": (2, -1)}


def violation(values: Any, shape: str = "increasing") -> float:
    """How much curves [..., n] on an even grid go against a shape, against their range."""
    order, sign = SHAPES[shape]
    down = np.maximum(-sign * np.diff(np.asarray(values, dtype=float), order, axis=-1), 0.0)
    return float(down.max() / max(np.ptp(values), 1e-300))


def assert_close(results: Any, expected: Any, **tolerances: Any) -> None:
    """Of each of several arrays, of whatever shapes."""
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, wanted, **tolerances)


def slope(value: Callable[[], Any], variable: tf.Variable, along: Any = 1.0) -> float:
    """Of a number in a variable, by central differences in a direction."""
    start, ends = variable.numpy(), []
    for step in (1e-5, -1e-5):
        variable.assign(start + step * along)
        ends.append(float(value()))
    variable.assign(start)
    return (ends[0] - ends[1]) / 2e-5


def reloaded(gam: gg.GAM, path: Path, **options: bool) -> gg.GAM:
    """A GAM from the file that it is saved in."""
    gam.save(path, **options)
    return gg.GAM.load(path)


def autocorrelated(rng: np.random.Generator, number: int, rho: float) -> np.ndarray:
    """Noise of variance one, each value ``rho`` times the last one and what is new."""
    new = rng.normal(size=number)
    new[1:] *= np.sqrt(1.0 - rho**2)
    return lfilter([1.0], [1.0, -rho], new)


# --- numpy references ------------------------------------------------------------------------


@dataclass
class Dense:
    """Everything about q(U), dense, in component order, computed component by component."""

    K: np.ndarray  # [P, P]
    root: np.ndarray  # Cholesky factor of K + jitter, a share of each component's variance
    phi: list[np.ndarray]  # phi_c [M_c, N]
    prior: list[np.ndarray]  # k_c(x, x) [N]
    prior_full: list[np.ndarray]  # k_c(X, X) [N, N]


def dense(kernels: list[Kernel], Zs: list[np.ndarray], X: np.ndarray, jitter: float) -> Dense:
    """One component at a time, each evaluated by GPflow on full-width inputs."""
    P = sum(len(Z) for Z in Zs)
    K = np.zeros((P, P))
    phi, prior, prior_full, start = [], [], [], 0
    for kernel, Z in zip(kernels, Zs):
        columns = gg.kernels.kernel_columns(kernel)
        full = np.zeros((len(Z), X.shape[1]))
        if columns is None:
            full = Z
        else:
            for j, column in enumerate(columns):
                full[:, column] = Z[:, j]
        block = kernel(full).numpy()
        if np.any(block != np.diag(np.diag(block))):  # a diagonal one factorises as it is
            block += jitter * np.trace(block) / len(Z) * np.eye(len(Z))
        K[start : start + len(Z), start : start + len(Z)] = block
        phi.append(np.linalg.solve(np.linalg.cholesky(block), kernel(full, X).numpy()))
        prior.append(kernel(X, full_cov=False).numpy())
        prior_full.append(kernel(X).numpy())
        start += len(Z)
    return Dense(K, np.linalg.cholesky(K), phi, prior, prior_full)


def exact(gam: gg.GAM, y: np.ndarray, X: np.ndarray | None = None) -> list[np.ndarray]:
    """Of a normal fit's hyperparameters: exact means and deviations at rows, and K^-1 (y - c)."""
    fit, kernel = gam.fitted, gam.fitted.model.kernel
    X = fit.X if X is None else X
    K = kernel(fit.X).numpy() + float(fit.likelihood.variance.numpy()) * np.eye(len(fit.X))
    cross, c = kernel(X, fit.X).numpy(), fit.spec.constant[0]
    weights = np.linalg.solve(K, np.asarray(y) - c)
    explained = np.sum(cross * np.linalg.solve(K, cross.T).T, axis=1)
    sd = np.sqrt(kernel(X, full_cov=False).numpy() - explained)
    return [c + cross @ weights, sd, weights]


def gauss_kl(mean: np.ndarray, S: np.ndarray) -> float:
    """KL[N(mean, S) || N(0, I)]."""
    return 0.5 * float(np.trace(S) + mean @ mean - len(mean) - np.linalg.slogdet(S)[1])


def randomise(family: gg.variational.VariationalFamily, rng: np.random.Generator) -> None:
    """Random, well-conditioned values for every parameter of a built family."""
    for parameter in family.parameters:
        value = parameter.numpy()
        if isinstance(family, gg.variational.OptimalPrecision):
            continue
        noise = 0.4 * rng.standard_normal(value.shape)
        if value.ndim >= 3 and value.shape[-1] == value.shape[-2] and _is_triangular(parameter):
            noise = np.tril(noise) + np.eye(value.shape[-1])
            parameter.assign(noise)
        else:
            parameter.assign(parameter.transform.forward(noise))
    if isinstance(family, gg.variational.OptimalPrecision):
        L, P = family.num_latent_gps, family.layout.total
        A = rng.standard_normal((L, P, P))
        family.site_precision.assign(A @ A.transpose(0, 2, 1))
        family.site_shift.assign(rng.standard_normal((P, L)))


def _is_triangular(parameter: gpflow.Parameter) -> bool:
    return "FillTriangular" in type(parameter.transform).__name__


FAMILIES: dict[str, Callable[[], gg.variational.VariationalFamily]] = {
    "mean field": gg.variational.MeanField,
    "coupled covariance": gg.variational.CoupledCovariance,
    "coupled precision": lambda: gg.variational.CoupledPrecision(rank=5),
    "optimal precision": gg.variational.OptimalPrecision,
    "block precision": lambda: gg.variational.BlockPrecision(rank=3),
}
"""Of q(U)."""
