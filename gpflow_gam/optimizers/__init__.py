"""Fitting: natural gradients in site form, L-BFGS, Adam, and the one function that chooses."""

from .fit import fit
from .natural_gradient import NaturalGradient, SiteStep
from .result import FitProgress, FitResult

__all__ = ["FitProgress", "FitResult", "NaturalGradient", "SiteStep", "fit"]
