"""Checks of data: numbers, shapes, and which observations a likelihood can have produced."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow import likelihoods as gpl
from gpflow.base import RegressionData, TensorType
from gpflow.config import default_float
from gpflow.likelihoods import Likelihood, MultiClass, Ordinal, Softmax

from ..kernels import AdditiveKernel
from .base import (
    AMOUNTS,
    BINARY,
    COUNTS,
    POSITIVE,
    SHARES,
    Quasi,
    Support,
    Weighted,
    is_scalar,
    labels,
    unwrapped,
)
from .discrete import Binomial, Ordered
from .linked import MeanLink

_OF_GPFLOW: dict[type[Likelihood], Support] = {
    gpl.Poisson: COUNTS,
    gpl.Bernoulli: BINARY,
    gpl.Gamma: POSITIVE,
    gpl.Exponential: AMOUNTS,
    gpl.Beta: SHARES,
}


def _support(likelihood: Likelihood, Y: tf.Tensor) -> tuple[tf.Tensor, str] | None:
    """None where all numbers are possible."""
    base, amounts = likelihood, isinstance(likelihood, Quasi)
    while isinstance(base, (Quasi, MeanLink)):
        base = base.base
    if amounts and isinstance(base, Binomial):  # which has no use for whole numbers here
        return (Y >= 0.0) & (Y[:, 1:] >= Y) & (Y[:, 1:] > 0.0), "0 to the trials"
    if amounts and isinstance(base, gpl.Poisson):
        return AMOUNTS(Y)
    if hasattr(base, "support"):
        possible: tuple[tf.Tensor, str] = base.support(Y)
        return possible
    for kind, possible_values in _OF_GPFLOW.items():
        if isinstance(base, kind):
            return possible_values(Y)
    if isinstance(base, Ordinal) and _erf_ends_in_nan(Y.dtype):
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
    likelihood = unwrapped(likelihood)
    if isinstance(likelihood, Ordinal):
        return int(likelihood.num_bins)
    if isinstance(likelihood, (Softmax, MultiClass, Ordered)):
        assert likelihood.num_classes is not None
        return int(likelihood.num_classes)
    return None


def observation_width(likelihood: Likelihood, num_predictors: int) -> int | None:
    """The number of columns of Y, which GPflow would broadcast; None if unknown."""
    likelihood = unwrapped(likelihood)
    if isinstance(likelihood, (Softmax, MultiClass)):
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
    return tf.cast(Y, tf.int32) if isinstance(unwrapped(likelihood), Softmax) else Y


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
