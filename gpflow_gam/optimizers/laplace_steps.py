"""How far from their optimum hyperparameters may be: steps of a normal, but where it is flat."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from gpflow.base import AnyNDArray
from scipy.stats import norm, qmc

from ..errors import NotPositiveDefinite
from .minimizers import descend
from .minimizers.descent import Loss

_NUM_DRAWS = 32
_MAX_SD = 1.0
"""Deviation in a (logarithmic) hyperparameter up to which the objective is taken for a parabola."""
_TRIED = 2.0
"""How far from the optimum it is looked at where it is flatter."""
_FARTHEST_SD = 4.0
"""Where it is flat there, too, the draws go no further."""


def standard_normal(dimension: int) -> AnyNDArray:
    """Points [32, K] of a normal distribution, in pairs of opposite ones."""
    uniform = qmc.Sobol(dimension, seed=0).random(_NUM_DRAWS // 2)
    z = norm.ppf(np.clip(uniform, 1e-3, 1.0 - 1e-3))
    points: AnyNDArray = np.concatenate([z, -z])
    return points


_MAX_STEPS, _TOLERANCE = 60, 1e-8
"""Of the search for the centre of draws."""


def centre_of_draws(
    loss: Loss,
    start: AnyNDArray,
    slopes: AnyNDArray,
    metric: Callable[[AnyNDArray], AnyNDArray | None] = lambda _: None,
) -> AnyNDArray:
    """
    The coordinates [K] around which hyperparameters are drawn.

    The fitted ones, where the density of a variance is highest, may have variances of zero; the
    density of their logarithms with a prior that is flat in standard deviations is highest where
    data begin to tell an effect from none.

    :param loss: minus the log density at coordinates, and its gradient.
    :param start: where it is least, but for variances that have vanished, [K].
    :param slopes: of what the prior of the coordinates adds to that log density, [K]; nothing moves
        where all are zero.
    """
    if not slopes.any():
        return start

    def tilted(u: AnyNDArray) -> tuple[float, AnyNDArray]:
        value, gradient = loss(u)
        return value - float(slopes @ u), gradient - slopes

    try:
        return descend(tilted, start, _MAX_STEPS, _TOLERANCE, None, metric=metric)[0]
    except NotPositiveDefinite:
        return start


class Steps:
    """
    Steps from an optimum as far as the objective lets hyperparameters go.

    Where it is a parabola they are normal (Laplace). The variance of an effect that has vanished
    is another matter: towards zero nothing changes, and upwards it is the data that say how large
    the effect may be after all. There, the deviation on either side is that of the parabola through
    what the objective comes to further on (as Rue, Martino & Chopin 2009, section 6.5, have it).

    :param value: minus the objective at coordinates.
    :param optimum: [K].
    :param hessian: of ``value``, [K, K].
    """

    def __init__(
        self, value: Callable[[AnyNDArray], float], optimum: AnyNDArray, hessian: AnyNDArray
    ) -> None:
        self._factor = _factor(hessian)
        sd = np.sqrt(np.sum(np.square(self._factor), axis=1))
        self._up, self._down = np.ones(len(optimum)), np.ones(len(optimum))
        flat = np.flatnonzero(np.diag(hessian) < 1.0 / _MAX_SD**2)
        here = value(optimum) if len(flat) else 0.0
        for i in flat:
            for reach, step in ((self._up, _TRIED), (self._down, -_TRIED)):
                there = optimum.copy()
                there[i] += step
                try:
                    risen = max(value(there) - here, 0.5 * (_TRIED / _FARTHEST_SD) ** 2)
                except NotPositiveDefinite:
                    continue
                reach[i] = _TRIED / np.sqrt(2.0 * risen) / sd[i]

    def __call__(self, point: AnyNDArray) -> AnyNDArray:
        """The step [K] of a standard normal point [K]."""
        step = self._factor @ point
        return step * np.where(step > 0.0, self._up, self._down)


def _factor(hessian: AnyNDArray) -> AnyNDArray:
    """
    The symmetric square root of the inverse of a Hessian.

    It alone does not hang on which eigenvectors are taken of eigenvalues that are nearly equal, as
    those of several effects that have vanished are.
    """
    values, vectors = np.linalg.eigh(hessian)
    sd = np.minimum(1.0 / np.sqrt(np.maximum(values, 1e-12)), _MAX_SD)
    factor: AnyNDArray = (vectors * sd) @ vectors.T
    return factor
