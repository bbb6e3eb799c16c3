"""Positive hyperparameters as GAMs have them: in logarithms, with log-normal priors."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray, Parameter, TensorType
from gpflow.config import default_float


class Exponential(tfp.bijectors.Exp):  # type: ignore[misc]
    """
    The exponential function, without TFP's memory of what was transformed before.

    That memory takes milliseconds each time a parameter is made or read, here for nothing.
    """

    def forward(self, x: TensorType, name: str = "forward", **kwargs: Any) -> tf.Tensor:
        """exp(x)."""
        return tf.exp(x)

    def inverse(self, y: TensorType, name: str = "inverse", **kwargs: Any) -> tf.Tensor:
        """log(y)."""
        return tf.math.log(y)


@functools.cache
def exponential() -> Exponential:
    """One for all parameters: making one is a good part of making a parameter."""
    return Exponential()


def positive_parameter(
    value: float | AnyNDArray, mode: float | AnyNDArray, spread: float
) -> Parameter:
    """
    A positive parameter that is optimised in logarithms, where its prior is N(log mode, spread^2).

    GPflow adds the density of the parameter itself, whose mode is not its logarithm's and runs to
    zero as ``spread`` grows: a log-normal density peaks at ``exp(location - spread^2)``.
    """
    location: AnyNDArray = np.array(np.log(mode) + spread**2, default_float())
    prior = tfp.distributions.LogNormal(location, np.array(spread, default_float()))
    return Parameter(value, transform=exponential(), prior=prior)
