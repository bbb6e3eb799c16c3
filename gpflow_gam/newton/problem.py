"""The problem of Newton solvers, their states, reports and runs; policies, which choose actions."""

from __future__ import annotations

import abc
import copy
import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood
from gpflow.mean_functions import MeanFunction

from ..errors import check_count
from .curvatures import Curvature, Precision, checked_curvature, curvature
from .operators import KernelOperator, PivotedCholesky, joint_covariance


class LaplaceProblem:
    """Parts of ``max_g log p(y | m + g) - 1/2 g'K^-1 g`` over Q latent functions at N data."""

    # Latent functions are [Q, N]; as the likelihood takes them, [N, Q], and Y is [N, K]. The
    # likelihood is evaluated in the precision of X, all else in double precision.
    def __init__(
        self,
        operator: KernelOperator,
        likelihood: Likelihood,
        Y: tf.Tensor,
        mean_function: MeanFunction,
    ) -> None:
        self.operator = operator
        self.likelihood = likelihood
        self.mean_function = mean_function
        self.X, self.Y = operator.X, Y
        self.mean = mean_at_data(mean_function, operator)
        self._pivoted: PivotedCholesky | None = None
        self._asked = 0

    def predictor(self, g: tf.Tensor) -> tf.Tensor:
        """m + g, [N, Q]. Shapes: g [Q, N]."""
        return self.mean + tf.transpose(g)

    def log_likelihood(self, g: tf.Tensor) -> tf.Tensor:
        """Summed over the data. Shapes: g [Q, N]."""
        return tf.reduce_sum(self._log_prob(self.predictor(g)))

    def residual(self, v: tf.Tensor, g: tf.Tensor) -> float:
        """Distance of weights v from the gradient at g, over its length. Shapes: [Q, N] both."""
        gradient = self.curvature(g).gradient
        return float(tf.norm(gradient - v) / tf.maximum(tf.norm(gradient), 1e-300))

    def curvature(self, g: tf.Tensor) -> Curvature:
        """The log-likelihood to second order in the latent functions. Shapes: g [Q, N]."""
        return checked_curvature(self.expansion(self.predictor(g)), self.likelihood)

    @functools.cached_property
    def diag(self) -> tf.Tensor:
        """Prior variances at the data, [1, N] where the kernel is shared, [Q, N] otherwise."""
        return self.operator.diag()

    def prior_variances(self) -> tf.Tensor:
        return tf.broadcast_to(self.diag, [self.operator.num_latents, self.operator.num_data])

    def output_covariance(self, h: tf.Tensor, joint: bool) -> tf.Tensor:
        """Prior covariance less h h' of h [Q, N, R]: [N, Q, Q], or variances [N, Q]."""
        prior = self.prior_variances()
        if joint:
            return joint_covariance(prior, h)
        return tf.transpose(prior - tf.reduce_sum(tf.square(h), axis=2))

    def _log_prob(self, F: tf.Tensor) -> tf.Tensor:
        """At m + g [N, Q], [N]."""
        result = self.likelihood.log_prob(self.X, tf.cast(F, self.X.dtype), self.Y)
        return tf.cast(result, F.dtype)

    def expansion(self, F: tf.Tensor) -> Curvature:
        """The log-likelihood to second order at m + g [N, Q], unchecked."""
        result: Curvature = curvature(self.likelihood, self.X, tf.cast(F, self.X.dtype), self.Y)
        return result.cast(F.dtype)

    def of_rows(self, indices: tf.Tensor) -> LaplaceProblem:
        """The problem of some data alone, with the part of the Cholesky factor that is theirs."""
        result = copy.copy(self)
        result.operator = self.operator.of_rows(indices)
        result.X, result.Y = result.operator.X, tf.gather(self.Y, indices)
        result.mean = tf.gather(self.mean, indices)
        result._pivoted, result._asked = None, 0
        vars(result).pop("diag", None)
        if self._pivoted is not None:
            result._pivoted = self._pivoted.of_rows(indices, self.diag)
            whole = result._pivoted.rank == self._pivoted.rank
            result._asked = self._asked if whole else result._pivoted.rank
        return result

    def order(self) -> AnyNDArray:
        """All rows [N]: the known pivots, which lie far apart, then the others at random."""
        size = self.operator.num_data
        first = np.zeros(0, dtype=int)
        if self._pivoted is not None:
            known = self._pivoted.pivots.T.reshape(-1)
            first = np.array(list(dict.fromkeys(known[known >= 0].tolist())), dtype=int)
        rest = np.random.default_rng(0).permutation(size)
        return np.concatenate([first, rest[~np.isin(rest, first)]])

    def pivoted(self, number: int) -> PivotedCholesky:
        """A partial Cholesky factor of K with at most ``number`` pivots, kept for the next call."""
        number = min(number, self.operator.num_data)
        if self._pivoted is None or self._asked < number:
            self._pivoted, self._asked = self.operator.pivoted(number), number
        if number >= self._pivoted.rank:
            return self._pivoted
        return self._pivoted.first(number, self.diag)


def mean_at_data(mean_function: MeanFunction, operator: KernelOperator) -> tf.Tensor:
    """m(X), [N, Q]."""
    shape = [operator.num_data, operator.num_latents]
    return tf.cast(tf.broadcast_to(mean_function(operator.X), shape), operator.dtype)


def seen(S: tf.Tensor, mean: tf.Tensor) -> tf.Tensor:
    """``S'm`` [B] of actions [B, Q, N] and a mean [N, Q]."""
    return tf.tensordot(S, mean, [[1, 2], [1, 0]])


def noise_products(precision: Precision, S: tf.Tensor) -> tf.Tensor:
    """``W^+ S`` of joint actions S [B, Q, N], [B, Q, N]."""
    return tf.transpose(precision.solve(tf.transpose(S, [1, 2, 0])), [2, 0, 1])


@dataclass(frozen=True)
class ActionPosteriorState:
    """The posterior ``m + k v``, ``k - k S F F' S' k`` of the latent functions (k = k(., X))."""

    # S F F' S' = S (S'(K + W^+) S)^-1 S' is C of Tatzel et al. (2025), Algorithm 2
    weights: tf.Tensor  # v, [Q, N]
    actions: tf.Tensor  # S, [B, Q, N]: joint in the latent functions
    factor: tf.Tensor  # F, [B, B]; columns of zeros for directions that are rounding only
    prior: tf.Tensor  # S'K S, [B, B]
    noise: tf.Tensor  # S'W^+ S, [B, B]
    targets: tf.Tensor  # what the actions saw of the pseudo-observations: S'(yhat - m), [B]

    @classmethod
    def nothing(cls, weights: tf.Tensor) -> ActionPosteriorState:
        """No action yet: the prior covariance. Shapes: weights [Q, N]."""
        Q, N = weights.shape
        empty = tf.zeros([0, 0], weights.dtype)
        S = tf.zeros([0, Q, N], weights.dtype)
        return cls(weights, S, empty, empty, empty, tf.zeros([0], weights.dtype))

    def raised(self, mean: tf.Tensor) -> ActionPosteriorState:
        """With targets of pseudo-observations that are higher by ``mean`` [N, Q]."""
        return replace(self, targets=self.targets + seen(self.actions, mean))


@check_shapes("gram: [B, B]", "return: [B, B]")
def explained(gram: tf.Tensor, least: float = 0.0) -> tf.Tensor:
    """F with ``F F' = gram^-1``; zeros for directions of rounding, or of a share of the largest."""
    gram = 0.5 * (gram + tf.transpose(gram))
    if gram.shape[0] == 0:
        return gram
    diag = tf.linalg.diag_part(gram)
    tiny = np.finfo(gram.dtype.as_numpy_dtype).tiny
    scale = tf.where(diag > tiny, tf.math.rsqrt(tf.maximum(diag, tiny)), tf.zeros_like(diag))
    values, vectors = tf.linalg.eigh(scale[:, None] * gram * scale)
    eps = np.finfo(gram.dtype.as_numpy_dtype).eps
    rounding = eps * tf.cast(tf.shape(gram)[0], gram.dtype)
    keep = values > tf.maximum(rounding, least * values[-1])
    ones = tf.ones_like(values)
    inverse = tf.where(keep, tf.math.rsqrt(tf.where(keep, values, ones)), 0.0 * ones)
    return scale[:, None] * vectors * inverse


@dataclass(frozen=True)
class StepReport:
    """The state after one outer (Newton) step."""

    step: int  # counted from 1
    sweeps: float  # passes over the kernel's entries so far
    num_actions: int  # held in the buffers
    log_posterior: float  # log p(y | f) + log p(f) without its constant, at the present f
    # norm(g - v) / norm(g): how far the weights v are from the gradient g, their value at the mode;
    # where K is singular v is not unique, and this need not vanish
    residual: float
    converged: bool  # the solver would stop here


class Diverged(ArithmeticError):
    """A step led nowhere; the run is as it was before. Carries why."""


class Solver(abc.ABC):
    """An immutable set of options; what it has reached is its run."""

    @abc.abstractmethod
    def start(self, problem: LaplaceProblem, before: ActionPosteriorState | None = None) -> Run:
        """A run of ``problem``; ``before``: the posterior of a similar one, where there is one."""


class Run(abc.ABC):
    """The buffers of one solve, which go on from where they are."""

    problem: LaplaceProblem
    # what the search has converged with, where no time was left for the posterior
    ended: StepReport | None = None

    @abc.abstractmethod
    def steps(self) -> Iterator[StepReport]:
        """Outer steps until convergence; between two of them a run may stop, and go on later."""

    @abc.abstractmethod
    def finish(self, cheap: bool = False) -> ActionPosteriorState:
        """The posterior from what has been computed; without a further sweep if ``cheap``."""

    def ahead(self, last: float) -> float:
        """Sweeps that the next step will take, as far as can be known."""
        return last


# --- policies -------------------------------------------------------------------------------------


Planned = tuple["tf.Tensor | None", "tf.Tensor | None"]
"""
Actions S [J, Q, N], None for the residual of the time of each; and S'W^+S [J, J], None where the
policy knows it no better than by the pseudo-inverse.
"""


class Policy(abc.ABC):
    """Plans actions; a small immutable object of its options."""

    @abc.abstractmethod
    def plan(
        self, problem: LaplaceProblem, precision: Precision, number: int, taken: int = 0
    ) -> Planned:
        """The next ``number`` actions at W, after those taken; fewer where there are no more."""


class Residual(Policy):
    """The residual of the linear system: conjugate gradients (Hestenes & Stiefel 1952)."""

    def plan(
        self, problem: LaplaceProblem, precision: Precision, number: int, taken: int = 0
    ) -> Planned:
        return None, None


class UnitVectors(Policy):
    """One datum (and one latent function) an action, in the order of the rows: some of the data."""

    def plan(
        self, problem: LaplaceProblem, precision: Precision, number: int, taken: int = 0
    ) -> Planned:
        Q, size = problem.operator.num_latents, problem.operator.num_data
        places = np.arange(taken, min(taken + number, Q * size))
        fixed = np.zeros((len(places), Q, size))
        fixed[np.arange(len(places)), places % Q, places // Q] = 1.0
        return tf.constant(fixed), None


class Informative(Policy):
    """
    Actions about which the data are most informative: one sweep serves them all.

    The variance that an action s takes away is large where it sees much prior variance through
    little noise: the best J are ``s = W u``, u the first generalised eigenvectors of (K W K, K).
    Here K is replaced, in this choice only, by its partial Cholesky factor, ``K ~ P P'``, so that u
    comes from an eigenproblem in P's columns. Their noise, ``s'W^+ s = u'W u``, needs no
    pseudo-inverse, which is huge wherever a class is improbable, and they lie in the range of W,
    which excludes a common shift of a softmax. The posterior uses the actions with the whole K, so
    its variances are never below those with all actions.

    :param num_pivots: of the partial Cholesky factor; fewer where there are many latent functions.
    :raises ValueError: fewer than one pivot.
    """

    max_size = 1024
    """Largest size of the eigenproblem, pivots times latent functions."""

    def __init__(self, num_pivots: int = 256) -> None:
        check_count("num_pivots", num_pivots)
        self.num_pivots = num_pivots

    def plan(
        self, problem: LaplaceProblem, precision: Precision, number: int, taken: int = 0
    ) -> Planned:
        Q = problem.operator.num_latents
        pivoted = problem.pivoted(max(1, min(self.num_pivots, self.max_size // Q)))
        P = pivoted.factor
        gram = precision.gram(P).numpy()
        most = min(taken + number, len(gram))
        # the leading ones alone: all of them take twice as long
        values, vectors = scipy.linalg.eigh(gram, subset_by_index=[len(gram) - most, len(gram) - 1])
        useful = int(np.sum(values > 100.0 * np.finfo(gram.dtype).eps * values[-1]))
        last = min(most, useful)
        count = max(0, last - taken)
        start = most - last
        values = tf.constant(values[start : start + count][::-1].copy())
        chosen = tf.reshape(vectors[:, start : start + count][:, ::-1], [Q, -1, count])
        U = tf.matmul(tf.broadcast_to(P, [Q, *P.shape[1:]]), chosen)  # [Q, N, J]
        S = tf.transpose(precision.multiply(U), [2, 0, 1])
        return S, tf.linalg.diag(values)
