"""
Mean and standard deviation as functions of a column, beside ``gaulss`` of R's mgcv.

Head acceleration in simulated motorcycle accidents (Silverman 1985; R's MASS::mcycle): log density
of rows left out in ten folds, five times, and the two curves. Both scores average over the
posterior; mgcv's has none of its own, so its coefficients are drawn. mgcv runs where ``Rscript`` is
on the PATH. Run it with ``python benchmarks/location_scale.py``; the data come from R or, with
``--data mcycle.csv``, from a file.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
from recording import add_option, record
from tabulate import tabulate

import gpflow_gam as gg
from gpflow_gam import s

matplotlib.use("Agg")
import matplotlib.pyplot as plt

SCRIPT = Path(__file__).parent / "mgcv" / "gaulss.R"
FOLDS, REPEATS, K = 10, 5, (40, 24)
KS = f"{K[0]},{K[1] // 2}"


def _data(path: Path | None, folder: Path) -> pd.DataFrame:
    if path is None:
        path = folder / "mcycle.csv"
        code = f"write.csv(MASS::mcycle, '{path}', row.names = FALSE)"
        subprocess.run(["Rscript", "-e", code], check=True)
    frame = pd.read_csv(path)
    return frame.rename(columns={"times": "x", "accel": "y"})


def _gam() -> gg.GAM:
    return gg.GAM({"mean": s("x", k=K[0]), "scale": s("x", k=K[1])})


def _ours(frame: pd.DataFrame) -> np.ndarray:
    scores = np.zeros((len(frame), 2))
    for fold in frame["fold"].unique():
        out = (frame["fold"] == fold).to_numpy()
        gam = _gam().fit(frame[~out], y="y")
        scores[out, 0] = gam.log_density(frame[out])
        scores[out, 1] = gam.log_density(frame[out], unconditional=True)
    return scores


def _theirs(frame: pd.DataFrame, grid: pd.DataFrame, folder: Path) -> tuple[np.ndarray, ...]:
    names = [folder / name for name in ("data.csv", "grid.csv", "scores.csv", "curves.csv")]
    frame.to_csv(names[0], index=False)
    grid.to_csv(names[1], index=False)
    arguments = [str(names[0]), KS, *map(str, names[1:])]
    subprocess.run(["Rscript", str(SCRIPT), *arguments], check=True)
    return tuple(pd.read_csv(name).to_numpy() for name in names[2:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="mcycle.csv")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out/location_scale.png"))
    add_option(parser)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        frame = _data(arguments.data, folder)
        grid = pd.DataFrame({"x": np.linspace(frame["x"].min(), frame["x"].max(), 200)})
        rows: list[list[float]] = []
        curves = None
        for seed in range(arguments.repeats):
            order = np.random.default_rng(seed).permutation(len(frame))
            frame["fold"] = order % FOLDS
            row = list(_ours(frame).mean(axis=0))
            if shutil.which("Rscript") is not None:
                scores, curves = _theirs(frame, grid, folder)
                row += list(scores.mean(axis=0))
            rows.append(row)
    header = ["ours", "ours, averaged", "gaulss, plain", "gaulss, averaged"]
    print(tabulate([*rows, list(np.mean(rows, axis=0))], header, floatfmt=".4f"))
    recorded = [
        {
            "method": name,
            "log density of a row left out": np.mean([row[i] for row in rows]),
            "sd over repeats": np.std([row[i] for row in rows]),
        }
        for i, name in enumerate(header[: len(rows[0])])
    ]
    record(
        "location_scale",
        "Mean and standard deviation of head acceleration as functions of time",
        recorded,
        arguments,
        method="method",
        ours=header[:2],
        better={"log density of a row left out": "higher"},
        skipped=[] if shutil.which("Rscript") else ["mgcv"],
        peers=["R:mgcv"],
    )
    gam = _gam().fit(frame, y="y")
    link = np.asarray(gam.predict(grid, type="link"))
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    axes[0].plot(frame["x"], frame["y"], ".", color="0.7", ms=4)
    for i, (ax, values) in enumerate(zip(axes, (link[:, 0], np.exp(link[:, 1])))):
        ax.plot(grid["x"], values, label="gpflow_gam")
        if curves is not None:
            ax.plot(grid["x"], curves[:, i], "--", label="mgcv, gaulss")
        ax.set(xlabel="time, ms", ylabel=f"{('mean', 'sd')[i]} of the acceleration, g")
    axes[0].legend()
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(arguments.out, dpi=110)


if __name__ == "__main__":
    main()
