"""Numbers that a fitted GAM is summed up by."""

from .checks import Dispersion
from .summary import Summary

__all__ = ["Dispersion", "Summary"]
