"""What a head's moments say of responses: losses, metrics and the head that they read."""

from __future__ import annotations

import abc
import weakref
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from gpflow.likelihoods import Bernoulli, Likelihood

from ..likelihoods import (
    check_width,
    checked_observations,
    expected_response,
    num_labels,
    observation_width,
    possible_observations,
    response_interval,
    unwrapped,
)
from ..likelihoods.predictive import expected_log_density, predictive_log_density

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


class MomentReader(abc.ABC):
    """
    Reads moments, mean and variance of each predictor, under a likelihood.

    A tensor is all that passes between Keras's layers, losses and metrics; so it is read here. It
    is [N, L, 2], or [N, L, 2 + L] of a head whose predictors are correlated a posteriori: their
    covariances are behind.
    """

    name: str
    compute_dtype: str
    level: float
    loss_weight: float = 1.0
    """What its loss is multiplied by."""
    predictive_share: float | tf.Variable = 1.0
    """Which share of the predictors' variance predictions of classes count."""

    @property
    @abc.abstractmethod
    def likelihood(self) -> Likelihood:
        """The response's likelihood."""

    @property
    @abc.abstractmethod
    def num_predictors(self) -> int:
        """L."""

    @property
    def num_moments(self) -> int:
        """Of each predictor."""
        return 2

    def response(self, moments: tf.Tensor) -> tf.Tensor:
        """
        The expected response [N], or class probabilities [N, K], from moments.

        :param moments: what the layer gives, [N, L, M].
        :raises ValueError: moments of another shape.
        """
        mean, var, X = self._unpacked(moments)
        return expected_response(self.likelihood, X, mean, self._counted(var))

    def interval(
        self, moments: tf.Tensor, level: float | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """
        Equal-tailed limits of the expected response, shaped as :meth:`response`.

        :param moments: what the layer gives, [N, L, M].
        :param level: probability of the limits; the layer's by default.
        :raises ValueError: moments of another shape.
        """
        mean, var, X = self._unpacked(moments)
        level = self.level if level is None else level
        return response_interval(self.likelihood, X, mean, var, level)

    def negative_expected_log_likelihood(self, y: tf.Tensor, moments: tf.Tensor) -> tf.Tensor:
        """
        ``-E_q[log p(y | rho)]`` of each row, [N]; NaN for a y that is impossible.

        :param y: labels, [N] or [N, K].
        :param moments: what the layer gives, [N, L, M].
        :raises ValueError: moments or labels of another shape.
        """
        mean, var, X = self._unpacked(moments)
        return -self._of_rows(lambda Y: expected_log_density(self.likelihood, X, mean, var, Y), y)

    def predict_log_density(self, y: tf.Tensor, moments: tf.Tensor) -> tf.Tensor:
        """
        ``log E_q[p(y | rho)]`` of each row, [N]; NaN for a y that is impossible.

        :param y: labels, [N] or [N, K].
        :param moments: what the layer gives, [N, L, M].
        :raises ValueError: moments or labels of another shape.
        """
        mean, var, X = self._unpacked(moments)
        var = self._counted(var)
        return self._of_rows(lambda Y: predictive_log_density(self.likelihood, X, mean, var, Y), y)

    def _of_rows(self, of: Callable[[tf.Tensor], tf.Tensor], y: tf.Tensor) -> tf.Tensor:
        """What the likelihood says of each row, [N]; NaN for a y that is impossible."""
        Y, holds = self._observed(y)
        missing = tf.constant(np.nan, self.compute_dtype)
        return tf.where(holds, tf.cast(of(Y), self.compute_dtype), missing)

    def _counted(self, var: tf.Tensor) -> tf.Tensor:
        return tf.cast(self.predictive_share, var.dtype) * var

    def _unpacked(self, moments: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        moments = tf.convert_to_tensor(moments)
        shape = (self.num_predictors, self.num_moments)
        if moments.shape.rank != 3 or tuple(moments.shape[1:]) != shape:
            raise ValueError(
                f"y_pred must be the moments [N, {shape[0]}, {shape[1]}] that {self.name} gives "
                f"with output='moments'; got shape {tuple(moments.shape)}."
            )
        moments = tf.cast(moments, self.compute_dtype)
        var = moments[..., 2:] if shape[1] > 2 else moments[..., 1]
        return moments[..., 0], var, tf.zeros_like(moments[:, 0, :1])

    def response_matrix(self, y: tf.Tensor) -> tf.Tensor:
        """
        Responses as the likelihood takes them, Y [N, K]: one-hot labels become codes.

        :param y: [N] or [N, K].
        :raises ValueError: y of another rank or width.
        """
        return response_matrix(y, self.compute_dtype, self.likelihood, self.num_predictors)

    def _observed(self, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Y [N, K] once it is known to be possible, and which rows are, [N]."""
        Y = self.response_matrix(y)
        # XLA drops assertions: what should have failed must not pass for a number
        holds = possible_observations(Y, self.likelihood)
        return checked_observations(Y, self.likelihood, "y"), holds


_HEADS: weakref.WeakSet[MomentReader] = weakref.WeakSet()
_MAKER = "_gpflow_gam_head"
"""The attribute of a head's output that says whose it is."""
_FEATURES = "_gpflow_gam_features"
"""That of an output in training which says of what it is."""


def register(head: MomentReader) -> None:
    """Make a head known by its name."""
    _HEADS.add(head)


def signed(output: tf.Tensor, head: MomentReader, features: tf.Tensor | None = None) -> tf.Tensor:
    """
    A head's output that says whose it is, as long as nothing is computed from it.

    :param output: of a call.
    :param head: that was called.
    :param features: it was called with, where training asks for them: see :func:`features_of`.
    """
    setattr(output, _MAKER, weakref.ref(head))
    if features is not None:
        setattr(output, _FEATURES, features)
    return output


def features_of(output: Any, head: MomentReader) -> tf.Tensor | None:
    """
    What ``head`` was called with, in training, to return ``output``.

    :param output: of a model, or of anything.
    :param head: a layer.
    :return: [N, F]; None where ``output`` is not what the head returned.
    """
    made = getattr(output, _MAKER, None)
    return None if made is None or made() is not head else getattr(output, _FEATURES, None)


class OfHead:
    """
    Something that reads a head, which it does not own.

    Keras saves what it finds by walking attributes: through a plain one the head's weights would
    be filed under the loss, and be lost to a model that is not compiled.
    """

    _reference: weakref.ref[MomentReader] | None
    _head_name: str | None

    def _attach(self, head: MomentReader | None, head_name: str | None) -> None:
        if head is None and head_name is None:
            raise ValueError("head must be the layer whose output is read; got None.")
        self._reference = None if head is None else weakref.ref(head)
        self._head_name = head_name if head is None else head.name

    def _layer(self, y_pred: Any = None) -> MomentReader:
        """
        The head; where only its name is known, the one of that name that made ``y_pred``.

        :raises ValueError: it is gone, there is none or there are several of its name, or another
            one made ``y_pred``.
        """
        found = None if self._reference is None else self._reference()
        if found is None and self._reference is not None:
            raise ValueError("the layer of this loss or metric is gone; compile the model again.")
        made = getattr(y_pred, _MAKER, None)
        maker: MomentReader | None = None if made is None else made()
        if found is None and maker is not None and maker.name == self._head_name:
            found = maker
        if found is None:
            return _head_named(str(self._head_name))
        if maker is not None and maker is not found:
            raise ValueError(
                f"the loss or metric of layer {found.name!r} is given the output of another one, "
                f"{maker.name!r}; compile with the loss and the metrics of the head whose output "
                "that is."
            )
        self._reference = weakref.ref(found)
        return found


def _head_named(name: str) -> MomentReader:
    found = [head for head in _HEADS if head.name == name]
    if not found:
        raise ValueError(
            f"there is no layer {name!r} for this loss or metric; build its model first."
        )
    if len(found) > 1:
        raise ValueError(
            f"there are {len(found)} layers {name!r}, and this loss or metric says no more than "
            "that name: compile its model again with head.loss and head.metric(...), or give the "
            "layers names of their own."
        )
    return found[0]


@keras.saving.register_keras_serializable(package="gpflow_gam")
class ExpectedLogLikelihood(OfHead, keras.losses.Loss):
    """
    ``-E_q[log p(y_n | rho(x_n))]``, a row at a time: with the head's KL divergence, which the
    layer adds itself, the negative ELBO over the number of data; both times the head's
    ``loss_weight``.

    :param head: the layer whose output is ``y_pred``.
    :param head_name: or its name.
    :param reduction: as of :class:`keras.losses.Loss`, but for ``"sum"``, with which the KL
        would not go.
    :param name: of the loss.
    :param dtype: as of :class:`keras.losses.Loss`.
    :raises ValueError: no head, or a sum over rows.
    """

    def __init__(
        self,
        head: MomentReader | None = None,
        *,
        head_name: str | None = None,
        reduction: str = "sum_over_batch_size",
        name: str = "expected_log_likelihood",
        dtype: Any = None,
    ) -> None:
        if reduction == "sum":
            raise ValueError(
                "reduction='sum' would count the likelihood by the rows of a batch, and the KL "
                "once in num_data: the ELBO takes the mean; leave reduction out."
            )
        self._attach(head, head_name)
        # rows in the head's precision, in which its file says they are
        super().__init__(
            name=name, reduction=reduction, dtype=dtype if head is None else head.compute_dtype
        )

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> tf.Tensor:
        self._layer(y_pred)  # before a cast to another precision hides whose output it is
        return super().__call__(y_true, y_pred, sample_weight)

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        head = self._layer(y_pred)
        return head.loss_weight * head.negative_expected_log_likelihood(y_true, y_pred)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "head_name": self._head_name, "dtype": self.dtype}


@keras.saving.register_keras_serializable(package="gpflow_gam")
class ResponseMetric(OfHead, keras.metrics.Metric):
    """
    A Keras metric of the expected response, for a model whose output is a head's moments.

    Labels may be codes or one-hot, whichever of them Keras's metric compares.

    :param metric: such as ``keras.metrics.SparseCategoricalAccuracy()``.
    :param head: the layer whose output is ``y_pred``.
    :param head_name: or its name.
    :param name: of the metric; by default the inner one's.
    :param dtype: as of :class:`keras.metrics.Metric`.
    """

    def __init__(
        self,
        metric: keras.metrics.Metric,
        head: MomentReader | None = None,
        *,
        head_name: str | None = None,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        if isinstance(metric, dict):
            metric = keras.saving.deserialize_keras_object(metric)
        super().__init__(name=name or metric.name, dtype=dtype)
        self._attach(head, head_name)
        self.metric = metric

    def update_state(
        self, y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: tf.Tensor | None = None
    ) -> Any:
        layer = self._layer(y_pred)
        response, Y = layer.response(y_pred), layer.response_matrix(y_true)
        classes = response.shape[1] if response.shape.rank == 2 else None
        y_true = as_metric_takes(self.metric, y_true, Y, classes)
        response = tf.cast(response, self.metric.dtype)
        return self.metric.update_state(y_true, response, sample_weight=sample_weight)

    def result(self) -> tf.Tensor:
        return self.metric.result()

    def reset_state(self) -> None:
        self.metric.reset_state()

    def get_config(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "metric": keras.saving.serialize_keras_object(self.metric),
            "head_name": self._head_name,
        }


@keras.saving.register_keras_serializable(package="gpflow_gam")
class NegativeLogPredictiveDensity(OfHead, keras.metrics.Mean):
    """
    ``-log E_q[p(y | rho(x))]``, averaged over rows: the score of the predictive distribution.

    :param head: the layer whose output is ``y_pred``.
    :param head_name: or its name.
    :param name: of the metric.
    :param dtype: as of :class:`keras.metrics.Metric`.
    """

    def __init__(
        self,
        head: MomentReader | None = None,
        *,
        head_name: str | None = None,
        name: str = "nlpd",
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        self._attach(head, head_name)

    def update_state(
        self, y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: tf.Tensor | None = None
    ) -> Any:
        density = self._layer(y_pred).predict_log_density(y_true, y_pred)
        return super().update_state(-tf.cast(density, self.dtype), sample_weight=sample_weight)

    def get_config(self) -> dict[str, Any]:
        return {"name": self.name, "head_name": self._head_name}


def metric_of(head: MomentReader, metric: str | keras.metrics.Metric) -> keras.metrics.Metric:
    """
    A metric of a head's response, by name or as Keras has it.

    :param head: the layer whose output is ``y_pred``.
    :param metric: ``"nlpd"``, ``"accuracy"``, or a Keras metric of (y, response) or its name.
    """
    if metric == "nlpd":
        return NegativeLogPredictiveDensity(head)
    if metric in ("accuracy", "acc"):
        binary = isinstance(unwrapped(head.likelihood), Bernoulli)
        kind = keras.metrics.BinaryAccuracy if binary else keras.metrics.SparseCategoricalAccuracy
        return ResponseMetric(kind(name="accuracy"), head)
    found = keras.metrics.get(metric)
    if not isinstance(found, keras.metrics.Metric):
        found = keras.metrics.MeanMetricWrapper(found, name=str(metric))
    return ResponseMetric(found, head)
