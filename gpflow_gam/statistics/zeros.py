"""Expected log-densities of counts with zeros of their own, without TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood
from gpflow.quadrature import NDiagGHQuadrature
from scipy.special import digamma, expit, gammaln, polygamma

from ..likelihoods import Hurdle, ZeroInflated
from ..threads import each
from .links import Log, log_probabilities
from .logistic import SURE, OwnSlopes, PositiveParameter, Terms

_CHUNK = 64
"""Rows whose quadrature nodes, a gross each, stay in a core's cache."""
_TINY = 1e-30
"""Of the probability of a count above zero, as in the likelihood."""


class Slopes(NamedTuple):
    """A log-density at predictors f, g and the logarithm of the dispersion, a, and derivatives."""

    value: AnyNDArray
    f: AnyNDArray
    g: AnyNDArray
    a: AnyNDArray
    ff: AnyNDArray
    gg: AnyNDArray
    aa: AnyNDArray
    fa: AnyNDArray
    ga: AnyNDArray


class Part(NamedTuple):
    """A log-probability of the count alone, and its derivatives."""

    value: AnyNDArray
    f: AnyNDArray
    a: AnyNDArray
    ff: AnyNDArray
    aa: AnyNDArray
    fa: AnyNDArray


def zero_terms(
    likelihood: Likelihood,
    mean: AnyNDArray,
    var: AnyNDArray,
    Y: AnyNDArray,
    variables: Sequence[tf.Variable],
) -> Terms | None:
    """
    What counts of mean ``exp(f)`` say that are zero with a probability of its own, a link of g.

    The same quadrature as the likelihood's own.

    :param mean: of f and g, [n, 2].
    :param var: of f and g, not negative, [n, 2].
    :param Y: [n, 1].
    :param variables: of the likelihood's parameters, in which derivatives are wanted.
    :return: values [n], slopes and precisions [n, 2]; None of another likelihood or other
        variables, and of rows that are an error elsewhere.
    """
    kind, y = type(likelihood), Y[:, 0]
    if kind not in (ZeroInflated, Hurdle):
        return None
    if not isinstance(likelihood.quadrature, NDiagGHQuadrature) or Y.shape[1] != 1:
        return None
    if not np.all((y >= 0.0) & (np.round(y) == y)):
        return None
    alpha = None if likelihood.alpha is None else PositiveParameter.of(likelihood.alpha)
    own = None if alpha is None else likelihood.alpha.unconstrained_variable
    if any(v is not own for v in variables):
        return None
    nodes, weights = np.asarray(likelihood.quadrature.Z), np.ravel(likelihood.quadrature.dZ)
    size = None if alpha is None else 1.0 / alpha.value
    log_density = inflated if kind is ZeroInflated else hurdle
    found = Slopes(*(np.empty(len(y)) for _ in Slopes._fields))
    precision = np.empty_like(mean)

    def fill(start: int) -> None:
        at = slice(start, start + _CHUNK)
        sd = np.sqrt(var[at])
        f, g = (mean[at, i, None] + sd[:, i, None] * nodes[:, i] for i in (0, 1))
        with np.errstate(over="ignore", invalid="ignore"):  # the caller judges what comes of it
            links = log_probabilities(likelihood.link, g)
            every = log_density(f, links, y[at, None], size)
        for into, term in zip(found, every):
            into[at] = term @ weights
        bends = np.stack([found.ff[at], found.gg[at]], axis=1)
        for i, slope in enumerate((every.f, every.g)):
            # that of the quadrature, which a bound that is made of it rises along
            moved = -(slope @ (nodes[:, i] * weights))
            known = sd[:, i] > SURE
            np.divide(moved, sd[:, i], out=moved, where=known)
            precision[at, i] = np.where(known, moved, -bends[:, i])

    each(fill, range(0, len(y), _CHUNK))
    slope = np.stack([found.f, found.g], axis=1)
    if not variables or alpha is None:
        return Terms(found.value, slope, precision, None)
    rate, turn = alpha.rate, alpha.turn
    across = rate * np.stack([found.fa, found.ga], axis=1)
    dispersed = OwnSlopes(rate * found.a, rate**2 * found.aa + turn * found.a, across)
    return Terms(found.value, slope, precision, dispersed)


def inflated(f: AnyNDArray, links: tuple[Log, Log], y: AnyNDArray, size: float | None) -> Slopes:
    """
    Of a zero or else a count, which may be zero as well (Lambert 1992).

    :param f: logarithm of the count's mean, [n, Q].
    :param links: logarithms of the zero's probability and of what is left, by g, [n, Q].
    :param y: [n, 1].
    :param size: one over the dispersion; None for Poisson counts.
    """
    count, empty = counted(f, y, size), counted(f, np.zeros_like(y), size)
    zero, some = links
    above = Slopes(
        count.value + some.value,
        count.f,
        some.first,
        count.a,
        count.ff,
        some.second,
        count.aa,
        count.fa,
        0.0 * f,
    )
    value = np.logaddexp(zero.value, some.value + empty.value)
    p = np.exp(some.value + empty.value - value)  # that a zero is a count
    q = np.exp(zero.value - value)
    away = some.first - zero.first
    below = Slopes(
        value,
        p * empty.f,
        zero.first + p * away,
        p * empty.a,
        p * empty.ff + p * q * empty.f**2,
        q * zero.second + p * some.second + p * q * away**2,
        p * empty.aa + p * q * empty.a**2,
        p * empty.fa + p * q * empty.a * empty.f,
        p * q * empty.a * away,
    )
    return Slopes(*(np.where(y > 0.0, one, other) for one, other in zip(above, below)))


def hurdle(f: AnyNDArray, links: tuple[Log, Log], y: AnyNDArray, size: float | None) -> Slopes:
    """
    Of a zero or else a count above zero (Mullahy 1986).

    :param f: logarithm of the mean of a count that may be zero, [n, Q].
    :param links: logarithms of the zero's probability and of what is left, by g, [n, Q].
    :param y: [n, 1].
    :param size: one over the dispersion; None for Poisson counts.
    """
    count, empty = counted(f, y, size), counted(f, np.zeros_like(y), size)
    some = -np.expm1(empty.value)
    kept = some > _TINY
    odds = np.divide(np.exp(empty.value), some, out=np.zeros_like(some), where=kept)
    turn = odds + odds**2
    zero, left = links
    none = 0.0 * f
    above = Slopes(
        count.value - np.log(np.maximum(some, _TINY)) + left.value,
        count.f + odds * empty.f,
        left.first,
        count.a + odds * empty.a,
        count.ff + odds * empty.ff + turn * empty.f**2,
        left.second,
        count.aa + odds * empty.aa + turn * empty.a**2,
        count.fa + odds * empty.fa + turn * empty.a * empty.f,
        none,
    )
    below = Slopes(zero.value, none, zero.first, none, none, zero.second, none, none, none)
    return Slopes(*(np.where(y > 0.0, one, other) for one, other in zip(above, below)))


def counted(f: AnyNDArray, y: AnyNDArray, size: float | None) -> Part:
    """
    Log-probability of Poisson counts, or negative binomial ones of variance ``mu + mu^2 / size``.

    :param f: logarithm of their mean, [n, Q].
    :param y: [n, 1].
    :param size: one over the dispersion, ``exp(-a)``; None for Poisson counts.
    """
    if size is None:
        mean, none = np.exp(f), 0.0 * f
        return Part(y * f - mean - gammaln(y + 1.0), y - mean, none, -mean, none, none)
    odds = f - np.log(size)
    soft, rate = np.logaddexp(0.0, odds), expit(odds)
    bend, total = rate * (1.0 - rate), y + size
    ways = gammaln(total) - gammaln(size) - gammaln(y + 1.0)
    first = size * (digamma(total) - digamma(size))
    second = first + size**2 * (polygamma(1, total) - polygamma(1, size))
    return Part(
        ways + y * odds - total * soft,
        y - total * rate,
        y - first + size * soft - total * rate,
        -total * bend,
        second - size * soft + 2.0 * size * rate - total * bend,
        size * rate - total * bend,
    )
