"""
What does each family of q(U) cost? Table 1 of Adam, Durrande & John (2018), measured.

Three ratios of whole training steps, then storage, KL and marginals of every family against the
number of components C and of inducing inputs M, with the exponents of fitted power laws. Compiled,
in double precision. Run it with ``python benchmarks/table1.py``; takes two to three minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.kernels import SquaredExponential
from harness import medians
from recording import parser_of, record

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
CLAIMED: dict[str, dict[str, Exponents]] = {
    "paper": {
        "mean field": ((1, 2), (1, 3), (1, 2)),
        "coupled covariance": ((2, 2), (3, 3), (2, 2)),
        "coupled precision": ((1, 2), (1, 3), (2, 2)),
    },
    "ours": {
        "mean field": ((1, 2), (1, 2), (1, 2)),  # whitened: no solves in the KL
        "coupled covariance": ((2, 2), (2, 2), (2, 2)),
        "coupled precision": ((1, 2), (1, 3), (1, 2)),  # components summed before the norm is taken
        "optimal precision": ((2, 2), (3, 3), (2, 2)),
        "block precision": ((1, 2), (1, 3), (1, 2)),
    },
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

    return lambda: wait(step(data))


def wait(tensors: object) -> None:
    """Until all are there, wherever they are computed."""
    for tensor in tf.nest.flatten(tensors, expand_composites=True):
        tensor.numpy()


def exponent(sizes: Sequence[int], values: Sequence[float]) -> float:
    """Log-log slope over the larger half of the sizes, where overhead matters less."""
    half = slice(len(sizes) // 2, None)
    return float(np.polyfit(np.log(sizes[half]), np.log(values[half]), 1)[0])


# --- the ratios ----------------------------------------------------------------------------------


def ratios(seconds: float) -> list[dict[str, object]]:
    """ELBO and gradient of a batch at M = 32, block precision of rank M and of its default, 8."""
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
    taken = {k: 1e3 * v for k, v in medians(calls, seconds, repeats=15).items()}
    rows: list[dict[str, object]] = []
    for label in ("R = M", "R = 8"):
        for above, below, sense, target in (
            (f"block {label}, C = 8", "mean field, C = 8", "at most", 1.5),
            ("GPflow, C = 16", f"block {label}, C = 16", "at least", 5.0),
            (f"block {label}, C = 64", f"block {label}, C = 8", "at most", 12.0),
        ):
            ratio = taken[above] / taken[below]
            met = ratio <= target if sense == "at most" else ratio >= target
            row = {"step": above, "over": "/ " + below, "ms": taken[above]}
            row |= {"ms of that": taken[below], "ratio": ratio, "target": f"{sense} {target:g}"}
            rows.append({**row, "met": met})
    return rows


# --- the table -----------------------------------------------------------------------------------


def compiled_marginals(q: WhitenedGaussian, phi: list[tf.Tensor]) -> Call:
    """Means and variances (but for the prior's) of the predictor, from given features and q."""
    form, tensors = q.form(), q.tensors()

    @tf.function(autograph=False)
    def marginals(tensors: list[tf.Tensor], phi: list[tf.Tensor]) -> Data:
        given = form(tensors)
        return given.total_mean(phi), given.total_quadratic(phi)

    return lambda: wait(marginals(tensors, phi))


def costs(num_components: int, num_inducing: int, seconds: float) -> Costs:
    """Of every family at one size."""
    blocks = make_model(num_components, num_inducing, MeanField()).blocks
    cholesky = blocks.cholesky()
    phi = blocks.features(make_data(num_components)[0], cholesky).phi
    storage: dict[str, int] = {}
    calls: dict[tuple[str, str], Call] = {}
    for name, make in FAMILIES.items():
        if name in DENSE and blocks.layout.total > MAX_DENSE:
            continue
        family = make(num_inducing)
        family.build(blocks.layout, 1)
        storage[name] = sum(v.shape.num_elements() for v in family.variables)
        kl = tf.function(family.kl, autograph=False)
        calls[name, "KL"] = lambda kl=kl: wait(kl(cholesky))
        calls[name, "marginals"] = compiled_marginals(family.whitened(cholesky), phi)
    ms = {key: 1e3 * seconds for key, seconds in medians(calls, seconds).items()}
    return {n: (number, ms[n, "KL"], ms[n, "marginals"]) for n, number in storage.items()}


def all_costs(
    sizes: Sequence[tuple[int, int]], axis: int, seconds: float
) -> list[dict[str, object]]:
    """Costs at every (C, M), of which ``axis`` (0: C, 1: M) varies, beside claimed exponents."""
    rows: list[dict[str, object]] = []
    result = [costs(C, M, seconds) for C, M in sizes]
    kinds = ("numbers held", "ms for the KL", f"ms for {ROWS} marginals, given features")
    for i, kind in enumerate(kinds):
        for name in FAMILIES:
            known = [(s[axis], c[name][i]) for s, c in zip(sizes, result) if name in c]
            row = {"cost": kind, "family": name}
            row |= {f"{'CM'[axis]} = {size}": value for size, value in known}
            claims = {k: c[name][i][axis] if name in c else None for k, c in CLAIMED.items()}
            rows.append({**row, "exponent": exponent(*zip(*known)), **claims})
    return rows


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="of timing for each size")
    parser.add_argument("--max-size", type=int, default=256, help="the largest C, and M")
    arguments = parser.parse_args()

    title = "Training steps of families of q(U), M = 32"
    record("table1_ratios", title, ratios(6.0 * arguments.seconds), arguments)
    powers = [n for n in (4, 8, 16, 32, 64, 128, 256) if n <= arguments.max_size]
    title = "Cost of families of q(U) by number of {}"
    for axis, (name, what, sizes) in enumerate(
        (
            ("components", "components C", [(C, 16) for C in powers]),
            ("inducing", "inducing inputs M", [(8, M) for M in powers[1:]]),
        )
    ):
        rows = all_costs(sizes, axis, arguments.seconds)
        record(f"table1_{name}", title.format(what), rows, arguments)


if __name__ == "__main__":
    main()
