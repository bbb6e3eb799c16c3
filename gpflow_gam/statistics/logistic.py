"""Expected log-densities of binary, binomial and negative binomial rows, without TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray, Parameter
from gpflow.likelihoods import Likelihood
from gpflow.quadrature import NDiagGHQuadrature
from scipy.special import digamma, expit, gammaln, polygamma

from ..likelihoods import Bernoulli, Binomial, NegativeBinomial
from ..threads import each

_CHUNK = 4096
"""Rows whose quadrature nodes stay in a core's cache."""
SURE = 1e-5
"""Deviations of predictors below which a quotient by them is rounding, and no slope bends."""


class Softplus(NamedTuple):
    """Of ``log(1 + exp(f))`` at normal f: expectations of the rows, [n] each."""

    value: AnyNDArray
    slope: AnyNDArray
    """In the mean."""
    along: AnyNDArray
    """In the variance."""
    curvature: AnyNDArray
    """E of the second derivative."""


class OwnSlopes(NamedTuple):
    """
    Derivatives in the one parameter of a likelihood, unconstrained, [n] each; ``across`` is [n, L]
    of several predictors.
    """

    slope: AnyNDArray
    curvature: AnyNDArray
    across: AnyNDArray
    """Of the slope in the mean."""


class Terms(NamedTuple):
    """
    Expected log-densities of the rows and their derivatives, [n] each; of several predictors
    slopes and precisions are [n, L].
    """

    value: AnyNDArray
    slope: AnyNDArray
    """In the mean."""
    precision: AnyNDArray
    """Minus twice the slope in the variance."""
    own: OwnSlopes | None
    """None where the likelihood has no parameter that is wanted."""


def logistic_terms(
    likelihood: Likelihood,
    mean: AnyNDArray,
    var: AnyNDArray,
    Y: AnyNDArray,
    variables: Sequence[tf.Variable],
) -> Terms | None:
    """
    What rows ``log p = level + a f - b log(1 + exp(f + shift))`` say; None where that is not so.

    The same quadrature as the likelihood's own, by the exponential of each node alone.

    :param mean: of f, [n].
    :param var: of f, not negative, [n].
    :param Y: [n, K].
    :param variables: of the likelihood's parameters, in which derivatives are wanted.
    """
    rows = _rows(likelihood, Y)
    if rows is None:
        return None
    level, successes, total, shift = rows
    found = _softplus(likelihood.quadrature, mean + shift, var)
    own = None
    if variables:
        own = _of_dispersion(likelihood, Y[:, 0], found)
    return Terms(
        level + successes * mean - total * found.value,
        successes - total * found.slope,
        2.0 * total * found.along,
        own,
    )


def _rows(
    likelihood: Likelihood, Y: AnyNDArray
) -> tuple[AnyNDArray, AnyNDArray, AnyNDArray, float] | None:
    """Level, a, b and shift; None of other likelihoods, and where a row is an error."""
    kind, y = type(likelihood), Y[:, 0]
    if kind not in (Bernoulli, Binomial, NegativeBinomial) or not isinstance(
        likelihood.quadrature, NDiagGHQuadrature
    ):
        return None
    if kind is NegativeBinomial:
        if not np.all((y >= 0.0) & (np.round(y) == y)):
            return None
        alpha = PositiveParameter.of(likelihood.alpha).value
        size, log = 1.0 / alpha, float(np.log(alpha))
        counts, back = np.unique(y, return_inverse=True)  # few beside the rows
        ways = gammaln(counts + size) - gammaln(size) - gammaln(counts + 1.0)
        level = ways[back] + y * log
        return level, y, y + size, log
    if likelihood.link != "logit":
        return None
    if kind is Bernoulli:
        return (np.zeros(len(y)), y, np.ones(len(y)), 0.0) if np.all((y == 0) | (y == 1)) else None
    trials = Y[:, 1]
    if not np.all((y >= 0.0) & (y <= trials)):
        return None
    level = gammaln(trials + 1.0) - gammaln(y + 1.0) - gammaln(trials - y + 1.0)
    return level, y, trials, 0.0


def _softplus(quadrature: NDiagGHQuadrature, mean: AnyNDArray, var: AnyNDArray) -> Softplus:
    """By the nodes and weights of a likelihood's own rule."""
    nodes, weights = np.ravel(quadrature.Z), np.ravel(quadrature.dZ)
    found = Softplus(*(np.empty(len(mean)) for _ in Softplus._fields))

    def fill(start: int) -> None:
        at = slice(start, start + _CHUNK)
        sd = np.sqrt(var[at])
        f = mean[at, None] + sd[:, None] * nodes
        small = np.exp(-np.abs(f))
        rate = np.where(f >= 0.0, 1.0, small) / (1.0 + small)
        found.value[at] = (np.maximum(f, 0.0) + np.log1p(small)) @ weights
        found.slope[at] = rate @ weights
        bend = (small / np.square(1.0 + small)) @ weights
        found.curvature[at] = bend
        # that of the quadrature, which a bound that is made of it rises along
        moved = rate @ (0.5 * nodes * weights)
        found.along[at] = np.divide(moved, sd, out=0.5 * bend, where=sd > SURE)

    each(fill, range(0, len(mean), _CHUNK))
    return found


def _of_dispersion(likelihood: NegativeBinomial, y: AnyNDArray, found: Softplus) -> OwnSlopes:
    """Of a negative binomial in its dispersion: in the logarithm first, then by the chain rule."""
    dispersion = PositiveParameter.of(likelihood.alpha)
    size = 1.0 / dispersion.value
    total = y + size
    counts, back = np.unique(total, return_inverse=True)
    ways = (size * (digamma(counts) - digamma(size)))[back]
    bend = (size**2 * (polygamma(1, counts) - polygamma(1, size)))[back]
    slope = y - ways - total * found.slope + size * found.value
    across = size * found.slope - total * found.curvature
    curvature = ways + bend + across + size * (found.slope - found.value)
    rate, turn = dispersion.rate, dispersion.turn
    return OwnSlopes(rate * slope, rate**2 * curvature + turn * slope, rate * across)


class PositiveParameter(NamedTuple):
    """A likelihood's one, with derivatives of its logarithm where it is learnt, unconstrained."""

    value: float
    rate: float
    turn: float

    @classmethod
    def of(cls, parameter: Parameter) -> PositiveParameter:
        u, transform = float(parameter.unconstrained_variable.numpy()), parameter.transform
        if isinstance(transform, tfp.bijectors.Chain):
            outer, *inner = transform.bijectors
            if isinstance(outer, tfp.bijectors.Shift) and len(inner) == 1:
                transform, shift = inner[0], float(outer.shift)
                if type(transform) is tfp.bijectors.Softplus and transform.hinge_softness is None:
                    # GPflow's own, which takes milliseconds
                    value, first = shift + float(np.logaddexp(0.0, u)), float(expit(u))
                    rate = first / value
                    return cls(value, rate, rate * (1.0 - first) - rate**2)
                if type(transform) is tfp.bijectors.Exp:
                    above = float(np.exp(u))
                    rate = above / (shift + above)
                    return cls(shift + above, rate, rate - rate**2)
        at = tf.constant(u, parameter.dtype)
        with tf.GradientTape() as outer_tape:
            outer_tape.watch(at)
            with tf.GradientTape() as tape:
                tape.watch(at)
                value = at if parameter.transform is None else parameter.transform.forward(at)
                log = tf.math.log(value)
            first = tape.gradient(log, at)
        return cls(float(value), float(first), float(outer_tape.gradient(first, at) or 0.0))
