"""Hyperparameters as one vector of unconstrained coordinates, and their priors there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray, Parameter, PriorOn

from ...bijectors import has_softplus
from .evidence import slices

_bijectors = tfp.bijectors
_distributions = tfp.distributions

_NEAR_TIE = 2.0  # how much worse, in nats, a place may look that may have another optimum around it
_APART = 0.1  # distance from which a coordinate is elsewhere
_SMALL = 7.0  # how far, in logarithms, a variance that has not vanished is below its prior
_TINY = 19.0  # how far it may be, and still gain where a search has gone past it
LONGEST = 1.0  # longest step of a (logarithmic) coordinate
_EXPONENTIAL = -30.0  # below it softplus is the exponential to the last digit
_LINEAR = 0.1  # how far a parameter's slope in its coordinate may be from one, as softplus has it


class Hyperparameters:
    """Parameters as one vector of unconstrained coordinates, which functions do not set."""

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        self.parameters = list({id(p): p for p in parameters}.values())
        self._shapes = [tuple(p.shape.as_list()) for p in self.parameters]
        self._sizes = [int(np.prod(shape)) for shape in self._shapes]
        self._places = slices(self._sizes)
        self._soft = np.repeat([has_softplus(p) for p in self.parameters], self._sizes)
        # in the coordinates of exponentials log-normal priors are normal, log-logistic ones
        # logistic: all of them at once
        size = len(self)
        self.log_normal = np.zeros(size, dtype=bool)
        self._log_logistic = np.zeros(size, dtype=bool)
        loc, scale = np.zeros(size), np.ones(size)
        self._others = []
        for i, (p, at) in enumerate(zip(self.parameters, self._places)):
            prior: Any = p.prior
            constrained = p.prior_on is PriorOn.CONSTRAINED
            kinds = {
                _distributions.LogNormal: self.log_normal,
                _distributions.LogLogistic: self._log_logistic,
            }
            exponential = isinstance(p.transform, _bijectors.Exp)
            if exponential and constrained and type(prior) in kinds:
                shape = self._shapes[i]
                loc[at] = np.broadcast_to(np.asarray(prior.loc), shape).ravel()
                scale[at] = np.broadcast_to(np.asarray(prior.scale), shape).ravel()
                kinds[type(prior)][at] = True
            elif prior is not None:
                self._others.append(i)
        self._loc, self._scale = loc[self.log_normal], scale[self.log_normal]
        self._centre, self._width = loc[self._log_logistic], scale[self._log_logistic]
        self._normaliser = -float(
            np.sum(np.log(self._scale) + 0.5 * np.log(2.0 * np.pi)) + np.sum(np.log(self._width))
        )

    def __len__(self) -> int:
        return int(sum(self._sizes))

    def get(self) -> AnyNDArray:
        """The parameters' present coordinates, [K]."""
        if not self.parameters:
            return np.zeros(0)
        result = [np.ravel(p.unconstrained_variable.numpy()) for p in self.parameters]
        return np.concatenate(result).astype(np.float64)

    def set(self, u: AnyNDArray) -> None:
        """Write coordinates [K] to the parameters."""
        for p, part in zip(self.parameters, self.by_parameter(u)):
            p.unconstrained_variable.assign(part)

    def off_zero(self, u: AnyNDArray) -> AnyNDArray:
        """The coordinates, where variances that have vanished are small ones."""
        result = u.copy()
        result[self._log_logistic] = np.maximum(u[self._log_logistic], self._centre - _SMALL)
        return result

    def smaller(self, u: AnyNDArray) -> Iterator[AnyNDArray]:
        """The coordinates with ever smaller variances, if there are any."""
        steps = range(1, int(_SMALL) + 1) if self._log_logistic.any() else ()
        return (u - step * self._log_logistic for step in steps)

    def by_parameter(self, u: AnyNDArray) -> list[AnyNDArray]:
        """The parts of a vector [K] that belong to each parameter, in its shape."""
        return [u[at].reshape(shape) for at, shape in zip(self._places, self._shapes)]

    def values(self, u: AnyNDArray) -> dict[int, AnyNDArray]:
        """Constrained values at coordinates [K], by the parameters' ``id``."""
        return {id(p): _forward(p, x) for p, x in zip(self.parameters, self.by_parameter(u))}

    def pullback(self, u: AnyNDArray, gradients: Mapping[int, AnyNDArray]) -> AnyNDArray:
        """Gradients [K] in the coordinates from those in constrained values."""
        result = np.zeros(len(u))
        for p, at, x in zip(self.parameters, self._places, self.by_parameter(u)):
            if id(p) in gradients:
                result[at] = np.ravel(_chain(p, x, gradients[id(p)]))
        return result

    def longest(self, u: AnyNDArray) -> AnyNDArray:
        """The longest steps of coordinates [K]: one, as of logarithms, or a value's own size."""
        ones = [np.ones(shape) for shape in self._shapes]
        values, slopes = self.values(u), self.pullback(u, dict(zip(self.values(u), ones)))
        size = np.concatenate([np.ravel(values[id(p)]) for p in self.parameters])
        return np.where(np.abs(slopes - 1.0) < _LINEAR, np.maximum(size, LONGEST), LONGEST)

    def further(self, u: AnyNDArray, step: AnyNDArray) -> AnyNDArray:
        """Coordinates [..., K] a step further on, in logarithms where softplus is linear, too."""
        there = np.maximum(np.logaddexp(0.0, u) * np.exp(step), 1e-300)
        linear = self._soft & (u > _EXPONENTIAL)
        return np.where(linear, there + np.log(-np.expm1(-there)), u + step)

    def stretch(self, u: AnyNDArray) -> AnyNDArray:
        """Derivatives [K] of :meth:`further` in the step, where there is none."""
        x = np.maximum(u, _EXPONENTIAL)
        return np.where(self._soft, np.logaddexp(0.0, x) * (1.0 + np.exp(-x)), 1.0)

    def moved(self, u: AnyNDArray, step: float) -> list[tuple[Parameter, AnyNDArray]]:
        """The parameter of each coordinate, and its value where that one is ``step`` further on."""
        result = []
        for p, x in zip(self.parameters, self.by_parameter(u)):
            for i in np.ndindex(x.shape):
                there = np.array(x)
                there[i] += step
                result.append((p, _forward(p, there)))
        return result

    def prior_modes(self, u: AnyNDArray) -> AnyNDArray:
        """Coordinates ``u``, those with log-normal priors moved to the modes of these, [K]."""
        result = np.array(u)
        result[self.log_normal] = self._loc - np.square(self._scale)
        return result

    def elsewhere(self, u: AnyNDArray) -> list[tuple[int, float, float]]:
        """Places of possible other optima: a coordinate, its value, how much worse it may look."""
        # Lengthscales at their priors' modes, if not much worse, or halved; vanished variances at
        # small ones.
        modes, result = self.prior_modes(u), []
        for k in np.flatnonzero(self.log_normal):
            if u[k] < modes[k] - _APART:
                result.append((int(k), float(modes[k]), _NEAR_TIE))
            result.append((int(k), float(u[k] - np.log(2.0)), 0.0))
        for k, centre in zip(np.flatnonzero(self._log_logistic), self._centre):
            for size in (_SMALL, _TINY):
                if u[k] < centre - size - _APART:
                    result.append((int(k), float(centre - size), 0.0))
        return result

    def prior_precision(self) -> AnyNDArray:
        """Precisions of priors that are normal in the coordinates, [K]; zero of others."""
        result = np.zeros(len(self))
        result[self.log_normal] = 1.0 / np.square(self._scale)
        # log-logistic priors add at most 1 / (2 width^2), which is left out
        for i in self._others:
            prior: Any = self.parameters[i].prior
            transform = self.parameters[i].transform
            itself = isinstance(transform, (_bijectors.Identity, type(None)))
            if type(prior) is _distributions.Normal and itself:
                result[self._places[i]] = 1.0 / np.square(np.ravel(prior.scale))
        return result

    def to_uniform_sd(self) -> AnyNDArray:
        """Slopes [K] that turn log-logistic priors of variances into priors of their logarithms."""
        # GPflow adds the density of a variance, under which a flat prior leaves it at its maximum
        # likelihood. Averages need the density of coordinates, and one with little mass next to
        # zero: flat in standard deviations (Gelman 2006, "Prior distributions for variance
        # parameters").
        result = np.zeros(len(self))
        result[self._log_logistic] = np.maximum(1.5 - 1.0 / self._width, 0.0)
        return result

    def log_jacobian(self, u: AnyNDArray) -> tuple[float, AnyNDArray]:
        """What turns priors of values into priors of coordinates [K], and its gradient."""
        # but for log-logistic ones: see to_uniform_sd
        slopes = self.log_normal.astype(float)
        total = float(slopes @ u)
        for i in self._others:
            p: Any = self.parameters[i]
            at = self._places[i]
            x = tf.constant(u[at].reshape(self._shapes[i]), p.dtype)
            with tf.GradientTape() as tape:
                tape.watch(x)
                value = tf.reduce_sum(p.transform.forward_log_det_jacobian(x, x.shape.rank))
            slope = tape.gradient(value, x, unconnected_gradients="zero")
            total, slopes[at] = total + float(value), np.ravel(slope)
        return total, slopes

    def log_prior(self, u: AnyNDArray) -> tuple[float, AnyNDArray]:
        """Log-density of the priors at coordinates [K], as GPflow counts it, and its gradient."""
        x = u[self.log_normal]
        z = (x - self._loc) / self._scale
        # GPflow adds the density of the parameter, not of its logarithm
        total = self._normaliser - 0.5 * float(z @ z) - float(np.sum(x))
        slopes = np.zeros(len(u))
        slopes[self.log_normal] = -z / self._scale - 1.0
        x = u[self._log_logistic]
        z = (x - self._centre) / self._width
        total += float(np.sum(z - 2.0 * np.logaddexp(0.0, z) - x))
        slopes[self._log_logistic] = -np.tanh(0.5 * z) / self._width - 1.0
        for i in self._others:
            at = self._places[i]
            value, slope = _prior(self.parameters[i], u[at].reshape(self._shapes[i]))
            total += value
            slopes[at] = np.ravel(slope)
        return total, slopes


def _forward(parameter: Parameter, x: AnyNDArray) -> AnyNDArray:
    if parameter.transform is None:
        return x
    if isinstance(parameter.transform, _bijectors.Exp):
        return np.exp(x)
    return np.asarray(parameter.transform.forward(tf.constant(x, parameter.dtype)), np.float64)


def _chain(parameter: Parameter, x: AnyNDArray, upstream: AnyNDArray) -> AnyNDArray:
    if parameter.transform is None:
        return upstream
    if isinstance(parameter.transform, _bijectors.Exp):
        return upstream * np.exp(x)
    u = tf.constant(x, parameter.dtype)
    with tf.GradientTape() as tape:
        tape.watch(u)
        value = parameter.transform.forward(u)
    weights = tf.constant(upstream, parameter.dtype)
    return np.asarray(tape.gradient(value, u, output_gradients=weights), np.float64)


def _prior(parameter: Parameter, x: AnyNDArray) -> tuple[float, AnyNDArray]:
    """The log-density of one parameter's prior, by GPflow's own rules."""
    u = tf.constant(x, parameter.dtype)
    prior: Any = parameter.prior
    with tf.GradientTape() as tape:
        tape.watch(u)
        y = u if parameter.transform is None else parameter.transform.forward(u)
        if parameter.prior_on is PriorOn.CONSTRAINED:
            density = tf.reduce_sum(prior.log_prob(y))
        else:
            density = tf.reduce_sum(prior.log_prob(u))
            if parameter.transform is not None:
                inverse = parameter.transform.inverse_log_det_jacobian(y, y.shape.rank)
                density += tf.reduce_sum(inverse)
    return float(density), np.asarray(tape.gradient(density, u), np.float64)
