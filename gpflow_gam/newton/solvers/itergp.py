"""IterNCGP as published: Newton steps whose linear systems IterGP solves, and recycles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import tensorflow as tf

from ..curvatures import Curvature, Precision
from .actions import ActionPosteriorState
from .inner_loop import Buffers, InnerLoop, along, flat, pairs
from .policies import Context, Policy, Residual
from .problem import LaplaceProblem, noise_products
from .progress import Diverged, Run, Solver, StepReport


@dataclass(frozen=True)
class IterGP(Solver):
    """
    Algorithms 1 to 3 of Tatzel et al. (2025), without safeguards.

    Where W^+ is large and the systems are solved roughly, its Newton steps can diverge:
    :class:`ReducedNewton` does not. One iteration costs one product with K.

    :param policy: of the actions.
    :param max_steps: Newton steps.
    :param max_iterations: of the inner loop in one step.
    :param compression: R, how many actions are kept between steps; None for all.
    :param recycle: whether a step starts from the actions of those before.
    :param tolerance: of the relative change of f - m between Newton steps.
    :param inner_tolerance: of the inner loop's residual, relative to the norm of ``yhat - m``.
    :raises ValueError: a limit below 1.
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
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1; got {value}.")

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
        target = self.Kv + here.precision.solve(here.gradient[..., None])[..., 0]  # yhat - m
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

    def _creeps(self, v: tf.Tensor, Kv: tf.Tensor) -> bool:
        """
        Whether a small step comes back from far beyond the mode.

        Where a log-likelihood falls exponentially Newton's steps lead back by one, a small part of
        f, and by a factor in what is missing. Of a subset of the data the log posterior of all rows
        may be low, too, but stays where it is.
        """

        def log_posterior(v: tf.Tensor, Kv: tf.Tensor) -> float:
            return float(self.problem.log_likelihood(Kv)) - 0.5 * float(tf.reduce_sum(v * Kv))

        there, before = log_posterior(v, Kv), log_posterior(self.v, self.Kv)
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
        S, T = old.S[: old.used], old.T[: old.used]
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
        found: Curvature = self.problem.curvature(self.Kv)
        quadratic = 0.5 * float(tf.reduce_sum(self.v * self.Kv))
        away = tf.norm(found.gradient - self.v) / tf.maximum(tf.norm(found.gradient), 1e-300)
        return StepReport(
            step=self._step,
            sweeps=self.problem.operator.sweeps,
            num_actions=self.buffers.used,
            log_posterior=float(tf.reduce_sum(found.log_prob)) - quadratic,
            residual=float(away),
            converged=self._change <= self.options.tolerance,
            inner_steps=len(residuals),
            inner_residuals=tuple(residuals),
        )

    def finish(self, cheap: bool = False) -> ActionPosteriorState:
        used = self.buffers.used
        S = self.buffers.S[:used]
        if self._linearised is None:
            return ActionPosteriorState.nothing(self.v)
        precision, target = self._linearised
        return ActionPosteriorState(
            self.v,
            S,
            self.buffers.F[:used, :used],
            pairs(S, self.buffers.T[:used]),
            pairs(S, noise_products(precision, S)),
            tf.linalg.matvec(flat(S), tf.reshape(target, [-1])),
        )
