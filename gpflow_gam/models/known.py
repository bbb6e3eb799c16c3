"""The state of an IterNCGP: its inputs at one time, its last fit, and what the next one resumes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from ..newton import HeldActions
from ..newton.operators import KernelPrograms
from ..newton.problem import Run
from ..newton.solvers import ActionPosteriorState
from ..newton.weights import equal_values, values_of
from .probabilities import LeftOutRows
from .structure import Structure


class Present:
    """
    A model's parts, and the values of its parameters, at one time.

    :param structure: of its kernel, likelihood, mean function and data.
    """

    def __init__(self, structure: Structure) -> None:
        self.structure = structure
        self.kernel = values_of(structure.values("kernel"))
        self.rest = values_of(structure.values("likelihood", "mean_function"))

    def equals(self, other: Present) -> bool:
        """Whether parts and values are the same."""
        here, there = [*self.kernel, *self.rest], [*other.kernel, *other.rest]
        return self.structure.difference(other.structure) is None and equal_values(here, there)


@dataclass(frozen=True)
class Fit:
    """What a fit has computed, and where it ended."""

    state: ActionPosteriorState
    at: Present
    complete: bool = False
    """Whether the solver has nothing more to do there."""


class Compiled:
    """Compiled functions and unfinished fits of a model, which no copy of it shares."""

    def __init__(self) -> None:
        self.programs: tuple[Structure, KernelPrograms] | None = None
        self.run: tuple[Present, Run] | None = None
        self.held: tuple[Structure, HeldActions] | None = None
        self.left_out: tuple[Fit, Present, LeftOutRows] | None = None
        self.share: tf.Variable | None = None
        self.objective: tuple[Fit, Present, float] | None = None
        self.unfinished: Any = None
