"""The best Gaussian in place of Laplace's, by the same Newton steps on averaged log-likelihoods."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import tensorflow as tf

from .actions import ActionPosteriorState, explained
from .expected import ExpectedProblem
from .inner_loop import pairs
from .problem import LaplaceProblem
from .progress import Diverged, Look, Run, Solver, StepReport
from .reduced_newton import ReducedNewton

_ROUGH = 0.1
"""A datum's share of the tolerance, as which a sweep of a round that is not the last may gain."""


@dataclass(frozen=True)
class Variational(Solver):
    """
    Laplace's posterior, moved to the Gaussian that is nearest to the true one.

    The mode of a skew posterior is not its mean: of a softmax, a logit or counts it is nearer to
    the prior's, by more the larger the kernel's variance, and a Gaussian put there predicts too
    unsurely. After Laplace's comes a number of rounds, each with the log-likelihood of every datum
    averaged over the posterior of the round before (:class:`ExpectedProblem`). Their fixed point is
    the variational Gaussian approximation (Opper & Archambeau 2009), restricted as Laplace's
    is to what actions have asked.

    :param newton: of every round, Laplace's among them.
    :param rounds: after Laplace's; each has a search and a posterior of its own.
    :raises ValueError: fewer than one round.
    """

    newton: ReducedNewton = field(default_factory=ReducedNewton)
    rounds: int = 2

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ValueError(
                f"rounds must be at least 1; got {self.rounds}. ReducedNewton has none."
            )

    def start(
        self, problem: LaplaceProblem, before: ActionPosteriorState | None = None
    ) -> VariationalRun:
        return VariationalRun(self, problem, before)


class VariationalRun(Run):
    """
    See :class:`Variational`.

    A round whose averages are not finite raises :class:`~gpflow_gam.newton.solvers.Diverged`, and
    the run stays at the round before. A round begins with a step of its own, the sweep of the
    posterior that its averages are over. Where there is a posterior of other hyperparameters, its
    actions and pseudo-observations under the present ones stand for Laplace's posterior and all
    rounds but the last, at the price of one sweep. Reports after Laplace's round are of
    ``E_q[log p(y | f)]`` in the place of log p(y | f).
    """

    def __init__(
        self,
        options: Variational,
        problem: LaplaceProblem,
        before: ActionPosteriorState | None = None,
    ) -> None:
        self.options = options
        self.problem = problem
        self._inner = self._newton(0).start(problem, before)
        self._before = before
        self._round, self._step = 0, 0
        self._searched = False
        """Whether the search of a round before the last has ended."""

    def steps(self) -> Iterator[StepReport]:
        self._skip()
        while True:
            if not self._searched:
                converged, last = False, self._round == self.options.rounds
                for report in self._inner.steps():
                    converged, self._step = report.converged, self._step + 1
                    self._searched = converged and not last
                    yield replace(report, step=self._step, converged=converged and last)
                if last or not converged:
                    return
            state, products = self._inner.finish_with_products()
            problem = ExpectedProblem(self.problem, state, products)
            if not _is_finite(problem, self._inner.g):
                raise Diverged(
                    f"likelihood {type(problem.likelihood).__name__} overflows where it is "
                    "averaged: the posterior is too uncertain at some datum; take more actions "
                    f"(max_solver_steps) or a smaller kernel variance. Round {self._round} is kept"
                )
            # one value after the other, so that an interruption leaves the round before
            inner = self._inner.resumed(problem, self._newton(self._round + 1))
            self._inner, self._searched, self._round = inner, False, self._round + 1
            self._step += 1  # of its own: the posterior's actions were a sweep
            yield replace(inner.report(), step=self._step)

    def _newton(self, number: int) -> ReducedNewton:
        """The options of a round: all but the last end sooner, as it moves what they have found."""
        newton = self.options.newton
        if number == self.options.rounds:
            return newton
        rough = newton.tolerance * max(1.0, _ROUGH * self.problem.operator.num_data)
        return replace(newton, tolerance=rough)

    def _skip(self) -> None:
        """To the last round, from a posterior of other hyperparameters where there is one."""
        before = self._before
        if before is None or before.actions.shape[0] == 0:
            return
        S = before.actions
        T = tf.transpose(self.problem.operator.product(tf.transpose(S, [1, 2, 0])), [2, 0, 1])
        prior = pairs(S, T)
        F = explained(prior + before.noise)
        w = tf.linalg.matvec(F, tf.linalg.matvec(F, before.targets, transpose_a=True))
        v, g = tf.tensordot(w, S, 1), tf.tensordot(w, T, 1)
        state = replace(before, weights=v, factor=F, prior=prior)
        problem = ExpectedProblem(self.problem, state, T)
        if _is_finite(problem, g):
            inner = self.options.newton.start(problem)
            inner.begin(v, g)
            self._inner, self._round = inner, self.options.rounds
        self._before = None

    def finish(self, cheap: bool = False) -> ActionPosteriorState:
        return self._inner.finish(cheap)

    def ahead(self, last: float) -> float:
        return self._inner.ahead(last)

    @property
    def closing(self) -> float:
        return self._inner.closing

    def look(self) -> Look:
        return self._inner.look()


def _is_finite(problem: LaplaceProblem, g: tf.Tensor) -> bool:
    """At latent functions g [Q, N], and at the prior's mean."""
    return all(np.isfinite(problem.log_likelihood(at)) for at in (g, tf.zeros_like(g)))
