"""Writing models for programs that have none of ours, and reading SavedModels back."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from ..archive import replacing
from ..errors import check_choice, check_count, check_level
from ..gam.frames import Table
from ..gam.tables import ERROR
from ..version import __version__
from .portable import (
    PORTABLE_MEANINGS,
    check_litert,
    litert_bytes,
    onnx_bytes,
    plain_function,
    portable_function,
    portable_graph,
)
from .servable import (
    DESCRIPTION,
    FORMAT,
    MEANINGS,
    Invalid,
    Rows,
    Servable,
    argument_names,
    servable,
)
from .table_files import TableFormat, table_bytes, write_scorers


class Served:
    """
    A model as it is served: the signatures, with data of the usual kinds as arguments.

    :param module: from ``tf.saved_model.load``.
    :param description: what the file says of itself.
    """

    def __init__(self, module: Any, description: Mapping[str, Any]) -> None:
        self.module = module  # the variables live as long as it does
        self.signatures = dict(module.signatures)
        self.description = dict(description)

    def __repr__(self) -> str:
        inputs = ", ".join(i["name"] for i in self.description["inputs"])
        return f"Served({self.description['kind']} of {inputs})"

    def predict(self, data: Any) -> dict[str, AnyNDArray]:
        """
        The ``predict`` signature.

        :param data: a DataFrame, a dict of columns, or a matrix; columns by their own names or by
            those of the arguments. Of a network, its input, or several in a dict or list.
        :return: ``mean``, ``variance``, ``response``, ``lower``, ``upper``.
        :raises ValueError: a column that is not there or of another type.
        :raises tf.errors.InvalidArgumentError: values that the model cannot take, unless it was
            exported with ``invalid="nan"``.
        """
        return self._call("predict", data)

    def predict_components(self, data: Any) -> dict[str, AnyNDArray]:
        """
        The ``predict_components`` signature: ``mean`` and ``variance``; and the components'
        ``names``, from the description. Of several heads each name has its head's in front,
        ``one_mean``, ``one_names``.

        :param data: as of :meth:`predict`.
        """
        outputs, names = self._call("predict_components", data), self.description["components"]
        if not isinstance(names, dict):
            return outputs | {"names": np.array(names, dtype=object)}
        return outputs | {f"{k}_names": np.array(v, dtype=object) for k, v in names.items()}

    def sample(self, data: Any, num_samples: int = 1, seed: int = 0) -> dict[str, AnyNDArray]:
        """
        The ``sample`` signature.

        :param data: as of :meth:`predict`, at most ``max_rows`` of the export.
        :param num_samples: S.
        :param seed: equal ones give equal draws.
        :return: ``predictor`` and ``response``, joint draws at all rows.
        """
        number, seeded = tf.constant(num_samples, tf.int32), tf.constant(seed, tf.int64)
        return self._call("sample", data, num_samples=number, seed=seeded)

    def _call(self, name: str, data: Any, **more: tf.Tensor) -> dict[str, AnyNDArray]:
        outputs = self.signatures[name](**self.arguments(data), **more)
        return {key: np.asarray(value) for key, value in outputs.items()}

    def arguments(self, data: Any) -> dict[str, tf.Tensor]:
        """
        The inputs of a signature, by name.

        :param data: as of :meth:`predict`.
        :raises ValueError: a column that is not there or of another type.
        """
        return arguments(self.description, data)


def load(path: str | Path) -> Served:
    """
    Read what :func:`export` wrote.

    :param path: the folder.
    :return: a model to predict from.
    :raises FileNotFoundError: there is none.
    :raises ValueError: no SavedModel, none of ours, or a newer one.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no folder {path}.")
    if not (path / "saved_model.pb").exists():
        raise ValueError(f"{path} is no SavedModel: it has no saved_model.pb.")
    try:
        description = json.loads((path / DESCRIPTION).read_text(encoding="utf-8"))
        newer = description["format"] > FORMAT
    except (OSError, ValueError, KeyError, TypeError):
        raise ValueError(
            f"{path} is a SavedModel, but not one of gpflow_gam: it has no {DESCRIPTION}. "
            "tf.saved_model.load reads it."
        ) from None
    if newer:
        raise ValueError(
            f"{path} was written by gpflow_gam {description['gpflow_gam']} in format "
            f"{description['format']}; this version reads up to {FORMAT}. Upgrade gpflow_gam."
        )
    return Served(tf.saved_model.load(str(path)), description)


def arguments(description: Mapping[str, Any], data: Any) -> dict[str, tf.Tensor]:
    """The inputs of a signature, by name, from data as :meth:`Served.predict` takes them."""
    inputs = description["inputs"]
    if description["kind"] == "keras":
        return _tensors(data, inputs)
    if len(inputs) == 1 and inputs[0]["column"] is None:
        return {inputs[0]["name"]: _matrix(data, inputs[0])}
    table = Table(data)
    return {i["name"]: _column(table, i) for i in inputs}


def _tensors(data: Any, specs: list[Mapping[str, Any]]) -> dict[str, tf.Tensor]:
    """A network's inputs."""
    names = [spec["name"] for spec in specs]
    if isinstance(data, Mapping):
        keys = [s["column"] if s["column"] in data else s["name"] for s in specs]
        missing = [key for key in keys if key not in data]
        if missing:
            raise ValueError(f"data has no {missing[0]!r}; the inputs are {', '.join(names)}.")
        values = [data[key] for key in keys]
    elif isinstance(data, (list, tuple)) and len(names) > 1:
        values = list(data)
    else:
        values = [data]
    if len(values) != len(names):
        raise ValueError(f"data must hold {len(names)} inputs, {', '.join(names)}.")
    tensors = {}
    for spec, value in zip(specs, values):
        shape = np.shape(value)
        if len(shape) != len(spec["shape"]) or any(
            want not in (None, have) for want, have in zip(spec["shape"], shape)
        ):
            raise ValueError(f"{spec['name']} must be of shape {spec['shape']}; got {shape}.")
        tensors[spec["name"]] = tf.cast(tf.constant(np.asarray(value)), spec["dtype"])
    return tensors


def _matrix(data: Any, spec: Mapping[str, Any]) -> tf.Tensor:
    name, width = spec["name"], spec["shape"][1]
    if isinstance(data, Mapping) and name in data:
        data = data[name]
    elif isinstance(data, Mapping) or hasattr(data, "columns"):
        table = Table(data)
        # of columns that numbers name, those that are not there are read by nothing, or refused
        named = {i for i in table.names if isinstance(i, int)}
        hole = np.full(table.num_rows, np.nan)
        values = [hole if named and i not in named else table.values(i) for i in range(width)]
        data = np.stack(values, axis=1)
    X = np.asarray(data)
    if X.ndim != 2 or X.shape[1] < width:
        raise ValueError(f"data must be a matrix with {width} columns; got shape {X.shape}.")
    return tf.constant(X[:, :width].astype(np.float64))


def _column(table: Table, spec: Mapping[str, Any]) -> tf.Tensor:
    column, fill = spec["column"], spec["fill"]
    name = spec["name"] if column not in table and spec["name"] in table else column
    values, missing, dtype = table.values(name), table.missing(name), spec["dtype"]
    if dtype == "string":
        text = ["" if hole else value for value, hole in zip(values, missing)]
        other = next((v for v in text if not isinstance(v, (str, bytes))), None)
        if other is not None:
            raise ValueError(f"column {name!r} must hold text; got {other!r}.")
        return tf.constant(text, tf.string, shape=[len(text)])
    if dtype in ("int64", "bool") and missing.any():
        if fill is None:
            raise ValueError(f"column {name!r} has missing values; leave those rows out.")
        values = np.where(missing, fill, values)
    try:
        numbers = values.astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"column {name!r} must hold numbers; it holds text.") from None
    if dtype in ("int64", "bool"):
        # a fraction is no level, and neither is a number that is no truth value
        whole = np.where(numbers == np.round(numbers), numbers, np.iinfo(np.int32).min)
        if dtype == "bool" and not np.isin(whole, (0.0, 1.0)).all():
            raise ValueError(f"column {name!r} must hold truth values.")
        return tf.constant(whole.astype(dtype))
    return tf.constant(numbers)


# --- writing --------------------------------------------------------------------------------------


DEFAULT = "serving_default"
SINGLE = "_float32"  # ends the names of signatures in single precision


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of :func:`~gpflow_gam.serving.export`."""

    level: float = 0.95
    invalid: Invalid = "error"
    max_rows: int | None = 1000

    def __post_init__(self) -> None:
        check_level(self.level)
        check_choice("invalid", self.invalid, get_args(Invalid))
        check_count("max_rows", self.max_rows)


def signatures(servable: Servable, options: Options) -> dict[str, Any]:
    """Concrete functions by name, in double and in single precision."""
    # traced once for all: signatures differ in how they come to X
    predict = tf.function(lambda X: servable.predict(X, options.level), autograph=False)
    components = tf.function(servable.components, autograph=False)
    sample = tf.function(servable.sample, autograph=False)
    most = np.iinfo(np.int32).max if options.max_rows is None else options.max_rows

    def drawn(X: Any, num_samples: tf.Tensor, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        rows = tf.shape(tf.nest.flatten(X)[0])[0]
        checks = [
            tf.debugging.Assert(
                num_samples >= 1, ["num_samples must be at least 1; got", num_samples]
            ),
            tf.debugging.Assert(
                rows <= most,
                [
                    f"a request for draws may have {most} rows, whose joint covariance is "
                    "factorised: send fewer, or export with a larger max_rows; got",
                    rows,
                ],
            ),
        ]
        with tf.control_dependencies(checks):
            X = tf.nest.map_structure(tf.identity, X)
            outputs: dict[str, tf.Tensor] = sample(X, tf.identity(num_samples), seed)
        return outputs

    draws = [
        tf.TensorSpec([], tf.int32, name="num_samples"),
        tf.TensorSpec([], tf.int64, name="seed"),
    ]
    functions = {}
    for single in (False, True):
        suffix = SINGLE if single else ""
        for name, function, more in (
            ("predict", predict, []),
            ("predict_components", components, []),
            ("sample", drawn, draws),
        ):
            functions[name + suffix] = _traced(servable, function, more, single, options.invalid)
    functions[DEFAULT] = functions["predict"]
    return functions


def _traced(
    servable: Servable,
    function: Callable[..., dict[str, tf.Tensor]],
    more: list[tf.TensorSpec],
    single: bool,
    invalid: Invalid,
) -> Any:
    specs = [i.spec(single) for i in servable.inputs] + more

    def call(**inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        others = {spec.name: inputs.pop(spec.name) for spec in more}
        rows = Rows(invalid)
        outputs = function(servable.features(inputs, rows), **others)
        outputs = rows.shown(outputs, axis=1 if more else 0)
        dtype = tf.float32 if single else tf.float64
        return {name: tf.cast(value, dtype) for name, value in outputs.items()}

    # nothing to convert, and autograph would go through all of check_shapes
    compiled = tf.function(call, autograph=False)
    return compiled.get_concrete_function(**{spec.name: spec for spec in specs})


# --- warm-up -------------------------------------------------------------------------------------

WARMUP = Path("assets.extra") / "tf_serving_warmup_requests"
"""Path in a SavedModel of the warm-up requests of TensorFlow Serving."""


def write_warmup(
    path: Path, name: str, signatures: Sequence[str], arguments: Mapping[str, tf.Tensor]
) -> None:
    """Write a request a signature for TensorFlow Serving, as TFRecords of PredictionLog."""
    predict_pb2, prediction_log_pb2 = messages()
    with tf.io.TFRecordWriter(str(path / WARMUP)) as file:
        for signature in signatures:
            request = predict_pb2.PredictRequest()
            request.model_spec.name = name
            request.model_spec.signature_name = signature
            for key, value in arguments.items():
                request.inputs[key].CopyFrom(tf.make_tensor_proto(value.numpy(), value.dtype))
            log = prediction_log_pb2.PredictLog(request=request)
            file.write(prediction_log_pb2.PredictionLog(predict_log=log).SerializeToString())


def messages() -> tuple[Any, Any]:
    """The modules of TensorFlow Serving's messages."""
    try:
        from tensorflow_serving.apis import predict_pb2, prediction_log_pb2
    except ModuleNotFoundError:
        raise ImportError(
            "warmup requests are written with the package tensorflow-serving-api: "
            "pip install tensorflow-serving-api."
        ) from None
    return predict_pb2, prediction_log_pb2


Format = Literal["saved_model", "onnx", "litert", "json", "sql", "xlsx", "pmml"]
SUFFIXES: dict[str, Format] = {
    ".onnx": "onnx",
    ".tflite": "litert",
    **{f".{kind}": kind for kind in get_args(TableFormat)},
}


def export(
    model: Any,
    path: str | Path,
    *,
    format: Format | None = None,
    level: float = 0.95,
    invalid: Invalid | None = None,
    max_rows: int | None = 1000,
    single: bool = False,
    version: int | None = None,
    warmup: Any = None,
    error: float = ERROR,
    knots: Mapping[Any, Sequence[float]] | None = None,
    table: str = "data",
    overwrite: bool = False,
) -> None:
    """
    Write a model for other programs: as a SavedModel, an ONNX or a LiteRT file, or its tables.

    A SavedModel has the signatures ``predict``, ``predict_components`` and ``sample``; ONNX and
    LiteRT files have the outputs of the first two. JSON, SQL, Excel and PMML files hold a GAM's
    :meth:`~gpflow_gam.GAM.tables`, JSON beside the programs that read it. All of it is described in
    :doc:`/serving`, and of networks and models in the file itself.

    The folder or file appears whole or not at all.

    :param model: a fitted :class:`~gpflow_gam.GAM`, a trained model of :mod:`gpflow_gam.models`,
        or a functional or sequential ``keras.Model`` whose outputs are those of heads of
        :mod:`gpflow_gam.layers`, one each. Names of several heads, and ``_``, stand before those
        of their outputs.
    :param path: of the folder or file to write.
    :param format: ``"saved_model"``, ``"onnx"``, ``"litert"``, ``"json"``, ``"sql"``, ``"xlsx"`` or
        ``"pmml"``; by default what the suffix of ``path`` says (``.tflite`` of ``"litert"``), and a
        SavedModel otherwise.
    :param level: probability of ``lower`` and ``upper``, the credible interval of the expected
        response.
    :param invalid: for requests with rows that the model cannot take, such as levels it has never
        seen: ``"error"``, a SavedModel's default, fails all of it, ``"nan"`` answers NaN for those
        rows. The other formats know no errors: there it is always ``"nan"``.
    :param max_rows: of a request for joint draws, whose cost grows with the cube of its rows; None
        for no limit.
    :param single: whether an ONNX file takes and returns single precision.
    :param version: of a SavedModel, which is the folder of that number within ``path`` then, as
        TensorFlow Serving has it.
    :param warmup: rows that TensorFlow Serving predicts for when it has loaded a SavedModel, before
        it takes requests; data as for ``predict``. Written with ``tensorflow-serving-api``.
    :param error: of tables, the greatest error of straight lines between knots, as a share of the
        range of each effect over the data.
    :param knots: of columns whose tables have their knots there.
    :param table: of SQL, the table whose rows are scored.
    :param overwrite: whether what is there may be replaced by its like.
    :raises FileExistsError: there is something that may not be replaced.
    :raises ImportError: the package that writes the format is not installed.
    :raises ValueError: a bad option, a model that is not fitted, a network whose outputs
        are not those of heads, one each, or a model with operations that the format lacks, or whose
        predictions LiteRT's single precision changes by a hundredth of their size.
    :raises TypeError: a model of another kind.
    """
    path = Path(path)
    kind = _format(path, format)
    if single and kind != "onnx":
        raise ValueError(
            "single is for ONNX files: a SavedModel has signatures of both precisions, a LiteRT "
            f"file is in single precision anyhow, and tables are in double; got {path.name}."
        )
    if kind not in get_args(TableFormat) and (error, knots, table) != (ERROR, None, "data"):
        raise ValueError(
            f"error, knots and table are of tables (.json, .sql, ...); got {path.name}."
        )
    if kind == "saved_model":
        name = path.name
        check_count("version", version)
        if version is not None:
            path = path / str(version)
        options = Options(level, invalid or "error", max_rows)
        _export_folder(model, path, options, overwrite, None if warmup is None else (name, warmup))
        return
    if version is not None or warmup is not None:
        raise ValueError(
            f"version and warmup are TensorFlow Serving's, for SavedModels; {path.name} is none."
        )
    if invalid not in (None, "nan"):
        raise ValueError(
            f"invalid={invalid!r}: {path.name} cannot fail a request; pass invalid='nan', or "
            "export a SavedModel."
        )
    if path.is_dir():
        raise FileExistsError(f"{path} is a folder, and will not be replaced by a file.")
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path} is there already; pass overwrite=True to replace it.")
    if kind == "onnx" or kind == "litert":
        content = _graph_bytes(model, path, kind, Options(level, "nan", max_rows), single)
    else:
        content = table_bytes(model, kind, error, knots, table)
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "json":
        write_scorers(path.parent)
    with replacing(path) as file:
        file.write(content)


def _format(path: Path, format: Format | None) -> Format:
    if format is None:
        return SUFFIXES.get(path.suffix.lower(), "saved_model")
    if format not in get_args(Format):
        *others, last = map(repr, get_args(Format))
        raise ValueError(f"format must be {', '.join(others)} or {last}; got {format!r}.")
    return format


# --- ONNX and LiteRT -----------------------------------------------------------------------------


def _graph_bytes(model: Any, path: Path, kind: Format, options: Options, single: bool) -> bytes:
    lacking = [name for name in ("onnx", "tf2onnx") if kind == "onnx" and find_spec(name) is None]
    if lacking:
        raise ImportError(
            f"{path.name} is written with the package {lacking[0]}: pip install 'gpflow_gam[onnx]'."
        )
    source = servable(model)
    coded = [i.coded() for i in source.inputs]
    function = portable_function(coded, source, options.level, single or kind == "litert")
    graph = portable_graph(function)
    about = {"level": options.level, "invalid": options.invalid}
    description = _description(source, {DEFAULT: (function, PORTABLE_MEANINGS)}, **about)
    if kind == "litert":
        description["inputs"] = [i.to_json() for i in coded]
        content = litert_bytes(plain_function(graph, single=True), description)
        check_litert(content, function, coded)
        return content
    # inputs and outputs of an ONNX graph are of one name space
    names = argument_names(graph.inputs, graph.outputs)
    graph = dataclasses.replace(graph, inputs={names[k]: t for k, t in graph.inputs.items()})
    inputs = [dataclasses.replace(i, name=names[i.name]) for i in source.inputs]
    description["inputs"] = [i.to_json() for i in inputs]
    description["signatures"][DEFAULT]["inputs"] = {i.name: _type(i.spec(single)) for i in inputs}
    return onnx_bytes(plain_function(graph), inputs, description)


# --- SavedModel ----------------------------------------------------------------------------------


def _export_folder(
    model: Any, path: Path, options: Options, overwrite: bool, warmup: tuple[str, Any] | None
) -> None:
    if warmup is not None:
        messages()
    source = servable(model)
    if path.exists():
        if not overwrite:
            raise FileExistsError(f"{path} is there already; pass overwrite=True to replace it.")
        if not (path / "saved_model.pb").exists():
            raise FileExistsError(f"{path} is no SavedModel, and will not be replaced by one.")
    path.parent.mkdir(parents=True, exist_ok=True)
    # beside the target, so that the last step is a rename within one file system
    folder = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        new, old = folder / "new", folder / "old"
        _write(source, new, options)
        if warmup is not None:
            name, data = warmup
            description = json.loads((new / DESCRIPTION).read_text(encoding="utf-8"))
            write_warmup(new, name, list(MEANINGS)[:2], arguments(description, data))
        if path.exists():
            os.rename(path, old)
        try:
            os.rename(new, path)
        except BaseException:
            if old.exists():
                os.rename(old, path)
            raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write(source: Servable, path: Path, options: Options) -> None:
    functions = signatures(source, options)
    module = tf.Module()
    module.state = _state_copies(list(functions.values()))
    module.tables = source.resources()
    tf.saved_model.save(module, str(path), signatures=functions)
    target = path / DESCRIPTION
    target.parent.mkdir()
    meant = {
        name: (f, MEANINGS["predict" if name == DEFAULT else name.removesuffix(SINGLE)])
        for name, f in functions.items()
    }
    about = {"tensorflow": tf.__version__, **dataclasses.asdict(options)}
    text = json.dumps(_description(source, meant, **about), indent=1)
    target.write_text(text + "\n", encoding="utf-8")


def _state_copies(functions: list[Any]) -> list[tf.Variable]:
    """Copies of the variables that graphs read, whose names a SavedModel takes."""
    variables = {id(v.handle): v for f in functions for v in f.graph.variables}
    copies = {
        key: tf.Variable(v.read_value(), trainable=False, name=f"state_{i}")
        for i, (key, v) in enumerate(variables.items())
    }
    for function in {id(f): f for f in functions}.values():
        captured = [
            copies[id(c)].handle if id(c) in copies else c for c in function.captured_inputs
        ]
        function.set_external_captures(captured)
    return list(copies.values())


def _description(
    source: Servable, functions: dict[str, tuple[Any, dict[str, str]]], **about: Any
) -> dict[str, Any]:
    """Description stored in a file: kind, inputs, components, functions with their outputs."""
    return {
        "kind": source.kind,
        "format": FORMAT,
        "gpflow_gam": __version__,
        **about,
        "inputs": [i.to_json() for i in source.inputs],
        "components": list(source.names),
        **source.description(),
        "signatures": {name: _arguments(source, *given) for name, given in functions.items()},
    }


def _arguments(source: Servable, function: Any, meanings: dict[str, str]) -> dict[str, Any]:
    """The types of what a function takes and returns, by name."""

    def meaning(key: str) -> str:
        head, name = source.split_head(key, meanings)
        return f"{meanings[name]}, by {head[:-1]}" if head else meanings[name]

    arguments = function.structured_input_signature[1]
    return {
        "inputs": {key: _type(spec) for key, spec in arguments.items()},
        "outputs": {
            key: {**_type(spec), "meaning": meaning(key)}
            for key, spec in function.structured_outputs.items()
        },
    }


def _type(spec: tf.TensorSpec) -> dict[str, Any]:
    shape = None if spec.shape.rank is None else spec.shape.as_list()
    return {"dtype": spec.dtype.name, "shape": shape}
