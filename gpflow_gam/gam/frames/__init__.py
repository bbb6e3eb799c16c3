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
from .imputation import Fill, filled, learn_fills
from .table import Table, complete_rows

__all__ = [
    "Encoder",
    "Fill",
    "Key",
    "LevelColumn",
    "NumericColumn",
    "Table",
    "complete_rows",
    "filled",
    "is_levels",
    "learn_fills",
    "learn_levels",
    "plain",
]
