"""
Where does Newton's method find the mode? The mixture over lengthscales and variances.

N = 2000, ten classes, Matern-3/2. The published loop (five inner iterations a step, recycled) and
the default solver against the dense Laplace mode: sweeps until within 1 nat of it, whether the log
posterior ever fell, and where each was after its budget. With ``--predict`` also how both predict
beside the dense posterior at lengthscale .3, variance 5, within 40 sweeps and at several bounds of
the buffers. Run it with ``python benchmarks/iterncgp/robustness.py``.
"""

from __future__ import annotations

import argparse
import itertools

import gpflow
import numpy as np
import tensorflow as tf
from approximations import class_probabilities
from problems import NUM_CLASSES, DenseLaplace, mixture, probit, without_shift
from tabulate import tabulate

from gpflow_gam import metrics, optimizers
from gpflow_gam.models import IterNCGP

LENGTHSCALES, VARIANCES = (0.05, 0.1, 0.3, 1.0), (0.05, 0.5, 5.0, 20.0)


def history(model: IterNCGP, max_sweeps: float) -> tuple[list[float], list[float], str]:
    """Sweeps, log posteriors, and how it ended."""
    result = optimizers.fit(model, hyperparameters=False, max_sweeps=max_sweeps)
    rows = result.steps
    return [r["sweeps"] for r in rows], [r["log_posterior"] for r in rows], result.message


def outcome(model: IterNCGP, mode: float, max_sweeps: float) -> list[object]:
    sweeps, values, message = history(model, max_sweeps)
    if not values:
        return ["-", "-", message[:30]]
    near = [s for s, v in zip(sweeps, values) if v > mode - 1.0]
    fell = bool(np.any(np.diff(values) < -1e-9 * abs(mode)))
    end = f"{values[-1] - mode:.2g}" if "Newton step" not in message else "diverged"
    return [f"{near[0]:.1f}" if near else "-", "yes" if fell else "no", end]


def the_map(X: np.ndarray, labels: np.ndarray, max_sweeps: float) -> None:
    rows = []
    for lengthscale, variance in itertools.product(LENGTHSCALES, VARIANCES):
        kernel = gpflow.kernels.Matern32(variance, lengthscale)
        mode = DenseLaplace(kernel(X).numpy(), labels).log_posterior
        data = X, labels[:, None].astype(float)
        likelihood = gpflow.likelihoods.Softmax(NUM_CLASSES)
        ours = outcome(IterNCGP(data, kernel, likelihood, solver="newton"), mode, max_sweeps)
        literal = IterNCGP(data, kernel, likelihood, solver="itergp", max_solver_steps=5,
                           max_newton_steps=20, tolerance=1e-6)  # fmt: skip
        rows.append([lengthscale, variance, f"{mode:.2f}", *ours, *outcome(literal, mode, 100.0)])
        print(rows[-1], flush=True)
    heads = ["l", "variance", "mode", "ours: sweeps to 1 nat", "fell", "end - mode"]
    heads += ["literal: sweeps to 1 nat", "fell", "end - mode"]
    print(tabulate(rows, heads))


def predictions(X: np.ndarray, labels: np.ndarray, Xt: np.ndarray, truth: np.ndarray) -> None:
    kernel = gpflow.kernels.Matern32(5.0, 0.3)
    dense = DenseLaplace(kernel(X).numpy(), labels)
    mean, cov = dense.predict(kernel(Xt, X).numpy(), kernel(Xt, full_cov=False).numpy())
    rows = []

    def add(name: str, sweeps: float, ways: list[np.ndarray]) -> None:
        scores = [f(truth, p) for p in ways for f in (metrics.nlpd, metrics.ece)]
        rows.append([name, f"{sweeps:.1f}", *(f"{s:.3f}" for s in scores)])

    add("dense", 0, [softmax_of(mean), probit(mean, np.einsum("ncc->nc", cov)),
                     probit(mean, without_shift(cov))])  # fmt: skip
    for bound in (None, 10, 50, 100, 400):
        model = IterNCGP((X, labels[:, None].astype(float)), kernel,
                         gpflow.likelihoods.Softmax(NUM_CLASSES), compression=bound,
                         solver="newton")  # fmt: skip
        result = optimizers.fit(model, hyperparameters=False, max_sweeps=40)
        given = model.likelihood, model.posterior(), tf.constant(Xt)
        ways = [
            class_probabilities(*given, way, 0, 0).numpy()
            for way in ("mean", "probit", "projected")
        ]
        add(f"ours, R = {bound or 'default'}", result.sweeps, ways)
    heads = [f"{m} {s}" for m in ("mean", "probit", "projected") for s in ("NLL", "ECE")]
    print(tabulate(rows, ["posterior", "sweeps", *heads], disable_numparse=True))


def softmax_of(mean: np.ndarray) -> np.ndarray:
    return probit(mean, np.zeros_like(mean))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--predict", action="store_true", help="predictions instead of the map")
    parser.add_argument("--sweeps", type=float, default=25.0, help="budget of the default solver")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    X, labels, Xt, truth = mixture(200, 200, arguments.seed)
    if arguments.predict:
        predictions(X, labels, Xt, truth)
    else:
        the_map(X, labels, arguments.sweeps)


if __name__ == "__main__":
    main()
