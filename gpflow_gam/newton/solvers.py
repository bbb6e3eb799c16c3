"""Newton's method for log-concave likelihoods, with linear algebra that never holds a matrix."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from scipy.special import roots_hermitenorm

from ..errors import check_count
from ..likelihoods.base import is_scalar
from ..likelihoods.discrete import normal_nodes
from ..likelihoods.predictive import is_joint
from .curvatures import Curvature, DensePrecision, DiagonalPrecision, Precision, curvature
from .itergp import IterGP, pairs
from .problem import (
    ActionPosteriorState,
    Diverged,
    Informative,
    LaplaceProblem,
    Residual,
    Run,
    Solver,
    StepReport,
    UnitVectors,
    explained,
)
from .reduced_newton import ReducedNewton

__all__ = [
    "Informative",
    "IterGP",
    "ReducedNewton",
    "Residual",
    "StepReport",
    "UnitVectors",
    "Variational",
]

_NUM_HERMITE = 20
_NUM_POINTS = 64  # the least, of rules in several dimensions
_ENTRIES = 2**22  # number of entries of curvatures that are in memory at a time


class ExpectedProblem(LaplaceProblem):
    """A Laplace problem whose log-likelihood is averaged over q(f_n), of which the mean moves."""

    # As log-concave in the mean as log p is; gradient and curvature are averages of those of log p
    # (Opper & Archambeau 2009, equations 10 to 12). Rules are fixed: Gauss-Hermite where outputs
    # are observed one by one, so that their variances are all that counts; else a Sobol sequence
    # and its mirror image, with the first two moments of a Gaussian, which is rotated by the
    # symmetric root of its covariance. Shapes: products [B, Q, N].

    def __init__(
        self, problem: LaplaceProblem, state: ActionPosteriorState, products: tf.Tensor
    ) -> None:
        super().__init__(problem.operator, problem.likelihood, problem.Y, problem.mean_function)
        self._pivoted, self._asked = problem._pivoted, problem._asked
        h = tf.tensordot(state.factor, products, [[0], [0]])  # [R, Q, N]
        joint = is_joint(problem.likelihood, problem.operator.num_latents)
        cov = problem.output_covariance(tf.transpose(h, [1, 2, 0]), joint)
        self._separate = is_scalar(problem.likelihood)
        nodes: AnyNDArray
        if not joint:
            nodes, weights = roots_hermitenorm(_NUM_HERMITE)
            weights = weights / weights.sum()
            sd = tf.sqrt(tf.maximum(cov, 0.0))
            self._away = tf.constant(nodes)[:, None, None] * sd
        else:
            nodes = normal_points(int(cov.shape[-1]))
            weights = np.full(len(nodes), 1.0 / len(nodes))
            values, vectors = tf.linalg.eigh(cov)
            # the symmetric one: it moves with C_n, whatever becomes of eigenvectors
            half = vectors * tf.sqrt(tf.maximum(values, 0.0))[:, None, :]
            root = tf.matmul(half, vectors, transpose_b=True)
            self._away = tf.einsum("nlk,sk->snl", root, tf.constant(nodes, cov.dtype))
        self._weights = tf.constant(weights)

    def of_rows(self, indices: tf.Tensor) -> ExpectedProblem:
        result = super().of_rows(indices)
        assert isinstance(result, ExpectedProblem)
        result._away = tf.gather(self._away, indices, axis=1)
        return result

    def _parts(self) -> Iterator[tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]]:
        """Some nodes at a time: weights [s], deviations [s, N, L], and X and Y once a node."""
        S, N, L = self._away.shape
        most = max(1, _ENTRIES // (N * L * (1 if self._separate else L)))
        for start in range(0, S, most):
            away = self._away[start : start + most]
            number = away.shape[0]
            X, Y = (tf.tile(t, [number, 1]) for t in (self.X, self.Y))
            yield self._weights[start : start + most], away, X, Y

    def _log_prob(self, F: tf.Tensor) -> tf.Tensor:
        total = tf.zeros_like(F[:, 0])
        for weights, away, X, Y in self._parts():
            at = tf.cast(tf.reshape(F + away, [-1, F.shape[1]]), X.dtype)
            result = tf.cast(self.likelihood.log_prob(X, at, Y), F.dtype)
            total += tf.linalg.matvec(tf.reshape(result, away.shape[:2]), weights, transpose_a=True)
        return total

    def expansion(self, F: tf.Tensor) -> Curvature:
        sums: tuple[tf.Tensor, ...] = ()
        for weights, away, X, Y in self._parts():
            at = tf.cast(tf.reshape(F + away, [-1, F.shape[1]]), X.dtype)
            one = curvature(self.likelihood, X, at, Y).cast(F.dtype)
            parts = []
            for part in (one.log_prob, tf.transpose(one.gradient)):
                nodes = tf.reshape(part, [*away.shape[:2], *part.shape[1:]])
                parts.append(tf.tensordot(weights, nodes, 1))
            if self._separate:
                bend = tf.reshape(tf.transpose(one.precision.tensor), away.shape)
                parts.append(tf.tensordot(weights, bend, 1))
            else:
                parts.append(one.precision.summed(weights))
            sums = tuple(a + b for a, b in zip(sums, parts)) if sums else tuple(parts)
        log_prob, gradient, bend = sums
        precision: Precision
        if self._separate:
            precision = DiagonalPrecision(tf.transpose(bend))
        else:
            precision = DensePrecision(bend)
        return Curvature(log_prob, tf.transpose(gradient), precision)


def normal_points(dimension: int) -> AnyNDArray:
    """Equally weighted points [S, dimension] with mean zero and covariance I."""
    power = int(np.ceil(np.log2(max(_NUM_POINTS, 8 * dimension) / 2)))
    return normal_nodes(dimension, 2**power, seed=0)


_ROUGH = 0.1
"""A datum's share of the tolerance, as which a sweep of a round that is not the last may gain."""


@dataclass(frozen=True)
class Variational(Solver):
    """
    Laplace's posterior, moved to the Gaussian that is nearest to the true one.

    The mode of a skew posterior is not its mean: of a softmax, a logit or counts it is nearer to
    the prior's, by more the larger the kernel's variance, and a Gaussian put there predicts too
    unsurely. After Laplace's comes a number of rounds, each with the log-likelihood of every datum
    averaged over the posterior of the round before (``ExpectedProblem``). Their fixed point is
    the variational Gaussian approximation (Opper & Archambeau 2009), restricted as Laplace's
    is to what actions have asked.

    :param newton: of every round, Laplace's among them.
    :param rounds: after Laplace's; each has a search and a posterior of its own.
    :raises ValueError: fewer than one round.
    """

    newton: ReducedNewton = field(default_factory=ReducedNewton)
    rounds: int = 2

    def __post_init__(self) -> None:
        check_count("rounds", self.rounds)

    def start(
        self, problem: LaplaceProblem, before: ActionPosteriorState | None = None
    ) -> VariationalRun:
        return VariationalRun(self, problem, before)


class VariationalRun(Run):
    """See :class:`Variational`."""

    # A round begins with a step of its own, the sweep of the posterior that its averages are over;
    # if they are not finite the run stays at the round before. A posterior of other hyperparameters
    # stands, by one sweep, for all rounds but the last. Reports after Laplace's round are of
    # E_q[log p(y | f)].

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
        """True if the search of the present round has converged, and it is not the last."""

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
                    f"(num_actions) or a smaller kernel variance. Round {self._round} is kept"
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


def _is_finite(problem: LaplaceProblem, g: tf.Tensor) -> bool:
    """At latent functions g [Q, N], and at the prior's mean."""
    return all(np.isfinite(problem.log_likelihood(at)) for at in (g, tf.zeros_like(g)))


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
