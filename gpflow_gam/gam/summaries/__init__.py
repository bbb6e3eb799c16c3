"""What a fitted GAM says, in numbers."""

from .calibration import calibrated
from .concurvity import concurvity, pairwise_concurvity
from .copies import (
    indistinguishable,
    interpolating,
    of_single_rows,
    overlapping,
    undetermined,
)
from .dispersion import Dispersion, dispersion, sample_dispersion
from .shapes import against_shapes
from .shares import effective_dof, variance_shares
from .summary import Summary, summarise
from .variances import variance_components

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
