"""Kernels of distances between inputs that are far from the origin."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from gpflow.base import TensorType
from gpflow.kernels import IsotropicStationary, Kernel
from gpflow.utilities.ops import square_distance

_SETTLING = ("scaled_squared_euclid_dist", "scale")
"""What distances are: a subclass that has its own may have them depend on anything."""

_WIDTH = 8
"""Columns, at least, of inputs in single precision: their products take XLA least time."""


def with_precise_distances(kernel: Kernel) -> Kernel:
    """
    The kernel, whose digits do not depend on where inputs are: a light shell, of the same values.

    GPflow has squared distances as ``|x|^2 + |y|^2 - 2 x'y``, which rounds as ``|x|^2`` does: in
    single precision, a thousand lengthscales from the origin, by .1. Here isotropic kernels, the
    kernel itself or those that it is made of, take distances of inputs measured from their mean,
    which are the same; in double precision distances are GPflow's own. What else a kernel does with
    inputs, it does with them as they are.

    :param kernel: any GPflow kernel, which stays as it is; gradients reach its parameters.
    """
    shell: Kernel = _precise(kernel)
    return shell


def _precise(node: Any) -> Any:
    """``node`` itself where there is nothing in it to change."""
    if isinstance(node, Kernel):
        own = {n: v for n, v in vars(node).items() if not n.startswith("_self_")}
        found = {n: new for n, v in own.items() if (new := _precise(v)) is not v}
        if isinstance(node, IsotropicStationary) and _settled(type(node)):
            found[_SETTLING[0]] = functools.partial(_distances, node)
        if not found:
            return node
        # by way of the dictionary: setting attributes would have TensorFlow track them
        shell: Any = object.__new__(type(node))
        vars(shell).update({**vars(node), **found})
        return shell
    if isinstance(node, Mapping):
        parts = {name: _precise(value) for name, value in node.items()}
        return parts if any(parts[name] is not node[name] for name in parts) else node
    if isinstance(node, (list, tuple)):
        several = [_precise(value) for value in node]
        return several if any(a is not b for a, b in zip(several, node)) else node
    return node


def _settled(own: type[Kernel]) -> bool:
    return all(getattr(own, name) is getattr(IsotropicStationary, name) for name in _SETTLING)


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
    """[..., D] with columns of zeros, which no distance has in it: products of two or three columns
    take XLA twice as long as those of eight."""
    D = X.shape[-1]
    if D is None or not 1 < D < _WIDTH:
        return X
    return tf.pad(X, [*[[0, 0]] * (X.shape.rank - 1), [0, _WIDTH - D]])
