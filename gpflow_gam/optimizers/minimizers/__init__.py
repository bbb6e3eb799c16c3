"""Minimising one function of some variables: L-BFGS, followed by a tracker that keeps the best."""

from .descent import descend, other_optimum
from .lbfgs import LBFGS, Traced
from .tracker import FitProgress, FitResult, StopFit, TimeBudget, Tracker

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
