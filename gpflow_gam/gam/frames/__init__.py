"""Tables of named columns, and how they become the matrix that kernels read."""

from . import labels
from .blocks import Blocks, Counted, Occurring, blocks_of, concatenated, in_blocks, recut
from .design import Design
from .encoding import (
    Encoder,
    Key,
    LevelColumn,
    NumericColumn,
    is_levels,
    learn_levels,
    level_to_json,
    numeric_column,
)
from .missing import Fill, Holes, complete_rows, filled, learn_fills
from .table import Table

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
    "is_levels",
    "labels",
    "learn_fills",
    "learn_levels",
    "level_to_json",
    "numeric_column",
    "recut",
]
