"""
Expected log-densities of rows and their derivatives, in numpy.

TensorFlow's first use takes longer than many passes over rows. A likelihood that needs no
TensorFlow has a method ``row_terms(batch) -> Terms | None``; None of rows that are an error
elsewhere, and where it takes TensorFlow after all. A subclass with another density overrides it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray, Parameter
from gpflow.quadrature import GaussianQuadrature, NDiagGHQuadrature
from scipy.special import expit

from ..threads import each

_CHUNK = 4096  # rows whose quadrature nodes stay in a core's cache
SURE = 1e-5
"""Deviations of predictors below which a quotient by them is rounding, and no slope bends."""


class Batch(NamedTuple):
    """Rows whose predictors are N(mean, var)."""

    mean: AnyNDArray  # [n, L]
    var: AnyNDArray  # [n, L], not negative
    Y: AnyNDArray  # [n, K]
    weights: AnyNDArray | None  # [n], of sums over rows
    variables: Sequence[tf.Variable]
    """Variables of the likelihood's parameters in which derivatives are wanted."""


class ParameterTerms(NamedTuple):
    """Derivatives in the K unconstrained parameters of a likelihood."""

    slope: AnyNDArray  # first derivatives of the sum over rows, [K]
    curvature: AnyNDArray  # its second derivatives, [K, K]
    across: list[AnyNDArray]
    """Derivatives of rows' slopes in their means, [n] or [n, L] each, without weights."""


class Terms(NamedTuple):
    """Terms of each row, without weights: values [n], slopes and precisions [n] or [n, L]."""

    value: AnyNDArray
    slope: AnyNDArray  # in the mean (Opper & Archambeau 2009)
    precision: AnyNDArray  # minus twice the slope in the variance
    parameters: ParameterTerms | None = None  # none where no derivatives in parameters are wanted


class PositiveParameter(NamedTuple):
    """A parameter's value, and derivatives of its logarithm in the unconstrained variable."""

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

    def terms(
        self,
        slope: AnyNDArray,
        curvature: AnyNDArray,
        across: AnyNDArray,
        weights: AnyNDArray | None,
    ) -> ParameterTerms:
        """By the chain rule, from each row's derivatives in the parameter's logarithm."""
        curvature = self.rate**2 * curvature + self.turn * slope
        total = np.sum(weighted(self.rate * slope, weights), keepdims=True)
        bend = np.sum(weighted(curvature, weights)).reshape(1, 1)
        return ParameterTerms(total, bend, [self.rate * across])


def weighted(values: AnyNDArray, weights: AnyNDArray | None) -> AnyNDArray:
    """Values of rows [n, ...] times their weights; rows that do not count may overflow."""
    if weights is None:
        return values
    weights = weights.reshape(-1, *[1] * (values.ndim - 1))
    return weights * np.where(weights == 0.0, 0.0, values)


def are_counts(y: AnyNDArray) -> bool:
    """True if all are whole and not negative."""
    return bool(np.all((y >= 0.0) & (np.round(y) == y)))


class Softplus(NamedTuple):
    """Expectations of ``log(1 + exp(f))`` at normal f, [n] each."""

    value: AnyNDArray
    slope: AnyNDArray  # in the mean
    along: AnyNDArray  # in the variance
    curvature: AnyNDArray  # E of the second derivative


def softplus(quadrature: NDiagGHQuadrature, mean: AnyNDArray, var: AnyNDArray) -> Softplus:
    """By the nodes and weights of a likelihood's own rule, and one exponential a node."""
    nodes, weights = np.ravel(quadrature.Z), np.ravel(quadrature.dZ)
    out = Softplus(*(np.empty(len(mean)) for _ in Softplus._fields))

    def fill(start: int) -> None:
        at = slice(start, start + _CHUNK)
        sd = np.sqrt(var[at])
        f = mean[at, None] + sd[:, None] * nodes
        small = np.exp(-np.abs(f))
        rate = np.where(f >= 0.0, 1.0, small) / (1.0 + small)
        out.value[at] = (np.maximum(f, 0.0) + np.log1p(small)) @ weights
        out.slope[at] = rate @ weights
        bend = (small / np.square(1.0 + small)) @ weights
        out.curvature[at] = bend
        # that of the quadrature, which a bound that is made of it rises along
        moved = rate @ (0.5 * nodes * weights)
        out.along[at] = np.divide(moved, sd, out=0.5 * bend, where=sd > SURE)

    each(fill, range(0, len(mean), _CHUNK))
    return out


def logistic_terms(
    quadrature: GaussianQuadrature,
    rows: Batch,
    level: AnyNDArray,
    hits: AnyNDArray,
    total: AnyNDArray,
    shift: float = 0.0,
    parameters: Callable[[Softplus], ParameterTerms] | None = None,
) -> Terms | None:
    """Terms of ``log p = level + hits f - total log(1 + exp(f + shift))``."""
    # None under another quadrature rule than Gauss-Hermite.
    if not isinstance(quadrature, NDiagGHQuadrature):
        return None
    mean = rows.mean[:, 0]
    at = softplus(quadrature, mean + shift, rows.var[:, 0])
    return Terms(
        level + hits * mean - total * at.value,
        hits - total * at.slope,
        2.0 * total * at.along,
        parameters(at) if parameters is not None and rows.variables else None,
    )
