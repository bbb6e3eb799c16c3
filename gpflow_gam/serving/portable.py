"""A servable's predictions as one graph of constants and plain operations, for other formats."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2
from tensorflow.python.framework.op_def_library import apply_op

from ..newton.operators import rows_at_once
from .plain import FORMULAS, inverse_of, product
from .servable import Input, Rows, Servable
from .signatures import MEANINGS

COMPONENT = "component_"
"""Begins the names of components' outputs."""

PORTABLE_MEANINGS = {
    **MEANINGS["predict"],
    **{COMPONENT + name: text for name, text in MEANINGS["predict_components"].items()},
}
"""The graph's outputs."""


@dataclasses.dataclass(frozen=True)
class PortableGraph:
    """A model as operations on its inputs, in an order to compute them, and numbers."""

    inputs: dict[str, tf.Tensor]
    outputs: dict[str, tf.Tensor]
    operations: list[tf.Operation]
    constants: dict[str, AnyNDArray]
    shapes: dict[str, AnyNDArray]


def portable_function(
    inputs: Sequence[Input], servable: Servable, level: float, single: bool
) -> Any:
    """The concrete function of predictions and components; rows that cannot be taken are NaN."""

    def call(**arguments: tf.Tensor) -> dict[str, tf.Tensor]:
        rows = Rows("nan", plain=True)
        with rows_at_once():
            X = servable.features(arguments, rows)
            parts = {}
            for name, value in servable.components(X).items():
                head, kind = servable.split_head(name, MEANINGS["predict_components"])
                parts[head + COMPONENT + kind] = value
            predictions = servable.predict(X, level, plain=True)
        twice = sorted(set(predictions) & set(parts))
        if twice:
            raise ValueError(f"model: two outputs would be called {twice[0]!r}; rename a head.")
        outputs = rows.shown({**predictions, **parts}, axis=0)
        dtype = tf.float32 if single else tf.float64
        return {name: tf.cast(value, dtype) for name, value in outputs.items()}

    specs = {i.name: i.spec(single) for i in inputs}
    return tf.function(call, autograph=False).get_concrete_function(**specs)


def portable_graph(function: Any) -> PortableGraph:
    """
    A function with variables as numbers, calls inlined, and all that depends on no input
    computed.
    """
    # tables of the process, which are none of its and which TensorFlow warns of
    function.graph.clear_collection(tf.compat.v1.GraphKeys.TABLE_INITIALIZERS)
    frozen = convert_variables_to_constants_v2(function, aggressive_inlining=True)
    names = sorted(function.structured_outputs)  # as TensorFlow flattens a dict
    outputs = dict(zip(names, frozen.outputs))
    inputs = {t.op.name: t for t in frozen.inputs}
    dependent = _dependent(list(inputs.values()))
    for op in _sources(list(outputs.values()), waits=True):
        if op in dependent and op.type in ("Assert", "CheckNumerics"):
            raise ValueError(
                f"model: it checks its inputs while it predicts ({op.name}), which only a "
                "SavedModel can do; give ZeroMean kernels extrapolate=True, or export to a folder."
            )
    operations = [
        op for op in _sources(list(outputs.values()), waits=False) if op in dependent and op.inputs
    ]
    for op in operations:
        halves = [t.dtype.name for t in op.outputs if t.dtype in (tf.float16, tf.bfloat16)]
        if halves:
            raise ValueError(
                f"model: it computes in {halves[0]} ({op.name}), which only a SavedModel does; "
                "give its layers dtype='float32', or export to a folder."
            )
    read = [*outputs.values(), *(t for op in operations for t in op.inputs)]
    constants = {t.name: t for t in read if t.op not in dependent}
    reshapes = [op for op in operations if op.type == "Reshape" and op.inputs[1].op in dependent]
    reshaped = {op.name: op.outputs[0] for op in reshapes}
    with tf.compat.v1.Session(graph=frozen.graph) as session:
        # some constants wait for the inputs, which calls that were inlined leave behind
        values, two = session.run((constants, reshaped), _blank(inputs, 2))
        three = session.run(reshaped, _blank(inputs, 3))
    shapes = {}
    for name, value in two.items():
        shape = np.where(np.equal(value.shape, three[name].shape), value.shape, -1)
        if np.count_nonzero(shape == -1) <= 1:
            shapes[name] = shape
    arrays = {name: np.asarray(v) for name, v in values.items()}
    return PortableGraph(inputs, outputs, operations, arrays, shapes)


def _blank(inputs: Mapping[str, tf.Tensor], rows: int) -> dict[str, AnyNDArray]:
    """Zeros and empty text for all inputs."""
    return {
        t.name: np.full(
            [size or rows for size in t.shape],
            "" if t.dtype == tf.string else 0,
            t.dtype.as_numpy_dtype,
        )
        for t in inputs.values()
    }


def plain_function(graph: PortableGraph, single: bool = False) -> Any:
    """The same graph by operations that other formats have, in single precision on demand."""
    dtype = tf.float32 if single else tf.float64

    def call(**inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        rebuilt = _Rebuilt(graph, dtype)
        rebuilt.tensors.update((graph.inputs[name].name, value) for name, value in inputs.items())
        for op in graph.operations:
            rebuilt.add(op)
        return {name: tf.identity(rebuilt.tensor(t)) for name, t in graph.outputs.items()}

    specs = {
        name: tf.TensorSpec(t.shape, _in_precision(t.dtype, dtype), name=name)
        for name, t in graph.inputs.items()
    }
    return tf.function(call, autograph=False).get_concrete_function(**specs)


def _in_precision(value: Any, dtype: tf.DType) -> Any:
    return dtype if value == tf.float64 else value


class _Rebuilt:
    """A graph's operations in the function being traced, equal ones once."""

    def __init__(self, graph: PortableGraph, dtype: tf.DType) -> None:
        self._graph, self._dtype = graph, dtype
        self.tensors: dict[str, tf.Tensor] = {}
        self._equal: dict[Any, list[tf.Tensor]] = {}

    def add(self, op: tf.Operation) -> None:
        inputs = [self.tensor(t) for t in op.inputs]
        attributes = {k: v.SerializeToString() for k, v in op.node_def.attr.items()}
        key = (op.type, *map(id, inputs), *sorted(attributes.items()))
        if key not in self._equal:
            outputs = self._computed(op, inputs)
            self._equal[key] = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
            for t, made in zip(op.outputs, self._equal[key]):
                made.set_shape(t.shape)  # which is not always inferred again
        self.tensors.update(zip((t.name for t in op.outputs), self._equal[key]))

    def tensor(self, t: tf.Tensor) -> tf.Tensor:
        if t.name not in self.tensors:
            value = self._graph.constants[t.name]
            key = (str(value.dtype), value.shape, _content(value))
            if key not in self._equal:
                with np.errstate(over="ignore"):
                    dtype = _in_precision(tf.as_dtype(value.dtype), self._dtype)
                    self._equal[key] = [tf.constant(value, dtype)]
            (self.tensors[t.name],) = self._equal[key]
        return self.tensors[t.name]

    def _computed(self, op: tf.Operation, inputs: list[tf.Tensor]) -> Any:
        if op.type == "MatrixTriangularSolve":
            return product(tf.constant(_inverse(self._graph, op), self._dtype), inputs[1])
        if op.name in self._graph.shapes:
            return tf.reshape(inputs[0], self._graph.shapes[op.name])
        if op.type in FORMULAS:
            return FORMULAS[op.type](op, *inputs)
        return _same_operation(op, inputs, self._dtype)


def _content(value: AnyNDArray) -> Any:
    return tuple(np.ravel(value)) if value.dtype == object else value.tobytes()


def _inverse(graph: PortableGraph, op: tf.Operation) -> AnyNDArray:
    """Of the matrix of a triangular solve: no other format has a solver."""
    name = op.inputs[0].name
    if name not in graph.constants:
        raise ValueError(
            f"model: it solves equations that depend on its inputs ({op.name}), which only a "
            "SavedModel can do; export to a folder."
        )
    return inverse_of(op, graph.constants[name])


def _same_operation(op: tf.Operation, inputs: list[tf.Tensor], dtype: tf.DType) -> Any:
    """The same operation of other tensors."""
    rest = iter(inputs)
    arguments: dict[str, Any] = {}
    inferred = set()
    for arg in op.op_def.input_arg:
        inferred |= {arg.type_attr, arg.number_attr, arg.type_list_attr}
        if arg.number_attr:
            arguments[arg.name] = [next(rest) for _ in range(op.get_attr(arg.number_attr))]
        elif arg.type_list_attr:
            arguments[arg.name] = [next(rest) for _ in op.get_attr(arg.type_list_attr)]
        else:
            arguments[arg.name] = next(rest)
    for attr in op.op_def.attr:
        if attr.name not in inferred:
            value = op.get_attr(attr.name)
            arguments[attr.name] = _in_precision(value, dtype) if attr.type == "type" else value
    if op.type == "Cast" and arguments["x"].dtype == arguments["DstT"]:
        return arguments["x"]
    return apply_op(op.type, **arguments)


def _dependent(inputs: list[tf.Tensor]) -> set[tf.Operation]:
    """The operations that depend on inputs, and these."""
    dependent = {t.op for t in inputs}
    todo = list(dependent)
    while todo:
        users = {user for t in todo.pop().outputs for user in t.consumers()} - dependent
        dependent |= users
        todo += users
    return dependent


def _sources(outputs: list[tf.Tensor], waits: bool) -> list[tf.Operation]:
    """The operations that outputs read, and those that they wait for, each after what it reads."""
    ordered: dict[tf.Operation, None] = {}
    entered: set[tf.Operation] = set()
    todo = [t.op for t in outputs]
    while todo:
        op = todo[-1]
        if op in entered:
            ordered.setdefault(todo.pop())
            continue
        entered.add(op)
        before = [*(t.op for t in op.inputs), *(op.control_inputs if waits else ())]
        todo += [other for other in before if other not in entered]
    return list(ordered)
