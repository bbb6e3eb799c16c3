"""
mgcv's own simulated examples, all seven: how near to the truth, and how honest? Beside mgcv.

The data are those of ``gamSim`` of R's mgcv (Wood 2017; the first is Gu & Wahba's 1991), with 400
rows each, the first with normal, Poisson and binary responses. Models are those of mgcv's help
pages, fitted by ``gam(method="REML")`` and by us with the defaults of either. Reported, as means
over data sets: the root mean square error of the predictor, on its own scale, at the rows; how much
of the true predictor its pointwise 95 % bands hold (mgcv's allow for uncertain smoothing
parameters, ours for uncertain hyperparameters); effective degrees of freedom; and seconds. Needs
``Rscript`` with mgcv. Run it with ``python benchmarks/gamsim.py``; takes two minutes.

- Gu, C. & Wahba, G. (1991). Minimizing GCV/GML scores with multiple smoothing parameters via the
  Newton method. SIAM Journal on Scientific and Statistical Computing 12, 383-398.
- Wood, S. N. (2017). Generalized additive models: an introduction with R. 2nd edition.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from harness import recorded, scores
from recording import add_option, record
from tabulate import tabulate

import gpflow_gam as gg
from gpflow_gam import factor, random_effect, s
from gpflow_gam.gam.terms import Terms

SCRIPT = Path(__file__).parent / "mgcv" / "gamsim.R"
FOUR = s("x0") + s("x1") + s("x2") + s("x3")
EXAMPLES: dict[str, tuple[Terms, str]] = {
    "1 additive": (FOUR, "gaussian"),
    "1 additive, counts": (FOUR, "poisson"),
    "1 additive, binary": (FOUR, "bernoulli"),
    "2 surface": (s("x", "z"), "gaussian"),
    "3 by a number": (s("x2", by="x1"), "gaussian"),
    "4 by a factor": (factor("fac") + s("x2", by="fac") + s("x0"), "gaussian"),
    "5 with a factor": (factor("x0") + s("x1") + s("x2") + s("x3"), "gaussian"),
    "6 with a random effect": (random_effect("fac") + FOUR, "gaussian"),
    "7 correlated columns": (FOUR, "gaussian"),
}
"""Terms and families, by the names that the script of R has for the examples."""
TEXT = {"5 with a factor": ["x0"], "4 by a factor": ["fac"], "6 with a random effect": ["fac"]}
"""Columns that are levels."""


def ours(data: pd.DataFrame, terms: Terms, family: str) -> pd.DataFrame:
    """The predictor at the rows, as the script of R gives it."""
    start = time.perf_counter()
    gam = gg.GAM(terms, family=family).fit(data, "y", progress=False)
    seconds = time.perf_counter() - start
    estimate, se = gam.predict(data, "link", se=True)
    result = pd.DataFrame({"estimate": np.asarray(estimate), "se": np.asarray(se)})
    return result.assign(edf=gam.summary().edf, seconds=seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--data-sets", type=int, default=30, help="of an example")
    parser.add_argument("--rows", type=int, default=400, help="of a data set; a multiple of 200")
    add_option(parser)
    options = parser.parse_args()

    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = ["Rscript", SCRIPT, options.data_sets, options.rows, folder]
        subprocess.run([str(part) for part in command], check=True)
        theirs = pd.read_csv(folder / "found.csv")
        for example, (terms, family) in EXAMPLES.items():
            text = dict.fromkeys(TEXT.get(example, []), str)
            made = pd.read_csv(folder / f"{example}.csv", dtype=text)
            known = theirs[theirs["example"] == example]
            result: dict[str, list[dict[str, float]]] = {"ours": [], "mgcv": []}
            for replicate, data in made.groupby("replicate"):
                truth = data["f"].to_numpy()
                bands = {
                    "ours": ours(data.reset_index(drop=True), terms, family),
                    "mgcv": known[known["replicate"] == replicate].sort_values("row"),
                }
                for method, own in bands.items():
                    result[method].append(scores(own, truth))
            for method, each in result.items():
                numbers = recorded(pd.DataFrame(each))
                rows.append({"example": example, "method": method, **numbers})
    print(tabulate(rows, "keys", floatfmt=".3f"))
    record(
        "gamsim",
        "The simulated examples of mgcv, predictor against truth",
        rows,
        options,
        within=["example"],
        method="method",
        ours=["ours"],
        better={"RMSE": "lower"},
        peers=["R:mgcv"],
    )


if __name__ == "__main__":
    main()
