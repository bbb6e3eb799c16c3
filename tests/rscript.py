"""Answers of R, where it is installed, to compare ours with."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

needed = pytest.mark.skipif(shutil.which("Rscript") is None, reason="needs R")


def printed(script: str, folder: Path) -> np.ndarray:
    """The numbers that a script prints in a folder; skips where R lacks a package of it."""
    done = subprocess.run(
        ["Rscript", "-e", script], cwd=folder, capture_output=True, text=True, timeout=120
    )
    if done.returncode != 0 and "there is no package" in done.stderr:
        pytest.skip(done.stderr.strip().splitlines()[0])
    assert done.returncode == 0, done.stderr
    return np.array(done.stdout.split(), dtype=float)
