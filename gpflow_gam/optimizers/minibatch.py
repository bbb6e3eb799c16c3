"""Training on minibatches: Adam, and natural gradients where q is held as sites."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import keras
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, RegressionData

from ..models import AdditiveSVGP
from ..variational import OptimalPrecision
from .minimizers import FitResult, StopFit, Tracker
from .natural_gradient import NaturalGradient


def fit_minibatches(
    model: AdditiveSVGP,
    data: RegressionData,
    tracker: Tracker,
    max_epochs: int,
    batch_size: int,
    learning_rate: float,
    rho: float,
    tolerance: float,
    patience: int,
    seed: int,
) -> FitResult:
    """
    Epochs of minibatch steps until the epoch's mean ELBO no longer improves.

    :param model: its ``num_data`` is the number of rows while this runs, and what it was after.
    :param data: X and Y, checked.
    :param tracker: of this fit.
    :param max_epochs: limit.
    :param batch_size: rows a batch; each epoch leaves out the rows that fill no whole batch.
    :param learning_rate: Adam's; lowered tenfold once before the fit ends, which takes the noise
        of the last steps out.
    :param rho: natural-gradient step size, with ``OptimalPrecision``.
    :param tolerance: improvement, in nats, that no longer counts.
    :param patience: epochs without one that are waited for.
    :param seed: of the order of rows.
    """
    steps = NaturalGradient(rho) if isinstance(model.variational, OptimalPrecision) else None
    variables = list(model.trainable_variables)
    adam = keras.optimizers.Adam(learning_rate)
    adam.build(variables)
    gradient_step = _gradient_step(model, adam, variables)
    X, Y = data
    rng = np.random.default_rng(seed)
    message, converged = f"epoch limit of {max_epochs} reached", False
    best, waited, lowered = -np.inf, 0, False
    num_data, model.num_data = model.num_data, int(X.shape[0])
    with tracker:
        try:
            for _ in range(max_epochs):
                values = []
                for rows in _batches(rng, int(X.shape[0]), batch_size):
                    batch = tf.gather(X, rows), tf.gather(Y, rows)
                    if steps is not None:
                        values.append(steps.step(model, batch).elbo)
                        if variables:
                            gradient_step(*batch)
                    else:
                        values.append(float(gradient_step(*batch)))
                mean = float(np.mean(values))
                if not np.isfinite(mean):
                    tracker.restore_best()
                    message = "the ELBO became NaN or infinite; lower learning_rate or rho"
                    break
                tracker.record(mean)
                waited = 0 if mean > best + tolerance else waited + 1
                best = max(best, mean)
                if waited >= patience and not lowered:
                    lowered, waited = True, 0
                    adam.learning_rate.assign(0.1 * learning_rate)
                    if steps is not None:
                        steps.rho = 0.1 * rho
                elif waited >= patience:
                    converged = True
                    message = f"no epoch of the last {patience} improved the ELBO"
                    break
        except StopFit as stop:
            converged, message = stop.converged, stop.message
        except KeyboardInterrupt:
            message = "interrupted"
        finally:
            model.num_data = num_data
        elbo = tf.function(model.elbo, autograph=False)(data)
        return tracker.result(converged, message, float(elbo + model.log_prior_density()))


def _gradient_step(
    model: AdditiveSVGP, adam: keras.optimizers.Optimizer, variables: list[tf.Variable]
) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    @tf.function(autograph=False)
    def step(X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = model.training_loss((X, Y))
        adam.apply(tape.gradient(loss, variables, unconnected_gradients="zero"), variables)
        return -loss

    compiled: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] = step
    return compiled


def _batches(rng: np.random.Generator, rows: int, size: int) -> Iterator[AnyNDArray]:
    order = rng.permutation(rows)
    for start in range(0, rows - size + 1, size):
        yield order[start : start + size]
