"""Data larger than memory: a folder of Parquet files, written a block at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import workloads

ROWS = 2**20
"""Rows a file."""


def write(folder: Path, num_rows: int, num_columns: int, family: str) -> None:
    """
    Columns ``x0``, ... of U(0, 1) and ``y``, as :func:`workloads.uniform` has them.

    The first file's predictor is left in ``truth.bin``, for those who judge.

    :raises ImportError: there is no pyarrow.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    (folder / "files").mkdir(parents=True)
    for i, start in enumerate(range(0, num_rows, ROWS)):
        data = workloads.uniform(min(ROWS, num_rows - start), num_columns, family, seed=i)
        path = folder / "files" / f"{i:05d}.parquet"
        table = pa.table({name: np.asarray(column) for name, column in data.train.items()})
        pq.write_table(table, path, compression="none", use_dictionary=False)
        if i == 0:
            assert data.truth is not None
            data.truth.tofile(folder / "truth.bin")
