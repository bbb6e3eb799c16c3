"""Newton's method for log-concave likelihoods, with linear algebra that never holds a matrix."""

from __future__ import annotations

from .itergp import IterGP
from .problem import Informative, Residual, Solver, StepReport, UnitVectors
from .reduced_newton import ReducedNewton
from .variational import Variational

__all__ = [
    "Informative",
    "IterGP",
    "ReducedNewton",
    "Residual",
    "StepReport",
    "UnitVectors",
    "Variational",
]


def named_solver(solver: str | Solver) -> Solver:
    """A solver, or that of a name with its default options."""
    if isinstance(solver, Solver):
        return solver
    named = {"newton": ReducedNewton, "variational": Variational, "itergp": IterGP}
    if solver not in named:
        raise ValueError(
            f"solver must be 'newton', 'variational', 'itergp' or a Solver; got {solver!r}."
        )
    return named[solver]()
