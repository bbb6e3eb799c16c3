"""
What does each family of q(U) cost? Table 1 of Adam, Durrande & John (2018), measured.

Three ratios of whole training steps, then storage, KL and marginals of every family against the
number of components C and of inducing inputs M, with the exponents of fitted power laws. Compiled,
in double precision. Run it with ``python benchmarks/table1.py``; takes two to three minutes.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.kernels import SquaredExponential
from recording import add_option, processor, record
from tabulate import tabulate

import gpflow_gam as gg
from gpflow_gam.variational import (
    BlockPrecision,
    CoupledCovariance,
    CoupledPrecision,
    MeanField,
    OptimalPrecision,
    VariationalFamily,
    WhitenedGaussian,
)

ROWS = 1000
MAX_DENSE = 1024
"""Inducing values above which the families that hold a P x P matrix are left out."""

FAMILIES: dict[str, Callable[[int], VariationalFamily]] = {
    "mean field": lambda M: MeanField(),
    "coupled covariance": lambda M: CoupledCovariance(),
    "coupled precision": lambda M: CoupledPrecision(rank=M),
    "optimal precision": lambda M: OptimalPrecision(),
    "block precision": lambda M: BlockPrecision(rank=M),
}
DENSE = ("coupled covariance", "optimal precision")

# Exponents (of C, of M) of storage, KL and all N marginals, at rank R = M.
Exponents = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
PAPER: dict[str, Exponents] = {
    "mean field": ((1, 2), (1, 3), (1, 2)),
    "coupled covariance": ((2, 2), (3, 3), (2, 2)),
    "coupled precision": ((1, 2), (1, 3), (2, 2)),
}
OURS: dict[str, Exponents] = {
    "mean field": ((1, 2), (1, 2), (1, 2)),  # whitened: no solves in the KL
    "coupled covariance": ((2, 2), (2, 2), (2, 2)),
    "coupled precision": ((1, 2), (1, 3), (1, 2)),  # components summed before the norm is taken
    "optimal precision": ((2, 2), (3, 3), (2, 2)),
    "block precision": ((1, 2), (1, 3), (1, 2)),
}

Data = tuple[tf.Tensor, tf.Tensor]
Call = Callable[[], object]
Costs = dict[str, tuple[float, float, float]]
"""Numbers held, milliseconds of the KL, milliseconds of the marginals, of every family."""


def make_data(num_components: int, seed: int = 0) -> Data:
    """A sum of sines of uniform inputs, plus noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(ROWS, num_components))
    Y = np.sin(6.0 * X).sum(axis=1, keepdims=True) + 0.5 * rng.standard_normal((ROWS, 1))
    return tf.constant(X), tf.constant(Y)


def make_kernels(num_components: int) -> list[SquaredExponential]:
    return [SquaredExponential(lengthscales=0.2, active_dims=[c]) for c in range(num_components)]


def make_model(
    num_components: int, num_inducing: int, family: VariationalFamily
) -> gg.models.AdditiveSVGP:
    """One smooth a column, Gaussian noise."""
    kernel = gg.kernels.AdditiveKernel(make_kernels(num_components))
    grid = np.linspace(0.0, 1.0, num_inducing)[:, None]
    inducing = gg.inducing_variables.AdditiveInducingVariables([grid] * num_components)
    likelihood = gpflow.likelihoods.Gaussian(0.25)
    return gg.models.AdditiveSVGP(kernel, likelihood, inducing, variational=family)


def make_gpflow(num_components: int, num_inducing: int) -> gpflow.models.SVGP:
    """GPflow's own model of the same prior, with as many inducing values."""
    shape = (num_components * num_inducing, num_components)
    model = gpflow.models.SVGP(
        gpflow.kernels.Sum(make_kernels(num_components)),
        gpflow.likelihoods.Gaussian(0.25),
        gpflow.inducing_variables.InducingPoints(np.random.default_rng(0).uniform(size=shape)),
    )
    gpflow.set_trainable(model.inducing_variable, False)  # as ours are by default
    return model


def training_step(model: gpflow.models.GPModel, data: Data) -> Call:
    """ELBO and its gradient with respect to every trainable variable, compiled."""
    variables = model.trainable_variables

    @tf.function(autograph=False)
    def step(data: Data) -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            elbo = model.elbo(data)
        return elbo, tape.gradient(elbo, variables)

    return lambda: step(data)


# --- timing --------------------------------------------------------------------------------------


def run(call: Call) -> float:
    """Seconds until all results of ``call`` are there."""
    start = time.perf_counter()
    for tensor in tf.nest.flatten(call(), expand_composites=True):
        tensor.numpy()  # waits, wherever it is computed
    return time.perf_counter() - start


def medians(calls: Sequence[Call], seconds: float, at_least: int = 5) -> list[float]:
    """Median milliseconds of each call, taken in turn so that the machine's noise hits all."""
    for call in calls:
        run(call)  # traces
    times: list[list[float]] = [[] for _ in calls]
    end = time.perf_counter() + seconds
    while len(times[0]) < at_least or time.perf_counter() < end:
        for call, own in zip(calls, times):
            own.append(run(call))
    return [1e3 * float(np.median(own)) for own in times]


def exponent(sizes: Sequence[int], values: Sequence[float]) -> float:
    """Log-log slope over the larger half of the sizes, where overhead matters less."""
    half = slice(len(sizes) // 2, None)
    return float(np.polyfit(np.log(sizes[half]), np.log(values[half]), 1)[0])


# --- the ratios ----------------------------------------------------------------------------------


def print_ratios(seconds: float) -> list[dict[str, object]]:
    """Three comparisons at M = 32, block precision of rank M and of its default, 8; as rows."""
    M = 32
    data = {C: make_data(C) for C in (8, 16, 64)}
    calls = {
        "mean field, C = 8": training_step(make_model(8, M, MeanField()), data[8]),
        "GPflow, C = 16": training_step(make_gpflow(16, M), data[16]),
    }
    for C in data:
        for label, rank in (("R = M", M), ("R = 8", None)):
            model = make_model(C, M, BlockPrecision(rank))
            calls[f"block {label}, C = {C}"] = training_step(model, data[C])
    taken = dict(zip(calls, medians(list(calls.values()), seconds, at_least=15)))
    rows: list[list[object]] = []
    for label in ("R = M", "R = 8"):
        for above, below, sense, target in (
            (f"block {label}, C = 8", "mean field, C = 8", "at most", 1.5),
            ("GPflow, C = 16", f"block {label}, C = 16", "at least", 5.0),
            (f"block {label}, C = 64", f"block {label}, C = 8", "at most", 12.0),
        ):
            ratio = taken[above] / taken[below]
            met = ratio <= target if sense == "at most" else ratio >= target
            both = taken[above], taken[below]
            rows.append([above, "/ " + below, *both, ratio, f"{sense} {target:g}", met])
    print(f"\nELBO and gradient, M = {M}, batch of {ROWS}, medians in turn")
    header = ["step", "over", "ms", "ms of that", "ratio", "target", "met"]
    print(tabulate(rows, header, floatfmt=("", "", ".1f", ".1f", ".2f")))
    return [dict(zip(header, row)) for row in rows]


# --- the table -----------------------------------------------------------------------------------


def compiled_kl(family: VariationalFamily, cholesky: list[tf.Tensor]) -> Call:
    kl = tf.function(family.kl, autograph=False)
    return lambda: kl(cholesky)


def compiled_marginals(q: WhitenedGaussian, phi: list[tf.Tensor]) -> Call:
    """Means and variances (but for the prior's) of the predictor, from given features and q."""
    form, tensors = q.form(), q.tensors()

    @tf.function(autograph=False)
    def marginals(tensors: list[tf.Tensor], phi: list[tf.Tensor]) -> Data:
        given = form(tensors)
        return given.total_mean(phi), given.total_quadratic(phi)

    return lambda: marginals(tensors, phi)


def costs(num_components: int, num_inducing: int, seconds: float) -> Costs:
    """Of every family at one size."""
    blocks = make_model(num_components, num_inducing, MeanField()).blocks
    cholesky = blocks.cholesky()
    phi = blocks.features(make_data(num_components)[0], cholesky).phi
    storage: dict[str, int] = {}
    calls: list[Call] = []
    for name, make in FAMILIES.items():
        if name in DENSE and blocks.layout.total > MAX_DENSE:
            continue
        family = make(num_inducing)
        family.build(blocks.layout, 1, cholesky)
        storage[name] = sum(v.shape.num_elements() for v in family.variables)
        calls.append(compiled_kl(family, cholesky))
        calls.append(compiled_marginals(family.whitened(cholesky), phi))
    measured = iter(medians(calls, seconds))
    return {name: (number, next(measured), next(measured)) for name, number in storage.items()}


def print_costs(
    sizes: Sequence[tuple[int, int]], axis: int, seconds: float
) -> list[dict[str, object]]:
    """Tables of the costs at every (C, M), of which ``axis`` (0: C, 1: M) varies; its rows."""
    recorded: list[dict[str, object]] = []
    result = [costs(C, M, seconds) for C, M in sizes]
    letter, fixed = "CM"[axis], f"{'MC'[axis]} = {sizes[0][1 - axis]}"
    kinds = ("numbers held", "ms for the KL", f"ms for {ROWS} marginals, given features")
    for i, kind in enumerate(kinds):
        rows = []
        for name in FAMILIES:
            known = [(s[axis], c[name][i]) for s, c in zip(sizes, result) if name in c]
            values = [f"{v:.0f}" if i == 0 else f"{v:.2f}" for _, v in known]
            values += [""] * (len(sizes) - len(known))
            numbers = {f"{letter} = {size}": value for size, value in known}
            power = float(exponent(*zip(*known)))
            recorded.append({"cost": kind, "family": name, **numbers, "exponent": power})
            claims = [c[name][i][axis] if name in c else "" for c in (PAPER, OURS)]
            rows.append([name, *values, f"{power:.2f}", *claims])
        print(f"\n{kind}, against {letter} ({fixed}); exponents over the larger half, and claimed")
        header = ["family", *(f"{letter} = {s[axis]}" for s in sizes), "exponent", "paper", "ours"]
        print(tabulate(rows, header, disable_numparse=True, colalign=["left"]))
    return recorded


def machine() -> str:
    versions = f"TensorFlow {tf.__version__}, GPflow {gpflow.__version__}"
    return f"{os.cpu_count()} cores, {processor()}, {versions}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="of timing for each size")
    parser.add_argument("--max-size", type=int, default=256, help="the largest C, and M")
    add_option(parser)
    arguments = parser.parse_args()

    start = time.perf_counter()
    print(machine())
    title = "Training steps of families of q(U) beside each other, M = 32"
    record("table1_ratios", title, print_ratios(6.0 * arguments.seconds), arguments)
    powers = [n for n in (4, 8, 16, 32, 64, 128, 256) if n <= arguments.max_size]
    title = "What does each family of q(U) cost, against the number of components C?"
    sizes = [(C, 16) for C in powers]
    record("table1_components", title, print_costs(sizes, 0, arguments.seconds), arguments)
    title = "What does each family of q(U) cost, against the number of inducing inputs M?"
    sizes = [(8, M) for M in powers[1:]]
    record("table1_inducing", title, print_costs(sizes, 1, arguments.seconds), arguments)
    print(f"\ntime taken: {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
