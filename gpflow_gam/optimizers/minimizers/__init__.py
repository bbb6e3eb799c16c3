"""Minimising one function of some variables: L-BFGS, followed by a tracker that keeps the best."""

from .descent import descend, other_optimum
from .lbfgs import LBFGS, Traced, fit_lbfgs
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
    "fit_lbfgs",
    "other_optimum",
]
