"""What a fitted GAM says, in numbers."""

from .concurvity import concurvity
from .shares import effective_dof, variance_shares, zero_tail
from .summary import Summary, summarise

__all__ = [
    "Summary",
    "concurvity",
    "effective_dof",
    "summarise",
    "variance_shares",
    "zero_tail",
]
