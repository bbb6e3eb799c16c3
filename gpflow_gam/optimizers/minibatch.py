"""Training on minibatches: Adam, and natural gradients where q is held as sites."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, RegressionData

from ..models import AdditiveSVGP
from ..variational import OptimalPrecision
from .minimizers import FitResult, StopFit, Traced, Tracker, fit_lbfgs
from .minimizers.lbfgs import forget_traced
from .sites import NaturalGradient, fit_sites

_FALLEN = 5.0
"""Standard errors by which negative weights may make the ELBO fall, or they count no longer."""
POLISH_ROWS = 200_000
"""Rows up to which all data are used for some steps after the last epoch."""
_POLISH_ROUNDS, _POLISH_STEPS = 10, 200
"""Rounds of sites and hyperparameters, and iterations in all, on all data."""
_SEEN = 1.0
"""Nats: where the noise of epochs is more, an end without a trend shows no optimum."""


class Trend(NamedTuple):
    """The gain of some epochs on as many before, beside the noise of the two means."""

    gain: float
    """Difference of the means, in nats."""

    error: float
    """Its standard error, in nats."""


def trend(values: Sequence[float], epochs: int) -> Trend | None:
    """
    The last ``epochs`` values against those before.

    The noise of a value is taken from differences of successive ones, to which a steady rise adds
    little (von Neumann 1941); a spread around the mean would hide the rise in itself.
    """
    if len(values) < 2 * epochs:
        return None
    last = np.asarray(values[-2 * epochs :])
    steps = np.diff(last)
    noise = np.std(steps) / np.sqrt(2.0)
    return Trend(float(last[epochs:].mean() - last[:epochs].mean()), noise * np.sqrt(2.0 / epochs))


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
    Epochs of minibatch steps until their ELBO has no trend, then some steps on all rows.

    An epoch's mean ELBO is noisy. So the last epochs are compared with those before, and count as
    better where they are by more than the standard error of that comparison. Where they are not,
    the learning rate is lowered tenfold, and with it the noise; the second time the epochs end.
    Where sites have negative weights, these count from the first time on, unless the ELBO falls by
    that, and the rate is lowered the next. Up to :data:`POLISH_ROWS` rows the rest, which noise
    hid, is gained on all data. Beyond, such an end counts as converged only where the noise was
    below one nat.

    A time budget that runs out, or an interruption, leaves the parameters at the end of the best
    epoch (those of now where there is none), or on all data at the best.
    """
    rows = int(data[0].shape[0])
    num_data, model.num_data = model.num_data, rows
    with tracker:
        settled = False
        try:
            end = _epochs(
                model, data, tracker, max_epochs, batch_size, learning_rate, rho, tolerance,
                patience, seed,
            )  # fmt: skip
            converged, message, settled = end is not None and end.error <= _SEEN, "", True
            if end is None:
                settled, message = False, f"epoch limit of {max_epochs} reached"
            else:
                message = (
                    f"minibatches ended without a trend (the last {patience} epochs gained "
                    f"{end.gain:.2g} nats on those before, with a standard error of "
                    f"{end.error:.2g})"
                )
        except StopFit as stop:
            converged, message = stop.converged, stop.message
            tracker.restore_best()
        except KeyboardInterrupt:
            converged, message = False, tracker.interrupted()
            tracker.restore_best()
        finally:
            model.num_data = num_data
        if settled and rows <= POLISH_ROWS:
            polished = _polish(model, data, tracker, tolerance)
            return dataclasses.replace(
                polished, message=f"{message}; then, on all rows: {polished.message}"
            )
        if settled:
            message += f"; no steps on all rows, of which there are {rows}, more than {POLISH_ROWS}"
            if not converged:
                message += ": improvements below that noise were not looked for"
        elbo = Traced(lambda *rows: model.elbo(rows))(*data)
        return tracker.result(converged, message, float(elbo + model.log_prior_density()))


def _epochs(
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
) -> Trend | None:
    """The trend at the end, None at the limit of epochs."""
    steps = NaturalGradient(rho) if isinstance(model.variational, OptimalPrecision) else None
    variables = list(model.trainable_variables)
    adam = keras.optimizers.Adam(learning_rate)
    adam.build(variables)
    gradient_step = _gradient_step(model, adam, variables)
    X, Y = data
    rng = np.random.default_rng(seed)
    means: list[float] = []
    lowered, unsigned, least = False, True, -np.inf
    for _ in range(max_epochs):
        values, sizes, negative = [], [], 0
        for rows in _batches(rng, int(X.shape[0]), batch_size):
            batch = tf.gather(X, rows), tf.gather(Y, rows)
            sizes.append(len(rows))
            if steps is not None:
                seen = steps.step(model, batch)
                values.append(seen.elbo)
                negative += seen.num_negative
                if variables:
                    gradient_step(*batch)
            else:
                values.append(float(gradient_step(*batch)))
            tracker.check()
        mean = float(np.average(values, weights=sizes))
        if not np.isfinite(mean):
            raise StopFit("the ELBO became NaN or infinite; lower learning_rate or rho")
        tracker.record(mean)
        if mean < least and steps is not None and steps.signed:
            steps.signed, means = False, []
        means.append(mean)
        now = trend(means, patience)
        if now is None or now.gain > max(tolerance, now.error):
            continue
        if negative and unsigned and steps is not None:
            steps.signed, unsigned, means = True, False, []
            least = mean - max(1.0, _FALLEN * now.error)
            continue
        if lowered:
            return now
        lowered, means = True, []
        adam.learning_rate.assign(0.1 * learning_rate)
        if steps is not None:
            steps.rho = 0.1 * rho
    return None


def _polish(
    model: AdditiveSVGP, data: RegressionData, tracker: Tracker, tolerance: float
) -> FitResult:
    """Some steps on all rows, which never lose; until the tracker's time is up."""
    limit = len(tracker.history) + _POLISH_STEPS
    if isinstance(model.variational, OptimalPrecision):
        return fit_sites(model, data, tracker, limit, tolerance, _POLISH_ROUNDS)
    return fit_lbfgs(model, data, tracker, _POLISH_STEPS, tolerance)


def _gradient_step(
    model: AdditiveSVGP, adam: keras.optimizers.Optimizer, variables: list[tf.Variable]
) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    @tf.function(autograph=False, reduce_retracing=True)
    def step(X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = model.training_loss((X, Y))
        adam.apply(tape.gradient(loss, variables, unconnected_gradients="zero"), variables)
        return -loss

    traced = 0

    def compiled(X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        nonlocal traced
        loss = step(X, Y)
        if step.experimental_get_tracing_count() > traced:
            traced = step.experimental_get_tracing_count()
            forget_traced(step)
        return loss

    return compiled


def _batches(rng: np.random.Generator, rows: int, size: int) -> Iterator[AnyNDArray]:
    """Every row once, in batches that differ by one row at most: to leave some out adds noise."""
    yield from np.array_split(rng.permutation(rows), -(-rows // size))
