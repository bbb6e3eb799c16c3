"""Kernels as functions: of columns, of values of their parameters, in a given precision."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import operator
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import Parameter, TensorType
from gpflow.kernels import Combination, Constant, IsotropicStationary, Kernel
from gpflow.likelihoods import Likelihood
from gpflow.utilities.ops import square_distance

Columns = tuple[int, ...]
Part = TypeVar("Part", Kernel, Likelihood)


def kernel_columns(kernel: Kernel) -> Columns | None:
    """The columns of X that ``kernel`` reads, sorted, or ``None`` for "every column"."""
    if isinstance(kernel, Constant):
        return ()
    if isinstance(kernel, Combination):
        union: set[int] = set()
        for part in kernel.kernels:
            columns = kernel_columns(part)
            if columns is None:
                return None
            union.update(columns)
        return tuple(sorted(union))
    return _active_columns(kernel)


def _active_columns(kernel: Kernel) -> Columns | None:
    dims = kernel.active_dims
    if isinstance(dims, slice):
        start = 0 if dims.start is None else dims.start
        if dims.stop is None or dims.stop < 0 or start < 0:
            return None
        return tuple(range(start, dims.stop, dims.step or 1))
    columns = tuple(int(c) for c in np.ravel(dims))
    negative = [c for c in columns if c < 0]
    if negative:
        raise ValueError(
            f"active_dims {list(columns)} of {type(kernel).__name__} count from the end; a "
            "component needs columns counted from the start (0, 1, ...)."
        )
    if len(set(columns)) < len(columns):
        raise ValueError(f"active_dims {list(columns)} of {type(kernel).__name__} repeat a column.")
    return columns


def parameters_of(part: Kernel | Likelihood) -> list[Parameter]:
    """Its parameters, in the order in which :func:`with_values` takes their values."""
    result: list[Parameter] = []
    _mapped(part, result.append)
    return result


def with_values(part: Part, values: Sequence[TensorType]) -> Part:
    """A light shell with other values for the parameters, which gradients reach."""
    # nothing is assigned: threads do not see each other's values
    left = iter(values)
    shell: Part = _mapped(part, lambda _: next(left))
    return shell


def leaves_of(kernel: Kernel, whole: tuple[type[Kernel], ...] = ()) -> list[Kernel]:
    """The kernels that a kernel is made of; those of some classes stay whole."""
    if isinstance(kernel, whole):
        return [kernel]
    if hasattr(kernel, "kernels"):
        return [leaf for part in kernel.kernels for leaf in leaves_of(part, whole)]
    for name in ("base", "base_kernel"):
        if isinstance(getattr(kernel, name, None), Kernel):
            return leaves_of(getattr(kernel, name), whole)
    return [kernel]


def in_double(kernel: Kernel) -> Kernel:
    """The kernel in double precision; evaluate it where GPflow's default float is, too."""
    values = [tf.convert_to_tensor(p) for p in parameters_of(kernel)]
    return with_values(kernel, [tf.cast(v, tf.float64) for v in values])


def _mapped(node: Any, change: Callable[[Parameter], Any]) -> Any:
    """A shell of kernels and collections around what parameters are changed to."""
    if isinstance(node, Parameter):
        return change(node)
    if isinstance(node, (list, tuple)):
        return [_mapped(value, change) for value in node]
    if isinstance(node, Mapping):
        return {name: _mapped(value, change) for name, value in node.items()}
    if isinstance(node, (Kernel, Likelihood)):
        # by way of the dictionary: setting attributes would have TensorFlow track the values
        shell: Any = object.__new__(type(node))
        vars(shell).update(vars(node))
        for name, value in sorted(vars(node).items(), key=operator.itemgetter(0)):
            kinds = Parameter, Kernel, Likelihood, list, tuple, Mapping
            if not name.startswith("_self_") and isinstance(value, kinds):
                vars(shell)[name] = _mapped(value, change)
        return shell
    return node


_LOCK = threading.RLock()
"""Settings are the process's: threads that trace models would leave each other's behind."""


@contextlib.contextmanager
def float_type(dtype: str, least_jitter: float = 0.0) -> Iterator[None]:
    """GPflow's settings for computations in ``dtype``, one thread at a time."""
    with _LOCK:  # nothing within may wait for another thread, such as a reduction over replicas
        config = dataclasses.replace(
            gpflow.config.config(),
            float=np.float32 if dtype == "float32" else np.float64,
            jitter=max(gpflow.config.default_jitter(), least_jitter),
        )
        with gpflow.config.as_context(config):
            yield


_DISTANCE_METHODS = ("scaled_squared_euclid_dist", "scale")
"""The methods that define distances: a subclass may have them depend on anything."""

_WIDTH = 8  # columns, at least, of inputs in single precision: their products take XLA least time


def with_precise_distances(kernel: Kernel) -> Kernel:
    """A light shell of the kernel whose digits in single precision do not depend on the place."""
    # GPflow's |x|^2 + |y|^2 - 2 x'y rounds as |x|^2 does: inputs are taken from their mean
    shell: Kernel = _precise(kernel)
    return shell


def _precise(node: Any) -> Any:
    """``node`` itself where there is nothing in it to change."""
    if isinstance(node, Kernel):
        own = {n: v for n, v in vars(node).items() if not n.startswith("_self_")}
        result = {n: new for n, v in own.items() if (new := _precise(v)) is not v}
        kind, plain = type(node), IsotropicStationary
        if issubclass(kind, plain) and all(
            getattr(kind, name) is getattr(plain, name) for name in _DISTANCE_METHODS
        ):
            result[_DISTANCE_METHODS[0]] = functools.partial(_distances, node)
        if not result:
            return node
        # by way of the dictionary: setting attributes would have TensorFlow track them
        shell: Any = object.__new__(type(node))
        vars(shell).update({**vars(node), **result})
        return shell
    if isinstance(node, Mapping):
        parts = {name: _precise(value) for name, value in node.items()}
        return parts if any(parts[name] is not node[name] for name in parts) else node
    if isinstance(node, (list, tuple)):
        several = [_precise(value) for value in node]
        return several if any(a is not b for a, b in zip(several, node)) else node
    return node


def _distances(
    kernel: IsotropicStationary, X: TensorType, X2: TensorType | None = None
) -> tf.Tensor:
    there = tf.convert_to_tensor(X if X2 is None else X2)
    if there.dtype == tf.float64:  # of sixteen digits few are lost, and none depends on other rows
        return IsotropicStationary.scaled_squared_euclid_dist(kernel, X, X2)
    middle = tf.reduce_mean(there, axis=list(range(there.shape.rank - 1)))
    middle = tf.stop_gradient(middle)  # on which nothing depends
    away = None if X2 is None else _widened(kernel.scale(there - middle))
    return square_distance(_widened(kernel.scale(X - middle)), away)


def _widened(X: tf.Tensor) -> tf.Tensor:
    """[..., D] with columns of zeros: XLA takes twice as long for products of two or three."""
    D = X.shape[-1]
    if D is None or not 1 < D < _WIDTH:
        return X
    return tf.pad(X, [*[[0, 0]] * (X.shape.rank - 1), [0, _WIDTH - D]])
