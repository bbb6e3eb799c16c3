"""
Components of a fitted GAM with their uncertainty: curves, slopes, differences, averages, indices.

Users call them as methods of :class:`gpflow_gam.GAM`.
"""

from .averages import Averager as Averager
from .effect import Effects as Effects
from .effect import EffectTable, applied, transformed
from .effect import coefficients as coefficients
from .effect import effect as effect
from .grid import make_grid
from .posterior import averaged as averaged
from .posterior import averaged_log_density, hyperparameter_draws, joint_moments
from .posterior import critical_values as critical_values
from .posterior import max_deviations as max_deviations
from .posterior import simultaneous_bands as simultaneous_bands
from .sobol import SobolIndices as SobolIndices

__all__ = [
    "EffectTable",
    "applied",
    "averaged_log_density",
    "hyperparameter_draws",
    "joint_moments",
    "make_grid",
    "transformed",
]
