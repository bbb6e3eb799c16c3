"""Reading SavedModels of ours back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from .arguments import arguments
from .export import DESCRIPTION, FORMAT


class Served:
    """
    A model as it is served: the signatures, with data of the usual kinds as arguments.

    :param module: what ``tf.saved_model.load`` returns.
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
        The ``predict_components`` signature: ``mean`` and ``variance``; and ``names``, those of the
        components, which are no signature's output: every one of those has a row for a row. Of
        several heads each name has its head's in front, ``one_mean``, ``one_names``.

        :param data: as of :meth:`predict`.
        """
        found, names = self._call("predict_components", data), self.description["components"]
        if not isinstance(names, dict):
            return found | {"names": np.array(names, dtype=object)}
        return found | {f"{k}_names": np.array(v, dtype=object) for k, v in names.items()}

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
