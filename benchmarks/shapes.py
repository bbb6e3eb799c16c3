"""
Terms with a shape: how near to the truth, how often within the bands, and do draws ever break it?

Two effects, of which the one of x has a shape, and the one of z, correlated with x, has none. Over
replicates: the root mean square error of the effect of x, how much of it pointwise 95 % bands
cover, the worst violation of the shape by 10 000 joint posterior draws (``worst draw``) and by the
estimate, on a dense grid and against the effect's range; beside it the same term without a shape,
and pyGAM's and R scam's where they are: ``--pygam`` names a Python that has pygam. It writes
``docs/figures/shapes.txt`` and ``.png``, too. Run it with ``python benchmarks/shapes.py``.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from recording import add_option, record
from tabulate import tabulate

import gpflow_gam as gg

HERE = Path(__file__).parent
FIGURE = HERE.parent / "docs" / "figures" / "shapes"
TRUTHS = {
    "sigmoid": ("increasing", lambda x: 2.0 / (1.0 + np.exp(-15.0 * (x - 0.5)))),
    "flat, then up": ("increasing", lambda x: 3.0 * np.maximum(x - 0.5, 0.0)),
    "exponential": ("increasing", lambda x: np.exp(3.0 * x) / 10.0),
    "constant": ("increasing", lambda x: 0.0 * x),
    "parabola": ("convex", lambda x: 6.0 * np.square(x - 0.4)),
}
FAMILIES = ("gaussian", "poisson", "bernoulli")
NOISE = 0.7
GRID = np.linspace(0.02, 0.98, 97)
DENSE = np.linspace(0.0, 1.0, 501)
Task = dict[str, Any]


def replicate(truth: str, family: str, number: int, seed: int) -> Task:
    """Rows of one data set."""
    rng = np.random.default_rng([seed, list(TRUTHS).index(truth), FAMILIES.index(family)])
    shape, f = TRUTHS[truth]
    x = rng.uniform(size=number)
    z = x + rng.normal(size=number)
    eta = f(x) + 0.7 * np.sin(2.0 * z)
    y = {
        "gaussian": lambda: eta + NOISE * rng.normal(size=number),
        "poisson": lambda: rng.poisson(np.exp(eta - 0.5)),
        "bernoulli": lambda: (rng.uniform(size=number) < 1.0 / (1.0 + np.exp(1.0 - eta))) + 0.0,
    }[family]()
    data = {"x": x.tolist(), "z": z.tolist(), "y": np.asarray(y, dtype=float).tolist()}
    truth_at = (f(GRID) - f(x).mean()).tolist()
    return {"family": family, "shape": shape, "grid": GRID.tolist(), "truth": truth_at, **data}


def violation(curves: np.ndarray, shape: str) -> float:
    """The worst step against a shape, against the range of all curves [..., n]."""
    down = -np.diff(curves, 1 if shape == "increasing" else 2, axis=-1)
    # of a convex curve: of its slope, per grid step
    size = np.ptp(curves)
    return float(max(down.max(), 0.0) / size) if size > 1e-9 else 0.0


def ours(task: Task, shaped: bool, num_draws: int) -> dict[str, Any]:
    """Our bands, and the worst of our draws."""
    data = pd.DataFrame({name: task[name] for name in "xyz"})
    term = gg.s("x", shape=task["shape"] if shaped else None)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gam = gg.GAM(term + gg.s("z"), family=task["family"]).fit(data, "y", progress=False)
    seconds = time.perf_counter() - start
    band = gam.effects("s(x)", {"x": GRID})
    result = {name: band[name].tolist() for name in ("estimate", "lower", "upper")}
    result["seconds"] = seconds
    result["bands"] = time.perf_counter() - start - seconds
    if num_draws:
        begin = time.perf_counter()
        draws = gam.sample_effects("s(x)", {"x": DENSE}, num_draws)
        result["drawing"] = time.perf_counter() - begin
        result["worst draw"] = violation(draws, task["shape"])
    return result


def scores(task: Task, band: dict[str, Any]) -> dict[str, float]:
    """Of one fit."""
    truth, estimate = np.array(task["truth"]), np.array(band["estimate"])
    lower, upper = np.array(band["lower"]), np.array(band["upper"])
    return {
        "rmse": float(np.sqrt(np.mean(np.square(estimate - truth)))),
        "coverage": float(np.mean((lower <= truth) & (truth <= upper))),
        "width": float(np.mean(upper - lower)),
        "violation": violation(estimate, task["shape"]),
        "worst draw": band.get("worst draw", float("nan")),
        "seconds": band["seconds"],
    }


def of_pygam(tasks: list[Task], python: str) -> list[dict[str, Any]]:
    """pyGAM's bands, with the shape."""
    with tempfile.TemporaryDirectory() as folder:
        given, result = Path(folder) / "in.json", Path(folder) / "out.json"
        given.write_text(json.dumps(tasks))
        subprocess.run(
            [python, str(HERE / "pygam" / "shapes.py"), str(given), str(result)], check=True
        )
        return json.loads(result.read_text())


def pygam_version(python: str | None) -> dict[str, str]:
    """Of that Python's."""
    if python is None:
        return {}
    code = "import pygam; print(pygam.__version__)"
    answer = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    return {"pygam": answer.stdout.strip()}


def of_scam(tasks: list[Task]) -> list[dict[str, Any]]:
    """The bands of R's scam."""
    parts = []
    for i, task in enumerate(tasks):
        rows = pd.DataFrame({name: task[name] for name in "xyz"}).assign(what="row")
        grid = pd.DataFrame({"x": GRID, "z": 0.0, "y": 0.0}).assign(what="grid")
        parts.append(
            pd.concat([rows, grid]).assign(task=i, family=task["family"], shape=task["shape"])
        )
    with tempfile.TemporaryDirectory() as folder:
        given, result = Path(folder) / "in.csv", Path(folder) / "out.csv"
        pd.concat(parts).to_csv(given, index=False)
        subprocess.run(
            ["Rscript", str(HERE / "mgcv" / "shapes.R"), str(given), str(result)], check=True
        )
        table = pd.read_csv(result)
    return [
        {n: own[n].tolist() for n in ("estimate", "lower", "upper")}
        | {"seconds": float(own["seconds"].iloc[0])}
        for _, own in table.groupby("task")
    ]


def has_scam() -> bool:
    """Whether R has it."""
    if not shutil.which("Rscript"):
        return False
    asked = ["Rscript", "-e", "cat(requireNamespace('scam', quietly = TRUE))"]
    return subprocess.run(asked, capture_output=True, text=True).stdout.endswith("TRUE")


def draw(path: Path, seed: int) -> None:
    """One data set of some truths: bands with and without the shape, and draws."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    chosen = (("flat, then up", "gaussian"), ("sigmoid", "poisson"), ("parabola", "bernoulli"))
    figure, axes = plt.subplots(1, 3, figsize=(11.0, 3.4), layout="constrained")
    for ax, (truth, family) in zip(axes, chosen):
        task = replicate(truth, family, 300, seed)
        data = pd.DataFrame({name: task[name] for name in "xyz"})
        for shape, colour in ((None, "0.6"), (task["shape"], "C0")):
            gam = gg.GAM(gg.s("x", shape=shape) + gg.s("z"), family=family).fit(data, "y")
            band = gam.effects("s(x)", {"x": GRID})
            label = "any shape" if shape is None else shape
            ax.fill_between(GRID, band.lower, band.upper, color=colour, alpha=0.25, lw=0)
            ax.plot(GRID, band.estimate, color=colour, label=label)
            if shape is not None:
                draws = gam.sample_effects("s(x)", {"x": GRID}, 12)
                ax.plot(GRID, draws.T, color=colour, lw=0.4, alpha=0.7)
        ax.plot(GRID, task["truth"], "k--", lw=1.0, label="truth")
        ax.set_title(f"{truth}, {family}", fontsize=10)
        ax.set_xlabel("x")
        ax.legend(fontsize=8, frameon=False)
    axes[0].set_ylabel("effect on the predictor")
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--replicates", type=int, default=20)
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--drawn", type=int, default=3, help="replicates of which draws are made")
    parser.add_argument("--pygam", help="a Python that has pygam")
    parser.add_argument("--families", nargs="+", default=list(FAMILIES), choices=FAMILIES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--figure-only", action="store_true")
    add_option(parser)
    options = parser.parse_args()
    if options.figure_only:
        draw(FIGURE.with_suffix(".png"), options.seed)
        return
    result: list[dict[str, Any]] = []
    missing = [] if options.pygam else ["pyGAM"]
    if not has_scam():
        missing.append("scam")
    for family in options.families:
        for truth in TRUTHS:
            tasks = [
                replicate(truth, family, options.rows, options.seed + i)
                for i in range(options.replicates)
            ]
            number = [options.draws if i < options.drawn else 0 for i in range(len(tasks))]
            fits = {
                "shape": [ours(t, True, n) for t, n in zip(tasks, number)],
                "none": [ours(t, False, 0) for t in tasks],
            }
            if options.pygam:
                fits["pyGAM"] = of_pygam(tasks, options.pygam)
            if "scam" not in missing:
                fits["scam"] = of_scam(tasks)
            for method, bands in fits.items():
                each = pd.DataFrame([scores(t, b) for t, b in zip(tasks, bands)])
                mean = each.drop(columns=["worst draw", "violation"]).mean().to_dict()
                worst = each[["worst draw", "violation"]].max().to_dict()
                row = {"family": family, "truth": truth, "method": method, **mean, **worst}
                result.append({k: None if v != v else v for k, v in row.items()})
                print(json.dumps(result[-1]), flush=True)
    heads = {"rmse": "RMSE", "coverage": "coverage of 95 % bands"}
    record(
        "shapes",
        "Terms with a shape: increasing and convex truths",
        [{heads.get(k, k): v for k, v in row.items()} for row in result],
        options,
        within=["family", "truth"],
        method="method",
        ours=["shape", "none"],
        better={"RMSE": "lower", "seconds": "lower"},
        skipped=missing,
        peers=["R:scam"],
        peer_versions=pygam_version(options.pygam),
    )
    columns = ("family", "truth", "method", "rmse", "coverage", "width", "violation", "worst draw")

    def said(value: Any) -> str:
        return value if isinstance(value, str) else "" if value is None else f"{value:.3g}"

    shown = [[*(said(row[c]) for c in columns), f"{row['seconds']:.2f}"] for row in result]
    table = tabulate(shown, [*columns, "s"], disable_numparse=True)
    left_out = f"\nnot here: {', '.join(missing)}" if missing else ""
    FIGURE.with_suffix(".txt").write_text(table + left_out + "\n", encoding="utf-8")
    print(table + left_out)
    draw(FIGURE.with_suffix(".png"), options.seed)


if __name__ == "__main__":
    main()
