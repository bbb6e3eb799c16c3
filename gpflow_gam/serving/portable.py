"""ONNX and LiteRT files, by tf2onnx and TensorFlow's converter."""

from __future__ import annotations

import copy
import functools
import json
import math
import re
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.special
import tensorflow as tf
from gpflow.base import AnyNDArray
from numpy.polynomial import Chebyshev, Polynomial
from tensorflow.lite.python import schema_py_generated as schema
from tensorflow.lite.tools import flatbuffer_utils
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

from ..errors import imported
from ..likelihoods.predictive import rows_at_once
from ..version import __version__
from .servable import COMPONENT, OUTPUTS, Answers, Input, Rows, Servable, argument_names, joined

SIGNATURE = "serving_default"
METADATA = "gpflow_gam"  # the name of the description among a file's metadata


def graph_bytes(source: Servable, suffix: str, level: float) -> bytes:
    """The content of a file of predictions and components; rows that cannot be taken are NaN."""
    if suffix == ".onnx":  # inputs and outputs are of one name space
        taken = [joined(head, name) for head in source.heads for name in OUTPUTS]
        names = argument_names((i.name for i in source.inputs), taken)
        source.inputs = tuple(replace(i, name=names[i.name]) for i in source.inputs)

    coded = [i.coded() for i in source.inputs]

    def both(head: Answers, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return head.predict(x, level) | head.predict_components(x, COMPONENT)

    @rows_at_once()
    def traced(of: Servable, inputs: Sequence[Input]) -> Any:
        return of.traced(lambda X: of.each(both, X), inputs, lambda: Rows("nan", plain=True))

    function = traced(source, coded)
    single = [replace(i, dtype=tf.float32) if i.dtype == tf.float64 else i for i in coded]
    inputs = source.inputs if suffix == ".onnx" else single
    description = json.dumps(source.described(inputs, level=level, invalid="nan"))
    if suffix == ".onnx":
        plain = plain_function(function, tf.float64)
        check(plain, function, coded)
        return onnx_bytes(plain, inputs, description)

    if source.heads_alone:  # of a network's inputs nobody knows where data are
        part = source.heads_alone()
        alone = traced(part, part.inputs)
        check(plain_function(alone, tf.float32), alone, part.inputs)

    def written(of: Any, most: float) -> bytes:
        content = litert_bytes(plain_function(of, tf.float32), description)
        check(litert_runner(content), function, inputs, most)
        return content

    try:
        return written(function, FINE)
    except ValueError:  # of kernels single precision loses digits, of tables it does not
        return written(traced(source, coded) if source.by_tables() else function, LARGEST)


# --- graphs of constants and plain operations ----------------------------------------------------


def plain_function(function: Any, dtype: tf.DType) -> Any:
    """A function by constants and operations that other formats have, its doubles of a type."""
    # Other formats lack some of TensorFlow's operations, ONNX Runtime has some in single precision
    # only, and none factorises matrices. Tables of the process are none of its: TensorFlow warns.
    function.graph.clear_collection("table_initializer")
    frozen = convert_variables_to_constants_v2(function, aggressive_inlining=True)
    operations = _of_inputs(frozen)
    numbers, sizes = _numbers(frozen, operations)

    def in_precision(value: Any) -> Any:
        return dtype if value == tf.float64 else value

    def translated(op: tf.Operation, inputs: list[tf.Tensor]) -> Any:
        if op.type == "MatrixTriangularSolve" and op.inputs[0].name in numbers:
            matrix, how = numbers[op.inputs[0].name], map(op.get_attr, ("lower", "adjoint"))
            with tf.init_scope():
                inverse = tf.linalg.triangular_solve(
                    matrix, np.eye(matrix.shape[-1], dtype=matrix.dtype), *how
                )
            return _product(tf.constant(inverse.numpy(), dtype), inputs[1])
        if sizes.get(op.name, [-1, -1]).count(-1) < 2:
            return tf.reshape(inputs[0], sizes[op.name])
        if op.type in FORMULAS:
            return FORMULAS[op.type](op, *inputs)
        attributes = {name: copy.copy(value) for name, value in op.node_def.attr.items()}
        for value in attributes.values():
            if value.type == tf.float64.as_datatype_enum:
                value.type = dtype.as_datatype_enum
        graph = tf.compat.v1.get_default_graph()
        return graph.create_op(op.type, inputs, attrs=attributes).outputs

    def call(**inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        tensors = {t.name: inputs[t.op.name] for t in frozen.inputs}
        equal: dict[Any, list[tf.Tensor]] = {}  # which tf2onnx does not always join rightly

        def tensor(t: tf.Tensor) -> tf.Tensor:
            if t.name not in tensors:
                value = numbers[t.name]
                content = tuple(value.ravel()) if value.dtype == object else value.tobytes()
                key = str(value.dtype), value.shape, content
                if key not in equal:
                    with np.errstate(over="ignore"):
                        of = in_precision(tf.as_dtype(value.dtype))
                        equal[key] = [tf.constant(value, of)]
                (tensors[t.name],) = equal[key]
            return tensors[t.name]

        for op in operations:
            read = [tensor(t) for t in op.inputs]
            attributes = {k: v.SerializeToString() for k, v in op.node_def.attr.items()}
            key = (op.type, *map(id, read), *sorted(attributes.items()))
            if key not in equal:
                made = translated(op, read)
                equal[key] = list(made) if isinstance(made, (list, tuple)) else [made]
            for t, new in zip(op.outputs, equal[key]):
                new.set_shape(t.shape)  # which is not always inferred again
                tensors[t.name] = new
        names = sorted(function.structured_outputs)  # as TensorFlow flattens a dict
        return {name: tf.identity(tensor(t)) for name, t in zip(names, frozen.outputs)}

    specs = [tf.TensorSpec(t.shape, in_precision(t.dtype), t.op.name) for t in frozen.inputs]
    plain = tf.function(call, autograph=False)
    return plain.get_concrete_function(**{spec.name: spec for spec in specs})


def _of_inputs(frozen: Any) -> list[tf.Operation]:
    """The operations that outputs read and inputs change, each after what it reads."""
    every = frozen.graph.get_operations()
    dependent, new = set(), [t.op for t in frozen.inputs]
    while new:  # not in their order, which has the beginning of a loop before what it repeats
        op = new.pop()
        if op not in dependent:
            dependent.add(op)
            new += [reader for t in op.outputs for reader in t.consumers()]

    def needed(waits: bool) -> list[tf.Operation]:
        read = {t.op for t in frozen.outputs}
        for op in reversed(every):
            if op in read:
                read.update((t.op for t in op.inputs), op.control_inputs if waits else ())
        return [op for op in every if op in read and op in dependent and op.inputs]

    for op in needed(waits=True):
        if kind := {"Exit": "a loop", "LookupTableFindV2": "a lookup"}.get(op.type):
            raise ValueError(
                f"model: it predicts by {kind} ({op.name}), which only a SavedModel can do; give "
                "recurrent layers unroll=True, look codes up before, or export to a folder."
            )
        if op.type in ("Assert", "CheckNumerics"):
            raise ValueError(
                f"model: it checks its inputs while it predicts ({op.name}), which only a "
                "SavedModel can do; give ZeroMean kernels extrapolate=True, or export to a folder."
            )
    return needed(waits=False)


def _numbers(
    frozen: Any, operations: Sequence[tf.Operation]
) -> tuple[dict[str, AnyNDArray], dict[str, list[int]]]:
    """What operations read that no input changes; sizes of reshapes, -1 where rows change them."""
    made = {t.name for op in operations for t in op.outputs} | {t.name for t in frozen.inputs}
    read = [*frozen.outputs, *(t for op in operations for t in op.inputs)]
    constants = {t.name: t for t in read if t.name not in made}
    # where inputs have any length, too, nobody knows which of them there may be
    known = all(None not in t.shape[1:] for t in frozen.inputs)
    reshapes = {op.name: op.outputs[0] for op in operations if known and op.type == "Reshape"}

    def found(rows: int) -> Any:
        # some constants wait for the inputs, which calls that were inlined leave behind
        blank = {
            t.name: np.full([n or rows for n in t.shape], "" if t.dtype == tf.string else 0)
            for t in frozen.inputs
        }
        return session.run((constants, reshapes), blank)

    with tf.compat.v1.Session(graph=frozen.graph) as session:
        (values, two), (_, three) = found(2), found(3)
    pairs = {name: zip(two[name].shape, three[name].shape) for name in two}
    sizes = {name: [n if n == m else -1 for n, m in pair] for name, pair in pairs.items()}
    return {name: np.asarray(value) for name, value in values.items()}, sizes


# --- formulas of operations that formats lack, or have in single precision alone ------------------


def _polynomial(coefficients: Sequence[float], x: tf.Tensor) -> tf.Tensor:
    return functools.reduce(lambda value, a: value * x + a, coefficients[::-1], tf.zeros_like(x))


def _expm1(op: tf.Operation, x: tf.Tensor) -> tf.Tensor:
    # by the half-angle formula below one, where the exponential loses digits to the difference
    t = tf.tanh(0.5 * tf.minimum(x, 1.0))
    return tf.where(x < 1.0, 2.0 * t / (1.0 - t), tf.exp(x) - 1.0)


def _log1p(op: tf.Operation, x: tf.Tensor) -> tf.Tensor:
    # what 1 + x rounds away is put back by the quotient (Kahan)
    u = 1.0 + x
    rest = u - 1.0
    none = tf.equal(rest, 0.0)
    value = tf.math.log(u) * (x / tf.where(none, tf.ones_like(x), rest))
    return tf.where(none, x, tf.where(tf.equal(u, np.inf), u, value))


def _erfc(op: tf.Operation, x: tf.Tensor) -> tf.Tensor:
    # exp(x^2) erfc(x) is a polynomial in v = 4 / (2 + x) - 1 for x >= 0
    size = tf.abs(x)
    tail = tf.exp(-size * size) * _polynomial(_SCALED_ERFC, 4.0 / (2.0 + size) - 1.0)
    return tf.where(x < 0.0, 2.0 - tail, tail)


_ERFCX: Any = Chebyshev.interpolate(  # type: ignore[no-untyped-call]
    lambda v: scipy.special.erfcx(4.0 / np.maximum(v + 1.0, 1e-300) - 2.0), 24
)
_SCALED_ERFC = _ERFCX.convert(kind=Polynomial).coef.tolist()  # from the constant on
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)


def _lgamma(op: tf.Operation, x: tf.Tensor) -> tf.Tensor:
    # a step of 14 farther on Stirling's series has all digits, for x > -4
    near = x < 10.0
    far = tf.where(near, x + 14.0, x)
    series = _polynomial(_STIRLING, 1.0 / (far * far)) / far
    value = far * (tf.math.log(far) - 1.0) + series + 0.5 * tf.math.log(2.0 * math.pi / far)
    steps = [tf.math.log(tf.abs(tf.where(near, x + k, tf.ones_like(x)))) for k in range(14)]
    return value - functools.reduce(tf.add, steps)


def _atan2(op: tf.Operation, y: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    up, ahead = tf.abs(y), tf.abs(x)
    most, least = tf.maximum(up, ahead), tf.minimum(up, ahead)
    t = least / tf.where(tf.equal(most, 0.0), tf.ones_like(x), most)
    for _ in range(2):  # a quarter of the angle, by its series
        t /= 1.0 + tf.sqrt(1.0 + t * t)
    angle = 4.0 * t * _polynomial([(-1) ** n / (2 * n + 1) for n in range(12)], t * t)
    angle = tf.where(up > ahead, 0.5 * math.pi - angle, angle)
    angle = tf.where(x < 0.0, math.pi - angle, angle)
    return tf.where(y < 0.0, -angle, angle)


def _diag_part(op: tf.Operation, x: tf.Tensor, k: Any = None, padding: Any = None) -> tf.Tensor:
    if k is not None and np.any(tf.get_static_value(k)):
        raise ValueError(f"model: {op.name} takes other diagonals, which no other format has.")
    return tf.reduce_sum(x * tf.eye(*x.shape[-2:], dtype=x.dtype), axis=-1)


def _matmul(op: tf.Operation, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    flags = ("transpose_a", "transpose_b") if op.type == "MatMul" else ("adj_x", "adj_y")
    turned = tf.linalg.matrix_transpose
    x, y = (turned(v) if op.get_attr(flag) else v for v, flag in zip((x, y), flags))
    return _product(x, y)


def _product(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """Product of matrices [..., N, M] and [..., M, P]."""
    # LiteRT gets a product wrong that sums over one and repeats one factor along the others' batch
    if x.shape[-1] == 1:
        return x * y
    # and its converter cannot reshape what has two unknown sizes
    if y.shape[-1] == 1 and list(x.shape).count(None) > 1:
        return tf.reduce_sum(x * tf.linalg.matrix_transpose(y), axis=-1, keepdims=True)
    return tf.matmul(x, y)


# Converters turn the negation of ``<`` into ``>=``, which NaN does not satisfy either; only that of
# equality stays true of NaN.
FORMULAS: dict[str, Callable[..., Any]] = {
    "IdentityN": lambda op, *x: list(x),  # of functions that have a gradient of their own
    "IsInf": lambda op, x: tf.equal(tf.abs(x), np.inf),
    "Expm1": _expm1,
    "Log1p": _log1p,
    "Softplus": lambda op, x: tf.maximum(x, 0.0) + _log1p(op, tf.exp(-tf.abs(x))),
    "Tan": lambda op, x: tf.sin(x) / tf.cos(x),
    "Erf": lambda op, x: 1.0 - _erfc(op, x),
    "Erfc": _erfc,
    "Lgamma": _lgamma,
    "Atan2": _atan2,
    # single precision rounds a cosine of inputs that are nearly equal to more than one
    "Acos": lambda op, x: _atan2(op, tf.sqrt(tf.maximum((1.0 - x) * (1.0 + x), 0.0)), x),
    "MatrixDiagPartV3": _diag_part,
    "MatMul": _matmul,
    "BatchMatMulV2": _matmul,
}
"""By the type of the operation that a formula stands in for."""


# --- ONNX files, by tf2onnx -----------------------------------------------------------------------

OPSET, IR_VERSION = 18, 8  # older runtimes refuse newer ones
_ONE_AT_A_TIME = threading.Lock()


def _top_k(context: Any, node: Any, name: str, args: Any) -> Any:
    k = np.ravel(node.inputs[1].get_tensor_value()).astype(np.int64)
    context.replace_input(node, node.input[1], context.make_const(f"{name}_k", k).output[0], 1)
    node.type = "TopK"
    return node


_IN_DOUBLE: dict[str, Any] = {"Log": (lambda context, node, *_: node, []), "TopKV2": (_top_k, [])}
"""What tf2onnx would compute in single precision."""


def onnx_bytes(function: Any, inputs: Sequence[Input], description: str) -> bytes:
    """A function of codes as an ONNX file, which looks up the text of its ``inputs``."""
    onnx, tf2onnx = (imported(n, "an ONNX file", "'gpflow_gam[onnx]'") for n in ("onnx", "tf2onnx"))
    signature = function.structured_input_signature[1]
    specs = [tf.TensorSpec(s.shape, s.dtype, name=name) for name, s in signature.items()]
    positional = tf.function(lambda *v: function(**dict(zip(signature, v))), autograph=False)
    positional.get_concrete_function(*specs).graph.clear_collection("table_initializer")
    with _ONE_AT_A_TIME:  # tf2onnx's names are the process's
        model, _ = tf2onnx.convert.from_function(
            positional, specs, opset=OPSET, custom_op_handlers=_IN_DOUBLE
        )
    graph = model.graph
    text = {i.name: i for i in inputs if i.dtype == tf.string}
    for node in graph.node:
        node.input[:] = [f"_{name}" if name in text else name for name in node.input]
    for value in graph.input:
        if value.name in text:
            value.type.tensor_type.elem_type = onnx.TensorProto.STRING
            codes = text[value.name].codes
            coding: dict[str, Any] = {"domain": "ai.onnx.ml", "default_int64": -1}
            coding |= {"keys_strings": list(codes), "values_int64s": list(codes.values())}
            node = onnx.helper.make_node("LabelEncoder", [value.name], [f"_{value.name}"], **coding)
            graph.node.insert(0, node)
    if text:
        model.opset_import.append(onnx.helper.make_opsetid("ai.onnx.ml", 2))
    model.ir_version = IR_VERSION
    model.producer_name, model.producer_version = "gpflow_gam", __version__
    onnx.helper.set_model_props(model, {METADATA: description})
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        how = "export it as a SavedModel (to a folder)"
        raise ValueError(f"model: it cannot be written as ONNX; {how}. ({error})") from None
    return bytes(model.SerializeToString())


# --- LiteRT files (TensorFlow Lite), by TensorFlow's own converter --------------------------------

LARGEST, FINE = 1e-2, 1e-3  # errors of files; of means, beyond which tables are better
"""Difference from double precision, beside an output's largest entry, that is refused."""
_OF_ERRORS = 0.05  # that of standard errors, beside themselves: tables would move means by more
_OTHERS = "export it as ONNX (.onnx), or as a SavedModel (to a folder)."


def litert_bytes(function: Any, description: str) -> bytes:
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
    model = flatbuffer_utils.convert_bytearray_to_object(content)
    signatures = model.signatureDefs
    flatbuffer_utils.strip_strings(model)  # a third of the file, and its signatures with them
    model.signatureDefs = signatures
    buffer, entry = schema.BufferT(), schema.MetadataT()
    buffer.data = np.frombuffer(description.encode(), np.uint8)
    entry.name, entry.buffer = METADATA, len(model.buffers)
    model.buffers.append(buffer)
    model.metadata = [*(model.metadata or []), entry]
    return bytes(flatbuffer_utils.convert_object_to_bytearray(model))


def litert_runner(content: bytes) -> Any:
    """What runs a file."""
    with warnings.catch_warnings(action="ignore"):  # of its other home, which may not be there
        return tf.lite.Interpreter(model_content=content).get_signature_runner(SIGNATURE)


def check(run: Any, function: Any, inputs: Sequence[Input], most: float = LARGEST) -> None:
    """Raises ValueError if what is written predicts something else than the function."""
    rng, signature = np.random.default_rng(0), function.structured_input_signature[1]
    pairs = []
    for rows in (1, 30):
        probes = {i.name: _probe(i, rows, rng) for i in inputs}
        try:
            answer = run(**{i.name: probes[i.name].astype(i.dtype.as_numpy_dtype) for i in inputs})
        except (RuntimeError, ValueError, tf.errors.OpError) as error:
            raise ValueError(
                f"model: what is written does not run at inputs of shape "
                f"{[x.shape for x in probes.values()]} ({error}); {_OTHERS}"
            ) from None
        wide = {k: tf.cast(v, signature[k].dtype) for k, v in probes.items()}
        pairs.append((answer, function(**wide)))
    found, wanted = map(_comparable, zip(*pairs))
    for name, values in wanted.items():
        # components may be nothing beside the predictor
        mean = re.sub(rf"{COMPONENT}(mean|variance)$", "mean", name)
        both = [np.abs(wanted[k]) for k in {name, mean} & set(wanted)]
        size: Any = max(np.nanmax(x, initial=1e-6) for x in both)
        limit = LARGEST if name.endswith("variance") else most
        if name == mean and name.endswith("variance"):  # a row's own, or where data are
            with warnings.catch_warnings(action="ignore"):  # that all rows are NaN
                size = np.maximum(values, np.maximum(np.nanmedian(values, axis=0), 1e-6))
            limit = _OF_ERRORS
        same = np.array_equal(np.isnan(found[name]), np.isnan(values))
        away = np.nanmax(np.abs(found[name] - values) / size, initial=0.0) if same else np.inf
        if not away <= limit:
            raise ValueError(
                f"model: in the file (LiteRT's are in single precision) its {name} is {away:.1g} "
                f"of its size away from what it is; {_OTHERS}"
            )


def _comparable(answers: Sequence[Mapping[str, Any]]) -> dict[str, AnyNDArray]:
    """Of all requests, standard deviations in place of variances, and NaN of infinite values."""
    every = {name: np.concatenate([a[name] for a in answers]) for name in answers[0]}
    finite = {name: np.where(np.isinf(v), np.nan, v) for name, v in every.items()}
    return {n: np.sqrt(v) if n.endswith("variance") else v for n, v in finite.items()}


def _probe(argument: Input, rows: int, rng: np.random.Generator) -> AnyNDArray:
    shape = [rows, *(size or 32 * (1 + rows % 2) for size in argument.shape[1:])]  # of any length
    low, high = argument.range or (0.0, 1.0)
    if levels := argument.levels:
        codes = rng.integers(len(levels), size=rows)
        return codes if isinstance(levels[0], str) else np.asarray(levels)[codes]
    return np.asarray(rng.uniform(low, high, size=shape))
