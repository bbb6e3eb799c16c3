"""Numbers that a fitted GAM is summed up by."""

from .summary import Dispersion, Summary

__all__ = ["Dispersion", "Summary"]
