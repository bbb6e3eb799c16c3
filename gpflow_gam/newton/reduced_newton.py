"""Newton's method in the span of the actions taken so far, which never loses ground."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from ..errors import check_count
from .curvatures import Curvature, DiagonalPrecision, Precision
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


@dataclass(frozen=True)
class CovarianceActions:
    """Actions of a covariance whose sweep is done."""

    actions: tf.Tensor  # S, [B, Q, N]
    products: tf.Tensor  # K S, [B, Q, N]
    prior: tf.Tensor  # S'K S, [B, B]
    noise: tf.Tensor  # S'W^+ S [B, B], of W where they were planned


class Mode:
    """Latent functions v, g [Q, N] at a mode, or on the way to it, and the posterior there."""

    def __init__(
        self, problem: LaplaceProblem, v: tf.Tensor, g: tf.Tensor, options: ReducedNewton
    ) -> None:
        self._problem, self._v, self._g, self._options = problem, v, g, options

    @functools.cached_property
    def _here(self) -> Curvature:
        return self._problem.curvature(self._g)

    def posterior(
        self, early: CovarianceActions | None = None
    ) -> tuple[ActionPosteriorState, tf.Tensor]:
        """From the policy's actions: their state, and the products K S [B, Q, N]."""
        if early is not None and self.serves_early:
            noise = pairs(early.actions, noise_products(self._here.precision, early.actions))
            early = replace(early, noise=noise)
        else:
            early = self.covariance_actions()
            if early is None:
                return self._iterated()
        state, T = self._joined(early.actions, early.prior, early.noise), early.products
        if state.actions.shape[0] > T.shape[0]:  # the mode's own
            T = tf.concat([T, self._g[None]], axis=0)
        return state, T

    @property
    def serves_early(self) -> bool:
        """True if actions whose sweep was early serve the posterior here."""
        return isinstance(self._here.precision, DiagonalPrecision)

    def covariance_actions(self) -> CovarianceActions | None:
        """The sweep of the policy's actions; None where they are not known before it."""
        precision, options = self._here.precision, self._options
        S, noise = options.policy.plan(self._problem, precision, options.num_actions)
        if S is None:
            return None
        T = _products(self._problem, S)
        if noise is None:
            noise = pairs(S, noise_products(precision, S))
        return CovarianceActions(S, T, pairs(S, T), noise)

    def expected_gains(self, move: tf.Tensor) -> tuple[float, float]:
        """Expected gains of the log density per datum: by covariance_actions, by a move of g."""
        # New observations are taken for normal, with variance 1 / W around f. K is taken for its
        # partial Cholesky factor and a diagonal D, P P' + D: actions of some or of all data tell of
        # what P spans, through D as noise. The truth may be nearer to the mean than either
        # posterior says, as what actions have not asked is variance and the mean has seen it: it is
        # taken to be as far away as all data say of what P spans, and a datum alone of the rest. A
        # move is taken to be towards the truth, and at right angles to what is left.
        # Shapes: move [Q, N].
        W = tf.transpose(tf.linalg.diag_part(self._here.precision.blocks()))  # [Q, N]
        pivoted = self._problem.pivoted(max(1, self._options.num_pivots // W.shape[0]))
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
        result = (
            tf.math.log(before / after) + truth * (1.0 / before - 1.0 / after),
            W * tf.square(move) / before,
        )
        covariance, mean = (0.5 * float(tf.reduce_sum(f)) / int(W.shape[1]) for f in result)
        return covariance, mean

    def _some(self) -> AnyNDArray:
        """The data that a cheap posterior asks."""
        Q, N = self._v.shape
        number = max(min(N, -(-_CHEAP_SIZE // Q)), min(N // _CHEAP_SHARE, _CHEAP_ROWS))
        return self._problem.order()[:number]

    def of_some(self, early: CovarianceActions | None = None) -> ActionPosteriorState:
        """From actions that ask some of the data only: what is not asked is variance."""
        if early is not None:
            return self._joined(early.actions, early.prior, early.noise)
        problem, operator = self._problem, self._problem.operator
        rows = tf.constant(self._some())
        some = problem.of_rows(rows)
        here = some.curvature(tf.gather(self._g, rows, axis=1))
        policy, number = Informative(self._options.num_pivots), self._options.num_actions
        S, noise = policy.plan(some, here.precision, number)
        assert S is not None
        assert noise is not None
        prior = pairs(S, _products(some, S))
        operator.sweeps += some.operator.sweeps * (some.operator.num_data / operator.num_data) ** 2
        wide = operator.spread(rows, tf.transpose(S, [1, 2, 0]))
        return self._joined(tf.transpose(wide, [2, 0, 1]), prior, noise)

    def _joined(self, S: tf.Tensor, prior: tf.Tensor, noise: tf.Tensor) -> ActionPosteriorState:
        """With the mode's own weights as one more action, which costs nothing: K v is known."""
        v, g = self._v, self._g
        ahead = noise_products(self._here.precision, v[None])[0]  # W^+ v
        own, total = (float(tf.reduce_sum(v * t)) for t in (ahead, ahead + g))
        factor = explained(prior + noise)
        known = tf.linalg.matvec(flat(S), tf.reshape(ahead + g, [-1]))
        known = tf.linalg.matvec(factor, known, transpose_a=True)
        # of a combination of the others nothing is left but rounding, which would be inverted
        left = total - float(tf.reduce_sum(tf.square(known)))
        if np.isfinite(own) and own > 0.0 and left > _COMBINED * total:
            S = tf.concat([S, v[None]], axis=0)
            prior = _bordered(prior, tf.linalg.matvec(flat(S), tf.reshape(g, [-1])))
            noise = _bordered(noise, tf.linalg.matvec(flat(S), tf.reshape(ahead, [-1])))
            factor = explained(prior + noise)
        targets = tf.linalg.matvec(flat(S), tf.reshape(self._here.observed(self._g), [-1]))
        return ActionPosteriorState(v, S, factor, prior, noise, targets)

    def _iterated(self) -> tuple[ActionPosteriorState, tf.Tensor]:
        """Residual actions: IterGP on the system at the mode; their products with K, too."""
        target, precision = self._here.observed(self._g), self._here.precision
        zero = tf.zeros_like(target)
        none, operator = Actions.none(zero), self._problem.operator
        result, _, _, _ = inner_loop(
            operator, precision, target, none, zero, zero, None, self._options.num_actions
        )
        return result.posterior(self._v, precision, target), result.T


def _products(problem: LaplaceProblem, S: tf.Tensor) -> tf.Tensor:
    """K S [B, Q, N] of the covariance's actions, in the precision of X."""
    # Their G = S'KS + S'W^+S is nearly diagonal, and well-conditioned once it is scaled: single
    # precision is enough where kernels are evaluated in it anyway.
    operator = problem.operator
    product = operator.product(tf.cast(tf.transpose(S, [1, 2, 0]), operator.X.dtype))
    return tf.transpose(tf.cast(product, operator.dtype), [2, 0, 1])


_COMBINED = 1e-6  # share beyond the other actions below which one is a combination of them


def _bordered(A: tf.Tensor, last: tf.Tensor) -> tf.Tensor:
    """A [B, B] with one more row and column, ``last`` [B + 1]."""
    wide = tf.concat([A, last[:-1, None]], axis=1)
    return tf.concat([wide, last[None]], axis=0)


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
_ENTRIES = 100
"""Right-hand sides whose products take as long as the entries of K that a sweep makes."""


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
    ``policy`` plans at the mode. See :doc:`/iterncgp` for the start, and for what is early.

    :param policy: of the actions that the covariance rests on.
    :param num_actions: how many of those, and of a latent function's actions in the search.
    :param max_steps: sweeps of the search.
    :param tolerance: in nats: a sweep that gains less ends the search.
    :param num_pivots: of the partial Cholesky factor; fewer where there are many latent functions.
    :param early_covariance: whether the covariance's sweep may be done before the search ends.
    :raises ValueError: a limit below 1.
    """

    policy: Policy = field(default_factory=Informative)
    num_actions: int = 200
    max_steps: int = 50
    tolerance: float = 1e-3
    num_pivots: int = 256
    early_covariance: bool = True

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
        self._last, self._gain = np.inf, np.inf
        self._move: tf.Tensor | None = None
        self._may_be_early = options.early_covariance and problem.operator.num_data >= _MANY
        self._early: CovarianceActions | None = None

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
            inner, last, gain = 0, self._last, self._gain
            slowing = min(1.0, gain / last) if 0.0 < last < np.inf else 1.0
            if self._may_be_early and self._covariance_is_due(slowing):
                self._may_be_early, self._early = False, self._mode().covariance_actions()
            else:
                before, g = self._reached.value, self.g
                inner = self._sweep(self.problem.curvature(g))
                self._last, self._gain = gain, self._reached.value - before
                self._move = self.g - g
            self._step += 1
            yield self.report(inner, self._gain)
            if self._gain < self.options.tolerance:
                return

    def _covariance_is_due(self, slowing: float) -> bool:
        """True if the covariance's sweep is worth more, for its time, than the search's next."""
        if self._move is None:
            return False
        Q = self.problem.operator.num_latents
        covariance, mean = self._mode().expected_gains(self._move)
        cost = (_ENTRIES + Q * self.options.num_actions) / (_ENTRIES + 2 * Q)
        return covariance > mean * slowing * cost

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
            options = replace(self.options, tolerance=_COARSE_GAIN * size, early_covariance=False)
            some = ReducedNewtonRun(options, self.problem.of_rows(rows), weights)
            some._start()
            for _ in some._search(_COARSE_STEPS):
                pass
            weights = some.v
            operator.sweeps += some.problem.operator.sweeps * (size / N) ** 2
            s = operator.spread(rows, weights[..., None])
            t = operator.product_of_rows(rows, weights[..., None])
            inner = self._reach(*self._extended(s, t))
            self._weights = weights
            del self._sizes[0]
            self._step += 1
            yield self.report(inner, np.inf)
        inner = self._start()
        self._sizes, self._weights = [], None
        self._step += 1
        yield self.report(inner, np.inf)

    def ahead(self, last: float) -> float:
        if not self._sizes:
            return max(last, 1.0)
        N = self.problem.operator.num_data
        share = self._sizes[0] / N
        some = (_COARSE_STEPS + 1) * share**2 + share
        return some or self._pivots(_PRECONDITIONER_SIZE) / N

    def _reach(self, S: tf.Tensor, T: tf.Tensor) -> int:
        """Go to the optimum in the span of more actions than before; inner Newton steps."""
        c = tf.pad(self._reached.c, [[0, 0], [0, S.shape[2] - self.S.shape[2]]])
        c, value, inner = _maximise(self.problem, T, c, self.options.tolerance)
        self._reached = _Reached(S, T, c, value)
        return inner

    def _start(self) -> int:
        """The optimum over the span of the pivots' columns of K, as one action a function."""
        self.problem.pivoted(self._pivots(_PRECONDITIONER_SIZE))  # at once: factors are nested
        pivoted = self.problem.pivoted(self._pivots(_START_SIZE))
        Q, N = self.S.shape[:2]
        P = tf.broadcast_to(pivoted.factor, [Q, *pivoted.factor.shape[1:]])
        zero = tf.zeros([Q, pivoted.rank], P.dtype)
        w, _, inner = _maximise(self.problem, P, zero, self.options.tolerance)
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
        c, value, more = _maximise(self.problem, T, length, self.options.tolerance)
        self._reached = _Reached(S, T, c, value)
        return inner + more

    def _sweep(self, here: Curvature) -> int:
        """Two more actions a function; inner Newton steps."""
        r = here.gradient - self.v
        self._bound()
        s = self._preconditioned(here.precision, r)
        new = tf.stack([s, r], axis=2)
        if self._warm is not None:
            new, self._warm = tf.concat([new, self._warm[..., None]], axis=2), None
        # before the product, so that what the buffers have in error is not carried on and grown
        for _ in range(2):
            new -= tf.matmul(self.S, tf.matmul(self.T, new, transpose_a=True))
        return self._reach(*self._extended(new, self.problem.operator.product(new)))

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
        scale = tf.reduce_mean(self.problem.operator.diag(), axis=1)[:, None, None]
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

    def report(self, inner: int = 0, gain: float = np.inf) -> StepReport:
        """A report of where the run is."""
        return StepReport(
            step=self._step,
            sweeps=self.problem.operator.sweeps,
            num_actions=int(self.S.shape[2]),
            log_posterior=self._reached.value,
            residual=self.problem.residual(self.v, self.g),
            converged=gain < self.options.tolerance,
            inner_steps=inner,
        )

    # --- the covariance ----------------------------------------------------------------------

    def _mode(self) -> Mode:
        if self.S.shape[2] == 0:
            self._start()
        return Mode(self.problem, self.v, self.g, self.options)

    def finish(self, cheap: bool = False) -> ActionPosteriorState:
        if cheap and self.closing > 0.0:
            return self._mode().of_some(self._early)
        return self.finish_with_products()[0]

    @property
    def closing(self) -> float:
        return 0.0 if self._early is not None and self._mode().serves_early else 1.0

    def finish_with_products(self) -> tuple[ActionPosteriorState, tf.Tensor]:
        """The posterior, and the products K S [B, Q, N] of its actions."""
        return self._mode().posterior(self._early)


def _shares(N: int) -> list[int]:
    """Numbers of data that a search takes between the first and all N of them, fewest first."""
    sizes: list[int] = []
    while (size := N // _COARSER ** (len(sizes) + 1)) >= (_SIXTEENTH if sizes else _QUARTER):
        sizes.insert(0, size)
    return sizes


def _maximise(
    problem: LaplaceProblem, T: tf.Tensor, c: tf.Tensor, tolerance: float
) -> tuple[tf.Tensor, float, int]:
    """Damped Newton on ``log p(y | T c) - |c|^2 / 2``, concave; T is [Q, N, B], c [Q, B]."""
    here = problem.curvature(tf.linalg.matvec(T, c))
    value = float(tf.reduce_sum(here.log_prob)) - 0.5 * float(tf.reduce_sum(c * c))
    for step in range(_MOST_STEPS):
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
            return c, value, step
        length = 1.0
        while True:
            trial = c + length * move
            new = float(problem.log_likelihood(tf.linalg.matvec(T, trial)))
            new -= 0.5 * float(tf.reduce_sum(trial * trial))
            if np.isfinite(new) and new >= value + 1e-4 * length * decrement:
                break
            length *= 0.5
            if length < 1e-8:  # rounding: nothing more to be had
                return c, value, step
        c, value = trial, new
        here = problem.curvature(tf.linalg.matvec(T, c))
    return c, value, _MOST_STEPS
