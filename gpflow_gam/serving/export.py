"""Writing SavedModels."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import tensorflow as tf

from ..version import __version__
from .rows import Invalid
from .servable import Servable, servable
from .signatures import DEFAULT, MEANINGS, SINGLE, Options, signatures

FORMAT = 1
"""Raised when older code could no longer read the description."""
DESCRIPTION = Path("assets.extra") / "gpflow_gam.json"
"""Where in a SavedModel the description is."""


def export(
    model: Any,
    path: str | Path,
    *,
    level: float = 0.95,
    invalid: Invalid = "error",
    max_rows: int | None = 1000,
    overwrite: bool = False,
) -> None:
    """
    Write a model as a TensorFlow SavedModel, for TensorFlow Serving and programs in any language.

    Its signatures are ``predict`` (also ``serving_default``), ``predict_components`` and
    ``sample``, and the same with ``_float32`` behind, which take and return numbers in single
    precision (and compute in double). The model's posterior is written with its cache, so that
    predictions factorise nothing; draws factorise the covariance of their rows.
    ``assets.extra/gpflow_gam.json`` describes inputs and outputs. The folder appears whole or not
    at all.

    :param model: a fitted :class:`~gpflow_gam.GAM`, a trained model of :mod:`gpflow_gam.models`,
        or a functional or sequential ``keras.Model`` with a head of :mod:`gpflow_gam.layers`.
    :param path: the folder to write.
    :param level: probability of ``lower`` and ``upper``, the limits of the expected response.
    :param invalid: what becomes of a request with rows that the model cannot take, such as levels
        it has never seen: ``"error"`` fails all of it, ``"nan"`` answers NaN for those rows.
    :param max_rows: of a request for joint draws, whose cost grows with the cube of its rows; None
        for no limit.
    :param overwrite: whether a SavedModel that is there may be replaced.
    :raises FileExistsError: there is something that may not be replaced.
    :raises ValueError: a bad option, a model that is not fitted, or a network whose output is not
        that of one head.
    :raises TypeError: a model of another kind.
    """
    options = Options(level, invalid, max_rows)
    path = Path(path)
    found = servable(model)
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
        _write(found, new, options)
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


def _write(found: Servable, path: Path, options: Options) -> None:
    functions = signatures(found, options)
    module = tf.Module()
    module.state = _own_state(list(functions.values()))
    module.tables = found.resources()
    tf.saved_model.save(module, str(path), signatures=functions)
    target = path / DESCRIPTION
    target.parent.mkdir()
    text = json.dumps(_description(found, functions, options), indent=1)
    target.write_text(text + "\n", encoding="utf-8")


def _own_state(functions: list[Any]) -> list[tf.Variable]:
    """
    Copies of the variables that the graphs read, which read these from now on.

    A SavedModel takes no variable with brackets in its name, as those of kernels named ``s(x)``
    have, and copies tie no class of GPflow's or ours to the file.
    """
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


def _description(found: Servable, functions: dict[str, Any], options: Options) -> dict[str, Any]:
    parts = {}
    for name, function in functions.items():
        kind = "predict" if name == DEFAULT else name.removesuffix(SINGLE)
        arguments = function.structured_input_signature[1]
        parts[name] = {
            "inputs": {key: _type(spec) for key, spec in arguments.items()},
            "outputs": {
                key: {**_type(spec), "meaning": MEANINGS[kind][key]}
                for key, spec in function.structured_outputs.items()
            },
        }
    return {
        "kind": found.kind,
        "format": FORMAT,
        "gpflow_gam": __version__,
        "tensorflow": tf.__version__,
        **dataclasses.asdict(options),
        "inputs": [i.to_json() for i in found.inputs],
        "components": list(found.names),
        **found.description(),
        "signatures": parts,
    }


def _type(spec: tf.TensorSpec) -> dict[str, Any]:
    shape = None if spec.shape.rank is None else spec.shape.as_list()
    return {"dtype": spec.dtype.name, "shape": shape}
