"""Responses as networks are given them: columns or not, codes or one-hot."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from gpflow.likelihoods import Likelihood

from ..likelihoods import check_width, num_labels, observation_width

_OF_CODES = (
    keras.metrics.SparseCategoricalAccuracy,
    keras.metrics.SparseCategoricalCrossentropy,
    keras.metrics.SparseTopKCategoricalAccuracy,
)
_OF_ONE_HOT = (
    keras.metrics.CategoricalAccuracy,
    keras.metrics.CategoricalCrossentropy,
    keras.metrics.TopKCategoricalAccuracy,
)


def response_matrix(y: Any, dtype: str, likelihood: Likelihood, num_predictors: int) -> tf.Tensor:
    """
    Responses [N] or [N, K] as Y [N, K] of the width that the likelihood observes.

    One-hot labels [N, K] of K classes become codes [N, 1]. Rows that are not one-hot fail in the
    graph and become -1, which is no label, where assertions are dropped.

    :param y: numbers; one-hot labels only where the likelihood has labels.
    :param dtype: of the result.
    :param likelihood: of the response.
    :param num_predictors: L.
    :raises ValueError: text; another rank or width; (eagerly) a row that is not one-hot.
    """
    y = tf.convert_to_tensor(y)
    if y.dtype == tf.string:
        raise ValueError(
            "y must be numbers, labels as codes 0, 1, ...; got text. "
            "levels, codes = np.unique(y, return_inverse=True) has both."
        )
    Y = tf.cast(y, dtype)
    width = observation_width(likelihood, num_predictors)
    if Y.shape.rank is None:  # of a function that was called with [N] and with [N, K]
        Y = tf.reshape(Y, [tf.shape(Y)[0], width])
    if Y.shape.rank not in (1, 2):
        raise ValueError(f"y must be [N] or [N, K]; got shape {Y.shape}.")
    if Y.shape.rank == 1:
        Y = Y[:, None]
    if width == 1 and Y.shape[1] is not None and Y.shape[1] == num_labels(likelihood):
        return _codes(Y)
    check_width(Y.shape[1], likelihood, num_predictors, "y")
    return tf.ensure_shape(Y, [None, width])


def _codes(Y: tf.Tensor) -> tf.Tensor:
    ones = tf.reduce_sum(tf.cast(tf.equal(Y, 1.0), tf.int32), axis=1)
    zeros = tf.reduce_sum(tf.cast(tf.equal(Y, 0.0), tf.int32), axis=1)
    holds = tf.equal(ones, 1) & tf.equal(zeros, Y.shape[1] - 1)
    message = (
        f"y of {Y.shape[1]} columns must be one-hot, a 1 and otherwise 0 in each row (a likelihood "
        "has no soft labels); got"
    )
    strange = tf.boolean_mask(Y, ~holds)[:1]
    if tf.executing_eagerly():
        if len(strange):
            raise ValueError(
                f"{message} {strange[0].numpy()} in row {int(tf.where(~holds)[0, 0])}."
            )
    else:
        check = tf.debugging.Assert(tf.reduce_all(holds), [message, strange])
        with tf.control_dependencies([check]):
            Y = tf.identity(Y)
    codes = tf.cast(tf.argmax(Y, axis=1), Y.dtype)
    return tf.where(holds, codes, -tf.ones_like(codes))[:, None]


def as_metric_takes(
    metric: keras.metrics.Metric, y: Any, Y: tf.Tensor, num_classes: int | None
) -> Any:
    """
    Responses in the form that one of Keras's metrics compares with class probabilities.

    :param metric: of codes, or of one-hot labels, or of neither.
    :param y: as they were given.
    :param Y: as :func:`response_matrix` has them.
    :param num_classes: of the probabilities; None where there are none.
    """
    if num_classes is None:
        return y
    if isinstance(metric, _OF_CODES):
        return Y
    if isinstance(metric, _OF_ONE_HOT):
        return tf.one_hot(tf.cast(Y[:, 0], tf.int32), num_classes)
    return y
