"""What IterNCGP is made of: Newton's method with kernel matrices that are never held."""

from . import curvatures, operators, solvers

__all__ = ["curvatures", "operators", "solvers"]
