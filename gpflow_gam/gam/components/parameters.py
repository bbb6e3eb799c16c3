"""Positive hyperparameters of GAMs: optimised in logarithms, with priors."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray, Parameter
from gpflow.config import default_float

from ...bijectors import exponential


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

    :param value: where it starts.
    :param mode: of its prior, in its own unit.
    :param spread: of its prior, in logarithms.
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
    """
    A positive parameter that is optimised in logarithms, with a log-logistic prior.

    :param value: where it starts.
    :param scale: of the density ``v^(shape - 1) / (1 + (v / scale)^shape)^2``, in its own unit.
    :param shape: of it.
    """
    prior = _log_logistic(float(np.log(scale)), 1.0 / shape, np.dtype(default_float()))
    return Parameter(value, transform=exponential(), prior=prior)
