"""IterNCGP as published: Newton steps whose linear systems IterGP solves, and recycles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from ..errors import check_count
from .curvatures import Precision
from .operators import KernelOperator
from .problem import (
    ActionPosteriorState,
    Context,
    Diverged,
    LaplaceProblem,
    Policy,
    Residual,
    Run,
    Solver,
    StepReport,
    noise_products,
)


@dataclass
class Buffers:
    """S and ``T = K S`` [B, Q, N] and the triangle with ``C = S F F'S'``; zeros beyond ``used``."""

    S: tf.Tensor
    T: tf.Tensor
    F: tf.Tensor
    used: int

    @classmethod
    def empty(cls, capacity: int, Q: int, N: int, dtype: tf.DType) -> Buffers:
        """Room for so many actions, which never grows."""
        shape = [capacity, Q, N]
        return cls(
            tf.zeros(shape, dtype), tf.zeros(shape, dtype), tf.zeros([capacity] * 2, dtype), 0
        )

    def with_room(self, capacity: int) -> Buffers:
        """These actions in buffers of another size, at least of ``used``."""
        spare = max(capacity, self.used) - self.used
        rows = [[0, spare], [0, 0], [0, 0]]
        S, T, F = self.taken()
        return Buffers(tf.pad(S, rows), tf.pad(T, rows), tf.pad(F, [[0, spare]] * 2), self.used)

    def taken(self) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """S, T and the triangle without the room that is left."""
        n = self.used
        return self.S[:n], self.T[:n], self.F[:n, :n]

    def posterior(
        self, v: tf.Tensor, precision: Precision, target: tf.Tensor
    ) -> ActionPosteriorState:
        """Posterior of these actions, weights v [Q, N] and pseudo-observations yhat - m [Q, N]."""
        S, T, F = self.taken()
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


class InnerLoop:
    """Algorithm 2, over buffers of fixed size."""

    # Differs from the paper in five ways. (1) K v follows from T, so that an iteration costs one
    # product with K, not two. (2) Directions are orthogonalised twice: residual actions lose
    # orthogonality in some thirty steps otherwise. (3) It stops where eta is rounding, eta <=
    # 1000 eps s'Khat s, not only where it is not positive. (4) Actions have unit length: the
    # posterior does not depend on it, but what compression keeps does. (5) Its tolerance is
    # relative only: an absolute one would end the loop at once where the unit of Y is large.

    def __init__(self, operator: KernelOperator, tolerance: float = 1e-5) -> None:
        self.operator = operator
        self.tolerance = tolerance

    def __call__(
        self,
        precision: Precision,
        target: tf.Tensor,
        buffers: Buffers,
        v: tf.Tensor,
        Kv: tf.Tensor,
        fixed: tf.Tensor | None,
        adaptive: np.ndarray[Any, Any],
    ) -> tuple[Buffers, tf.Tensor, tf.Tensor, list[float]]:
        """The buffers, v, K v and the residuals' norms after as many iterations as were needed."""
        number = min(len(adaptive), buffers.S.shape[0] - buffers.used)
        if number == 0:
            return buffers, v, Kv, []
        S, T, F = (tf.Variable(t, trainable=False) for t in (buffers.S, buffers.T, buffers.F))
        eps = np.finfo(target.dtype.as_numpy_dtype).eps
        least, used, norms = self.tolerance * tf.norm(target), buffers.used, list[float]()

        def noisy(x: tf.Tensor) -> tf.Tensor:
            return precision.solve(x[..., None])[..., 0]

        def combined(a: tf.Tensor, S: tf.Tensor) -> tf.Tensor:
            """``sum_b a_b S_b``, [Q, N]."""
            return tf.reshape(tf.linalg.matvec(flat(S), a, transpose_a=True), target.shape)

        r = target - Kv - noisy(v)
        while len(norms) < number and tf.norm(r) >= least:
            k = len(norms)
            s = r if fixed is None or adaptive[k] else fixed[min(k, fixed.shape[0] - 1)]
            s = tf.math.divide_no_nan(s, tf.norm(s))
            t = self.operator.product(s[..., None])[..., 0]
            z = t + noisy(s)
            a = along(F, S, z)
            a += along(F, S, z - combined(a, T) - noisy(combined(a, S)))
            d, Kd = s - combined(a, S), t - combined(a, T)
            eta = tf.reduce_sum(d * (Kd + noisy(d)))
            if not 1e3 * eps * tf.reduce_sum(s * z) < eta < np.inf:
                break
            length = tf.reduce_sum(s * r) / eta
            v, Kv = v + length * d, Kv + length * Kd
            S[used].assign(s)
            T[used].assign(t)
            here = tf.one_hot(used, F.shape[0], dtype=F.dtype)
            F[:, used].assign((here - a) * tf.math.rsqrt(eta))
            r, used = target - Kv - noisy(v), used + 1
            norms.append(float(tf.norm(r)))
        return Buffers(S.value(), T.value(), F.value(), used), v, Kv, norms


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
        Q, N = operator.num_latents, operator.num_data
        dtype = operator.dtype
        self.buffers = Buffers.empty(0, Q, N, dtype)
        self.v = tf.zeros([Q, N], dtype)
        self.Kv = tf.zeros([Q, N], dtype)
        self._linearised: tuple[Precision, tf.Tensor] | None = None
        self._taken = 0
        self._step = 0
        self._change = np.inf
        self._inner = InnerLoop(operator, options.inner_tolerance)

    def steps(self) -> Iterator[StepReport]:
        limit = self._step + self.options.max_steps
        self._make_room()
        while self._step < limit:
            report = self._outer()
            yield report
            if report.converged:
                return

    def _make_room(self) -> None:
        """Buffers for all the steps of one call: they do not grow between them."""
        options, (_, Q, N) = self.options, self.buffers.S.shape
        each = min(options.max_iterations, Q * N)
        if not options.recycle:
            capacity = each
        elif options.compression is None:
            capacity = min(self.buffers.used + each * options.max_steps, Q * N + each)
        else:
            capacity = options.compression + each
        self.buffers = self.buffers.with_room(capacity)

    def _outer(self) -> StepReport:
        here = self.problem.curvature(self.Kv)
        target = here.observed(self.Kv)  # yhat - m
        buffers, v, Kv = self._recycled(here.precision, target)
        taken = self._taken if self.options.recycle else 0
        context = Context(self.problem, here.precision, taken)
        plan = self.options.policy.plan(context, self.options.max_iterations)
        buffers, v, new, residuals = self._inner(
            here.precision, target, buffers, v, Kv, plan.fixed, plan.adaptive
        )
        if not bool(tf.reduce_all(tf.math.is_finite(new))) or not np.isfinite(
            float(self.problem.log_likelihood(new))
        ):
            raise Diverged(
                f"the Newton step after step {self._step} leads to no finite log-likelihood, as "
                "rough steps without a safeguard may; what was there before is kept. Use "
                "solver='newton', or more inner iterations"
            )
        change = float(tf.norm(new - self.Kv) / tf.maximum(tf.norm(new), 1e-300))
        if change <= self.options.tolerance and self._creeps(v, new):
            raise Diverged(
                f"after step {self._step} the Newton steps are small where the log posterior is "
                "below that of the prior mean and still rises by much, as rough steps without a "
                "safeguard may. Use solver='newton', or more inner iterations"
            )
        self._change = change
        self.buffers, self.v, self.Kv = buffers, v, new
        self._linearised = here.precision, target
        self._taken += len(residuals)
        self._step += 1
        return self._report(residuals)

    def _log_posterior(self, v: tf.Tensor, Kv: tf.Tensor) -> float:
        return float(self.problem.log_likelihood(Kv)) - 0.5 * float(tf.reduce_sum(v * Kv))

    def _creeps(self, v: tf.Tensor, Kv: tf.Tensor) -> bool:
        """True if a small step, a part of f, leads back from far beyond the mode."""
        there, before = self._log_posterior(v, Kv), self._log_posterior(self.v, self.Kv)
        short = float(self.problem.log_likelihood(tf.zeros_like(Kv))) - there
        return short > 0.0 and abs(there - before) > 0.1 * short

    def _recycled(
        self, precision: Precision, target: tf.Tensor
    ) -> tuple[Buffers, tf.Tensor, tf.Tensor]:
        """Algorithm 3: the solver run again, virtually, on the actions that it has."""
        old = self.buffers
        if not self.options.recycle or old.used == 0:
            capacity, Q, N = old.S.shape
            zero = tf.zeros([Q, N], old.S.dtype)
            return Buffers.empty(capacity, Q, N, old.S.dtype), zero, zero
        S, T, _ = old.taken()
        M = pairs(S, T + noise_products(precision, S))
        values, vectors = tf.linalg.eigh(0.5 * (M + tf.transpose(M)))
        smallest = np.finfo(S.dtype.as_numpy_dtype).eps ** 0.75  # less is rounding, in T too
        useful = int(np.sum(values.numpy() > smallest * float(values[-1])))
        room = old.S.shape[0] - min(self.options.max_iterations, S.shape[1] * S.shape[2])
        kept = min(useful, self.options.compression or useful, room)
        U, values = vectors[:, -kept:], values[-kept:]
        S, T = tf.tensordot(U, S, [[0], [0]]), tf.tensordot(U, T, [[0], [0]])
        F = tf.linalg.diag(tf.math.rsqrt(values))
        a = along(F, S, target)
        v, Kv = tf.tensordot(a, S, 1), tf.tensordot(a, T, 1)
        return Buffers(S, T, F, kept).with_room(old.S.shape[0]), v, Kv

    def _report(self, residuals: list[float]) -> StepReport:
        return StepReport(
            step=self._step,
            sweeps=self.problem.operator.sweeps,
            num_actions=self.buffers.used,
            log_posterior=self._log_posterior(self.v, self.Kv),
            residual=self.problem.residual(self.v, self.Kv),
            converged=self._change <= self.options.tolerance,
            inner_steps=len(residuals),
            inner_residuals=tuple(residuals),
        )

    def finish(self, cheap: bool = False) -> ActionPosteriorState:
        if self._linearised is None:
            return ActionPosteriorState.nothing(self.v)
        return self.buffers.posterior(self.v, *self._linearised)
