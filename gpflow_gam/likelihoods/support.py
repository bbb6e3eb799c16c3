"""Which observations a likelihood can have produced."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData, TensorType
from gpflow.config import default_float
from gpflow.likelihoods import (
    Bernoulli,
    Beta,
    Exponential,
    Gamma,
    Likelihood,
    MultiClass,
    Ordinal,
    Poisson,
    Softmax,
)

from ..kernels import AdditiveKernel
from .binomial import Binomial
from .censored import Censored
from .censored_scale import LocationScaleCensored
from .cox import Cox
from .location_scale import (
    LocationScaleBeta,
    LocationScaleGamma,
    LocationScaleNegativeBinomial,
)
from .mean_link import MeanLink
from .negative_binomial import NegativeBinomial
from .ordered import Ordered
from .quasi import Quasi
from .standardised import EXACT, INTERVAL, LEFT, RIGHT, Standardised
from .tweedie import Tweedie
from .weighted import Weighted, unwrapped
from .width import check_width
from .zero_altered import ZeroAltered

Condition = Callable[[Likelihood, tf.Tensor], tuple[tf.Tensor, str]]
"""(likelihood, Y) -> element-wise test, and what Y must be."""

_SUPPORTS: dict[type, Condition] = {}


def register_support(likelihood_type: type, condition: Condition) -> None:
    """
    Say what observations a likelihood class accepts; subclasses inherit it.

    :param likelihood_type: a subclass of :class:`gpflow.likelihoods.Likelihood`.
    :param condition: ``(likelihood, Y)`` -> an element-wise test, and what Y must be, in words.
    """
    _SUPPORTS[likelihood_type] = condition


def _whole(Y: tf.Tensor) -> tf.Tensor:
    return tf.equal(Y, tf.round(Y))


def _labels(number: int, Y: tf.Tensor) -> tuple[tf.Tensor, str]:
    inside = _whole(Y) & (Y >= 0.0) & (number > Y)
    return inside, f"whole labels 0 to {number - 1}, one a class"


def _between_edges(likelihood: Ordinal, Y: tf.Tensor) -> tuple[tf.Tensor, str]:
    """
    Labels, under GPflow's likelihood, whose outermost edges are infinite.

    :raises ValueError: TensorFlow does not know what a normal distribution has below them.
    """
    if _erf_ends_in_nan(Y.dtype):
        raise ValueError(
            f"gpflow.likelihoods.Ordinal is NaN in {Y.dtype.name} under TensorFlow "
            f"{tf.__version__}, whose erf(inf) is NaN (tensorflow issue 108483); take "
            f"gpflow_gam.likelihoods.Ordered({likelihood.num_bins}), whose first edge is 0."
        )
    return _labels(likelihood.num_bins, Y)


@functools.cache
def _erf_ends_in_nan(dtype: tf.DType) -> bool:
    with tf.init_scope():
        return bool(np.isnan(tf.math.erf(tf.constant([np.inf], dtype=dtype)).numpy()[0]))


def _counts(likelihood: Likelihood, Y: tf.Tensor) -> tuple[tf.Tensor, str]:
    return _whole(Y) & (Y >= 0.0), "whole counts, not negative"


def _successes(likelihood: Likelihood, Y: tf.Tensor) -> tuple[tf.Tensor, str]:
    if Y.shape[-1] != 2:
        raise ValueError(f"Y must be [N, 2], successes and trials; got shape {Y.shape}.")
    y, trials = Y[:, :1], Y[:, 1:]
    hits = _whole(y) & (y >= 0.0) & (y <= trials)
    inside = tf.concat([hits, _whole(trials) & (trials >= 1.0)], axis=1)
    return inside, "whole successes from 0 to the trials, and whole trials from 1"


def _amounts(base: Likelihood) -> Condition | None:
    """Under a quasi-likelihood, which has no use for whole numbers."""
    if isinstance(base, Binomial):
        return lambda lik, Y: ((Y >= 0.0) & (Y[:, 1:] >= Y) & (Y[:, 1:] > 0.0), "0 to the trials")
    if isinstance(base.base if isinstance(base, MeanLink) else base, Poisson):
        return lambda lik, Y: (Y >= 0.0, "not negative")
    return _condition(base)


def _known(likelihood: Standardised, Y: tf.Tensor) -> tuple[tf.Tensor, str]:
    if Y.shape[-1] not in (1, 3):
        raise ValueError(
            f"Y must be [N, 1], or [N, 3] with what is known of each row; got shape {Y.shape}."
        )
    positive = tf.fill(tf.shape(Y[:, :1]), True) if not likelihood.logarithm else Y[:, :1] > 0.0
    what = "positive" if likelihood.logarithm else "numbers"
    if Y.shape[-1] == 1:
        return positive, what
    kind = Y[:, 2:]
    between = tf.not_equal(kind, INTERVAL) | (Y[:, 1:2] > Y[:, :1])
    kinds = tf.reduce_any([tf.equal(kind, k) for k in (RIGHT, EXACT, LEFT, INTERVAL)], axis=0)
    inside = tf.concat([positive, between, kinds], axis=1)
    return inside, f"{what}, ends of intervals beyond the first, and kinds 0 to 3"


def _events(likelihood: Cox, Y: tf.Tensor) -> tuple[tf.Tensor, str]:
    if Y.shape[-1] != 3:
        raise ValueError(f"Y must be [N, 3], time, again, and 1 or 0; got shape {Y.shape}.")
    seen = tf.equal(Y[:, 2:], RIGHT) | tf.equal(Y[:, 2:], EXACT)
    return tf.concat([Y[:, :2] > 0.0, seen], axis=1), "positive times, and 1 or 0"


register_support(Censored, _known)
register_support(LocationScaleCensored, _known)
register_support(Cox, _events)
register_support(Poisson, _counts)
register_support(LocationScaleNegativeBinomial, _counts)
register_support(NegativeBinomial, _counts)
register_support(ZeroAltered, _counts)
register_support(Tweedie, lambda lik, Y: (Y >= 0.0, "not negative"))
register_support(Binomial, _successes)
register_support(Bernoulli, lambda lik, Y: (tf.equal(Y, 0.0) | tf.equal(Y, 1.0), "0 or 1"))
register_support(Gamma, lambda lik, Y: (Y > 0.0, "positive"))
register_support(LocationScaleGamma, lambda lik, Y: (Y > 0.0, "positive"))
register_support(
    LocationScaleBeta, lambda lik, Y: ((Y > 0.0) & (Y < 1.0), "strictly between 0 and 1")
)
register_support(Exponential, lambda lik, Y: (Y >= 0.0, "not negative"))
register_support(Beta, lambda lik, Y: ((Y > 0.0) & (Y < 1.0), "strictly between 0 and 1"))
register_support(Softmax, lambda lik, Y: _labels(lik.num_classes, Y))
register_support(MultiClass, lambda lik, Y: _labels(lik.num_classes, Y))
register_support(Ordinal, _between_edges)
register_support(Ordered, lambda lik, Y: _labels(lik.num_classes, Y))


def _condition(likelihood: Likelihood) -> Condition | None:
    if isinstance(likelihood, MeanLink):
        return _condition(likelihood.base)
    if isinstance(likelihood, Quasi):
        return _amounts(likelihood.base)
    for cls in type(likelihood).__mro__:
        if cls in _SUPPORTS:
            return _SUPPORTS[cls]
    return None


def as_numbers(
    values: Any, argument: str, like: tf.Tensor | tf.Module, only: tf.DType | None = None
) -> tf.Tensor:
    """
    ``values`` as a floating tensor.

    Arrays, tables and tensors of floating numbers keep their precision; whole numbers, truth values
    and lists take that of ``like``.

    :param values: numbers of any kind.
    :param argument: what to call them in messages.
    :param like: a tensor, or a part of the model, whose parameters are meant.
    :param only: the one precision that floating numbers may have; any by default.
    :raises ValueError: text, or other things that are no numbers.
    :raises TypeError: floating numbers of another precision than ``only``.
    """
    found = values
    if not tf.is_tensor(values):
        kinds = "biuOf" if isinstance(values, (list, tuple)) else "biuO"
        try:
            found = np.asarray(values)
            if found.dtype.kind in kinds:  # "O": a table of columns of several types
                found = found.astype(_precision(like).as_numpy_dtype)
        except NotImplementedError:  # a list of tensors, while a function is compiled
            found = values
        except (TypeError, ValueError):
            raise ValueError(
                f"{argument} must hold numbers, in rows of one length; it holds something else. "
                "Give levels as numbers 0, 1, ..., and leave out rows with missing values."
            ) from None
    found = tf.convert_to_tensor(found)
    if found.dtype.is_integer or found.dtype.is_bool:
        found = tf.cast(found, _precision(like))
    if not found.dtype.is_floating:
        raise ValueError(
            f"{argument} must hold numbers; got {found.dtype.name}. Give levels as numbers 0, 1, "
            "..."
        )
    if only is not None and found.dtype != only:
        raise TypeError(
            f"{argument} must be {only.name}, as the data are; got {found.dtype.name}. Pass "
            f"np.asarray({argument}, dtype={only.name!r})."
        )
    return found


def _precision(like: tf.Tensor | tf.Module) -> tf.DType:
    if tf.is_tensor(like):
        return like.dtype
    own = (v.dtype for v in like.variables if v.dtype.is_floating)
    return next(own, tf.as_dtype(default_float()))


def checked_inputs(X: TensorType, kernel: AdditiveKernel, argument: str = "X") -> tf.Tensor:
    """
    X, once it is known to be finite and wide enough.

    :param X: inputs [N, D], as :func:`as_numbers` takes them.
    :param kernel: says which columns are read.
    :param argument: what to call X in messages.
    :raises ValueError: not a matrix of numbers, a missing column, or (eagerly) NaN or infinite
        values.
    :raises tf.errors.InvalidArgumentError: NaN or infinite values, inside a ``tf.function``.
    """
    X = as_numbers(X, argument, kernel)
    if X.shape.rank != 2:
        raise ValueError(f"{argument} must be a matrix [N, D]; got shape {X.shape}.")
    kernel.check_inputs(X, argument)
    return _require(X, tf.math.is_finite(X), f"{argument} must be finite; drop or impute the rows")


def checked_data(
    data: RegressionData,
    kernel: AdditiveKernel,
    likelihood: Likelihood,
    num_predictors: int | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    (X, Y), once they are known to be finite, to fit together and to be possible observations.

    :param data: X [N, D] and Y [N, K], as :func:`as_numbers` takes them.
    :param kernel: says which columns of X are read.
    :param likelihood: says which Y it can have produced (:func:`register_support`).
    :param num_predictors: L, which settles Y's width; None where Y settles L.
    :raises ValueError: naming the argument, the first bad row and its value; inside a
        ``tf.function`` a :class:`tf.errors.InvalidArgumentError`.
    """
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
        X = _require(X, weighed, "X must hold weights that are not negative")
    return X, checked_observations(Y, likelihood)


def checked_observations(Y: tf.Tensor, likelihood: Likelihood, argument: str = "Y") -> tf.Tensor:
    """
    Y, once it is known to be finite and possible, in the dtype that the likelihood takes.

    :param Y: [N, K], floating.
    :param likelihood: says which Y it can have produced (:func:`register_support`).
    :param argument: what to call Y in messages.
    :raises ValueError: naming the argument, the first bad row and its value; inside a
        ``tf.function`` a :class:`tf.errors.InvalidArgumentError`.
    """
    likelihood = unwrapped(likelihood)
    finite = tf.math.is_finite(Y)
    Y = _require(Y, finite, f"{argument} must be finite; drop the rows where it is missing")
    condition = _condition(likelihood)
    if condition is not None:
        possible, what = condition(likelihood, Y)
        Y = _require(Y, possible, f"{argument} must be {what} under {type(likelihood).__name__}")
    return in_dtype_of(likelihood, Y)


def in_dtype_of(likelihood: Likelihood, Y: tf.Tensor) -> tf.Tensor:
    """Y, of which GPflow's softmax takes integer labels only."""
    return tf.cast(Y, tf.int32) if isinstance(unwrapped(likelihood), Softmax) else Y


def possible_observations(Y: tf.Tensor, likelihood: Likelihood) -> tf.Tensor:
    """
    Which rows of Y [N, K] are finite and possible, [N]: for code in which no assertion can fail.

    :param Y: [N, K], floating.
    :param likelihood: says which Y it can have produced (:func:`register_support`).
    """
    likelihood = unwrapped(likelihood)
    holds = tf.math.is_finite(Y)
    condition = _condition(likelihood)
    if condition is not None:
        holds &= condition(likelihood, Y)[0]
    return tf.reduce_all(holds, axis=-1)


def _require(x: tf.Tensor, holds: tf.Tensor, message: str) -> tf.Tensor:
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
