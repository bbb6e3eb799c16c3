"""Generalized additive models as their users know them, and what they are made of."""

from .editing import EditedGAM
from .fits.fitted import NotFittedError
from .gam import GAM

__all__ = ["GAM", "EditedGAM", "NotFittedError"]
