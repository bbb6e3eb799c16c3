"""
Transforms of parameters, without TFP's memory of what was transformed before.

That memory takes a millisecond or more each time a parameter is made or read, here for nothing.
"""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import TensorType


class Exponential(tfp.bijectors.Exp):  # type: ignore[misc]
    """The exponential function."""

    def forward(self, x: TensorType, name: str = "forward", **kwargs: Any) -> tf.Tensor:
        return tf.exp(x)

    def inverse(self, y: TensorType, name: str = "inverse", **kwargs: Any) -> tf.Tensor:
        return tf.math.log(y)


class Softplus(tfp.bijectors.Softplus):  # type: ignore[misc]
    """log(1 + exp(x)), GPflow's default transform."""

    def forward(self, x: TensorType, name: str = "forward", **kwargs: Any) -> tf.Tensor:
        return tf.math.softplus(x)

    def inverse(self, y: TensorType, name: str = "inverse", **kwargs: Any) -> tf.Tensor:
        return y + tf.math.log(-tf.math.expm1(-y))


class Identity(tfp.bijectors.Identity):  # type: ignore[misc]
    """The identity."""

    def forward(self, x: TensorType, name: str = "forward", **kwargs: Any) -> tf.Tensor:
        return tf.convert_to_tensor(x)

    def inverse(self, y: TensorType, name: str = "inverse", **kwargs: Any) -> tf.Tensor:
        return tf.convert_to_tensor(y)


# shared instances: to make one is a good part of making a parameter
exponential = functools.cache(Exponential)
softplus = functools.cache(Softplus)
identity = functools.cache(Identity)
