"""A head's moments compared with responses: losses, metrics, and how they find their head."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import keras
import tensorflow as tf
from gpflow.likelihoods import Bernoulli, Likelihood

from ..kernels.correlation import parameters_of, with_values
from ..likelihoods.base import require, unwrapped

if TYPE_CHECKING:
    from .head import GPHead

_OF_CODES = (
    keras.metrics.SparseCategoricalAccuracy,
    keras.metrics.SparseCategoricalCrossentropy,
    keras.metrics.SparseTopKCategoricalAccuracy,
)
HEAD = "_gpflow_gam_head"
"""Attribute of a head's output: a weak reference to the head. It is lost in any computation."""
FORWARD = "_gpflow_gam_forward"
"""Attribute of a head's output in training: the :class:`Forward` that it is from."""


_MASK = "_keras_mask"
"""Keras's attribute of an output whose steps are not all there."""


class Forward(NamedTuple):
    """What a training call was given, and what a head's loss takes over from it."""

    inputs: tf.Tensor  # [N, F]
    num_rows: tf.Tensor  # those that a mask has
    state: Any  # the head's own


def as_rows(x: tf.Tensor, leading: int) -> tf.Tensor:
    """x [..., *] with its leading dimensions made one, [N, *]."""
    return x if leading == 1 else tf.reshape(x, [-1, *x.shape[leading:]])


def as_leading(x: tf.Tensor, whole: tf.Tensor, last: int) -> tf.Tensor:
    """x [N, *] with the dimensions of ``whole`` but its ``last`` ones in the place of N."""
    known = whole.shape[:-last]
    if len(known) == 1:
        return x
    restored = tf.reshape(x, tf.concat([tf.shape(whole)[:-last], tf.shape(x)[1:]], axis=0))
    restored.set_shape(known.concatenate(x.shape[1:]))
    return restored


def as_many(Y: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Y [N, K], once N is the number of rows, to which a single one would be broadcast."""
    number = tf.shape(Y)[0]
    message = (
        f"y must be [N, {Y.shape[1]}] for N rows (of one-hot labels, after others, pass "
        "tf.argmax(y, axis=1))"
    )
    if tf.executing_eagerly() and number != rows:
        raise ValueError(f"{message}; got {int(number)} rows for {int(rows)}.")
    check = tf.debugging.Assert(tf.equal(number, rows), [message, number, "rows for", rows])
    with tf.control_dependencies([] if check is None else [check]):
        # which XLA, that drops the check, cannot do either
        return tf.reshape(Y, [rows, -1 if Y.shape[1] is None else Y.shape[1]])


def codes_of(Y: tf.Tensor) -> tf.Tensor:
    """Codes [N, 1] of one-hot labels Y [N, K]."""
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


def _possible(y: Any, mask: Any) -> Any:
    """Responses with one that the mask has in the place of all that it has not."""
    if mask is None:
        return y
    y, mask = tf.convert_to_tensor(y), tf.cast(mask, tf.bool)
    rank, extra = len(mask.shape), len(y.shape) - len(mask.shape)
    rows = tf.reshape(y, tf.concat([[-1], tf.shape(y)[rank:]], axis=0))
    first = tf.gather(rows, tf.argmax(tf.reshape(tf.cast(mask, tf.int32), [-1])))
    return tf.where(tf.reshape(mask, tf.concat([tf.shape(mask), [1] * extra], axis=0)), y, first)


def _row_weights(moments: tf.Tensor, sample_weight: Any) -> tf.Tensor:
    """Weights of rows in the dimensions of rows [...], 0 where the moments' mask has no step."""
    rank = len(moments.shape) - 2
    weight = tf.ones(tf.shape(moments)[:-2], moments.dtype)
    for factor in (getattr(moments, _MASK, None), sample_weight):
        if factor is not None:
            factor = tf.cast(factor, moments.dtype)
            missing = rank - len(factor.shape)  # one a sequence; or a last dimension of 1
            shape = tf.shape(factor)[: rank if missing < 0 else None]
            weight *= tf.reshape(factor, tf.concat([shape, [1] * max(missing, 0)], axis=0))
    return weight


def read_once(likelihood: Likelihood) -> Likelihood:
    """A likelihood whose formulas do not read and transform its parameters again and again."""
    values = [tf.convert_to_tensor(p) for p in parameters_of(likelihood)]
    return with_values(likelihood, values)


def _maker(output: Any) -> GPHead | None:
    reference = getattr(output, HEAD, None)
    return None if reference is None else reference()


class _ReadsHead:
    """A loss or metric that reads a head, which it does not own."""

    # Keras saves what it finds by walking attributes: through a plain one the head's weights would
    # be filed under the loss, and be lost to a model that is not compiled.
    _reference: weakref.ref[GPHead] | None
    _head_name: str | None

    def _attach(self, head: GPHead | None, head_name: str | None) -> None:
        if head is None and head_name is None:
            raise ValueError("head must be the layer whose output is read; got None.")
        self._reference = None if head is None else weakref.ref(head)
        self._head_name = head_name if head is None else head.name

    def _head(self, y_pred: Any = None) -> GPHead:
        """The head; where only its name is known, the one that made ``y_pred``."""
        # which has another name where a loaded model makes its head anew
        maker = _maker(y_pred)
        head = maker if self._reference is None else self._reference()
        if head is None and self._reference is not None:
            raise ValueError("the layer of this loss or metric is gone; compile the model again.")
        if head is None:
            raise ValueError(
                f"this loss or metric of layer {self._head_name!r} is from a file, and what it is "
                "given is not a head's output: compile its model again with head.loss and "
                "head.metric(...)."
            )
        if maker is not None and maker is not head:
            raise ValueError(
                f"the loss or metric of layer {head.name!r} is given the output of another one, "
                f"{maker.name!r}; compile with the loss and the metrics of the head whose output "
                "that is."
            )
        self._reference = weakref.ref(head)
        return head


class _OfRows(keras.losses.Loss):
    """Averages losses of rows by Keras's rules."""

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        return y_pred


@keras.saving.register_keras_serializable(package="gpflow_gam")
class ExpectedLogLikelihood(_ReadsHead, keras.losses.Loss):
    """``-E_q[log p(y | rho(x))]`` of each row, times the head's ``loss_weight``."""

    # with the head's KL divergence, which the layer adds itself, the negative ELBO over N

    def __init__(
        self,
        head: GPHead | None = None,
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
        head = self._head(y_pred)  # before a cast to another precision hides whose output it is
        mask = getattr(y_pred, _MASK, None)
        y_true = _possible(y_true, mask)
        forward = getattr(y_pred, FORWARD, None) if _maker(y_pred) is head else None
        if sample_weight is not None and len(y_pred.shape) > 2:  # of sequences become of steps
            sample_weight = _row_weights(y_pred, sample_weight)
        if forward is not None:
            delattr(y_pred, FORWARD)  # a metric that reads it, too, learns nothing
            weight = tf.reshape(_row_weights(y_pred, sample_weight), [-1, 1])
            sound = tf.math.is_finite(weight) & (weight >= 0.0)
            weight = require(weight, sound, "sample_weight must be finite and not negative")
            if self.reduction == "mean_with_sample_weight":
                number = tf.cast(forward.num_rows, weight.dtype)
                weight *= tf.math.divide_no_nan(number, tf.reduce_sum(weight))
            rows = head.loss_weight * head._observe(forward, y_true, y_pred, weight)
            if mask is not None:
                setattr(rows, _MASK, mask)
            average = _OfRows(self.name, self.reduction, self.dtype)
            return average(y_true, rows, sample_weight)
        if _maker(y_pred) is None and head.has_trained_here():
            raise ValueError(
                f"{head.name} learns in its loss, which must be given what the layer returns: "
                "leave out the layers between them. (Sequences and images need no TimeDistributed: "
                "the layer takes features [..., F].)"
            )
        return super().__call__(y_true, y_pred, sample_weight)

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        head = self._head(y_pred)
        return head.loss_weight * head.negative_expected_log_likelihood(y_true, y_pred)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "head_name": self._head_name, "dtype": self.dtype}


@keras.saving.register_keras_serializable(package="gpflow_gam")
class ResponseMetric(_ReadsHead, keras.metrics.Metric):
    """A Keras metric of the expected response, for labels as codes or one-hot."""

    def __init__(
        self,
        metric: keras.metrics.Metric,
        head: GPHead | None = None,
        *,
        head_name: str | None = None,
        name: str | None = None,
    ) -> None:
        if isinstance(metric, dict):
            metric = keras.saving.deserialize_keras_object(metric)
        super().__init__(name=name or metric.name)
        self._attach(head, head_name)
        self.metric = metric

    def update_state(
        self, y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: tf.Tensor | None = None
    ) -> Any:
        head = self._head(y_pred)
        response = head.response(y_pred)
        y_true = _possible(y_true, getattr(y_pred, _MASK, None))
        sample_weight = _row_weights(y_pred, sample_weight)
        leading = len(y_pred.shape) - 2
        Y = as_leading(head.response_matrix(y_true, y_pred), y_pred, 2)
        if len(response.shape) > leading:  # class probabilities
            if getattr(self.metric, "sparse_y_pred", False):  # of intersections over unions
                response = tf.argmax(response, axis=-1)
            if isinstance(self.metric, _OF_CODES) or getattr(self.metric, "sparse_y_true", False):
                y_true = Y
            elif _is_of_keras(self.metric):  # all others of its own take as many y as probabilities
                y_true = tf.one_hot(tf.cast(Y[..., 0], tf.int32), response.shape[-1])
        elif (
            isinstance(self.metric, (*_OF_CODES, keras.metrics.IoU))
            and not isinstance(self.metric, keras.metrics.BinaryIoU)
        ) or (Y.shape[-1] > 1 and _is_of_keras(self.metric)):
            raise ValueError(
                f"metric: {self.name} is not for {head.name}, whose likelihood "
                f"{type(unwrapped(head.likelihood)).__name__} predicts one number a row, of y with "
                f'{Y.shape[-1]} column(s); take "nlpd", or a function of (y, response).'
            )
        elif Y.shape[-1] == 1:  # Keras's metrics average over a last dimension, and weigh the rest
            response, y_true = response[..., None], Y
        if tf.as_dtype(self.metric.dtype).is_floating:  # counts of hits are whole, no probabilities
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
        head: GPHead | None = None,
        *,
        head_name: str | None = None,
        name: str = "nlpd",
    ) -> None:
        super().__init__(name=name)
        self._attach(head, head_name)

    def update_state(
        self, y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: tf.Tensor | None = None
    ) -> Any:
        y_true = _possible(y_true, getattr(y_pred, _MASK, None))
        sample_weight = _row_weights(y_pred, sample_weight)
        density = self._head(y_pred).predict_log_density(y_true, y_pred)
        return super().update_state(-tf.cast(density, self.dtype), sample_weight=sample_weight)

    def get_config(self) -> dict[str, Any]:
        return {"name": self.name, "head_name": self._head_name}


def _is_of_keras(metric: keras.metrics.Metric) -> bool:
    """True for Keras's metrics, but for that of any function."""
    own = type(metric).__module__.startswith("keras.")
    return own and type(metric) is not keras.metrics.MeanMetricWrapper


def metric_of(head: GPHead, metric: str | keras.metrics.Metric) -> keras.metrics.Metric:
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
