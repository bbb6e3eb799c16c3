"""Policies, which choose a solver's actions s, of which it learns s'(K + W^+)."""

from __future__ import annotations

import abc
from dataclasses import dataclass

import numpy as np
import scipy.linalg
import tensorflow as tf
from gpflow.base import AnyNDArray

from .curvatures import Precision
from .problem import LaplaceProblem


@dataclass(frozen=True)
class Context:
    """The state that a policy may look at when it plans actions."""

    problem: LaplaceProblem
    precision: Precision  # W at the present latent functions
    taken: int  # actions that this run has planned before


@dataclass(frozen=True)
class Plan:
    """The next J actions."""

    fixed: tf.Tensor | None
    """[J, Q, N]; rows of those that are not known beforehand are ignored. None where none is."""

    adaptive: AnyNDArray  # [J]: whether the action is the residual of its time
    noise: tf.Tensor | None = None
    """S'W^+S [J, J], where the policy knows it better than by the pseudo-inverse."""


class Policy(abc.ABC):
    """Plans actions; a small immutable object of its options."""

    @abc.abstractmethod
    def plan(self, context: Context, number: int) -> Plan:
        """
        The next actions.

        :param context: of the solve.
        :param number: of actions, J; fewer may come where there are no more.
        """


class Residual(Policy):
    """The residual of the linear system: conjugate gradients (Hestenes & Stiefel 1952)."""

    def plan(self, context: Context, number: int) -> Plan:
        return Plan(None, np.ones(number, dtype=bool))


class UnitVectors(Policy):
    """
    One datum (and one latent function) an action: a subset of the data, at O(N) an action.

    Its order is that of the rows, or "pivoted": where most prior variance is left (pivoted
    Cholesky).
    """

    def __init__(self, order: str = "given") -> None:
        if order not in ("given", "pivoted"):
            raise ValueError(f"order must be 'given' or 'pivoted'; got {order!r}.")
        self.order = order

    def rows(self, problem: LaplaceProblem, number: int) -> AnyNDArray:
        """The first data of the order, at most [J]."""
        size = problem.operator.num_data
        if self.order == "given":
            return np.arange(min(number, size))
        flat = problem.pivoted(number).pivots.T.reshape(-1)
        unique = list(dict.fromkeys(int(i) for i in flat if i >= 0))
        rest = [i for i in range(size) if i not in set(unique)] if len(unique) < number else []
        return np.array([*unique, *rest])[:number]

    def plan(self, context: Context, number: int) -> Plan:
        Q, size = context.problem.operator.num_latents, context.problem.operator.num_data
        last = context.taken + number
        rows = self.rows(context.problem, -(-last // Q))
        pairs = [(i, q) for i in rows for q in range(Q)][context.taken : last]
        dtype = context.problem.operator.dtype.as_numpy_dtype
        fixed = np.zeros((len(pairs), Q, size), dtype=dtype)
        for j, (i, q) in enumerate(pairs):
            fixed[j, q, i] = 1.0
        return Plan(tf.constant(fixed), np.zeros(len(pairs), dtype=bool))


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
        if num_pivots < 1:
            raise ValueError(f"num_pivots must be at least 1; got {num_pivots}.")
        self.num_pivots = num_pivots

    def plan(self, context: Context, number: int) -> Plan:
        problem = context.problem
        Q = problem.operator.num_latents
        pivoted = problem.pivoted(max(1, min(self.num_pivots, self.max_size // Q)))
        P = pivoted.factor
        gram = context.precision.gram(P).numpy()
        most = min(context.taken + number, len(gram))
        # the leading ones alone: all of them take twice as long
        values, vectors = scipy.linalg.eigh(gram, subset_by_index=[len(gram) - most, len(gram) - 1])
        useful = int(np.sum(values > 100.0 * np.finfo(gram.dtype).eps * values[-1]))
        last = min(most, useful)
        count = max(0, last - context.taken)
        start = most - last
        values = tf.constant(values[start : start + count][::-1].copy())
        chosen = tf.reshape(vectors[:, start : start + count][:, ::-1], [Q, -1, count])
        U = tf.matmul(tf.broadcast_to(P, [Q, *P.shape[1:]]), chosen)  # [Q, N, J]
        S = tf.transpose(context.precision.multiply(U), [2, 0, 1])
        return Plan(S, np.zeros(count, dtype=bool), noise=tf.linalg.diag(values))
