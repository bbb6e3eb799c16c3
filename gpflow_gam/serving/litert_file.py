"""Writing LiteRT files (TensorFlow Lite), by TensorFlow's own converter."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import flatbuffers
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from tensorflow.lite.python import schema_py_generated as schema

from .portable import COMPONENT
from .servable import Input

METADATA = "gpflow_gam"
"""The name of the description among the file's metadata."""
IDENTIFIER = b"TFL3"
SIGNATURE = "serving_default"
LARGEST = 1e-2
"""Difference from double precision, beside an output's largest entry, that is refused."""
_OTHERS = "export it as ONNX (.onnx), or as a SavedModel (to a folder)."


def litert_bytes(function: Any, description: dict[str, Any]) -> bytes:
    """A concrete function of plain operations in single precision as a LiteRT file."""
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function], tf.Module())
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    try:
        content = converter.convert()
    except Exception as error:
        # of pages of code that the message is made of, the line with the operations
        lacking = re.search(r"^(?:TF Select|Custom) ops: (.*)$", str(error), re.MULTILINE)
        if lacking is None:
            raise
        raise ValueError(
            f"model: it predicts by {lacking[1]}, which LiteRT does not have; {_OTHERS}"
        ) from None
    return _described(content, description)


def check_litert(content: bytes, function: Any, inputs: Sequence[Input]) -> None:
    """Run a file; raises ValueError if converter or precision moved what it predicts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the interpreter has another home, which may not be there
        run = tf.lite.Interpreter(model_content=content).get_signature_runner(SIGNATURE)
    rng = np.random.default_rng(0)
    answers = []
    for rows in (1, 30):
        arguments = {i.name: _probe(i, rows, rng) for i in inputs}
        wanted = function(**{name: tf.constant(value) for name, value in arguments.items()})
        try:
            answers.append((_comparable(run(**arguments)), _comparable(wanted)))
        except (RuntimeError, ValueError) as error:
            raise ValueError(
                f"model: LiteRT does not run what its converter makes of it ({error}); {_OTHERS}"
            ) from None
    for name in function.structured_outputs:
        # components and standard deviations may be nothing beside the predictor
        mean = re.sub(rf"({COMPONENT})?(mean|variance)$", "mean", name)
        size = max(_size(w[k]) for _, w in answers for k in (name, mean) if k in w)
        away = max(_difference(answer[name], wanted[name]) for answer, wanted in answers) / size
        if not away <= LARGEST:
            raise ValueError(
                f"model: in LiteRT's single precision its {name} is {away:.1g} of its size "
                f"away from what it is in double; {_OTHERS}"
            )


def _comparable(outputs: Mapping[str, Any]) -> dict[str, AnyNDArray]:
    """With standard deviations in place of variances."""
    return {
        name: np.sqrt(values) if name.endswith("variance") else np.asarray(values)
        for name, values in outputs.items()
    }


def _probe(argument: Input, rows: int, rng: np.random.Generator) -> AnyNDArray:
    spec = argument.spec(single=True)
    shape = [rows, *(size or 1 for size in spec.shape[1:])]
    if argument.levels:
        known = range(len(argument.levels)) if argument.is_coded else argument.levels
        values: AnyNDArray = rng.choice(np.asarray(known), shape)
    else:
        values = rng.uniform(0.0, 1.0, shape)
    return values.astype(spec.dtype.as_numpy_dtype)


def _size(wanted: AnyNDArray) -> float:
    return float(np.max(np.abs(wanted), where=np.isfinite(wanted), initial=1e-6))


def _difference(answer: AnyNDArray, wanted: AnyNDArray) -> float:
    if answer.shape != wanted.shape or not np.array_equal(np.isnan(answer), np.isnan(wanted)):
        return np.inf
    finite = np.isfinite(wanted)
    return float(np.max(np.abs(answer - wanted), where=finite, initial=0.0))


def _described(content: bytes, description: dict[str, Any]) -> bytes:
    """The file with a description among its metadata."""
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0))
    for graph in model.subgraphs:
        _shorten(graph, model.buffers)
    buffer = schema.BufferT()
    buffer.data = list(json.dumps(description).encode())
    entry = schema.MetadataT()
    entry.name, entry.buffer = METADATA, len(model.buffers)
    model.buffers.append(buffer)
    model.metadata = [*(model.metadata or []), entry]
    read = {t.buffer for graph in model.subgraphs for t in graph.tensors}
    kept = sorted({0, *read, *(m.buffer for m in model.metadata)})
    model.buffers = [model.buffers[i] for i in kept]
    for owner in (*(t for graph in model.subgraphs for t in graph.tensors), *model.metadata):
        owner.buffer = kept.index(owner.buffer)
    builder = flatbuffers.Builder(len(content) + 1024)
    builder.Finish(model.Pack(builder), IDENTIFIER)
    return bytes(builder.Output())


def _shorten(graph: Any, buffers: Sequence[Any]) -> None:
    """Leave out names and sizes of tensors in between, which no interpreter reads."""
    shown = {*graph.inputs, *graph.outputs}
    for i, tensor in enumerate(graph.tensors):
        tensor.quantization = None
        data = buffers[tensor.buffer].data
        if data is None or not len(data):
            tensor.buffer = 0  # the empty one
        if i not in shown:
            tensor.name = tensor.shapeSignature = None
