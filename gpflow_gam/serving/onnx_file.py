"""
Writing ONNX files: TensorFlow's operations as nodes of ONNX, in double precision.

The package tf2onnx is not used: it has no comparisons of text, and what it writes takes one and a
half times as long. Operations that ONNX or ONNX Runtime lack in double precision are expressed by
others before, in :mod:`~gpflow_gam.serving.portable`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import tensorflow as tf
from gpflow.base import AnyNDArray
from onnx import TensorProto, helper, numpy_helper

from ..version import __version__
from .portable import PortableGraph

OPSET = 19  # the first whose Equal compares text
IR_VERSION = 9  # that of the opset: newer ones are refused by older runtimes
METADATA = "gpflow_gam"  # the key of the description among the file's metadata


def onnx_bytes(graph: PortableGraph, description: dict[str, Any]) -> bytes:
    """A graph as an ONNX file, with a description among its metadata."""
    b = Builder()
    names = {t.name: name for name, t in graph.inputs.items()}

    def named(tensor: str) -> str:
        if tensor not in names:
            names[tensor] = b.constant(graph.constants[tensor])
        return names[tensor]

    for op in graph.operations:
        outputs = translated(b, op, [named(t.name) for t in op.inputs])
        names.update((t.name, name) for t, name in zip(op.outputs, outputs))
    for name, t in graph.outputs.items():
        b.nodes.append(helper.make_node("Identity", [named(t.name)], [name]))
    read = {name for node in b.nodes for name in node.input}
    model = helper.make_model(
        helper.make_graph(
            b.nodes,
            "gpflow_gam",
            [_value(name, t) for name, t in graph.inputs.items()],
            [_value(name, t) for name, t in graph.outputs.items()],
            [t for t in b.initializers if t.name in read],
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="gpflow_gam",
        producer_version=__version__,
    )
    helper.set_model_props(model, {METADATA: json.dumps(description)})
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


def _value(name: str, tensor: Any) -> onnx.ValueInfoProto:
    shape = ["N" if i == 0 else size for i, size in enumerate(tensor.shape.as_list())]
    return helper.make_tensor_value_info(name, TYPES[tensor.dtype], shape)


TYPES = {
    tf.float64: TensorProto.DOUBLE,
    tf.float32: TensorProto.FLOAT,
    tf.int64: TensorProto.INT64,
    tf.int32: TensorProto.INT64,  # as ONNX's shapes are
    tf.int8: TensorProto.INT64,
    tf.bool: TensorProto.BOOL,
    tf.string: TensorProto.STRING,
}


class Builder:
    """Nodes of a graph, equal ones once; names begin with ``_``, as no input's or output's do."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.values: dict[str, AnyNDArray] = {}
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


# --- operations ----------------------------------------------------------------------------------

Translation = Callable[[Builder, tf.Operation, list[str]], str | list[str]]

SAME = {
    **{name: name for name in ("Sub", "Mul", "Neg", "Exp", "Log", "Sqrt", "Abs", "Sign", "Floor")},
    **{name: name for name in ("Ceil", "Sigmoid", "Tanh", "Sin", "Cos", "Pow", "Equal", "Less")},
    **{name: name for name in ("Greater", "Identity", "Relu", "Reciprocal", "Shape", "Tile")},
    **{"AddV2": "Add", "Add": "Add", "RealDiv": "Div", "Maximum": "Max", "Minimum": "Min"},
    **{"LogicalAnd": "And", "LogicalOr": "Or", "LogicalNot": "Not", "SelectV2": "Where"},
    **{"LessEqual": "LessOrEqual", "GreaterEqual": "GreaterOrEqual", "BiasAdd": "Add"},
    **{"EnsureShape": "Identity", "StopGradient": "Identity", "BroadcastTo": "Expand"},
    **{"Snapshot": "Identity", "PreventGradient": "Identity"},
    **{"MatMul": "MatMul", "BatchMatMul": "MatMul", "BatchMatMulV2": "MatMul"},
}
"""Operations that ONNX has under the same or another name; factors of products come as they are."""


def translated(b: Builder, op: tf.Operation, inputs: list[str]) -> list[str]:
    """The names of an operation's outputs, whose nodes the builder gets."""
    if op.type in SAME:
        return [b(SAME[op.type], *inputs)]
    if op.type not in TRANSLATIONS:
        raise ValueError(
            f"model: it predicts by {op.type} ({op.name}), which cannot be written as ONNX; export "
            "it as a SavedModel (to a folder)."
        )
    outputs = TRANSLATIONS[op.type](b, op, inputs)
    return outputs if isinstance(outputs, list) else [outputs]


def _known(b: Builder, op: tf.Operation, name: str) -> AnyNDArray:
    """The value of an input that ONNX takes as an attribute or constant."""
    if name not in b.values:
        raise ValueError(
            f"model: {op.type} ({op.name}) depends on its inputs in a way that ONNX does not allow;"
            " export it as a SavedModel (to a folder)."
        )
    return b.values[name]


def _known_list(b: Builder, op: tf.Operation, name: str) -> str:
    return _whole(b, np.ravel(_known(b, op, name)))


def _whole(b: Builder, value: Any) -> str:
    return b.constant(np.asarray(value, np.int64))


def _floor_mod(b: Builder, op: tf.Operation, x: list[str]) -> str:
    if op.inputs[0].dtype.is_integer:
        return b("Mod", *x)
    return b("Sub", x[0], b("Mul", x[1], b("Floor", b("Div", *x))))


def _floor_div(b: Builder, op: tf.Operation, x: list[str]) -> str:
    if op.inputs[0].dtype.is_integer:  # ONNX cuts the fraction off
        return b("Div", b("Sub", x[0], b("Mod", *x)), x[1])
    return b("Floor", b("Div", *x))


def _cast(b: Builder, op: tf.Operation, x: list[str]) -> str:
    before, after = (TYPES[t.dtype] for t in (op.inputs[0], op.outputs[0]))
    return x[0] if before == after else b("Cast", x[0], to=after)


def _filled(value: int) -> Translation:
    return lambda b, op, x: b("Expand", b.constant(value, op.outputs[0].dtype), b("Shape", x[0]))


def _pack(b: Builder, op: tf.Operation, x: list[str]) -> str:
    axis = int(op.get_attr("axis"))
    return b("Concat", *(b("Unsqueeze", v, _whole(b, [axis])) for v in x), axis=axis)


def _unpack(b: Builder, op: tf.Operation, x: list[str]) -> list[str]:
    axis, number = int(op.get_attr("axis")), int(op.get_attr("num"))
    return [b("Gather", x[0], _whole(b, i), axis=axis) for i in range(number)]


def _pad(b: Builder, op: tf.Operation, x: list[str]) -> str:
    # [axes, 2] becomes what is before all axes, then what is behind them
    return b("Pad", x[0], _whole(b, np.ravel(np.transpose(_known(b, op, x[1])))), *x[2:])


def _split(b: Builder, op: tf.Operation, x: list[str]) -> list[str]:
    number = len(op.outputs)
    if op.type == "SplitV":
        return b.several("Split", x[:2], number, axis=int(_known(b, op, x[2])))
    return b.several("Split", x[1:], number, axis=int(_known(b, op, x[0])), num_outputs=number)


def _gather(b: Builder, op: tf.Operation, x: list[str]) -> str:
    if op.get_attr("batch_dims"):
        raise ValueError(f"model: {op.name} gathers by batch, which cannot be written as ONNX.")
    return b("Gather", x[0], x[1], axis=int(_known(b, op, x[2])))


def _strided_slice(b: Builder, op: tf.Operation, x: list[str]) -> str:
    """Slices without new axes, which :mod:`~gpflow_gam.serving.portable` adds afterwards."""
    begin, end, strides = (_known(b, op, v) for v in x[1:4])
    most, least = np.iinfo(np.int64).max, np.iinfo(np.int64).min

    def on(mask: str, i: int) -> bool:
        return bool(int(op.get_attr(mask)) >> i & 1)

    axis = 0
    slices: list[tuple[int, int, int, int]] = []
    dropped: list[int] = []
    for i, (low, high, step) in enumerate(zip(begin, end, strides)):
        if on("ellipsis_mask", i):
            axis += op.inputs[0].shape.rank - len(begin) + 1
            continue
        if on("shrink_axis_mask", i):
            dropped.append(axis)
            low, high = int(low), int(low) + 1 or most
        else:
            low = (0 if step > 0 else most) if on("begin_mask", i) else low
            high = (most if step > 0 else least) if on("end_mask", i) else high
        if (low, high, step) != (0, most, 1):
            slices.append((low, high, axis, step))
        axis += 1
    result = b("Slice", x[0], *(_whole(b, v) for v in zip(*slices))) if slices else x[0]
    return b("Squeeze", result, _whole(b, dropped)) if dropped else result


def _reduce(b: Builder, op: tf.Operation, x: list[str]) -> str:
    keep = int(op.get_attr("keep_dims"))
    return b(f"Reduce{op.type}", x[0], _known_list(b, op, x[1]), keepdims=keep)


def _reduce_truth(b: Builder, op: tf.Operation, x: list[str]) -> str:
    kind, keep = {"Any": "ReduceMax", "All": "ReduceMin"}[op.type], int(op.get_attr("keep_dims"))
    counted = b("Cast", x[0], to=TYPES[tf.int64])
    return b("Cast", b(kind, counted, _known_list(b, op, x[1]), keepdims=keep), to=TYPES[tf.bool])


def _argmax(b: Builder, op: tf.Operation, x: list[str]) -> str:
    # of truth values as numbers: in double, the one type in which runtimes agree to take it
    values = b("Cast", x[0], to=TYPES[tf.float64])
    return b("ArgMax", values, axis=int(_known(b, op, x[1])), keepdims=0)


TRANSLATIONS: dict[str, Translation] = {
    "Square": lambda b, op, x: b("Mul", x[0], x[0]),
    "SquaredDifference": lambda b, op, x: b("Mul", *[b("Sub", *x)] * 2),
    "Rsqrt": lambda b, op, x: b("Reciprocal", b("Sqrt", x[0])),
    "NotEqual": lambda b, op, x: b("Not", b("Equal", *x)),
    "FloorMod": _floor_mod,
    "FloorDiv": _floor_div,
    "Cast": _cast,
    "ZerosLike": _filled(0),
    "OnesLike": _filled(1),
    "Fill": lambda b, op, x: b("Expand", x[1], x[0]),
    "Softmax": lambda b, op, x: b("Softmax", x[0], axis=-1),
    "LogSoftmax": lambda b, op, x: b("LogSoftmax", x[0], axis=-1),
    # a request of no rows has a zero in its shape
    "Reshape": lambda b, op, x: b("Reshape", *x, allowzero=1),
    "ExpandDims": lambda b, op, x: b("Unsqueeze", x[0], _known_list(b, op, x[1])),
    "Transpose": lambda b, op, x: b("Transpose", x[0], perm=_known(b, op, x[1]).tolist()),
    "Pack": _pack,
    "Unpack": _unpack,
    "ConcatV2": lambda b, op, x: b("Concat", *x[:-1], axis=int(_known(b, op, x[-1]))),
    "Pad": _pad,
    "PadV2": _pad,
    "Split": _split,
    "SplitV": _split,
    "GatherV2": _gather,
    "StridedSlice": _strided_slice,
    **dict.fromkeys(("Sum", "Mean", "Max", "Min", "Prod"), _reduce),
    "Any": _reduce_truth,
    "All": _reduce_truth,
    "ArgMax": _argmax,
    "TopKV2": lambda b, op, x: b.several(
        "TopK", [x[0], _known_list(b, op, x[1])], 2, axis=-1, largest=1, sorted=1
    ),
}
