"""Ours, measured in the process that runs this file with a task as JSON; the last line is JSON."""

from __future__ import annotations

import compileall
import gc
import importlib.util
import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from columns import read

Task = dict[str, Any]
Numbers = dict[str, Any]

BLOCK = 100_000
"""Rows whose predictor is asked for at once, where nobody times it."""


def peak() -> float:
    """The most memory this process has had resident [MB]."""
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size / (2**20 if sys.platform == "darwin" else 2**10)


def resident() -> float:
    """Memory resident now [MB]; the peak where the system does not say."""
    path = Path("/proc/self/statm")
    if not path.exists():
        return peak()
    return int(path.read_text().split()[1]) * resource.getpagesize() / 2**20


def seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def fit(task: Task) -> Numbers:
    """
    A fit as the first of its process, what is read off it, and the same fit again: of a new
    object, which knows nothing, and of one that is fitted.

    Imports are not counted, nor are those that the package leaves until they are needed, nor the
    garbage collector's first look at what they made (600 000 objects, .3 s).
    """
    import matplotlib.pyplot
    import sklearn.cluster  # noqa: F401

    import gpflow_gam as gg

    matplotlib.use("Agg")
    gc.collect()
    folder, stages = Path(task["folder"]), task["stages"]
    data = read(folder / "train")
    numbers: Numbers = {"start_mb": peak()}
    start = time.perf_counter()
    gam = gg.GAM(task["formula"], family=task["family"]).fit(data)
    numbers["first"] = time.perf_counter() - start
    numbers["memory_mb"] = peak()
    numbers["iterations"] = getattr(gam.fitted.result, "num_iterations", None)
    if "draw" in stages:  # before a summary, which may leave it something
        numbers["draw"] = seconds(gam.draw)
        numbers["draw_again"] = seconds(gam.draw)
    if "reading" in stages:
        numbers["effects"] = seconds(lambda: [gam.effects(name) for name in gam.names])
        numbers["summary"] = seconds(gam.summary)
        numbers["reading_mb"] = peak()
    if "predict" in stages:
        new = read(folder / "new")
        numbers["predict"] = seconds(lambda: gam.predict(new, "terms", se=True))
        numbers["predict_again"] = seconds(lambda: gam.predict(new, "terms", se=True))
        numbers["response"] = seconds(lambda: gam.predict(new, se=True))
        numbers["predict_mb"] = peak()
    summary = gam.summary()
    numbers |= {"edf": summary.edf, "explained": summary.deviance_explained}
    numbers |= {"converged": summary.converged, "message": summary.message}
    if "again" in stages:
        second = gg.GAM(task["formula"], family=task["family"])
        numbers["again"] = seconds(lambda: second.fit(data))
    if "refit" in stages:  # the object that is fitted, to the same rows: from where it ended
        again = gg.GAM(task["formula"], family=task["family"]).fit(data)
        numbers["refit"] = seconds(lambda: again.refit(data))
    if "predictor" in stages:
        blocks = [data.iloc[i : i + BLOCK] for i in range(0, len(data), BLOCK)]
        np.concatenate([gam.predict(b, "link") for b in blocks]).tofile(folder / "predictor.bin")
    if "expected" in stages:
        test = read(folder / "test")
        np.asarray(gam.predict(test)).tofile(folder / "expected.bin")
    return numbers


def stream(task: Task) -> Numbers:
    """
    A fit to a folder of Parquet files.

    ``state`` is what reading and coding take, before the first pass over rows in memory;
    ``pass_s`` the median pass, where there are several.
    """

    import gpflow_gam as gg
    from gpflow_gam.gam.fits import fit as fits

    folder, numbers, ends = Path(task["folder"]), {"start_mb": peak()}, []
    begin, original = time.perf_counter(), fits.optimizers.fit_rows

    def watched(*arguments: Any, **options: Any) -> Any:
        if "state" not in numbers:  # a fit with finer sums follows where the usual ones lose much
            numbers["state"] = time.perf_counter() - begin
            numbers["state_mb"] = peak()
        numbers["held_mb"] = resident()
        return original(*arguments, **options)

    fits.optimizers.fit_rows = watched
    gam = gg.GAM(task["formula"], family=task["family"])
    gam.fit(str(folder / "files"), callback=lambda _: ends.append(time.perf_counter()))
    numbers["first"] = time.perf_counter() - begin
    numbers["memory_mb"] = peak()
    result = gam.fitted.result
    if task["family"] != "gaussian" and result.num_iterations > 1:
        # those over all rows; the fit began on a part of them
        numbers["pass_s"] = float(np.median(np.diff(ends[-result.num_iterations :])))
    numbers["summary"] = seconds(gam.summary)
    first = pd.read_parquet(folder / "files" / "00000.parquet")
    truth = np.fromfile(folder / "truth.bin", "<f8")
    values = gam.predict(first, "link")
    numbers["rmse"] = float(np.sqrt(np.mean((values - truth) ** 2)))
    numbers |= {"iterations": result.num_iterations, "converged": result.converged}
    return {**numbers, "rows": gam.fitted.number, "end_mb": peak()}


def crossval(task: Task) -> Numbers:
    """Five folds of scikit-learn's."""
    from sklearn.model_selection import cross_val_score

    import gpflow_gam as gg

    data = read(Path(task["folder"]) / "train")
    X, y = data.drop(columns="y"), data["y"].to_numpy()
    estimator = gg.sklearn.GAMRegressor(task["formula"])
    start = time.perf_counter()
    scores = cross_val_score(estimator, X, y, cv=5)
    return {"first": time.perf_counter() - start, "r2": float(scores.mean())}


def screening(task: Task) -> Numbers:
    """Main effects and the interactions that stand out."""
    import gpflow_gam as gg

    data = read(Path(task["folder"]) / "train")
    start = time.perf_counter()
    terms = gg.anova(data=data, y="y", family=task["family"])
    numbers = {"first": time.perf_counter() - start, "memory_mb": peak()}
    chosen = sum(len(term.columns) > 1 for term in terms)
    return {**numbers, "interactions": chosen}


def refits(task: Task) -> Numbers:
    """Does memory grow with every fit? The first ones fill caches, and do not count."""
    import gpflow_gam as gg

    data = read(Path(task["folder"]) / "train")
    times, sizes = [], []
    for _ in range(task["number"]):
        gam = gg.GAM(task["formula"], family=task["family"])
        times.append(seconds(lambda gam=gam: gam.fit(data)))
        del gam
        gc.collect()
        sizes.append(resident())
    late = len(sizes) // 4
    slope = np.polyfit(np.arange(late, len(sizes)), sizes[late:], 1)[0] if len(sizes) > 3 else None
    return {
        "first": times[0],
        "again": float(np.median(times[1:])),
        "mb_a_fit": slope,
        "memory_mb": peak(),
        "seconds": times,
        "resident_mb": sizes,
    }


def imports(task: Task) -> Numbers:
    """The package's import, above what it stands on."""
    found = importlib.util.find_spec("gpflow_gam")
    assert found is not None
    assert found.origin is not None
    compileall.compile_dir(Path(found.origin).parent, quiet=1)  # as it is after pip install
    start = time.perf_counter()
    import gpflow  # noqa: F401
    import tensorflow  # noqa: F401
    import tensorflow_probability  # noqa: F401

    middle = time.perf_counter()
    import gpflow_gam  # noqa: F401

    return {"base": middle - start, "first": time.perf_counter() - middle}


TASKS = {t.__name__: t for t in (fit, stream, crossval, screening, refits, imports)}

if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    result = TASKS[given["task"]](given)
    print(json.dumps(result, default=float))
