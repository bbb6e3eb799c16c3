"""
Do probabilities mean what they say, whichever engine and family of q(U) a GAM is fitted with?

Replicates and quantities of ``calibration.py``, on the same rows for all: the default, mean field,
coupled covariance, coupled precision, block-base precision and IterNCGP, for every family. Mean
field has to fail, where effects are confounded, and the others are to hold what the default holds,
less what it adds for hyperparameters that are not known. A family that an engine refuses is a row
with the reason.

The table has shares within central intervals of 50 to 99 %, and whether places leave the envelope
that 99 % of uniform samples of as many replicates stay within (one place a replicate). Run it with
``python benchmarks/calibration_engines.py --results FOLDER``; ``--figure`` draws the docs' picture.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from calibration import (
    BY_LEVEL,
    FIGURES,
    LEVELS,
    MEASURED,
    WHOLE,
    coverage,
    one_each,
    our_places,
    places_of,
)
from calibration_truths import FAMILIES, replicate
from places import leaves
from processes import pool
from recording import add_option, record
from tabulate import tabulate

ENGINES: dict[str, dict[str, str]] = {
    "default": {},
    "mean_field": {"variational": "mean_field"},
    "covariance": {"variational": "covariance"},
    "precision": {"variational": "precision"},
    "block": {"variational": "block"},
    "iterncgp": {"engine": "iterncgp"},
}
NOMINAL = LEVELS.index(0.95)
Places = dict[str, np.ndarray]
Refused = dict[str, str]


def one(asked: tuple[str, dict[str, str], int, int]) -> Places | Refused:
    """Places of one replicate, in a process of its own, or the reason why there are none."""
    warnings.simplefilter("ignore")
    family, options, number, seed = asked
    try:
        return our_places(family, options, *replicate(family, number, seed, False))
    except ValueError as error:
        return {"refused": str(error).partition(";")[0].partition(":")[0]}


def rows_of(kept: dict[tuple[str, str], list[Any]]) -> list[dict[str, Any]]:
    """A row a family, engine and quantity; one with the reason where all are refused."""
    rows = []
    for (family, engine), every in kept.items():
        found = [own for own in every if "refused" not in own]
        if not found:
            rows.append({"family": family, "engine": engine, "refused": every[0]["refused"]})
            continue
        seconds = float(np.median([own["seconds"][0] for own in found]))
        for row in coverage(found):
            error = float(row["error"][NOMINAL])
            entry = {"family": family, "engine": engine, "quantity": row["quantity"]}
            entry |= {f"{level:g}": float(v) for level, v in zip(LEVELS, row["share"])}
            # of a few replicates that all agree the error is no zero
            floor = float(np.sqrt(0.95 * 0.05 / len(found)))
            entry["se at .95"] = error or floor
            if row["quantity"] not in BY_LEVEL:
                entry["leaves the band"] = leaves(one_each(found, row["quantity"]))
            entry["replicates"], entry["refused"] = len(found), len(every) - len(found) or None
            rows.append({**entry, "CPU seconds": seconds})
    return rows


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """A panel a quantity, a line a family, a point an engine: what is held of 95 %."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    families = list(dict.fromkeys(row["family"] for row in rows))
    figure, axes = plt.subplots(3, 3, figsize=(11, 12), sharey=True, layout="constrained")
    for axis, quantity in zip(axes.ravel(), (*MEASURED, *WHOLE)):
        axis.axvline(0.95, color="0.7", lw=1.0)
        for e, engine in enumerate(ENGINES):
            own = [r for r in rows if r["engine"] == engine and r.get("quantity") == quantity]
            y = [families.index(r["family"]) + 0.13 * (e - 2.5) for r in own]
            x, error = [r["0.95"] for r in own], [2.0 * r["se at .95"] for r in own]
            axis.errorbar(x, y, xerr=error, fmt="o", ms=3.5, lw=0.8, color=f"C{e}", label=engine)
        for edge in np.arange(len(families) - 1) + 0.5:
            axis.axhline(edge, color="0.9", lw=0.6)
        axis.set_title(quantity, fontsize=9)
        axis.tick_params(labelsize=7)
        axis.set_xlim(min(0.8, axis.get_xlim()[0]), 1.01)
    axes[0, 0].set_yticks(range(len(families)), families, fontsize=7)
    axes[0, 0].set_ylim(len(families) - 0.4, -0.6)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=6)
    figure.supxlabel("share of truths within 95 % limits, and two standard errors of replicates")
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--replicates", type=int, default=50)
    parser.add_argument("--n", type=int, default=300, help="rows of a replicate")
    parser.add_argument("--families", nargs="+", choices=list(FAMILIES), default=list(FAMILIES))
    parser.add_argument("--engines", nargs="+", choices=list(ENGINES), default=list(ENGINES))
    parser.add_argument("--seconds", type=float, default=1e5, help="of each case, at most")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--figure", action="store_true", help="draw the docs' picture anew")
    parser.add_argument("--results", type=Path, help="keeps places: a run that was ended goes on")
    add_option(parser)
    arguments = parser.parse_args()

    kept: dict[tuple[str, str], list[Any]] = {}
    with pool(arguments.jobs) as workers:
        for family in arguments.families:
            for engine in arguments.engines:
                options = ENGINES[engine]
                asked = [(family, options, arguments.n, s) for s in range(arguments.replicates)]
                done = arguments.results and arguments.results / f"{family}, {engine}.pickle"
                found = places_of(workers, asked, arguments.seconds, done, one)
                if found:
                    kept[family, engine] = found
    rows = rows_of(kept)
    print(tabulate(rows, "keys", floatfmt=".3f"))
    record(
        "calibration_engines",
        "Shares of true values within central intervals, by family, engine and family of q(U)",
        rows,
        arguments,
    )
    if arguments.figure:
        draw(rows, FIGURES / "calibration_engines.png")


if __name__ == "__main__":
    main()
