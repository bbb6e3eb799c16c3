"""
Writing ONNX files: TensorFlow's operations as nodes of ONNX, in double precision.

The package tf2onnx is not used: it has no comparisons of text, and what it writes takes one and a
half times as long. Operations that ONNX or ONNX Runtime lack in double precision are expressed by
others before, in :mod:`~gpflow_gam.serving.plain`.
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

OPSET = 19
"""The first whose ``Equal`` compares text."""
IR_VERSION = 9
"""That of the opset: newer ones are refused by older runtimes."""
METADATA = "gpflow_gam"
"""The key of the description among the file's metadata."""


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
    content: bytes = model.SerializeToString()
    return content


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

TRANSLATIONS: dict[str, Translation] = {}

SAME = {
    **{name: name for name in ("Sub", "Mul", "Neg", "Exp", "Log", "Sqrt", "Abs", "Sign", "Floor")},
    **{name: name for name in ("Ceil", "Sigmoid", "Tanh", "Sin", "Cos", "Pow", "Equal", "Less")},
    **{name: name for name in ("Greater", "Identity", "Relu", "Reciprocal")},
    **{"AddV2": "Add", "Add": "Add", "RealDiv": "Div", "Maximum": "Max", "Minimum": "Min"},
    **{"LogicalAnd": "And", "LogicalOr": "Or", "LogicalNot": "Not", "SelectV2": "Where"},
    **{"LessEqual": "LessOrEqual", "GreaterEqual": "GreaterOrEqual", "BiasAdd": "Add"},
    **{"AddN": "Sum", "EnsureShape": "Identity", "StopGradient": "Identity"},
    **{"Snapshot": "Identity", "PreventGradient": "Identity"},
    **{"Shape": "Shape", "BroadcastTo": "Expand", "Tile": "Tile"},
}
"""Operations that ONNX has under the same or another name."""


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


def _translates(*types: str) -> Callable[[Translation], Translation]:
    def register(function: Translation) -> Translation:
        TRANSLATIONS.update(dict.fromkeys(types, function))
        return function

    return register


def _known(b: Builder, op: tf.Operation, name: str) -> Any:
    """The value of an input that ONNX takes as an attribute or constant."""
    if name not in b.values:
        raise ValueError(
            f"model: {op.type} ({op.name}) depends on its inputs in a way that ONNX does not allow;"
            " export it as a SavedModel (to a folder)."
        )
    return b.values[name]


def _whole(b: Builder, value: Any) -> str:
    return b.constant(np.asarray(value, np.int64))


# --- elementwise -------------------------------------------------------------------------------


@_translates("Square")
def _square(b: Builder, op: tf.Operation, x: list[str]) -> str:
    return b("Mul", x[0], x[0])


@_translates("SquaredDifference")
def _squared_difference(b: Builder, op: tf.Operation, x: list[str]) -> str:
    away = b("Sub", *x)
    return b("Mul", away, away)


@_translates("Rsqrt")
def _rsqrt(b: Builder, op: tf.Operation, x: list[str]) -> str:
    return b("Reciprocal", b("Sqrt", x[0]))


@_translates("NotEqual")
def _not_equal(b: Builder, op: tf.Operation, x: list[str]) -> str:
    return b("Not", b("Equal", *x))


@_translates("FloorMod")
def _floor_mod(b: Builder, op: tf.Operation, x: list[str]) -> str:
    if op.inputs[0].dtype.is_integer:
        return b("Mod", *x)
    return b("Sub", x[0], b("Mul", x[1], b("Floor", b("Div", *x))))


@_translates("FloorDiv")
def _floor_div(b: Builder, op: tf.Operation, x: list[str]) -> str:
    if op.inputs[0].dtype.is_integer:  # ONNX cuts the fraction off
        return b("Div", b("Sub", x[0], b("Mod", *x)), x[1])
    return b("Floor", b("Div", *x))


@_translates("Cast")
def _cast(b: Builder, op: tf.Operation, x: list[str]) -> str:
    if TYPES[op.inputs[0].dtype] == TYPES[op.outputs[0].dtype]:
        return x[0]
    return b("Cast", x[0], to=TYPES[op.outputs[0].dtype])


@_translates("ZerosLike", "OnesLike")
def _like(b: Builder, op: tf.Operation, x: list[str]) -> str:
    value = b.constant(0 if op.type == "ZerosLike" else 1, op.outputs[0].dtype)
    return b("Expand", value, b("Shape", x[0]))


@_translates("Softmax", "LogSoftmax")
def _softmax(b: Builder, op: tf.Operation, x: list[str]) -> str:
    return b(op.type, x[0], axis=-1)


# --- shapes ------------------------------------------------------------------------------------


@_translates("Fill")
def _fill(b: Builder, op: tf.Operation, x: list[str]) -> str:
    return b("Expand", x[1], x[0])


@_translates("Reshape")
def _reshape(b: Builder, op: tf.Operation, x: list[str]) -> str:
    return b("Reshape", *x, allowzero=1)  # a request of no rows has a zero in its shape


@_translates("ExpandDims")
def _expand_dims(b: Builder, op: tf.Operation, x: list[str]) -> str:
    return b("Unsqueeze", x[0], _whole(b, np.ravel(_known(b, op, x[1]))))


@_translates("Transpose")
def _transpose(b: Builder, op: tf.Operation, x: list[str]) -> str:
    return b("Transpose", x[0], perm=[int(i) for i in _known(b, op, x[1])])


@_translates("Pack")
def _pack(b: Builder, op: tf.Operation, x: list[str]) -> str:
    axis = int(op.get_attr("axis"))
    return b("Concat", *(b("Unsqueeze", v, _whole(b, [axis])) for v in x), axis=axis)


@_translates("Unpack")
def _unpack(b: Builder, op: tf.Operation, x: list[str]) -> list[str]:
    axis, number = int(op.get_attr("axis")), int(op.get_attr("num"))
    return [b("Gather", x[0], _whole(b, i), axis=axis) for i in range(number)]


@_translates("ConcatV2")
def _concat(b: Builder, op: tf.Operation, x: list[str]) -> str:
    return b("Concat", *x[:-1], axis=int(_known(b, op, x[-1])))


@_translates("Pad", "PadV2")
def _pad(b: Builder, op: tf.Operation, x: list[str]) -> str:
    # [axes, 2] becomes what is before all axes, then what is behind them
    ends = _whole(b, np.ravel(np.transpose(_known(b, op, x[1]))))
    return b("Pad", x[0], ends, *x[2:])


@_translates("SplitV")
def _split(b: Builder, op: tf.Operation, x: list[str]) -> list[str]:
    axis = int(_known(b, op, x[2]))
    return b.several("Split", [x[0], x[1]], len(op.outputs), axis=axis)


@_translates("Split")
def _equal_split(b: Builder, op: tf.Operation, x: list[str]) -> list[str]:
    number = len(op.outputs)
    return b.several("Split", [x[1]], number, axis=int(_known(b, op, x[0])), num_outputs=number)


@_translates("GatherV2")
def _gather(b: Builder, op: tf.Operation, x: list[str]) -> str:
    if op.get_attr("batch_dims"):
        raise ValueError(f"model: {op.name} gathers by batch, which cannot be written as ONNX.")
    return b("Gather", x[0], x[1], axis=int(_known(b, op, x[2])))


@_translates("StridedSlice")
def _strided_slice(b: Builder, op: tf.Operation, x: list[str]) -> str:
    begin, end, strides = (_known(b, op, v) for v in x[1:4])
    masks = ("begin_mask", "end_mask", "new_axis_mask", "shrink_axis_mask", "ellipsis_mask")
    bits = {name: int(op.get_attr(name)) for name in masks}

    def on(name: str, i: int) -> bool:
        return bool(bits[name] >> i & 1)

    new = sum(on("new_axis_mask", i) and not on("ellipsis_mask", i) for i in range(len(begin)))
    skipped = op.inputs[0].shape.rank - (len(begin) - new - bool(bits["ellipsis_mask"]))
    axis = 0
    slices: list[tuple[int, int, int, int]] = []
    dropped: list[int] = []
    added: list[int] = []
    place = 0  # among the axes of the result
    for i, (low, high, step) in enumerate(zip(begin, end, strides)):
        if on("ellipsis_mask", i):
            axis, place = axis + skipped, place + skipped
        elif on("new_axis_mask", i):
            added.append(place)
            place += 1
        else:
            if on("shrink_axis_mask", i):
                dropped.append(axis)
                low, high = int(low), int(low) + 1 or np.iinfo(np.int64).max
            else:
                low = (0 if step > 0 else np.iinfo(np.int64).max) if on("begin_mask", i) else low
                limit = np.iinfo(np.int64).max if step > 0 else np.iinfo(np.int64).min
                high = limit if on("end_mask", i) else high
                place += 1
            if (low, high, step) != (0, np.iinfo(np.int64).max, 1):
                slices.append((low, high, axis, step))
            axis += 1
    result = x[0]
    if slices:
        result = b("Slice", result, *(_whole(b, v) for v in zip(*slices)))
    if dropped:
        result = b("Squeeze", result, _whole(b, dropped))
    return b("Unsqueeze", result, _whole(b, added)) if added else result


# --- sums and products -------------------------------------------------------------------------


@_translates("Sum", "Mean", "Max", "Min", "Prod")
def _reduce(b: Builder, op: tf.Operation, x: list[str]) -> str:
    keep = int(op.get_attr("keep_dims"))
    return b(f"Reduce{op.type}", x[0], _axes(b, op, x[1]), keepdims=keep)


@_translates("Any", "All")
def _reduce_truth(b: Builder, op: tf.Operation, x: list[str]) -> str:
    kind, keep = {"Any": "ReduceMax", "All": "ReduceMin"}[op.type], int(op.get_attr("keep_dims"))
    counted = b("Cast", x[0], to=TYPES[tf.int64])
    return b("Cast", b(kind, counted, _axes(b, op, x[1]), keepdims=keep), to=TYPES[tf.bool])


def _axes(b: Builder, op: tf.Operation, name: str) -> str:
    return _whole(b, np.ravel(_known(b, op, name)))


@_translates("ArgMax")
def _argmax(b: Builder, op: tf.Operation, x: list[str]) -> str:
    # of truth values as numbers: in double, the one type in which runtimes agree to take it
    values = b("Cast", x[0], to=TYPES[tf.float64])
    return b("ArgMax", values, axis=int(_known(b, op, x[1])), keepdims=0)


@_translates("TopKV2")
def _top_k(b: Builder, op: tf.Operation, x: list[str]) -> list[str]:
    number = _whole(b, np.ravel(_known(b, op, x[1])))
    return b.several("TopK", [x[0], number], 2, axis=-1, largest=1, sorted=1)


@_translates("MatMul", "BatchMatMulV2", "BatchMatMul")
def _matmul(b: Builder, op: tf.Operation, x: list[str]) -> str:
    flags = ("transpose_a", "transpose_b") if op.type == "MatMul" else ("adj_x", "adj_y")
    return b(
        "MatMul",
        *(
            _adjoint(b, v, t.shape.rank) if op.get_attr(flag) else v
            for v, t, flag in zip(x, op.inputs, flags)
        ),
    )


def _adjoint(b: Builder, x: str, rank: int) -> str:
    if x in b.values:
        return b.constant(np.swapaxes(b.values[x], -1, -2))
    return b("Transpose", x, perm=[*range(rank - 2), rank - 1, rank - 2])
