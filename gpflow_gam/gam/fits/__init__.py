"""Fitting GAMs to named columns, and predicting from them."""

from .data import CodedData, Data, MissingData
from .extrapolation import warn_if_far
from .fit import fit_gam, refit, update
from .fitted import FittedGAM
from .formula import as_written, in_memory
from .model import ENGINES, VARIATIONAL, Model, build_model
from .prediction import Part, Selection
from .shared import fit_share
from .specification import Roles, Specification

__all__ = [
    "ENGINES",
    "VARIATIONAL",
    "CodedData",
    "Data",
    "FittedGAM",
    "MissingData",
    "Model",
    "Part",
    "Roles",
    "Selection",
    "Specification",
    "as_written",
    "build_model",
    "fit_gam",
    "fit_share",
    "in_memory",
    "refit",
    "update",
    "warn_if_far",
]
