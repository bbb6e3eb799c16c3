"""Sums over the rows of data, and the evidence of what they add up to."""

from .bins import Bins, ColumnBins, bin_column, bin_columns
from .components import RowComponent, row_component
from .evidence import Evidence, GaussianPosterior, NotPositiveDefinite, Places, PseudoData
from .information import average_information
from .rows import Rows, Sweep

__all__ = [
    "Bins",
    "ColumnBins",
    "Evidence",
    "GaussianPosterior",
    "NotPositiveDefinite",
    "Places",
    "PseudoData",
    "RowComponent",
    "Rows",
    "Sweep",
    "average_information",
    "bin_column",
    "bin_columns",
    "row_component",
]
