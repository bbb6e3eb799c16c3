"""IterNCGP as published: Newton steps whose linear systems IterGP solves, and recycles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ..errors import check_count
from .curvatures import Precision
from .operators import KernelOperator
from .problem import (
    ActionPosteriorState,
    Diverged,
    LaplaceProblem,
    Policy,
    Residual,
    Run,
    Solver,
    StepReport,
    noise_products,
)


class Actions(NamedTuple):
    """S and ``T = K S`` [B, Q, N], and the triangle F [B, B] with ``C = S F F'S'``."""

    S: tf.Tensor
    T: tf.Tensor
    F: tf.Tensor

    @classmethod
    def none(cls, like: tf.Tensor) -> Actions:
        empty = tf.zeros([0, *like.shape], like.dtype)
        return cls(empty, empty, tf.zeros([0, 0], like.dtype))

    def more(self, s: tf.Tensor, t: tf.Tensor, column: tf.Tensor) -> Actions:
        """With one more action [Q, N], its product, and the triangle's next column [B + 1]."""
        S, T = tf.concat([self.S, s[None]], axis=0), tf.concat([self.T, t[None]], axis=0)
        F = tf.pad(self.F, [[0, 1], [0, 0]])
        return Actions(S, T, tf.concat([F, column[:, None]], axis=1))

    def posterior(
        self, v: tf.Tensor, precision: Precision, target: tf.Tensor
    ) -> ActionPosteriorState:
        """Posterior of these actions, weights v [Q, N] and pseudo-observations yhat - m [Q, N]."""
        S, T, F = self
        noise = pairs(S, noise_products(precision, S))
        seen = tf.linalg.matvec(flat(S), tf.reshape(target, [-1]))
        return ActionPosteriorState(v, S, F, pairs(S, T), noise, seen)


def flat(S: tf.Tensor) -> tf.Tensor:
    """[B, Q, N] -> [B, QN]."""
    Q, N = S.shape[1:]
    return tf.reshape(S, [-1, Q * N])


def pairs(S: tf.Tensor, T: tf.Tensor) -> tf.Tensor:
    """``S'T`` [B, B] of joint actions."""
    return tf.matmul(flat(S), flat(T), transpose_b=True)


def along(F: tf.Tensor, S: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """Coefficients [B] with ``C x = S a``."""
    inner = tf.linalg.matvec(flat(S), tf.reshape(x, [-1]))
    return tf.linalg.matvec(F, tf.linalg.matvec(F, inner, transpose_a=True))


def inner_loop(
    operator: KernelOperator,
    precision: Precision,
    target: tf.Tensor,
    actions: Actions,
    v: tf.Tensor,
    Kv: tf.Tensor,
    fixed: tf.Tensor | None,
    number: int,
    tolerance: float = 1e-5,
) -> tuple[Actions, tf.Tensor, tf.Tensor]:
    """
    Algorithm 2: the actions, v and K v after at most so many iterations.

    Each takes the next of ``fixed`` [J, Q, N], or its residual.
    """
    # Differs from the paper in five ways. (1) K v follows from T, so that an iteration costs one
    # product with K, not two. (2) Directions are orthogonalised twice: residual actions lose
    # orthogonality in some thirty steps otherwise. (3) It stops where eta is rounding, eta <=
    # 1000 eps s'Khat s, not only where it is not positive. (4) Actions have unit length: the
    # posterior does not depend on it, but what compression keeps does. (5) Its tolerance is
    # relative only: an absolute one would end the loop at once where the unit of Y is large.

    eps = np.finfo(target.dtype.as_numpy_dtype).eps
    number = number if fixed is None else len(fixed)

    def noisy(x: tf.Tensor) -> tf.Tensor:
        return precision.solve(x[..., None])[..., 0]

    def combined(a: tf.Tensor, S: tf.Tensor) -> tf.Tensor:
        """``sum_b a_b S_b``, [Q, N]."""
        return tf.reshape(tf.linalg.matvec(flat(S), a, transpose_a=True), target.shape)

    def left(v: tf.Tensor, Kv: tf.Tensor) -> tf.Tensor:
        r = target - Kv - noisy(v)
        # kernels that differ lead out of the range of W, where residuals would not be actions
        return precision.in_range(r) if fixed is None else r

    target = precision.in_range(target) if fixed is None else target
    r = left(v, Kv)
    for k in range(number):
        if not tf.norm(r) >= tolerance * tf.norm(target):
            break
        S, T, F = actions
        s = r if fixed is None else fixed[k]
        s = tf.math.divide_no_nan(s, tf.norm(s))
        t = operator.product(s[..., None])[..., 0]
        z = t + noisy(s)
        a = along(F, S, z)
        a += along(F, S, z - combined(a, T) - noisy(combined(a, S)))
        d, Kd = s - combined(a, S), t - combined(a, T)
        eta = tf.reduce_sum(d * (Kd + noisy(d)))
        if not 1e3 * eps * tf.reduce_sum(s * z) < eta < np.inf:
            break
        length = tf.reduce_sum(s * r) / eta
        v, Kv = v + length * d, Kv + length * Kd
        column = tf.concat([-a, tf.ones([1], a.dtype)], axis=0)
        actions = actions.more(s, t, column * tf.math.rsqrt(eta))
        r = left(v, Kv)
    return actions, v, Kv


@dataclass(frozen=True)
class IterGP(Solver):
    """
    Algorithms 1 to 3 of Tatzel et al. (2025), without safeguards.

    Where W^+ is large and the systems are solved roughly, its Newton steps can diverge:
    :class:`ReducedNewton` does not. One iteration costs one product with K.

    :param policy: of the actions.
    :param max_steps: Newton steps, at most.
    :param max_iterations: of the linear solver, a Newton step, at most.
    :param compression: how many directions of former steps are kept; None for all.
    :param recycle: True if a Newton step begins with the directions of the former one.
    :param tolerance: relative change of the predictor at which Newton steps end.
    :param inner_tolerance: relative residual at which the linear solver ends.
    """

    policy: Policy = field(default_factory=Residual)
    max_steps: int = 20
    max_iterations: int = 20
    compression: int | None = None
    recycle: bool = True
    tolerance: float = 1e-2
    inner_tolerance: float = 1e-5

    def __post_init__(self) -> None:
        for name in ("max_steps", "max_iterations", "compression"):
            value = getattr(self, name)
            check_count(name, value)

    def start(
        self, problem: LaplaceProblem, before: ActionPosteriorState | None = None
    ) -> IterGPRun:
        return IterGPRun(self, problem)


class IterGPRun(Run):
    """See :class:`IterGP`."""

    def __init__(self, options: IterGP, problem: LaplaceProblem) -> None:
        self.options = options
        self.problem = problem
        operator = problem.operator
        self.v = self.Kv = tf.zeros([operator.num_latents, operator.num_data], operator.dtype)
        self.actions = Actions.none(self.v)
        self._linearised: tuple[Precision, tf.Tensor] | None = None
        self._taken = 0
        self._step = 0
        self._change = np.inf

    def steps(self) -> Iterator[StepReport]:
        limit = self._step + self.options.max_steps
        while self._step < limit:
            report = self._outer()
            yield report
            if report.converged:
                return

    def _outer(self) -> StepReport:
        here = self.problem.curvature(self.Kv)
        target = here.observed(self.Kv)  # yhat - m
        known = self._recycled(here.precision, target)
        taken = self._taken if self.options.recycle else 0
        number = self.options.max_iterations
        planned, _ = self.options.policy.plan(self.problem, here.precision, number, taken)
        actions, v, new = inner_loop(
            self.problem.operator,
            here.precision,
            target,
            *known,
            planned,
            number,
            self.options.inner_tolerance,
        )
        finite = bool(tf.reduce_all(tf.math.is_finite(new))) and np.isfinite(
            float(self.problem.log_likelihood(new))
        )
        change = float(tf.norm(new - self.Kv) / tf.maximum(tf.norm(new), 1e-300))
        if not finite or (change <= self.options.tolerance and self._creeps(v, new)):
            raise Diverged(
                f"the Newton step after step {self._step} leads to no finite log-likelihood, or is "
                "small far beyond the mode, as rough steps without a safeguard may; what was there "
                "before is kept. Use solver='newton', or more inner iterations"
            )
        self._change = change
        self.actions, self.v, self.Kv = actions, v, new
        self._linearised = here.precision, target
        self._taken += len(actions.S) - len(known[0].S)
        self._step += 1
        return self._report()

    def _log_posterior(self, v: tf.Tensor, Kv: tf.Tensor) -> float:
        return float(self.problem.log_likelihood(Kv)) - 0.5 * float(tf.reduce_sum(v * Kv))

    def _creeps(self, v: tf.Tensor, Kv: tf.Tensor) -> bool:
        """True if a small step, a part of f, leads back from far beyond the mode."""
        there, before = self._log_posterior(v, Kv), self._log_posterior(self.v, self.Kv)
        short = float(self.problem.log_likelihood(tf.zeros_like(Kv))) - there
        return short > 0.0 and abs(there - before) > 0.1 * short

    def _recycled(
        self, precision: Precision, target: tf.Tensor
    ) -> tuple[Actions, tf.Tensor, tf.Tensor]:
        """Algorithm 3: the solver run again, virtually, on the actions that it has."""
        S, T, _ = self.actions
        if not self.options.recycle or S.shape[0] == 0:
            zero = tf.zeros_like(self.v)
            return Actions.none(zero), zero, zero
        M = pairs(S, T + noise_products(precision, S))
        values, vectors = tf.linalg.eigh(0.5 * (M + tf.transpose(M)))
        smallest = np.finfo(S.dtype.as_numpy_dtype).eps ** 0.75  # less is rounding, in T too
        useful = int(np.sum(values.numpy() > smallest * float(values[-1])))
        kept = min(useful, self.options.compression or useful)
        U, values = vectors[:, -kept:], values[-kept:]
        S, T = tf.tensordot(U, S, [[0], [0]]), tf.tensordot(U, T, [[0], [0]])
        F = tf.linalg.diag(tf.math.rsqrt(values))
        a = along(F, S, target)
        v, Kv = tf.tensordot(a, S, 1), tf.tensordot(a, T, 1)
        return Actions(S, T, F), v, Kv

    def _report(self) -> StepReport:
        return StepReport(
            step=self._step,
            sweeps=self.problem.operator.sweeps,
            num_actions=int(self.actions.S.shape[0]),
            log_posterior=self._log_posterior(self.v, self.Kv),
            residual=self.problem.residual(self.v, self.Kv),
            converged=self._change <= self.options.tolerance,
        )

    def finish(self, cheap: bool = False) -> ActionPosteriorState:
        if self._linearised is None:
            return ActionPosteriorState.nothing(self.v)
        return self.actions.posterior(self.v, *self._linearised)
