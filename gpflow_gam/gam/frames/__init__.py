"""Tables of named columns, and how they become the matrix that kernels read."""

from .encoding import (
    Design,
    Encoder,
    Fill,
    Holes,
    Key,
    LevelColumn,
    NumericColumn,
    complete_rows,
    filled,
    learn_fills,
    learn_levels,
    level_to_json,
    numeric_column,
    value_from_json,
)
from .table import Blocks, Counted, Occurring, Table, blocks_of, concatenated, in_blocks, recut

__all__ = [
    "Blocks",
    "Counted",
    "Design",
    "Encoder",
    "Fill",
    "Holes",
    "Key",
    "LevelColumn",
    "NumericColumn",
    "Occurring",
    "Table",
    "blocks_of",
    "complete_rows",
    "concatenated",
    "filled",
    "in_blocks",
    "learn_fills",
    "learn_levels",
    "level_to_json",
    "numeric_column",
    "recut",
    "value_from_json",
]
