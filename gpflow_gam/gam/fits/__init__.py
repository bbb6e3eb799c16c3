"""Fitting GAMs to named columns, and predicting from them."""

from .fitted import FittedGAM
from .specification import Specification

__all__ = ["FittedGAM", "Specification"]
