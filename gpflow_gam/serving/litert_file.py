"""Writing LiteRT files (TensorFlow Lite), by TensorFlow's own converter."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Sequence
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
"""What such files begin with, behind their root's place."""


SIGNATURE = "serving_default"
_OTHERS = "export it as ONNX (.onnx), or as a SavedModel (to a folder)."
LARGEST = 1e-3
"""Difference from double precision, beside an output's largest entry, that is too large."""
NEGLIGIBLE = 1e-3
"""The share of the predictor, within which a component's own size does not count."""


def litert_bytes(function: Any, description: dict[str, Any]) -> bytes:
    """
    A function as a LiteRT file with one signature, ``serving_default``.

    :param function: concrete, of plain operations in single precision.
    :param description: for the metadata.
    :raises ValueError: an operation that is none of LiteRT's own.
    """
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
    """
    Run a file and compare it with what it was made of: converters have errors of their own.

    :param content: the file.
    :param function: the model's, of the same arguments, computed in double precision.
    :param inputs: what it takes.
    :raises ValueError: the file does not run, or says something else.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the interpreter has another home, which may not be there
        run = tf.lite.Interpreter(model_content=content).get_signature_runner(SIGNATURE)
    rng = np.random.default_rng(0)
    answers = []
    for rows in (1, 30):
        arguments = {i.name: _probe(i, rows, rng) for i in inputs}
        wanted = function(**{name: tf.constant(value) for name, value in arguments.items()})
        try:
            answers.append((run(**arguments), {k: v.numpy() for k, v in wanted.items()}))
        except (RuntimeError, ValueError) as error:
            raise ValueError(
                f"model: LiteRT does not run what its converter makes of it ({error}); {_OTHERS}"
            ) from None
    for name in function.structured_outputs:
        size = max(_size(wanted[name]) for _, wanted in answers)
        whole = name.replace(COMPONENT, "")
        if whole in function.structured_outputs:  # beside which a component may be nothing
            size = max(size, *(NEGLIGIBLE * _size(wanted[whole]) for _, wanted in answers))
        away = max(_difference(found[name], wanted[name]) for found, wanted in answers) / size
        if not away <= LARGEST:
            raise ValueError(
                f"model: in LiteRT's single precision its {name} is {away:.1g} of its size "
                f"away from what it is in double; {_OTHERS}"
            )


def _probe(argument: Input, rows: int, rng: np.random.Generator) -> AnyNDArray:
    spec = argument.spec(single=True)
    shape = [rows, *(size or 1 for size in spec.shape[1:])]
    if argument.levels:
        known = range(len(argument.levels)) if argument.is_coded else argument.levels
        found: AnyNDArray = rng.choice(np.asarray(known), shape)
    else:
        found = rng.uniform(0.0, 1.0, shape)
    return found.astype(spec.dtype.as_numpy_dtype)


def _size(wanted: AnyNDArray) -> float:
    return float(np.max(np.abs(wanted), where=np.isfinite(wanted), initial=1e-6))


def _difference(found: AnyNDArray, wanted: AnyNDArray) -> float:
    if found.shape != wanted.shape or not np.array_equal(np.isnan(found), np.isnan(wanted)):
        return np.inf
    holds = np.isfinite(wanted)
    return float(np.max(np.abs(found - wanted), where=holds, initial=0.0))


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
    """Leave out what no interpreter reads of tensors in between, which makes half of a file."""
    shown = {*graph.inputs, *graph.outputs}
    for i, tensor in enumerate(graph.tensors):
        tensor.quantization = None
        data = buffers[tensor.buffer].data
        if data is None or not len(data):
            tensor.buffer = 0  # the empty one
        if i not in shown:
            tensor.name = tensor.shapeSignature = None
