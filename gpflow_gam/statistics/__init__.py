"""Sums over the rows of data, and the evidence of what they add up to."""

from .between import between_predictors
from .bins import ColumnBins, bin_column, bin_columns
from .cavities import (
    Cavity,
    RowPosterior,
    Sites,
    divided_out,
    marginal_cavities,
    signs_of,
    sites_of,
)
from .codes import Bins
from .coding import Coder
from .columns import CodedColumns, Columns, HeldColumns
from .components import RowComponent, row_component
from .curvature import evidence_hessian
from .distributed import SharedColumns, SharedRows, SharedStored, bytes_of_pass
from .evidence import Evidence, Places
from .exchange import Exchange
from .grids import BinSums, ColumnGrid, Grid
from .information import average_information
from .neighbourhoods import Neighbourhoods
from .posterior import GaussianPosterior, NotPositiveDefinite
from .pseudo_data import PseudoData
from .rows import Rows, Sweep
from .sampling import RowSample
from .stored import Inputs, Offsets, Store, Stored
from .summaries import Summary, summarise

__all__ = [
    "BinSums",
    "Bins",
    "Cavity",
    "CodedColumns",
    "Coder",
    "ColumnBins",
    "ColumnGrid",
    "Columns",
    "Evidence",
    "Exchange",
    "GaussianPosterior",
    "Grid",
    "HeldColumns",
    "Inputs",
    "Neighbourhoods",
    "NotPositiveDefinite",
    "Offsets",
    "Places",
    "PseudoData",
    "RowComponent",
    "RowPosterior",
    "RowSample",
    "Rows",
    "SharedColumns",
    "SharedRows",
    "SharedStored",
    "Sites",
    "Store",
    "Stored",
    "Summary",
    "Sweep",
    "average_information",
    "between_predictors",
    "bin_column",
    "bin_columns",
    "bytes_of_pass",
    "divided_out",
    "evidence_hessian",
    "marginal_cavities",
    "row_component",
    "signs_of",
    "sites_of",
    "summarise",
]
