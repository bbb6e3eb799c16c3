"""
Does it pay to keep the covariance's actions when hyperparameters move?

The default plans actions anew at every mode (a partial Cholesky factor, the leading eigenvectors,
one wide sweep). Kept ones are ``S = W U`` with the U of the fit before, which need no plan, and
with the nearest Gaussian no sweep of their own either, where one is spent on the fit before anyway.
A fit at the first hyperparameters; then variance and lengthscale grow by a factor, and a fit starts
from the one before with its actions planned anew, or kept; beside them one that starts from
nothing. ELBO (higher is better), sweeps, and seconds of CPU: of the fit, and of that for planning
and for the wide sweep, of which a kept set saves the first, or both. Run it with
``python benchmarks/iterncgp/carried.py``.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from hyperparameters import draw
from problems import NUM_CLASSES, mixture
from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from recording import add_option, record

import gpflow_gam as gg
from gpflow_gam.newton import reduced_newton as mode
from gpflow_gam.newton.policies import Context, Plan, Policy
from gpflow_gam.newton.solvers import Informative, ReducedNewton


class Kept(Policy):
    """
    ``S = W U`` of combinations that are given.

    :param U: [Q, N, B].
    """

    def __init__(self, U: tf.Tensor) -> None:
        self.U = U

    def plan(self, context: Context, number: int) -> Plan:
        S = context.precision.multiply(self.U)
        Q, N, B = self.U.shape
        flat = [tf.reshape(tf.transpose(t, [2, 0, 1]), [B, Q * N]) for t in (self.U, S)]
        noise = tf.matmul(flat[0], flat[1], transpose_b=True)
        S = tf.transpose(S, [2, 0, 1])
        return Plan(S, np.zeros(B, dtype=bool), noise=0.5 * (noise + tf.transpose(noise)))


class Watch:
    """Seconds of CPU in planning and in the wide sweep of :class:`Mode`, wherever it is asked."""

    def __init__(self) -> None:
        self.seconds = {"plan": 0.0, "sweep": 0.0}
        Informative.plan = self._timed(Informative.plan, "plan")  # type: ignore[method-assign]
        mode._products = self._timed(mode._products, "sweep")

    def _timed(self, function: Callable[..., Any], part: str) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            begun = time.process_time()
            found = function(*arguments)
            self.seconds[part] += time.process_time() - begun
            return found

        return run

    def started(self) -> float:
        self.seconds = dict.fromkeys(self.seconds, 0.0)
        return time.process_time()


def problem(name: str) -> tuple[np.ndarray, np.ndarray, gpflow.likelihoods.Likelihood, Any]:
    """Data, likelihood and kernel."""
    if name == "classes":
        X, y, _, _ = mixture(60, 1)
        kernel = gpflow.kernels.Matern32(20.0, 1.2)
        return X, y[:, None].astype(float), gpflow.likelihoods.Softmax(NUM_CLASSES), kernel
    X, Y = draw(name, 2000, 0)
    likelihood = gpflow.likelihoods.Poisson() if name == "poisson" else gg.likelihoods.Bernoulli()
    return X, Y, likelihood, gpflow.kernels.Matern52(2.0, 0.15)


def compared(name: str, number: int, factors: list[float], watch: Watch) -> list[dict[str, Any]]:
    """Rows of one problem."""
    X, Y, likelihood, kernel = problem(name)
    newton = ReducedNewton(num_actions=number)
    start = kernel.variance.numpy(), kernel.lengthscales.numpy()
    model = gg.models.IterNCGP((X, Y), kernel, likelihood, solver=newton)
    gg.optimizers.fit(model, hyperparameters=False)
    before, first = model.state, model.problem()
    g = first.operator.product(before.weights[..., None])[..., 0]
    S = tf.transpose(before.actions, [1, 2, 0])[..., :number]
    kept = replace(newton, policy=Kept(first.curvature(g).precision.solve(S)))  # U = W^+ S
    rows = []
    for factor in [factors[0], *factors]:  # the first time for what is compiled
        kernel.variance.assign(start[0] * factor)
        kernel.lengthscales.assign(start[1] * factor)
        for way in ("planned anew", "kept", "from nothing"):
            model.solver = kept if way == "kept" else newton
            model.forget_run()
            begun = watch.started()
            run = model.run(None if way == "from nothing" else before)
            for _ in run.steps():
                pass
            model.accept(run.finish())
            spent, sweeps = time.process_time() - begun, run.problem.operator.sweeps
            row = {"problem": name, "factor": factor, "actions": way, "ELBO": float(model.elbo())}
            parts = {f"CPU s, {part}": value for part, value in watch.seconds.items()}
            rows.append({**row, "sweeps": sweeps, "CPU s": spent, **parts})
            print(rows[-1], flush=True)
    return rows[3:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    names = ["poisson", "binary", "classes"]
    parser.add_argument("--problems", nargs="+", choices=names, default=names)
    parser.add_argument("--actions", type=int, default=200)
    parser.add_argument("--factors", type=float, nargs="+", default=[1.05, 1.3, 2.0])
    add_option(parser)
    arguments = parser.parse_args()
    watch = Watch()
    rows: list[dict[str, Any]] = []
    for name in arguments.problems:
        rows += compared(name, arguments.actions, arguments.factors, watch)
    print(tabulate(rows, headers="keys", floatfmt=".4g"))
    record(
        "iterncgp_carried",
        "Actions of the covariance kept where hyperparameters move, or planned anew",
        rows,
        arguments,
        within=["problem", "factor"],
        method="actions",
        ours=["planned anew"],
        better={"ELBO": "higher", "sweeps": "lower", "CPU s": "lower"},
        drawn={"ELBO": "difference"},
    )


if __name__ == "__main__":
    main()
