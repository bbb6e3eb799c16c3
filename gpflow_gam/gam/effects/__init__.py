"""
Components of a fitted GAM with their uncertainty: curves, slopes, differences, averages, indices.

Users call them as methods of :class:`gpflow_gam.GAM`.
"""

from .effect import effect, transformed

__all__ = ["effect", "transformed"]
