"""A head's moments compared with responses: losses, metrics, and how they find their head."""

from __future__ import annotations

import abc
import weakref
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from gpflow.likelihoods import Bernoulli, Likelihood

from ..likelihoods.base import unwrapped
from ..likelihoods.predictive import (
    expected_log_density,
    expected_response,
    predictive_log_density,
    response_interval,
)
from ..likelihoods.support import (
    check_width,
    checked_observations,
    num_labels,
    observation_width,
    possible_observations,
    require,
)

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
_HEADS: weakref.WeakSet[MomentReader] = weakref.WeakSet()
HEAD = "_gpflow_gam_head"
"""Attribute of a head's output: a weak reference to the head. It is lost in any computation."""
FEATURES = "_gpflow_gam_features"
"""Attribute of a head's output in training: the features that it was called with."""


class MomentReader(abc.ABC):
    """Reads moments [N, L, 2], or [N, L, 2 + L] with covariances behind, under a likelihood."""

    name: str
    compute_dtype: str
    level: float
    loss_weight: float = 1.0
    """Factor of its loss, the KL divergence included."""
    predictive_share: float | tf.Variable = 1.0
    """Share of the predictors' variance that class probabilities are averaged over."""

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
        """Moments of each predictor, M."""
        return 2

    def response(self, moments: tf.Tensor) -> tf.Tensor:
        """
        The expected response [N], or class probabilities [N, K], from moments.

        :param moments: what the layer returns, [N, L, M].
        """
        mean, var, X = self._unpacked(moments)
        return expected_response(self.likelihood, X, mean, self._shared(var))

    def interval(
        self, moments: tf.Tensor, level: float | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """
        Equal-tailed credible interval of the expected response, each end as :meth:`response`.

        :param moments: what the layer returns, [N, L, M].
        :param level: probability of the interval; the layer's by default.
        """
        mean, var, X = self._unpacked(moments)
        level = self.level if level is None else level
        return response_interval(self.likelihood, X, mean, var, level)

    def negative_expected_log_likelihood(self, y: tf.Tensor, moments: tf.Tensor) -> tf.Tensor:
        """
        ``-E_q[log p(y | rho)]`` of each row, [N]; NaN for a y that is impossible.

        :param y: responses, [N] or [N, K].
        :param moments: what the layer returns, [N, L, M].
        """
        mean, var, X = self._unpacked(moments)
        return -self._by_row(lambda Y: expected_log_density(self.likelihood, X, mean, var, Y), y)

    def predict_log_density(self, y: tf.Tensor, moments: tf.Tensor) -> tf.Tensor:
        """
        ``log E_q[p(y | rho)]`` of each row, [N]; NaN for a y that is impossible.

        :param y: responses, [N] or [N, K].
        :param moments: what the layer returns, [N, L, M].
        """
        mean, var, X = self._unpacked(moments)
        var = self._shared(var)
        return self._by_row(lambda Y: predictive_log_density(self.likelihood, X, mean, var, Y), y)

    def _by_row(self, density: Callable[[tf.Tensor], tf.Tensor], y: tf.Tensor) -> tf.Tensor:
        Y, possible = self._observed(y)
        missing = tf.constant(np.nan, self.compute_dtype)
        return tf.where(possible, tf.cast(density(Y), self.compute_dtype), missing)

    def _shared(self, var: tf.Tensor) -> tf.Tensor:
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

    def response_matrix(self, y: Any) -> tf.Tensor:
        """
        Responses as the likelihood takes them, Y [N, K]; one-hot labels become codes [N, 1].

        Rows that are not one-hot fail in the graph, and become -1 where XLA drops assertions.

        :param y: numbers, [N] or [N, K].
        :raises ValueError: text; y of another rank or width; (eagerly) a row that is not one-hot.
        """
        y = tf.convert_to_tensor(y)
        if y.dtype == tf.string:
            raise ValueError(
                "y must be numbers, labels as codes 0, 1, ...; got text. "
                "levels, codes = np.unique(y, return_inverse=True) has both."
            )
        Y = tf.cast(y, self.compute_dtype)
        width = observation_width(self.likelihood, self.num_predictors)
        if Y.shape.rank is None:  # in a function that was called with [N] and with [N, K]
            Y = tf.reshape(Y, [tf.shape(Y)[0], width])
        if Y.shape.rank not in (1, 2):
            raise ValueError(f"y must be [N] or [N, K]; got shape {Y.shape}.")
        if Y.shape.rank == 1:
            Y = Y[:, None]
        if width == 1 and Y.shape[1] is not None and Y.shape[1] == num_labels(self.likelihood):
            return _codes(Y)
        check_width(Y.shape[1], self.likelihood, self.num_predictors, "y")
        return Y

    def _observed(self, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Y [N, K] once it is known to be possible, and which rows are, [N]: XLA drops checks."""
        Y = self.response_matrix(y)
        possible = possible_observations(Y, self.likelihood)
        return checked_observations(Y, self.likelihood, "y"), possible


def _codes(Y: tf.Tensor) -> tf.Tensor:
    ones = tf.reduce_sum(tf.cast(tf.equal(Y, 1.0), tf.int32), axis=1)
    zeros = tf.reduce_sum(tf.cast(tf.equal(Y, 0.0), tf.int32), axis=1)
    one_hot = tf.equal(ones, 1) & tf.equal(zeros, Y.shape[1] - 1)
    message = (
        f"y of {Y.shape[1]} columns must be one-hot, a 1 and otherwise 0 in each row (a likelihood "
        "has no soft labels)"
    )
    Y = require(Y, one_hot[:, None] & tf.ones_like(Y, tf.bool), message)
    codes = tf.cast(tf.argmax(Y, axis=1), Y.dtype)
    return tf.where(one_hot, codes, -tf.ones_like(codes))[:, None]


def register(head: MomentReader) -> None:
    """Make a head known by its name."""
    _HEADS.add(head)


def features_of(output: Any, head: MomentReader) -> tf.Tensor | None:
    """Features [N, F] that ``head`` returned ``output`` for in training, or None."""
    maker = _maker(output)
    return getattr(output, FEATURES, None) if maker is head else None


def _maker(output: Any) -> MomentReader | None:
    reference = getattr(output, HEAD, None)
    return None if reference is None else reference()


class _ReadsHead:
    """
    A loss or metric that reads a head, which it does not own.

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

    def _head(self, y_pred: Any = None) -> MomentReader:
        """The head; where only its name is known, the one of that name that made ``y_pred``."""
        head = None if self._reference is None else self._reference()
        if head is None and self._reference is not None:
            raise ValueError("the layer of this loss or metric is gone; compile the model again.")
        maker = _maker(y_pred)
        if head is None and maker is not None and maker.name == self._head_name:
            head = maker
        if head is None:
            return _head_named(str(self._head_name))
        if maker is not None and maker is not head:
            raise ValueError(
                f"the loss or metric of layer {head.name!r} is given the output of another one, "
                f"{maker.name!r}; compile with the loss and the metrics of the head whose output "
                "that is."
            )
        self._reference = weakref.ref(head)
        return head


def _head_named(name: str) -> MomentReader:
    heads = [head for head in _HEADS if head.name == name]
    if not heads:
        raise ValueError(
            f"there is no layer {name!r} for this loss or metric; build its model first."
        )
    if len(heads) > 1:
        raise ValueError(
            f"there are {len(heads)} layers {name!r}, and this loss or metric says no more than "
            "that name: compile its model again with head.loss and head.metric(...), or give the "
            "layers names of their own."
        )
    return heads[0]


@keras.saving.register_keras_serializable(package="gpflow_gam")
class ExpectedLogLikelihood(_ReadsHead, keras.losses.Loss):
    """
    ``-E_q[log p(y_n | rho(x_n))]`` of each row: with the head's KL divergence, which the layer
    adds itself, the negative ELBO over the number of data; both times the head's ``loss_weight``.
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
        self._head(y_pred)  # before a cast to another precision hides whose output it is
        return super().__call__(y_true, y_pred, sample_weight)

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        head = self._head(y_pred)
        return head.loss_weight * head.negative_expected_log_likelihood(y_true, y_pred)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "head_name": self._head_name, "dtype": self.dtype}


@keras.saving.register_keras_serializable(package="gpflow_gam")
class ResponseMetric(_ReadsHead, keras.metrics.Metric):
    """
    A Keras metric of the expected response, for a model whose output is a head's moments.

    Labels may be codes or one-hot, whichever of them Keras's metric compares.
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
        head = self._head(y_pred)
        response, Y = head.response(y_pred), head.response_matrix(y_true)
        if response.shape.rank == 2:  # class probabilities
            if isinstance(self.metric, _OF_CODES):
                y_true = Y
            elif isinstance(self.metric, _OF_ONE_HOT):
                y_true = tf.one_hot(tf.cast(Y[:, 0], tf.int32), response.shape[1])
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
class NegativeLogPredictiveDensity(_ReadsHead, keras.metrics.Mean):
    """``-log E_q[p(y | rho(x))]``, averaged over rows: the score of the predictive distribution."""

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
        density = self._head(y_pred).predict_log_density(y_true, y_pred)
        return super().update_state(-tf.cast(density, self.dtype), sample_weight=sample_weight)

    def get_config(self) -> dict[str, Any]:
        return {"name": self.name, "head_name": self._head_name}


def metric_of(head: MomentReader, metric: str | keras.metrics.Metric) -> keras.metrics.Metric:
    """A metric of a head's response, by name or as Keras has it."""
    if metric == "nlpd":
        return NegativeLogPredictiveDensity(head)
    if metric in ("accuracy", "acc"):
        binary = isinstance(unwrapped(head.likelihood), Bernoulli)
        kind = keras.metrics.BinaryAccuracy if binary else keras.metrics.SparseCategoricalAccuracy
        return ResponseMetric(kind(name="accuracy"), head)
    result = keras.metrics.get(metric)
    if not isinstance(result, keras.metrics.Metric):
        result = keras.metrics.MeanMetricWrapper(result, name=str(metric))
    return ResponseMetric(result, head)
