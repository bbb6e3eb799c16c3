"""Tables in a folder, one binary file a column: what R, other interpreters and ours read alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

INDEX = "columns.tsv"


def is_levels(column: pd.Series) -> bool:
    return isinstance(column.dtype, pd.CategoricalDtype)


def levels(values: Any) -> pd.Categorical:
    """Text as levels, in the order of the alphabet."""
    return pd.Categorical(np.asarray(values).astype(str))


def write(folder: Path, table: pd.DataFrame) -> None:
    """Doubles as they are, levels as their places and an entry in the index."""
    folder.mkdir(parents=True, exist_ok=True)
    index = []
    for name, column in table.items():
        if is_levels(column):
            index.append(f"{name}\tlevels\t{'|'.join(column.cat.categories)}")
            column.cat.codes.to_numpy("<i4").tofile(folder / f"{name}.bin")
        else:
            index.append(f"{name}\tnumbers\t")
            column.to_numpy("<f8").tofile(folder / f"{name}.bin")
    (folder / INDEX).write_text("\n".join(index) + "\n", encoding="utf-8")


def read(folder: Path) -> pd.DataFrame:
    """What :func:`write` wrote."""
    columns: dict[str, Any] = {}
    for line in (folder / INDEX).read_text(encoding="utf-8").splitlines():
        name, kind, names = line.split("\t")
        values = np.fromfile(folder / f"{name}.bin", "<i4" if kind == "levels" else "<f8")
        if kind == "levels":
            values = pd.Categorical.from_codes(values, names.split("|"))
        columns[name] = values
    return pd.DataFrame(columns)
