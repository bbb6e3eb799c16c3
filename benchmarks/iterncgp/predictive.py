"""
What IterNCGP predicts: which posterior, and which way from latent functions to the response.

Hyperparameters are learnt by each posterior's own bound, on the mixture of Tatzel et al. (2025)
with 600 rows, scikit-learn's digits with 1200, 300 binary responses and 300 counts; beside them
GPflow's SVGP (300 inducing inputs, which are all the rows of two problems; 600 steps of Adam). NLL
and ECE on held-out rows by every way there is; seconds on the clock, and of CPU in all threads,
which are what to compare where other work is running. Run it with
``python benchmarks/iterncgp/predictive.py`` (``--problems binary counts`` for some of them; digits
take minutes). ``--seeds 0 1 2`` draws other data, or other digits to train on, with each, and
other inducing inputs; recorded are then means over the draws with their standard errors, and each
way beside the default, on the same rows.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from problems import NUM_CLASSES, mixture
from scipy.special import expit
from scipy.stats import poisson
from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from recording import add_option, record

import gpflow_gam as gg
from gpflow_gam import metrics
from gpflow_gam.likelihoods import Bernoulli
from gpflow_gam.likelihoods.predictive import roots, shrunk, softmax_mean
from gpflow_gam.posteriors import ActionPosterior
from gpflow_gam.posteriors.base import seeds
from gpflow_gam.variational import standard_normal

SOLVERS = ("variational", "newton")
"""The default of so few rows comes first."""
OTHERS = ("mean", "probit", "projected", "monte carlo")
"""Ways from latent functions to classes beside predict_y, which comes first."""
Problem = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
DENSITY = "log-density of each row"
"""Of what was observed; too long to be recorded."""
MEANS = ("CPU s", "elbo", "variance", "lengthscale", "nll", "ece", "accuracy")


def digits(seed: int) -> Problem:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    X, y = load_digits(return_X_y=True)
    X, Xt, y, yt = train_test_split(X / 16.0, y, train_size=1200, random_state=seed, stratify=y)
    return X, y, Xt, yt


def one_column(name: str, seed: int) -> Problem:
    """300 rows of two inputs; 2000 to test on."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (2300, 2))
    f = 3.0 * np.sin(3 * X[:, 0]) * np.cos(2 * X[:, 1])
    y = rng.binomial(1, expit(f)) if name == "binary" else rng.poisson(np.exp(0.5 * f))
    return X[:300], y[:300], X[300:], y[300:]


PROBLEMS = {
    "mixture": lambda seed: mixture(60, 200, seed),
    "digits": digits,
    "binary": lambda seed: one_column("binary", seed),
    "counts": lambda seed: one_column("counts", seed),
}


def kernel(name: str) -> gpflow.kernels.Kernel:
    return gpflow.kernels.Matern32(1.0, 2.0 if name == "digits" else 0.5)


def likelihood(name: str) -> gpflow.likelihoods.Likelihood:
    if name == "binary":
        return gg.likelihoods.Bernoulli()
    return gpflow.likelihoods.Poisson() if name == "counts" else gpflow.likelihoods.Softmax(10)


def scores(truth: np.ndarray, p: np.ndarray) -> dict[str, Any]:
    result = {"nll": metrics.nlpd(truth, p), "ece": metrics.ece(truth, p)}
    density = np.log(p[np.arange(len(truth)), truth])
    return {**result, "accuracy": metrics.accuracy(truth, p), DENSITY: density}


def ours(
    name: str, solver: str, problem: Problem, seed: int, seconds: float
) -> list[dict[str, Any]]:
    X, y, Xt, yt = problem
    model = gg.models.IterNCGP(
        (X, y[:, None].astype(float)), kernel(name), likelihood(name), solver=solver
    )
    begun, worked = time.perf_counter(), time.process_time()
    result = gg.optimizers.fit(model, max_seconds=seconds)
    fit = {
        "problem": name,
        "seed": seed,
        "posterior": solver,
        "seconds": time.perf_counter() - begun,
        "CPU s": time.process_time() - worked,
        "converged": "yes" if result.converged else "no",
        "elbo": result.elbo,
        "variance": float(model.kernel.variance.numpy()),
        "lengthscale": float(model.kernel.lengthscales.numpy()),
    }
    if name == "counts":
        return of_counts(model, Xt, yt, fit)
    rows = [{**fit, "way": "predict_y", **scores(yt, of_classes(model, Xt))}]
    posterior, X = model.posterior(), tf.constant(Xt)
    for way in OTHERS:
        p = class_probabilities(model.likelihood, posterior, X, way, 500, 0).numpy()
        rows.append({**fit, "way": way, **scores(yt, p)})
    return rows


def class_probabilities(
    likelihood: gpflow.likelihoods.Likelihood,
    posterior: ActionPosterior,
    X: tf.Tensor,
    method: str,
    num_samples: int,
    seed: int,
) -> tf.Tensor:
    """
    [N, C] by other approximations than ``predict_y`` has.

    "mean" is of the posterior mean alone, "projected" MacKay's approximation of the joint
    posterior, "probit" of the marginals, as Tatzel et al. (2025) have it, and "monte carlo" is
    over the joint posterior.
    """
    if isinstance(likelihood, Bernoulli) or method in ("mean", "probit"):
        mean, var = posterior.predict_f(X)
        if isinstance(likelihood, Bernoulli):
            return _binary(likelihood, mean, var, method)
        return tf.nn.softmax(mean if method == "mean" else shrunk(mean, var))
    mean, cov = posterior.predict_f(X, full_output_cov=True)  # [N, C, C]
    if method == "projected":
        return softmax_mean(mean, cov)
    root, total = roots(cov), tf.zeros_like(mean)
    for one in seeds(seed, num_samples):
        z = standard_normal(tf.shape(mean), mean.dtype, one)
        total += tf.nn.softmax(mean + tf.linalg.matvec(root, z))
    return total / num_samples


def _binary(likelihood: Bernoulli, mean: tf.Tensor, var: tf.Tensor, method: str) -> tf.Tensor:
    if method == "mean":
        p = likelihood.invlink(mean)
    elif method == "monte carlo" or likelihood.link != "logit":
        p, _ = likelihood.predict_mean_and_var(tf.zeros_like(mean), mean, var)  # quadrature
    else:
        p = tf.sigmoid(shrunk(mean, var))
    return tf.concat([1.0 - p, p], axis=1)


def of_classes(model: gpflow.models.GPModel, Xt: np.ndarray) -> np.ndarray:
    """Class probabilities [N, C] by predict_y, which of two classes has that of one."""
    p = model.predict_y(Xt)[0].numpy()
    return np.concatenate([1.0 - p, p], axis=1) if p.shape[1] == 1 else p


def svgp(name: str, problem: Problem, seed: int, steps: int = 600) -> list[dict[str, Any]]:
    X, y, Xt, yt = problem
    rng = np.random.default_rng(seed)
    model = gpflow.models.SVGP(
        kernel(name),
        likelihood(name),
        gpflow.inducing_variables.InducingPoints(X[rng.permutation(len(X))[:300]].copy()),
        num_latent_gps=NUM_CLASSES if name in ("digits", "mixture") else 1,
        num_data=len(X),
    )
    gpflow.set_trainable(model.inducing_variable, False)
    begun, worked = time.perf_counter(), time.process_time()
    Y = y[:, None] if name in ("digits", "mixture") else y[:, None].astype(float)
    loss = model.training_loss_closure((tf.constant(X), tf.constant(Y)))
    step = tf.keras.optimizers.Adam(0.02)

    @tf.function
    def move() -> None:
        with tf.GradientTape() as tape:
            value = loss()
        variables = model.trainable_variables
        step.apply_gradients(zip(tape.gradient(value, variables), variables))

    step.build(model.trainable_variables)
    for _ in range(steps):
        move()
    fit = {
        "problem": name,
        "seed": seed,
        "posterior": "SVGP",
        "seconds": time.perf_counter() - begun,
        "CPU s": time.process_time() - worked,
        "variance": float(model.kernel.variance.numpy()),
        "lengthscale": float(model.kernel.lengthscales.numpy()),
    }
    if name == "counts":
        return of_counts(model, Xt, yt, fit)
    mean, var = (t.numpy() for t in model.predict_f(Xt))
    rows = [{**fit, "way": "predict_y", **scores(yt, of_classes(model, Xt))}]
    if name == "binary":
        return rows
    for way, shrink in (("mean", 0.0), ("probit", np.pi / 8.0)):
        F = mean / np.sqrt(1.0 + shrink * var)
        rows.append({**fit, "way": way, **scores(yt, tf.nn.softmax(F).numpy())})
    F = mean + np.sqrt(var) * rng.normal(size=(500, *mean.shape))
    p = tf.reduce_mean(tf.nn.softmax(F), axis=0).numpy()
    rows.append({**fit, "way": "monte carlo", **scores(yt, p)})
    return rows


def of_counts(
    model: gpflow.models.GPModel, Xt: np.ndarray, yt: np.ndarray, fit: dict[str, Any]
) -> list[dict[str, Any]]:
    mean, _ = model.predict_f(Xt)
    density = model.predict_log_density((Xt, yt[:, None].astype(float)))
    plug = poisson.logpmf(yt, np.exp(mean.numpy()[:, 0]))
    result = {"predict_y": density.numpy(), "mean": plug}
    return [{**fit, "way": w, "nll": -float(d.mean()), DENSITY: d} for w, d in result.items()]


def beside_default(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of one problem and draw with how far each is behind the first, the default's."""
    result = []
    for row in rows:
        behind = rows[0][DENSITY] - row[DENSITY]
        error = float(behind.std(ddof=1) / np.sqrt(len(behind)))
        result.append({**row, "less default's": float(behind.mean()), "se over rows": error})
    return [{k: v for k, v in row.items() if k != DENSITY} for row in result]


def over_seeds(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means over draws, their standard errors, and by how much the default is behind at most."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["problem"], row["posterior"], row["way"]), []).append(row)
    result = []
    for key, own in groups.items():
        average = {c: float(np.mean([r[c] for r in own])) for c in MEANS if c in own[0]}
        behind = np.array([row["less default's"] for row in own])
        errors = {
            "se of nll": np.std([r["nll"] for r in own], ddof=1) / np.sqrt(len(own)),
            "less default's": behind.mean(),
            "se of that": behind.std(ddof=1) / np.sqrt(len(own)),
            "default behind at most": 0.0 - behind.min(),
            "se over one draw's rows": np.mean([row["se over rows"] for row in own]),
        }
        which = dict(zip(("problem", "posterior", "way"), key))
        result.append({**which, "draws": len(own), **average, **errors})
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--solvers", nargs="+", choices=SOLVERS, default=list(SOLVERS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--seconds", type=float, default=240.0, help="of one fit of ours")
    add_option(parser)
    arguments = parser.parse_args()
    rows = []
    for name, seed in itertools.product(arguments.problems, arguments.seeds):
        problem = PROBLEMS[name](seed)
        result = [
            row
            for solver in arguments.solvers
            for row in ours(name, solver, problem, seed, arguments.seconds)
        ]
        result = beside_default(result + svgp(name, problem, seed))
        print(tabulate(result, headers="keys", floatfmt=".4f"), flush=True)
        rows += result
    several = len(arguments.seeds) > 1
    if several:
        rows = over_seeds(rows)
        print(tabulate(rows, headers="keys", floatfmt=".4f"))
    alone = arguments.problems[0] if len(arguments.problems) == 1 else ""
    record(
        "iterncgp_predictive" + ("_" + alone if alone else "") + ("_seeds" if several else ""),
        "What IterNCGP predicts, by posterior and way, beside SVGP: hyperparameters learnt"
        + (f", {alone}" if alone else "")
        + (f", {len(arguments.seeds)} draws" if several else ""),
        rows,
        arguments,
        within=["problem"] if several else ["problem", "seed"],
        method="posterior",
        ours=SOLVERS,
        better={"nll": "lower", "ece": "lower", "accuracy": "higher"},
        drawn={"nll": "difference"},
    )


if __name__ == "__main__":
    main()
