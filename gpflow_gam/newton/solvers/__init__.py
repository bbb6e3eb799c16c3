"""Newton's method for log-concave likelihoods, with linear algebra that never holds a matrix."""

from .actions import ActionPosteriorState, explained
from .itergp import IterGP
from .named import named_solver
from .policies import Informative, Policy, Residual, Schedule, UnitVectors
from .problem import LaplaceProblem
from .progress import Diverged, Solver, StepReport
from .reduced_newton import ReducedNewton
from .variational import Variational

__all__ = [
    "ActionPosteriorState",
    "Diverged",
    "Informative",
    "IterGP",
    "LaplaceProblem",
    "Policy",
    "ReducedNewton",
    "Residual",
    "Schedule",
    "Solver",
    "StepReport",
    "UnitVectors",
    "Variational",
    "explained",
    "named_solver",
]
