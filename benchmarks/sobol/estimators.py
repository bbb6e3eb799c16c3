"""Estimates of Sobol indices: by an additive Gaussian process, and by SALib's schemes."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable

import gpflow
import numpy as np
from functions import KINDS, Function
from gpflow.kernels import Constant, Product
from gpflow.utilities import positive, set_trainable
from SALib.analyze import fast as fast_analysis
from SALib.analyze import rbd_fast as rbd_fast_analysis
from SALib.analyze import sobol as sobol_analysis
from SALib.sample import fast_sampler
from SALib.sample import sobol as saltelli_sampler

import gpflow_gam as gg
from gpflow_gam.kernels import AdditiveKernel, ZeroMean
from gpflow_gam.measures import Uniform

LEVEL = 0.95
MAX_ITERATIONS = 60
"""Of L-BFGS: the last nats of a likelihood change no index."""
MAX_INDUCING = 256
"""Inducing inputs a component; up to as many evaluations the posterior is the exact one."""
LEAST_VARIANCE = 1e-8
"""Of a component, before centring. Those that are not needed would run off to zero."""
NEGLIGIBLE = 1e-5
"""A pair whose prior variance is a smaller share of the function's is left out of the posterior."""


@dataclasses.dataclass(frozen=True)
class Estimate:
    """
    Indices of one kind, with the limits of their intervals, [D] each.

    :param kind: ``"first"`` or ``"total"``.
    """

    kind: str
    value: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


Estimator = Callable[[Function, int, int], tuple[int, list[Estimate]]]
"""Of a function, the size of a design and a seed: evaluations used, and estimates."""


def additive_kernel(function: Function) -> AdditiveKernel:
    """
    A constant, main effects and pairs, orthogonal under the inputs' distribution.

    An input has one lengthscale in all that it has a hand in (Lu et al. 2022); every component has
    a variance of its own.
    """
    width = function.upper - function.lower
    measure = Uniform(function.lower, function.upper)
    lengthscales = [
        gpflow.Parameter(0.25 * width, transform=positive()) for _ in range(function.dimension)
    ]

    def zero_mean(column: int, variance: float, trainable: bool = True) -> ZeroMean:
        base = function.base(active_dims=[column])
        base.lengthscales = lengthscales[column]
        base.variance = gpflow.Parameter(variance, transform=positive(LEAST_VARIANCE))
        set_trainable(base.variance, trainable)
        return ZeroMean(base, measure)

    components = {"mean": Constant(variance=1.0)}
    for i, name in enumerate(function.inputs):
        components[name] = zero_mean(i, 1.0 / function.dimension)
    for (i, one), (j, other) in itertools.combinations(enumerate(function.inputs), 2):
        # of a product's two variances one is enough
        components[f"{one}:{other}"] = Product([zero_mean(i, 0.1), zero_mean(j, 1.0, False)])
    return AdditiveKernel(components)


def fitted(function: Function, X: np.ndarray) -> gg.models.AdditiveSGPR:
    """
    The posterior given the function's values at a design.

    Hyperparameters by the exact marginal likelihood, which costs N^3 a step whatever the number of
    components; the posterior with the design's points as every component's inducing inputs, by
    which it is exact too.

    :param X: the design, [N, D].
    """
    y = function.evaluate(X)
    Y = ((y - y.mean()) / y.std())[:, None]
    kernel = additive_kernel(function)
    exact = gpflow.models.GPR((X, Y), kernel, noise_variance=1e-2)
    gg.optimizers.fit(exact, max_iterations=MAX_ITERATIONS)
    inducing = {}
    for name, columns in zip(kernel.names, kernel.columns):
        size = float(np.mean(kernel[name](X, full_cov=False)))
        if len(columns) == 2 and size < NEGLIGIBLE:
            continue
        Z = X[:MAX_INDUCING, list(columns)]
        inducing[name] = np.zeros((1, 0)) if name == "mean" else Z
    model = gg.models.AdditiveSGPR(
        (X, Y),
        AdditiveKernel({name: kernel[name] for name in inducing}),
        gg.inducing_variables.AdditiveInducingVariables(inducing),
    )
    model.likelihood = exact.likelihood
    return model


def additive_gp(function: Function, number: int, seed: int) -> tuple[int, list[Estimate]]:
    """Ours: posterior means and credible intervals."""
    anova = gg.sensitivity.functional_anova(fitted(function, function.design(number, seed)))
    table = anova.sobol(level=LEVEL, seed=seed)
    estimates = []
    for kind in KINDS:
        result = table[table["kind"] == kind]
        columns = ("estimate", "lower", "upper")
        estimates.append(Estimate(kind, *(result[c].to_numpy() for c in columns)))
    return number, estimates


def saltelli(function: Function, number: int, seed: int) -> tuple[int, list[Estimate]]:
    """Saltelli's scheme: ``number`` base points, D + 2 evaluations each."""
    X = saltelli_sampler.sample(function.problem, number, calc_second_order=False, seed=seed)
    Y = function.evaluate(X)
    result = sobol_analysis.analyze(function.problem, Y, calc_second_order=False, seed=seed)
    return len(X), [_symmetric(kind, result[k], result[f"{k}_conf"]) for kind, k in _SALIB]


def extended_fast(function: Function, number: int, seed: int) -> tuple[int, list[Estimate]]:
    """The extended FAST: one curve of ``number`` points an input."""
    seed += 1  # SALib takes zero for no seed
    X = fast_sampler.sample(function.problem, number, seed=seed)
    result = fast_analysis.analyze(function.problem, function.evaluate(X), seed=seed)
    return len(X), [
        _symmetric(kind, np.array(result[k]), np.array(result[f"{k}_conf"])) for kind, k in _SALIB
    ]


def rbd_fast(function: Function, number: int, seed: int) -> tuple[int, list[Estimate]]:
    """RBD-FAST on the designs that ours has."""
    X = function.design(number, seed)
    result = rbd_fast_analysis.analyze(function.problem, X, function.evaluate(X), seed=seed)
    return number, [_symmetric("first", np.array(result["S1"]), np.array(result["S1_conf"]))]


_SALIB = (("first", "S1"), ("total", "ST"))


def _symmetric(kind: str, value: np.ndarray, half: np.ndarray) -> Estimate:
    return Estimate(kind, value, value - half, value + half)


OURS = "additive GP"
METHODS: dict[str, tuple[Estimator, Callable[[int], list[int]]]] = {
    OURS: (additive_gp, lambda D: [32, 64, 128, 256, 512]),
    "Saltelli": (saltelli, lambda D: [2**k for k in range(2, 15) if 2**k * (D + 2) <= 16384]),
    "eFAST": (extended_fast, lambda D: [2**k + 1 for k in range(6, 14) if 2**k * D <= 16384]),
    "RBD-FAST": (rbd_fast, lambda D: [2**k for k in range(5, 15)]),
}
"""Each with the sizes of designs it is tried at, by the number of inputs."""
