"""Requests that TensorFlow Serving answers before it takes others: the first is no slower then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

WARMUP = Path("assets.extra") / "tf_serving_warmup_requests"
"""Where in a SavedModel TensorFlow Serving looks for them."""


def write_warmup(
    path: Path, name: str, signatures: Sequence[str], arguments: Mapping[str, tf.Tensor]
) -> None:
    """
    Write a request for each signature, as TFRecords of ``PredictionLog``.

    :param path: of the SavedModel.
    :param name: the model's.
    :param signatures: which are warmed up.
    :param arguments: of the requests, by name.
    :raises ImportError: TensorFlow Serving's messages are not there.
    """
    predict_pb2, prediction_log_pb2 = messages()
    with tf.io.TFRecordWriter(str(path / WARMUP)) as file:
        for signature in signatures:
            request = predict_pb2.PredictRequest()
            request.model_spec.name = name
            request.model_spec.signature_name = signature
            for key, value in arguments.items():
                request.inputs[key].CopyFrom(tf.make_tensor_proto(value.numpy(), value.dtype))
            log = prediction_log_pb2.PredictLog(request=request)
            file.write(prediction_log_pb2.PredictionLog(predict_log=log).SerializeToString())


def messages() -> tuple[Any, Any]:
    """
    The modules of TensorFlow Serving's messages.

    :raises ImportError: they are not there.
    """
    try:
        from tensorflow_serving.apis import predict_pb2, prediction_log_pb2
    except ModuleNotFoundError:
        raise ImportError(
            "warmup requests are written with the package tensorflow-serving-api: "
            "pip install tensorflow-serving-api."
        ) from None
    return predict_pb2, prediction_log_pb2
