"""Newton's method with kernel matrices that are never held, of which IterNCGP is made."""

from . import curvatures, operators, solvers

__all__ = ["curvatures", "operators", "solvers"]
