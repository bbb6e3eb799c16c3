"""The posterior around a mode, by actions that are planned where a search has ended."""

from __future__ import annotations

import functools

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from ..curvatures import Curvature
from .actions import ActionPosteriorState, explained
from .inner_loop import Buffers, InnerLoop, flat, pairs
from .policies import Context, Informative, Policy
from .problem import LaplaceProblem, noise_products
from .progress import Look

_CHEAP_SIZE, _CHEAP_ROWS, _CHEAP_SHARE = 200, 700, 4
"""
Of a cheap posterior: data times latent functions at least; data at most, and of how many there is
one, where they are a share.
"""


class Mode:
    """
    Latent functions at a mode, or on the way to it, and the posterior that they are the centre of.

    :param problem: to be solved.
    :param v: weights, [Q, N].
    :param g: latent functions without the mean function, K v, [Q, N].
    :param policy: of the actions that the posterior rests on.
    :param num_actions: how many of those.
    :param num_pivots: of the partial Cholesky factor by which a look chooses its own.
    """

    def __init__(
        self,
        problem: LaplaceProblem,
        v: tf.Tensor,
        g: tf.Tensor,
        policy: Policy,
        num_actions: int,
        num_pivots: int,
    ) -> None:
        self._problem, self._v, self._g = problem, v, g
        self._policy, self._num_actions, self._num_pivots = policy, num_actions, num_pivots

    @functools.cached_property
    def _here(self) -> Curvature:
        return self._problem.curvature(self._g)

    def posterior(self) -> tuple[ActionPosteriorState, tf.Tensor]:
        """From the policy's actions: their state, and the products K S [B, Q, N]."""
        context = Context(self._problem, self._here.precision, 0)
        plan = self._policy.plan(context, self._num_actions)
        if plan.adaptive.any():
            return self._iterated(plan.fixed, plan.adaptive)
        assert plan.fixed is not None
        S = plan.fixed
        T = _products(self._problem, S)
        noise = plan.noise
        if noise is None:
            noise = pairs(S, noise_products(self._here.precision, S))
        state = self._joined(S, pairs(S, T), noise)
        if state.actions.shape[0] > S.shape[0]:  # the mode's own
            T = tf.concat([T, self._g[None]], axis=0)
        return state, T

    def look(self) -> Look:
        """
        From actions that ask some of the data only, as informative ones as there are of these.

        What they say of f is said without the other data, so that no more is claimed than is so.
        """
        problem, operator = self._problem, self._problem.operator
        Q, N = operator.num_latents, operator.num_data
        number = max(min(N, -(-_CHEAP_SIZE // Q)), min(N // _CHEAP_SHARE, _CHEAP_ROWS))
        rows = tf.constant(problem.order()[:number])
        some = problem.of_rows(rows)
        g = tf.gather(self._g, rows, axis=1)
        here = some.curvature(g)
        policy = Informative(self._num_pivots)
        plan = policy.plan(Context(some, here.precision, 0), self._num_actions)
        assert plan.fixed is not None
        assert plan.noise is not None
        prior = pairs(plan.fixed, _products(some, plan.fixed))
        operator.sweeps += some.operator.sweeps * (number / N) ** 2
        target = g + here.precision.solve(here.gradient[..., None])[..., 0]
        targets = tf.linalg.matvec(flat(plan.fixed), tf.reshape(target, [-1]))
        factor = explained(prior + plan.noise)
        state = ActionPosteriorState(self._v, plan.fixed, factor, prior, plan.noise, targets)
        return Look(state, rows)

    def of_some(self) -> ActionPosteriorState:
        """The posterior of a look, of all data in form, and with the mode's own weights."""
        look = self.look()
        wide = tf.transpose(look.state.actions, [1, 2, 0])
        wide = tf.transpose(self._problem.operator.spread(look.rows, wide), [2, 0, 1])
        return self._joined(wide, look.state.prior, look.state.noise)

    def _target(self) -> tf.Tensor:
        """The pseudo-observations without the mean function, [Q, N]."""
        here = self._here
        return self._g + here.precision.solve(here.gradient[..., None])[..., 0]

    def _joined(self, S: tf.Tensor, prior: tf.Tensor, noise: tf.Tensor) -> ActionPosteriorState:
        """With the mode's own weights as one more action, which costs nothing: K v is known."""
        v, g = self._v, self._g
        ahead = noise_products(self._here.precision, v[None])[0]  # W^+ v
        own = float(tf.reduce_sum(v * ahead))
        if np.isfinite(own) and own > 0.0:
            S = tf.concat([S, v[None]], axis=0)
            prior = _bordered(prior, tf.linalg.matvec(flat(S), tf.reshape(g, [-1])))
            noise = _bordered(noise, tf.linalg.matvec(flat(S), tf.reshape(ahead, [-1])))
        targets = tf.linalg.matvec(flat(S), tf.reshape(self._target(), [-1]))
        return ActionPosteriorState(v, S, explained(prior + noise), prior, noise, targets)

    def _iterated(
        self, fixed: tf.Tensor | None, adaptive: AnyNDArray
    ) -> tuple[ActionPosteriorState, tf.Tensor]:
        """Residual actions: IterGP on the system at the mode; their products with K, too."""
        Q, N = self._v.shape
        target, precision = self._target(), self._here.precision
        zero = tf.zeros([Q, N], target.dtype)
        empty = Buffers.empty(len(adaptive), Q, N, target.dtype)
        loop = InnerLoop(self._problem.operator)
        found, _, _, _ = loop(precision, target, empty, zero, zero, fixed, adaptive)
        S, T = found.S[: found.used], found.T[: found.used]
        noise = pairs(S, noise_products(precision, S))
        targets = tf.linalg.matvec(flat(S), tf.reshape(target, [-1]))
        factor = found.F[: found.used, : found.used]
        return ActionPosteriorState(self._v, S, factor, pairs(S, T), noise, targets), T


def _products(problem: LaplaceProblem, S: tf.Tensor) -> tf.Tensor:
    """
    K S [B, Q, N] of the covariance's actions, in the precision of X.

    Their G = S'KS + S'W^+S is nearly diagonal, and well-conditioned once it is scaled: single
    precision is enough where kernels are evaluated in it anyway.
    """
    return tf.transpose(problem.operator.rounded_product(tf.transpose(S, [1, 2, 0])), [2, 0, 1])


def _bordered(A: tf.Tensor, last: tf.Tensor) -> tf.Tensor:
    """A [B, B] with one more row and column, ``last`` [B + 1]."""
    wide = tf.concat([A, last[:-1, None]], axis=1)
    return tf.concat([wide, last[None]], axis=0)
