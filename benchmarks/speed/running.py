"""Measurements: each in a process of its own, ours and the peers' by turns."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from workloads import Data, Model

sys.path.insert(0, str(Path(__file__).parents[1]))

from harness import PEERS, GivenUp, command, python_version, r_packages

HERE = Path(__file__).parent
METHODS = ("ours", "bam", "bam1", "gam", "pygam", "ebm")
"""bam1 is bam with one thread: on small data, or busy cores, several take it longer than one."""
OF_MGCV = ("bam", "bam1", "gam")
PACKAGES = {"pygam": ("pygam", "pygam"), "ebm": ("interpret.glassbox", "interpret-core")}
"""Of peers in Python: modules and packages."""
Numbers = dict[str, Any]
Record = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """How everything is run."""

    pythons: dict[str, str] = field(default_factory=dict)
    """The interpreters that have pyGAM and interpret; ours by default."""
    threads: int = 2
    """Of bam; bam1 has one."""
    limit: float = 1800.0
    """Seconds after which a measurement is given up."""
    repeats: int = 3
    methods: tuple[str, ...] = METHODS

    def python(self, method: str) -> str:
        return self.pythons.get(method) or sys.executable


@dataclass(frozen=True)
class Cell:
    """A case at one size: what is measured, by whom."""

    case: str
    size: int
    runs: dict[str, Callable[[Path, Settings], Numbers]]
    """By method; each is given the folder where the data are."""
    prepare: Callable[[Path], None]
    """Writes the data."""
    unit: str = "rows"
    note: str = ""


def ours(task: dict[str, Any], settings: Settings) -> Numbers:
    """A task of ours.py, in a fresh process."""
    return _last(command([sys.executable, HERE / "ours.py", json.dumps(task)], settings.limit))


def _last(out: str) -> Numbers:
    numbers: Numbers = json.loads(out.strip().splitlines()[-1])
    return numbers


def fit(
    method: str,
    model: Model,
    stages: tuple[str, ...],
    folder: Path,
    settings: Settings,
    **peer: Any,
) -> Numbers:
    """A fit by a method, and what is asked of it."""
    if method in OF_MGCV:
        family = {"bernoulli": "binomial"}.get(model.family, model.family)
        threads = 1 if method == "bam1" else settings.threads
        of_r = model.mgcv or model.ours, model.knots, ",".join(stages)
        options = (folder, method.rstrip("1"), family, threads, *of_r)
        script = HERE.parent / "mgcv" / "speed.R"
        return named(command(["Rscript", script, *options], settings.limit))
    task = {"folder": str(folder), "stages": stages, "family": model.family}
    if method == "ours":
        return ours({**task, "task": "fit", "formula": model.ours}, settings)
    task |= {"task": "speed", "method": method, "k": model.k or 20, **peer}
    python = settings.python(method)
    return _last(command([python, PEERS, folder, json.dumps(task)], settings.limit))


def fits(
    model: Model, stages: tuple[str, ...], methods: Iterable[str], **peer: Any
) -> dict[str, Callable[[Path, Settings], Numbers]]:
    """The same fit by several methods."""
    return {m: partial(fit, m, model, stages, **peer) for m in methods}


def named(text: str) -> Numbers:
    """``name value`` lines; what is no number stays text."""
    numbers: Numbers = {}
    for line in text.splitlines():
        name, _, value = line.strip().partition(" ")
        try:
            numbers[name] = float(value)
        except ValueError:
            numbers[name] = value
    return numbers


def deviance(family: str, y: np.ndarray, mean: np.ndarray) -> float:
    """Of held-out rows, a row."""
    if family == "gaussian":
        return float(np.mean((y - mean) ** 2))
    if family == "poisson":
        mean = np.maximum(mean, 1e-12)
        logs = np.where(y > 0.0, y * np.log(np.maximum(y, 1e-300) / mean), 0.0)
        return float(np.mean(2.0 * (logs - y + mean)))
    p = np.clip(mean, 1e-12, 1.0 - 1e-12)
    return float(np.mean(-2.0 * np.where(y > 0.5, np.log(p), np.log1p(-p))))


def judged(folder: Path, data: Data, family: str) -> Numbers:
    """How good the predictions are that a method has left in the folder."""
    numbers: Numbers = {}
    for name in ("predictor", "expected"):
        path = folder / f"{name}.bin"
        if not path.exists():
            continue
        result = np.fromfile(path, "<f8")
        path.unlink()  # the next method's are its own
        if name == "predictor" and data.truth is not None:
            numbers["rmse"] = float(np.sqrt(np.mean((result - data.truth) ** 2)))
        if name == "expected" and data.test is not None:
            numbers["deviance"] = deviance(family, np.asarray(data.test["y"]), result)
    return numbers


def measure(
    cells: Iterable[Cell], settings: Settings, keep: Callable[[Record], None] = lambda record: None
) -> list[Record]:
    """
    All repeats of all cells, methods by turns.

    A method that fails, or takes too long, is not asked again in its cell, nor, where it took too
    long, at greater sizes of the case.

    :param keep: called with every record as it comes: long runs are interrupted.
    """
    records: list[Record] = []
    slow: dict[tuple[str, str], int] = {}
    for cell in cells:
        runs = {m: run for m, run in cell.runs.items() if m in settings.methods}
        runs = {m: run for m, run in runs.items() if cell.size < slow.get((cell.case, m), 2**62)}
        if not runs:
            continue
        with tempfile.TemporaryDirectory() as place:
            cell.prepare(Path(place))
            for repeat in range(settings.repeats):
                for method, run in list(runs.items()):
                    record: Record = {"case": cell.case, "size": cell.size, "unit": cell.unit}
                    record |= {"method": method, "repeat": repeat, "note": cell.note}
                    record["load"] = os.getloadavg()[0]
                    begin = time.perf_counter()
                    try:
                        record["numbers"] = run(Path(place), settings)
                    except GivenUp as error:
                        record["error"] = str(error)
                        del runs[method]
                        if "longer than" in str(error):
                            slow[cell.case, method] = cell.size
                    record["wall"] = time.perf_counter() - begin
                    said = record.get("error") or f"{record['numbers'].get('first', 0.0):.2f} s"
                    print(f"{cell.case} {cell.size} {method}: {said}", file=sys.stderr, flush=True)
                    records.append(record)
                    keep(record)
    return records


def missing(settings: Settings) -> dict[str, str]:
    """The peers that are not there, and why."""
    absent = {} if r_packages("mgcv") else dict.fromkeys(OF_MGCV, "no Rscript, or no mgcv")
    for method, (module, package) in PACKAGES.items():
        python = settings.python(method)
        if python_version(python, module, package) is None:
            absent[method] = f"{Path(python).name} cannot import {module}"
    return {m: why for m, why in absent.items() if m in settings.methods}
