"""Trainable parameters as one vector of numbers, with their priors; profiles of a loss in them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray, Parameter, PriorOn
from scipy.optimize import brentq

from ..errors import NotPositiveDefinite
from .binned.evidence import slices
from .minimizers import Loss, descend

_bijectors = tfp.bijectors
_distributions = tfp.distributions

_NEAR_TIE = 2.0  # how much worse, in nats, a place may look that may have another optimum around it
_APART = 0.1  # distance from which a coordinate is elsewhere
_SMALL = 7.0  # how far, in logarithms, a variance that has not vanished is below its prior
_STEP = 1e-3  # of differences of gradients


class Hyperparameters:
    """Parameters as one vector of unconstrained coordinates, which functions do not set."""

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        self.parameters = list({id(p): p for p in parameters}.values())
        self._shapes = [tuple(p.shape.as_list()) for p in self.parameters]
        self._sizes = [int(np.prod(shape)) for shape in self._shapes]
        self._places = slices(self._sizes)
        # in the coordinates of exponentials log-normal priors are normal, log-logistic ones
        # logistic: all of them at once
        size = len(self)
        self._log_normal = np.zeros(size, dtype=bool)
        self._log_logistic = np.zeros(size, dtype=bool)
        loc, scale = np.zeros(size), np.ones(size)
        self._others = []
        for i, (p, at) in enumerate(zip(self.parameters, self._places)):
            prior: Any = p.prior
            constrained = p.prior_on is PriorOn.CONSTRAINED
            kinds = {
                _distributions.LogNormal: self._log_normal,
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
        self._loc, self._scale = loc[self._log_normal], scale[self._log_normal]
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

    def coordinates(self, values: Sequence[Any]) -> AnyNDArray:
        """The coordinates [K] of constrained values, one a parameter."""
        result = [
            np.ravel(value if p.transform is None else p.transform.inverse(np.float64(value)))
            for p, value in zip(self.parameters, values)
        ]
        return np.concatenate(result) if result else np.zeros(0)

    def set(self, u: AnyNDArray) -> None:
        """Write coordinates [K] to the parameters."""
        for p, part in zip(self.parameters, self.by_parameter(u)):
            p.unconstrained_variable.assign(part)

    def off_zero(self, u: AnyNDArray) -> AnyNDArray:
        """The coordinates, where variances that have vanished are small ones."""
        result = u.copy()
        result[self._log_logistic] = np.maximum(u[self._log_logistic], self._centre - _SMALL)
        return result

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
        result[self._log_normal] = self._loc - np.square(self._scale)
        return result

    def elsewhere(self, u: AnyNDArray) -> list[tuple[int, float, float]]:
        """
        Places of possible other optima: a coordinate, its value, how much worse it may look.

        Lengthscales at their priors' modes, if not much worse, or halved; vanished variances at
        small ones.
        """
        modes, result = self.prior_modes(u), []
        for k in np.flatnonzero(self._log_normal):
            if u[k] < modes[k] - _APART:
                result.append((int(k), float(modes[k]), _NEAR_TIE))
            result.append((int(k), float(u[k] - np.log(2.0)), 0.0))
        for k, centre in zip(np.flatnonzero(self._log_logistic), self._centre):
            if u[k] < centre - _SMALL - _APART:
                result.append((int(k), float(centre - _SMALL), 0.0))
        return result

    def prior_precision(self) -> AnyNDArray:
        """Precisions of priors that are normal in the coordinates, [K]; zero of others."""
        result = np.zeros(len(self))
        result[self._log_normal] = 1.0 / np.square(self._scale)
        # log-logistic priors add at most 1 / (2 width^2), which is left out
        for i in self._others:
            scale = _scale(self.parameters[i])
            if scale is not None:
                result[self._places[i]] = 1.0 / np.square(np.ravel(scale))
        return result

    def to_uniform_sd(self) -> AnyNDArray:
        """
        Slopes [K] that turn log-logistic priors of variances into priors of their logarithms.

        GPflow adds the density of a variance, under which a flat prior leaves it at its maximum
        likelihood. Averages need the density of coordinates, and one with little mass next to zero:
        flat in standard deviations (Gelman 2006, "Prior distributions for variance parameters").
        """
        result = np.zeros(len(self))
        result[self._log_logistic] = np.maximum(1.5 - 1.0 / self._width, 0.0)
        return result

    def log_prior(self, u: AnyNDArray) -> tuple[float, AnyNDArray]:
        """Log-density of the priors at coordinates [K], as GPflow counts it, and its gradient."""
        x = u[self._log_normal]
        z = (x - self._loc) / self._scale
        # GPflow adds the density of the parameter, not of its logarithm
        total = self._normaliser - 0.5 * float(z @ z) - float(np.sum(x))
        slopes = np.zeros(len(u))
        slopes[self._log_normal] = -z / self._scale - 1.0
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


def _scale(parameter: Parameter) -> AnyNDArray | None:
    """The standard deviation of a normal prior of coordinates that are the parameter itself."""
    prior: Any = parameter.prior
    itself = isinstance(parameter.transform, (_bijectors.Identity, type(None)))
    if type(prior) is not _distributions.Normal or not itself:
        return None
    return np.asarray(prior.scale)


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


def places_of(learnt: Hyperparameters, module: tf.Module) -> list[int]:
    """Indices of parameters among all of a module's; the same in any copy of it."""
    every = [id(p) for p in module.parameters]
    return [every.index(id(p)) for p in learnt.parameters]


def differenced(
    gradient: Callable[[AnyNDArray], AnyNDArray], at: AnyNDArray, which: Sequence[int] | None = None
) -> AnyNDArray:
    """Second derivatives by one-sided differences of first ones: half of what central ones cost."""
    places = range(len(at)) if which is None else which
    if not len(places):
        return np.zeros((0, len(at)))
    here, steps = gradient(at), _STEP * np.eye(len(at))
    rows = np.stack([(gradient(at + steps[i]) - here) / _STEP for i in places])
    return rows if which is not None else 0.5 * (rows + rows.T)


_FARTHEST = 32.0  # distance, in (logarithmic) coordinates, at which an end is last looked for
_PROFILE_STEPS, _PROFILE_TOLERANCE = 30, 0.1
"""Iterations, and nats of which a hundredth counts, of the search over the other coordinates."""
_ACCURACY = 0.003  # relative, of the distance of an end of the interval


def profile_limits(
    loss: Loss,
    optimum: AnyNDArray,
    place: int,
    z: float,
    metric: Callable[[AnyNDArray], AnyNDArray | None],
) -> tuple[float, float]:
    """
    Ends of the profile interval of one coordinate: the loss is minimised over all others.

    The profile has risen there by ``z^2 / 2`` (Bates, Mächler, Bolker & Walker 2015); an end is
    infinite if it never has.
    """
    profile = _Profile(loss, optimum, place, metric)
    return optimum[place] - profile.distance(-1.0, z), optimum[place] + profile.distance(1.0, z)


@dataclasses.dataclass
class _Profile:
    """One coordinate's profile; arguments as above."""

    loss: Loss
    optimum: AnyNDArray
    place: int
    metric: Callable[[AnyNDArray], AnyNDArray | None]

    def __post_init__(self) -> None:
        self._others = np.arange(len(self.optimum)) != self.place
        self._least = self.loss(self.optimum)[0]
        around = self.metric(self.optimum)
        along = np.eye(len(self.optimum))[self.place]
        if around is not None:
            along = np.linalg.solve(around, along)
        self._sd = float(np.sqrt(along[self.place]))
        self._direction: AnyNDArray = along / along[self.place]

    def distance(self, sign: float, z: float) -> float:
        """Distance from the optimum to one end of the interval; infinite if it is too far away."""
        known = {0.0: (-z, self.optimum)}

        def excess(distance: float) -> float:
            """The root of twice the rise, nearly linear in the distance, less ``z``."""
            if distance in known:
                return known[distance][0]
            # lengthscales may have several optima: on from nearer the optimum, never back
            inner = max(d for d in known if d < distance)
            at = known[inner][1]
            try:
                at, value = self._least_at(at + sign * (distance - inner) * self._direction)
                root = np.sqrt(2.0 * max(value - self._least, 0.0))
            except NotPositiveDefinite:  # as far as numbers go
                root = np.inf
            known[distance] = min(float(root), 2.0 * z) - z, at
            return known[distance][0]

        near, far = 0.0, min(z * self._sd, 2.0)
        while excess(far) < 0.0:
            if far >= _FARTHEST:
                return np.inf
            expected = 1.1 * far * z / max(excess(far) + z, 1e-3 * z)
            near, far = far, min(max(1.5 * far, min(expected, 4.0 * far)), _FARTHEST)
        return float(brentq(excess, near, far, xtol=_ACCURACY * far))

    def _least_at(self, start: AnyNDArray) -> tuple[AnyNDArray, float]:
        """The least of the loss where the coordinate is what it is in ``start``."""
        others = self._others
        if not others.any():
            return start, self.loss(start)[0]

        def whole(part: AnyNDArray) -> AnyNDArray:
            u = start.copy()
            u[others] = part
            return u

        def loss(part: AnyNDArray) -> tuple[float, AnyNDArray]:
            value, gradient = self.loss(whole(part))
            return value, gradient[others]

        def metric(part: AnyNDArray) -> AnyNDArray | None:
            result = self.metric(whole(part))
            return None if result is None else result[np.ix_(others, others)]

        best = whole(
            descend(loss, start[others], _PROFILE_STEPS, _PROFILE_TOLERANCE, None, metric=metric)[0]
        )
        return best, self.loss(best)[0]
