"""
Transforms of parameters without TFP's memory, models at one time, and tracing as written.

That memory takes a millisecond or more each time a parameter is made or read, here for nothing.
"""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import Parameter, TensorType
from gpflow.utilities import parameter_dict


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


def by_path(module: tf.Module) -> dict[str, tf.Variable]:
    """Every variable by its path: unconstrained values, which no transform rounds."""
    return {
        path: p.unconstrained_variable if isinstance(p, Parameter) else p
        for path, p in parameter_dict(module).items()
    }


# --- parts of models that many threads may read ---------------------------------------------------


M = TypeVar("M", bound=tf.Module)


def frozen_copy(module: M) -> M:
    """A copy that many threads may read: transforms of TFP share a cache, which two break."""
    own = copy.deepcopy(module)  # GPflow's looks through that dictionary first
    for parameter in own.parameters:
        transform = _without_memory(parameter.transform)
        parameter._bijector = transform
        parameter._transform_fn = transform
    return own


@contextlib.contextmanager
def without_bijector_cache(module: tf.Module) -> Iterator[None]:
    """Make a graph without caches of bijectors, in which inputs and outputs keep each other."""
    own = [(p, p._bijector, p._transform_fn) for p in module.parameters]
    for parameter, *_ in own:
        transform = _without_memory(parameter.transform)
        parameter._bijector = parameter._transform_fn = transform
    try:
        yield
    finally:
        for parameter, bijector, function in own:
            parameter._bijector, parameter._transform_fn = bijector, function


class _NoMemory:
    """Stands where a transform has its memory."""

    def __init__(self, bijector: tfp.bijectors.Bijector) -> None:
        self._bijector = bijector

    def forward(self, x: tf.Tensor, **kwargs: Any) -> tf.Tensor:
        """The transform."""
        return self._bijector._forward(x, **kwargs)

    def inverse(self, y: tf.Tensor, **kwargs: Any) -> tf.Tensor:
        """Its inverse."""
        return self._bijector._inverse(y, **kwargs)

    def inverse_attributes(self, y: tf.Tensor, **kwargs: Any) -> dict[str, Any]:
        """Nothing is known of y, such as the derivative there."""
        return {}

    def clear(self) -> None:
        """There is nothing to forget; GPflow asks for it before it copies."""


def _without_memory(bijector: tfp.bijectors.Bijector) -> tfp.bijectors.Bijector:
    own = copy.copy(bijector)
    if isinstance(own, tfp.bijectors.Chain):
        own._bijectors = [_without_memory(part) for part in own.bijectors]
    own._cache = _NoMemory(own)
    return own


@contextlib.contextmanager
def restore_on_error(model: tf.Module) -> Iterator[None]:
    """Puts all variables of a model back to what they were before, where an error comes out."""
    before = [(v, v.numpy()) for v in model.variables]
    try:
        yield
    except BaseException:
        for variable, value in before:
            variable.assign(value)
        raise


# --- tracing --------------------------------------------------------------------------------------


C = TypeVar("C", bound=Callable[..., Any])


def as_written(function: C) -> C:
    """Decorator: trace as written; the search of AutoGraph takes longer than the tracing."""
    return cast(C, tf.autograph.experimental.do_not_convert(function))
