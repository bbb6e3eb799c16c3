"""Parts that likelihoods share: weights, dispersions, checks of data, links, terms of rows."""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, NoReturn

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import likelihoods as gpl
from gpflow.base import AnyNDArray, MeanAndVariance, Parameter, RegressionData, TensorType
from gpflow.config import default_float
from gpflow.likelihoods import Likelihood, ScalarLikelihood
from gpflow.quadrature import GaussianQuadrature, NDiagGHQuadrature
from numpy.polynomial.hermite import hermgauss
from scipy import special
from scipy.special import expit

from .. import bijectors
from ..errors import check_choice
from ..kernels import AdditiveKernel
from ..threads import each

NODES = 12
"""Number of quadrature nodes for each of two predictors."""


class Support(NamedTuple):
    """The values that a response can have."""

    holds: Callable[[Any], Any]  # of each element of an array, numpy's or TensorFlow's
    words: str  # what they are

    def __call__(self, Y: Any) -> tuple[Any, str]:
        return self.holds(Y), self.words


POSITIVE = Support(lambda y: y > 0.0, "positive")
AMOUNTS = Support(lambda y: y >= 0.0, "not negative")
SHARES = Support(lambda y: (y > 0.0) & (y < 1.0), "strictly between 0 and 1")
BINARY = Support(lambda y: (y == 0.0) | (y == 1.0), "0 or 1")
COUNTS = Support(lambda y: (y >= 0.0) & (y % 1.0 == 0.0), "whole counts, not negative")


def labels(number: int) -> Support:
    """Labels 0 to number - 1."""
    words = f"whole labels 0 to {number - 1}, one a class"
    return Support(lambda y: COUNTS.holds(y) & (y < number), words)


class GaussHermite(NDiagGHQuadrature):
    """
    GPflow's rule in one dimension, made without TensorFlow, whose first use is slow.

    Expectations of densities (``logspace``) have nodes of their own, as they may be far narrower
    than the predictor: around the integrand's mode, as those of Liu & Pierce (1994), and ever wider
    apart away from it, where tails need not be normal.
    """

    def __init__(self, number: int = 20) -> None:
        points, weights = hermgauss(number)  # type: ignore[no-untyped-call]
        self.dim, self.n_gh, self.n_gh_total = 1, number, number
        self.Z = (np.sqrt(2.0) * points[:, None]).astype(default_float())
        self.dZ = (weights[:, None] / np.sqrt(np.pi)).astype(default_float())

    def logspace(  # type: ignore[override]
        self,
        fun: Callable[..., tf.Tensor],
        mean: TensorType,
        var: TensorType,
        *args: Any,
        **kwargs: Any,
    ) -> tf.Tensor:
        mean, var = tf.convert_to_tensor(mean), tf.convert_to_tensor(var)
        # no smaller than means can tell
        least = np.sqrt(np.finfo(mean.dtype.as_numpy_dtype).eps) * (1.0 + tf.abs(mean))
        sd = tf.sqrt(tf.maximum(var, tf.square(least)))

        def logs(z: tf.Tensor) -> tf.Tensor:
            values = fun(mean + sd * z, *args, **kwargs)
            # where what a density is made of overflows there is none
            return tf.where(tf.math.is_nan(values), tf.constant(-np.inf, values.dtype), values)

        return self._integral(logs, 0.0 * (mean + sd))  # moments that are no numbers stay so

    def _integral(self, logs: Callable[[tf.Tensor], tf.Tensor], zero: tf.Tensor) -> tf.Tensor:
        """The logarithm of the expectation of ``exp(logs(z))``, z standard normal, as zero is."""
        z, width = _nodes_of_density(logs, zero)
        return tf.reduce_logsumexp(logs(z) + width, axis=0)


class GaussHermitePlane(GaussHermite):
    """The rule in two dimensions, with its own number of points in each."""

    def __init__(self, first: int, second: int) -> None:
        lines = GaussHermite(first), GaussHermite(second)
        self.dim, self.n_gh, self.n_gh_total = 2, first, first * second
        self.Z = np.concatenate(
            [np.repeat(lines[0].Z, second, axis=0), np.tile(lines[1].Z, (first, 1))], axis=1
        )
        self.dZ = np.outer(lines[0].dZ, lines[1].dZ).reshape(-1, 1)
        self._second = lines[1]

    def _integral(self, logs: Callable[[tf.Tensor], tf.Tensor], zero: tf.Tensor) -> tf.Tensor:
        def at(z: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
            return logs(tf.concat([z, second + tf.zeros_like(z)], axis=-1))

        # a density is narrow in the first predictor, its location, rather than in its scale
        zero = tf.reduce_sum(zero, axis=-1, keepdims=True)
        z, width = _nodes_of_density(lambda z: at(z, tf.zeros_like(z)), zero)
        second = self._second.Z, np.log(self._second.dZ)
        u, w = (_leading(np.repeat(a, len(_SPREAD)), zero) for a in second)
        z, width = (tf.concat([a] * len(second[0]), axis=0) for a in (z, width))
        return tf.reduce_logsumexp(at(z, u) + width + w, axis=0)


_FAR = np.sinh(np.linspace(-7.0, 7.0, 33))  # standard deviations at which a mode is looked for
_ZOOM, _ZOOMS = np.linspace(-1.0, 1.0, 17), 4
_WIDTHS = 4.0 * 0.5 ** np.arange(15)
_SPREAD = np.linspace(-1.0, 1.0, 49)
_REACH = 9.0  # standard deviations beyond which no predictor is


def _leading(points: AnyNDArray, like: tf.Tensor) -> tf.Tensor:
    """Points [S, 1, ...] along an axis before those of a tensor."""
    return tf.reshape(tf.constant(points, like.dtype), [-1] + [1] * len(like.shape))


def _nodes_of_density(
    logs: Callable[[tf.Tensor], tf.Tensor], zero: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Nodes [S, ...] of the expectation of ``exp(logs(z))``, and logarithms of their weights."""
    far, zoom, widths = (_leading(points, zero) for points in (_FAR, _ZOOM, _WIDTHS))

    def joint(z: tf.Tensor) -> tf.Tensor:
        return logs(z) - 0.5 * tf.square(z)

    def highest(z: tf.Tensor, points: AnyNDArray) -> tf.Tensor:
        """Of points, that at the highest of z [S, ...]."""
        return tf.gather(tf.constant(points, zero.dtype), tf.argmax(joint(z), axis=0))

    z = far + tf.zeros_like(zero)
    mode, half = highest(z, _FAR), highest(z, np.gradient(_FAR))
    for _ in range(_ZOOMS):
        mode += half * highest(mode + half * zoom, _ZOOM)
        half *= 2.0 / (len(_ZOOM) - 1)
    # the largest distance over which it falls by no more than one
    falls = joint(mode[None]) - tf.minimum(joint(mode - widths), joint(mode + widths))
    unit = tf.reduce_max(tf.where(falls <= 1.0, widths, widths[-1]), axis=0)
    steps = tf.asinh((tf.abs(mode) + _REACH) / unit) * (_SPREAD[1] - _SPREAD[0])
    mode, unit, steps = (tf.stop_gradient(part) for part in (mode, unit, steps))
    at = steps * _leading(_SPREAD / (_SPREAD[1] - _SPREAD[0]), zero)
    z = mode + unit * tf.sinh(at)
    density = -0.5 * tf.square(z) - 0.5 * math.log(2.0 * math.pi)
    return z, density + tf.math.log(unit * steps * tf.cosh(at)) + zero


def fixed_unit(unit: TensorType) -> Parameter:
    """A positive number that is saved with a model and never trained."""
    return Parameter(unit, transform=bijectors.exponential(), trainable=False)


class Dispersed(ScalarLikelihood, abc.ABC):
    """``y ~ p(y | f, g)``: f sets the mean, by a link, and g is the logarithm of a dispersion."""

    # g is a parameter, or a second predictor if varying (Rigby & Stasinopoulos 2005).

    # whether the response's mean is a monotone function of the first predictor alone
    mean_of_first: ClassVar[bool] = True
    # nodes of quadrature over g, where the expectation over f is in closed form
    scale_nodes: ClassVar[int] = 20

    def __init__(self, varying: bool = False, **kwargs: Any) -> None:
        kwargs.setdefault(
            "quadrature", GaussHermitePlane(NODES, NODES) if varying else GaussHermite()
        )
        super().__init__(**kwargs)
        self.varying = varying
        if varying:
            self.latent_dim, self.observation_dim = 2, 1
            self._scale_rule = GaussHermite(self.scale_nodes)

    def _log_dispersion(self) -> tf.Tensor:
        """The parameter, as a second predictor would have it."""
        raise NotImplementedError

    def split(self, F: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        """f [..., P] and g, which broadcasts, at predictors ``F``."""
        F = tf.convert_to_tensor(F)
        return (F[..., :1], F[..., 1:]) if self.varying else (F, self._log_dispersion())

    @abc.abstractmethod
    def _log_density(self, f: tf.Tensor, g: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        """Log p(y | f, g)."""

    @abc.abstractmethod
    def _moments(self, f: tf.Tensor, g: tf.Tensor) -> MeanAndVariance:
        """Mean and variance of y."""

    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self._log_density(*self.split(F), Y)

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self._moments(*self.split(F))[0]

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self._moments(*self.split(F))[1]

    def _over_dispersion(
        self, function: Callable[..., tf.Tensor], Fmu: TensorType, Fvar: TensorType
    ) -> tf.Tensor:
        """E[function(mean of f, variance of f, g)] over g: a function that has averaged over f."""
        if not self.varying:
            return function(Fmu, Fvar, self.split(Fmu)[1])
        f, var = Fmu[..., :1], Fvar[..., :1]
        return self._scale_rule(lambda g: function(f, var, g), Fmu[..., 1:], Fvar[..., 1:])


class LocationScale(Dispersed):
    """A location ``u f`` and a scale ``u exp(g)``, u the fixed ``unit`` of a varying scale."""

    # One prior serves both predictors, so f is measured in a unit in which it is about as large as
    # g.

    def __init__(
        self,
        scale: TensorType = 1.0,
        unit: TensorType = 1.0,
        floor: float = 0.0,
        varying: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(varying, **kwargs)
        if varying:
            self.unit = fixed_unit(unit)
        else:  # moved by factors, whatever the response's unit
            self.scale = Parameter(scale, transform=bijectors.exponential(floor))

    def split(self, F: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        """Location and scale at predictors ``F``, in the response's unit."""
        F = tf.convert_to_tensor(F)
        if not self.varying:
            return F, tf.convert_to_tensor(self.scale)
        unit = tf.convert_to_tensor(self.unit)
        return unit * F[..., :1], unit * tf.exp(F[..., 1:])

    def _over_dispersion(
        self, function: Callable[..., tf.Tensor], Fmu: TensorType, Fvar: TensorType
    ) -> tf.Tensor:
        """E[function(mean of location, its variance, scale)] over the scale."""

        def in_unit(f: tf.Tensor, var: tf.Tensor, g: tf.Tensor) -> tf.Tensor:
            unit = tf.convert_to_tensor(self.unit)
            return function(unit * f, tf.square(unit) * var, unit * tf.exp(g))

        return super()._over_dispersion(in_unit if self.varying else function, Fmu, Fvar)


class _Wrapper(Likelihood):
    """A likelihood of the means and variances of another one."""

    def __init__(self, base: Likelihood) -> None:
        super().__init__(None, base.latent_dim, base.observation_dim)
        self.base = base

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.base.conditional_mean(X, F)

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.base.conditional_variance(X, F)

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        return self.base.predict_mean_and_var(X, Fmu, Fvar)


class Weighted(_Wrapper):
    """
    ``base`` whose log-densities are multiplied by a column of X: how often each row counts.

    :param column: number of that column.
    """

    def __init__(self, base: Likelihood, column: int) -> None:
        super().__init__(base)
        self.column = column

    def weights(self, X: TensorType) -> tf.Tensor:
        """
        The weights [...] of inputs ``X`` [..., D].

        :raises ValueError: X has too few columns.
        """
        X = tf.convert_to_tensor(X)
        if X.shape[-1] is not None and X.shape[-1] <= self.column:
            raise ValueError(
                f"X has {X.shape[-1]} columns, but the weights are in column {self.column}."
            )
        return X[..., self.column]

    def _times(self, method: Any, X: TensorType, predictor: Any, Y: TensorType) -> tf.Tensor:
        w = self.weights(X)
        # a row that does not count is moved to 0: 0 times an overflow, or its gradient, is NaN
        counts = tf.not_equal(w, 0.0)
        safe = [tf.where(counts[..., None], p, tf.zeros_like(p)) for p in predictor]
        if len(safe) == 2:
            safe[1] = tf.where(counts[..., None], predictor[1], tf.ones_like(predictor[1]))
        return w * method(X, *safe, Y)

    def _log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self._times(self.base.log_prob, X, [F], Y)

    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return self._times(self.base.variational_expectations, X, [Fmu, Fvar], Y)

    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return self._times(self.base.predict_log_density, X, [Fmu, Fvar], Y)


NO_DENSITIES = (
    "a quasi-likelihood (how a variance goes with a mean, or the loss of a quantile) is no "
    "distribution: there are no densities, and so no loo(), log_density(), AIC or compare(); take "
    "a family that is one, such as 'negative_binomial' for counts."
)


class Quasi(_Wrapper):
    """
    ``log p(y | f) / dispersion`` of ``base``: no density (Wedderburn 1974).

    :param dispersion: fixed, by which variances are larger than those of ``base``.
    """

    def __init__(self, base: Likelihood, dispersion: float = 1.0) -> None:
        super().__init__(base)
        self.dispersion = fixed_unit(dispersion)

    def _log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self.base.log_prob(X, F, Y) / self.dispersion

    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return self.base.variational_expectations(X, Fmu, Fvar, Y) / self.dispersion

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.dispersion * self.base.conditional_variance(X, F)

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        mean, variance = self.base.predict_mean_and_var(X, Fmu, Fvar)
        rule: GaussianQuadrature = NDiagGHQuadrature(int(self.latent_dim or 1), 20)
        within = rule(lambda F: self.base.conditional_variance(X, F), Fmu, Fvar)
        return mean, variance + (self.dispersion - 1.0) * within

    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> NoReturn:
        raise ValueError(NO_DENSITIES)


def unwrapped(likelihood: Likelihood) -> Likelihood:
    """The likelihood of one observation: ``likelihood`` without its weights."""
    return likelihood.base if isinstance(likelihood, Weighted) else likelihood


def is_scalar(likelihood: Likelihood) -> bool:
    """True if each predictor has its own column of Y."""
    likelihood = unwrapped(likelihood)
    return isinstance(likelihood, ScalarLikelihood) and likelihood.latent_dim is None


# --- checks of data -------------------------------------------------------------------------------


_CLASSES = (gpl.Softmax, gpl.MultiClass)
_OF_GPFLOW: dict[type[Likelihood], Support] = {
    gpl.Poisson: COUNTS,
    gpl.Bernoulli: BINARY,
    gpl.Gamma: POSITIVE,
    gpl.Exponential: AMOUNTS,
    gpl.Beta: SHARES,
}


def _support(likelihood: Likelihood, Y: tf.Tensor) -> tuple[tf.Tensor, str] | None:
    """None where all numbers are possible."""
    base: Any = likelihood
    while isinstance(base, Quasi) or hasattr(base, "_links_base"):
        base = base.base
    if isinstance(likelihood, Quasi):  # which has no use for whole numbers
        if hasattr(base, "_support_of_shares"):
            return base._support_of_shares(Y)
        if isinstance(base, gpl.Poisson):
            return AMOUNTS(Y)
    if hasattr(base, "support"):
        return base.support(Y)
    for kind, possible_values in _OF_GPFLOW.items():
        if isinstance(base, kind):
            return possible_values(Y)
    if isinstance(base, gpl.Ordinal) and _erf_ends_in_nan(Y.dtype):
        raise ValueError(
            f"gpflow.likelihoods.Ordinal is NaN in {Y.dtype.name} under TensorFlow "
            f"{tf.__version__}, whose erf(inf) is NaN (tensorflow issue 108483); take "
            f"gpflow_gam.likelihoods.Ordered({base.num_bins}), whose first edge is 0."
        )
    number = num_labels(base)
    return None if number is None else labels(number)(Y)


@functools.cache
def _erf_ends_in_nan(dtype: tf.DType) -> bool:
    with tf.init_scope():
        return bool(np.isnan(tf.math.erf(tf.constant([np.inf], dtype=dtype)).numpy()[0]))


def num_labels(likelihood: Likelihood) -> int | None:
    """K, where observations are labels 0 to K - 1; else None."""
    base: Any = unwrapped(likelihood)
    if isinstance(base, gpl.Ordinal):
        return int(base.num_bins)
    ours = hasattr(base, "_has_labels")
    return int(base.num_classes) if ours or isinstance(base, _CLASSES) else None


def observation_width(likelihood: Likelihood, num_predictors: int) -> int | None:
    """The number of columns of Y, which GPflow would broadcast; None if unknown."""
    likelihood = unwrapped(likelihood)
    if isinstance(likelihood, _CLASSES):
        return 1
    if is_scalar(likelihood):
        return num_predictors
    return None if likelihood.observation_dim is None else int(likelihood.observation_dim)


def check_width(
    width: int | None, likelihood: Likelihood, num_predictors: int, argument: str = "Y"
) -> None:
    """Raises ValueError if Y has a width that no observation has; None is an unknown width."""
    want = observation_width(likelihood, num_predictors)
    if width is None or want is None or width == want:
        return
    labels, name = num_labels(likelihood), type(unwrapped(likelihood)).__name__
    hint, what = "", ""
    if labels == width and want == 1:
        hint = f"; of one-hot labels pass tf.argmax({argument}, axis=1)[:, None]"
    elif name == "Bernoulli" and width == 2:
        hint = f"; of one-hot labels pass {argument}[:, 1:]"
    elif name == "Binomial":
        what = ", successes and trials,"
    raise ValueError(
        f"{argument} must be [N, {want}]{what} under {name} of {num_predictors} "
        f"predictor{'s' if num_predictors > 1 else ''}; got [N, {width}]{hint}."
    )


def as_numbers(
    values: Any, argument: str, like: tf.Tensor | tf.Module, only: tf.DType | None = None
) -> tf.Tensor:
    """``values`` as a floating tensor; ``argument`` is their name in messages."""
    # Floats keep their precision, which has to be only if given; others take that of like.
    numbers = values
    if not tf.is_tensor(values):
        kinds = "biuOf" if isinstance(values, (list, tuple)) else "biuO"
        try:
            numbers = np.asarray(values)
            if numbers.dtype.kind in kinds:  # "O": a table of columns of several types
                numbers = numbers.astype(_precision(like).as_numpy_dtype)
        except NotImplementedError:  # a list of tensors, while a function is compiled
            numbers = values
        except (TypeError, ValueError):
            raise ValueError(
                f"{argument} must hold numbers, in rows of one length; it holds something else. "
                "Give levels as numbers 0, 1, ..., and leave out rows with missing values."
            ) from None
    numbers = tf.convert_to_tensor(numbers)
    if numbers.dtype.is_integer or numbers.dtype.is_bool:
        numbers = tf.cast(numbers, _precision(like))
    if not numbers.dtype.is_floating:
        raise ValueError(
            f"{argument} must hold numbers; got {numbers.dtype.name}. Give levels as numbers 0, 1, "
            "..."
        )
    if only is not None and numbers.dtype != only:
        raise TypeError(
            f"{argument} must be {only.name}, as the data are; got {numbers.dtype.name}. Pass "
            f"np.asarray({argument}, dtype={only.name!r})."
        )
    return numbers


def _precision(like: tf.Tensor | tf.Module) -> tf.DType:
    if tf.is_tensor(like):
        return like.dtype
    floating = (v.dtype for v in like.variables if v.dtype.is_floating)
    return next(floating, tf.as_dtype(default_float()))


def checked_inputs(X: TensorType, kernel: AdditiveKernel, argument: str = "X") -> tf.Tensor:
    """X [N, D], once it is known to be finite and to have the columns that the kernel reads."""
    X = as_numbers(X, argument, kernel)
    if X.shape.rank != 2:
        raise ValueError(f"{argument} must be a matrix [N, D]; got shape {X.shape}.")
    kernel.check_inputs(X, argument)
    return require(X, tf.math.is_finite(X), f"{argument} must be finite; drop or impute the rows")


def checked_data(
    data: RegressionData,
    kernel: AdditiveKernel,
    likelihood: Likelihood,
    num_predictors: int | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """(X, Y), once they are known to be finite, to fit together and to be possible observations."""
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        raise ValueError(f"data must be a pair (X, Y); got {type(data).__name__}.")
    X = checked_inputs(data[0], kernel)
    Y = as_numbers(data[1], "Y", X)
    if Y.shape.rank != 2:
        raise ValueError(f"Y must be a matrix [N, K]; got shape {Y.shape}; write Y[:, None].")
    if num_predictors is not None:
        check_width(Y.shape[1], likelihood, num_predictors)
    if X.dtype != Y.dtype:
        raise ValueError(f"X and Y must be of one dtype; got {X.dtype.name} and {Y.dtype.name}.")
    if X.shape[0] is not None and Y.shape[0] is not None and X.shape[0] != Y.shape[0]:
        raise ValueError(f"X has {X.shape[0]} rows, Y has {Y.shape[0]}; they must be equal.")
    if isinstance(likelihood, Weighted):
        weighed = (likelihood.weights(X) >= 0.0)[:, None] | (
            tf.range(tf.shape(X)[1]) != likelihood.column
        )
        X = require(X, weighed, "X must hold weights that are not negative")
    return X, checked_observations(Y, likelihood)


def checked_observations(Y: tf.Tensor, likelihood: Likelihood, argument: str = "Y") -> tf.Tensor:
    """Y [N, K], once it is known to be finite and possible, in the dtype of the likelihood."""
    likelihood = unwrapped(likelihood)
    finite = tf.math.is_finite(Y)
    Y = require(Y, finite, f"{argument} must be finite; drop the rows where it is missing")
    support = _support(likelihood, Y)
    if support is not None:
        possible, what = support
        Y = require(Y, possible, f"{argument} must be {what} under {type(likelihood).__name__}")
    return in_dtype_of(likelihood, Y)


def in_dtype_of(likelihood: Likelihood, Y: tf.Tensor) -> tf.Tensor:
    """Y, of which GPflow's softmax takes integer labels only."""
    return tf.cast(Y, tf.int32) if isinstance(unwrapped(likelihood), gpl.Softmax) else Y


def possible_observations(Y: tf.Tensor, likelihood: Likelihood) -> tf.Tensor:
    """Mask [N] of rows of Y [N, K] that are finite and possible: for code that cannot raise."""
    holds = tf.math.is_finite(Y)
    support = _support(unwrapped(likelihood), Y)
    return tf.reduce_all(holds if support is None else holds & support[0], axis=-1)


def require(x: tf.Tensor, holds: tf.Tensor, message: str) -> tf.Tensor:
    """x [N, K], once all of it holds: else a ValueError, or in a graph a failed assertion."""
    if tf.executing_eagerly():
        if not bool(tf.reduce_all(holds)):
            row, column = (int(i) for i in tf.where(~holds)[0])
            raise ValueError(
                f"{message}; got {float(x[row, column]):g} in row {row}, column {column} "
                f"({int(tf.reduce_sum(tf.cast(~holds, tf.int64)))} such values)."
            )
        return x
    guilty = tf.gather_nd(x, tf.where(~holds))
    check = tf.debugging.Assert(tf.reduce_all(holds), [message, guilty])
    with tf.control_dependencies([check]):
        return tf.identity(x)


# --- links from a predictor to a probability ------------------------------------------------------


LINKS = ("logit", "probit", "cloglog", "cauchit", "log")
"""Links of probabilities."""
SHARE_LINKS = LINKS[:4]
"""Links of means that are proportions."""
ORDERED_LINKS = ("probit", "logit", "cloglog", "cauchit")
"""Links of ordered classes."""
SYMMETRIC = ("logit", "probit", "cauchit")
"""Links under which failure at a predictor is as probable as success at minus that."""
LARGEST = 0.99
"""Probability above which the logarithm gives way to a curve that stays below one."""
_LEAST = -700.0  # predictor below which its exponential underflows
_EDGE = math.log(LARGEST)  # predictor at which the logarithm gives way: that of LARGEST


def checked_link(link: str, links: Sequence[str] = LINKS) -> str:
    """The link; raises ValueError if it is not one of ``links``."""
    check_choice("link", link, links)
    return link


def log_ndtr(x: tf.Tensor) -> tf.Tensor:
    """Log of the standard normal distribution function, [...]; finite in the lower tail."""
    if tf.executing_eagerly() and tf.is_tensor(x) and hasattr(x, "numpy"):
        return _eager_log_ndtr(x)
    return tfp.math.logerfc(-x / math.sqrt(2.0)) - math.log(2.0)


@tf.custom_gradient
def _eager_log_ndtr(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """By SciPy: outside of a graph TFP's hundreds of small operations take far longer."""
    value = tf.constant(special.log_ndtr(x.numpy()), x.dtype)

    def grad(upstream: tf.Tensor) -> tf.Tensor:
        # computed anew, for second derivatives
        density = -0.5 * tf.square(x) - 0.5 * math.log(2.0 * math.pi)
        return upstream * tf.exp(density - log_ndtr(x))

    return value, grad


def probability(link: str, F: tf.Tensor) -> tf.Tensor:
    """P(success) at predictors F [...]."""
    if link == "logit":
        return tf.sigmoid(F)
    if link == "probit":
        return 0.5 * tf.math.erfc(-F / math.sqrt(2.0))
    if link == "cloglog":
        return -tf.math.expm1(-tf.exp(F))
    if link == "log":
        return tf.exp(log_probability(link, F))
    return tf.math.atan2(tf.ones_like(F), -F) / math.pi  # digits stay in the lower tail


def log_probability(link: str, F: tf.Tensor) -> tf.Tensor:
    """Log P(success) at F [...]."""
    if link == "logit":
        return tf.math.log_sigmoid(F)
    if link == "probit":
        return log_ndtr(F)
    if link == "cloglog":
        F = tf.maximum(F, tf.constant(_LEAST, F.dtype))
    if link == "log":
        return tf.where(F < _EDGE, F, tf.math.log1p(-tf.exp(_log_left(F))))
    return tf.math.log(probability(link, F))


def log_failure(link: str, F: tf.Tensor) -> tf.Tensor:
    """Log P(failure) at F [...]: for symmetric links that of success at -F."""
    if link == "log":
        below = tf.math.log(-tf.math.expm1(tf.minimum(F, tf.constant(_EDGE, F.dtype))))
        return tf.where(F < _EDGE, below, _log_left(F))
    return -tf.exp(F) if link == "cloglog" else log_probability(link, -F)


def _log_left(F: tf.Tensor) -> tf.Tensor:
    """Log P(failure) beyond the edge of the logarithm: a line, which goes on at its slope there."""
    beyond = tf.maximum(F - _EDGE, tf.zeros([], F.dtype))
    return math.log(1.0 - LARGEST) - LARGEST / (1.0 - LARGEST) * beyond


def expected_probability(
    link: str, quadrature: GaussianQuadrature, mean: tf.Tensor, var: tf.Tensor
) -> tf.Tensor:
    """E[P(success)] at predictors N(mean, var), [..., L]; in closed form for probit."""
    if link == "probit":
        return probability("probit", mean / tf.sqrt(1.0 + var))
    return quadrature(lambda F: probability(link, F), mean, var)


# --- links in numpy -------------------------------------------------------------------------------


class Log(NamedTuple):
    """A logarithm at predictors: its value, first and second derivative, [...] each."""

    value: AnyNDArray
    first: AnyNDArray
    second: AnyNDArray


def log_probabilities(link: str, g: AnyNDArray) -> tuple[Log, Log]:
    """Log-probabilities of success and of failure at predictors [...]."""
    if link == "cloglog":
        return _cloglog(g)
    if link == "log":
        return _log(g)
    below = {"logit": _logit, "probit": _probit, "cauchit": _cauchit}[link]
    value, first, second = below(-g)
    return below(g), Log(value, -first, second)


def predictor_of(link: str, p: AnyNDArray, q: AnyNDArray) -> AnyNDArray:
    """The predictor at which success has probability p and failure q, for links but "log"."""
    if link == "logit":
        return np.asarray(np.log(p / q))
    if link == "probit":
        return np.where(p < 0.5, special.ndtri(p), -special.ndtri(q))
    return np.asarray(np.log(-np.log(q)) if link == "cloglog" else np.tan(np.pi * (p - 0.5)))


def _logit(g: AnyNDArray) -> Log:
    left = special.expit(-g)
    return Log(-np.logaddexp(0.0, -g), left, -left * (1.0 - left))


def _probit(g: AnyNDArray) -> Log:
    value = special.log_ndtr(g)
    ratio = np.exp(-0.5 * np.square(g) - 0.5 * np.log(2.0 * np.pi) - value)
    return Log(value, ratio, -ratio * np.maximum(g + ratio, 0.0))


def _cauchit(g: AnyNDArray) -> Log:
    p, inverse = np.arctan2(1.0, -g) / np.pi, 1.0 / (1.0 + np.square(g))
    ratio = inverse / (np.pi * p)
    return Log(np.log(p), ratio, -ratio * (2.0 * g * inverse + ratio))


def _cloglog(g: AnyNDArray) -> tuple[Log, Log]:
    rate = np.exp(np.maximum(g, _LEAST))
    p = -np.expm1(-rate)
    ratio = rate * np.exp(-rate) / p
    hazard = np.exp(g)
    success = Log(np.log(p), ratio, ratio * (1.0 - rate / p))
    return success, Log(-hazard, -hazard, -hazard)


def _log(g: AnyNDArray) -> tuple[Log, Log]:
    """With a line for the logarithm of failure beyond the edge, where success nears one."""
    near, turn = g < _EDGE, LARGEST / (1.0 - LARGEST)
    inside = np.minimum(g, _EDGE)
    odds = np.exp(inside) / -np.expm1(inside)
    line = np.log(1.0 - LARGEST) - turn * np.maximum(g - _EDGE, 0.0)
    left = np.exp(line) / -np.expm1(line)
    success = Log(
        np.where(near, g, np.log1p(-np.exp(line))),
        np.where(near, 1.0, left * turn),
        np.where(near, 0.0, -left * (1.0 + left) * turn**2),
    )
    failure = Log(
        np.where(near, np.log(-np.expm1(inside)), line),
        np.where(near, -odds, -turn),
        np.where(near, -odds * (1.0 + odds), 0.0),
    )
    return success, failure


# --- terms of rows in numpy -----------------------------------------------------------------------

# Expected log-densities and their derivatives: TensorFlow's first use takes longer than many passes
# over rows. A likelihood that needs none has a method ``row_terms(batch) -> Terms | None``; None of
# rows that are an error elsewhere, and where it takes TensorFlow after all. A subclass of others
# with another density goes without, unless it has its own.


_CHUNK = 4096  # rows whose quadrature nodes stay in a core's cache
SURE = 1e-5
"""Deviations of predictors below which a quotient by them is rounding, and no slope bends."""


class Batch(NamedTuple):
    """Rows whose predictors are N(mean, var)."""

    mean: AnyNDArray  # [n, L]
    var: AnyNDArray  # [n, L], not negative
    Y: AnyNDArray  # [n, K]
    weights: AnyNDArray | None  # [n], of sums over rows
    variables: Sequence[tf.Variable]  # of parameters in which derivatives are wanted


class ParameterTerms(NamedTuple):
    """Derivatives in the K unconstrained parameters of a likelihood."""

    slope: AnyNDArray  # first derivatives of the sum over rows, [K]
    curvature: AnyNDArray  # its second derivatives, [K, K]
    across: list[AnyNDArray]  # of rows' slopes in their means, [n] or [n, L] each, without weights


class Terms(NamedTuple):
    """Terms of each row, without weights: values [n], slopes and precisions [n] or [n, L]."""

    value: AnyNDArray
    slope: AnyNDArray  # in the mean (Opper & Archambeau 2009)
    precision: AnyNDArray  # minus twice the slope in the variance
    parameters: ParameterTerms | None = None  # none where no derivatives in parameters are wanted


class PositiveParameter(NamedTuple):
    """A parameter's value, and derivatives of its logarithm in the unconstrained variable."""

    value: float
    rate: float
    turn: float

    @classmethod
    def of(cls, parameter: Parameter) -> PositiveParameter:
        u, transform = float(parameter.unconstrained_variable.numpy()), parameter.transform
        if isinstance(transform, bijectors.Softplus):
            value, first = transform.lower + float(np.logaddexp(0.0, u)), float(expit(u))
            rate = first / value
            return cls(value, rate, rate * (1.0 - first) - rate**2)
        if isinstance(transform, bijectors.Exponential):
            above = float(np.exp(u))
            rate = above / (transform.lower + above)
            return cls(transform.lower + above, rate, rate - rate**2)
        at = tf.constant(u, parameter.dtype)
        with tf.GradientTape() as outer_tape:
            outer_tape.watch(at)
            with tf.GradientTape() as tape:
                tape.watch(at)
                value = at if parameter.transform is None else parameter.transform.forward(at)
                log = tf.math.log(value)
            first = tape.gradient(log, at)
        return cls(float(value), float(first), float(outer_tape.gradient(first, at) or 0.0))

    def terms(
        self,
        slope: AnyNDArray,
        curvature: AnyNDArray,
        across: AnyNDArray,
        weights: AnyNDArray | None,
    ) -> ParameterTerms:
        """By the chain rule, from each row's derivatives in the parameter's logarithm."""
        curvature = self.rate**2 * curvature + self.turn * slope
        total = np.sum(weighted(self.rate * slope, weights), keepdims=True)
        bend = np.sum(weighted(curvature, weights)).reshape(1, 1)
        return ParameterTerms(total, bend, [self.rate * across])


def weighted(values: AnyNDArray, weights: AnyNDArray | None) -> AnyNDArray:
    """Values of rows [n, ...] times their weights; rows that do not count may overflow."""
    if weights is None:
        return values
    weights = weights.reshape(-1, *[1] * (values.ndim - 1))
    return weights * np.where(weights == 0.0, 0.0, values)


class Softplus(NamedTuple):
    """Expectations of ``log(1 + exp(f))`` at normal f, [n] each."""

    value: AnyNDArray
    slope: AnyNDArray  # in the mean
    along: AnyNDArray  # in the variance
    curvature: AnyNDArray  # E of the second derivative


def softplus(quadrature: NDiagGHQuadrature, mean: AnyNDArray, var: AnyNDArray) -> Softplus:
    """By the nodes and weights of a likelihood's own rule, and one exponential a node."""
    nodes, weights = np.ravel(quadrature.Z), np.ravel(quadrature.dZ)
    out = Softplus(*(np.empty(len(mean)) for _ in Softplus._fields))

    def fill(start: int) -> None:
        at = slice(start, start + _CHUNK)
        sd = np.sqrt(var[at])
        f = mean[at, None] + sd[:, None] * nodes
        small = np.exp(-np.abs(f))
        rate = np.where(f >= 0.0, 1.0, small) / (1.0 + small)
        out.value[at] = (np.maximum(f, 0.0) + np.log1p(small)) @ weights
        out.slope[at] = rate @ weights
        bend = (small / np.square(1.0 + small)) @ weights
        out.curvature[at] = bend
        # that of the quadrature, which a bound that is made of it rises along
        moved = rate @ (0.5 * nodes * weights)
        out.along[at] = np.divide(moved, sd, out=0.5 * bend, where=sd > SURE)

    each(fill, range(0, len(mean), _CHUNK))
    return out


def logistic_terms(
    quadrature: GaussianQuadrature,
    rows: Batch,
    level: AnyNDArray,
    hits: AnyNDArray,
    total: AnyNDArray,
    shift: float = 0.0,
    parameters: Callable[[Softplus], ParameterTerms] | None = None,
) -> Terms | None:
    """Terms of ``log p = level + hits f - total log(1 + exp(f + shift))``."""
    # None under another quadrature rule than Gauss-Hermite.
    if not isinstance(quadrature, NDiagGHQuadrature):
        return None
    mean = rows.mean[:, 0]
    at = softplus(quadrature, mean + shift, rows.var[:, 0])
    return Terms(
        level + hits * mean - total * at.value,
        hits - total * at.slope,
        2.0 * total * at.along,
        parameters(at) if parameters is not None and rows.variables else None,
    )
