"""Losses and metrics that read a head: the ELBO's data term, the response, predictive density."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from gpflow.likelihoods import Bernoulli

from ..likelihoods import unwrapped
from .binding import OfHead
from .moments import MomentReader
from .responses import as_metric_takes


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
