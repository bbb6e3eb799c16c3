"""Nodes of an ONNX graph, equal ones once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import tensorflow as tf
from gpflow.base import AnyNDArray
from onnx import TensorProto, helper, numpy_helper

OPSET = 19
"""The first whose ``Equal`` compares text."""

TYPES = {
    tf.float64: TensorProto.DOUBLE,
    tf.float32: TensorProto.FLOAT,
    tf.int64: TensorProto.INT64,
    tf.int32: TensorProto.INT64,  # as ONNX's shapes are
    tf.int8: TensorProto.INT64,
    tf.bool: TensorProto.BOOL,
    tf.string: TensorProto.STRING,
}
"""What tensors become."""


class Builder:
    """
    A graph under construction, of values known by their names.

    These begin with ``_``, as no input and no output does.

    :param constants: values known from the start.
    """

    def __init__(self, constants: dict[str, AnyNDArray]) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.values: dict[str, AnyNDArray] = {}
        self._known = constants
        self._made: dict[Any, list[str]] = {}

    def constant(self, value: Any, dtype: tf.DType | None = None) -> str:
        """The name of a number or an array."""
        array = np.asarray(value, None if dtype is None else dtype.as_numpy_dtype)
        if array.dtype in (np.int32, np.int8):
            array = array.astype(np.int64)
        elif array.dtype.kind in "SU":
            array = array.astype(object)
        raw = tuple(np.ravel(array)) if array.dtype == object else array.tobytes()
        key = (str(array.dtype), array.shape, raw)
        if key not in self._made:
            name = f"_c{len(self.initializers)}"
            self.initializers.append(_tensor(array, name))
            self.values[name] = array
            self._made[key] = [name]
        return self._made[key][0]

    def known(self, tensor: str) -> str | None:
        """The constant that stands for a tensor of TensorFlow, if it is one."""
        return self.constant(self._known[tensor]) if tensor in self._known else None

    def several(self, kind: str, inputs: Sequence[str], outputs: int, **options: Any) -> list[str]:
        """The outputs of a node."""
        key = (kind, tuple(inputs), repr(sorted(options.items())))
        if key not in self._made:
            names = [f"_v{len(self.nodes)}_{i}" for i in range(outputs)]
            self.nodes.append(helper.make_node(kind, list(inputs), names, **options))
            self._made[key] = names
        return self._made[key]

    def __call__(self, kind: str, *inputs: str, **options: Any) -> str:
        """The one output of a node."""
        return self.several(kind, inputs, 1, **options)[0]


def _tensor(array: AnyNDArray, name: str) -> onnx.TensorProto:
    if array.dtype == object:
        text = [v if isinstance(v, bytes) else str(v).encode() for v in np.ravel(array)]
        return helper.make_tensor(name, TensorProto.STRING, array.shape, text)
    return numpy_helper.from_array(array, name)
