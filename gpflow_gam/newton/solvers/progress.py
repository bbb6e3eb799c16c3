"""What a solver reports after each of its steps, and how it is driven."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from dataclasses import dataclass

import tensorflow as tf

from .actions import ActionPosteriorState
from .problem import LaplaceProblem


@dataclass(frozen=True)
class StepReport:
    """The state after one outer (Newton) step."""

    step: int
    """Counted from 1."""

    sweeps: float
    """Passes over the kernel's entries so far."""

    num_actions: int
    """Actions held in the buffers."""

    log_posterior: float
    """log p(y | f) + log p(f) without its constant, at the present f."""

    residual: float
    """``norm(g - v) / norm(g)``: how far the weights v are from the gradient g, their value at the
    mode. Where K is singular v is not unique, and this need not vanish."""

    converged: bool
    """Whether the solver would stop here."""

    inner_steps: int
    """Inner iterations of this step."""

    inner_residuals: tuple[float, ...] = ()
    """Of the inner loop, where it is iterative."""


@dataclass(frozen=True)
class Look:
    """What a run shows of itself on the way."""

    state: ActionPosteriorState
    """Weights are of all data; actions [B, Q, N'] of :attr:`rows`."""

    rows: tf.Tensor | None
    """The data that actions ask, [N']; None for all."""


class Diverged(ArithmeticError):
    """A step led nowhere; the run is as it was before. Carries why."""


class Solver(abc.ABC):
    """
    A solver is an immutable set of options; what it has reached is its run.
    """

    @abc.abstractmethod
    def start(self, problem: LaplaceProblem, before: ActionPosteriorState | None = None) -> Run:
        """
        A run from nothing.

        :param problem: what to solve.
        :param before: what the solver found for a similar problem, where there is one.
        """


class Run(abc.ABC):
    """The buffers of one solve, which go on from where they are."""

    problem: LaplaceProblem

    ended: StepReport | None = None
    """The report that the search has converged with, where no time was left for the posterior."""

    @abc.abstractmethod
    def steps(self) -> Iterator[StepReport]:
        """
        Outer steps until convergence; between two of them the run is always whole.

        Called again after fewer, it takes the steps that were to come.
        """

    @abc.abstractmethod
    def finish(self, cheap: bool = False) -> ActionPosteriorState:
        """
        The posterior from what has been computed.

        :param cheap: without any further sweep.
        """

    def ahead(self, last: float) -> float:
        """
        Sweeps that the next step will take, as far as can be known.

        :param last: those of the last one.
        """
        return last

    @property
    def closing(self) -> float:
        """Sweeps that :meth:`finish` will take, unless it is to be cheap."""
        return 1.0

    def look(self) -> Look:
        """A posterior on the way, without any further sweep."""
        return Look(self.finish(cheap=True), None)
