"""
Sobol indices from few evaluations of a function: beside SALib's estimators.

Two functions whose indices are known in closed form, Ishigami's (Ishigami & Homma 1990) and Sobol's
G function (Sobol' 1993, 2003). Ours is the functional ANOVA of an additive Gaussian process with
all main effects and pairs, fitted to the function's values at a scrambled Sobol' sequence. SALib's
are Saltelli's scheme (Saltelli et al. 2010), the extended FAST (Saltelli, Tarantola & Chan 1999)
and RBD-FAST (Tarantola, Gatelli & Mara 2006; first-order indices only), at numbers of evaluations
as near as their schemes allow. Recorded: the mean absolute error over a function's indices, as the
median over designs, against the number of evaluations; the share of the true indices that lie
within the intervals of 95 %, posterior ones of ours and bootstrapped ones of SALib's; and seconds.

Values are free of noise, but a second-order model of the G function is not: what three or more
inputs do together is left to the likelihood's variance, which is learnt, or, where evaluations are
few, to small effects that the function does not have. Indices of such a model cannot be exact
however many evaluations there are; the table says how far off they are at best.

Intervals of ours are given the fitted hyperparameters and the model: both are wrong in ways that
they do not allow for, by far the more so where few evaluations have to tell many hyperparameters.

Run it with ``python benchmarks/sobol.py``; it needs ``pip install "salib<1.6"`` (from 1.6 on SALib
needs NumPy 2, which GPflow does not take).

- Ishigami, T. & Homma, T. (1990). An importance quantification technique in uncertainty analysis
  for computer models. Proc. ISUMA'90, 398-403.
- Lu, X., Boukouvalas, A. & Hensman, J. (2022). Additive Gaussian processes revisited. ICML.
- Saltelli, A., Annoni, P., Azzini, I., Campolongo, F., Ratto, M. & Tarantola, S. (2010). Variance
  based sensitivity analysis of model output. Computer Physics Communications 181, 259-270.
- Saltelli, A., Tarantola, S. & Chan, K. (1999). A quantitative model-independent method for global
  sensitivity analysis of model output. Technometrics 41, 39-56.
- Sobol', I. M. (1993). Sensitivity estimates for nonlinear mathematical models. Mathematical
  Modelling and Computational Experiments 1, 407-414.
- Sobol', I. M. (2003). Theorems and examples on high dimensional model representation. Reliability
  Engineering & System Safety 79, 187-193.
- Tarantola, S., Gatelli, D. & Mara, T. (2006). Random balance designs for the estimation of first
  order global sensitivity indices. Reliability Engineering & System Safety 91, 717-727.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
import warnings
from collections.abc import Callable, Iterator

import gpflow
import numpy as np
import pandas as pd
from gpflow.kernels import Constant, IsotropicStationary, Matern32, Product, SquaredExponential
from gpflow.utilities import positive, set_trainable
from recording import parser_of, record
from SALib.analyze import fast as fast_analysis
from SALib.analyze import rbd_fast as rbd_fast_analysis
from SALib.analyze import sobol as sobol_analysis
from SALib.sample import fast_sampler
from SALib.sample import sobol as saltelli_sampler
from scipy.stats import qmc

import gpflow_gam as gg
from gpflow_gam.kernels import AdditiveKernel, ZeroMean
from gpflow_gam.measures import Uniform

KINDS = ("first", "total")
LEVEL = 0.95
MAX_ITERATIONS = 60
"""Of L-BFGS: the last nats of a likelihood change no index."""
MAX_INDUCING = 256
"""Inducing inputs a component; up to as many evaluations the posterior is the exact one."""
LEAST_VARIANCE = 1e-8
"""Of a component, before centring. Those that are not needed would run off to zero."""
NEGLIGIBLE = 1e-5
"""A pair whose prior variance is a smaller share of the function's is left out of the posterior."""


# --- functions -----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Function:
    """A function of independent uniform inputs on a cube, its kernel, and its Sobol indices [D]."""

    name: str
    lower: float
    upper: float
    base: type[IsotropicStationary]
    evaluate: Callable[[np.ndarray], np.ndarray]
    first: np.ndarray
    total: np.ndarray

    @property
    def dimension(self) -> int:
        return len(self.first)

    @property
    def inputs(self) -> list[str]:
        return [f"x{i + 1}" for i in range(self.dimension)]

    @property
    def problem(self) -> dict[str, object]:
        """As SALib wants to have it."""
        bounds = [[self.lower, self.upper]] * self.dimension
        return {"num_vars": self.dimension, "names": self.inputs, "bounds": bounds}

    def design(self, number: int, seed: int) -> np.ndarray:
        """The first points [N, D] of a scrambled Sobol' sequence."""
        u = qmc.Sobol(self.dimension, seed=seed).random(number)
        return self.lower + (self.upper - self.lower) * u


def ishigami(a: float = 7.0, b: float = 0.1) -> Function:
    """sin x1 + a sin^2 x2 + b x3^4 sin x1 on [-pi, pi]^3 (Ishigami & Homma 1990)."""

    def evaluate(X: np.ndarray) -> np.ndarray:
        values: np.ndarray = (1.0 + b * X[:, 2] ** 4) * np.sin(X[:, 0]) + a * np.sin(X[:, 1]) ** 2
        return values

    # E x3^4 = pi^4 / 5, Var x3^4 = pi^8 / 9 - pi^8 / 25 and E sin^2 = 1/2
    first = np.array([0.5 * (1.0 + b * np.pi**4 / 5.0) ** 2, a**2 / 8.0, 0.0])
    both = 0.5 * b**2 * np.pi**8 * (1.0 / 9.0 - 1.0 / 25.0)
    whole = first.sum() + both
    indices = first / whole, (first + np.array([both, 0.0, both])) / whole
    return Function("Ishigami", -np.pi, np.pi, SquaredExponential, evaluate, *indices)


def sobol_g(a: tuple[float, ...] = (0.0, 1.0, 4.5, 9.0, 99.0, 99.0)) -> Function:
    """
    The product of (|4 x_i - 2| + a_i) / (1 + a_i) on [0, 1]^D (Sobol' 1993, 2003).

    Factors have mean one, so that a set of inputs has the product of ``1 / (3 (1 + a_i)^2)``.
    """
    offsets = np.array(a)

    def evaluate(X: np.ndarray) -> np.ndarray:
        values: np.ndarray = np.prod((np.abs(4.0 * X - 2.0) + offsets) / (1.0 + offsets), axis=1)
        return values

    own = 1.0 / (3.0 * (1.0 + offsets) ** 2)
    whole = np.prod(1.0 + own) - 1.0
    total = own * np.prod(1.0 + own) / (1.0 + own) / whole
    return Function("Sobol' G", 0.0, 1.0, Matern32, evaluate, own / whole, total)


# --- estimators ----------------------------------------------------------------------------------


Limits = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Indices with their lower and upper limits, [D] each."""
Estimator = Callable[[Function, int, int], tuple[int, dict[str, Limits]]]
"""Of a function, the size of a design and a seed: evaluations used, and estimates by kind."""


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


def additive_gp(function: Function, number: int, seed: int) -> tuple[int, dict[str, Limits]]:
    """Ours: posterior means and credible intervals."""
    anova = gg.sensitivity.functional_anova(fitted(function, function.design(number, seed)))
    table = anova.sobol(level=LEVEL, seed=seed)
    by = {kind: rows[["estimate", "lower", "upper"]] for kind, rows in table.groupby("kind")}
    return number, {kind: tuple(by[kind].to_numpy().T) for kind in KINDS}


def saltelli(function: Function, number: int, seed: int) -> tuple[int, dict[str, Limits]]:
    """Saltelli's scheme: ``number`` base points, D + 2 evaluations each."""
    X = saltelli_sampler.sample(function.problem, number, calc_second_order=False, seed=seed)
    Y = function.evaluate(X)
    result = sobol_analysis.analyze(function.problem, Y, calc_second_order=False, seed=seed)
    return len(X), symmetric(result, "first", "total")


def extended_fast(function: Function, number: int, seed: int) -> tuple[int, dict[str, Limits]]:
    """The extended FAST: one curve of ``number`` points an input."""
    seed += 1  # SALib takes zero for no seed
    X = fast_sampler.sample(function.problem, number, seed=seed)
    result = fast_analysis.analyze(function.problem, function.evaluate(X), seed=seed)
    return len(X), symmetric(result, "first", "total")


def rbd_fast(function: Function, number: int, seed: int) -> tuple[int, dict[str, Limits]]:
    """RBD-FAST on the designs that ours has."""
    X = function.design(number, seed)
    result = rbd_fast_analysis.analyze(function.problem, X, function.evaluate(X), seed=seed)
    return number, symmetric(result, "first")


def symmetric(result: dict[str, np.ndarray], *kinds: str) -> dict[str, Limits]:
    """What SALib found."""
    found = {}
    for kind in kinds:
        index = {"first": "S1", "total": "ST"}[kind]
        value, half = np.array(result[index]), np.array(result[f"{index}_conf"])
        found[kind] = value, value - half, value + half
    return found


OURS = "additive GP"
METHODS: dict[str, tuple[Estimator, Callable[[int], list[int]]]] = {
    OURS: (additive_gp, lambda D: [32, 64, 128, 256, 512]),
    "Saltelli": (saltelli, lambda D: [2**k for k in range(2, 15) if 2**k * (D + 2) <= 16384]),
    "eFAST": (extended_fast, lambda D: [2**k + 1 for k in range(6, 14) if 2**k * D <= 16384]),
    "RBD-FAST": (rbd_fast, lambda D: [2**k for k in range(5, 15)]),
}
"""Each with the sizes of designs it is tried at, by the number of inputs."""


# --- scores --------------------------------------------------------------------------------------


def score(
    function: Function, method: str, number: int, seed: int
) -> Iterator[dict[str, str | float]]:
    """One row a kind of index: error, coverage and seconds of one estimate."""
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SALib's own, of pandas
        evaluations, estimates = METHODS[method][0](function, number, seed)
    seconds = time.perf_counter() - start
    for kind, (value, lower, upper) in estimates.items():
        truth = getattr(function, kind)
        slack = 1e-12  # an index of zero is within limits of zero
        inside = (lower - slack <= truth) & (truth <= upper + slack)
        yield {
            "function": function.name,
            "method": method,
            "size": number,
            "seed": seed,
            "kind": kind,
            "evaluations": evaluations,
            "error": float(np.abs(value - truth).mean()),
            "coverage": float(inside.mean()),
            "seconds": seconds,
        }


def compare(functions: list[Function], num_seeds: int, largest: int) -> pd.DataFrame:
    """Scores of all methods at ``num_seeds`` designs of each size, ours up to ``largest``."""
    rows = []
    for function, (method, (_, sizes)) in itertools.product(functions, METHODS.items()):
        for number in sizes(function.dimension):
            if method == OURS and number > largest:
                continue
            for seed in range(num_seeds):
                rows += score(function, method, number, seed)
            print(function.name, method, number, flush=True)
    return pd.DataFrame(rows)


def medians(scores: pd.DataFrame) -> pd.DataFrame:
    """A row a function, method and size: median errors, coverage, median seconds."""
    keys = ["function", "method", "evaluations"]
    groups = scores.groupby([*keys, "kind"], sort=False)
    result = groups.agg(error=("error", "median"), coverage=("coverage", "mean")).unstack("kind")
    result.columns = [f"{kind} {column}" for column, kind in result.columns]
    more = scores.groupby(keys, sort=False).agg(
        designs=("seed", "nunique"), seconds=("seconds", "median")
    )
    return result.join(more).reset_index().sort_values(keys, kind="stable")


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--num-seeds", type=int, default=5, help="designs of each size")
    parser.add_argument("--largest", type=int, default=512, help="design of the additive GP")
    arguments = parser.parse_args()
    scores = compare([ishigami(), sobol_g()], arguments.num_seeds, arguments.largest)
    table = medians(scores)
    heads = {"first error": "error, first-order", "total error": "error, total"}
    heads |= {"first coverage": "in 95 %, first-order", "total coverage": "in 95 %, total"}
    rows = table.rename(columns=heads).astype(object)
    record(
        "sobol",
        "Sobol indices from few evaluations: error and coverage",
        rows.where(rows.notna(), None).to_dict("records"),
        arguments,
        peers=["salib"],
    )


if __name__ == "__main__":
    main()
