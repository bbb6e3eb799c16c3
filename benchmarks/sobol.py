"""
Sobol indices from few evaluations of a function: beside SALib's estimators.

Two functions whose indices are known in closed form, Ishigami's (Ishigami & Homma 1990) and Sobol's
G function (Sobol' 1993, 2003). Ours is the functional ANOVA of an additive Gaussian process with
all main effects and pairs, fitted to the function's values at a scrambled Sobol' sequence. SALib's
are Saltelli's scheme (Saltelli et al. 2010), the extended FAST (Saltelli, Tarantola & Chan 1999)
and RBD-FAST (Tarantola, Gatelli & Mara 2006; first-order indices only), at numbers of evaluations
as near as their schemes allow. Printed: the mean absolute error over a function's indices, as the
median over designs, against the number of evaluations; the share of the true indices that lie
within the intervals of 95 %, posterior ones of ours and bootstrapped ones of SALib's; and seconds.

Values are free of noise, but a second-order model of the G function is not: what three or more
inputs do together is left to the likelihood's variance, which is learnt, or, where evaluations are
few, to small effects that the function does not have. Indices of such a model cannot be exact
however many evaluations there are; the table says how far off they are at best.

Intervals of ours are given the fitted hyperparameters and the model: both are wrong in ways that
they do not allow for, by far the more so where few evaluations have to tell many hyperparameters.

Run it with ``python benchmarks/sobol.py``; it needs ``pip install "salib<1.6"`` (from 1.6 on SALib
needs NumPy 2, which GPflow does not take). ``--results FILE`` keeps what has been computed, so that
a run that was interrupted goes on; ``--figure FOLDER`` draws error against evaluations.

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

import argparse
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from recording import add_option, record
from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).with_suffix("")))

from estimators import METHODS, OURS
from figure import draw
from functions import Function, check_closed_forms, ishigami, sobol_g


def score(
    function: Function, method: str, number: int, seed: int
) -> Iterator[dict[str, str | float]]:
    """One row a kind of index: error, coverage and seconds of one estimate."""
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SALib's own, of pandas
        evaluations, estimates = METHODS[method][0](function, number, seed)
    seconds = time.perf_counter() - start
    for e in estimates:
        truth = getattr(function, e.kind)
        slack = 1e-12  # an index of zero is within limits of zero
        inside = (e.lower - slack <= truth) & (truth <= e.upper + slack)
        yield {
            "function": function.name,
            "method": method,
            "size": number,
            "seed": seed,
            "kind": e.kind,
            "evaluations": evaluations,
            "error": float(np.abs(e.value - truth).mean()),
            "coverage": float(inside.mean()),
            "seconds": seconds,
        }


def compare(
    functions: list[Function], methods: list[str], num_seeds: int, largest: int, path: Path | None
) -> pd.DataFrame:
    """
    Scores of all methods, small designs first.

    :param num_seeds: designs of each size.
    :param largest: design of ours.
    :param path: a CSV file that is read first and written as scores come.
    """
    known = pd.read_csv(path) if path is not None and path.exists() else pd.DataFrame()
    rows = known.to_dict("records")
    done = {(r["function"], r["method"], r["size"], r["seed"]) for r in rows}
    tasks = [
        (number, function, method, seed)
        for function in functions
        for method in methods
        for number in METHODS[method][1](function.dimension)
        for seed in range(num_seeds)
        if method != OURS or number <= largest
    ]
    for number, function, method, seed in sorted(tasks, key=lambda t: (t[2] == OURS, t[0])):
        if (function.name, method, number, seed) in done:
            continue
        result = list(score(function, method, number, seed))
        rows += result
        if path is not None:
            pd.DataFrame(rows).to_csv(path, index=False)
        if method == OURS:
            told = ", ".join(f"{r['kind']} {r['error']:.5f}" for r in result)
            print(f"{function.name}, {number}, design {seed}: {told}", flush=True)
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


def report(scores: pd.DataFrame, table: pd.DataFrame, functions: list[Function]) -> None:
    """Print the tables."""
    heads = ["method", "evaluations", "designs", "first", "total", "in 95 %", "in 95 %", "s"]
    columns = ["method", "evaluations", "designs", "first error", "total error"]
    columns += ["first coverage", "total coverage", "seconds"]
    formats = ("", "d", "d", ".5f", ".5f", ".2f", ".2f", ".2f")
    for function in functions:
        own = table[table["function"] == function.name]
        own = own.sort_values("method", key=lambda m: m.map(list(METHODS).index), kind="stable")
        print(f"\n{function.name}, {function.dimension} inputs: mean absolute errors of indices")
        rows = own.reindex(columns=columns).astype(object)
        print(tabulate(rows.where(rows.notna(), None).values, heads, floatfmt=formats))
        least = function.least_errors()
        if max(least.values()) > 1e-12:
            told = ", ".join(f"{kind} {error:.5f}" for kind, error in least.items())
            print(f"a second-order model that knows the function: {told}")
    print("\nShare of true indices within 95 % intervals, all sizes")
    pooled = scores.pivot_table("coverage", "method", ["function", "kind"], sort=False)
    pooled.columns = [f"{name}, {kind}" for name, kind in pooled.columns]
    print(tabulate(pooled, headers="keys", floatfmt=".2f"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--num-seeds", type=int, default=5, help="designs of each size")
    parser.add_argument("--largest", type=int, default=512, help="design of the additive GP")
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--results", type=Path, help="CSV file that keeps what was computed")
    parser.add_argument("--figure", type=Path, metavar="FOLDER", help="where to draw sobol.png")
    add_option(parser)
    arguments = parser.parse_args()
    check_closed_forms()
    functions = [ishigami(), sobol_g()]
    scores = compare(
        functions, arguments.methods, arguments.num_seeds, arguments.largest, arguments.results
    )
    table = medians(scores)
    report(scores, table, functions)
    if arguments.figure is not None:
        print(f"figure: {draw(table, functions, arguments.figure)}")
    heads = {"first error": "error, first-order", "total error": "error, total"}
    heads |= {"first coverage": "in 95 %, first-order", "total coverage": "in 95 %, total"}
    rows = table.rename(columns=heads).astype(object)
    record(
        "sobol",
        "Sobol indices from few evaluations of a function",
        rows.where(rows.notna(), None).to_dict("records"),
        arguments,
        peers=["salib"],
    )


if __name__ == "__main__":
    main()
