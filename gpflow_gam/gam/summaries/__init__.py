"""What a fitted GAM says, in numbers."""

from .components import against_shapes, effective_dof, variance_components, variance_shares
from .dispersion import Dispersion, calibrated, dispersion, sample_dispersion
from .identifiability import (
    concurvity,
    indistinguishable,
    interpolating,
    of_single_rows,
    overlapping,
    pairwise_concurvity,
    undetermined,
)
from .summary import Summary, summarise

__all__ = [
    "Dispersion",
    "Summary",
    "against_shapes",
    "calibrated",
    "concurvity",
    "dispersion",
    "effective_dof",
    "indistinguishable",
    "interpolating",
    "of_single_rows",
    "overlapping",
    "pairwise_concurvity",
    "sample_dispersion",
    "summarise",
    "undetermined",
    "variance_components",
    "variance_shares",
]
