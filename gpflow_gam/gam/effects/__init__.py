"""
Components of a fitted GAM with their uncertainty: curves, slopes, differences, averages, indices.

Users call them as methods of :class:`gpflow_gam.GAM`, which say what arguments mean.
"""

from .averages import Averaging as Averaging
from .effect import EffectTable, applied, make_grid, sample_effect, sample_prior, transformed
from .effect import coefficients as coefficients
from .effect import critical_values as critical_values
from .effect import derivative as derivative
from .effect import differences as differences
from .effect import effect as effect
from .effect import max_deviations as max_deviations
from .effect import response_effect as response_effect
from .effect import simultaneous_bands as simultaneous_bands
from .posterior import averaged as averaged
from .posterior import averaged_log_density, hyperparameter_draws, inducing_moments, joint_moments
from .sobol import sobol as sobol

__all__ = [
    "EffectTable",
    "applied",
    "averaged_log_density",
    "hyperparameter_draws",
    "inducing_moments",
    "joint_moments",
    "make_grid",
    "sample_effect",
    "sample_prior",
    "transformed",
]
