"""Tables of named columns, and how they become the matrix that kernels read."""

from . import labels
from .blocks import Blocks, Counted, blocks_of, in_blocks
from .design import Design
from .distinct import Distinct, distinct, plain
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
from .gathering import Occurring, concatenated, recut
from .holes import Holes, complete_rows
from .imputation import Fill, filled, learn_fills
from .table import Table

__all__ = [
    "Blocks",
    "Counted",
    "Design",
    "Distinct",
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
    "distinct",
    "filled",
    "in_blocks",
    "is_levels",
    "labels",
    "learn_fills",
    "learn_levels",
    "level_to_json",
    "numeric_column",
    "plain",
    "recut",
]
