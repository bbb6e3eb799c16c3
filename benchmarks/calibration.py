"""
Do probabilities mean what they say? Every family, everything that has an error bar, defaults only.

    y ~ s(curve) + s(line) + s(absent) + factor(g),   a GP draw, a line, nothing, three levels

A replicate draws the truth anew: a curve from a Gaussian process with a lengthscale of its own, a
slope, levels. Of everything that a fit gives an error bar for, the truth's place in it
(``Phi((truth - estimate) / se)``) is uniform if errors are normal and honest (of responses and
Sobol indices the limits of each level are asked for instead): the table has the
share of truths within central intervals of 50 to 99 %, with its standard error over replicates, and
the figure the empirical distribution of places, one point a replicate, beside the envelope that
99 % of uniform samples stay within (Saeilynoja, Buerkner & Vehtari 2022, by simulation). Truths are
not draws from the model's prior, which is not known before the data: this is coverage across
functions (Nychka 1988), and a curve's own coverage may be off where the average over effects is
not.

Quantities: effects on a grid, their derivatives, differences of levels, the predictor at the rows,
new responses, the share of variance that is the curve's (Sobol index), and the leave-one-out
density (its total, beside as many new rows'). ``--hidden`` is a truth of thirty waves, beyond what
default smooths resolve. mgcv (REML, k as ours) is fitted to the same rows where ``Rscript`` is
there.

Run it with ``python benchmarks/calibration.py``; ``--figure`` redraws the docs' picture of places.
"""

from __future__ import annotations

import argparse
import pickle
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from calibration_truths import COUNTS, FAMILIES, INFLATED, Truth, replicate
from harness import in_r, mgcv_is_there, pool
from places import below, panels
from recording import add_option, record
from scipy.stats import norm
from tabulate import tabulate

SCRIPT = Path(__file__).parent / "mgcv" / "calibration.R"
R_FAMILIES = {
    "gaussian": "gaussian()",
    "student_t": "scat()",
    "gamma": "Gamma('log')",
    "beta": "betar()",
    "poisson": "poisson()",
    "negative_binomial": "nb()",
    "bernoulli": "binomial()",
}
FIGURES = Path(__file__).parent.parent / "docs" / "figures"
LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
GRID = 15
BLOCK = 20
"""Replicates between two looks at the clock."""
MEASURED = ("curve", "line", "absent", "derivative", "levels", "predictor", "response")
WHOLE = ("sobol", "loo")
"""One number a replicate."""
BY_LEVEL = ("response", "sobol")
"""Whether intervals of each level hold the truth is asked, as their ends are no normal's."""


def places(truth: np.ndarray, estimate: np.ndarray, se: np.ndarray) -> np.ndarray:
    """Of true values in normal densities."""
    return norm.cdf((np.asarray(truth) - np.asarray(estimate)) / np.asarray(se))


def our_places(
    family: str, options: dict[str, str], truth: Truth, rows: pd.DataFrame, new: pd.DataFrame
) -> dict[str, np.ndarray]:
    """By quantity, places of true values."""
    import gpflow_gam as gg
    from gpflow_gam import factor, s
    from gpflow_gam.gam.effects.sobol import functional_anova, posterior_members
    from gpflow_gam.sensitivity.table import sobol_table

    start = time.process_time()  # of a process with one thread: others may use its core, too
    terms = s("curve") + s("line") + s("absent") + factor("g")
    gam = gg.GAM(terms, family=family, **options).fit(rows, y="y", progress=False)
    result: dict[str, np.ndarray] = {"seconds": np.array([time.process_time() - start])}
    grid = np.linspace(0.03, 0.97, GRID)
    parts = truth.parts(rows)
    for name, f in (
        ("curve", truth.curve(grid)),
        ("line", truth.slope * grid),
        ("absent", 0.0 * grid),
    ):
        own = gam.effects(f"s({name})", grid)
        result[name] = places(f - parts[f"s({name})"].mean(), own["estimate"], own["se"])
    own = gam.derivatives("s(curve)", grid)
    result["derivative"] = places(truth.derivative(grid), own["estimate"], own["se"])
    own = gam.differences("factor(g)")
    of = dict(zip("abc", truth.levels))
    true = own["level_1"].map(of) - own["level_2"].map(of)
    result["levels"] = places(true, own["estimate"], own["se"])
    eta = truth.predictor(rows) + (1.0 if family in INFLATED else 0.0)
    if family == "ordinal":  # cutpoints hold the constant: contrasts alone are known
        mean, se = gam.predict(rows, "link", se=True, intercept=False)
        eta = eta - 0.3 - sum(part.mean() for part in parts.values())
    else:
        # of the mean, where zeros have a predictor, too
        both = gam.predict(rows, "link", se=True)
        mean, se = (np.reshape(np.asarray(own), (len(rows), -1))[:, 0] for own in both)
    result["predictor"] = places(eta, mean, se)
    inside = []
    for level in LEVELS if family not in ("ordinal", "bernoulli") else ():
        limits = gam.predict(new, "observation", interval=level)
        lower, upper = (np.asarray(limits[k]) for k in ("lower", "upper"))
        inside.append(np.mean((lower <= new["y"]) & (new["y"] <= upper)))
    result["response"] = np.array(inside)
    variance = {k: np.var(v) for k, v in parts.items()}
    share = variance["s(curve)"] / sum(variance.values())
    # gam.sobol(bootstrap=False, num_samples=1000, seed=0, level=...), drawn once for all levels
    anova = functional_anova(gam.fitted, posterior_members(gam.fitted, True))
    draws, inside = anova.variances(1000, 0), []
    for level in LEVELS:  # no normal density: indices are skewed, near zero and one
        table = sobol_table(draws, anova.name, level)
        index = table[(table["kind"] == "first") & (table["effect"] == "curve")].iloc[0]
        inside.append(float(index["lower"] <= share <= index["upper"]))
    result["sobol"] = np.array(inside)
    loo, there = gam.loo(), np.asarray(gam.log_density(new, unconditional=True))
    spread = np.hypot(loo.se, np.std(there) * np.sqrt(len(there)))
    result["loo"] = places(np.sum(there), loo.elpd, spread)[None]
    return result


def one(asked: tuple[str, dict[str, str], int, int, bool]) -> dict[str, np.ndarray]:
    """Places of one replicate, in a process of its own."""
    warnings.simplefilter("ignore")
    family, options, number, seed, hidden = asked
    return our_places(family, options, *replicate(family, number, seed, hidden))


def places_of(
    workers: Executor,
    asked: list[tuple[Any, ...]],
    seconds: float,
    kept: Path | None,
    one: Callable[[Any], dict[str, Any]] = one,
) -> list[dict[str, Any]]:
    """
    Places by replicate, as many as the seconds are for.

    :param asked: by replicate, what ``one`` takes.
    :param kept: a file of those that are done, written after each block: a run that was ended goes
        on.
    """
    result = pickle.loads(kept.read_bytes()) if kept and kept.exists() else []
    begun = time.perf_counter()
    while len(result) < len(asked) and time.perf_counter() - begun < seconds:
        result += workers.map(one, asked[len(result) : len(result) + BLOCK])
        if kept:
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_bytes(pickle.dumps(result))
        print(f"\r{asked[0][:2]}: {len(result)}/{len(asked)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return result[: len(asked)]


# --- what they come to ---------------------------------------------------------------------------


def coverage(result: list[dict[str, np.ndarray]]) -> list[dict[str, Any]]:
    """A row a quantity: shares within central intervals, and their standard errors."""
    rows = []
    for quantity in (*MEASURED, *WHOLE):
        every = [one[quantity] for one in result if len(one.get(quantity, ()))]
        if not every:
            continue
        if quantity in BY_LEVEL:
            shares = np.array(every)
        else:
            off = [2.0 * np.abs(u - 0.5) for u in every]
            shares = np.array([[np.mean(o <= level) for level in LEVELS] for o in off])
        error = shares.std(axis=0, ddof=1) / np.sqrt(len(shares)) if len(shares) > 1 else np.nan
        rows.append({"quantity": quantity, "share": shares.mean(axis=0), "error": error})
    return rows


def one_each(result: list[dict[str, np.ndarray]], quantity: str) -> np.ndarray:
    """A place a replicate: those of one replicate are not independent."""
    return np.array([u[i % len(u)] for i, one in enumerate(result) if len(u := one[quantity])])


def table_of(results: dict[str, list[dict[str, Any]]], numbers: dict[str, int]) -> str:
    """All coverages; with a mark where more than three standard errors from nominal."""
    rows = []
    for name, own in results.items():
        for row in own:
            shown = []
            for level, share, error in zip(LEVELS, row["share"], np.atleast_1d(row["error"])):
                # of few replicates that all agree the error is no zero; intervals of counts hold
                # whole numbers, and so more than they are to
                floor = np.sqrt(level * (1.0 - level) / numbers[name]) if error == 0.0 else error
                wide = row["quantity"] == "response" and name in COUNTS and share > level
                mark = "!" if abs(share - level) > 3.0 * floor and not wide else ""
                shown.append(f"{share:.3f}{mark}")
            middle = np.atleast_1d(row["error"])[min(3, np.size(row["error"]) - 1)]
            rows.append([name, row["quantity"], *shown, f"{middle:.3f}"])
    return tabulate(rows, ["data", "quantity", *(f"{v:g}" for v in LEVELS), "+- (.95)"])


def recorded(
    results: dict[str, list[dict[str, Any]]], numbers: dict[str, int], seconds: dict[str, float]
) -> list[dict[str, Any]]:
    """As results have them."""
    rows = []
    for name, own in results.items():
        data, _, method = name.rpartition(", ")
        if method != "mgcv":
            data, method = name, "ours"
        for row in own:
            shares = {f"{level:g}": float(v) for level, v in zip(LEVELS, row["share"])}
            error = float(np.atleast_1d(row["error"])[min(3, np.size(row["error"]) - 1)])
            rows.append(
                {
                    "data": data,
                    "method": method,
                    "quantity": row["quantity"],
                    **shares,
                    "se at .95": error if np.isfinite(error) else None,
                    "replicates": numbers[name],
                    "CPU seconds": seconds[name],
                }
            )
    return rows


def mgcv_places(
    family: str, data: list[tuple[Any, pd.DataFrame]], grid: int
) -> list[dict[str, np.ndarray]]:
    """
    By replicate and quantity, places of true values; errors allow for smoothing parameters.

    :param data: the truth and the rows of every replicate.
    :param grid: how many points.
    """
    if family not in R_FAMILIES:
        return []
    bands = in_r(SCRIPT, [table for _, table in data], R_FAMILIES[family], grid)
    at, result = np.linspace(0.03, 0.97, grid), []
    for i, (truth, table) in enumerate(data):
        own, parts = bands[bands["replicate"] == i], truth.parts(table)
        true = {
            "curve": truth.curve(at) - parts["s(curve)"].mean(),
            "line": truth.slope * (at - table["line"].mean()),
            "absent": 0.0 * at,
            "predictor": truth.predictor(table),
            "levels": np.array(
                [truth.levels[1] - truth.levels[0], truth.levels[2] - truth.levels[0]]
            ),
        }
        one: dict[str, np.ndarray] = {"seconds": own["seconds"].to_numpy()[:1]}
        for quantity, value in true.items():
            band = own[own["quantity"] == quantity]
            one[quantity] = norm.cdf((value - band["estimate"]) / band["se"])
        result.append({**one, "derivative": np.zeros(0), "response": np.zeros(0)})
    return result


def draw(kept: dict[str, list[dict[str, np.ndarray]]], path: Path) -> None:
    figure, axes = panels(kept, (3.2, 2.6), 0.25)
    for axis, result in zip(axes, kept.values()):
        for quantity in MEASURED:
            u = one_each(result, quantity)
            if quantity != "response" and len(u):
                below(axis, u, quantity)
    axes[0].legend(fontsize=6, ncols=2, loc="lower left")
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--replicates", type=int, default=1000)
    parser.add_argument("--n", type=int, default=300, help="rows of a replicate")
    parser.add_argument("--families", nargs="*", choices=list(FAMILIES), default=list(FAMILIES))
    parser.add_argument("--hidden", action="store_true", help="a truth of thirty waves, gaussian")
    parser.add_argument("--no-mgcv", action="store_true")
    parser.add_argument("--mgcv-replicates", type=int, default=1000, help="the first of ours")
    parser.add_argument("--seconds", type=float, default=1e5, help="of each case, at most")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--figure", action="store_true", help="draw the docs' picture anew")
    parser.add_argument("--name", default="calibration", help="of record and picture")
    parser.add_argument("--results", type=Path, help="keeps places: a run that was ended goes on")
    add_option(parser)
    arguments = parser.parse_args()
    workers = pool(arguments.jobs)

    cases = [(f, f, False) for f in arguments.families]
    if arguments.hidden:
        cases.append(("gaussian, 30 waves", "gaussian", True))
    with_mgcv = not arguments.no_mgcv and mgcv_is_there()
    kept: dict[str, list[dict[str, np.ndarray]]] = {}
    for name, family, hidden in cases:
        asked = [(family, {}, arguments.n, s, hidden) for s in range(arguments.replicates)]
        done = arguments.results and arguments.results / f"{name}.pickle"
        result = places_of(workers, asked, arguments.seconds, done)
        if not result:
            continue
        kept[name] = result
        number = min(len(kept[name]), arguments.mgcv_replicates)
        data = [replicate(family, arguments.n, seed, hidden)[:2] for seed in range(number)]
        if with_mgcv and number:
            peers = mgcv_places(family, data, GRID)
            if peers:
                kept[f"{name}, mgcv"] = peers
    workers.shutdown()
    results = {name: coverage(result) for name, result in kept.items()}
    seconds = {k: float(np.median([f["seconds"][0] for f in v])) for k, v in kept.items()}
    numbers = {k: len(v) for k, v in kept.items()}
    text = "\n".join(
        [
            f"replicates of {arguments.n} rows: "
            + ", ".join(f"{k} {number} ({seconds[k]:.2f} s)" for k, number in numbers.items()),
            "! more than three standard errors from nominal",
            table_of(results, numbers),
        ]
    )
    print(text)
    record(
        arguments.name,
        "Shares of true values within central intervals, by family and quantity",
        recorded(results, numbers, seconds),
        arguments,
        skipped=[] if with_mgcv else ["mgcv"],
        peers=["R:mgcv"],
    )
    if arguments.figure:
        draw(kept, FIGURES / f"{arguments.name}.png")


if __name__ == "__main__":
    main()
