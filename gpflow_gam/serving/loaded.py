"""Reading SavedModels of ours back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from ..gam.frames import Table
from .servable import DESCRIPTION, FORMAT


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
