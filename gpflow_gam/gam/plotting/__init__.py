"""Pictures of a fitted GAM; they need matplotlib (``pip install 'gpflow_gam[plot]'``)."""

# ruff: noqa: E402

from ...errors import imported

imported("matplotlib.pyplot", "a plot", "'gpflow_gam[plot]'")

from ..summaries.checks import quantile_residuals
from .appraise import appraise, lift
from .draw import draw, draw_partial_dependence, draw_survival, partial_residuals, working_residuals
from .tables import draw_cumulative_sobol, draw_sobol
from .tables import styled as styled

__all__ = [
    "appraise",
    "draw",
    "draw_cumulative_sobol",
    "draw_partial_dependence",
    "draw_sobol",
    "draw_survival",
    "lift",
    "partial_residuals",
    "quantile_residuals",
    "working_residuals",
]
