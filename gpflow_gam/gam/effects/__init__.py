"""What the components of a fitted GAM look like, with bands."""

from .averaged import averaged
from .bands import critical_values, max_deviations, simultaneous_limits
from .coefficients import coefficients
from .differences import Differences, differences
from .effect import derivative, effect, sample_effect
from .grid import make_grid
from .hyperparameters import averaged_log_density, hyperparameter_draws, joint_moments
from .joint import inducing_moments
from .response import response_effect
from .scenarios import avg_comparisons, avg_predictions, partial_dependence
from .sobol import sobol
from .table import EffectTable
from .transform import applied, transformed

__all__ = [
    "Differences",
    "EffectTable",
    "applied",
    "averaged",
    "averaged_log_density",
    "avg_comparisons",
    "avg_predictions",
    "coefficients",
    "critical_values",
    "derivative",
    "differences",
    "effect",
    "hyperparameter_draws",
    "inducing_moments",
    "joint_moments",
    "make_grid",
    "max_deviations",
    "partial_dependence",
    "response_effect",
    "sample_effect",
    "simultaneous_limits",
    "sobol",
    "transformed",
]
