"""Generalized additive models as their users know them, and what they are made of."""

from .fits.fitted import NotFittedError
from .gam import GAM
from .tables import EditedGAM

__all__ = ["GAM", "EditedGAM", "NotFittedError"]
