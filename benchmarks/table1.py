"""
What does each family of q(U) cost? Table 1 of Adam, Durrande & John (2018), measured.

First storage, KL and marginals of every family against the number of components C and of inducing
inputs M, as exponents of fitted power laws; then three ratios of whole training steps. Compiled,
double precision, on whatever TensorFlow finds. Run it with ``python benchmarks/table1.py``; takes
about three minutes.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.kernels import SquaredExponential
from tabulate import tabulate

import gpflow_gam as gg
from gpflow_gam.variational import (
    BlockPrecision,
    CoupledCovariance,
    CoupledPrecision,
    MeanField,
    OptimalPrecision,
    VariationalFamily,
)

ROWS = 1000
Call = Callable[[], object]


class Family(NamedTuple):
    """A family and its claimed exponents (of C, of M) at rank R = M."""

    make: Callable[[int], VariationalFamily]
    """From M."""

    storage: tuple[int, int]
    kl: tuple[int, int]
    marginals: tuple[int, int]
    paper: tuple[int, int] | None
    """The paper's marginals, where its table has the family."""


FAMILIES = {
    "mean field": Family(lambda M: MeanField(), (1, 2), (1, 3), (1, 2), (1, 2)),
    "coupled covariance": Family(lambda M: CoupledCovariance(), (2, 2), (3, 3), (2, 2), (2, 2)),
    "coupled precision": Family(lambda M: CoupledPrecision(rank=M), (1, 2), (1, 3), (1, 2), (2, 2)),
    "optimal precision": Family(lambda M: OptimalPrecision(), (2, 2), (3, 3), (2, 2), None),
    "block precision": Family(lambda M: BlockPrecision(rank=M), (1, 2), (1, 3), (1, 2), None),
}


class Cost(NamedTuple):
    """Of one family at one size."""

    storage: float
    """Numbers held."""

    kl: float
    """Seconds."""

    marginals: float
    """Seconds."""


def make_data(num_components: int, seed: int = 0) -> tuple[tf.Tensor, tf.Tensor]:
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
    return gg.models.AdditiveSVGP(
        kernel, gpflow.likelihoods.Gaussian(0.25), inducing, variational=family
    )


def make_gpflow(num_components: int, num_inducing: int) -> gpflow.models.SVGP:
    """The same prior and as many inducing values, as GPflow has it."""
    rng = np.random.default_rng(0)
    Z = rng.uniform(size=(num_components * num_inducing, num_components))
    model = gpflow.models.SVGP(
        gpflow.kernels.Sum(make_kernels(num_components)),
        gpflow.likelihoods.Gaussian(0.25),
        gpflow.inducing_variables.InducingPoints(Z),
    )
    gpflow.set_trainable(model.inducing_variable, False)  # ours are not trained by default
    return model


def training_step(
    model: gpflow.models.GPModel, data: tuple[tf.Tensor, tf.Tensor]
) -> Callable[[], object]:
    """ELBO and its gradient with respect to every trainable variable, compiled."""
    variables = model.trainable_variables

    @tf.function(autograph=False)
    def step(X: tf.Tensor, Y: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            elbo = model.elbo((X, Y))
        return elbo, tape.gradient(elbo, variables)

    return lambda: step(*data)


# --- timing ------------------------------------------------------------------------------------


def wait(result: object) -> None:
    """Until ``result`` has been computed, also where that happens on another device."""
    tf.nest.map_structure(lambda t: t.numpy() if t.shape.rank == 0 else t, result)


def medians(calls: Sequence[Call], seconds: float, at_least: int = 5) -> list[float]:
    """Median seconds of each call, taken in turn so that the machine's noise hits all alike."""
    for call in calls:  # traces and warms up
        wait(call())
        wait(call())
    times: list[list[float]] = [[] for _ in calls]
    end = time.perf_counter() + seconds
    while len(times[0]) < at_least or time.perf_counter() < end:
        for call, own in zip(calls, times):
            start = time.perf_counter()
            wait(call())
            own.append(time.perf_counter() - start)
    return [float(np.median(own)) for own in times]


def exponent(sizes: Sequence[int], values: Sequence[float]) -> float:
    """Slope in log-log over the larger half of the sizes, where overhead matters least."""
    half = slice(len(sizes) // 2, None)
    return float(np.polyfit(np.log(sizes[half]), np.log(values[half]), 1)[0])


# --- the table -----------------------------------------------------------------------------------


def costs(num_components: int, num_inducing: int, seconds: float) -> dict[str, Cost]:
    """Of every family at one size, all measured in turn."""
    X, _ = make_data(num_components)
    storage, calls = [], []
    for family in FAMILIES.values():
        q_family = family.make(num_inducing)
        model = make_model(num_components, num_inducing, q_family)
        blocks = model.blocks
        cholesky = blocks.cholesky()
        q = q_family.whitened(cholesky)
        form = q.form()

        @tf.function(autograph=False)
        def marginals(tensors, phi, form=form):  # type: ignore[no-untyped-def]
            q = form(tensors)
            return q.total_mean(phi), q.total_quadratic(phi)

        kl = tf.function(q_family.kl, autograph=False)
        phi, tensors = blocks.features(X, cholesky).phi, q.tensors()
        storage.append(sum(v.shape.num_elements() for v in q_family.variables))
        calls.append(lambda kl=kl, cholesky=cholesky: kl(cholesky))
        calls.append(lambda run=marginals, tensors=tensors, phi=phi: run(tensors, phi))
    measured = iter(medians(calls, seconds))
    return {
        name: Cost(number, next(measured), next(measured))
        for name, number in zip(FAMILIES, storage)
    }


def sweep(sizes: Sequence[tuple[int, int]], axis: int, seconds: float) -> None:
    """Print costs at every (C, M), and the exponents of what varies (0: C, 1: M)."""
    found = [costs(C, M, seconds) for C, M in sizes]
    along = [size[axis] for size in sizes]
    rows, details = [], []
    for name, family in FAMILIES.items():
        row: list[object] = [name]
        for i, claims in enumerate((family.storage, family.kl, family.marginals)):
            row += [exponent(along, [c[name][i] for c in found]), claims[axis]]
        row.append("" if family.paper is None else family.paper[axis])
        rows.append(row)
        details.append(
            [name]
            + [f"{1e3 * c[name].kl:.2f}" for c in found]
            + [f"{1e3 * c[name].marginals:.2f}" for c in found]
        )
    letter, fixed = "CM"[axis], f"{'MC'[axis]} = {sizes[0][1 - axis]}"
    print(f"\nMilliseconds against {letter} ({fixed}, N = {ROWS}): KL, then all marginals")
    header = [f"{kind} {letter}={a}" for kind in ("KL", "marg") for a in along]
    print(tabulate(details, ["family", *header], disable_numparse=True, stralign="right"))
    print(f"\nExponent of {letter} over the larger half of these, and the claim")
    header = ["family", "storage", "claim", "KL", "claim", "marginals", "claim", "paper"]
    print(tabulate(rows, header, floatfmt=".2f"))


# --- the ratios ------------------------------------------------------------------------------------


def ratios(seconds: float) -> list[list[object]]:
    """Rows of (what, milliseconds of both, ratio, target, met)."""
    M = 32
    narrow, middle, wide = make_data(8), make_data(16), make_data(64)
    calls = {
        "mean field, C = 8": training_step(make_model(8, M, MeanField()), narrow),
        "block, C = 8": training_step(make_model(8, M, BlockPrecision(rank=M)), narrow),
        "block, C = 64": training_step(make_model(64, M, BlockPrecision(rank=M)), wide),
        "default rank, C = 8": training_step(make_model(8, M, BlockPrecision()), narrow),
        "default rank, C = 64": training_step(make_model(64, M, BlockPrecision()), wide),
        "block, C = 16": training_step(make_model(16, M, BlockPrecision(rank=M)), middle),
        "default rank, C = 16": training_step(make_model(16, M, BlockPrecision()), middle),
        "GPflow's SVGP, C = 16": training_step(make_gpflow(16, M), middle),
    }
    taken = dict(zip(calls, medians(list(calls.values()), seconds, at_least=15)))
    comparisons = [
        ("block, C = 8", "mean field, C = 8", "at most", 1.5),
        ("GPflow's SVGP, C = 16", "block, C = 16", "at least", 5.0),
        ("GPflow's SVGP, C = 16", "default rank, C = 16", "at least", 5.0),
        ("block, C = 64", "block, C = 8", "at most", 12.0),
        ("default rank, C = 8", "mean field, C = 8", "at most", 1.5),
        ("default rank, C = 64", "default rank, C = 8", "at most", 12.0),
    ]
    rows: list[list[object]] = []
    for above, below, sense, target in comparisons:
        ratio = taken[above] / taken[below]
        met = ratio <= target if sense == "at most" else ratio >= target
        name = f"{above} / {below}"
        both = 1e3 * taken[above], 1e3 * taken[below]
        rows.append([name, *both, ratio, f"{sense} {target:g}", "yes" if met else "NO"])
    return rows


def machine() -> str:
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        models = [row for row in info.read_text().splitlines() if row.startswith("model name")]
        cpu = models[0].split(":")[1].strip() if models else cpu
    return (
        f"{os.cpu_count()} cores, {cpu}, TensorFlow {tf.__version__}, GPflow {gpflow.__version__}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--seconds", type=float, default=6.0, help="of timing for each size")
    parser.add_argument("--max-components", type=int, default=64)
    parser.add_argument("--max-inducing", type=int, default=64)
    arguments = parser.parse_args()

    start = time.perf_counter()
    print(machine())
    print(f"\nELBO and gradient, M = 32 (rank M, or the default 8), batch of {ROWS}, medians")
    header = ["", "ms", "ms", "ratio", "target", "met"]
    print(tabulate(ratios(5.0 * arguments.seconds), header, floatfmt=("", ".1f", ".1f", ".2f")))
    components = [C for C in (4, 8, 16, 32, 64) if C <= arguments.max_components]
    sweep([(C, 16) for C in components], 0, arguments.seconds)
    inducing = [M for M in (8, 16, 32, 64) if M <= arguments.max_inducing]
    sweep([(8, M) for M in inducing], 1, arguments.seconds)
    print(f"\ntime taken: {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
