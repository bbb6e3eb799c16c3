"""Logarithms of probabilities behind a link, and their derivatives, without TensorFlow."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from gpflow.base import AnyNDArray
from scipy.special import expit, log_ndtr

from ..likelihoods.links import LARGEST

_EDGE = np.log(LARGEST)
_LEAST = -700.0
"""Predictor below which its exponential underflows."""


class Log(NamedTuple):
    """Of a logarithm at predictors: value, first and second derivative, [...] each."""

    value: AnyNDArray
    first: AnyNDArray
    second: AnyNDArray


def log_probabilities(link: str, g: AnyNDArray) -> tuple[Log, Log]:
    """
    Of success and of failure, by the formulas of :mod:`gpflow_gam.likelihoods.links`.

    :param link: one of ``likelihoods.links.LINKS``.
    :param g: predictors [...].
    """
    if link == "cloglog":
        return _cloglog(g)
    if link == "log":
        return _log(g)
    below = {"logit": _logit, "probit": _probit, "cauchit": _cauchit}[link]
    value, first, second = below(-g)
    return below(g), Log(value, -first, second)


def _logit(g: AnyNDArray) -> Log:
    left = expit(-g)
    return Log(-np.logaddexp(0.0, -g), left, -left * (1.0 - left))


def _probit(g: AnyNDArray) -> Log:
    value = log_ndtr(g)
    ratio = np.exp(-0.5 * np.square(g) - 0.5 * np.log(2.0 * np.pi) - value)
    return Log(value, ratio, -ratio * (g + ratio))


def _cauchit(g: AnyNDArray) -> Log:
    p, inverse = np.arctan2(1.0, -g) / np.pi, 1.0 / (1.0 + np.square(g))
    ratio = inverse / (np.pi * p)
    return Log(np.log(p), ratio, -ratio * (2.0 * g * inverse + ratio))


def _cloglog(g: AnyNDArray) -> tuple[Log, Log]:
    rate = np.exp(np.maximum(g, _LEAST))
    p = -np.expm1(-rate)
    ratio = rate * np.exp(-rate) / p
    hazard = np.exp(g)
    success = Log(np.log(p), ratio, ratio * (1.0 - rate / p))
    return success, Log(-hazard, -hazard, -hazard)


def _log(g: AnyNDArray) -> tuple[Log, Log]:
    """With a line for the logarithm of failure beyond the edge, where success nears one."""
    near, turn = g < _EDGE, LARGEST / (1.0 - LARGEST)
    inside = np.minimum(g, _EDGE)
    odds = np.exp(inside) / -np.expm1(inside)
    line = np.log(1.0 - LARGEST) - turn * np.maximum(g - _EDGE, 0.0)
    left = np.exp(line) / -np.expm1(line)
    success = Log(
        np.where(near, g, np.log1p(-np.exp(line))),
        np.where(near, 1.0, left * turn),
        np.where(near, 0.0, -left * (1.0 + left) * turn**2),
    )
    failure = Log(
        np.where(near, np.log(-np.expm1(inside)), line),
        np.where(near, -odds, -turn),
        np.where(near, -odds * (1.0 + odds), 0.0),
    )
    return success, failure
