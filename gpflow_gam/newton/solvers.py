"""Newton's method for log-concave likelihoods, with linear algebra that never holds a matrix."""

from __future__ import annotations

from typing import Any

from .itergp import IterGP
from .problem import (
    ActionPosteriorState,
    Diverged,
    Informative,
    LaplaceProblem,
    Policy,
    Residual,
    Solver,
    StepReport,
    UnitVectors,
)
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
    "Solver",
    "StepReport",
    "UnitVectors",
    "Variational",
]


def named_solver(
    solver: str | Solver,
    policy: Policy | None = None,
    max_newton_steps: int | None = None,
    max_solver_steps: int | None = None,
    compression: int | None = None,
    tolerance: float | None = None,
) -> Solver:
    """The solver that :class:`gpflow_gam.models.IterNCGP`'s arguments ask for."""
    limits = {
        "max_newton_steps": max_newton_steps,
        "max_solver_steps": max_solver_steps,
        "compression": compression,
    }
    for name, limit in limits.items():
        if limit is not None and limit < 1:
            raise ValueError(f"{name} must be at least 1; got {limit}.")
    if policy is not None and not isinstance(policy, Policy):
        raise TypeError(f"policy must be a gpflow_gam.solvers.Policy; got {type(policy).__name__}.")
    options: dict[str, Any] = {"policy": policy, "tolerance": tolerance}
    if isinstance(solver, Solver):
        given = [k for k, v in {**options, **limits}.items() if v is not None]
        if given:
            raise ValueError(
                f"solver has options of its own; set {', '.join(given)} there, or name the solver."
            )
        return solver
    options["max_steps"] = max_newton_steps
    if solver == "itergp":
        options.update(max_iterations=max_solver_steps, compression=compression)
        return IterGP(**{k: v for k, v in options.items() if v is not None})
    if solver in ("newton", "variational"):
        counts = [n for n in (max_solver_steps, compression) if n is not None]
        options["num_actions"] = min(counts, default=None)
        newton = ReducedNewton(**{k: v for k, v in options.items() if v is not None})
        return newton if solver == "newton" else Variational(newton)
    raise ValueError(
        f"solver must be 'newton', 'variational', 'itergp' or a Solver; got {solver!r}."
    )
