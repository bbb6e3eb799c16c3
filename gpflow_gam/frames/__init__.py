"""Tables of named columns, and how they become the matrix that kernels read."""

from .encoding import (
    Encoder,
    Key,
    LevelColumn,
    NumericColumn,
    is_levels,
    learn_levels,
    plain,
)
from .table import Table, complete_rows

__all__ = [
    "Encoder",
    "Key",
    "LevelColumn",
    "NumericColumn",
    "Table",
    "complete_rows",
    "is_levels",
    "learn_levels",
    "plain",
]
