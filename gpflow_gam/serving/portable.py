"""
ONNX and LiteRT files, by tf2onnx and TensorFlow's converter.

Both get a graph of constants and plain operations: neither has all of TensorFlow's, ONNX Runtime
has some in single precision only, and neither factorises matrices.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
import math
import re
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import flatbuffers
import numpy as np
import scipy.linalg
import scipy.special
import tensorflow as tf
from gpflow.base import AnyNDArray
from numpy.polynomial import Chebyshev, Polynomial
from tensorflow.lite.python import schema_py_generated as schema
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2
from tensorflow.python.framework.op_def_library import apply_op

from ..likelihoods.predictive import rows_at_once
from ..version import __version__
from .servable import MEANINGS, MISSING_CODE, Input, Rows, Servable

Formula = Callable[..., Any]

FORMULAS: dict[str, Formula] = {}  # by the type of the operation that a formula stands in for


def _stands_for(*types: str) -> Callable[[Formula], Formula]:
    def register(function: Formula) -> Formula:
        FORMULAS.update(dict.fromkeys(types, function))
        return function

    return register


def _number(value: float, like: tf.Tensor) -> tf.Tensor:
    """For ``tf.where``, which takes a number of Python's for one in single precision."""
    return tf.constant(value, like.dtype)


# --- what is finite ----------------------------------------------------------------------------

# Converters turn the negation of ``<`` into ``>=``, which NaN does not satisfy either; only that of
# equality stays true of NaN.

FORMULAS["IsNan"] = lambda op, x: tf.not_equal(x, x)
FORMULAS["IsInf"] = lambda op, x: tf.equal(tf.abs(x), np.inf)
FORMULAS["IsFinite"] = lambda op, x: tf.equal(x - x, 0.0)


@_stands_for("DivNoNan", "MulNoNan", "Xdivy", "Xlogy")
def _no_nan(op: tf.Operation, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    none = tf.equal(y if op.type in ("DivNoNan", "MulNoNan") else x, 0.0)
    other = tf.where(none, _number(1.0, y), y)
    if op.type in ("DivNoNan", "Xdivy"):
        value = x / other
    else:
        value = x * (y if op.type == "MulNoNan" else tf.math.log(other))
    return tf.where(none, _number(0.0, value), value)


# --- exponentials and logarithms ---------------------------------------------------------------


@_stands_for("Expm1")
def _expm1(op: tf.Operation, x: tf.Tensor) -> tf.Tensor:
    # by the half-angle formula below one, where the exponential loses digits to the difference
    t = tf.tanh(0.5 * tf.minimum(x, 1.0))
    return tf.where(x < 1.0, 2.0 * t / (1.0 - t), tf.exp(x) - 1.0)


@_stands_for("Log1p")
def _log1p(op: tf.Operation, x: tf.Tensor) -> tf.Tensor:
    # what 1 + x rounds away is put back by the quotient (Kahan)
    u = 1.0 + x
    rest = u - 1.0
    none = tf.equal(rest, 0.0)
    value = tf.math.log(u) * (x / tf.where(none, _number(1.0, x), rest))
    return tf.where(none, x, tf.where(tf.equal(u, np.inf), u, value))


FORMULAS["Softplus"] = lambda op, x: tf.maximum(x, 0.0) + _log1p(op, tf.exp(-tf.abs(x)))


# --- the error function ------------------------------------------------------------------------


def _error_function(x: tf.Tensor, complement: bool) -> tf.Tensor:
    """By its series within one, beyond by the scaled complement, which is a polynomial."""
    size = tf.abs(x)
    inner = tf.minimum(size, 1.0)
    terms = [
        2.0 / math.sqrt(math.pi) * (-1) ** n / math.factorial(n) / (2 * n + 1) for n in range(22)
    ]
    near = tf.sign(x) * (inner * _polynomial(terms, inner * inner))
    # exp(z^2) erfc(z) on [1, inf) by v = 3 / (1 + z / 2) - 1 in (-1, 1]
    outer = tf.maximum(size, 1.0)
    v = 3.0 / (1.0 + 0.5 * outer) - 1.0
    far = tf.exp(-outer * outer) * _polynomial(_scaled_erfc(), v)
    if complement:
        return tf.where(size < 1.0, 1.0 - near, tf.where(x < 0.0, 2.0 - far, far))
    return tf.where(size < 1.0, near, tf.sign(x) * (1.0 - far))


FORMULAS["Erf"] = lambda op, x: _error_function(x, complement=False)
FORMULAS["Erfc"] = lambda op, x: _error_function(x, complement=True)


@functools.cache
def _scaled_erfc() -> list[float]:
    """Coefficients of the polynomial in v, from the constant on."""
    series = Chebyshev.interpolate(  # type: ignore[no-untyped-call]
        lambda v: scipy.special.erfcx(6.0 / np.maximum(v + 1.0, 1e-300) - 2.0), 26
    )
    return series.convert(kind=Polynomial).coef.tolist()


def _polynomial(coefficients: Sequence[float], x: tf.Tensor) -> tf.Tensor:
    value: Any = coefficients[-1]
    for a in coefficients[-2::-1]:
        value = value * x + a
    return value


# --- the gamma function ------------------------------------------------------------------------

_FAR = 10  # from where on Stirling's series has all digits
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)


@_stands_for("Lgamma")
def _lgamma(op: tf.Operation, x: tf.Tensor) -> tf.Tensor:
    mirrored = x < 0.5  # Euler's reflection
    at = tf.where(mirrored, 1.0 - x, x)
    near = at < _FAR
    far = tf.where(near, at + _FAR, at)
    series = (
        0.5 * tf.math.log(2.0 * math.pi / far) + _polynomial(_STIRLING, 1.0 / (far * far)) / far
    )
    value = far * (tf.math.log(far) - 1.0) + series
    less = tf.where(near, at, _number(1.0, at))
    steps = [tf.math.log(less + k) for k in range(_FAR)]
    value = tf.where(near, value - functools.reduce(tf.add, steps), value)
    sine = tf.abs(tf.sin(math.pi * (x - tf.floor(x))))
    return tf.where(mirrored, tf.math.log(math.pi / sine) - value, value)


# --- angles ------------------------------------------------------------------------------------


@_stands_for("Atan2")
def _atan2(op: tf.Operation, y: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    up, ahead = tf.abs(y), tf.abs(x)
    most, least = tf.maximum(up, ahead), tf.minimum(up, ahead)
    t = least / tf.where(tf.equal(most, 0.0), _number(1.0, x), most)
    for _ in range(2):  # a quarter of the angle, by its series
        t /= 1.0 + tf.sqrt(1.0 + t * t)
    series = [(-1) ** n / (2 * n + 1) for n in range(12)]
    angle = 4.0 * (t * _polynomial(series, t * t))
    angle = tf.where(up > ahead, 0.5 * math.pi - angle, angle)
    angle = tf.where(x < 0.0, math.pi - angle, angle)
    return tf.where(y < 0.0, -angle, angle)


def _beside(x: tf.Tensor) -> tf.Tensor:
    """The cosine of an angle of which x is the sine, or the other way round."""
    return tf.sqrt((1.0 - x) * (1.0 + x))


FORMULAS["Atan"] = lambda op, x: _atan2(op, x, tf.ones_like(x))
FORMULAS["Acos"] = lambda op, x: _atan2(op, _beside(x), x)
FORMULAS["Asin"] = lambda op, x: _atan2(op, x, _beside(x))


# --- matrices ----------------------------------------------------------------------------------


@_stands_for("MatrixDiagPartV3", "MatrixDiagPart")
def _diag_part(op: tf.Operation, x: tf.Tensor, k: Any = None, padding: Any = None) -> tf.Tensor:
    if k is not None and np.any(tf.get_static_value(k)):
        raise ValueError(f"model: {op.name} takes other diagonals, which no other format has.")
    rows, columns = x.shape[-2:]
    return tf.reduce_sum(x * tf.eye(rows, columns, dtype=x.dtype), axis=-1)


@_stands_for("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def _matmul(op: tf.Operation, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    flags = ("transpose_a", "transpose_b") if op.type == "MatMul" else ("adj_x", "adj_y")
    x, y = (
        tf.transpose(v, _swapped(v.shape.rank)) if op.get_attr(flag) else v
        for v, flag in zip((x, y), flags)
    )
    return product(x, y)


def product(x: Any, y: Any) -> Any:
    """Product of matrices [..., N, M] and [..., M, P]."""
    # LiteRT gets a product wrong that sums over one and repeats one factor along the others' batch
    if x.shape[-1] == 1:
        return x * y
    # and its converter cannot reshape what has two unknown sizes
    if y.shape[-1] == 1 and list(x.shape).count(None) > 1:
        return tf.reduce_sum(x * tf.transpose(y, _swapped(y.shape.rank)), axis=-1, keepdims=True)
    return tf.matmul(x, y)


@_stands_for("UpperBound", "LowerBound")
def _place(op: tf.Operation, bounds: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """Number of sorted ``bounds``, [B, K], below (UpperBound: at most) each ``x``, [B, M]."""
    x, bounds = tf.expand_dims(x, 2), tf.expand_dims(bounds, 1)
    below = bounds <= x if op.type == "UpperBound" else bounds < x
    return tf.reduce_sum(tf.cast(below, op.get_attr("out_type")), axis=-1)


@_stands_for("Squeeze")
def _squeeze(op: tf.Operation, x: tf.Tensor) -> tf.Tensor:
    rank = x.shape.rank
    gone = [i % rank for i in op.get_attr("squeeze_dims")]
    return _without(x, gone or [i for i, size in enumerate(x.shape) if size == 1])


def _without(x: tf.Tensor, axes: Sequence[int]) -> tf.Tensor:
    """A tensor without axes of size one, which LiteRT does not always take away."""
    return x[tuple(0 if i in axes else slice(None) for i in range(x.shape.rank))]


FORMULAS["AddN"] = lambda op, *x: functools.reduce(tf.add, x)


def _swapped(rank: int) -> list[int]:
    return [*range(rank - 2), rank - 1, rank - 2]


def inverse_of(op: tf.Operation, matrix: AnyNDArray) -> AnyNDArray:
    """Inverse, or its transpose, by which a triangular solve multiplies, [..., M, M]."""
    lower, adjoint = op.get_attr("lower"), op.get_attr("adjoint")
    eye = np.eye(matrix.shape[-1], dtype=matrix.dtype)
    flat = [
        scipy.linalg.solve_triangular(part, eye, lower=lower)
        for part in matrix.reshape(-1, *eye.shape)
    ]
    inverse = np.reshape(flat, matrix.shape)
    return np.swapaxes(inverse, -1, -2) if adjoint else inverse


COMPONENT = "component_"  # begins the names of components' outputs

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
            predictions = servable.predict(X, level)
        twice = sorted(set(predictions) & set(parts))
        if twice:
            raise ValueError(f"model: two outputs would be called {twice[0]!r}; rename a head.")
        outputs = rows.shown({**predictions, **parts}, axis=0)
        dtype = tf.float32 if single else tf.float64
        return {name: tf.cast(value, dtype) for name, value in outputs.items()}

    specs = {i.name: i.spec(single) for i in inputs}
    return tf.function(call, autograph=False).get_concrete_function(**specs)


def portable_graph(function: Any) -> PortableGraph:
    """A function with variables as numbers, calls inlined, and constants computed."""
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
    """Inverse of the matrix of a triangular solve, a constant: no other format has a solver."""
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


# --- ONNX files, by tf2onnx -----------------------------------------------------------------------

METADATA = "gpflow_gam"  # the name of the description among a file's metadata
OPSET, IR_VERSION = 18, 8  # older runtimes refuse newer ones
_ONE_AT_A_TIME = threading.Lock()


def _log(context: Any, node: Any, name: str, args: Any) -> Any:
    return node


def _top_k(context: Any, node: Any, name: str, args: Any) -> Any:
    k = np.ravel(node.inputs[1].get_tensor_value()).astype(np.int64)
    context.replace_input(node, node.input[1], context.make_const(f"{name}_k", k).output[0], 1)
    node.type = "TopK"
    return node


_IN_DOUBLE: dict[str, Any] = {"Log": (_log, []), "TopKV2": (_top_k, [])}
"""What tf2onnx would compute in single precision."""


def onnx_bytes(function: Any, inputs: Sequence[Input], description: dict[str, Any]) -> bytes:
    """A function of codes as an ONNX file, which looks up the text of its ``inputs``."""
    import onnx
    import tf2onnx

    specs = [
        tf.TensorSpec(s.shape, s.dtype, name=name)
        for name, s in function.structured_input_signature[1].items()
    ]
    names = [s.name for s in specs]
    positional = tf.function(lambda *values: function(**dict(zip(names, values))), autograph=False)
    with _ONE_AT_A_TIME:  # what is disabled, and tf2onnx's names, are the process's
        disabled = logging.root.manager.disable
        logging.disable(logging.ERROR)  # what is wrong is raised below
        try:
            model, _ = tf2onnx.convert.from_function(
                positional, specs, opset=OPSET, custom_op_handlers=_IN_DOUBLE
            )
        finally:
            logging.disable(disabled)
    graph = model.graph
    lacking = sorted({n.op_type for n in graph.node if not onnx.defs.has(n.op_type, n.domain)})
    if lacking:
        raise ValueError(
            f"model: it predicts by {', '.join(lacking)}, which cannot be written as ONNX; export "
            "it as a SavedModel (to a folder)."
        )
    text = {i.name: i for i in inputs if i.dtype == tf.string}
    for node in graph.node:
        node.input[:] = [f"_{name}" if name in text else name for name in node.input]
    for value in graph.input:
        if value.name in text:
            value.type.tensor_type.elem_type = onnx.TensorProto.STRING
            graph.node.insert(0, _label_encoder(text[value.name]))
    if text:
        model.opset_import.append(onnx.helper.make_opsetid("ai.onnx.ml", 2))
    model.ir_version = IR_VERSION
    model.producer_name, model.producer_version = "gpflow_gam", __version__
    onnx.helper.set_model_props(model, {METADATA: json.dumps(description)})
    onnx.checker.check_model(model, full_check=True)
    content: bytes = model.SerializeToString()
    return content


def _label_encoder(source: Input) -> Any:
    """Text to codes of levels."""
    import onnx

    codes = {level: i for i, level in enumerate(source.levels)}
    codes.setdefault("", MISSING_CODE)
    return onnx.helper.make_node(
        "LabelEncoder",
        [source.name],
        [f"_{source.name}"],
        domain="ai.onnx.ml",
        keys_strings=list(codes),
        values_int64s=list(codes.values()),
        default_int64=-1,
    )


# --- LiteRT files (TensorFlow Lite), by TensorFlow's own converter --------------------------------


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
