"""How well fits predict rows that they have not seen, and which of several does so best."""

from .compare import Comparison, compare
from .leave_one_out import LeaveOneOut, leave_one_out

__all__ = ["Comparison", "LeaveOneOut", "compare", "leave_one_out"]
