"""Bands of effects beside R's: the same replicates in one R run, and how near to the truth."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
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
        data, found = Path(folder) / "data.csv", Path(folder) / "found.csv"
        numbered = [d.assign(replicate=i) for i, d in enumerate(replicates)]
        pd.concat(numbered).to_csv(data, index=False)
        command = ["Rscript", script, *options, data, found]
        subprocess.run([str(c) for c in command], check=True)
        return pd.read_csv(found)


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
