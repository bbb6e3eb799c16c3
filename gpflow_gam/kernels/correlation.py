"""Kernels as functions of columns and parameters; correlations by distance or between inputs."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import functools
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, Parameter, TensorType
from gpflow.kernels import (
    Combination,
    Constant,
    Exponential,
    IsotropicStationary,
    Kernel,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    Product,
    SquaredExponential,
)
from gpflow.likelihoods import Likelihood
from gpflow.utilities.ops import square_distance
from numpy.polynomial import Polynomial

from ..bijectors import values_of

Columns = tuple[int, ...]
Part = TypeVar("Part", Kernel, Likelihood)


def kernel_columns(kernel: Kernel) -> Columns | None:
    """Columns of X that ``kernel`` reads, in its order (sorted, of parts); None: every one."""
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
    return with_values(kernel, values_of(parameters_of(kernel), tf.float64))


def _mapped(
    node: Any,
    change: Callable[[Parameter], Any],
    added: Callable[[Any], dict[str, Any]] = lambda node: {},
) -> Any:
    """A shell of kernels and collections around what changes; itself where nothing does."""
    if isinstance(node, Parameter):
        return change(node)
    if isinstance(node, (list, tuple)):
        values = [_mapped(value, change, added) for value in node]
        return values if any(a is not b for a, b in zip(values, node)) else node
    if isinstance(node, Mapping):
        parts = {name: _mapped(value, change, added) for name, value in node.items()}
        return parts if any(parts[name] is not node[name] for name in parts) else node
    if not isinstance(node, (Kernel, Likelihood)):
        return node
    own = sorted((n, v) for n, v in vars(node).items() if not n.startswith("_self_"))
    changed = {name: _mapped(value, change, added) for name, value in own}
    parts = {n: v for n, v in changed.items() if v is not vars(node)[n]} | added(node)
    if not parts:
        return node
    # by way of the dictionary: setting attributes would have TensorFlow track the values
    shell: Any = object.__new__(type(node))
    vars(shell).update({**vars(node), **parts})
    return shell


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


@contextlib.contextmanager
def in_double_precision() -> Iterator[None]:
    """Whatever GPflow's default, which is left alone where it is that."""
    double = gpflow.config.default_float() == np.float64
    with contextlib.nullcontext() if double else float_type("float64"):
        yield


_DISTANCE_METHODS = ("scaled_squared_euclid_dist", "scale")
"""The methods that define distances: a subclass may have them depend on anything."""

_WIDTH = 8  # columns, at least, of inputs in single precision: their products take XLA least time


def lengthscales_of(kernel: Kernel) -> list[Parameter]:
    """The lengthscales of all leaves of a kernel."""
    found = (getattr(leaf, "lengthscales", None) for leaf in leaves_of(kernel))
    return [lengthscales for lengthscales in found if isinstance(lengthscales, Parameter)]


def with_precise_distances(kernel: Kernel) -> Kernel:
    """A light shell of the kernel whose digits in single precision do not depend on the place."""
    # GPflow's |x|^2 + |y|^2 - 2 x'y rounds as |x|^2 does: inputs are taken from their mean
    shell: Kernel = _mapped(kernel, lambda parameter: parameter, _precise)
    return shell


def _precise(kernel: Any) -> dict[str, Any]:
    """The method of a stationary kernel that takes the place of GPflow's, if it has GPflow's."""
    kind, plain, methods = type(kernel), IsotropicStationary, _DISTANCE_METHODS
    if not issubclass(kind, plain):
        return {}
    own = all(getattr(kind, name) is getattr(plain, name) for name in methods)
    return {methods[0]: functools.partial(_distances, kernel)} if own else {}


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


# --- correlations as functions of scaled distances ------------------------------------------------


@tf.custom_gradient
def _expm1(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """TensorFlow's own gradient takes the exponential anew."""
    y = tf.math.expm1(x)
    return y, lambda dy: dy * (y + 1.0)


class Profile:
    """
    A correlation g at scaled distances ``s = scale |x - y| / lengthscale``.

    ``P(s) exp(-s)``: Matern's correlations of half-integer order.
    """

    scale: float
    reach = 40.0  # scaled distance beyond which g is rounding

    def __init__(self, scale: float, polynomial: list[float]) -> None:
        self.scale = float(scale)
        P = Polynomial(polynomial)
        self._more = np.array([0.0, *polynomial[1:]])  # P - 1
        # dg / ds^2 = (P' - P) exp(-s) / 2 s
        slope = 0.5 * (P.deriv() - P).coef  # type: ignore[no-untyped-call]
        self._rough = bool(slope[0])
        self._slope = slope if self._rough else slope[1:]

    def tensor(self, square: tf.Tensor, deficit: bool = False) -> tf.Tensor:
        """g, or g - 1, at squared scaled distances."""
        s = tf.sqrt(tf.maximum(square, 1e-36))  # GPflow's clip: a finite gradient at zero
        return self._value(s, tf.exp(-s), tf.math.expm1(-s) if deficit else None)

    def array(
        self, square: AnyNDArray, slopes: bool, deficit: bool
    ) -> tuple[AnyNDArray, AnyNDArray | None]:
        """g, or g - 1, and its derivative in ``square``, which may be overwritten."""
        s = np.sqrt(square, out=square)
        e = np.exp(-s)
        value = self._value(s, e, np.expm1(-s) if deficit else None)
        if not slopes:
            return value, None
        slope = _polynomial(self._slope, s) * e
        if self._rough:  # infinite where inputs meet; its product with their distance is zero
            slope = np.divide(slope, s, out=np.zeros_like(s), where=s > 0.0)
        return value, slope

    def _value(self, s: Any, exponential: Any, less_one: Any) -> Any:
        if not self._more.any():
            return exponential if less_one is None else less_one
        more = _polynomial(self._more, s)
        return (1.0 + more) * exponential if less_one is None else less_one + more * exponential


def _polynomial(coefficients: AnyNDArray, s: Any) -> Any:
    """By Horner's rule, at arrays or tensors; a number where the polynomial is constant."""
    *lower, result = coefficients.tolist()
    for a in reversed(lower):
        result = result * s + a if a else result * s
    return result


class _Gauss(Profile):
    """exp(-s^2)."""

    reach = 6.5

    def __init__(self) -> None:
        self.scale = math.sqrt(0.5)

    def tensor(self, square: tf.Tensor, deficit: bool = False) -> tf.Tensor:
        return _expm1(-square) if deficit else tf.exp(-square)

    def array(
        self, square: AnyNDArray, slopes: bool, deficit: bool
    ) -> tuple[AnyNDArray, AnyNDArray | None]:
        np.negative(square, out=square)
        value = np.expm1(square, out=square) if deficit else np.exp(square, out=square)
        if not slopes:
            return value, None
        return value, -value - 1.0 if deficit else -value


PROFILES: dict[type[Kernel], Profile] = {
    SquaredExponential: _Gauss(),
    Exponential: Profile(0.5, [1.0]),
    Matern12: Profile(1.0, [1.0]),
    Matern32: Profile(np.sqrt(3.0), [1.0, 1.0]),
    Matern52: Profile(np.sqrt(5.0), [1.0, 1.0, 1.0 / 3.0]),
}
"""The correlations of GPflow's stationary kernels (Rasmussen & Williams 2006, chapter 4)."""


Values = Callable[[Parameter], AnyNDArray]
"""The constrained value of a parameter."""


def lookup(values: Mapping[int, AnyNDArray]) -> Values:
    """Values of parameters from a mapping by ``id``."""
    return lambda parameter: values[id(parameter)]


Tangent = tuple[Parameter, int | None, AnyNDArray]
"""A parameter, an index into it, and the derivative in the logarithm of that entry."""


class UnknownKernel(Exception):
    """A kernel that has no closed form here."""


class Dual:
    """A matrix and its derivatives in the logarithms of parameters."""

    def __init__(self, value: AnyNDArray, tangents: Sequence[Tangent] = ()) -> None:
        self.value = value
        self.tangents = list(tangents)

    def map(self, linear: Callable[[AnyNDArray], AnyNDArray]) -> Dual:
        return Dual(linear(self.value), [(p, i, linear(t)) for p, i, t in self.tangents])

    def __mul__(self, other: Dual) -> Dual:
        return Dual(
            self.value * other.value,
            [(p, i, t * other.value) for p, i, t in self.tangents]
            + [(p, i, self.value * t) for p, i, t in other.tangents],
        )


class Correlation(abc.ABC):
    """A kernel over its variance, at pairs of fixed inputs."""

    level: bool = False
    """True if it is one where inputs meet, so that a deficit keeps the digits of long scales."""

    @abc.abstractmethod
    def __call__(self, values: Values, slopes: bool, deficit: bool = False) -> Dual:
        """The values at the pairs, less one where ``deficit``; derivatives where ``slopes``."""


class Fixed(Correlation):
    """A matrix without parameters."""

    def __init__(self, value: AnyNDArray) -> None:
        self._dual = Dual(value)

    def __call__(self, values: Values, slopes: bool, deficit: bool = False) -> Dual:
        return self._dual


class _Stationary(Correlation):
    """A function of distances; ``squares`` holds a squared distance [n, m] a lengthscale."""

    level = True

    def __init__(self, profile: Profile, scales: Parameter, squares: list[AnyNDArray]) -> None:
        self._profile, self._scales, self._squares = profile, scales, squares

    def __call__(self, values: Values, slopes: bool, deficit: bool = False) -> Dual:
        places, inverse = self._inverse(values)
        value, slope = self._profile.array(self._distance(inverse), slopes, deficit)
        if slope is None:
            return Dual(value)
        # dk / d log length = -2 (d / length^2) dk/ds2
        parts = zip(places, inverse, self._squares)
        return Dual(value, [(self._scales, i, (-2.0 * s * d) * slope) for i, s, d in parts])

    def _inverse(self, values: Values) -> tuple[Sequence[int | None], list[float]]:
        """Indices of lengthscales in their parameter, and the inverses of their squares."""
        scales = values(self._scales)
        places = (None,) if np.ndim(scales) == 0 else range(len(scales))
        with np.errstate(divide="ignore", over="ignore", under="ignore"):  # a search may go far
            return places, np.ravel(self._profile.scale**2 / np.square(scales)).tolist()

    def _distance(self, inverse: Sequence[float]) -> AnyNDArray:
        """Squared and scaled."""
        total: AnyNDArray = self._squares[0] * inverse[0]
        for d, s in zip(self._squares[1:], inverse[1:]):
            total += d * s
        return total


class Pairs(NamedTuple):
    """Rows of A with rows of B: all of them, [n, m], or those of one place, [n]."""

    A: AnyNDArray
    B: AnyNDArray
    elementwise: bool = False

    def column(self, which: int) -> tuple[AnyNDArray, AnyNDArray]:
        """The values of a column, so that they broadcast to the pairs."""
        a, b = self.A[:, which], self.B[:, which]
        return (a if self.elementwise else a[:, None]), b

    def mapped(self, change: Callable[[AnyNDArray], AnyNDArray]) -> Pairs:
        return Pairs(change(self.A), change(self.B), self.elementwise)


def correlation_of(kernel: Kernel, pairs: Pairs) -> Correlation:
    """The correlation of a kernel: its ``pair_correlation``, or of GPflow's what is here."""
    own = getattr(kernel, "pair_correlation", None)
    if own is not None:
        return own(pairs)  # type: ignore[no-any-return]
    if type(kernel) not in _OF_GPFLOW:
        raise UnknownKernel
    return _OF_GPFLOW[type(kernel)](kernel, pairs)


class Correlations:
    """The correlations of one kernel at several sets of pairs."""

    def __init__(self, kernel: Kernel, *pairs: Pairs) -> None:
        self._parts = [correlation_of(kernel, part) for part in pairs]
        self.level = self._parts[0].level
        self.fixed = all(isinstance(part, Fixed) for part in self._parts)

    def __call__(self, values: Values, slopes: bool, deficit: bool = False) -> list[Dual]:
        return [part(values, slopes, deficit) for part in self._parts]


def only_column(kernel: Kernel) -> int:
    """The one column that a kernel reads."""
    columns = kernel_columns(kernel)
    if columns is None or len(columns) != 1:
        raise UnknownKernel
    return columns[0]


# --- GPflow's kernels -----------------------------------------------------------------------------


def _stationary(kernel: Kernel, pairs: Pairs) -> Correlation:
    columns = kernel_columns(kernel)
    if columns is None:
        raise UnknownKernel
    squares = [np.square(np.subtract(*pairs.column(c))) for c in columns]
    if kernel.lengthscales.shape.rank == 0 or kernel.lengthscales.shape == [1]:
        squares = [functools.reduce(np.add, squares)]
    return _Stationary(PROFILES[type(kernel)], kernel.lengthscales, squares)


def _periodic(kernel: Periodic, pairs: Pairs) -> Correlation:
    base = kernel.base_kernel
    if type(base) is not SquaredExponential or kernel.period.trainable:
        raise UnknownKernel
    if kernel.period.shape.rank or base.lengthscales.shape.rank:
        raise UnknownKernel
    apart = np.subtract(*pairs.column(only_column(base)))
    sine = np.sin(np.pi * apart / float(kernel.period.numpy()))
    return _Stationary(PROFILES[SquaredExponential], base.lengthscales, [np.square(sine)])


def _constant(kernel: Constant, pairs: Pairs) -> Correlation:
    n, m = len(pairs.A), len(pairs.B)
    return Fixed(np.ones(n if pairs.elementwise else (n, m)))


class _Multiplied(Correlation):
    """A product."""

    def __init__(self, kernel: Product, pairs: Pairs) -> None:
        self._factors = [correlation_of(k, pairs) for k in kernel.kernels]

    def __call__(self, values: Values, slopes: bool, deficit: bool = False) -> Dual:
        return functools.reduce(Dual.__mul__, (f(values, slopes) for f in self._factors))


_OF_GPFLOW: dict[type[Kernel], Callable[[Any, Pairs], Correlation]] = {
    **dict.fromkeys(PROFILES, _stationary),
    Periodic: _periodic,
    Constant: _constant,
    Product: _Multiplied,
}
