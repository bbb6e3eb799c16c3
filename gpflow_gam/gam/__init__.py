"""Generalized additive models as their users know them, and what they are made of."""

from .gam import GAM
from .inspector import NotFittedError
from .tables import EditedGAM

__all__ = ["GAM", "EditedGAM", "NotFittedError"]
