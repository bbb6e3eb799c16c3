"""What a fit's actions say: weights of predictions, the evidence bound, and data left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray, Module, Parameter
from gpflow.likelihoods import Likelihood, Softmax
from gpflow.mean_functions import MeanFunction

from ..likelihoods import Bernoulli, Weighted
from ..likelihoods.base import unwrapped
from ..likelihoods.predictive import at_nodes, is_joint, predictive_log_density
from ..storage import blocks
from .itergp import pairs
from .operators import KernelOperator
from .problem import (
    ActionPosteriorState,
    LaplaceProblem,
    explained,
    mean_at_data,
    noise_products,
    seen,
)
from .solvers import ExpectedProblem, normal_points


class ActionWeights(NamedTuple):
    """The posterior ``m + k v``, ``k - k E E'k`` of latent functions, k = k(., X)."""

    v: tf.Tensor  # [Q, N]
    E: tf.Tensor  # S F, [B, Q, N]
    E0: tf.Tensor  # the same without noise, ``E0 E0' = S (S'KS)^-1 S'``
    F: tf.Tensor  # [B, B], ``F F' = (S'(K + W^+)S)^-1``
    F0: tf.Tensor  # [B, B], ``F0 F0' = (S'KS)^-1``
    w: tf.Tensor  # ``F F' S'(yhat - m)``, [B]

    @classmethod
    def of_fit(cls, state: ActionPosteriorState) -> ActionWeights:
        """At the fit's own parameters, where v need not be in the span of the actions."""
        result = cls.of(state.actions, state.prior, state.factor, state.targets)
        return result._replace(v=state.weights)

    @classmethod
    def of(cls, S: tf.Tensor, prior: tf.Tensor, F: tf.Tensor, targets: tf.Tensor) -> ActionWeights:
        """Shapes: S [B, Q, N], prior (S'KS) and F [B, B], targets S'(yhat - m) [B]."""
        w = tf.linalg.matvec(F, tf.linalg.matvec(F, targets, transpose_a=True))
        F0 = explained(prior)
        E, E0 = tf.tensordot(F, S, [[0], [0]]), tf.tensordot(F0, S, [[0], [0]])
        return cls(tf.tensordot(w, S, 1), E, E0, F, F0, w)


class FixedActions:
    """The weights of a fit's actions and pseudo-observations at the present parameters."""

    # At the parameters of the fit they are the fit's, at others one sweep computes those of the q
    # of action_bound, whose gradients they have everywhere. What is held is yhat, not yhat - m:
    # targets of states are S'yhat here.

    def __init__(
        self,
        operator: KernelOperator,
        mean_function: MeanFunction,
        parameters: Sequence[Parameter | tf.Tensor],
        state: ActionPosteriorState,
        at: Sequence[AnyNDArray],
    ) -> None:
        self._operator, self._mean_function = operator, mean_function
        self._parameters = list(parameters)
        self._variables: _Variables | None = None
        self.hold(state, at)

    def hold(self, state: ActionPosteriorState, at: Sequence[AnyNDArray]) -> None:
        """Take the state of another fit, and the values of the parameters where it ended."""
        self._fit = state, at
        self._last: tuple[object, list[AnyNDArray], ActionWeights] | None = None
        if self._variables is not None:
            self._variables.assign(*self._present())

    def __call__(self) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """v [Q, N], E [B, Q, N] and E0 [B, Q, N]."""
        if tf.executing_eagerly():
            with tf.init_scope():  # no tape follows
                fit, present = self._present()
            return self._differentiable(fit.actions, present)
        variables = self._compiled()
        result = tf.cond(
            variables.moved(),
            lambda: self._under(variables.actions, variables.noise, variables.targets),
            variables.weights,
        )
        return self._differentiable(tf.convert_to_tensor(variables.actions), result)

    def noisy(self) -> tuple[tf.Tensor, tf.Tensor]:
        """S [B, Q, N] with S'W^+S = I, and S'yhat [B], as the bound takes them."""
        if tf.executing_eagerly():
            return noisy_actions(self._fit[0])
        variables = self._compiled()
        parts = variables.basis, variables.actions, variables.targets
        return combined(*(tf.identity(t) for t in parts))

    def _compiled(self) -> _Variables:
        """The variables that functions read which are being compiled."""
        if self._variables is None:
            with tf.init_scope():
                self._variables = _Variables(self._parameters, *self._present())
        return self._variables

    def captured(self) -> dict[str, Any]:
        """The variables that compiled functions read, by name, for a SavedModel of them."""
        return {} if self._variables is None else {"fit": self._variables}

    def state(self) -> ActionPosteriorState:
        """The fit's, with weights, factor and targets (not S'KS) at the present parameters."""
        fit, result = self._present()
        return replace(fit, weights=result.v, factor=result.F).raised(-self._mean())

    def _present(self) -> tuple[ActionPosteriorState, ActionWeights]:
        """The fit's, and the weights at the present parameters."""
        here, fit, last = values_of(self._parameters), self._fit, self._last
        # another thread may hold a new fit meanwhile: what is kept says of which fit it is
        if last is None or last[0] is not fit or not equal_values(last[1], here):
            state, at = fit
            if equal_values(at, here):
                result = ActionWeights.of_fit(state.raised(-self._mean()))
            else:
                result = self._under(state.actions, state.noise, state.targets)
            last = self._last = fit, here, result
        return fit[0], last[2]

    def _under(self, S: tf.Tensor, noise: tf.Tensor, targets: tf.Tensor) -> ActionWeights:
        S = tf.convert_to_tensor(S)
        prior = pairs(S, self._product(S))
        targets = targets - seen(S, self._mean())
        result = ActionWeights.of(S, prior, explained(prior + noise), targets)
        return ActionWeights(*(tf.stop_gradient(t) for t in result))

    def _mean(self) -> tf.Tensor:
        """m(X), [N, Q]."""
        return mean_at_data(self._mean_function, self._operator)

    def _product(self, S: tf.Tensor) -> tf.Tensor:
        """K S, [B, Q, N]."""
        T = self._operator.renewed().product(tf.transpose(S, [1, 2, 0]))
        return tf.transpose(T, [2, 0, 1])

    def _differentiable(
        self, S: tf.Tensor, result: ActionWeights
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """With gradients with respect to the parameters of kernel and mean function."""
        # They come in by D = d(S'KS) and S'dm alone. To first order d (F F') = -F F'D F F', which a
        # move of F by -F F'D F / 2 gives; w moves by -F F'(D w + S'dm), v and E as S w and S F do.
        # frozen ones, too, which a tape may have been told to watch
        known = *self._operator.latents.variables, *self._mean_function.variables
        variables = [v for v in known if v.dtype.is_floating]
        _, E, E0, F, F0, w = result

        def upstream(dv: tf.Tensor, dE: tf.Tensor, dE0: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            """d / d(S'KS), [B, B], and d / d(S'm), [B]."""
            along = tf.tensordot(E, dv, [[1, 2], [0, 1]])
            lower = -tf.linalg.matvec(F, along)
            total = tf.tensordot(lower, w, 0)
            for root, basis, slope in ((F, E, dE), (F0, E0, dE0)):
                inner = tf.tensordot(basis, slope, [[1, 2], [1, 2]])
                half = tf.matmul(tf.matmul(root, inner), root, transpose_b=True)
                total -= 0.5 * half
            return 0.5 * (total + tf.transpose(total)), lower

        @tf.custom_gradient
        def follow(*values: tf.Tensor) -> tuple[tuple[tf.Tensor, ...], Callable[..., Any]]:
            def gradient(*slopes: tf.Tensor) -> list[tf.Tensor]:
                weights, lower = upstream(*slopes)
                with tf.GradientTape(watch_accessed_variables=False) as tape:
                    tape.watch(variables)
                    value = tf.reduce_sum(weights * pairs(S, self._product(S)))
                    value += tf.reduce_sum(lower * seen(S, self._mean()))
                moves = tape.gradient(value, variables, unconnected_gradients="zero")
                return list(moves)

            return tuple(tf.identity(t) for t in result[:3]), gradient

        return follow(*variables) if variables else result[:3]


class _Variables(Module):
    """Variables that compiled functions read, of shapes that the next fit may change."""

    def __init__(
        self,
        parameters: Sequence[Parameter | tf.Tensor],
        state: ActionPosteriorState,
        result: ActionWeights,
    ) -> None:
        super().__init__()
        Q, N = state.weights.shape
        actions, square = [None, Q, N], [None, None]
        shapes = [Q, N], actions, actions, square, square, [None], actions, square, [None], square
        # unconstrained: a transform compiled by XLA differs in the last digit
        self._parameters = [
            p.unconstrained_variable if isinstance(p, Parameter) else p for p in parameters
        ]
        self._at = [tf.Variable(tf.identity(p), trainable=False) for p in self._parameters]
        self._held = [
            tf.Variable(value, trainable=False, shape=shape)
            for value, shape in zip(self._values(state, result), shapes)
        ]
        *self._weights, self.actions, self.noise, self.targets, self.basis = self._held

    @staticmethod
    def _values(state: ActionPosteriorState, result: ActionWeights) -> list[tf.Tensor]:
        basis = noisy_basis(state.noise)
        return [*result, state.actions, state.noise, state.targets, basis]

    def assign(self, state: ActionPosteriorState, result: ActionWeights) -> None:
        """Take other values, at the present parameters."""
        values = [*self._parameters, *self._values(state, result)]
        for variable, value in zip([*self._at, *self._held], values):
            variable.assign(value)

    def moved(self) -> tf.Tensor:
        """True if the parameters are others than those of the weights."""
        pairs = zip(self._parameters, self._at)
        return tf.reduce_any([tf.reduce_any(tf.not_equal(p, at)) for p, at in pairs])

    def weights(self) -> ActionWeights:
        return ActionWeights(*(tf.convert_to_tensor(t) for t in self._weights))


def values_of(parameters: Sequence[Parameter | tf.Tensor]) -> list[AnyNDArray]:
    """The present values of parameters."""
    return [np.asarray(tf.convert_to_tensor(p)) for p in parameters]


def equal_values(some: Sequence[AnyNDArray], others: Sequence[AnyNDArray]) -> bool:
    """True if these are the same values."""
    return len(some) == len(others) and all(map(np.array_equal, some, others))


# --- the evidence bound ---------------------------------------------------------------------------


_SMALLEST = 1e-9  # smallest noise of a combination of actions that counts, relative to the largest


def noisy_basis(noise: tf.Tensor) -> tf.Tensor:
    """Combinations U [B, B] of actions with ``U'S'W^+S U = I``, or zero, from noise [B, B]."""
    return explained(noise, _SMALLEST)


def noisy_actions(state: ActionPosteriorState) -> tuple[tf.Tensor, tf.Tensor]:
    """Actions S [B, Q, N] with S'W^+S = I, or zero, and S'yhat [B], of what a fit holds."""
    return combined(noisy_basis(state.noise), state.actions, state.targets)


def combined(U: tf.Tensor, actions: tf.Tensor, targets: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Combinations U [B, B] of actions [B, Q, N], and of their targets [B]."""
    return tf.tensordot(U, actions, [[0], [0]]), tf.linalg.matvec(U, targets, transpose_a=True)


def action_bound(
    problem: LaplaceProblem, S: tf.Tensor, targets: tf.Tensor, excess: tf.Tensor | float = 0.0
) -> tuple[tf.Tensor, tf.Tensor]:
    """``sum_n E_q[log p(y_n | f_n)] - KL``, q(g) = N(K S w, K - K S G^-1 S'K); m + K S w [N, Q]."""
    # Of S [R, Q, N] with S'W^+S = I and targets S'yhat [R]: G = I + S'KS, w = G^-1 S'(yhat - m) and
    # KL = 1/2 [w'S'KS w + log|G| - tr(G^-1 S'KS)] (Wenger et al. 2024; also for W^+ a
    # pseudo-inverse of blocks, as q depends on it through S'W^+S only: its precision is
    # K^-1 + S (S'W^+S)^-1 S'). Excess [R, R]: of S'W^+S over I, to first order.
    operator, X, Y = problem.operator, problem.X, problem.Y
    T = operator.product(tf.transpose(S, [1, 2, 0]))  # [Q, N, R]
    Q = S.shape[1]
    flat = [-1, Q * S.shape[2]]  # R may be known when it runs only
    H = tf.matmul(tf.reshape(S, flat), tf.reshape(tf.transpose(T, [2, 0, 1]), flat), False, True)
    H = 0.5 * (H + tf.transpose(H))
    one = tf.eye(tf.shape(H)[0], dtype=H.dtype)
    root = tf.debugging.check_numerics(
        tf.linalg.cholesky(H + one + excess),
        "G = I + S'KS is not positive definite: the kernel's parameters overflowed, or its matrix "
        "is not positive semi-definite",
    )
    w = tf.linalg.cholesky_solve(root, (targets - seen(S, problem.mean))[:, None])[:, 0]
    inner = tf.linalg.cholesky_solve(root, H)
    log_det = 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(root)))
    log_det -= tf.linalg.trace(one * excess)
    kl = 0.5 * (tf.tensordot(w, tf.linalg.matvec(H, w), 1) + log_det - tf.linalg.trace(inner))

    mean = problem.predictor(tf.linalg.matvec(T, w))
    h = tf.linalg.triangular_solve(root, tf.transpose(T, [0, 2, 1]))
    joint = is_joint(problem.likelihood, Q)
    cov = problem.output_covariance(tf.transpose(h, [0, 2, 1]), joint)
    prior = problem.prior_variances()
    if joint:
        size = tf.reduce_mean(prior, axis=0)
        expected = _joint_expectations(problem.likelihood, X, mean, cov, size, Y)
    else:
        # quadrature takes its root, which has no slope at zero
        least = 1e-12 * tf.reduce_mean(prior, axis=1) + np.finfo(X.dtype.as_numpy_dtype).tiny
        m, var = (tf.cast(t, X.dtype) for t in (mean, tf.maximum(cov, least)))
        expected = problem.likelihood.variational_expectations(X, m, var, Y)
    return tf.reduce_sum(tf.cast(expected, operator.dtype)) - kl, mean


def slope_of_sites(problem: LaplaceProblem, S: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """The bound's slope [N, Q] in the latent functions, q's mean, at which W and yhat are taken."""
    excess = tf.zeros([S.shape[0], S.shape[0]], S.dtype)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch([excess, targets])
        bound, mean = action_bound(problem, S, targets, excess)
    to_noise, to_targets = tape.gradient(bound, [excess, targets])
    S, along = tf.transpose(S, [1, 2, 0]), tf.tensordot(to_targets, S, 1)
    weights = tf.tensordot(S, to_noise, 1)

    def through(F: tf.Tensor) -> tf.Tensor:
        here = problem.expansion(F)
        noise = tf.reduce_sum(weights * here.precision.solve(S), axis=[0, 2])
        return noise + tf.reduce_sum(along * here.observed(tf.transpose(F)), axis=0)

    h = float(np.finfo(problem.X.dtype.as_numpy_dtype).eps) ** (1.0 / 3.0)
    steps = h * tf.eye(S.shape[0], dtype=S.dtype)
    slope = tf.stack([through(mean + e) - through(mean - e) for e in steps], axis=1) / (2.0 * h)
    return tf.where(tf.math.is_finite(slope), slope, 0.0)


def _joint_expectations(
    likelihood: Likelihood,
    X: tf.Tensor,
    mean: tf.Tensor,
    cov: tf.Tensor,
    size: tf.Tensor,
    Y: tf.Tensor,
) -> tf.Tensor:
    """``E log p(y_n | F_n)`` [N], F_n ~ N(mean, cov), by fixed points."""
    # GPflow's are of independent outputs, which those of q are not, and of points drawn anew at
    # each call, whose difference L-BFGS takes for one of parameters.
    # Shapes: mean [N, L], cov [N, L, L], size [N].
    # kernels are evaluated in X's precision, and cov is a difference of such numbers
    share = max(1e-9, 100.0 * float(np.finfo(X.dtype.as_numpy_dtype).eps))
    jitter = share * size + np.finfo(float).tiny
    cov = cov + tf.eye(cov.shape[-1], dtype=cov.dtype) * jitter[:, None, None]

    def log_prob(x: tf.Tensor, F: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return likelihood.log_prob(x, tf.cast(F, x.dtype), y)

    nodes = normal_points(int(cov.shape[-1]))
    return tf.reduce_mean(at_nodes(log_prob, mean, cov, X, Y, nodes=nodes), axis=0)


# --- data left out --------------------------------------------------------------------------------


_KEPT = 1e-6
"""Share of a left-out datum's noise that its actions keep: one that asks it alone asks nothing."""
_AT_ONCE = 2**23  # numbers of a block of data
SHARES = (1.0, 0.5, 0.25, 0.125, 0.0625, 0.0)
"""Shares of the variance that may count; all of it, the posterior's own, comes first."""
_MOST_ROWS = 1000  # largest number of rows that are left out


@dataclass(frozen=True)
class LeftOutRows:
    """Log-probabilities of left-out rows, by the share of the variance that counts."""

    log_probabilities: AnyNDArray  # of the responses, by share in the order of SHARES, [S, M]
    weights: AnyNDArray  # weights of the rows, [M], which add up to one

    def means(self) -> dict[float, float]:
        """Over the rows, by share."""
        return dict(zip(SHARES, (self.log_probabilities @ self.weights).tolist()))

    def share(self) -> float:
        """The share that predicts best, where it does so by more than a standard error; else 1."""
        means = self.log_probabilities @ self.weights
        best = int(np.argmax(means))
        gain = self.log_probabilities[best] - self.log_probabilities[0]
        error = np.sqrt(np.sum(np.square(self.weights * (gain - means[best] + means[0]))))
        return SHARES[best if means[best] - means[0] > error else 0]


def has_classes(likelihood: Likelihood) -> bool:
    """True if the responses are classes that are not ordered."""
    return isinstance(unwrapped(likelihood), (Bernoulli, Softmax))


def left_out_rows(
    problem: LaplaceProblem, state: ActionPosteriorState, averaged: bool
) -> LeftOutRows:
    """Log-probabilities of what was observed, each row left out, by share of the variance."""
    N = problem.operator.num_data
    weights = np.ones(N)
    if isinstance(problem.likelihood, Weighted):
        weights = np.asarray(problem.likelihood.weights(problem.X), dtype=float)
    rows = np.random.default_rng(0).permutation(np.flatnonzero(weights > 0.0))[:_MOST_ROWS]
    dtype = problem.X.dtype
    mean, cov = (tf.constant(t, dtype) for t in left_out(problem, state, rows, averaged))
    likelihood = unwrapped(problem.likelihood)
    X, Y = (tf.gather(t, rows) for t in (problem.X, problem.Y))
    cov = tf.linalg.set_diag(cov, tf.maximum(tf.linalg.diag_part(cov), tf.zeros([], cov.dtype)))
    logs = [predictive_log_density(likelihood, X, mean, share * cov, Y) for share in SHARES]
    result = np.maximum(logs, np.log(np.finfo(float).tiny))
    return LeftOutRows(result, weights[rows] / np.sum(weights[rows]))


@check_shapes("rows: [M]", "return[0]: [M, L]", "return[1]: [M, L, L]")
def left_out(
    problem: LaplaceProblem, state: ActionPosteriorState, rows: AnyNDArray, averaged: bool
) -> tuple[AnyNDArray, AnyNDArray]:
    """Moments of the outputs at some of the data, each from all the others."""
    # Gaussian pseudo-observations of the others stay what they are (the cavity of expectation
    # propagation). With datum n gone, its rows s_n of the actions are zeros, and of G = S'(K +
    # W^+)S goes what they put in,
    #     G_n = G - s_n'T_n - T_n's_n + s_n'k(x_n, x_n)s_n - s_n'W_n^+ s_n,  T = K S,
    # which Woodbury's identity inverts. Where actions ask less than everything this takes away no
    # more than they had asked of the datum. Of K it takes the rows: M / N of a sweep. Returns means
    # [M, L] and covariances [M, L, L].
    operator = problem.operator
    S, v = state.actions, state.weights
    wide = tf.concat([tf.transpose(S, [1, 2, 0]), v[..., None]], axis=2)
    T = operator.product_at_rows(tf.constant(rows), wide)  # [Q, M, B + 1]
    g, T = T[..., -1], T[..., :-1]
    some = problem.of_rows(tf.constant(rows))
    if averaged:
        some = ExpectedProblem(some, state, tf.transpose(T, [2, 0, 1]))
    here = some.curvature(g)
    s = tf.gather(S, rows, axis=2)  # [B, Q, M]
    noise = noise_products(here.precision, s)
    seen = tf.reduce_sum(s * g, axis=1) + tf.reduce_sum(noise * here.gradient, axis=1)  # [B, M]
    Q = operator.num_latents
    prior = some.prior_variances().numpy().T  # [M, Q]

    F = state.factor.numpy()
    own, through, loud = (np.asarray(tf.transpose(t, order)) @ F for t, order in
                          ((s, [2, 1, 0]), (T, [1, 0, 2]), (noise, [2, 1, 0])))  # fmt: skip
    target = (state.targets.numpy()[:, None] - seen.numpy()).T @ F  # [M, R]
    mean, cov = np.zeros((len(rows), Q)), np.zeros((len(rows), Q, Q))
    each = max(1, _AT_ONCE // max(1, 4 * Q * (Q + F.shape[1])))
    for at in blocks(len(rows), each):
        mean[at], cov[at] = _without(own[at], through[at], loud[at], target[at], prior[at])
    return mean + some.mean.numpy(), cov


def _without(
    own: AnyNDArray, through: AnyNDArray, loud: AnyNDArray, target: AnyNDArray, prior: AnyNDArray
) -> tuple[AnyNDArray, AnyNDArray]:
    """Latent functions at the data without them, [M, Q] and [M, Q, Q]; ``F F' = G^-1``."""
    h = through - prior[..., None] * own  # k(x_n, X) S without the datum
    L = np.concatenate([own, through], axis=1)  # G_n = G + L'R
    R = np.concatenate([-h - (1.0 - _KEPT) * loud, -own], axis=1)
    inner = np.eye(L.shape[1]) + R @ L.swapaxes(1, 2)
    right = np.concatenate([R @ h.swapaxes(1, 2), R @ target[..., None]], axis=2)
    result = h @ L.swapaxes(1, 2) @ np.linalg.solve(inner, right)
    cov = result[..., :-1] - h @ h.swapaxes(1, 2)
    cov += prior[:, :, None] * np.eye(prior.shape[1])
    mean = (h @ target[..., None])[..., 0] - result[..., -1]
    return mean, 0.5 * (cov + cov.swapaxes(1, 2))
