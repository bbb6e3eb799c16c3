"""Minimising one function of some variables: L-BFGS, followed by a tracker that keeps the best."""

from .budget import TimeBudget
from .descent import descend, other_optimum
from .lbfgs import LBFGS
from .result import FitProgress, FitResult
from .traced import Traced
from .tracker import StopFit, Tracker

__all__ = [
    "LBFGS",
    "FitProgress",
    "FitResult",
    "StopFit",
    "TimeBudget",
    "Traced",
    "Tracker",
    "descend",
    "other_optimum",
]
