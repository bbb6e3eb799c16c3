"""Pictures of a fitted GAM; they need matplotlib (``pip install 'gpflow_gam[plot]'``)."""

from .appraise import appraise
from .draw import draw
from .residuals import partial_residuals, quantile_residuals, working_residuals

__all__ = [
    "appraise",
    "draw",
    "partial_residuals",
    "quantile_residuals",
    "working_residuals",
]
