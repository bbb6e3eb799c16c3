"""Newton's method in the span of the actions taken so far, which never loses ground."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import tensorflow as tf

from ..errors import check_count
from .curvatures import Curvature, Precision
from .itergp import Actions, flat, inner_loop, pairs
from .problem import (
    ActionPosteriorState,
    Informative,
    LaplaceProblem,
    Policy,
    Run,
    Solver,
    StepReport,
    explained,
    noise_products,
)

_CHEAP_SIZE, _CHEAP_ROWS, _CHEAP_SHARE = 200, 700, 4
"""Rows of a cheap posterior of Q latent functions: size / Q, or min(N / share, rows) if larger."""
_START_SIZE, _PRECONDITIONER_SIZE = 512, 1024
"""Pivots times latent functions: of the start and of the preconditioner."""
_MANY, _FIRST, _COARSER = 10_000, 700, 4
"""
Data of which a search begins with some: these first, whose matrices are made whole, so that nothing
is compiled, and how many times more come after those that come next.
"""
_QUARTER, _SIXTEENTH = 10_000, 5_000
"""
The fewest data that come next, as a quarter of all and as less than that: sweeps of fewer take less
time than it takes to compile them for one more number of rows. A quarter's own take long enough for
something better than the first to be wanted meanwhile.
"""
_COARSE_STEPS, _COARSE_GAIN = 8, 1e-3
"""Sweeps on some of the data, and the gain in nats a datum at which they end."""
_MOST_STEPS = 100  # largest number of Newton steps in the coefficients
_UNSEEN = 1e-6  # share of the mode's weights that is out of the range of W by rounding
_COMBINED = 1e-6  # share beyond the other actions below which one is a combination of them


@dataclass(frozen=True)
class ReducedNewton(Solver):
    """
    Maximises the log posterior over ``g = T c``, ``T = K S``, exactly, then adds actions to S.

    Where Algorithm 1 of Tatzel et al. (2025) solves a rough quadratic and steps wherever that
    leads, this solves the problem itself, restricted to what products with K have been computed: a
    concave problem in as many coefficients as there are actions, so that the log posterior never
    falls. A sweep brings two actions a latent function: the gradient in function space, ``r = d log
    p / d g - K^-1 g``, and the Newton direction for a K approximated by its partial Cholesky
    factor, ``(I + W (P P' + R))^-1 r``, R diagonal. The covariance comes from actions that
    ``policy`` plans at the mode. See :doc:`/iterncgp` for the start.

    :param policy: of the actions that the covariance rests on.
    :param num_actions: how many of those, and of a latent function's actions in the search.
    :param max_steps: sweeps of the search.
    :param tolerance: in nats: a sweep that gains less ends the search.
    :param num_pivots: of the partial Cholesky factor; fewer where there are many latent functions.
    :raises ValueError: a limit below 1.
    """

    policy: Policy = field(default_factory=Informative)
    num_actions: int = 200
    max_steps: int = 50
    tolerance: float = 1e-3
    num_pivots: int = 256

    def __post_init__(self) -> None:
        for name in ("num_actions", "max_steps", "num_pivots"):
            check_count(name, getattr(self, name))

    def start(
        self, problem: LaplaceProblem, before: ActionPosteriorState | None = None
    ) -> ReducedNewtonRun:
        return ReducedNewtonRun(self, problem, None if before is None else before.weights)


@dataclass(frozen=True)
class _Reached:
    """Actions per latent function, ``S_q'T_q = I``, and their optimum."""

    S: tf.Tensor  # [Q, N, B]
    T: tf.Tensor  # K S, [Q, N, B]
    c: tf.Tensor  # [Q, B]
    value: float  # the log posterior there


class ReducedNewtonRun(Run):
    """See :class:`ReducedNewton`."""

    def __init__(
        self, options: ReducedNewton, problem: LaplaceProblem, weights: tf.Tensor | None = None
    ) -> None:
        self.options = options
        self.problem = problem
        self._warm = weights
        Q, N = problem.operator.num_latents, problem.operator.num_data
        nothing = tf.zeros([Q, N, 0], problem.operator.dtype)
        c = tf.zeros([Q, 0], problem.operator.dtype)
        self._reached = _Reached(nothing, nothing, c, -np.inf)
        self._step = 0
        self._sizes: list[int] | None = None
        self._weights: tf.Tensor | None = None
        """Weights [Q, n] that the last search on a part of the data found; None without one."""

    @property
    def S(self) -> tf.Tensor:
        """Actions [Q, N, B]."""
        return self._reached.S

    @property
    def T(self) -> tf.Tensor:
        """K S, [Q, N, B]."""
        return self._reached.T

    @property
    def g(self) -> tf.Tensor:
        """Latent functions without the mean function, K v, [Q, N]."""
        return tf.linalg.matvec(self.T, self._reached.c)

    @property
    def v(self) -> tf.Tensor:
        """Weights [Q, N]."""
        return tf.linalg.matvec(self.S, self._reached.c)

    def resumed(self, problem: LaplaceProblem, options: ReducedNewton) -> ReducedNewtonRun:
        """A run for another log-likelihood under the same K, from the span that is known."""
        other, here = ReducedNewtonRun(options, problem), self._reached
        other._reached = _Reached(here.S, here.T, here.c, -np.inf)
        other._reach(here.S, here.T)
        return other

    def begin(self, weights: tf.Tensor, products: tf.Tensor) -> None:
        """Begin, before any step, with weights [Q, N] whose product is known."""
        self._reach(*self._extended(weights[..., None], products[..., None]))

    def steps(self) -> Iterator[StepReport]:
        limit = self._step + self.options.max_steps
        if self._sizes or (self.S.shape[2] == 0 and self._warm is None):
            yield from self._coarse()
        elif self.S.shape[2] == 0:
            self._start()
        yield from self._search(limit)

    def _search(self, limit: int) -> Iterator[StepReport]:
        while self._step < limit:
            before = self._reached.value
            self._sweep(self.problem.curvature(self.g))
            gain = self._reached.value - before
            self._step += 1
            yield self.report(gain)
            if gain < self.options.tolerance:
                return

    def _pivots(self, size: int) -> int:
        return max(1, min(self.options.num_pivots, size // self.problem.operator.num_latents))

    def _coarse(self) -> Iterator[StepReport]:
        """The optimum over modes of more and more of many data, and the pivots' columns."""
        operator = self.problem.operator
        N = operator.num_data
        if N < _MANY:
            self._start()
            return
        order = np.random.default_rng(0).permutation(N)
        if self._sizes is None:
            self._sizes = [_FIRST, *_shares(N), 0]
        while (size := self._sizes[0]) > 0:
            weights = self._weights
            rows = tf.constant(order[:size])
            if weights is not None:
                weights = tf.pad(weights, [[0, 0], [0, size - weights.shape[1]]])
            options = replace(self.options, tolerance=_COARSE_GAIN * size)
            some = ReducedNewtonRun(options, self.problem.of_rows(rows), weights)
            some._start()
            for _ in some._search(_COARSE_STEPS):
                pass
            weights = some.v
            operator.sweeps += some.problem.operator.sweeps * (size / N) ** 2
            s = operator.spread(rows, weights[..., None])
            t = operator.product_of_rows(rows, weights[..., None])
            self._reach(*self._extended(s, t))
            self._weights = weights
            del self._sizes[0]
            self._step += 1
            yield self.report()
        self._start()
        self._sizes, self._weights = [], None
        self._step += 1
        yield self.report()

    def ahead(self, last: float) -> float:
        if not self._sizes:
            return max(last, 1.0)
        N = self.problem.operator.num_data
        share = self._sizes[0] / N
        some = (_COARSE_STEPS + 1) * share**2 + share
        return some or self._pivots(_PRECONDITIONER_SIZE) / N

    def _reach(self, S: tf.Tensor, T: tf.Tensor) -> None:
        """Go to the optimum in the span of more actions than before."""
        c = tf.pad(self._reached.c, [[0, 0], [0, S.shape[2] - self.S.shape[2]]])
        self._reached = _Reached(S, T, *_maximise(self.problem, T, c, self.options.tolerance))

    def _start(self) -> None:
        """The optimum over the span of the pivots' columns of K, as one action a function."""
        self.problem.pivoted(self._pivots(_PRECONDITIONER_SIZE))  # at once: factors are nested
        pivoted = self.problem.pivoted(self._pivots(_START_SIZE))
        Q, N = self.S.shape[:2]
        P = tf.broadcast_to(pivoted.factor, [Q, *pivoted.factor.shape[1:]])
        zero = tf.zeros([Q, pivoted.rank], P.dtype)
        w, _ = _maximise(self.problem, P, zero, self.options.tolerance)
        # P w = K s with s at the pivots: P's rows there are a triangle
        s = np.zeros((Q, N), dtype=P.dtype.as_numpy_dtype)
        for q in range(Q):
            k = q if len(pivoted.pivots) > 1 else 0
            rows = pivoted.pivots[k][pivoted.pivots[k] >= 0]
            triangle = tf.gather(pivoted.factor[k], rows)[:, : len(rows)]
            own = tf.linalg.triangular_solve(triangle, w[q, : len(rows), None], adjoint=True)
            s[q, rows] = own[:, 0].numpy()
        g = tf.linalg.matvec(P, w)
        S, T = self._extended(tf.constant(s)[..., None], g[..., None])
        length = tf.reduce_sum(S * g[..., None], axis=1)  # g in the basis T: S'T = I
        self._reached = _Reached(S, T, *_maximise(self.problem, T, length, self.options.tolerance))

    def _sweep(self, here: Curvature) -> None:
        """Two more actions a function."""
        r = here.gradient - self.v
        self._bound()
        s = self._preconditioned(here.precision, r)
        new = tf.stack([s, r], axis=2)
        if self._warm is not None:
            new, self._warm = tf.concat([new, self._warm[..., None]], axis=2), None
        # before the product, so that what the buffers have in error is not carried on and grown
        for _ in range(2):
            new -= tf.matmul(self.S, tf.matmul(self.T, new, transpose_a=True))
        self._reach(*self._extended(new, self.problem.operator.product(new)))

    def _preconditioned(self, precision: Precision, r: tf.Tensor) -> tf.Tensor:
        """``(I + W (P P' + R))^-1 r`` by Woodbury's identity."""
        pivoted = self.problem.pivoted(self._pivots(_PRECONDITIONER_SIZE))
        Q = r.shape[0]
        P = tf.broadcast_to(pivoted.factor, [Q, *pivoted.factor.shape[1:]])
        rest = precision.shrunk(pivoted.left)  # (I + W R)^-1 W
        r = r - rest.multiply((pivoted.left * r)[..., None])[..., 0]  # (I + W R)^-1 r
        gram = rest.gram(pivoted.factor)
        inner = tf.linalg.set_diag(gram, tf.linalg.diag_part(gram) + 1.0)
        b = tf.reshape(tf.linalg.matvec(P, r, transpose_a=True), [-1, 1])
        b = tf.reshape(tf.linalg.cholesky_solve(tf.linalg.cholesky(inner), b), [Q, -1])
        return r - rest.multiply(tf.linalg.matvec(P, b)[..., None])[..., 0]

    def _extended(self, more: tf.Tensor, products: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """S and T with more actions [Q, N, A], made orthonormal in K to those before."""
        S, T = self.S, self.T
        # s't is known to rounding in t only: where duplicated points, or smooth kernels, leave K
        # (nearly) singular, less than that is no direction at all
        rounding = 100.0 * float(np.finfo(more.dtype.as_numpy_dtype).eps)
        scale = tf.reduce_mean(self.problem.diag, axis=1)[:, None, None]
        for a in range(more.shape[2]):
            s, t = more[..., a : a + 1], products[..., a : a + 1]
            size = tf.reduce_sum(s * t, axis=1, keepdims=True)
            for _ in range(2):
                overlap = tf.matmul(S, t, transpose_a=True)
                s, t = s - tf.matmul(S, overlap), t - tf.matmul(T, overlap)
            left = tf.reduce_sum(s * t, axis=1, keepdims=True)
            length = scale * tf.reduce_sum(tf.square(s), axis=1, keepdims=True)
            good = left > rounding * (size + length)
            unit = tf.where(good, tf.math.rsqrt(tf.where(good, left, 1.0)), 0.0)
            S, T = tf.concat([S, s * unit], axis=2), tf.concat([T, t * unit], axis=2)
        return S, T

    def _bound(self) -> None:
        """Keeps the buffers within ``num_actions``: g and the latest directions stay."""
        here = self._reached
        limit, held = max(3, self.options.num_actions), int(here.c.shape[1])
        if held + 2 <= limit:
            return
        kept = max(1, limit // 2)
        latest = tf.eye(held, dtype=here.c.dtype)[:, held - kept + 1 :]
        basis = [tf.concat([c[:, None], latest], axis=1) for c in tf.unstack(here.c)]
        turn, _ = tf.linalg.qr(tf.stack(basis))  # [Q, B, kept]
        c = tf.linalg.matvec(turn, here.c, transpose_a=True)
        S, T = tf.matmul(here.S, turn), tf.matmul(here.T, turn)
        self._reached = _Reached(S, T, c, here.value)

    def report(self, gain: float = np.inf) -> StepReport:
        return StepReport(
            step=self._step,
            sweeps=self.problem.operator.sweeps,
            num_actions=int(self.S.shape[2]),
            log_posterior=self._reached.value,
            residual=self.problem.residual(self.v, self.g),
            converged=gain < self.options.tolerance,
        )

    # --- the covariance ----------------------------------------------------------------------

    def finish(self, cheap: bool = False) -> ActionPosteriorState:
        return self._of_some() if cheap else self.finish_with_products()[0]

    def finish_with_products(self) -> tuple[ActionPosteriorState, tf.Tensor]:
        """The posterior of the policy's actions, and the products K S [B, Q, N] of its actions."""
        problem, options = self.problem, self.options
        here, g = self._here()
        S, noise = options.policy.plan(problem, here.precision, options.num_actions)
        if S is None:  # residual actions: IterGP on the system at the mode
            target, zero = here.observed(g), tf.zeros_like(g)
            system = problem.operator, here.precision, target, Actions.none(g), zero, zero
            result, _, _ = inner_loop(*system, None, options.num_actions)
            return result.posterior(self.v, here.precision, target), result.T
        seen, product = self._own(here, g)
        if product is None:
            every = _products(problem, tf.concat([S, seen[None]], axis=0))
            T, product = every[:-1], every[-1]
        else:
            T = _products(problem, S)
        if noise is None:
            noise = pairs(S, noise_products(here.precision, S))
        state = self._joined(S, pairs(S, T), noise, here, g, seen, product)
        if state.actions.shape[0] > T.shape[0]:
            T = tf.concat([T, product[None]], axis=0)
        return state, T

    def _here(self) -> tuple[Curvature, tf.Tensor]:
        """The log-likelihood at the latent functions reached, and these."""
        if self.S.shape[2] == 0:
            self._start()
        g = self.g
        return self.problem.curvature(g), g

    def _of_some(self) -> ActionPosteriorState:
        """From actions that ask some of the data only: what is not asked is variance."""
        problem, operator = self.problem, self.problem.operator
        Q, N = operator.num_latents, operator.num_data
        here, g = self._here()
        number = max(min(N, -(-_CHEAP_SIZE // Q)), min(N // _CHEAP_SHARE, _CHEAP_ROWS))
        rows = tf.constant(problem.order()[:number])
        some = problem.of_rows(rows)
        precision = some.curvature(tf.gather(g, rows, axis=1)).precision
        policy = Informative(self.options.num_pivots)
        S, noise = policy.plan(some, precision, self.options.num_actions)
        assert S is not None
        assert noise is not None
        prior = pairs(S, _products(some, S))
        operator.sweeps += some.operator.sweeps * (number / N) ** 2
        wide = operator.spread(rows, tf.transpose(S, [1, 2, 0]))
        own = self._own(here, g)
        return self._joined(tf.transpose(wide, [2, 0, 1]), prior, noise, here, g, *own)

    def _own(self, here: Curvature, g: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor | None]:
        """What observations see of the mode's own weights, and K times it where that is all."""
        seen = here.precision.in_range(self.v)
        same = bool(tf.norm(self.v - seen) <= _UNSEEN * tf.norm(self.v))
        return (self.v, g) if same else (seen, None)

    def _joined(
        self,
        S: tf.Tensor,
        prior: tf.Tensor,
        noise: tf.Tensor,
        here: Curvature,
        g: tf.Tensor,
        own: tf.Tensor,
        product: tf.Tensor | None,
    ) -> ActionPosteriorState:
        """With what is seen of the mode's weights as one more action, if K times that is known."""
        factor = explained(prior + noise)
        if product is not None:
            ahead = noise_products(here.precision, own[None])[0]  # W^+ v
            alone, total = (float(tf.reduce_sum(own * t)) for t in (ahead, ahead + product))
            known = tf.linalg.matvec(flat(S), tf.reshape(ahead + product, [-1]))
            known = tf.linalg.matvec(factor, known, transpose_a=True)
            # of a combination of the others nothing is left but rounding, which would be inverted
            left = total - float(tf.reduce_sum(tf.square(known)))
            if np.isfinite(alone) and alone > 0.0 and left > _COMBINED * total:
                S = tf.concat([S, own[None]], axis=0)
                prior = _bordered(prior, tf.linalg.matvec(flat(S), tf.reshape(product, [-1])))
                noise = _bordered(noise, tf.linalg.matvec(flat(S), tf.reshape(ahead, [-1])))
                factor = explained(prior + noise)
        targets = tf.linalg.matvec(flat(S), tf.reshape(here.observed(g), [-1]))
        return ActionPosteriorState(self.v, S, factor, prior, noise, targets)


def _products(problem: LaplaceProblem, S: tf.Tensor) -> tf.Tensor:
    """K S [B, Q, N] of the covariance's actions, in the precision of X."""
    # Their G = S'KS + S'W^+S is nearly diagonal, and well-conditioned once it is scaled: single
    # precision is enough where kernels are evaluated in it anyway.
    operator = problem.operator
    product = operator.product(tf.cast(tf.transpose(S, [1, 2, 0]), operator.X.dtype))
    return tf.transpose(tf.cast(product, operator.dtype), [2, 0, 1])


def _bordered(A: tf.Tensor, last: tf.Tensor) -> tf.Tensor:
    """A [B, B] with one more row and column, ``last`` [B + 1]."""
    wide = tf.concat([A, last[:-1, None]], axis=1)
    return tf.concat([wide, last[None]], axis=0)


def _shares(N: int) -> list[int]:
    """Numbers of data that a search takes between the first and all N of them, fewest first."""
    sizes: list[int] = []
    while (size := N // _COARSER ** (len(sizes) + 1)) >= (_SIXTEENTH if sizes else _QUARTER):
        sizes.insert(0, size)
    return sizes


def _maximise(
    problem: LaplaceProblem, T: tf.Tensor, c: tf.Tensor, tolerance: float
) -> tuple[tf.Tensor, float]:
    """Damped Newton on ``log p(y | T c) - |c|^2 / 2``, concave; T is [Q, N, B], c [Q, B]."""
    here = problem.curvature(tf.linalg.matvec(T, c))
    value = float(tf.reduce_sum(here.log_prob)) - 0.5 * float(tf.reduce_sum(c * c))
    rounding = float(np.finfo(c.dtype.as_numpy_dtype).eps)
    for _ in range(_MOST_STEPS):
        slope = tf.linalg.matvec(T, here.gradient, transpose_a=True) - c
        gram = here.precision.gram(T)
        hessian = tf.linalg.set_diag(gram, tf.linalg.diag_part(gram) + 1.0)
        root = tf.debugging.check_numerics(
            tf.linalg.cholesky(hessian),
            "the reduced Newton system is not positive definite; standardise the inputs or reduce "
            "the kernel's variance",
        )
        move = tf.reshape(tf.linalg.cholesky_solve(root, tf.reshape(slope, [-1, 1])), tf.shape(c))
        decrement = float(tf.reduce_sum(slope * move))
        if decrement < 0.01 * tolerance:
            return c, value
        length = 1.0
        while True:
            trial = c + length * move
            new = float(problem.log_likelihood(tf.linalg.matvec(T, trial)))
            new -= 0.5 * float(tf.reduce_sum(trial * trial))
            if np.isfinite(new) and new >= value + 1e-4 * length * decrement:
                break
            length *= 0.5
            if not length * decrement > rounding * max(1.0, abs(value)):
                return c, value  # nothing more to be had
        c, value = trial, new
        here = problem.curvature(tf.linalg.matvec(T, c))
    return c, value
