"""
Named columns in a folder, one binary file each: what R, other interpreters and ours read alike.

Nothing but NumPy is imported, so that any peer's environment will do.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

INDEX = "columns.tsv"


@dataclass(frozen=True)
class Levels:
    """A column of levels: which of ``names`` each row has."""

    codes: np.ndarray
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: Any) -> Levels:
        return Levels(self.codes[rows], self.names)


Column = np.ndarray | Levels
Columns = dict[str, Column]


def levels(values: Any) -> Levels:
    """Text as levels, in the order of the alphabet."""
    names, codes = np.unique(np.asarray(values).astype(str), return_inverse=True)
    return Levels(codes.astype(np.int32), tuple(names))


def write(folder: Path, columns: Columns) -> None:
    """Doubles as they are, levels as their places and an entry in the index."""
    folder.mkdir(parents=True, exist_ok=True)
    index = []
    for name, column in columns.items():
        if isinstance(column, Levels):
            index.append(f"{name}\tlevels\t{'|'.join(column.names)}")
            column.codes.astype("<i4").tofile(folder / f"{name}.bin")
        else:
            index.append(f"{name}\tnumbers\t")
            np.asarray(column).astype("<f8").tofile(folder / f"{name}.bin")
    (folder / INDEX).write_text("\n".join(index) + "\n", encoding="utf-8")


def read(folder: Path) -> Columns:
    """What :func:`write` wrote."""
    columns: Columns = {}
    for line in (folder / INDEX).read_text(encoding="utf-8").splitlines():
        name, kind, names = line.split("\t")
        path = folder / f"{name}.bin"
        if kind == "levels":
            columns[name] = Levels(np.fromfile(path, "<i4"), tuple(names.split("|")))
        else:
            columns[name] = np.fromfile(path, "<f8")
    return columns


def rows(columns: Columns, chosen: Any) -> Columns:
    """Some of the rows."""
    return {name: column[chosen] for name, column in columns.items()}
