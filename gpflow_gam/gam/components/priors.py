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
    A log-logistic prior ``v^(shape - 1) / (1 + (v / scale)^shape)^2`` of a variance over its size.

    With shape 1 it is flat below ``scale`` (REML); beyond, it keeps separable classes finite.
    """

    shape: float
    scale: float = 20.0
    start: float = 2.0


class LogNormal(NamedTuple):
    """A log-normal prior of a variance over its natural size; spread is in logarithms."""

    mode: float
    spread: float
    start: float


VariancePrior = Union[LogLogistic, LogNormal]


class VariancePriors(NamedTuple):
    """Priors of variances; ``level`` is of the mean of what a number multiplies."""

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
    """A positive parameter, optimised in logarithms, where its prior is N(log mode, spread^2)."""
    # GPflow's density is of the parameter itself: it peaks at exp(location - spread^2)
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
