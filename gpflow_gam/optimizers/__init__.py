"""Fitting: natural gradients in site form, L-BFGS, Adam, and the one function that chooses."""

from ..minimizers import FitProgress, FitResult
from .fit import fit
from .natural_gradient import NaturalGradient, SiteStep

__all__ = ["FitProgress", "FitResult", "NaturalGradient", "SiteStep", "fit"]
