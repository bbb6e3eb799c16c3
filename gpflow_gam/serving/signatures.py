"""A servable's functions with names and types."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import tensorflow as tf

from .servable import Invalid, Rows, Servable

DEFAULT = "serving_default"
SINGLE = "_float32"
"""Ends the names of signatures in single precision."""

MEANINGS = {
    "predict": {
        "mean": "of the predictor, offsets included",
        "variance": "of the predictor",
        "response": "expected response, or class probabilities",
        "lower": "bound of the credible interval of the expected response",
        "upper": "bound of the credible interval of the expected response",
        "mean_lower": "bound of the credible interval of each of several predictors",
        "mean_upper": "bound of the credible interval of each of several predictors",
    },
    "predict_components": {
        "mean": "of each component's contribution to the predictor",
        "variance": "of the same",
    },
    "sample": {
        "predictor": "joint draws of the predictor",
        "response": "the expected response of the same draws",
    },
}
"""Outputs of the signatures."""


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of :func:`~gpflow_gam.serving.export`."""

    level: float = 0.95
    invalid: Invalid = "error"
    max_rows: int | None = 1000

    def __post_init__(self) -> None:
        if not 0.0 < self.level < 1.0:
            raise ValueError(f"level must be a probability between 0 and 1; got {self.level}.")
        if self.invalid not in get_args(Invalid):
            raise ValueError(f"invalid must be 'error' or 'nan'; got {self.invalid!r}.")
        if self.max_rows is not None and (isinstance(self.max_rows, bool) or self.max_rows < 1):
            raise ValueError(
                f"max_rows must be at least 1, or None for no limit; got {self.max_rows!r}."
            )


def signatures(servable: Servable, options: Options) -> dict[str, Any]:
    """Concrete functions by name, in double and in single precision."""
    # traced once for all: signatures differ in how they come to X
    predict = tf.function(lambda X: servable.predict(X, options.level), autograph=False)
    components = tf.function(servable.components, autograph=False)
    sample = tf.function(servable.sample, autograph=False)
    most = np.iinfo(np.int32).max if options.max_rows is None else options.max_rows

    def drawn(X: Any, num_samples: tf.Tensor, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        rows = tf.shape(tf.nest.flatten(X)[0])[0]
        checks = [
            tf.debugging.Assert(
                num_samples >= 1, ["num_samples must be at least 1; got", num_samples]
            ),
            tf.debugging.Assert(
                rows <= most,
                [
                    f"a request for draws may have {most} rows, whose joint covariance is "
                    "factorised: send fewer, or export with a larger max_rows; got",
                    rows,
                ],
            ),
        ]
        with tf.control_dependencies(checks):
            X = tf.nest.map_structure(tf.identity, X)
            outputs: dict[str, tf.Tensor] = sample(X, tf.identity(num_samples), seed)
        return outputs

    draws = [
        tf.TensorSpec([], tf.int32, name="num_samples"),
        tf.TensorSpec([], tf.int64, name="seed"),
    ]
    functions = {}
    for single in (False, True):
        suffix = SINGLE if single else ""
        for name, function, more in (
            ("predict", predict, []),
            ("predict_components", components, []),
            ("sample", drawn, draws),
        ):
            functions[name + suffix] = _traced(servable, function, more, single, options.invalid)
    functions[DEFAULT] = functions["predict"]
    return functions


def _traced(
    servable: Servable,
    function: Callable[..., dict[str, tf.Tensor]],
    more: list[tf.TensorSpec],
    single: bool,
    invalid: Invalid,
) -> Any:
    specs = [i.spec(single) for i in servable.inputs] + more

    def call(**inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        others = {spec.name: inputs.pop(spec.name) for spec in more}
        rows = Rows(invalid)
        outputs = function(servable.features(inputs, rows), **others)
        outputs = rows.shown(outputs, axis=1 if more else 0)
        return _cast(outputs, tf.float32) if single else outputs

    # nothing to convert, and autograph would go through all of check_shapes
    compiled = tf.function(call, autograph=False)
    return compiled.get_concrete_function(**{spec.name: spec for spec in specs})


def _cast(outputs: dict[str, tf.Tensor], dtype: tf.DType) -> dict[str, tf.Tensor]:
    return {name: tf.cast(value, dtype) for name, value in outputs.items()}


# --- warm-up -------------------------------------------------------------------------------------

WARMUP = Path("assets.extra") / "tf_serving_warmup_requests"
"""Where in a SavedModel TensorFlow Serving looks for requests."""


def write_warmup(
    path: Path, name: str, signatures: Sequence[str], arguments: Mapping[str, tf.Tensor]
) -> None:
    """
    Write a request a signature, TFRecords of ``PredictionLog``, which TensorFlow Serving
    answers first.
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
    """The modules of TensorFlow Serving's messages."""
    try:
        from tensorflow_serving.apis import predict_pb2, prediction_log_pb2
    except ModuleNotFoundError:
        raise ImportError(
            "warmup requests are written with the package tensorflow-serving-api: "
            "pip install tensorflow-serving-api."
        ) from None
    return predict_pb2, prediction_log_pb2
