"""Trainable parameters as one vector of numbers, with their priors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray, Parameter, PriorOn

from ..statistics.posterior import slices

_bijectors = tfp.bijectors
_distributions = tfp.distributions


class Hyperparameters:
    """
    Parameters in the unconstrained coordinates in which they are optimised, one vector.

    Values are read off the parameters once and written back once: in between, functions are given
    values and set nothing.

    :param parameters: trainable ones, each once.
    """

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        self.parameters = list({id(p): p for p in parameters}.values())
        self._shapes = [tuple(p.shape.as_list()) for p in self.parameters]
        self._sizes = [int(np.prod(shape)) for shape in self._shapes]
        self._places = slices(self._sizes)
        self._simple = [isinstance(p.transform, _bijectors.Exp) for p in self.parameters]
        normal: list[tuple[AnyNDArray, AnyNDArray] | None] = []
        for p, simple in zip(self.parameters, self._simple):
            prior: Any = p.prior if simple else None
            log_normal = type(prior) is _distributions.LogNormal
            normal.append((np.asarray(prior.loc), np.asarray(prior.scale)) if log_normal else None)
        self._normal = normal
        self._scales = [_scale(p) if n is None else n[1] for p, n in zip(self.parameters, normal)]
        self._others = [
            i for i, p in enumerate(self.parameters) if p.prior is not None and normal[i] is None
        ]

    def __len__(self) -> int:
        return int(sum(self._sizes))

    def get(self) -> AnyNDArray:
        """The parameters' present coordinates, [K]."""
        if not self.parameters:
            return np.zeros(0)
        found = [np.ravel(p.unconstrained_variable.numpy()) for p in self.parameters]
        return np.concatenate(found).astype(np.float64)

    def coordinates(self, values: Sequence[Any]) -> AnyNDArray:
        """The coordinates [K] of constrained values, one a parameter."""
        found = [
            np.ravel(value if p.transform is None else p.transform.inverse(np.float64(value)))
            for p, value in zip(self.parameters, values)
        ]
        return np.concatenate(found) if found else np.zeros(0)

    def set(self, u: AnyNDArray) -> None:
        """Write coordinates [K] to the parameters."""
        for p, part in zip(self.parameters, self._parts(u)):
            p.unconstrained_variable.assign(part)

    def _parts(self, u: AnyNDArray) -> list[AnyNDArray]:
        return [u[at].reshape(shape) for at, shape in zip(self._places, self._shapes)]

    def values(self, u: AnyNDArray) -> dict[int, AnyNDArray]:
        """Constrained values at coordinates [K], by the parameters' ``id``."""
        return {
            id(p): np.exp(x) if simple else _forward(p, x)
            for p, simple, x in zip(self.parameters, self._simple, self._parts(u))
        }

    def pullback(self, u: AnyNDArray, gradients: Mapping[int, AnyNDArray]) -> AnyNDArray:
        """
        Gradients [K] in the coordinates from those in constrained values.

        :param gradients: by the parameters' ``id``; zero where there is none.
        """
        found = []
        for p, simple, x in zip(self.parameters, self._simple, self._parts(u)):
            own = gradients.get(id(p), np.zeros_like(x))
            found.append(np.ravel(own * np.exp(x) if simple else _chain(p, x, own)))
        return np.concatenate(found) if found else np.zeros(0)

    def moved(self, u: AnyNDArray, step: float) -> list[tuple[Parameter, AnyNDArray]]:
        """The parameter of each coordinate, and its value where that one is ``step`` further on."""
        found = []
        for p, simple, x in zip(self.parameters, self._simple, self._parts(u)):
            for i in np.ndindex(x.shape):
                there = np.array(x)
                there[i] += step
                found.append((p, np.exp(there) if simple else _forward(p, there)))
        return found

    def prior_modes(self, u: AnyNDArray) -> AnyNDArray:
        """Where log-normal priors are highest in the coordinates, [K]; others stay as in ``u``."""
        found = [
            np.ravel(x)
            if normal is None
            else np.broadcast_to(normal[0] - np.square(normal[1]), x.shape).ravel()
            for normal, x in zip(self._normal, self._parts(u))
        ]
        return np.concatenate(found) if found else np.zeros(0)

    def prior_precision(self) -> AnyNDArray:
        """How sharp priors that are normal in the coordinates are, [K]; zero of others."""
        found = [
            np.zeros(size) if scale is None else np.ones(size) / np.square(np.ravel(scale))
            for scale, size in zip(self._scales, self._sizes)
        ]
        return np.concatenate(found) if found else np.zeros(0)

    def log_prior(self, u: AnyNDArray) -> tuple[float, AnyNDArray]:
        """Log-density of the priors at coordinates [K], as GPflow counts it, and its gradient."""
        total, slopes = 0.0, []
        for i, (p, x) in enumerate(zip(self.parameters, self._parts(u))):
            normal = self._normal[i]
            if normal is not None:
                # GPflow adds the density of the parameter, not of its logarithm
                loc, scale = normal
                z = (x - loc) / scale
                each = -0.5 * z**2 - np.log(scale) - 0.5 * np.log(2.0 * np.pi) - x
                total += float(np.sum(each))
                slopes.append(np.ravel(-z / scale - 1.0))
            elif i in self._others:
                value, slope = _prior(p, x)
                total += value
                slopes.append(np.ravel(slope))
            else:
                slopes.append(np.zeros(self._sizes[i]))
        return total, np.concatenate(slopes) if slopes else np.zeros(0)


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
    return np.asarray(parameter.transform.forward(tf.constant(x, parameter.dtype)), np.float64)


def _chain(parameter: Parameter, x: AnyNDArray, upstream: AnyNDArray) -> AnyNDArray:
    if parameter.transform is None:
        return upstream
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
    """Where parameters stand among all of a module's, as they do in any copy of it."""
    every = [id(p) for p in module.parameters]
    return [every.index(id(p)) for p in learnt.parameters]
