"""Priors of hyperparameters, relative to the natural sizes of the data."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple, Union

import numpy as np
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray, Parameter
from gpflow.config import default_float

from ...bijectors import exponential

LENGTHSCALE = 0.45, 0.9
"""Where a lengthscale's prior peaks against its column's span; its deviation in logarithms."""
START, SPACINGS = 0.35, 3.0
"""
Where optimisation starts: at so much of the span, or at so many spacings between inducing inputs
where that is less. From a long one it takes quick changes for noise, and stays.
"""
CYCLIC_LENGTHSCALE = 0.7, 0.6
"""The same of the dimensionless lengthscale of a periodic kernel."""


class LogLogistic(NamedTuple):
    """
    A log-logistic prior of a variance against its natural size.

    With shape 1 the density is flat below ``scale``: the fitted variance maximises the marginal
    likelihood (REML). With shape 1.5 the density grows as the standard deviation there. Beyond
    ``scale`` it falls, so that separable classes do not drive a variance to infinity.

    :param shape: of the density ``v^(shape - 1) / (1 + (v / scale)^shape)^2``.
    :param scale: beyond which it falls.
    :param start: where optimisation starts: from a small variance an effect is hardly seen.
    """

    shape: float
    scale: float = 20.0
    start: float = 2.0


class LogNormal(NamedTuple):
    """
    A log-normal prior of a variance against its natural size.

    :param mode: where it peaks in the logarithm.
    :param spread: its deviation in logarithms.
    :param start: where optimisation starts.
    """

    mode: float
    spread: float
    start: float


VariancePrior = Union[LogLogistic, LogNormal]


class VariancePriors(NamedTuple):
    """
    Priors of variances.

    :param trend: of the straight part of a smooth, over its column's span.
    :param deviation: of a smooth's deviation from it.
    :param selected_trend: of the straight part of a smooth that may vanish (``select=True``).
    :param selected_deviation: of its deviation from that.
    :param level: of the mean of what a number multiplies.
    :param other: of all other components.
    """

    trend: VariancePrior
    deviation: VariancePrior
    selected_trend: VariancePrior
    selected_deviation: VariancePrior
    level: VariancePrior
    other: VariancePrior

    def of_smooth(self, select: bool) -> tuple[VariancePrior, VariancePrior]:
        """Of the straight part of a smooth and of its deviation from it."""
        if select:
            return self.selected_trend, self.selected_deviation
        return self.trend, self.deviation

    def to_json(self) -> list[list[Any]]:
        """As plain values."""
        return [[type(prior).__name__, *prior] for prior in self]

    @classmethod
    def from_json(cls, content: Sequence[Sequence[Any]]) -> VariancePriors:
        """From :meth:`to_json`."""
        kinds = {"LogLogistic": LogLogistic, "LogNormal": LogNormal}
        return cls(*(kinds[name](*numbers) for name, *numbers in content))


FLAT, GROWING = LogLogistic(1.0), LogLogistic(1.5)
PRIORS = VariancePriors(
    trend=GROWING,
    deviation=FLAT,
    selected_trend=FLAT,
    selected_deviation=FLAT,
    level=GROWING,
    other=FLAT,
)
"""
The defaults. One coefficient says little about its own variance, and the marginal likelihood often
puts that at zero: the variance of a line or a level is kept away from zero, so that they are hardly
shrunk.
"""
UNPENALISED = 900.0
"""The variance of effects of levels, and of a line over its column's span, that nothing shrinks."""
INDEPENDENT = 0.5, 1.5
"""The same of what of areas is independent, against what is like their neighbours."""
SINGLE_ROWS = LogNormal(0.5, 3.0, 2.0)
"""Of areas with one row each, which neighbours alone tell from noise."""
SPEED = 1.0
"""The deviation, in logarithms, of an adaptive function's speeds."""
INTERACTION_LENGTHSCALE = 0.7, 0.8
"""A lengthscale's prior in an interaction: few data tell its shape."""
INTERACTION_VARIANCE = LogNormal(0.005, 2.0, 0.005)
"""Of an interaction: most of what happens is in main effects."""


# --- parameters with priors ----------------------------------------------------------------------


@functools.lru_cache(256)
def _log_normal(location: float, spread: float, dtype: np.dtype[Any]) -> Any:
    """One for all parameters of the same prior: making one takes longer than all else of them."""
    return tfp.distributions.LogNormal(np.array(location, dtype), np.array(spread, dtype))


def positive_parameter(
    value: float | AnyNDArray, mode: float | AnyNDArray, spread: float
) -> Parameter:
    """
    A positive parameter that is optimised in logarithms, where its prior is N(log mode, spread^2).

    GPflow adds the density of the parameter itself, whose mode is not its logarithm's and runs to
    zero as ``spread`` grows: a log-normal density peaks at ``exp(location - spread^2)``.
    """
    location = np.log(mode) + spread**2
    dtype: Any = np.dtype(default_float())
    if np.ndim(location) == 0:
        prior = _log_normal(float(location), spread, dtype)
    else:
        prior = tfp.distributions.LogNormal(location.astype(dtype), np.array(spread, dtype))
    return Parameter(value, transform=exponential(), prior=prior)


@functools.lru_cache(256)
def _log_logistic(location: float, scale: float, dtype: np.dtype[Any]) -> Any:
    return tfp.distributions.LogLogistic(np.array(location, dtype), np.array(scale, dtype))


def log_logistic_parameter(value: float, scale: float, shape: float) -> Parameter:
    """A positive parameter that is optimised in logarithms, with a log-logistic prior."""
    prior = _log_logistic(float(np.log(scale)), 1.0 / shape, np.dtype(default_float()))
    return Parameter(value, transform=exponential(), prior=prior)
