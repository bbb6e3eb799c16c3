"""The posterior around a mode, by actions that are planned where a search has ended."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from ..curvatures import Curvature, DiagonalPrecision
from .actions import ActionPosteriorState, explained
from .inner_loop import Buffers, InnerLoop, flat, pairs
from .policies import Context, Informative, Plan, Policy
from .problem import LaplaceProblem, noise_products
from .progress import Look

_CHEAP_SIZE, _CHEAP_ROWS, _CHEAP_SHARE = 200, 700, 4
"""
Of a cheap posterior: data times latent functions at least; data at most, and of how many there is
one, where they are a share.
"""


@dataclass(frozen=True)
class Bought:
    """What a covariance rests on, once its sweep is done."""

    actions: tf.Tensor
    """S, [B, Q, N]."""

    products: tf.Tensor
    """K S, [B, Q, N]."""

    prior: tf.Tensor
    """S'K S, [B, B]."""

    noise: tf.Tensor
    """S'W^+ S [B, B], of W where they were planned."""


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

    def posterior(self, bought: Bought | None = None) -> tuple[ActionPosteriorState, tf.Tensor]:
        """
        From the policy's actions: their state, and the products K S [B, Q, N].

        :param bought: on the way here. Actions whose pseudo-observations are one by one, with the
            noise of here, spare the sweep; others, whose noise may be boundless, do not.
        """
        if bought is not None and self.keeps:
            noise = pairs(bought.actions, noise_products(self._here.precision, bought.actions))
            bought = replace(bought, noise=noise)
        else:
            plan = self._plan()
            if plan.adaptive.any():
                return self._iterated(plan.fixed, plan.adaptive)
            bought = self._bought(plan)
        state, T = self._joined(bought.actions, bought.prior, bought.noise), bought.products
        if state.actions.shape[0] > T.shape[0]:  # the mode's own
            T = tf.concat([T, self._g[None]], axis=0)
        return state, T

    @property
    def keeps(self) -> bool:
        """Whether what is bought on the way serves the posterior here."""
        return isinstance(self._here.precision, DiagonalPrecision)

    def bought(self) -> Bought | None:
        """The sweep of the policy's actions; None where they are not known before it."""
        plan = self._plan()
        return None if plan.adaptive.any() else self._bought(plan)

    def _plan(self) -> Plan:
        context = Context(self._problem, self._here.precision, 0)
        return self._policy.plan(context, self._num_actions)

    def _bought(self, plan: Plan) -> Bought:
        S = plan.fixed
        assert S is not None
        T = _products(self._problem, S)
        noise = plan.noise
        if noise is None:
            noise = pairs(S, noise_products(self._here.precision, S))
        return Bought(S, T, pairs(S, T), noise)

    def falls(self, move: tf.Tensor) -> tuple[float, float]:
        """
        By how much NLL is expected to fall, a datum: if :meth:`bought` took a look's place, and by
        a move of the mean.

        New observations are taken for normal, with variance ``1 / W`` around f. K is taken for its
        partial Cholesky factor and a diagonal D, ``P P' + D``: actions of some or of all data tell
        of what P spans, through D as noise. The truth may be nearer to the mean than either
        posterior says, as what actions have not asked is variance and the mean has seen it: it is
        taken to be as far away as all data say of what P spans, and a datum alone of the rest. A
        move is taken to be towards the truth, and at right angles to what is left.

        :param move: of the latent functions, [Q, N].
        """
        W = tf.transpose(tf.linalg.diag_part(self._here.precision.blocks()))  # [Q, N]
        pivoted = self._problem.pivoted(max(1, self._num_pivots // W.shape[0]))
        P = tf.broadcast_to(pivoted.factor, [W.shape[0], *pivoted.factor.shape[1:]])
        through = W / (1.0 + W * pivoted.left)

        def spanned(P_seen: tf.Tensor, W_seen: tf.Tensor) -> tf.Tensor:
            """Variance of what P spans, by who has seen these, [Q, N]."""
            gram = tf.matmul(P_seen, W_seen[..., None] * P_seen, transpose_a=True)
            root = tf.linalg.cholesky(tf.linalg.set_diag(gram, tf.linalg.diag_part(gram) + 1.0))
            half = tf.linalg.triangular_solve(root, tf.linalg.matrix_transpose(P))
            return tf.reduce_sum(tf.square(half), axis=1)

        rows = self._some()
        by_all = spanned(P, through)
        by_some = spanned(tf.gather(P, rows, axis=1), tf.gather(through, rows, axis=1))
        # variances of an observation, as multiples of 1 / W
        after, before = (1.0 + W * (own + pivoted.left) for own in (by_all, by_some))
        truth = 1.0 + W * by_all + through * pivoted.left
        found = (
            tf.math.log(before / after) + truth * (1.0 / before - 1.0 / after),
            W * tf.square(move) / before,
        )
        covariance, mean = (0.5 * float(tf.reduce_sum(f)) / int(W.shape[1]) for f in found)
        return covariance, mean

    def _some(self) -> AnyNDArray:
        """The data that a look asks."""
        Q, N = self._v.shape
        number = max(min(N, -(-_CHEAP_SIZE // Q)), min(N // _CHEAP_SHARE, _CHEAP_ROWS))
        return self._problem.order()[:number]

    def look(self, bought: Bought | None = None) -> Look:
        """
        From actions that ask some of the data only, as informative ones as there are of these.

        What they say of f is said without the other data, so that no more is claimed than is so.

        :param bought: what there is instead, where its sweep was done on the way.
        """
        if bought is not None:
            return Look(self._joined(bought.actions, bought.prior, bought.noise), None)
        problem, operator = self._problem, self._problem.operator
        N = operator.num_data
        rows = tf.constant(self._some())
        number = int(rows.shape[0])
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

    def of_some(self, bought: Bought | None = None) -> ActionPosteriorState:
        """
        The posterior of a look, of all data in form, and with the mode's own weights.

        :param bought: as for a look.
        """
        look = self.look(bought)
        if look.rows is None:
            return look.state
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
