"""What studies share: peers in R, scores of bands, replicates in processes side by side."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm

HALF = float(norm.ppf(0.975))
"""Of a pointwise 95 % band, in standard errors."""


def in_r(script: Path, replicates: Sequence[pd.DataFrame], *options: Any) -> pd.DataFrame:
    """
    What a script makes of all replicates.

    :param script: called with ``options``, a table that has a column ``replicate``, and the file
        to write.
    :param replicates: the data.
    """
    with tempfile.TemporaryDirectory() as folder:
        data, result = Path(folder) / "data.csv", Path(folder) / "found.csv"
        numbered = [d.assign(replicate=i) for i, d in enumerate(replicates)]
        pd.concat(numbered).to_csv(data, index=False)
        command = ["Rscript", script, *options, data, result]
        subprocess.run([str(c) for c in command], check=True)
        return pd.read_csv(result)


def scores(bands: pd.DataFrame, f: np.ndarray) -> dict[str, float]:
    """Of one method and replicate, against the truth [N]."""
    away = bands["estimate"].to_numpy() - f
    return {
        "edf": float(bands["edf"].iloc[0]),
        "rmse": float(np.sqrt(np.mean(away**2))),
        "coverage": float(np.mean(np.abs(away) <= HALF * bands["se"])),
        "seconds": float(bands["seconds"].iloc[0]),
    }


def recorded(each: pd.DataFrame) -> dict[str, float]:
    """Means of scores over replicates, as results have them."""
    mean = each.mean()
    return {
        "edf": mean["edf"],
        "RMSE": mean["rmse"],
        "its se": each["rmse"].sem(),
        "coverage of 95 % bands": mean["coverage"],
        "seconds": mean["seconds"],
    }


def mgcv_is_there() -> bool:
    """Whether R and its package are."""
    if shutil.which("Rscript") is None:
        return False
    return subprocess.run(["Rscript", "-e", "library(mgcv)"], capture_output=True).returncode == 0


def data_and_answers(script: Path, name: str) -> tuple[pd.DataFrame, pd.DataFrame] | None:
    """
    Data that are R's own, and what a script makes of them; None without R, which is said.

    :param script: called with ``name`` and the two files that it writes.
    :param name: of the data.
    """
    if not shutil.which("Rscript"):
        print(f"\n{name}: skipped, there is no Rscript")
        return None
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{kind}.csv" for kind in ("data", "answers")]
        subprocess.run(["Rscript", str(script), name, *map(str, paths)], check=True)
        data, answers = (pd.read_csv(path) for path in paths)
    return data, answers


THREADS = (
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
)


def pool(jobs: int) -> ProcessPoolExecutor:
    """
    Of ``jobs`` fresh processes with a thread each: small fits are not quicker with more.

    Threads that wait for each other take half of the time where as many processes as cores fit
    models of a few hundred rows. Variables of the environment that are set already are kept.
    """
    for name in THREADS:
        os.environ.setdefault(name, "1")
    return ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"))
