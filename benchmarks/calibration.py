"""
Do probabilities mean what they say? Every family, everything that has an error bar, defaults only.

    y ~ s(curve) + s(line) + s(absent) + factor(g),   a GP draw, a line, nothing, three levels

A replicate draws the truth anew: a curve from a Gaussian process with a lengthscale of its own, a
slope, levels. Of everything that a fit gives an error bar for, the truth's place in it
(``Phi((truth - estimate) / se)``) is uniform if errors are normal and honest (of responses and
Sobol indices the intervals of each level are asked for instead). The table has the share of truths
within central intervals of 50 to 99 %, with its standard error over replicates. Truths are
not draws from the model's prior, which is not known before the data: this is coverage across
functions (Nychka 1988), and a curve's own coverage may be off where the average over effects is
not.

Quantities: effects on a grid, their derivatives, differences of levels, the predictor at the rows,
new responses, the share of variance that is the curve's (Sobol index), and the leave-one-out
density (its total, beside as many new rows'). ``--hidden`` is a truth of thirty waves, beyond what
default smooths resolve. mgcv (REML, its default k) is fitted to the same rows where
``Rscript`` is there.

Run it with ``python benchmarks/calibration.py``.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from harness import in_r, pool, r_packages, resumed
from recording import parser_of, record
from scipy.stats import norm
from truths import FAMILIES, INFLATED, Truth, replicate

R_FAMILIES = {
    "gaussian": "gaussian()",
    "student_t": "scat()",
    "gamma": "Gamma('log')",
    "beta": "betar()",
    "poisson": "poisson()",
    "negative_binomial": "nb()",
    "bernoulli": "binomial()",
}
LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
GRID = np.linspace(0.03, 0.97, 15)
MEASURED = ("curve", "line", "absent", "derivative", "levels", "predictor", "response")
QUANTITIES = (*MEASURED, "sobol", "loo")
"""The last two have one number a replicate."""
BY_LEVEL = ("response", "sobol")
"""Whether intervals of each level hold the truth is asked, as their ends are no normal's."""
Places = dict[str, np.ndarray]
"""Places of true values by quantity, and ``seconds``."""


# --- distributions of places, beside uniform ones ------------------------------------------------

POINTS = np.linspace(0.0, 1.0, 101)[1:-1]
"""At which distributions of places are compared with uniform ones."""


def envelope(number: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """
    Where the empirical distribution of ``number`` uniform places stays, all along, 99 % of times.

    :return: the least and the greatest share at each of the points.
    """
    draws = rng.uniform(size=(2000, number))
    shares = np.stack([np.mean(draws <= p, axis=1) for p in POINTS], axis=1)
    tails = np.linspace(1e-4, 5e-3, 60)
    for tail in tails[::-1]:  # the widest joint band that is narrow enough
        lower, upper = np.quantile(shares, [tail, 1.0 - tail], axis=0)
        if np.mean(np.all((shares >= lower) & (shares <= upper), axis=1)) >= 0.99:
            break
    return lower, upper


def leaves(places: np.ndarray) -> bool:
    """Whether the distribution of places, [R], leaves the envelope of as many uniform ones."""
    lower, upper = envelope(len(places), np.random.default_rng(0))
    shares = np.mean(places[:, None] <= POINTS, axis=0)
    return bool(np.any((shares < lower) | (shares > upper)))


# --- places of true values -----------------------------------------------------------------------


def places(truth: Any, estimate: Any, se: Any) -> np.ndarray:
    """Of true values in normal densities."""
    return norm.cdf((np.asarray(truth) - np.asarray(estimate)) / np.asarray(se))


def our_places(family: str, truth: Truth, rows: pd.DataFrame, new: pd.DataFrame) -> Places:
    import gpflow_gam as gg
    from gpflow_gam import factor, s

    start = time.process_time()  # of a process with one thread: others may use its core, too
    terms = s("curve") + s("line") + s("absent") + factor("g")
    gam = gg.GAM(terms, family=family).fit(rows, y="y", progress=False)
    result: Places = {"seconds": np.array([time.process_time() - start])}
    parts = truth.parts(rows)
    for name, f in truth.on(GRID).items():
        effect = gam.effects(f"s({name})", GRID)
        result[name] = places(f - parts[f"s({name})"].mean(), effect["estimate"], effect["se"])
    effect = gam.derivatives("s(curve)", GRID)
    result["derivative"] = places(truth.derivative(GRID), effect["estimate"], effect["se"])
    effect = gam.differences("factor(g)")
    of = dict(zip("abc", truth.levels))
    true = effect["level_1"].map(of) - effect["level_2"].map(of)
    result["levels"] = places(true, effect["estimate"], effect["se"])
    eta = truth.predictor(rows) + (1.0 if family in INFLATED else 0.0)
    if family == "ordinal":  # cutpoints hold the constant: contrasts alone are known
        mean, se = gam.predict(rows, "link", se=True, intercept=False)
        eta = eta - 0.3 - sum(part.mean() for part in parts.values())
    else:
        # of the mean, where zeros have a predictor, too
        both = gam.predict(rows, "link", se=True)
        mean, se = (np.reshape(np.asarray(each), (len(rows), -1))[:, 0] for each in both)
    result["predictor"] = places(eta, mean, se)
    inside = []
    for level in LEVELS if family not in ("ordinal", "bernoulli") else ():
        limits = gam.predict(new, "observation", interval=level)
        lower, upper = (np.asarray(limits[k]) for k in ("lower", "upper"))
        inside.append(np.mean((lower <= new["y"]) & (new["y"] <= upper)))
    result["response"] = np.array(inside)
    variance = {k: np.var(v) for k, v in parts.items()}
    share = variance["s(curve)"] / sum(variance.values())
    inside = []
    for level in LEVELS:  # no normal density: indices are skewed, near zero and one
        table = gam.sobol(bootstrap=False, num_samples=1000, seed=0, level=level)
        index = table[(table["kind"] == "first") & (table["effect"] == "curve")].iloc[0]
        inside.append(float(index["lower"] <= share <= index["upper"]))
    result["sobol"] = np.array(inside)
    loo, there = gam.loo(), np.asarray(gam.log_density(new, unconditional=True))
    spread = np.hypot(loo.se, np.std(there) * np.sqrt(len(there)))
    result["loo"] = places(np.sum(there), loo.elpd, spread)[None]
    return result


def one(task: tuple[str, int, int, bool]) -> Places:
    """One replicate, in a process of its own."""
    warnings.simplefilter("ignore")
    return our_places(task[0], *replicate(*task))


def mgcv_places(family: str, data: list[tuple[Truth, pd.DataFrame]]) -> list[Places]:
    """By replicate; errors allow for smoothing parameters."""
    bands = in_r("calibration", [rows for _, rows in data], R_FAMILIES[family], len(GRID))
    result = []
    for (truth, rows), (_, band) in zip(data, bands.groupby("replicate"), strict=True):
        parts = truth.parts(rows)
        true = {name: f - parts[f"s({name})"].mean() for name, f in truth.on(GRID).items()}
        true |= {"predictor": truth.predictor(rows), "levels": truth.levels[1:] - truth.levels[0]}
        by = {quantity: group for quantity, group in band.groupby("quantity")}
        each = {q: places(f, by[q]["estimate"], by[q]["se"]) for q, f in true.items()}
        result.append({"seconds": band["seconds"].to_numpy()[:1], **each})
    return result


# --- what they come to ---------------------------------------------------------------------------


def rows_of(name: str, result: list[Places]) -> list[dict[str, Any]]:
    """A row a quantity: shares within central intervals, and the error of the fourth."""
    rows = []
    data, _, method = name.rpartition(", ")
    data, method = (data, method) if method == "mgcv" else (name, "ours")
    seconds = float(np.median([places["seconds"][0] for places in result]))
    for quantity in QUANTITIES:
        every = [places[quantity] for places in result if len(places.get(quantity, ()))]
        if not every:
            continue
        if quantity in BY_LEVEL:
            shares = np.array(every)
        else:
            off = [2.0 * np.abs(u - 0.5) for u in every]
            shares = np.array([[np.mean(o <= level) for level in LEVELS] for o in off])
        row = {"data": data, "method": method, "quantity": quantity}
        row |= {f"{level:g}": float(v) for level, v in zip(LEVELS, shares.mean(axis=0))}
        error = shares[:, 3].std(ddof=1) / np.sqrt(len(shares)) if len(shares) > 1 else None
        rows.append({**row, "se at .95": error, "replicates": len(result), "CPU seconds": seconds})
    return rows


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--replicates", type=int, default=1000)
    parser.add_argument("--n", type=int, default=300, help="rows of a replicate")
    parser.add_argument("--families", nargs="*", choices=list(FAMILIES), default=list(FAMILIES))
    parser.add_argument("--hidden", action="store_true", help="a truth of thirty waves, gaussian")
    parser.add_argument("--mgcv-replicates", type=int, default=1000, help="the first of ours")
    parser.add_argument("--seconds", type=float, default=1e5, help="of each case, at most")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--name", default="calibration", help="of the record")
    parser.add_argument("--results", type=Path, help="keeps places: a run that was ended goes on")
    arguments = parser.parse_args()

    cases = [(f, f, False) for f in arguments.families]
    if arguments.hidden:
        cases.append(("gaussian, 30 waves", "gaussian", True))
    with_mgcv = arguments.mgcv_replicates > 0 and bool(r_packages("mgcv"))
    kept: dict[str, list[Places]] = {}
    with pool(arguments.jobs) as workers:
        for name, family, hidden in cases:
            tasks = [(family, arguments.n, s, hidden) for s in range(arguments.replicates)]
            done = arguments.results and arguments.results / f"{name}.pickle"
            result = resumed(workers, one, tasks, done, arguments.seconds)
            if not result:
                continue
            kept[name] = result
            if with_mgcv and family in R_FAMILIES:
                first = tasks[: min(len(result), arguments.mgcv_replicates)]
                data = [replicate(*task)[:2] for task in first]
                kept[f"{name}, mgcv"] = mgcv_places(family, data)
    rows = [row for name, result in kept.items() for row in rows_of(name, result)]
    record(
        arguments.name,
        f"Coverage of credible intervals: {len(arguments.families)} families, "
        f"up to {arguments.replicates} data sets each",
        rows,
        arguments,
        skipped=[] if with_mgcv else ["mgcv"],
        peers=["R:mgcv"],
    )


if __name__ == "__main__":
    main()
