"""What studies share: answers of R, scores of intervals, the loop over settings, processes."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from recording import record
from scipy.stats import norm

HALF = float(norm.ppf(0.975))
"""Half the width of a pointwise 95 % band, in standard errors."""
RUN = Path(__file__).parent / "mgcv" / "run.R"
PEERS = Path(__file__).parent / "speed" / "python_peers.py"
SCORES = {"edf": "edf", "rmse": "RMSE", "error": "its se", "coverage": "coverage of 95 % bands"}
"""Columns of a table of scores, and their names."""


# --- peers -----------------------------------------------------------------------------------


class GivenUp(RuntimeError):
    """A process that failed or took too long, in one line."""


def command(arguments: Iterable[Any], limit: float | None = None) -> str:
    """
    What a process printed.

    :param limit: seconds after which it is given up.
    :raises GivenUp: it failed, or took too long.
    """
    try:
        done = subprocess.run(
            list(map(str, arguments)), capture_output=True, text=True, timeout=limit
        )
    except subprocess.TimeoutExpired:
        raise GivenUp(f"longer than {limit:g} s") from None
    except OSError as error:
        raise GivenUp(str(error)) from None
    if done.returncode:
        raise GivenUp((done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1])
    return done.stdout


def numbered(data: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Data sets one below the other, with a column ``replicate``."""
    return pd.concat(d.assign(replicate=i) for i, d in enumerate(data))


def asked(
    process: Iterable[Any],
    data: pd.DataFrame | None,
    options: Iterable[Any],
    limit: float | None = None,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """
    Data and answers of a process that is told a folder and options.

    In the folder it reads ``data.csv``, or writes it where there is none, and writes
    ``answers.csv``.
    """
    with tempfile.TemporaryDirectory() as folder:
        paths = Path(folder) / "data.csv", Path(folder) / "answers.csv"
        if data is not None:
            data.to_csv(paths[0], index=False)
        command([*process, folder, *options], limit)
        return pd.read_csv(paths[0]), pd.read_csv(paths[1])


def in_r(
    script: str, data: Iterable[pd.DataFrame], *options: Any, limit: float | None = None
) -> pd.DataFrame:
    """What ``mgcv/SCRIPT.R`` answers to each of the data sets."""
    return asked(("Rscript", RUN, script), numbered(data), options, limit)[1]


def of_r(script: str, *options: Any) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Data that ``mgcv/SCRIPT.R`` has, and what it answers to them."""
    return asked(("Rscript", RUN, script), None, options)


def r_packages(*names: str) -> list[str]:
    """Those of R's packages that are installed."""
    if shutil.which("Rscript") is None:
        return []
    code = "for (p in commandArgs(TRUE)) if (requireNamespace(p, quietly = TRUE)) cat(p, '')"
    return command(["Rscript", "-e", code, *names]).split()


def python_version(python: str, module: str, package: str) -> str | None:
    """Of a package that an interpreter can import; None where it cannot."""
    code = f"import {module}, importlib.metadata as m; print(m.version({package!r}))"
    try:
        return command([python, "-c", code]).split()[-1]
    except GivenUp:
        return None


# --- scores ----------------------------------------------------------------------------------


def scored(estimates: pd.DataFrame, truth: pd.DataFrame) -> pd.DataFrame:
    """
    Scores of estimates by method, effect and replicate.

    :param estimates: columns ``method``, ``replicate``, ``effect``, ``place`` and ``estimate``;
        ``lower`` and ``upper`` of 95 %, or ``se``; any other, of which the first is kept.
    :param truth: columns ``replicate``, ``effect``, ``place`` and ``true``.
    :return: means of ``estimate``, ``rmse``, ``coverage`` (share of places within), ``inside``
        (whether all are) and ``width``.
    """
    both = estimates.merge(truth, on=["replicate", "effect", "place"])
    if "lower" not in both:
        half = HALF * both["se"]
        both = both.assign(lower=both["estimate"] - half, upper=both["estimate"] + half)
    true, lower, upper = both["true"], both.pop("lower"), both.pop("upper")
    both = both.assign(
        rmse=(both["estimate"] - true) ** 2,
        coverage=((lower <= true) & (true <= upper)).astype(float),
        inside=((lower <= true) & (true <= upper)).astype(float),
        width=upper - lower,
    )
    how = dict.fromkeys(both.columns.drop(["method", "effect", "replicate"]), "first")
    how |= dict.fromkeys(("estimate", "rmse", "coverage", "width"), "mean") | {"inside": "min"}
    each = both.groupby(["method", "effect", "replicate"], sort=False).agg(how)
    return each.assign(rmse=np.sqrt(each["rmse"])).reset_index()


def means(each: pd.DataFrame, by: Sequence[str], **names: str) -> list[dict[str, Any]]:
    """
    Rows of means over replicates.

    :param each: what :func:`scored` makes.
    :param by: columns whose combinations have a row each.
    :param names: of the columns to keep; ``error`` is the standard error of ``rmse``.
    """
    groups = each.groupby(list(by), sort=False)
    table = groups[[c for c in names if c != "error"]].mean().assign(error=groups["rmse"].sem())
    rows = table[list(names)].rename(columns=names).reset_index().astype(object)
    return rows.where(rows.notna(), None).to_dict("records")


# --- the loop --------------------------------------------------------------------------------


def study(
    name: str,
    title: str,
    options: argparse.Namespace,
    settings: Sequence[NamedTuple],
    simulate: Callable[[Any, int], tuple[pd.DataFrame, pd.DataFrame]],
    fit: Callable[[Any, pd.DataFrame], pd.DataFrame],
    rows: Callable[[pd.DataFrame], list[dict[str, Any]]],
    script: Callable[[Any], tuple[Any, ...]],
    *,
    package: Callable[[Any], str | None] = lambda setting: "mgcv",
    score: Callable[[pd.DataFrame, pd.DataFrame], pd.DataFrame] = scored,
    also: Callable[[Any, list[pd.DataFrame]], list[pd.DataFrame]] = lambda setting, data: [],
    **compare: Any,
) -> None:
    """
    Compare our estimates with those of R, where it is there, on the same simulated data.

    :param options: ``replicates``, and what is recorded beside.
    :param simulate: data and truth of a setting and a seed.
    :param fit: our estimates.
    :param rows: the table, of the scores in all settings.
    :param script: of R, and its options, for a setting.
    :param package: of R, that the script needs for a setting.
    :param score: what estimates and the truth of a setting come to.
    :param also: estimates of other peers.
    :param compare: as :func:`recording.record` takes it.
    """
    needed = sorted({p for p in map(package, settings) if p is not None})
    there, each = r_packages(*needed), []
    for number, setting in enumerate(settings, 1):
        made = [simulate(setting, seed) for seed in range(options.replicates)]
        data = [one for one, _ in made]
        estimates = [numbered(fit(setting, one) for one in data), *also(setting, data)]
        if package(setting) in there:
            told = script(setting)
            estimates.append(in_r(told[0], data, *told[1:]))
        truth = numbered(true for _, true in made)
        each.append(score(pd.concat(estimates), truth).assign(**setting._asdict()))
        print(f"\r{name}: {number}/{len(settings)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    table = rows(pd.concat(each))
    compare = {"method": "method", "ours": ["ours"], "better": {"RMSE": "lower"}, **compare}
    skipped = [p for p in needed if p not in there]
    compare["skipped"] = [*compare.get("skipped", ()), *skipped]
    record(name, title, table, options, peers=[f"R:{p}" for p in there], **compare)


# --- times -----------------------------------------------------------------------------------


def medians(
    calls: Mapping[str, Callable[[], Any]], limit: float = 0.0, repeats: int = 5
) -> dict[str, float]:
    """
    Median seconds of each call, taken in turn so that the machine's noise meets all of them.

    :param calls: called once before.
    :param limit: seconds; calls go on until then.
    :param repeats: at least.
    """
    for call in calls.values():
        call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    begun = time.perf_counter()
    while len(times[next(iter(calls))]) < repeats or time.perf_counter() - begun < limit:
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return {name: float(np.median(each)) for name, each in times.items()}


# --- processes -------------------------------------------------------------------------------

THREADS = (
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
)
BLOCK = 20
"""Replicates between two looks at the clock."""


def pool(jobs: int) -> ProcessPoolExecutor:
    """
    Fresh processes with a thread each: small fits are not quicker with more.

    Threads that wait for each other take half of the time where as many processes as cores fit
    models of a few hundred rows. Variables of the environment that are set already are kept.
    """
    for name in THREADS:
        os.environ.setdefault(name, "1")
    return ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"))


def resumed(
    workers: Executor,
    one: Callable[[Any], Any],
    tasks: Sequence[Any],
    file: Path | None,
    limit: float = float("inf"),
) -> list[Any]:
    """
    Results of tasks, as many as there is time for.

    :param file: keeps what is done, so that a run that was ended goes on.
    :param limit: seconds after which no further block of tasks is begun.
    """
    result: list[Any] = pickle.loads(file.read_bytes()) if file and file.exists() else []
    begun = time.perf_counter()
    while len(result) < len(tasks) and time.perf_counter() - begun < limit:
        result += workers.map(one, tasks[len(result) : len(result) + BLOCK])
        if file:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(pickle.dumps(result))
        print(f"\r{tasks[0][:2]}: {len(result)}/{len(tasks)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return result[: len(tasks)]
