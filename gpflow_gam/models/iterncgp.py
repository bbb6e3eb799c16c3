"""Non-conjugate GPs by iterated, computation-aware Newton steps."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes, inherit_check_shapes
from gpflow.base import AnyNDArray, InputData, RegressionData, TensorType
from gpflow.kernels import Kernel
from gpflow.likelihoods import Bernoulli as GPflowBernoulli
from gpflow.likelihoods import Likelihood
from gpflow.likelihoods.utils import inv_probit
from gpflow.mean_functions import MeanFunction
from gpflow.models.training_mixins import InternalDataTrainingLossMixin
from gpflow.posteriors import PrecomputeCacheType

from ..autograph import as_written
from ..likelihoods import Bernoulli, checked_data, checked_inputs
from ..newton import action_bound, held_actions
from ..newton.operators import KernelOperator, KernelProduct, LatentKernels
from ..newton.solvers import (
    ActionPosteriorState,
    LaplaceProblem,
    Policy,
    Solver,
    explained,
    named_solver,
)
from ..newton.solvers.itergp import pairs
from ..newton.solvers.progress import Run
from ..posteriors import ActionPosterior
from .base import AdditiveModel
from .probabilities import class_probabilities

Weights = tuple[tf.Tensor, tf.Tensor, tf.Tensor]

_RUNS: weakref.WeakKeyDictionary[IterNCGP, tuple[AnyNDArray, Run]] = weakref.WeakKeyDictionary()
"""What solvers have in hand, and at which parameters."""
_PRODUCTS: weakref.WeakKeyDictionary[IterNCGP, tuple[LatentKernels, list[KernelProduct]]] = (
    weakref.WeakKeyDictionary()
)
"""Compiled functions, which could not be copied with a model."""


class IterNCGP(AdditiveModel, InternalDataTrainingLossMixin):
    """
    A GP with any log-concave likelihood, by matrix-free Newton steps (Tatzel et al. 2025).

    The posterior is Laplace's (Rasmussen & Williams 2006, ch. 3) as far as it was computed:
    whatever was not shows as variance. Kernel matrices are never held; time goes into *sweeps*,
    each one pass over the N^2 kernel entries that serves as many right-hand sides as there are.
    :func:`~gpflow_gam.optimizers.fit` finds the mode, and learns hyperparameters.

    Any GPflow kernel will do. Under an :class:`~gpflow_gam.kernels.AdditiveKernel` the posterior
    has its components. A ``gpflow.likelihoods.Bernoulli`` is used without the squeeze of its probit
    into [0.001, 0.999], under which it is not log-concave.

    :param data: X [N, D] and Y [N, K].
    :param kernel: of one output, used for every output of the likelihood; or a multi-output kernel
        (shared, separate, linear coregionalisation).
    :param likelihood: log-concave in its latent functions.
    :param mean_function: m(x); zero by default.
    :param solver: "newton" (:class:`~gpflow_gam.newton.solvers.ReducedNewton`, monotone; the
        default), "itergp" (:class:`~gpflow_gam.newton.solvers.IterGP`, the published algorithm), or
        such an object with options of its own, which then takes the place of those below.
    :param policy: which actions the covariance rests on (and, under "itergp", the mean).
    :param max_newton_steps: outer steps of one fit.
    :param max_solver_steps: inner iterations of a step, under "itergp"; else how many actions the
        covariance rests on.
    :param compression: R, the most actions that are held between steps; None for all.
    :param tolerance: "newton": a sweep that gains less, in nats, is the last; "itergp": a relative
        change of f that is.
    :param seed: of draws, where predictions need some.
    :raises TypeError: an argument of the wrong kind.
    :raises ValueError: bad data or options, with what to change.
    """

    def __init__(
        self,
        data: RegressionData,
        kernel: Kernel,
        likelihood: Likelihood,
        *,
        mean_function: MeanFunction | None = None,
        solver: str | Solver = "newton",
        policy: Policy | None = None,
        max_newton_steps: int | None = None,
        max_solver_steps: int | None = None,
        compression: int | None = None,
        tolerance: float | None = None,
        seed: int = 0,
    ) -> None:
        if not isinstance(likelihood, Likelihood):
            raise TypeError(
                f"likelihood must be a gpflow likelihood; got {type(likelihood).__name__}."
            )
        likelihood = _smooth(likelihood)
        outputs = likelihood.latent_dim
        if outputs is None:
            outputs = _columns(data)
        latents = LatentKernels.of(kernel, outputs)
        X, Y = checked_data(data, latents.kernels[0], likelihood, outputs)
        if X.dtype not in (tf.float32, tf.float64):
            raise ValueError(f"X must be float32 or float64; got {X.dtype.name}.")
        if X.shape[0] == 0:
            raise ValueError("X has no rows; there is nothing to fit.")
        super().__init__(kernel, likelihood, mean_function, outputs)
        self.data = X, Y
        self.solver = named_solver(
            solver, policy, max_newton_steps, max_solver_steps, compression, tolerance
        )
        self.seed = int(seed)
        self._state: ActionPosteriorState | None = None
        self._fitted_at = np.zeros(0)
        self._weights_at: tuple[AnyNDArray, Weights] | None = None

    @property
    def latents(self) -> LatentKernels:
        """The independent latent functions, and how they mix into outputs."""
        return LatentKernels.of(self.kernel, self.num_latent_gps)

    def operator(self) -> KernelOperator:
        """The prior covariance at the data; its products are compiled once a model."""
        if self not in _PRODUCTS:
            latents = self.latents
            _PRODUCTS[self] = latents, [KernelProduct(k) for k in latents.kernels]
        latents, products = _PRODUCTS[self]
        return KernelOperator(latents, self.data[0], products)

    def _checked_inputs(self, Xnew: InputData) -> tf.Tensor:
        return checked_inputs(Xnew, self.latents.kernels[0], "Xnew")

    # --- the mode ------------------------------------------------------------------------------

    def problem(self) -> LaplaceProblem:
        """What a solver works on, at the present parameters."""
        return LaplaceProblem(self.operator(), self.likelihood, self.data[1], self.mean_function)

    def run(self, weights: tf.Tensor | None = None) -> Run:
        """
        The solver's run at the present parameters: the one in hand, or a new one.

        :param weights: v [Q, N] to start a new one from.
        """
        here = self._parameters()
        if self in _RUNS and np.array_equal(_RUNS[self][0], here):
            return _RUNS[self][1]
        run = self.solver.start(self.problem(), weights)
        _RUNS[self] = here, run
        return run

    def accept(self, state: ActionPosteriorState) -> None:
        """Make ``state``, computed at the present parameters, the model's posterior."""
        self._state = state
        self._fitted_at = self._parameters()
        self._weights_at = None

    @property
    def state(self) -> ActionPosteriorState:
        """
        What the last fit computed.

        :raises ValueError: there was none.
        """
        if self._state is None:
            raise ValueError(
                "the model is not fitted; call fit(model), of gpflow_gam.optimizers, first."
            )
        return self._state

    def _parameters(self) -> AnyNDArray:
        parts = [np.asarray(p).ravel() for p in self.parameters]
        return np.concatenate([np.zeros(0), *parts])

    # --- hyperparameters -----------------------------------------------------------------------

    @inherit_check_shapes
    @as_written
    def maximum_log_likelihood_objective(self) -> tf.Tensor:
        return self.elbo()

    @check_shapes("return: []")
    @as_written
    def elbo(self, rows: TensorType | None = None) -> tf.Tensor:
        """
        A lower bound of the evidence, differentiable in all parameters (Wenger et al. 2024).

        q is that of the actions and pseudo-observations of the last fit, which are held, under the
        present kernel: any such q gives a bound. One sweep, and one more for its gradient.

        :param rows: indices of a minibatch for the expected log-likelihood; all by default.
        :raises ValueError: the model is not fitted.
        """
        return action_bound(self.problem(), *held_actions(self.state), rows)

    # --- prediction ----------------------------------------------------------------------------

    def _weights(self) -> Weights:
        """v, E and E0 as :class:`~gpflow_gam.posteriors.ActionPosterior` takes them."""
        with tf.init_scope():  # values, also where a prediction is being compiled
            here = self._parameters()
            if self._weights_at is None or not np.array_equal(self._weights_at[0], here):
                self._weights_at = here, self._present_weights(here)
        return self._weights_at[1]

    def _present_weights(self, here: AnyNDArray) -> Weights:
        state = self.state
        S, factor, prior, v = state.actions, state.factor, state.prior, state.weights
        if not np.array_equal(self._fitted_at, here):  # the same actions under another kernel
            T = tf.transpose(self.operator().product(tf.transpose(S, [1, 2, 0])), [2, 0, 1])
            prior = pairs(S, T)
            factor = explained(prior + state.noise)
            w = tf.linalg.matvec(factor, tf.linalg.matvec(factor, state.targets, transpose_a=True))
            v = tf.tensordot(w, S, 1)
        E = tf.tensordot(factor, S, [[0], [0]])
        return v, E, tf.tensordot(explained(prior), S, [[0], [0]])

    def posterior(
        self, precompute_cache: PrecomputeCacheType | str | None = PrecomputeCacheType.TENSOR
    ) -> ActionPosterior:
        _ = self.state  # raises before a half-made posterior would
        return ActionPosterior(
            self.latents,
            self.data[0],
            self._weights,
            self.mean_function,
            precompute_cache=precompute_cache,
        )

    @check_shapes("Xnew: [N, D]", "return: [N, C]")
    def predict_probabilities(
        self, Xnew: TensorType, method: str = "probit", num_samples: int = 1000
    ) -> tf.Tensor:
        """
        Class probabilities at new points, for a softmax or Bernoulli likelihood.

        :param Xnew: points [N, D].
        :param method: "mean" (of the mode alone), "probit" (MacKay's approximation, which the
            paper takes), "projected" (that, without the variance of a common shift of all classes,
            to which a softmax is blind) or "monte carlo" (over the outputs' joint posterior).
        :param num_samples: of Monte Carlo.
        :return: [N, C]; C = 2 for Bernoulli.
        :raises ValueError: another method or likelihood.
        """
        X = self._checked_inputs(Xnew)
        return class_probabilities(
            self.likelihood, self.posterior(), X, method, num_samples, self.seed
        )


def _columns(data: RegressionData) -> int:
    if isinstance(data, (tuple, list)) and len(data) == 2 and np.ndim(data[1]) == 2:
        return int(np.shape(data[1])[1])
    return 1  # checked_data says what is wrong


def _smooth(likelihood: Likelihood) -> Likelihood:
    """Ours in the place of GPflow's Bernoulli, whose squeezed probit is not log-concave."""
    if type(likelihood) is GPflowBernoulli:
        links: dict[Callable[..., tf.Tensor], str] = {inv_probit: "probit", tf.sigmoid: "logit"}
        link = links.get(likelihood.invlink)
        if link is not None:
            return Bernoulli(link)
    return likelihood
