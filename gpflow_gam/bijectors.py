"""
Transforms of parameters without TFP's memory, models at one time, and tracing as written.

That memory takes a millisecond or more each time a parameter is made or read, here for nothing.
"""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, cast

import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import Parameter, TensorType
from gpflow.utilities import parameter_dict


class _Bounded(tfp.bijectors.Bijector):  # type: ignore[misc]
    """A function onto positive numbers, plus a lower bound."""

    _onto: Callable[[TensorType], tf.Tensor]
    _back: Callable[[TensorType], tf.Tensor]

    def __init__(self, lower: float = 0.0) -> None:
        super().__init__()
        self.lower = lower

    def forward(self, x: TensorType, name: str = "forward", **kwargs: Any) -> tf.Tensor:
        return self._onto(x) + self.lower if self.lower else self._onto(x)

    def inverse(self, y: TensorType, name: str = "inverse", **kwargs: Any) -> tf.Tensor:
        return self._back(y - self.lower if self.lower else y)

    def _inverse_log_det_jacobian(self, y: tf.Tensor) -> tf.Tensor:
        return -self._forward_log_det_jacobian(self.inverse(y))

    def _get_parameterization(self) -> float:
        """What decides whether two of a class are equal."""
        return self.lower


class Exponential(_Bounded, tfp.bijectors.Exp):  # type: ignore[misc]
    """The exponential function, plus a lower bound."""

    _onto, _back = staticmethod(tf.exp), staticmethod(tf.math.log)


class Softplus(_Bounded, tfp.bijectors.Softplus):  # type: ignore[misc]
    """log(1 + exp(x)), GPflow's default transform, plus a lower bound."""

    _onto = staticmethod(tf.math.softplus)
    _back = staticmethod(lambda y: y + tf.math.log(-tf.math.expm1(-y)))


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


# --- values of several parameters -----------------------------------------------------------------


Forward = Callable[[tf.Tensor], tf.Tensor]
_SOFTPLUS = tfp.bijectors.Softplus()
_ENTRYWISE = (tfp.bijectors.Exp, tfp.bijectors.Shift, tfp.bijectors.Softplus)
"""The parts of the transforms of GPflow's positive parameters."""


def flat_values(parameters: Sequence[Parameter]) -> tf.Tensor:
    """The entries of all parameters, one after the other."""
    if all(p.shape.rank == 0 for p in parameters):
        return read_together(parameters, tf.stack)
    return read_together(parameters, lambda x: tf.concat([tf.reshape(p, [-1]) for p in x], axis=0))


def read_together(
    parameters: Sequence[Parameter], join: Callable[[Sequence[TensorType]], tf.Tensor]
) -> tf.Tensor:
    """Parameters joined; where they have one transform it is asked once, as calls are dear."""
    forward = _shared_transform(parameters)
    if forward is None:
        return join([tf.convert_to_tensor(p) for p in parameters])
    return forward(join([p.unconstrained_variable for p in parameters]))


def _parts(transform: tfp.bijectors.Bijector) -> list[tfp.bijectors.Bijector]:
    return transform.bijectors if isinstance(transform, tfp.bijectors.Chain) else [transform]


def has_softplus(parameter: Parameter) -> bool:
    """True if it is linear in its variable where it is large."""
    parts = _parts(parameter.transform)
    return any(isinstance(part, tfp.bijectors.Softplus) for part in parts)


def _shared_transform(parameters: Sequence[Parameter]) -> Forward | None:
    """The function that constrains all of them, if it is one that works entry by entry."""
    if not all(isinstance(p, Parameter) for p in parameters):
        return None
    first: tfp.bijectors.Bijector = parameters[0].transform
    if hasattr(first, "together"):  # of a layer, which has coordinates of its own
        together: Forward | None = first.together([p.transform for p in parameters])
        return together
    if not all(isinstance(part, _ENTRYWISE) for part in _parts(first)):
        return None
    if not all(p.transform is first or p.transform == first for p in parameters[1:]):
        return None
    forward: Forward = tf.math.softplus if first == _SOFTPLUS else first.forward
    return forward


def values_of(parameters: Sequence[Parameter], dtype: tf.DType | None = None) -> list[tf.Tensor]:
    """Their values, in another precision where one is given."""
    kinds: list[list[Parameter]] = []
    for p in parameters:
        for kind in kinds:
            if kind[0].dtype == p.dtype and _shared_transform([kind[0], p]) is not None:
                kind.append(p)
                break
        else:
            kinds.append([p])
    values = {}
    for kind in kinds:
        flat = flat_values(kind)
        flat = flat if dtype is None else tf.cast(flat, dtype)
        sizes = [p.shape.num_elements() for p in kind]
        parts = zip(kind, tf.split(flat, sizes))
        values.update({id(p): tf.reshape(part, p.shape) for p, part in parts})
    return [values[id(p)] for p in parameters]


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
        return self._bijector._forward(x, **kwargs)

    def inverse(self, y: tf.Tensor, **kwargs: Any) -> tf.Tensor:
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
