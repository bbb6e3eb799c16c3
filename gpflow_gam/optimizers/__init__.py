"""
Fitting: natural gradients in site form, L-BFGS, Adam, Newton, and the one function that chooses.
"""

from .checkpoint import Checkpoint
from .cross_validation import fit_left_out
from .fit import fit
from .minimizers import FitProgress, FitResult, TimeBudget
from .natural_gradient import NaturalGradient, SiteStep
from .posterior import assign_posterior, whitened_of
from .rows import fit_rows, present_solution, solution_of_sums
from .solution import Solution
from .twin import start_from_rows

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
    "whitened_of",
]
