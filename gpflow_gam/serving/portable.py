"""A servable's predictions as one graph of constants and plain operations, for other formats."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2
from tensorflow.python.framework.op_def_library import apply_op

from ..newton.operators import rows_at_once
from . import pair_curves  # noqa: F401  which teaches OPERATIONS
from .pair_functions import ARRANGING, OPERATIONS, arranged
from .pairs import Pair
from .plain import FORMULAS, inverse_of, product
from .rows import Rows
from .servable import Input, Servable
from .signatures import MEANINGS

COMPONENT = "component_"
"""What outputs of components begin with."""

PORTABLE_MEANINGS = {
    **MEANINGS["predict"],
    **{COMPONENT + name: text for name, text in MEANINGS["predict_components"].items()},
}
"""What the graph returns."""


@dataclasses.dataclass(frozen=True)
class PortableGraph:
    """
    What remains of a model: operations on its inputs, and numbers.

    :param inputs: the arguments, by name.
    :param outputs: by the names of :data:`PORTABLE_MEANINGS`.
    :param operations: what outputs are computed by, each after those that it reads.
    :param constants: tensors that these read and that depend on no input, by name.
    """

    inputs: dict[str, tf.Tensor]
    outputs: dict[str, tf.Tensor]
    operations: list[tf.Operation]
    constants: dict[str, AnyNDArray]


def portable_function(
    inputs: Sequence[Input], servable: Servable, level: float, single: bool
) -> Any:
    """
    The concrete function of a servable's moments, response, limits and components.

    Rows that the model cannot take are NaN: other formats cannot fail with a message.

    :param inputs: the servable's, or the same with codes for text.
    :param servable: the model.
    :param level: probability of the limits.
    :param single: whether numbers are taken and returned in single precision.
    """

    def call(**arguments: tf.Tensor) -> dict[str, tf.Tensor]:
        rows = Rows("nan", plain=True)
        with rows_at_once():
            X = servable.features(arguments, rows)
            parts = {}
            for name, value in servable.components(X).items():
                head, kind = servable.meaning(name, MEANINGS["predict_components"])
                parts[head + COMPONENT + kind] = value
            found = servable.predict(X, level, plain=True)
        twice = sorted(set(found) & set(parts))
        if twice:
            raise ValueError(f"model: two outputs would be called {twice[0]!r}; rename a head.")
        outputs = rows.shown({**found, **parts}, axis=0)
        dtype = tf.float32 if single else tf.float64
        return {name: tf.cast(value, dtype) for name, value in outputs.items()}

    specs = {i.name: i.spec(single) for i in inputs}
    return tf.function(call, autograph=False).get_concrete_function(**specs)


def portable_graph(function: Any) -> PortableGraph:
    """
    A function with its variables as numbers, its calls inlined, and constants computed.

    Whatever the posterior had to factorise is among the constants.

    :param function: of :func:`portable_function`.
    :raises ValueError: it checks its inputs, or computes in half precision.
    """
    # tables of the process, which are none of its and which TensorFlow warns of
    function.graph.clear_collection(tf.compat.v1.GraphKeys.TABLE_INITIALIZERS)
    frozen = convert_variables_to_constants_v2(function, aggressive_inlining=True)
    names = sorted(function.structured_outputs)  # as TensorFlow flattens a dict
    outputs = dict(zip(names, frozen.outputs))
    inputs = {t.op.name: t for t in frozen.inputs}
    live = _following(list(inputs.values()))
    for op in _behind(list(outputs.values()), waits=True):
        if op in live and op.type in ("Assert", "CheckNumerics"):
            raise ValueError(
                f"model: it checks its inputs while it predicts ({op.name}), which only a "
                "SavedModel can do; give ZeroMean kernels extrapolate=True, or export to a folder."
            )
    operations = [
        op for op in _behind(list(outputs.values()), waits=False) if op in live and op.inputs
    ]
    for op in operations:
        halves = [t.dtype.name for t in op.outputs if t.dtype in (tf.float16, tf.bfloat16)]
        if halves:
            raise ValueError(
                f"model: it computes in {halves[0]} ({op.name}), which only a SavedModel does; "
                "give its layers dtype='float32', or export to a folder."
            )
    read = [*outputs.values(), *(t for op in operations for t in op.inputs)]
    constants = {t.name: t for t in read if t.op not in live}
    # some wait for the inputs, which calls that were inlined leave behind, and read none
    fed = {
        t.name: np.full(
            [size or 1 for size in t.shape],
            "" if t.dtype == tf.string else 0,
            t.dtype.as_numpy_dtype,
        )
        for t in inputs.values()
    }
    with tf.compat.v1.Session(graph=frozen.graph) as session:
        values = session.run(constants, fed)
    return PortableGraph(
        inputs, outputs, operations, {name: np.asarray(v) for name, v in values.items()}
    )


def plain_function(graph: PortableGraph, single: bool = False) -> Any:
    """
    The concrete function of the same graph without what other formats lack.

    :param graph: the model.
    :param single: whether there is no double precision either: two numbers in single precision
        stand for one in double then, see :mod:`.pairs`.
    :raises ValueError: it solves a system of equations that depends on inputs.
    """

    def call(**inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        again = _Again(graph, single)
        again.made.update((graph.inputs[name].name, value) for name, value in inputs.items())
        for op in graph.operations:
            again(op)
        return {name: tf.identity(again.shown(t)) for name, t in graph.outputs.items()}

    specs = {
        name: tf.TensorSpec(t.shape, tf.float32 if single and t.dtype == tf.float64 else t.dtype)
        for name, t in graph.inputs.items()
    }
    named = {name: tf.TensorSpec(s.shape, s.dtype, name=name) for name, s in specs.items()}
    return tf.function(call, autograph=False).get_concrete_function(**named)


class _Again:
    """
    Operations of a graph, once more and equal ones once.

    :param graph: the model.
    :param single: see :func:`plain_function`.
    """

    def __init__(self, graph: PortableGraph, single: bool) -> None:
        self._graph = graph
        self._single = single
        self.made: dict[str, Any] = {}
        """What stands for a tensor, by its name: a tensor or a pair."""
        self._equal: dict[Any, list[Any]] = {}

    def __call__(self, op: tf.Operation) -> None:
        inputs = [self.tensor(t) for t in op.inputs]
        attributes = {k: v.SerializeToString() for k, v in op.node_def.attr.items()}
        key = (op.type, *map(id, inputs), *sorted(attributes.items()))
        if key not in self._equal:
            found = self._computed(op, inputs)
            several = isinstance(found, (list, tuple))
            self._equal[key] = list(found) if several else [found]
            for t, made in zip(op.outputs, self._equal[key]):
                for part in (made.hi, made.lo) if isinstance(made, Pair) else (made,):
                    if part is not None:
                        part.set_shape(t.shape)  # which is not always found again
        self.made.update(zip((t.name for t in op.outputs), self._equal[key]))

    def tensor(self, t: tf.Tensor) -> Any:
        if t.name not in self.made:
            value = self._graph.constants[t.name]
            key = (str(value.dtype), value.shape, _content(value))
            if key not in self._equal:
                pair = self._single and value.dtype == np.float64
                self._equal[key] = [Pair.of(value) if pair else tf.constant(value)]
            (self.made[t.name],) = self._equal[key]
        return self.made[t.name]

    def shown(self, t: tf.Tensor) -> tf.Tensor:
        found = self.tensor(t)
        return found.hi if isinstance(found, Pair) else found

    def _computed(self, op: tf.Operation, inputs: list[Any]) -> Any:
        if op.type == "MatrixTriangularSolve":
            inverse = _inverse(self._graph, op)
            return product(Pair.of(inverse) if self._single else tf.constant(inverse), inputs[1])
        if any(isinstance(x, Pair) for x in inputs):
            if op.type in OPERATIONS:
                return OPERATIONS[op.type](op, *inputs)
            if op.type in ARRANGING:
                return arranged(lambda *x: self._plain(op, list(x)), inputs)
            # any other function is one of inputs or of what is shown, and well conditioned
            inputs = [x.hi if isinstance(x, Pair) else x for x in inputs]
        found = self._plain(op, inputs)
        if self._single and op.outputs[0].dtype == tf.float64:
            return [Pair(t) for t in found] if isinstance(found, (list, tuple)) else Pair(found)
        return found

    def _plain(self, op: tf.Operation, inputs: list[tf.Tensor]) -> Any:
        if op.type in FORMULAS:
            return FORMULAS[op.type](op, *inputs)
        return _again(op, inputs, tf.float32 if self._single else tf.float64)


def _content(value: AnyNDArray) -> Any:
    return tuple(np.ravel(value)) if value.dtype == object else value.tobytes()


def _kept(found: Any, dtype: tf.DType) -> Any:
    return dtype if found == tf.float64 else found


def _inverse(graph: PortableGraph, op: tf.Operation) -> AnyNDArray:
    """Of the matrix of a triangular solve: no other format has a solver."""
    name = op.inputs[0].name
    if name not in graph.constants:
        raise ValueError(
            f"model: it solves equations that depend on its inputs ({op.name}), which only a "
            "SavedModel can do; export to a folder."
        )
    return inverse_of(op, graph.constants[name])


def _again(op: tf.Operation, inputs: list[tf.Tensor], dtype: tf.DType) -> Any:
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
            arguments[attr.name] = _kept(value, dtype) if attr.type == "type" else value
    if op.type == "Cast" and arguments["x"].dtype == arguments["DstT"]:
        return arguments["x"]
    return apply_op(op.type, **arguments)


def _following(inputs: list[tf.Tensor]) -> set[tf.Operation]:
    """The operations that depend on inputs, and these."""
    found = {t.op for t in inputs}
    todo = list(found)
    while todo:
        users = {user for t in todo.pop().outputs for user in t.consumers()} - found
        found |= users
        todo += users
    return found


def _behind(outputs: list[tf.Tensor], waits: bool) -> list[tf.Operation]:
    """The operations that outputs read, and those that they wait for, each after what it reads."""
    found: dict[tf.Operation, None] = {}
    entered: set[tf.Operation] = set()
    todo = [t.op for t in outputs]
    while todo:
        op = todo[-1]
        if op in entered:
            found.setdefault(todo.pop())
            continue
        entered.add(op)
        before = [*(t.op for t in op.inputs), *(op.control_inputs if waits else ())]
        todo += [other for other in before if other not in entered]
    return list(found)
