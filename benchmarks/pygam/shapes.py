"""Fits pyGAM with a shape to replicates: ``python shapes.py in.json out.json``."""

import json
import sys
import time
from pathlib import Path

import numpy as np
from pygam import LinearGAM, LogisticGAM, PoissonGAM, s

MODELS = {"gaussian": LinearGAM, "poisson": PoissonGAM, "bernoulli": LogisticGAM}
CONSTRAINTS = {"increasing": "monotonic_inc", "convex": "convex"}


def bands(task):
    X = np.stack([task["x"], task["z"]], axis=1)
    term = s(0, constraints=CONSTRAINTS[task["shape"]])
    start = time.perf_counter()
    gam = MODELS[task["family"]](term + s(1))
    gam.gridsearch(X, np.array(task["y"]), progress=False)
    seconds = time.perf_counter() - start
    grid = np.stack([task["grid"], np.zeros(len(task["grid"]))], axis=1)
    estimate, limits = gam.partial_dependence(term=0, X=grid, width=0.95)
    # terms are not centred: about the mean over the data
    level = float(np.mean(gam.partial_dependence(term=0, X=X)))
    return {
        "estimate": (estimate - level).tolist(),
        "lower": (limits[:, 0] - level).tolist(),
        "upper": (limits[:, 1] - level).tolist(),
        "seconds": seconds,
    }


given, found = map(Path, sys.argv[1:])
tasks = json.loads(given.read_text())
found.write_text(json.dumps([bands(t) for t in tasks]))
