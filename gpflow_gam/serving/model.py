"""GPflow models of ours as something that can be exported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import tensorflow as tf

from ..models import AdditiveModel, IterNCGP
from .posterior import PosteriorServable
from .rows import Rows
from .servable import Input, servable


class ModelServable(PosteriorServable):
    """
    A model of a matrix X: AdditiveSVGP, AdditiveSGPR, AdditiveVGP or IterNCGP.

    :param model: trained.
    :raises ValueError: an IterNCGP that was not fitted.
    """

    kind: ClassVar[str] = "model"

    def __init__(self, model: AdditiveModel) -> None:
        share = model.predictive_share() if isinstance(model, IterNCGP) else 1.0
        super().__init__(model.posterior(), model.likelihood, share=share)
        self._class = type(model).__name__
        width = _width(model)
        meaning = f"rows of X, {width} columns in the model's order"
        self.inputs = (Input("inputs", tf.float64, (None, width), meaning),)

    def features(self, inputs: Mapping[str, tf.Tensor], rows: Rows) -> tf.Tensor:
        X = tf.cast(inputs["inputs"], tf.float64)
        bad = ~tf.reduce_all(tf.math.is_finite(X), axis=1)
        message = "inputs must be finite; drop or impute the rows; first, row"
        return rows.require(X, bad, [message, tf.where(bad)[:1, 0]], 0.0)

    def description(self) -> dict[str, Any]:
        return {"model": self._class, "likelihood": type(self.likelihood).__name__}


def _width(model: AdditiveModel) -> int:
    """D: of the data where the model holds them, else what the kernel reads."""
    data = getattr(model, "data", None)
    if data is not None:
        return int(data[0].shape[1])
    inputs = [tf.convert_to_tensor(Z) for Z in model.inducing_variable.inputs]
    whole = [int(Z.shape[1]) for Z, c in zip(inputs, model.kernel.columns) if c is None]
    return max([1, model.kernel.num_columns, *whole])


@servable.register(AdditiveModel)
def _model(model: AdditiveModel) -> ModelServable:
    return ModelServable(model)
