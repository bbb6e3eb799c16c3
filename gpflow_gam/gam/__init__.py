"""Generalized additive models as their users know them."""

from .gam import GAM, NotFittedError

__all__ = ["GAM", "NotFittedError"]
