"""A servable's functions with names and types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from .servable import Servable

DEFAULT = "serving_default"
SINGLE = "_float32"
"""What ends the names of signatures in single precision."""

MEANINGS = {
    "predict": {
        "mean": "of the predictor, offsets included",
        "variance": "of the predictor",
        "response": "expected response, or class probabilities",
        "lower": "credible limit of the expected response",
        "upper": "credible limit of the expected response",
    },
    "predict_components": {
        "mean": "of each component's contribution to the predictor",
        "variance": "of the same",
        "names": "of the components",
    },
    "sample": {
        "predictor": "joint draws of the predictor",
        "response": "the expected response of the same draws",
    },
}
"""What the signatures return."""


def signatures(servable: Servable, level: float) -> dict[str, Any]:
    """
    Concrete functions by name, in double and in single precision.

    :param level: probability of ``lower`` and ``upper``.
    """
    # traced once for all: what signatures differ in is how they come to X
    predict = tf.function(lambda X: servable.predict(X, level), autograph=False)
    components = tf.function(servable.components, autograph=False)
    sample = tf.function(servable.sample, autograph=False)

    def named(X: tf.Tensor) -> dict[str, tf.Tensor]:
        return {**components(X), "names": tf.constant(servable.names)}

    def drawn(X: tf.Tensor, num_samples: tf.Tensor, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        positive = num_samples >= 1
        check = tf.debugging.Assert(positive, ["num_samples must be at least 1; got", num_samples])
        with tf.control_dependencies([check]):
            found: dict[str, tf.Tensor] = sample(X, tf.identity(num_samples), seed)
        return found

    draws = [
        tf.TensorSpec([], tf.int32, name="num_samples"),
        tf.TensorSpec([], tf.int64, name="seed"),
    ]
    found = {}
    for single in (False, True):
        suffix = SINGLE if single else ""
        for name, function, more in (
            ("predict", predict, []),
            ("predict_components", named, []),
            ("sample", drawn, draws),
        ):
            found[name + suffix] = _traced(servable, function, more, single)
    found[DEFAULT] = found["predict"]
    return found


def _traced(
    servable: Servable,
    function: Callable[..., dict[str, tf.Tensor]],
    more: list[tf.TensorSpec],
    single: bool,
) -> Any:
    specs = [i.spec(single) for i in servable.inputs] + more

    def call(**inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        others = {spec.name: inputs.pop(spec.name) for spec in more}
        outputs = function(servable.features(inputs), **others)
        if not single:
            return outputs
        return {
            name: tf.cast(value, tf.float32) if value.dtype == tf.float64 else value
            for name, value in outputs.items()
        }

    # nothing to convert, and autograph would go through all of check_shapes
    compiled = tf.function(call, autograph=False)
    return compiled.get_concrete_function(**{spec.name: spec for spec in specs})
