"""Writing models for programs that have none of ours, and reading SavedModels back."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from ..archive import replacing, replacing_folder
from ..errors import check_choice, check_count, check_level
from ..gam.editing import EditedGAM
from ..gam.frames.encoding import Encoder, days
from ..gam.frames.table import Table, kind_of_time
from ..gam.tables import ERROR
from ..gam.terms.base import Column
from .portable import SIGNATURE, graph_bytes
from .servable import FORMAT, Answers, Invalid, Rows, Servable, joined, servable
from .table_files import table_bytes, write_scorers

DESCRIPTION = Path("assets.extra") / "gpflow_gam.json"  # the description's place in a SavedModel


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

    def predict(self, data: Any) -> dict[str, AnyNDArray]:
        """
        The ``predict`` signature.

        :param data: a DataFrame, a dict of columns, or a matrix; columns by their own names or by
            those of the arguments, times as in the fit or as days since 1970. Of a network, its
            input, or several in a dict or list.
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
        named = names if isinstance(names, dict) else {"": names}
        return outputs | {joined(k, "names"): np.array(v, object) for k, v in named.items()}

    def sample(self, data: Any, num_samples: int = 1, seed: int = 0) -> dict[str, AnyNDArray]:
        """
        The ``sample`` signature: draws at the fitted hyperparameters.

        :param data: as of :meth:`predict`, at most ``max_rows`` of the export.
        :param num_samples: S.
        :param seed: equal ones give equal draws.
        :return: ``predictor`` and ``response``, joint draws at all rows.
        """
        check_count("num_samples", num_samples)
        number, seeded = tf.constant(num_samples, tf.int32), tf.constant(seed, tf.int64)
        return self._call("sample", data, num_samples=number, seed=seeded)

    def _call(self, name: str, data: Any, **more: tf.Tensor) -> dict[str, AnyNDArray]:
        outputs = self.signatures[name](**self._arguments(data), **more)
        return {key: np.asarray(value) for key, value in outputs.items()}

    def _arguments(self, data: Any) -> dict[str, tf.Tensor]:
        """The inputs of a signature, by name."""
        inputs = self.description["inputs"]
        if self.description["kind"] == "keras":
            return _tensors(data, inputs)
        places = dict(self.description.get("places", ()))
        if len(inputs) == 1 and inputs[0]["column"] is None:
            return {inputs[0]["name"]: _matrix(data, inputs[0], places)}
        table = _in_order(data, places)
        return {i["name"]: _column(table, i) for i in inputs}


def load(path: str | Path) -> Served:
    """
    Read what :func:`export` wrote.

    :param path: the folder.
    :return: a model to predict from.
    :raises FileNotFoundError: there is no SavedModel, or none of ours.
    :raises ValueError: it is a newer one.
    """
    path = Path(path)
    if not (path / DESCRIPTION).exists():
        raise FileNotFoundError(
            f"{path} is no SavedModel of gpflow_gam: there is no {path / DESCRIPTION}. "
            "tf.saved_model.load reads those of others."
        )
    description = json.loads((path / DESCRIPTION).read_text(encoding="utf-8"))
    if description["format"] > FORMAT:
        raise ValueError(
            f"{path} was written by gpflow_gam {description['gpflow_gam']} in format "
            f"{description['format']}; this version reads up to {FORMAT}. Upgrade gpflow_gam."
        )
    return Served(tf.saved_model.load(str(path)), description)


# --- data as arguments ---------------------------------------------------------------------------


def _tensors(data: Any, specs: Sequence[Mapping[str, Any]]) -> dict[str, tf.Tensor]:
    """A network's inputs."""
    names = [spec["name"] for spec in specs]
    if isinstance(data, Mapping):
        keys = [s["column"] if s["column"] in data else s["name"] for s in specs]
        values = [data.get(key) for key in keys]
    else:
        values = list(data) if isinstance(data, (list, tuple)) and len(names) > 1 else [data]
    if len(values) != len(names) or any(value is None for value in values):
        raise ValueError(f"data must hold {len(names)} input(s), {', '.join(names)}.")
    return {
        spec["name"]: tf.cast(tf.constant(np.asarray(value)), spec["dtype"])
        for spec, value in zip(specs, values)
    }


def _in_order(data: Any, places: Mapping[Column, Any]) -> Table:
    """A table; ValueError if another column is where the model had one of a name."""
    table, called = Table(data), {place: name for place, name in places.items() if name is not None}
    Encoder({}, called).check_places(table, ((place, "number") for place in called))
    return table


def _matrix(data: Any, spec: Mapping[str, Any], places: Mapping[Column, Any]) -> tf.Tensor:
    name, width = spec["name"], spec["shape"][1]
    read = np.array(list(places or range(width)), dtype=int)
    if isinstance(data, Mapping) and name in data:
        data = data[name]
    elif isinstance(data, Mapping) or hasattr(data, "columns"):
        table = _in_order(data, places)
        hole = np.full(table.num_rows, np.nan)
        each = (_column(table, {**spec, "column": i}) if i in read else hole for i in range(width))
        data = np.stack(list(each), axis=1)
    X = np.asarray(data)
    if X.ndim != 2 or X.shape[1] < width:
        raise ValueError(f"data must be a matrix with {width} columns; got shape {X.shape}.")
    result = np.full((len(X), width), np.nan)
    result[:, read] = X[:, read]  # the others may hold text
    return tf.constant(result)


_HELD = {"string": "text", "float64": "numbers", "int64": "whole numbers", "bool": "truth values"}


def _column(table: Table, spec: Mapping[str, Any]) -> tf.Tensor:
    column, dtype = spec["column"], spec["dtype"]
    name = spec["name"] if column not in table and spec["name"] in table else column
    hole = {"string": "", "float64": np.nan}.get(dtype, spec["fill"])
    missing = table.missing(name)
    if hole is None and missing.any():
        raise ValueError(f"column {name!r} has missing values; leave those rows out.")
    values, time = table.values(name), kind_of_time(table, name)
    if time and time != spec.get("time"):
        needed = spec.get("time") or _HELD[dtype]
        raise ValueError(f"column {name!r} holds {time}, and must hold {needed}.")
    values = days(values, time) if time else values
    values = [hole if gone else value for value, gone in zip(values, missing)]
    try:
        if dtype == "string":
            return tf.constant(values, tf.string, shape=[len(values)])
        given = np.array(values, object)  # whole numbers have more digits than float64
        numbers = given.astype(dtype)
        if dtype == "float64" or np.array_equal(numbers, given):
            return tf.constant(numbers)
    except (OverflowError, TypeError, ValueError):
        pass  # the same as numbers of another kind
    raise ValueError(f"column {name!r} must hold {_HELD[dtype]}.")


# --- writing --------------------------------------------------------------------------------------

TABLES = (".json", ".html", ".sql", ".xlsx", ".pmml")
GRAPHS = (".onnx", ".tflite")


def export(
    model: Any,
    path: str | Path,
    *,
    level: float = 0.95,
    invalid: Invalid | None = None,
    max_rows: int | None = 1000,
    error: float = ERROR,
    knots: Mapping[Any, Sequence[float]] | None = None,
    table: str = "data",
    overwrite: bool = False,
) -> None:
    """
    Write a model for other programs: as a SavedModel, an ONNX or a LiteRT file, or its tables.

    A SavedModel has the signatures ``predict``, ``predict_components`` and ``sample``; ONNX and
    LiteRT files have the outputs of the first two. JSON, SQL, Excel and PMML files hold a GAM's
    :meth:`~gpflow_gam.GAM.tables`, JSON beside the programs that read it; an HTML file is a page
    that draws them, with a slider for each covariate. All of it is described in
    :doc:`/serving`, and of networks and models in the file itself.

    The folder or file appears whole or not at all.

    :param model: a fitted :class:`~gpflow_gam.GAM`, a trained model of :mod:`gpflow_gam.models`,
        or a functional or sequential ``keras.Model`` whose outputs are those of heads of
        :mod:`gpflow_gam.layers`, one each. Names of several heads, and ``_``, stand before those
        of their outputs.
    :param path: of the file to write, whose suffix is its format: ``.onnx``, ``.tflite``,
        ``.json``, ``.html``, ``.sql``, ``.xlsx`` or ``.pmml``; otherwise of a SavedModel's folder,
        whose name may end in ``.v1`` or ``.2``, but in no other suffix of letters alone.
    :param level: probability of ``lower`` and ``upper``, the credible interval of the expected
        response.
    :param invalid: for requests with rows that the model cannot take, such as levels it has never
        seen: ``"error"``, a SavedModel's default, fails all of it, ``"nan"`` answers NaN for those
        rows. The other formats know no errors: there it is always ``"nan"``.
    :param max_rows: of a request for joint draws, whose cost grows with the cube of its rows; None
        for no limit.
    :param error: of tables, the greatest error of straight lines between knots, as a share of the
        range of each effect over the data.
    :param knots: of columns whose tables have their knots there.
    :param table: of SQL, the table whose rows are scored, as ``"main.policies"`` of a schema; a
        name that begins with a double quote is taken as it is.
    :param overwrite: whether what is there may be replaced by its like.
    :raises FileExistsError: there is something that may not be replaced.
    :raises ImportError: the package that writes the format is not installed.
    :raises ValueError: a bad option, a model that is not fitted, a network whose outputs
        are not those of heads, one each, or a model with operations that the format lacks, or whose
        predictions LiteRT's single precision changes by a hundredth of their size.
    :raises TypeError: a model of another kind.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    is_folder = suffix not in (*TABLES, *GRAPHS)
    if is_folder and suffix[1:].isalpha():
        raise ValueError(f"path: {suffix} is none of {', '.join((*TABLES, *GRAPHS))}.")
    own = suffix in TABLES and not isinstance(model, EditedGAM)  # which has its tables already
    for name, value, default, given in (
        ("error", error, ERROR, own),
        ("knots", knots, None, own),
        ("table", table, "data", suffix == ".sql"),
        ("invalid", invalid, "nan", is_folder),
    ):
        if not given and value not in (None, default):
            raise ValueError(f"{name} is no option of {path.name}: leave it out.")
    check_level(level)
    is_like = (path / "saved_model.pb").exists() if is_folder else path.is_file()
    if path.exists() and not (overwrite and is_like):
        raise FileExistsError(
            f"{path} is there already; with overwrite=True a SavedModel replaces a SavedModel, and "
            "a file a file."
        )
    if is_folder:
        check_choice("invalid", invalid or "error", get_args(Invalid))
        check_count("max_rows", max_rows)
        about = {"level": level, "invalid": invalid or "error", "max_rows": max_rows}
        _write_folder(servable(model), path, about)
        return
    if suffix in TABLES:
        content = table_bytes(model, suffix, error, knots, table, level)
    else:
        content = graph_bytes(servable(model), suffix, level)
    path.parent.mkdir(parents=True, exist_ok=True)
    if suffix == ".json":
        write_scorers(path.parent)
    with replacing(path) as file:
        file.write(content)


# --- SavedModels ----------------------------------------------------------------------------------


def _write_folder(source: Servable, path: Path, options: Mapping[str, Any]) -> None:
    """Write a SavedModel, which appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing_folder(path) as new:
        functions = _signatures(source, **options)
        module = tf.Module()
        module.state = [v for f in functions.values() for v in f.graph.variables]
        module.tables = list(source.resources)
        tf.saved_model.save(module, str(new), signatures=functions)
        description = source.described(source.inputs, tensorflow=tf.__version__, **options)
        (new / DESCRIPTION).parent.mkdir()
        (new / DESCRIPTION).write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")


def _signatures(
    source: Servable, level: float, invalid: Invalid, max_rows: int | None
) -> dict[str, Any]:
    """Concrete functions by name."""

    def answering(answer: Any) -> Any:
        # traced once for all: signatures differ in how they come to X
        return tf.function(
            lambda X, *more: source.each(lambda h, x: answer(h, x, *more), X), autograph=False
        )

    predict = answering(lambda head, x: head.predict(x, level))
    components, draw = answering(Answers.predict_components), answering(Answers.sample)
    most = np.iinfo(np.int32).max if max_rows is None else max_rows

    def sample(X: Any, num_samples: tf.Tensor, seed: tf.Tensor) -> Any:
        rows = tf.shape(X[0])[0]
        many = (
            f"a request for draws may have {most} rows, whose joint covariance is factorised: send "
            "fewer, or export with a larger max_rows; got"
        )
        with tf.control_dependencies([tf.debugging.Assert(rows <= most, [many, rows])]):
            return draw([tf.identity(x) for x in X], num_samples, seed)

    draws = [tf.TensorSpec([], tf.int32, "num_samples"), tf.TensorSpec([], tf.int64, "seed")]
    traced = functools.partial(source.traced, inputs=source.inputs, rows=lambda: Rows(invalid))
    return {
        SIGNATURE: (first := traced(predict)),
        "predict": first,
        "predict_components": traced(components),
        "sample": traced(sample, more=draws),
    }
