"""R, where it is installed."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import pandas as pd


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
