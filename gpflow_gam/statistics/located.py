"""Expected log-densities of a location and a scaled error, without TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood

from ..likelihoods import CensoredGaussian, LogNormal, Weibull
from ..likelihoods.standardised import EXACT
from .logistic import OwnSlopes, PositiveParameter, Terms


def located_terms(
    likelihood: Likelihood,
    mean: AnyNDArray,
    var: AnyNDArray,
    Y: AnyNDArray,
    variables: Sequence[tf.Variable],
) -> Terms | None:
    """
    What rows ``t(y) = f + scale e`` say, e normal or the logarithm of an exponential variable.

    :param mean: of f, [n].
    :param var: of f, not negative, [n].
    :param Y: [n, 1], or [n, 3] of rows none of which is censored.
    :param variables: of the likelihood's parameters, in which derivatives are wanted.
    :return: None of another likelihood or other variables, of censored rows, and of rows that are
        an error elsewhere.
    """
    if type(likelihood) not in (CensoredGaussian, LogNormal, Weibull):
        return None
    y, scale = Y[:, 0], likelihood.scale
    if Y.shape[1] not in (1, 3) or (Y.shape[1] == 3 and not np.all(Y[:, 2] == EXACT)):
        return None
    wanted = [v for v in variables if v is not scale.unconstrained_variable]
    if wanted or np.ndim(scale.unconstrained_variable) or not np.all(np.isfinite(y)):
        return None
    if likelihood.logarithm and not np.all(y > 0.0):
        return None
    size = PositiveParameter.of(scale)
    s, log = size.value, np.log(y) if likelihood.logarithm else None
    z, v = ((y if log is None else log) - mean) / s, var / s**2
    unit = np.log(s) + (0.0 if log is None else log)
    if type(likelihood) is Weibull:
        hazard, moved = np.exp(z + 0.5 * v), z + v
        value, slope, precision = z - hazard - unit, (hazard - 1.0) / s, hazard / s**2
        # in the scale's logarithm
        first = hazard * moved - z - 1.0
        second = z - hazard * (moved**2 + z + 2.0 * v)
        across = -(hazard * moved + hazard - 1.0) / s
    else:
        square = z**2 + v
        value = -0.5 * (square + np.log(2.0 * np.pi)) - unit
        slope, precision = z / s, np.full_like(z, 1.0 / s**2)
        first, second, across = square - 1.0, -2.0 * square, -2.0 * slope
    if not variables:
        return Terms(value, slope, precision, None)
    rate, turn = size.rate, size.turn
    own = OwnSlopes(rate * first, rate**2 * second + turn * first, rate * across)
    return Terms(value, slope, precision, own)
