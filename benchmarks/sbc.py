"""
Simulation-based calibration: does each posterior hold truths of its own prior as often as it says?

A replicate draws a constant and two functions from the model's prior, rows of two columns that are
nearly the same (correlation .97, so that each function alone is badly known and their sum well) and
responses from the likelihood. Hyperparameters are known, so that an exact posterior holds the truth
exactly as often as it says (Talts et al. 2018), and whatever is off is the approximation's: of the
posterior by a Gaussian, of its covariance by a family of q(U), of its centre by Laplace's mode.
Quantities are the two functions at the middle, the predictor there, and the difference of the two
functions, which is what data say least about. The place of the truth, ``Phi((truth - mean) / sd)``,
is one a replicate, so places are independent, and the empirical distribution is compared with the
band that 99 % of uniform samples stay within (Saeilynoja, Buerkner & Vehtari 2022, by simulation).

The table has the share of truths within central intervals of 50 to 99 %, how far the distribution
of places is from uniform at most, and whether it leaves the band. Run it with
``python benchmarks/sbc.py``.

- Talts, S., Betancourt, M., Simpson, D., Vehtari, A. & Gelman, A. (2018). Validating Bayesian
  inference algorithms with simulation-based calibration. arXiv:1804.06788.
- Saeilynoja, T., Buerkner, P.-C. & Vehtari, A. (2022). Graphical test for discrete uniformity and
  its applications in goodness-of-fit evaluation and multiple sample comparison. Statistics and
  Computing 32.
"""

from __future__ import annotations

import itertools
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from calibration import LEVELS, POINTS, leaves, places
from harness import pool, resumed
from recording import parser_of, record
from scipy.special import ndtr
from truths import FAMILIES

ROWS, INDUCING = 100, 16
VARIANCES, LENGTHSCALES = (0.25, 0.7, 0.3), (0.25, 0.4)
QUANTITIES = ("first function", "second function", "predictor", "difference")

RESPONSES = {
    **dict(itertools.islice(FAMILIES.items(), 8)),
    "gamma": lambda rng, f: rng.gamma(3.0, np.exp(f)),
    # so near to one that floats do not tell: said in the docs, where it shows
    "beta": lambda rng, f: np.clip(rng.beta(8 * ndtr(f), 8 * ndtr(-f)), 1e-9, 1.0 - 1e-9),
    "ordinal": lambda rng, f: np.digitize(f + rng.standard_normal(f.shape), [0.0, 1.0]) + 0.0,
}
"""Responses of a predictor."""
EXACT = "sites"
METHODS = (EXACT, "mean field", "coupled covariance", "coupled precision", "block precision")
NEWTON = "IterNCGP"
BESIDE = ("gaussian",)
"""Responses of which the families of q(U) and IterNCGP are tried: sites are exact there."""


def likelihood_of(name: str) -> Any:
    """Of the responses, with known parameters."""
    import gpflow

    import gpflow_gam as gg

    own = gpflow.likelihoods
    made = {
        "gaussian": lambda: own.Gaussian(0.25),
        "student_t": lambda: own.StudentT(scale=0.4, df=4.0),
        "gamma": lambda: own.Gamma(shape=3.0),
        "beta": lambda: own.Beta(scale=8.0),
        "poisson": lambda: own.Poisson(),
        "negative_binomial": lambda: gg.likelihoods.NegativeBinomial(alpha=0.5),
        "bernoulli": lambda: gg.likelihoods.Bernoulli(),
        "ordinal": lambda: gg.likelihoods.Ordered(3),
    }[name]()  # fmt: skip
    gpflow.set_trainable(made, False)
    return made


def model_of(method: str, response: str, X: np.ndarray, Y: np.ndarray) -> Any:
    """Unfitted, with known hyperparameters."""
    import gpflow
    from gpflow.kernels import Constant, SquaredExponential

    import gpflow_gam as gg

    pieces = {"constant": Constant(VARIANCES[0])}
    for d, name in enumerate(("first", "second")):
        size, length = VARIANCES[d + 1], LENGTHSCALES[d]
        pieces[name] = SquaredExponential(size, length, active_dims=[d])
    kernel = gg.kernels.AdditiveKernel(pieces)
    gpflow.set_trainable(kernel, False)
    likelihood = likelihood_of(response)
    if method == NEWTON:
        return gg.models.IterNCGP((X, Y), kernel, likelihood, solver="newton")
    line = np.linspace(0.0, 1.0, INDUCING)[:, None]
    where = {"constant": np.zeros((1, 0)), "first": line, "second": line}
    inducing = gg.inducing_variables.AdditiveInducingVariables(where)
    gpflow.set_trainable(inducing, False)
    family = {
        EXACT: gg.variational.OptimalPrecision,
        "mean field": gg.variational.MeanField,
        "coupled covariance": gg.variational.CoupledCovariance,
        "coupled precision": partial(gg.variational.CoupledPrecision, rank=INDUCING),
        "block precision": partial(gg.variational.BlockPrecision, rank=8),
    }[method]()
    return gg.models.AdditiveSVGP(kernel, likelihood, inducing, variational=family, num_data=len(X))


def one(task: tuple[str, str, int]) -> np.ndarray:
    """A replicate: the truth's place in the posterior of each quantity."""
    import tensorflow as tf

    import gpflow_gam as gg

    warnings.simplefilter("ignore")
    response, method, seed = task
    # sites settle in a few sweeps: of a hundred rows compiling them would be most of the time
    tf.config.run_functions_eagerly(method == EXACT)
    rng = np.random.default_rng([seed, list(RESPONSES).index(response)])
    x = rng.uniform(size=ROWS)
    X = np.stack([x, 0.8 * x + 0.2 * rng.uniform(size=ROWS)], axis=1)
    X = np.concatenate([X, [[0.5, 0.5]]])  # the last is asked about
    truth = np.sqrt(VARIANCES[0]) * rng.standard_normal() * np.ones((3, len(X)))
    for d, (size, length) in enumerate(zip(VARIANCES[1:], LENGTHSCALES)):
        K = size * np.exp(-0.5 * np.square((X[:, d, None] - X[:, d]) / length))
        values, vectors = np.linalg.eigh(K)
        roots = np.sqrt(np.maximum(values, 0.0))
        truth[d + 1] = vectors @ (roots * rng.standard_normal(len(X)))
    Y = RESPONSES[response](rng, truth.sum(axis=0)[:-1])[:, None]
    model = model_of(method, response, X[:-1], Y)
    if method == NEWTON:
        result = gg.optimizers.fit(model, hyperparameters=False, progress=False)
    else:
        result = gg.optimizers.fit(model, (X[:-1], Y), progress=False)
    if not result.converged:
        raise RuntimeError(f"{method}, {response}, {seed}: {result.message}")
    posterior = model.posterior()
    mean = np.asarray(posterior.predict_components(X[-1:])[0]).ravel()
    covariance = np.asarray(posterior.predict_component_covariance(X[-1:])).reshape(3, 3)
    weights = np.array([[0, 1, 0], [0, 0, 1], [1, 1, 1], [0, 1, -1]])
    spread = np.sqrt(np.einsum("qi,ij,qj->q", weights, covariance, weights))
    return places(weights @ truth[:, -1], weights @ mean, spread)


def rows_of(results: dict[tuple[str, str], np.ndarray]) -> list[dict[str, Any]]:
    """A row a method, response and quantity."""
    rows = []
    for (response, method), result in results.items():
        for q, quantity in enumerate(QUANTITIES):
            u = result[:, q]
            shares = np.mean(u[:, None] <= POINTS, axis=0)
            row: dict[str, Any] = {"response": response, "q": method, "quantity": quantity}
            row |= {f"{v:g}": float(np.mean(2.0 * np.abs(u - 0.5) <= v)) for v in LEVELS}
            row["se at .95"] = float(np.sqrt(0.95 * 0.05 / len(u)))
            row["away from uniform"] = float(np.max(np.abs(shares - POINTS)))
            row["leaves the band"] = leaves(u)
            rows.append({**row, "replicates": len(u)})
    return rows


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--replicates", type=int, default=1000, help="of sites")
    parser.add_argument("--family-replicates", type=int, default=300, help="of the others")
    parser.add_argument("--responses", nargs="+", choices=list(RESPONSES), default=list(RESPONSES))
    parser.add_argument("--methods", nargs="*", default=[*METHODS, NEWTON])
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--results", type=Path, help="keeps places: a run that was ended goes on")
    arguments = parser.parse_args()

    cases = [(r, EXACT) for r in arguments.responses if EXACT in arguments.methods]
    cases += [
        (r, m) for r in arguments.responses for m in arguments.methods if r in BESIDE and m != EXACT
    ]
    results: dict[tuple[str, str], np.ndarray] = {}
    with pool(arguments.jobs) as workers:
        for case in cases:
            number = arguments.replicates if case[1] == EXACT else arguments.family_replicates
            kept = arguments.results and arguments.results / f"{', '.join(case)}.pickle"
            tasks = [(*case, seed) for seed in range(number)]
            results[case] = np.array(resumed(workers, one, tasks, kept))
    record(
        "sbc",
        "Simulation-based calibration at known hyperparameters",
        rows_of(results),
        arguments,
    )


if __name__ == "__main__":
    main()
