"""Leave-one-out scores of fits, and their comparison."""

from .compare import Comparison, compare
from .leave_one_out import LeaveOneOut, leave_one_out

__all__ = ["Comparison", "LeaveOneOut", "compare", "leave_one_out"]
