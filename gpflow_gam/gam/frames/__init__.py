"""Tables of named columns, and how they become the matrix that kernels read."""

from .blocks import Blocks, blocks_of
from .distinct import Distinct, distinct, plain
from .encoding import Encoder, Key, LevelColumn, NumericColumn, is_levels, learn_levels
from .imputation import Fill, filled, learn_fills
from .table import Table, complete_rows

__all__ = [
    "Blocks",
    "Distinct",
    "Encoder",
    "Fill",
    "Key",
    "LevelColumn",
    "NumericColumn",
    "Table",
    "blocks_of",
    "complete_rows",
    "distinct",
    "filled",
    "is_levels",
    "learn_fills",
    "learn_levels",
    "plain",
]
