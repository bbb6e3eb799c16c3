"""Weights of predictions from a fit's actions, at its parameters and at others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, Module, Parameter

from .bound import combined, noisy_actions, noisy_basis
from .itergp import pairs
from .operators import KernelOperator
from .problem import ActionPosteriorState, explained


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
        result = cls._of(state.actions, state.prior, state.factor, state.targets)
        return result._replace(v=state.weights)

    @classmethod
    def under(
        cls, S: tf.Tensor, prior: tf.Tensor, noise: tf.Tensor, targets: tf.Tensor
    ) -> ActionWeights:
        """Under another kernel. Shapes: S [B, Q, N], prior and noise [B, B], targets [B]."""
        return cls._of(S, prior, explained(prior + noise), targets)

    @classmethod
    def _of(cls, S: tf.Tensor, prior: tf.Tensor, F: tf.Tensor, targets: tf.Tensor) -> ActionWeights:
        w = tf.linalg.matvec(F, tf.linalg.matvec(F, targets, transpose_a=True))
        F0 = explained(prior)
        E, E0 = tf.tensordot(F, S, [[0], [0]]), tf.tensordot(F0, S, [[0], [0]])
        return cls(tf.tensordot(w, S, 1), E, E0, F, F0, w)


class FixedActions:
    """The weights of a fit's actions and pseudo-observations at the present parameters."""

    # At the parameters of the fit they are the fit's, at others one sweep computes those of the q
    # of action_bound, whose gradients they have everywhere.

    def __init__(
        self,
        operator: KernelOperator,
        parameters: Sequence[Parameter | tf.Tensor],
        state: ActionPosteriorState,
        at: Sequence[AnyNDArray],
    ) -> None:
        self._operator = operator
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
        """S [R, Q, N] with S'W^+S = I, and S'(yhat - m) [R], as the bound takes them."""
        if tf.executing_eagerly():
            return noisy_actions(self._fit[0])
        variables = self._compiled()
        with tf.init_scope():
            basis = variables.basis_of(self._fit[0].noise)
        U, S, targets = (tf.identity(t) for t in (basis, variables.actions, variables.targets))
        return combined(U, S, targets)

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
        """The fit's, with weights and factor (not S'KS) at the present parameters."""
        fit, result = self._present()
        return replace(fit, weights=result.v, factor=result.F)

    def _present(self) -> tuple[ActionPosteriorState, ActionWeights]:
        """The fit's, and the weights at the present parameters."""
        here, fit, last = values_of(self._parameters), self._fit, self._last
        # another thread may hold a new fit meanwhile: what is kept says of which fit it is
        if last is None or last[0] is not fit or not equal_values(last[1], here):
            state, at = fit
            if equal_values(at, here):
                result = ActionWeights.of_fit(state)
            else:
                result = self._under(state.actions, state.noise, state.targets)
            last = self._last = fit, here, result
        return fit[0], last[2]

    def _under(self, S: tf.Tensor, noise: tf.Tensor, targets: tf.Tensor) -> ActionWeights:
        S = tf.convert_to_tensor(S)
        prior = pairs(S, self._product(S))
        result = ActionWeights.under(S, prior, noise, targets)
        return ActionWeights(*(tf.stop_gradient(t) for t in result))

    def _product(self, S: tf.Tensor) -> tf.Tensor:
        """K S, [B, Q, N]."""
        T = self._operator.renewed().product(tf.transpose(S, [1, 2, 0]))
        return tf.transpose(T, [2, 0, 1])

    def _differentiable(
        self, S: tf.Tensor, result: ActionWeights
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """With gradients with respect to the kernel's parameters."""
        # They come in by D = d(S'KS) alone. To first order d (F F') = -F F'D F F', which a move
        # of F by -F F'D F / 2 gives; w moves by -F F'D w, v and E as S w and S F do.
        # frozen ones, too, which a tape may have been told to watch
        kernels = self._operator.latents.kernels
        variables = [v for k in kernels for v in k.variables if v.dtype.is_floating]
        _, E, E0, F, F0, w = result

        def upstream(dv: tf.Tensor, dE: tf.Tensor, dE0: tf.Tensor) -> tf.Tensor:
            """d / d(S'KS), [B, B]."""
            along = tf.tensordot(E, dv, [[1, 2], [0, 1]])
            total = -tf.tensordot(tf.linalg.matvec(F, along), w, 0)
            for root, basis, slope in ((F, E, dE), (F0, E0, dE0)):
                inner = tf.tensordot(basis, slope, [[1, 2], [1, 2]])
                half = tf.matmul(tf.matmul(root, inner), root, transpose_b=True)
                total -= 0.5 * half
            return 0.5 * (total + tf.transpose(total))

        @tf.custom_gradient
        def follow(*values: tf.Tensor) -> tuple[tuple[tf.Tensor, ...], Callable[..., Any]]:
            def gradient(*slopes: tf.Tensor) -> list[tf.Tensor]:
                weights = upstream(*slopes)
                with tf.GradientTape(watch_accessed_variables=False) as tape:
                    tape.watch(variables)
                    value = tf.reduce_sum(weights * pairs(S, self._product(S)))
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
        shapes = ([Q, N], actions, actions, square, square, [None])
        # unconstrained: a transform compiled by XLA differs in the last digit
        self._parameters = [
            p.unconstrained_variable if isinstance(p, Parameter) else p for p in parameters
        ]
        self._at = [tf.Variable(tf.identity(p), trainable=False) for p in self._parameters]
        self._weights = [_variable(t, shape) for t, shape in zip(result, shapes)]
        self.actions = _variable(state.actions, actions)
        self.noise = _variable(state.noise, square)
        self.targets = _variable(state.targets, [None])
        self._basis: tf.Variable | None = None

    def basis_of(self, noise: tf.Tensor) -> tf.Variable:
        """Combinations of actions that the bound is of, from their noise [B, B]; kept."""
        if self._basis is None:
            self._basis = _variable(tf.constant(noisy_basis(noise)), [None, None])
        return self._basis

    def assign(self, state: ActionPosteriorState, result: ActionWeights) -> None:
        """Take other values, at the present parameters."""
        variables = [*self._at, *self._weights, self.actions, self.noise, self.targets]
        values = [*self._parameters, *result, state.actions, state.noise, state.targets]
        for variable, value in zip(variables, values):
            variable.assign(value)
        if self._basis is not None:
            self._basis.assign(noisy_basis(state.noise))

    def moved(self) -> tf.Tensor:
        """True if the parameters are others than those of the weights."""
        pairs = zip(self._parameters, self._at)
        return tf.reduce_any([tf.reduce_any(tf.not_equal(p, at)) for p, at in pairs])

    def weights(self) -> ActionWeights:
        """Their present values."""
        return ActionWeights(*(tf.convert_to_tensor(t) for t in self._weights))


def _variable(value: tf.Tensor, shape: Sequence[int | None]) -> tf.Variable:
    return tf.Variable(value, trainable=False, shape=shape)


def values_of(parameters: Sequence[Parameter | tf.Tensor]) -> list[AnyNDArray]:
    """The present values of parameters."""
    return [np.asarray(tf.convert_to_tensor(p)) for p in parameters]


def equal_values(some: Sequence[AnyNDArray], others: Sequence[AnyNDArray]) -> bool:
    """True if these are the same values."""
    return len(some) == len(others) and all(map(np.array_equal, some, others))
