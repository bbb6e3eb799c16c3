"""
mgcv's simulated examples, all seven: how near to the truth, and how honest? Beside mgcv.

The data are those of ``gamSim`` of R's mgcv (Wood 2017; the first is Gu & Wahba's 1991), with 400
rows each, the first with normal, Poisson and binary responses. Models are those of mgcv's help
pages, fitted by ``gam(method="REML")`` and by us with the defaults of either. Reported, as means
over data sets: the root mean square error of the predictor, on its scale, at the rows; how much
of the true predictor its pointwise 95 % bands hold (mgcv's allow for uncertain smoothing
parameters, ours for uncertain hyperparameters); effective degrees of freedom; and seconds. Needs
``Rscript`` with mgcv. Run it with ``python benchmarks/gamsim.py``; takes two minutes.

- Gu, C. & Wahba, G. (1991). Minimizing GCV/GML scores with multiple smoothing parameters via the
  Newton method. SIAM Journal on Scientific and Statistical Computing 12, 383-398.
- Wood, S. N. (2017). Generalized additive models: an introduction with R. 2nd edition.
"""

from __future__ import annotations

import time

import numpy as np
import pandas as pd
from harness import SCORES, means, of_r, scored
from recording import parser_of, record

import gpflow_gam as gg
from gpflow_gam import factor, random_effect, s
from gpflow_gam.gam.terms import Terms

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


def ours(data: pd.DataFrame, terms: Terms, family: str) -> pd.DataFrame:
    """The predictor at the rows."""
    start = time.perf_counter()
    gam = gg.GAM(terms, family=family).fit(data, "y", progress=False)
    seconds = time.perf_counter() - start
    estimate, se = gam.predict(data, "link", se=True)
    band = pd.DataFrame({"place": np.arange(len(data)), "estimate": estimate, "se": se})
    return band.assign(edf=gam.summary().edf, seconds=seconds, method="ours", effect="predictor")


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--data-sets", type=int, default=30, help="of an example")
    parser.add_argument("--rows", type=int, default=400, help="of a data set; a multiple of 200")
    options = parser.parse_args()
    every, theirs = of_r("gamsim", options.data_sets, options.rows)
    estimates = [theirs]
    for (example, replicate), data in every.groupby(["example", "replicate"], sort=False):
        terms, family = EXAMPLES[example]
        data = data.dropna(axis=1).reset_index(drop=True)
        levels = {"fac", "x0"} if example == "5 with a factor" else {"fac"}
        data = data.assign(**{c: data[c].astype(int).astype(str) for c in levels & set(data)})
        estimates.append(ours(data, terms, family).assign(replicate=replicate))
    truth = every.assign(place=every.groupby("replicate").cumcount(), effect="predictor")
    truth = truth[["replicate", "effect", "place", "example", "f"]].rename(columns={"f": "true"})
    each = scored(pd.concat(estimates[::-1]), truth)
    rows = means(each, ["example", "method"], **SCORES, seconds="seconds")
    rows.sort(key=lambda row: list(EXAMPLES).index(row["example"]))
    record(
        "gamsim",
        "Simulated examples of mgcv (gamSim): error of the linear predictor",
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
