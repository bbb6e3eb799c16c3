"""
What would limits hold that approximate nothing? Markov chains beside ours, on binary responses.

The replicates are those of ``coverage.py``'s binary responses. A chain has the model's own prior
over inducing values and hyperparameters (in the coordinates in which they are optimised) and the
likelihood of all rows, without sites, a normal posterior or draws around an optimum: elliptical
slices move the inducing values (Murray, Adams & MacKay 2010), Metropolis steps the hyperparameters
of one component after the other at given whitened values. Its limits are quantiles of its draws.
``fitted`` are ours with hyperparameters taken as known. Coverage is averaged across the function,
over the data. Run it with ``python benchmarks/exact.py``.

- Murray, I., Adams, R. P. & MacKay, D. J. C. (2010). Elliptical slice sampling. AISTATS.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import numpy as np
import pandas as pd
from bands import HALF
from coverage import EFFECTS, LEVEL, PREDICTOR, replicate, truth
from recording import add_option, record
from scipy.linalg import solve_triangular
from tabulate import tabulate

FAMILY = "bernoulli"
SLICES = 3
"""Of all inducing values, and of one component's, for each step of the hyperparameters."""
STEPS = 0.3, 0.8, 2.0
"""Of a hyperparameter's logarithm."""
EVERY = 4
"""Steps between the draws that are kept; the first eighth of them are not."""

Bands = dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]
"""Estimate, lower and upper limit at the data, by effect."""


class Chain:
    """
    Inducing values and hyperparameters of a fit, moved by what rows and priors say of them.

    :param gam: fitted.
    :param data: its rows.
    :param seed: of the moves.
    """

    def __init__(self, gam: Any, data: pd.DataFrame, seed: int) -> None:
        from gpflow_gam.kernels.functional import parameters_of

        fit = gam.fitted
        self.names, solution, moments = list(fit.spec.names), fit.solution, fit.free_moments
        self.rounds, self.rng = solution.rounds, np.random.default_rng(seed)
        self.prior = self.rounds.hyperparameters.log_prior
        self.tangents = moments.all_tangents(fit.encode(data))
        self.sign = 2.0 * data["y"].to_numpy() - 1.0
        self.u = solution.found.copy()
        every = [id(p) for p, _ in self.rounds.hyperparameters.moved(self.u, 0.0)]
        self.own = []
        for component in solution.rows.components:
            ids = {id(p) for p in parameters_of(component.kernel)}
            self.own.append([i for i, key in enumerate(every) if key in ids])
        self.phi = [self.features(c, self.u) for c in range(len(self.names))]
        self.V = [moments.mean[moments.block(name), 0] for name in self.names]
        self.parts = np.stack([phi.T @ v for phi, v in zip(self.phi, self.V)])
        self.likelihood = self.of(self.parts.sum(axis=0))

    def features(self, c: int, u: np.ndarray) -> np.ndarray:
        """Of a component at the data, [M_c, N]."""
        values = self.rounds.values(u)
        _, K, _ = self.tangents[c].matrices(values)
        return solve_triangular(self.rounds.evidence.block(c, values).root, K, lower=True)

    def of(self, f: np.ndarray) -> float:
        """The log-likelihood of a predictor [N]."""
        return -float(np.sum(np.logaddexp(0.0, -self.sign * f)))

    def slice(self, which: list[int]) -> None:
        """Move the inducing values of some components round an ellipse."""
        nu = [self.rng.standard_normal(len(self.V[c])) for c in which]
        beside = np.stack([self.phi[c].T @ z for c, z in zip(which, nu)])
        now, rest = self.parts[which].sum(axis=0), self.parts.sum(axis=0)
        rest, other = rest - now, beside.sum(axis=0)
        least = self.likelihood + np.log(self.rng.uniform())
        angle = self.rng.uniform(0.0, 2.0 * np.pi)
        low, high = angle - 2.0 * np.pi, angle
        while (found := self.of(rest + now * np.cos(angle) + other * np.sin(angle))) <= least:
            low, high = (angle, high) if angle < 0.0 else (low, angle)
            angle = self.rng.uniform(low, high)
        self.likelihood = found
        for c, z in zip(which, nu):
            self.V[c] = self.V[c] * np.cos(angle) + z * np.sin(angle)
        self.parts[which] = self.parts[which] * np.cos(angle) + beside * np.sin(angle)

    def step(self, c: int) -> None:
        """A Metropolis step of some of a component's hyperparameters."""
        from gpflow_gam.errors import NotPositiveDefinite

        own = [i for i in self.own[c] if self.rng.uniform() < 0.6]
        there = self.u.copy()
        there[own] += self.rng.choice(STEPS) * self.rng.standard_normal(len(own))
        try:
            phi = self.features(c, there)
        except NotPositiveDefinite:
            return
        part = phi.T @ self.V[c]
        likelihood = self.of(self.parts.sum(axis=0) - self.parts[c] + part)
        gain = likelihood - self.likelihood + self.prior(there)[0] - self.prior(self.u)[0]
        if np.log(self.rng.uniform()) < gain:
            self.u, self.phi[c], self.parts[c], self.likelihood = there, phi, part, likelihood

    def run(self, steps: int) -> np.ndarray:
        """Draws of the components at the data, [S, C, N]."""
        kept, every = [], list(range(len(self.names)))
        for t in range(steps):
            for _ in range(SLICES):
                self.slice(every)
                self.slice([int(self.rng.integers(len(every)))])
            for c in every:
                if self.own[c]:
                    self.step(c)
            if t >= steps // 8 and t % EVERY == 0:
                kept.append(self.parts.copy())
        return np.stack(kept)


def bands(seed: int, num_data: int, steps: int) -> tuple[pd.DataFrame, dict[str, Bands]]:
    """A replicate, and its bands by method."""
    import gpflow_gam as gg
    from gpflow_gam import s

    data = replicate(FAMILY, num_data, seed)
    gam = gg.GAM(s("x0") + s("x1") + s("x2") + s("x3"), family=FAMILY).fit(data, y="y")
    found: dict[str, Bands] = {}
    for method, unconditional in (("ours", True), ("fitted", False)):
        how = {"se": True, "unconditional": unconditional}
        estimates, errors = gam.predict(data, type="terms", **how)
        own = {e: (estimates[e].to_numpy(), errors[e].to_numpy()) for e in EFFECTS}
        own[PREDICTOR] = gam.predict(data, type="link", **how)
        found[method] = {e: (m, m - HALF * sd, m + HALF * sd) for e, (m, sd) in own.items()}
    draws = Chain(gam, data, seed).run(steps)
    of = {e: draws[:, gam.fitted.spec.names.index(e)] for e in EFFECTS}
    of[PREDICTOR] = draws.sum(axis=1)
    tail = 0.5 * (1.0 - LEVEL)
    found["chains"] = {
        e: (d.mean(axis=0), *np.quantile(d, [tail, 1.0 - tail], axis=0)) for e, d in of.items()
    }
    return data, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--replicates", type=int, default=20)
    parser.add_argument("--n", type=int, default=400, help="rows of a replicate")
    parser.add_argument("--steps", type=int, default=6000, help="of a chain")
    add_option(parser)
    options = parser.parse_args()
    scores = []
    start = time.perf_counter()
    for seed in range(options.replicates):
        data, found = bands(seed, options.n, options.steps)
        for method, own in found.items():
            for effect, (estimate, lower, upper) in own.items():
                column = data[effect[2:-1]].to_numpy() if effect != PREDICTOR else data.index
                true = truth(FAMILY, data, effect, column)
                scores.append(
                    {
                        "effect": effect,
                        "method": method,
                        "replicate": seed,
                        "coverage": np.mean((lower <= true) & (true <= upper)),
                        "width": np.mean(upper - lower),
                        "RMSE": np.sqrt(np.mean(np.square(estimate - true))),
                    }
                )
        print(f"\r{seed + 1}/{options.replicates}", end="", file=sys.stderr, flush=True)
    every = pd.DataFrame(scores)
    effects = every[every["effect"] != PREDICTOR].assign(effect="all effects")
    rows = []
    for (effect, method), own in pd.concat([every, effects]).groupby(["effect", "method"]):
        each = own.groupby("replicate")["coverage"].mean()
        rows.append(
            {
                "effect": effect,
                "method": method,
                "coverage": own["coverage"].mean(),
                "its se": each.sem(),
                "width": own["width"].mean(),
                "RMSE": own["RMSE"].mean(),
            }
        )
    print(tabulate(rows, "keys", floatfmt=".3f"))
    record(
        "exact",
        "What limits hold that approximate nothing, of binary responses",
        rows,
        options,
        within=["effect"],
        method="method",
        ours=["ours", "fitted"],
        better={"RMSE": "lower"},
    )
    print(f"\ntime taken: {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
