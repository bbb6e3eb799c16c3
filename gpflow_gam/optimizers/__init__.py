"""
Fitting: natural gradients in site form, L-BFGS, Adam, Newton, and the one function that chooses.
"""

from .fit import fit
from .minimizers import FitProgress, FitResult
from .natural_gradient import NaturalGradient, SiteStep

__all__ = ["FitProgress", "FitResult", "NaturalGradient", "SiteStep", "fit"]
