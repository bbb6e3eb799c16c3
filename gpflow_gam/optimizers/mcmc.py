"""Chains of hyperparameters from their posterior, by the no-U-turn sampler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray

from ..errors import NotPositiveDefinite
from ..models import AdditiveSGPR, AdditiveSVGP
from ..threads import SMALL, one_blas_thread
from .binned.solution import Chains, Solution
from .laplace import Target

Density = Callable[[AnyNDArray], tuple[AnyNDArray, AnyNDArray]]

_CHAINS, _WARMUP, _KEPT = 4, 200, 250
_ACCEPTANCE = 0.8  # aimed at
_FIRST_STEP = 0.5  # in coordinates in which the Laplace approximation is a standard normal
_DEEPEST = 6  # trees of at most 2^6 steps


def sample_chains(model: AdditiveSGPR | AdditiveSVGP, solution: Solution, seed: int) -> Chains:
    """
    Chains of the coordinates of a solution, at its sums over rows.

    The density is the evidence times that of the priors. Of Gaussian data the noise is drawn with
    the kernels' hyperparameters; of others the evidence is that of the fit's sites, which stand for
    the likelihood, at its fitted parameters.
    """
    with one_blas_thread(sum(model.inducing_variable.sizes) <= SMALL):
        target = Target(model, solution)
        number = target.number
        hyperparameters, slopes = solution.rounds.hyperparameters, np.zeros(number)
        # priors as GPflow counts them become densities of coordinates
        slopes[: len(hyperparameters)] = hyperparameters.to_uniform_sd() + (
            hyperparameters.log_normal.astype(float)
        )
        factor = target.factor()[:number, :number]
        centre = target.optimum[:number]
        fixed = target.optimum[number:]

        def density(z: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
            u = centre + factor @ z
            try:
                value, gradient = target.loss(u)
            except NotPositiveDefinite:
                value, gradient = np.inf, np.zeros(number)
            if not np.isfinite(value):
                return np.array(-np.inf), np.zeros(number)
            return np.array(slopes @ u - value), factor.T @ (slopes - gradient)

        run, begin = _sampler(density, number), np.random.default_rng(seed)
        starts = 0.5 * begin.standard_normal((_CHAINS, number))
        seeds = tf.constant([(seed, c) for c in range(_CHAINS)], tf.int32)
        chains = [run(tf.constant(start), state) for start, state in zip(starts, seeds)]
    z = np.stack([draws for draws, _ in chains])
    log_density, diverged = (np.stack(part) for part in zip(*(traced for _, traced in chains)))
    u = centre + z @ factor.T
    held = np.broadcast_to(fixed, (*u.shape[:2], len(fixed)))
    return Chains(np.concatenate([u, held], axis=2), log_density, diverged)


def _sampler(density: Density, number: int) -> Any:
    """The no-U-turn sampler with a step that is learnt (Hoffman & Gelman 2014), compiled once."""

    @tf.custom_gradient
    def log_prob(z: tf.Tensor) -> tuple[tf.Tensor, Any]:
        value, gradient = tf.numpy_function(density, [z], [tf.float64, tf.float64])
        value.set_shape([])
        gradient.set_shape([number])
        return value, lambda upstream: upstream * gradient

    step, aim = np.float64(_FIRST_STEP), np.float64(_ACCEPTANCE)
    kernel = tfp.mcmc.NoUTurnSampler(log_prob, step, max_tree_depth=_DEEPEST)
    kernel = tfp.mcmc.DualAveragingStepSizeAdaptation(kernel, int(0.8 * _WARMUP), aim)

    def trace(_: Any, results: Any) -> tuple[tf.Tensor, tf.Tensor]:
        return results.inner_results.target_log_prob, results.inner_results.has_divergence

    @tf.function(autograph=False)
    def run(start: tf.Tensor, seed: tf.Tensor) -> Any:
        return tfp.mcmc.sample_chain(
            _KEPT, start, kernel=kernel, num_burnin_steps=_WARMUP, trace_fn=trace, seed=seed
        )

    return run
