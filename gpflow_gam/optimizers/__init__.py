"""
Fitting: natural gradients in site form, L-BFGS, Adam, Newton, and the one function that chooses.
"""

from .binned.checkpoint import Checkpoint
from .binned.cross_validation import fit_left_out
from .binned.solution import Solution, assign_posterior, present_solution, solution_of_sums
from .fits import fit, fit_rows, start_from_rows
from .minimizers import FitProgress, FitResult, TimeBudget
from .sites import NaturalGradient, SiteStep

__all__ = [
    "Checkpoint",
    "FitProgress",
    "FitResult",
    "NaturalGradient",
    "SiteStep",
    "Solution",
    "TimeBudget",
    "assign_posterior",
    "fit",
    "fit_left_out",
    "fit_rows",
    "present_solution",
    "solution_of_sums",
    "start_from_rows",
]
