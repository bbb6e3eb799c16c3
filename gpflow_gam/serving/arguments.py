"""Data of the usual kinds as the arguments of a signature."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from ..gam.frames import Table


def arguments(description: Mapping[str, Any], data: Any) -> dict[str, tf.Tensor]:
    """
    The inputs of a signature, by name.

    :param description: what a file says of itself.
    :param data: a DataFrame, a dict of columns, or a matrix; of a network, its inputs.
    :raises ValueError: a column that is not there or of another type.
    """
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
    found = {}
    for spec, value in zip(specs, values):
        shape = np.shape(value)
        if len(shape) != len(spec["shape"]) or any(
            want not in (None, have) for want, have in zip(spec["shape"], shape)
        ):
            raise ValueError(f"{spec['name']} must be of shape {spec['shape']}; got {shape}.")
        found[spec["name"]] = tf.cast(tf.constant(np.asarray(value)), spec["dtype"])
    return found


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
