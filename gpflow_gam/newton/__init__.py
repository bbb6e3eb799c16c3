"""What IterNCGP is made of: Newton's method with kernel matrices that are never held."""

from . import curvatures, operators, solvers
from .bound import action_bound, held_actions
from .left_out import left_out
from .weights import HeldActions

__all__ = [
    "HeldActions",
    "action_bound",
    "curvatures",
    "held_actions",
    "left_out",
    "operators",
    "solvers",
]
