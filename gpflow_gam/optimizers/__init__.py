"""
Fitting: natural gradients in site form, L-BFGS, Adam, Newton, and the one function that chooses.
"""

from .fit import fit
from .minimizers import FitProgress, FitResult, TimeBudget
from .natural_gradient import NaturalGradient, SiteStep
from .rows import Solution, fit_rows, present_solution, whitened_of

__all__ = [
    "FitProgress",
    "FitResult",
    "NaturalGradient",
    "SiteStep",
    "Solution",
    "TimeBudget",
    "fit",
    "fit_rows",
    "present_solution",
    "whitened_of",
]
