"""
Many smooths: up to how many inducing values is q kept whole, and when are its blocks better?

Poisson counts on 20 000 rows, C smooths of k inducing values each. ``sites`` is the exact optimum
given the sites, whose time grows with the cube of C k; ``block`` is the block precision, trained
as a GAM trains it by itself, given as many seconds as ``sites`` took, or a minute. ``default`` says
which a GAM takes by itself. Each is a process of its own. Run it with
``python benchmarks/crossover.py``.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from recording import add_option, record
from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).parent / "speed"))

import workloads

ROWS = 20_000
LEAST = 60.0
"""Seconds that blocks have."""
SIZES = [(32, 30), (64, 30), (100, 30), (140, 30), (200, 30)]


def fit(task: dict[str, Any]) -> dict[str, Any]:
    """One fit, in a process that has done nothing else."""
    import gpflow_gam as gg
    from gpflow_gam.gam.fits.build import MAX_SITES

    number, k, seconds = task["smooths"], task["k"], task["seconds"]
    data = workloads.uniform(ROWS, number, "poisson")
    table = pd.DataFrame({name: np.asarray(column) for name, column in data.train.items()})
    formula = workloads.smooths(number, "poisson", k).ours
    options: dict[str, Any] = {} if seconds is None else {"max_seconds": seconds}
    begin, cpu = time.perf_counter(), time.process_time()
    gam = gg.GAM(formula, "poisson", variational=task["by"]).fit(table, progress=False, **options)
    found: dict[str, Any] = {
        "s": time.perf_counter() - begin,
        "CPU s": time.process_time() - cpu,
        "converged": gam.fitted.result.converged,
    }
    away = gam.predict(table, "link") - np.asarray(data.truth)
    found["RMSE"] = float(np.sqrt(np.mean(np.square(away))))
    found["peak, MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found["default"] = ("sites" if number * k + 1 <= MAX_SITES else "block") == task["by"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=list(range(len(SIZES))))
    add_option(parser)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for number, k in (SIZES[i] for i in options.sizes):
        seconds = None
        for by in ("sites", "block"):
            task = {"smooths": number, "k": k, "by": by, "seconds": seconds}
            arguments = [sys.executable, __file__, json.dumps(task)]
            done = subprocess.run(arguments, stdout=subprocess.PIPE, text=True, check=True)
            found = json.loads(done.stdout.strip().splitlines()[-1])
            seconds = max(found["s"], LEAST) if by == "sites" else seconds
            rows.append({"smooths": number, "k": k, "by": by, **found})
            print(tabulate(rows[-1:], "keys", floatfmt=".4g"), flush=True)
    record(
        "crossover",
        "Many smooths: q kept whole, or by blocks in the same time",
        rows,
        options,
        within=["smooths", "k"],
        method="by",
        better={"RMSE": "lower"},
    )


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1].startswith("{"):
        print(json.dumps(fit(json.loads(sys.argv[1])), default=float))
    else:
        main()
